"""Opening a platform touches nothing until something is asked for, and closing it leaves nothing open."""

import threading
from pathlib import Path

import pytest

from dw_platform.config import ConfigError
from dw_platform.lake.opening import StorageUnreachableError
from dw_platform.lake.session import SparkProvider
from dw_platform.pipelines import Platform
from dw_platform.pipelines.platform import HomeNotWritableError
from dw_platform.store import StoreUnavailableError
from tests.pipelines.conftest import MakePlatform


def test_opening_makes_nothing(make_platform: MakePlatform, tmp_path: Path) -> None:
    platform = make_platform()
    assert platform.config.name == "tested"
    assert list(tmp_path.iterdir()) == []


def test_looking_at_tables_starts_no_spark(make_platform: MakePlatform) -> None:
    platform = make_platform()
    assert platform.table_names() == []
    assert not platform.spark.started


def test_the_file_comes_from_the_argument_the_environment_or_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("argument", "environment", "platform"):
        (tmp_path / f"{name}.yaml").write_text(f"name: {name}\n")
    monkeypatch.chdir(tmp_path)
    environ = {"DW_CONFIG": str(tmp_path / "environment.yaml")}
    assert Platform.open("argument.yaml", environ=environ).config.name == "argument"
    assert Platform.open(environ=environ).config.name == "environment"
    assert Platform.open(environ={"DW_CONFIG": ""}).config.name == "platform"
    with pytest.raises(ConfigError):
        Platform.open("nowhere.yaml", environ={})


def test_closing_twice_does_nothing_and_using_it_again_opens_it_again(make_platform: MakePlatform) -> None:
    platform = make_platform()
    platform.store.put("dw://internal/x", b"1")
    platform.close()
    platform.close()
    entry = platform.store.get("dw://internal/x")
    assert entry is not None
    assert entry.value == b"1"


def test_the_parts_are_the_same_for_every_thread(make_platform: MakePlatform) -> None:
    platform = make_platform()
    found: list[tuple[int, int, int]] = []
    threads = [
        threading.Thread(target=lambda: found.append((id(platform.lake), id(platform.store), id(platform.spark))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_the_store_is_closed_even_if_spark_cannot_be_stopped(
    make_platform: MakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise ConnectionError("the JVM has gone")

    platform = make_platform()
    closed: list[bool] = []
    monkeypatch.setattr(platform.store, "close", lambda: closed.append(True))
    assert platform.spark is not None
    with monkeypatch.context() as broken:
        broken.setattr(SparkProvider, "stop", fail)
        with pytest.raises(ConnectionError):
            platform.close()
    assert closed == [True]


@pytest.mark.parametrize(
    ("home", "cause"), [("file", "there is a file of that name"), ("file/below", "Not a directory")]
)
def test_a_home_that_cannot_be_made_is_named_with_the_key_to_change(
    make_platform: MakePlatform, tmp_path: Path, home: str, cause: str
) -> None:
    (tmp_path / "file").write_text("mine")
    platform = make_platform(f"name: x\nhome: {home}\n")
    with pytest.raises(HomeNotWritableError, match=r"Set `home` in platform\.yaml") as caught:
        _ = platform.store
    assert (caught.value.path, caught.value.cause) == (tmp_path / home, cause)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_home_can_be_made_writable_while_it_is_open(make_platform: MakePlatform, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    platform = make_platform("name: x\nhome: file\n")
    with pytest.raises(HomeNotWritableError):
        _ = platform.home
    (tmp_path / "file").unlink()
    assert platform.home.is_dir()


def test_a_store_that_is_down_is_tried_again(make_platform: MakePlatform) -> None:
    platform = make_platform("name: x\nstore: {url: 'postgresql://user:word@127.0.0.1:1/x'}\n")
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            _ = platform.lake


def test_a_lake_that_cannot_be_listed_is_not_an_empty_one(make_platform: MakePlatform, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    platform = make_platform("name: x\nlake: {root: file}\n")
    with pytest.raises(StorageUnreachableError, match=r"Check `lake` in platform\.yaml"):
        platform.table_names()
