"""What crashes leave of backups, restores and removals: found, gone on with or cleaned up; what runs is left alone."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from dw_platform.backup import Place, log_publish
from dw_platform.backup.restore_claim import Claim, Phase
from dw_platform.pipelines import Platform
from dw_platform.pipelines.backup import Journal, back_up_table
from dw_platform.pipelines.backup_care import prune_backups, verify_backups
from dw_platform.pipelines.backup_jobs import incomplete_jobs, recorded_jobs
from dw_platform.pipelines.backup_recover import Recovered, recover_incomplete_jobs
from dw_platform.pipelines.backup_report import BackupProgress
from dw_platform.pipelines.backup_repository import open_repository
from dw_platform.pipelines.backup_restore import restore_table
from tests.pipelines.backups import (
    ITEMS,
    ORDERS,
    back_up,
    die_while,
    grow,
    headers,
    held,
    open_shop,
    shop_text,
    table_files,
)
from tests.store.workers import PROCESSES


class Crash(BaseException):
    """The process dies here."""


def crash(*_: object) -> None:
    raise Crash


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Platform]:
    """A shop whose orders were backed up at versions 1 and 2, and have grown since."""
    with open_shop(tmp_path) as platform:
        for _ in range(2):
            grow(platform)
            back_up(platform)
        grow(platform)
        yield platform


def interrupted_backup(platform: Platform, table: str = ORDERS) -> None:
    platform.clock.wait(threading.Event(), 1)
    with pytest.raises(Crash):
        back_up_table(platform, "nightly", table, on_progress=crash)


def interrupted_restore(platform: Platform, target: str, **wish: object) -> None:
    platform.clock.wait(threading.Event(), 1)
    with pytest.raises(Crash):
        restore_table(platform, ORDERS, target, on_progress=crash, **wish)  # type: ignore[arg-type]


def outcomes(recovered: list[Recovered]) -> list[tuple[str, str]]:
    return [(each.job.kind, each.outcome) for each in recovered]


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["backup", "restore", "prune"])
def test_what_a_killed_process_had_begun_is_found_at_once_and_finished(
    shop: Platform, tmp_path: Path, kind: str
) -> None:
    target = tmp_path / "back"
    process = PROCESSES.Process(target=die_while, args=(kind, tmp_path, str(target)))
    process.start()
    process.join(120)
    assert process.exitcode == -9
    (job,) = incomplete_jobs(shop)
    assert (job.kind, job.error, job.attempts) == (kind, None, 1)
    recovered = recover_incomplete_jobs(shop)
    assert outcomes(recovered) == [(kind, "finished")]
    assert recorded_jobs(shop) == []
    assert recover_incomplete_jobs(shop) == []
    match kind:
        case "backup":
            assert [header.table_version for header in headers(shop)] == [1, 2, 3]
            assert headers(shop)[-1].job_id == job.id
        case "restore":
            assert held(shop, target)[0].equals(held(shop, ORDERS, 2)[0])
        case "prune":
            assert len(headers(shop)) == 2
    assert verify_backups(shop).healthy


def test_what_runs_is_left_alone(shop: Platform) -> None:
    seen: list[tuple[int, int]] = []

    def look(_: BackupProgress) -> None:
        assert recover_incomplete_jobs(shop, discard=True) == []
        seen.append((len(incomplete_jobs(shop)), len(recorded_jobs(shop))))

    back_up_table(shop, "nightly", ORDERS, on_progress=look)
    assert set(seen) == {(0, 1)}


def test_cleaning_up_gives_up_what_was_begun_and_nothing_else(shop: Platform, tmp_path: Path) -> None:
    before = held(shop)
    interrupted_backup(shop)
    interrupted_restore(shop, ORDERS, version=1, overwrite=True)
    interrupted_restore(shop, str(tmp_path / "new"))
    assert list(open_repository(shop).storage.walk("notes"))
    recovered = recover_incomplete_jobs(shop, discard=True)
    assert outcomes(recovered) == [("backup", "discarded"), ("restore", "discarded"), ("restore", "discarded")]
    assert recorded_jobs(shop) == []
    assert not list(open_repository(shop).storage.walk("notes"))
    assert held(shop)[0].equals(before[0])
    assert not DeltaTable.is_deltatable(str(tmp_path / "new"))
    for folder in (shop.lake.table(ORDERS).location.local, tmp_path / "new"):
        assert not [path for path in table_files(folder) if "_dw_restore" in path or ".dw-" in path]
    assert [header.table_version for header in headers(shop)] == [1, 2]


Step = tuple[str, Phase | None]
STEPS: list[Step] = [
    *(("before", phase) for phase in (Phase.STAGED, Phase.PUBLISHED, Phase.SETTLED)),
    *(("after", phase) for phase in (Phase.STAGED, Phase.PUBLISHED, Phase.SETTLED)),
    ("at the end", None),
]


def died_at(platform: Platform, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore version 1 over the table, and die before or after a phase is noted, or before the note is removed."""
    when, phase = step
    original = log_publish.write_claim

    def write(target: Place, claim: Claim) -> None:
        if claim.phase is phase and when == "before":
            raise Crash
        original(target, claim)
        if claim.phase is phase:
            raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(log_publish, "write_claim", write)
        if phase is None:
            patched.setattr(log_publish, "drop_claim", crash)
        with pytest.raises(Crash):
            restore_table(platform, ORDERS, ORDERS, version=1, overwrite=True)


