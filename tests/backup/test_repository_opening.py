"""Making and opening a repository: one of many makers wins, and what is wrong is told before anything is touched."""

import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dw_platform.backup import (
    BackupRepository,
    KeyMissingError,
    KeyNotNeededError,
    NotARepositoryError,
    OtherPlatformError,
    Place,
    RepositoryDamagedError,
    RepositoryForbiddenError,
    RepositoryTooNewError,
    WrongKeyError,
)
from dw_platform.backup.layout import DESCRIPTION, twin_of
from dw_platform.backup.sealed import seal, unseal
from dw_platform.foundation import InvalidValueError
from dw_platform.store import MemoryStore
from tests.backup.repository_kit import PLATFORM, SECRET, files_of, new_repository


def opened(folder: Path, *, platform: str = PLATFORM, secret: str | None = None) -> BackupRepository:
    return BackupRepository.open(Place.at(folder), platform=platform, store=MemoryStore(), secret=secret)


def state_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in files_of(folder)}


def test_a_repository_is_made_once_and_opened_by_everybody_else(tmp_path: Path) -> None:
    made = new_repository(tmp_path / "new" / "repo")
    assert opened(tmp_path / "new" / "repo").id == made.id
    assert new_repository(tmp_path / "new" / "repo").id == made.id
    assert made.fence.read()


@pytest.mark.parametrize("secret", [None, SECRET])
def test_of_makers_at_once_one_wins_and_the_others_open_its_repository(tmp_path: Path, secret: str | None) -> None:
    start = threading.Barrier(6)

    def make(_number: int) -> str:
        start.wait()
        return new_repository(tmp_path / "repo", secret=secret).id

    with ThreadPoolExecutor(6) as pool:
        ids = set(pool.map(make, range(6)))
    assert len(ids) == 1
    assert not [path for path in files_of(tmp_path) if path.name.endswith(".tmp")]


def test_what_a_killed_maker_left_does_not_make_a_folder_foreign(tmp_path: Path) -> None:
    (tmp_path / "repo" / "lost+found").mkdir(parents=True)
    (tmp_path / "repo" / ".0123456789abcdef.tmp").write_bytes(b"half")
    assert new_repository(tmp_path / "repo").id


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "orders.parquet").write_bytes(b"x")
    before = state_of(tmp_path)
    for open_it in (new_repository, opened):
        with pytest.raises(NotARepositoryError) as refused:
            open_it(tmp_path)
        assert "orders.parquet" in refused.value.found
    with pytest.raises(NotARepositoryError, match="file"):
        new_repository(tmp_path / "orders.parquet")
    assert state_of(tmp_path) == before


def test_opening_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotARepositoryError, match="empty"):
        opened(tmp_path)
    with pytest.raises(NotARepositoryError):
        opened(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def rewrite(folder: Path, **changes: object) -> None:
    file = folder / DESCRIPTION
    facts, _ = unseal("repository", file.read_bytes(), None)
    del facts["type"]
    file.write_bytes(seal("repository", {**facts, **changes}, None))


def test_a_later_format_is_refused_whatever_its_check_is(tmp_path: Path) -> None:
    new_repository(tmp_path)
    rewrite(tmp_path, format=2)
    with pytest.raises(RepositoryTooNewError) as refused:
        opened(tmp_path)
    assert (refused.value.version, refused.value.known) == (2, 1)
    document = json.loads((tmp_path / DESCRIPTION).read_bytes())
    (tmp_path / DESCRIPTION).write_text(json.dumps({**document, "check": "blake3:x"}))
    with pytest.raises(RepositoryTooNewError):
        opened(tmp_path)


def test_another_platforms_repository_is_refused(tmp_path: Path) -> None:
    new_repository(tmp_path)
    with pytest.raises(OtherPlatformError) as refused:
        opened(tmp_path, platform="warehouse")
    assert refused.value.owner == PLATFORM


def test_a_key_is_given_exactly_where_there_is_one(tmp_path: Path) -> None:
    new_repository(tmp_path / "plain")
    new_repository(tmp_path / "secret", secret=SECRET)
    with pytest.raises(KeyNotNeededError):
        opened(tmp_path / "plain", secret=SECRET)
    with pytest.raises(KeyMissingError):
        opened(tmp_path / "secret")
    with pytest.raises(WrongKeyError):
        opened(tmp_path / "secret", secret=SECRET + "!")
    assert opened(tmp_path / "secret", secret=SECRET).keys is not None


def test_a_key_that_anybody_would_guess_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError) as refused:
        new_repository(tmp_path / "repo", secret="12345")
    assert "12345" not in str(refused.value)
    assert not (tmp_path / "repo" / DESCRIPTION).exists()


def test_every_changed_byte_of_the_description_is_found(tmp_path: Path) -> None:
    new_repository(tmp_path, secret=SECRET)
    file = tmp_path / DESCRIPTION
    good = file.read_bytes()
    for at in range(len(good)):
        file.write_bytes(good[:at] + bytes([good[at] ^ 2]) + good[at + 1 :])
        with pytest.raises((RepositoryDamagedError, RepositoryTooNewError)):
            opened(tmp_path, secret=SECRET)
    for cut in (b"", good[:-1], good[: len(good) // 2], good + b"x"):
        file.write_bytes(cut)
        with pytest.raises(RepositoryDamagedError):
            opened(tmp_path, secret=SECRET)


def test_a_lost_description_is_not_taken_for_an_empty_folder(tmp_path: Path) -> None:
    repository = new_repository(tmp_path)
    (tmp_path / DESCRIPTION).unlink()
    for open_it in (opened, new_repository):
        with pytest.raises(RepositoryDamagedError, match="copies"):
            open_it(tmp_path)
    (tmp_path / DESCRIPTION).write_bytes((tmp_path / twin_of(DESCRIPTION)).read_bytes())
    assert opened(tmp_path).id == repository.id


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_rights_is_refused(tmp_path: Path) -> None:
    new_repository(tmp_path / "repo")
    (tmp_path / "repo").chmod(0)
    try:
        with pytest.raises(RepositoryForbiddenError):
            opened(tmp_path / "repo")
    finally:
        (tmp_path / "repo").chmod(0o700)


def test_a_file_system_that_refuses_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = new_repository(tmp_path / "repo")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(RepositoryForbiddenError) as refused:
        repository.storage.read(DESCRIPTION)
    assert refused.value.place == str(tmp_path / "repo")
    with pytest.raises(RepositoryForbiddenError):
        repository.storage.write("pins/x", b"")
