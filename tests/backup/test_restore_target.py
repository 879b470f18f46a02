"""Where a table may be restored to, and who holds the place meanwhile."""

from pathlib import Path

import pytest

from dw_platform.backup.place import Place
from dw_platform.backup.restore_claim import CLAIM, Phase, read_claim
from dw_platform.backup.restore_errors import (
    ClaimUnreadableError,
    ReplaceNeedsRenameError,
    TargetClaimedError,
    TargetNestedError,
    TargetNotEmptyError,
)
from dw_platform.backup.restore_target import claim_target, existing_files
from dw_platform.foundation import InvalidValueError, UserError
from tests.backup.delta_tables import HandTable, bucket


@pytest.fixture(params=["disk", "bucket"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place.at(tmp_path / "bucket/table") if request.param == "disk" else bucket(tmp_path)[0]


def put(tmp_path: Path, path: str) -> None:
    file = tmp_path / "bucket/table" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x")


def test_an_empty_place_is_taken_and_the_same_restore_may_go_on(target: Place, tmp_path: Path) -> None:
    claim = claim_target(target, "job-1")
    assert (claim.job, claim.phase, claim.replaces) == ("job-1", Phase.WRITING, False)
    put(tmp_path, "part.parquet")
    assert claim_target(target, "job-1") == claim == read_claim(target)
    assert dict(existing_files(target)) == {"part.parquet": 1}
    with pytest.raises(TargetClaimedError, match="job-1") as caught:
        claim_target(target, "job-2", overwrite=True)
    assert caught.value.holder == "job-1"


def test_a_place_with_content_is_refused_unless_overwriting_is_allowed(target: Place, tmp_path: Path) -> None:
    put(tmp_path, "a/b.parquet")
    put(tmp_path, "z")
    with pytest.raises(TargetNotEmptyError) as caught:
        claim_target(target, "job")
    assert (caught.value.found, caught.value.files) == ("a/b.parquet", 2)
    assert isinstance(caught.value, UserError)
    assert read_claim(target) is None
    assert not claim_target(target, "job", overwrite=True).replaces


def test_files_of_a_lock_are_no_content(target: Place, tmp_path: Path) -> None:
    put(tmp_path, "_dw_commit.lock")
    claim_target(target, "job", besides=("_dw_commit.",))
    assert read_claim(target) is not None


def test_a_table_can_be_replaced_on_a_disk_and_not_in_a_bucket(target: Place, tmp_path: Path) -> None:
    put(tmp_path, "_delta_log/00000000000000000000.json")
    if target.is_local:
        assert claim_target(target, "job", overwrite=True).replaces
    else:
        with pytest.raises(ReplaceNeedsRenameError, match="empty prefix"):
            claim_target(target, "job", overwrite=True)
        assert read_claim(target) is None


@pytest.mark.parametrize("overwrite", [False, True])
def test_no_table_lies_inside_another(target: Place, tmp_path: Path, *, overwrite: bool) -> None:
    put(tmp_path, "inner/deep/_delta_log/00000000000000000000.json")
    with pytest.raises(TargetNestedError) as caught:
        claim_target(target, "job", overwrite=overwrite)
    assert caught.value.other.endswith("table/inner/deep")
    for place in (target.child("inner/deep/x"), target.child("inner/deep/x/y/z")):
        with pytest.raises(TargetNestedError) as caught:
            claim_target(place, "job", overwrite=overwrite)
        assert caught.value.other.endswith("table/inner/deep")
    claim_target(target.child("inner/beside"), "job")


def test_a_link_into_a_table_is_seen_through(tmp_path: Path) -> None:
    HandTable(tmp_path / "table").begin()
    (tmp_path / "table/folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table/folder")
    with pytest.raises(TargetNestedError):
        claim_target(Place.at(tmp_path / "link/x"), "job")


def test_of_two_restores_that_begin_at_once_one_has_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Place.at(tmp_path / "target")
    claim_target(target, "first")
    # The second looked before the first had left its note.
    monkeypatch.setattr("dw_platform.backup.restore_target.read_claim", lambda _: None)
    monkeypatch.setattr("dw_platform.backup.restore_target.list_files", lambda _: {})
    with pytest.raises(TargetClaimedError, match="first"):
        claim_target(target, "second")
    assert [path.name for path in target.local.iterdir()] == [CLAIM]


@pytest.mark.parametrize("job", ["", "a/b", "../x", ".hidden", "x" * 101, "a b"])
def test_a_job_that_cannot_be_part_of_a_name_is_refused_before_anything_is_made(tmp_path: Path, job: str) -> None:
    with pytest.raises(InvalidValueError):
        claim_target(Place.at(tmp_path / "target"), job)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"format": 2}', '{"format": 1, "job": "j", "phase": "x", "replaces": false, "log": {}}']
)
def test_a_note_that_cannot_be_understood_keeps_everybody_away(target: Place, tmp_path: Path, text: str) -> None:
    put(tmp_path, "x")
    (tmp_path / "bucket/table" / CLAIM).write_text(text)
    with pytest.raises(ClaimUnreadableError, match=CLAIM):
        claim_target(target, "job", overwrite=True)
