"""The log becomes visible at once and last, and a restore can be completed or taken back from wherever it stopped."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.backup.capture import capture_table
from dw_platform.backup.contents import StoredFile
from dw_platform.backup.log_order import order_log
from dw_platform.backup.log_publish import finish_publish, publish_log, undo_publish
from dw_platform.backup.place import Place
from dw_platform.backup.restore_claim import Phase, read_claim, write_claim
from dw_platform.backup.restore_errors import (
    LogIncompleteError,
    RestoredTableUsedError,
    RestorePhaseError,
    TargetClaimedError,
    TargetTakenError,
)
from dw_platform.backup.restore_files import restore_file
from dw_platform.backup.restore_target import claim_target
from tests.backup.delta_tables import HandTable, Killed, bucket, reader, stored, write_staged

JOB = "job"
OLD_ROWS, NEW_ROWS = 2, 5


def source_table(root: Path) -> HandTable:
    """A table with a checkpoint in the middle, whose history goes back to the first commit."""
    table = HandTable(root).begin().append(3)
    DeltaTable(str(root)).create_checkpoint()
    return table.append(2)


def rows_seen(folder: Path) -> int | None:
    """Return what a reader sees there just now: rows, or None if there is no table to be read."""
    try:
        return DeltaTable(str(folder)).to_pyarrow_table().num_rows
    except (DeltaError, OSError):
        return None


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, before: int) -> Iterator[list[str]]:
    """Let the process die before its n-th change of the disk; whatever it still tries then does not happen either."""
    done: list[str] = []

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(done) >= before:
                raise Killed
            done.append(name)
            return real(*args, **kwargs)

        return call

    with monkeypatch.context() as patched:
        for name in ("rename", "replace", "unlink", "rmdir", "link", "fsync"):
            patched.setattr(os, name, watched(name, getattr(os, name)))
        # rmtree asks at import which of its ways is safe; both end in the calls above.
        yield done


class Stage:
    """A restored table that waits for its log to be published, beside or over another table."""

    def __init__(self, tmp_path: Path, *, replaces: bool) -> None:
        self.source = source_table(tmp_path / "source")
        self.folder = tmp_path / "target"
        self.target = Place.at(self.folder)
        if replaces:
            HandTable(self.folder).begin().append(OLD_ROWS)
        capture = capture_table(self.source.place, history=True)
        self.entries: list[StoredFile] = stored(self.source.place, capture)
        write_staged(self.source.place, self.target, self.entries, job=JOB, overwrite=replaces)
        self.before = OLD_ROWS if replaces else None

    def publish(self) -> None:
        publish_log(self.target, JOB, self.entries)

    def finish(self) -> None:
        assert finish_publish(self.target, JOB)

    def undo(self) -> None:
        assert undo_publish(self.target, JOB)

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name.startswith(("_delta_log.", "_dw_", ".")))


@pytest.fixture(params=[False, True], ids=["fresh", "over another"])
def replaces(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_readers_see_the_old_table_until_the_log_appears_and_the_new_one_afterwards(
    tmp_path: Path, *, replaces: bool
) -> None:
    stage = Stage(tmp_path, replaces=replaces)
    assert rows_seen(stage.folder) == stage.before
    stage.publish()
    assert rows_seen(stage.folder) == NEW_ROWS
    stage.publish()
    stage.finish()
    assert (rows_seen(stage.folder), stage.leftovers()) == (NEW_ROWS, [])
    assert not finish_publish(stage.target, JOB)
    assert not undo_publish(stage.target, JOB)
    assert rows_seen(stage.folder) == NEW_ROWS


def test_taking_back_brings_the_table_that_was_there(tmp_path: Path, *, replaces: bool) -> None:
    stage = Stage(tmp_path, replaces=replaces)
    stage.publish()
    stage.undo()
    assert (rows_seen(stage.folder), stage.leftovers()) == (stage.before, [])


def test_a_restore_that_was_never_published_can_be_taken_back(tmp_path: Path, *, replaces: bool) -> None:
    stage = Stage(tmp_path, replaces=replaces)
    stage.undo()
    assert (rows_seen(stage.folder), stage.leftovers()) == (stage.before, [])


def killed(monkeypatch: pytest.MonkeyPatch, work: Callable[[], None], before: int) -> bool:
    """Return whether the work was cut short before its n-th change."""
    with dying(monkeypatch, before):
        try:
            work()
        except Killed:
            return True
        return False


def each_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[Stage], None], *, replaces: bool
) -> Iterator[Stage]:
    """Yield the folder as it is when the work dies before its first change, its second, and so on to the last."""
    step = 0
    while True:
        folder = tmp_path / str(step)
        stage = Stage(folder, replaces=replaces)
        died = killed(monkeypatch, lambda stage=stage: work(stage), step)  # type: ignore[misc]
        yield stage
        shutil.rmtree(folder)
        if not died:
            return
        step += 1


def test_publishing_can_be_repeated_and_finished_from_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replaces: bool
) -> None:
    steps = 0
    for stage in each_death(tmp_path, monkeypatch, Stage.publish, replaces=replaces):
        assert rows_seen(stage.folder) in {stage.before, NEW_ROWS, None}
        stage.publish()
        assert rows_seen(stage.folder) == NEW_ROWS
        stage.finish()
        assert (rows_seen(stage.folder), stage.leftovers()) == (NEW_ROWS, [])
        steps += 1
    assert steps > 8


def test_publishing_can_be_taken_back_from_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replaces: bool
) -> None:
    for stage in each_death(tmp_path, monkeypatch, Stage.publish, replaces=replaces):
        stage.undo()
        assert (rows_seen(stage.folder), stage.leftovers()) == (stage.before, [])


def test_finishing_can_be_repeated_from_every_step_and_never_hides_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replaces: bool
) -> None:
    step, died = 0, True
    while died:
        stage = Stage(tmp_path / str(step), replaces=replaces)
        stage.publish()
        died = killed(monkeypatch, stage.finish, step)
        assert rows_seen(stage.folder) == NEW_ROWS
        claim = read_claim(stage.target)
        if claim is not None and claim.phase is Phase.SETTLED:
            with pytest.raises(RestorePhaseError, match="finish it"):
                undo_publish(stage.target, JOB)
        finish_publish(stage.target, JOB)
        assert (rows_seen(stage.folder), stage.leftovers()) == (NEW_ROWS, [])
        step += 1
    assert step > 4


def test_taking_back_can_be_repeated_from_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replaces: bool
) -> None:
    step, died = 0, True
    while died:
        stage = Stage(tmp_path / str(step), replaces=replaces)
        stage.publish()
        died = killed(monkeypatch, stage.undo, step)
        claim = read_claim(stage.target)
        if claim is not None and claim.phase is Phase.WITHDRAWN:
            with pytest.raises(RestorePhaseError, match="take it back to the end"):
                finish_publish(stage.target, JOB)
        undo_publish(stage.target, JOB)
        assert (rows_seen(stage.folder), stage.leftovers()) == (stage.before, [])
        step += 1
    assert step > 8


def test_a_log_with_a_file_missing_or_cut_is_not_published(tmp_path: Path, *, replaces: bool) -> None:
    stage = Stage(tmp_path, replaces=replaces)
    waiting = stage.folder / "_delta_log.dw-job/00000000000000000002.json"
    content = waiting.read_bytes()
    for damage in (lambda: waiting.write_bytes(content[:-1]), waiting.unlink):
        damage()
        with pytest.raises(LogIncompleteError) as caught:
            stage.publish()
        assert caught.value.missing == ("00000000000000000002.json",)
        with pytest.raises(RestorePhaseError, match="publish the log first"):
            stage.finish()
        assert rows_seen(stage.folder) == stage.before


def test_what_a_killed_writer_left_among_the_waiting_files_is_not_published(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaces=False)
    (stage.folder / "_delta_log.dw-job/.abc.tmp").write_bytes(b"half")
    stage.publish()
    assert sorted(path.name for path in (stage.folder / "_delta_log").iterdir()) == sorted(
        entry.source.path.rpartition("/")[2] for entry in stage.entries if entry.source.path.startswith("_delta_log/")
    )


def test_a_table_that_somebody_made_meanwhile_is_left_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaces=False)
    HandTable(stage.folder).begin().append(1)
    for attempt in (stage.publish, stage.finish):
        with pytest.raises(TargetTakenError, match="_delta_log"):
            attempt()
        assert rows_seen(stage.folder) == 1
    stage.undo()
    assert (rows_seen(stage.folder), stage.leftovers()) == (1, [])


def test_a_table_made_between_the_two_renames_keeps_neither_log_from_coming_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaces=True)
    stage.publish()
    (stage.folder / "_delta_log").rename(stage.folder / "_delta_log.dw-job")
    claim = read_claim(stage.target)
    assert claim is not None
    write_claim(stage.target, replace(claim, phase=Phase.STAGED))
    between = HandTable(stage.folder).begin().append(1)
    for attempt in (stage.publish, stage.finish, stage.undo):
        with pytest.raises(TargetTakenError) as caught:
            attempt()
        assert caught.value.found == "_delta_log"
        assert rows_seen(stage.folder) == 1
    shutil.rmtree(between.log)
    stage.undo()
    assert (rows_seen(stage.folder), stage.leftovers()) == (OLD_ROWS, [])


def test_a_restored_table_that_was_written_to_is_not_taken_back(tmp_path: Path, *, replaces: bool) -> None:
    stage = Stage(tmp_path, replaces=replaces)
    stage.publish()
    (stage.folder / "_delta_log/00000000000000000006.json").write_text('{"commitInfo": {}}\n')
    with pytest.raises(RestoredTableUsedError) as caught:
        stage.undo()
    assert caught.value.added == ("00000000000000000006.json",)
    assert rows_seen(stage.folder) == NEW_ROWS
    stage.finish()
    assert stage.leftovers() == []


@pytest.mark.parametrize("phase", [Phase.STAGED, Phase.PUBLISHED])
@pytest.mark.parametrize("end", [Stage.finish, Stage.undo])
def test_a_task_that_writes_once_more_after_the_log_appeared_changes_nothing(
    tmp_path: Path, phase: Phase, end: Callable[[Stage], None], *, replaces: bool
) -> None:
    stage = Stage(tmp_path, replaces=replaces)
    stage.publish()
    claim = read_claim(stage.target)
    assert claim is not None
    write_claim(stage.target, replace(claim, phase=phase))
    [late] = [entry for entry in stage.entries if entry.source.path.endswith("00000000000000000001.json")]
    restore_file(late, reader(stage.source.place)(late), stage.target, job=JOB)
    end(stage)
    expected = NEW_ROWS if end is Stage.finish else stage.before
    assert (rows_seen(stage.folder), stage.leftovers()) == (expected, [])


def test_another_job_can_neither_finish_nor_take_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaces=False)
    for attempt in (finish_publish, undo_publish, lambda *args: publish_log(*args, stage.entries)):
        with pytest.raises(TargetClaimedError, match=JOB):
            attempt(stage.target, "other")
    with pytest.raises(RestorePhaseError, match="Claim the target"):
        publish_log(Place.at(tmp_path / "nowhere"), JOB, stage.entries)


def test_restored_commits_have_the_time_they_had(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaces=False)
    stage.publish()
    assert capture_table(stage.target).state == capture_table(stage.source.place).state


class BucketStage:
    """The same in what behaves as a bucket."""

    def __init__(self, tmp_path: Path, *, history: bool) -> None:
        self.source = source_table(tmp_path / "source")
        self.root = tmp_path / "s3"
        self.folder = self.root / "bucket/table"
        self.target, _ = bucket(self.root)
        capture = capture_table(self.source.place, history=history)
        self.entries = stored(self.source.place, capture)
        write_staged(self.source.place, self.target, self.entries, job=JOB)

    def dying(self, before: int) -> Place:
        return bucket(self.root, dies_before=before)[0]

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def leftovers(self) -> list[str]:
        return [name for name in self.files() if name.startswith(("_delta_log.", "_dw_"))]


@pytest.fixture(params=[False, True], ids=["newest", "history"])
def history(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_in_a_bucket_no_step_shows_anything_but_the_whole_table(tmp_path: Path, *, history: bool) -> None:
    stage, step = BucketStage(tmp_path, history=history), 0
    seen = []
    while True:
        try:
            publish_log(stage.dying(step), JOB, stage.entries)
            break
        except Killed:
            seen.append(rows_seen(stage.folder))
            undo_publish(stage.target, JOB)
            assert (rows_seen(stage.folder), stage.leftovers()) == (None, [])
            # Data files stay, so that this place is no longer empty.
            write_staged(stage.source.place, stage.target, stage.entries, job=JOB, overwrite=True)
            step += 1
    assert set(seen) == {None, NEW_ROWS}
    assert seen == sorted(seen, key=lambda rows: rows is not None)
    assert rows_seen(stage.folder) == NEW_ROWS
    if history:
        assert DeltaTable(str(stage.folder), version=1).to_pyarrow_table().num_rows == 1


def test_in_a_bucket_publishing_goes_on_from_every_step(tmp_path: Path, *, history: bool) -> None:
    stage, step, published = BucketStage(tmp_path, history=history), 0, False
    while not published:
        try:
            publish_log(stage.dying(1), JOB, stage.entries)
            published = True
        except Killed:
            assert rows_seen(stage.folder) in {None, NEW_ROWS}
            step += 1
    assert step > 3
    for _ in range(50):
        try:
            finish_publish(stage.dying(2), JOB)
            break
        except Killed:
            assert rows_seen(stage.folder) == NEW_ROWS
    assert (rows_seen(stage.folder), stage.leftovers()) == (NEW_ROWS, [])


def test_in_a_bucket_taking_back_goes_on_from_every_step(tmp_path: Path, *, history: bool) -> None:
    stage = BucketStage(tmp_path, history=history)
    publish_log(stage.target, JOB, stage.entries)
    seen = [rows_seen(stage.folder)]
    for _ in range(50):
        try:
            undo_publish(stage.dying(2), JOB)
            break
        except Killed:
            seen.append(rows_seen(stage.folder))
    assert seen == sorted(seen, key=lambda rows: rows is None)
    assert set(seen) == {None, NEW_ROWS}
    assert (stage.leftovers(), [name for name in stage.files() if "_delta_log" in name]) == ([], [])


def test_in_a_bucket_a_table_that_somebody_made_meanwhile_is_left_alone(tmp_path: Path) -> None:
    stage = BucketStage(tmp_path, history=False)
    HandTable(stage.folder).begin().append(1)
    with pytest.raises(TargetTakenError):
        publish_log(stage.target, JOB, stage.entries)
    assert rows_seen(stage.folder) == 1
    assert undo_publish(stage.target, JOB)
    assert (rows_seen(stage.folder), stage.leftovers()) == (1, [])


def test_in_a_bucket_a_restored_table_that_was_written_to_is_not_taken_back(tmp_path: Path) -> None:
    stage = BucketStage(tmp_path, history=True)
    publish_log(stage.target, JOB, stage.entries)
    (stage.folder / "_delta_log/00000000000000000006.json").write_text('{"commitInfo": {}}\n')
    with pytest.raises(RestoredTableUsedError):
        undo_publish(stage.target, JOB)
    assert rows_seen(stage.folder) == NEW_ROWS
    assert finish_publish(stage.target, JOB)


def test_claiming_again_tells_how_far_a_restore_came(tmp_path: Path) -> None:
    stage = Stage(tmp_path, replaces=False)
    assert claim_target(stage.target, JOB).phase is Phase.WRITING
    stage.publish()
    assert claim_target(stage.target, JOB).phase is Phase.PUBLISHED


def commits(first: int, last: int) -> list[str]:
    return [f"{version:020d}.json" for version in range(first, last + 1)]


def test_commits_come_newest_first_and_the_first_of_all_makes_the_table_readable() -> None:
    names = [*commits(0, 3), f"{2:020d}.checkpoint.parquet", f"{3:020d}.crc"]
    order = order_log(names)
    assert order.hidden == tuple(reversed(commits(1, 3)))
    assert order.ground == commits(0, 0)[0]
    assert order.rest == (f"{2:020d}.checkpoint.parquet", f"{3:020d}.crc")


def test_without_the_first_commit_the_last_file_of_the_oldest_checkpoint_makes_the_table_readable() -> None:
    parts = [f"{5:020d}.checkpoint.{number:010d}.{2:010d}.parquet" for number in (1, 2)]
    newer = f"{7:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    order = order_log([newer, *commits(5, 8), *parts, "_sidecars/s.parquet"])
    assert order.hidden == ("_sidecars/s.parquet", *reversed(commits(5, 8)), parts[0])
    assert (order.ground, order.rest) == (parts[1], (newer,))


@given(first=st.integers(0, 5), length=st.integers(0, 8), checkpoints=st.sets(st.integers(0, 13)))
def test_any_log_is_ordered_completely_and_once(first: int, length: int, checkpoints: set[int]) -> None:
    versions = {first, *(version for version in checkpoints if first <= version <= first + length)}
    names = [*commits(first, first + length), *(f"{version:020d}.checkpoint.parquet" for version in versions)]
    order = order_log(names)
    assert sorted(order.all) == sorted(names)
    assert len(set(order.all)) == len(names)
    assert set(commits(max(first, 1), first + length)) <= set(order.hidden)
