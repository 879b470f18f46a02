"""Which commits and checkpoints a listing of the log holds, and by which ways a version can be read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.backup.delta_files import FoundFile
from dw_platform.backup.delta_listing import LogListing, missing_before, sort_log, ways_to

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def listing(*names: str) -> LogListing:
    return sort_log(FoundFile(f"_delta_log/{name}", 10, 0) for name in names)


def commits(*versions: int) -> list[str]:
    return [f"{version:020d}.json" for version in versions]


def classic(version: int) -> str:
    return f"{version:020d}.checkpoint.parquet"


def part(version: int, number: int, count: int) -> str:
    return f"{version:020d}.checkpoint.{number:010d}.{count:010d}.parquet"


def ways(log: LogListing, version: int) -> list[tuple[int | None, list[int]]]:
    return [(way.checkpoint.version if way.checkpoint else None, list(way.commits)) for way in ways_to(log, version)]


def test_every_kind_of_file_is_told_by_its_name() -> None:
    log = listing(
        *commits(0, 1), classic(1), f"{1:020d}.checkpoint.{UUID}.json", f"{1:020d}.checkpoint.{UUID}.parquet",
        f"{1:020d}.crc", "_sidecars/x.parquet", f"_staged_commits/{2:020d}.{UUID}.json", "_last_checkpoint",
        f".{0:020d}.json.crc", f"{0:020d}.{1:020d}.compacted.json", f".{2:020d}.json.tmp",
    )  # fmt: skip
    assert set(log.commits) == {0, 1}
    assert set(log.checksums) == {1}
    assert set(log.sidecars) == {"x.parquet"}
    assert log.staged == 2
    assert len(log.checkpoints[1]) == 3


def test_a_checkpoint_in_parts_counts_only_when_all_are_there() -> None:
    log = listing(*commits(0, 1, 2), part(1, 1, 2), part(2, 1, 2), part(2, 2, 2))
    assert set(log.checkpoints) == {2}
    assert [file.path[-29:] for file in log.checkpoints[2][0].files] == [part(2, 1, 2)[-29:], part(2, 2, 2)[-29:]]


def test_parts_of_two_attempts_with_different_counts_are_not_mixed() -> None:
    log = listing(*commits(0, 1), part(1, 1, 2), part(1, 2, 3), part(1, 3, 3))
    assert log.checkpoints == {}


def test_an_empty_checkpoint_file_is_what_a_crash_left() -> None:
    assert sort_log([FoundFile(f"_delta_log/{classic(1)}", 0, 0)]).checkpoints == {}


def test_the_newest_checkpoint_is_the_best_way_and_all_commits_the_last() -> None:
    log = listing(*commits(*range(6)), classic(2), classic(4))
    assert ways(log, 5) == [(4, [5]), (2, [3, 4, 5]), (None, [0, 1, 2, 3, 4, 5])]
    assert ways(log, 3) == [(2, [3]), (None, [0, 1, 2, 3])]


def test_no_way_crosses_a_missing_commit() -> None:
    log = listing(*commits(0, 1, 3, 4), classic(3))
    assert ways(log, 4) == [(3, [4])]
    assert missing_before(log, 4) == 2
    assert ways(log, 2) == []


def test_a_version_without_its_commit_cannot_be_read_even_from_a_checkpoint() -> None:
    log = listing(*commits(0, 1), classic(2))
    assert log.newest == 2
    assert ways(log, 2) == []
    assert missing_before(log, 2) == 2


@pytest.mark.parametrize(
    ("names", "earliest"),
    [
        (commits(0, 1, 2), 0),
        ([*commits(5, 6, 7, 8), classic(6)], 6),
        ([*commits(7, 8), classic(6)], 7),
        ([*commits(0, 1, 4, 5), classic(4)], 4),
        (commits(3, 4), None),
        ([], None),
    ],
)
def test_the_earliest_version_is_the_first_from_which_on_all_can_be_read(
    names: list[str], earliest: int | None
) -> None:
    assert listing(*names).earliest == earliest


@given(st.sets(st.integers(0, 12)), st.sets(st.integers(0, 12)), st.integers(0, 12))
def test_each_way_has_every_file_it_needs_and_ends_at_the_version(
    kept: set[int], checkpointed: set[int], version: int
) -> None:
    log = listing(*commits(*kept), *map(classic, checkpointed))
    found = ways(log, version)
    for start, after in found:
        assert set(after) <= kept
        assert start in checkpointed if start is not None else after[0] == 0
        assert after == list(range(0 if start is None else start + 1, version + 1))
        assert version in kept
    connected = [start for start in checkpointed if set(range(start + 1, version + 1)) <= kept and start <= version]
    assert len(found) == (len(connected) + (set(range(version + 1)) <= kept)) * (version in kept)