def leftovers(platform: Platform) -> list[str]:
    files = table_files(platform.lake.table(ORDERS).location.local)
    return [path for path in files if "_dw_restore" in path or ".dw-" in path or path.endswith(".tmp")]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[0]} {step[1] or ''}")
def test_a_restore_that_died_while_its_log_appeared_is_finished(
    shop: Platform, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    died_at(shop, step, monkeypatch)
    assert outcomes(recover_incomplete_jobs(shop)) == [("restore", "finished")]
    assert (held(shop)[0]["id"].to_pylist(), leftovers(shop)) == ([0], [])
    grow(shop)
    assert held(shop)[1] == 2


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[0]} {step[1] or ''}")
def test_a_restore_that_died_while_its_log_appeared_is_taken_back_while_that_is_possible(
    shop: Platform, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    died_at(shop, step, monkeypatch)
    assert outcomes(recover_incomplete_jobs(shop, discard=True)) == [("restore", "discarded")]
    settled = step in {("after", Phase.SETTLED), ("at the end", None)}
    assert held(shop)[1] == (1 if settled else 3)
    assert leftovers(shop) == []
    grow(shop)
    assert held(shop)[1] == (2 if settled else 4)


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step[0]} {step[1] or ''}")
def test_another_restore_may_take_the_place_of_one_that_died_while_its_log_appeared(
    shop: Platform, monkeypatch: pytest.MonkeyPatch, step: Step
) -> None:
    died_at(shop, step, monkeypatch)
    restore_table(shop, ORDERS, ORDERS, version=2, overwrite=True)
    assert (held(shop)[0]["id"].to_pylist(), leftovers(shop)) == ([0, 1], [])
    assert recorded_jobs(shop) == []


def test_taking_back_that_died_is_gone_on_with_by_the_restore(shop: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    died_at(shop, ("after", Phase.PUBLISHED), monkeypatch)
    original = log_publish.write_claim

    def write(target: Place, claim: Claim) -> None:
        original(target, claim)
        if claim.phase is Phase.WITHDRAWN:
            raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(log_publish, "write_claim", write)
        with pytest.raises(Crash):
            recover_incomplete_jobs(shop, discard=True)
    assert outcomes(recover_incomplete_jobs(shop)) == [("restore", "finished")]
    assert (held(shop)[0]["id"].to_pylist(), leftovers(shop)) == ([0], [])


def test_a_backup_that_died_after_it_was_made_is_not_made_twice(
    shop: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "clear", crash)
        with pytest.raises(Crash):
            back_up(shop)
    made = [header.backup_id for header in headers(shop)]
    assert len(made) == 3
    assert outcomes(recover_incomplete_jobs(shop)) == [("backup", "finished")]
    assert [header.backup_id for header in headers(shop)] == made
    assert not list(open_repository(shop).storage.walk("notes"))


def test_what_nobody_wants_any_more_is_cleaned_up(shop: Platform, tmp_path: Path) -> None:
    grow(shop, ITEMS)
    interrupted_backup(shop, ITEMS)
    interrupted_restore(shop, str(tmp_path / "new"), version=1)
    text = shop_text(policy="keep: {last: 1}").replace('"shop.*"', "shop.orders")
    with open_shop(tmp_path, text) as narrower:
        prune_backups(narrower)
        recovered = recover_incomplete_jobs(narrower)
        assert outcomes(recovered) == [("backup", "discarded"), ("restore", "discarded")]
        assert "is given up" in recovered[1].told
        assert recorded_jobs(narrower) == []


def test_one_that_fails_again_stays_with_its_reason_and_the_others_are_tried(shop: Platform, tmp_path: Path) -> None:
    grow(shop, ITEMS)
    interrupted_backup(shop, ITEMS)
    interrupted_restore(shop, str(tmp_path / "new"))
    for path in shop.lake.table(ITEMS).location.local.glob("*.parquet"):
        path.unlink()
    recovered = recover_incomplete_jobs(shop)
    assert outcomes(recovered) == [("backup", "failed"), ("restore", "finished")]
    (job,) = incomplete_jobs(shop)
    assert (job.attempts, job.error) == (2, recovered[0].told)
    assert str(recovered[0].error) == recovered[0].told


@pytest.mark.parametrize("discard", [False, True])
def test_a_restore_that_another_process_has_finished_meanwhile_is_not_repeated(
    shop: Platform, *, discard: bool
) -> None:
    interrupted_backup(shop)
    grow(shop)  # something is left to copy
    interrupted_restore(shop, ORDERS, version=1, overwrite=True)
    inner: list[Recovered] = []

    def faster(_: BackupProgress) -> None:
        if not inner:
            inner.extend(recover_incomplete_jobs(shop))
            shop.lake.table(ORDERS).append(pa.table({"id": [77], "noise": [b"written since"]}))

    if discard:
        stale = incomplete_jobs(shop)
        faster(BackupProgress(what="", done_bytes=0, total_bytes=0))
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("dw_platform.pipelines.backup_recover.incomplete_jobs", lambda _: stale)
            outer = recover_incomplete_jobs(shop, discard=True)
        assert outcomes(outer) == [("backup", "busy"), ("restore", "busy")]
    else:
        outer = recover_incomplete_jobs(shop, on_progress=faster)
        assert outcomes(inner) == [("restore", "finished")]
        assert outcomes(outer) == [("backup", "finished"), ("restore", "busy")]
    assert held(shop)[0]["id"].to_pylist() == [0, 77]
