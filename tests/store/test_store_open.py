import subprocess
import sys
from pathlib import Path

import pytest

from dw_platform.foundation import InvalidValueError, MissingExtraError, UserError
from dw_platform.store import FileStore, MemoryStore, StoreUnavailableError, open_store, without_password


def test_each_memory_store_is_new_and_empty() -> None:
    first, second = open_store("memory://"), open_store("memory://")
    first.put("key", b"value")
    assert isinstance(first, MemoryStore)
    assert second.get("key") is None


def test_a_file_address_may_escape_characters(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}/with%20space")
    assert isinstance(store, FileStore)
    assert (tmp_path / "with space" / "entries").is_dir()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "store",
        "redis://host",
        "memory://name",
        "file://host/dir",
        "file://relative",
        "file:///",
        "mysql://u@h/d",
        "postgresql+psycopg2://u@h/d",
    ],
)
def test_an_unknown_address_is_answered_with_what_is_allowed(url: str) -> None:
    with pytest.raises(UserError, match=r"sqlite:///FILE") as caught:
        open_store(url)
    assert "postgresql://" in str(caught.value)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_sqlite_in_memory_is_refused_in_favour_of_a_memory_store(url: str) -> None:
    with pytest.raises(InvalidValueError, match="memory://"):
        open_store(url)


def test_a_malformed_address_does_not_leak_its_password() -> None:
    with pytest.raises(UserError) as caught:
        open_store("postgresql://me:hunter2@host:not-a-port/db")
    assert "hunter2" not in str(caught.value)
    assert "%XX" in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:secret@host/db", "postgresql://me:***@host/db"),
        ("postgresql://me:s@e:c/r@t@host:1/db?a=b", "postgresql://me:***@host:1/db?a=b"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://host/db?user=me&password=secret&sslpassword=x", None),
        ("postgresql+psycopg://:secret@/db?host=/run", "postgresql+psycopg://:***@/db?host=/run"),
        ("sqlite:////data/a:b@c.db", "sqlite:////data/a:b@c.db"),
        ("file:///data", "file:///data"),
    ],
)
def test_passwords_are_hidden_and_everything_else_is_shown(url: str, shown: str | None) -> None:
    hidden = "postgresql://host/db?user=me&password=***&sslpassword=***"
    assert without_password(url) == (shown or hidden)


def test_a_server_that_is_not_there_is_reported_without_its_password() -> None:
    # Port 1 is reserved and refuses at once.
    with pytest.raises(StoreUnavailableError, match="not available") as caught:
        open_store("postgresql://me:hunter2@127.0.0.1:1/db")
    assert caught.value.url == "postgresql://me:***@127.0.0.1:1/db"
    assert "hunter2" not in str(caught.value)


def test_a_directory_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for url in (f"file://{tmp_path}/file/store", f"sqlite:///{tmp_path}/file/store.db"):
        with pytest.raises(StoreUnavailableError) as caught:
            open_store(url)
        assert caught.value.url == url


def test_a_missing_driver_names_the_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtraError) as caught:
        open_store("postgresql://me@127.0.0.1:1/db")
    assert caught.value.extra == "postgres"


def test_importing_the_package_does_not_import_sqlalchemy() -> None:
    code = "import sys, dw_platform.store; sys.exit('sqlalchemy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
