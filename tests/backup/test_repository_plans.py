"""What the next backup is and what it copies: pure decisions."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.backup import (
    BackupHeader,
    BackupKind,
    BackupTotals,
    ChainPolicy,
    FileKind,
    RetentionPolicy,
    SourceFile,
    StoredFile,
    SweepPolicy,
    TableCapture,
    TableState,
    build_chains,
    current_chain,
    decide_kind,
    full_plan,
    incremental_plan,
    new_backup_id,
)
from dw_platform.foundation import InvalidValueError

NOW = datetime(2026, 11, 18, tzinfo=UTC)
NOTHING = BackupTotals(files=0, bytes=0, objects=0, stored_bytes=0, copied_files=0, copied_bytes=0)


def header(days_ago: float, parent: BackupHeader | None = None, table: str = "t", policy: str = "p") -> BackupHeader:
    created = NOW - timedelta(days=days_ago)
    backup_id = new_backup_id(created)
    return BackupHeader(
        backup_id=backup_id,
        job_id="j",
        repository_id="r",
        platform="shop",
        table=table,
        policy=policy,
        kind=BackupKind.INCREMENTAL if parent else BackupKind.FULL,
        chain_id=parent.chain_id if parent else backup_id,
        parent_id=parent.backup_id if parent else None,
        created=created,
        fence="f",
        table_version=1,
        committed_at_ms=0,
        totals=NOTHING,
    )


def capture(*files: SourceFile) -> TableCapture:
    return TableCapture(state=TableState(version=1, committed_at_ms=0, protocol={}, metadata={}), files=tuple(files))


def file(path: str, size: int = 10, mtime_ns: int = 1) -> SourceFile:
    return SourceFile(path=path, kind=FileKind.DATA, size=size, mtime_ns=mtime_ns)


def stored(source: SourceFile, name: str | None = None) -> StoredFile:
    return StoredFile(source=source, sha256="0" * 64, object_name=name or f"ob/{source.path}", object_size=source.size)


def test_chains_are_told_apart_by_their_full_backup_table_and_policy() -> None:
    full = header(3)
    second, third = header(2, full), header(1, full)
    other, again = header(2.5, table="u"), header(0.5)
    chains = build_chains([third, again, other, full, second])
    assert [[each.backup_id for each in chain.members] for chain in chains] == [
        [other.backup_id],
        [full.backup_id, second.backup_id, third.backup_id],
        [again.backup_id],
    ]
    assert chains[1].newest == third
    assert chains[1].started == full.created


def test_the_next_increment_joins_the_newest_chain_of_its_table_and_policy() -> None:
    old, new, other = header(3), header(2), header(1, policy="q")
    chain = current_chain([old, new, other], "t", "p")
    assert chain is not None
    assert chain.chain_id == new.backup_id
    assert current_chain([old], "t", "r") is None


def test_a_chain_remembers_its_age_when_its_full_backup_has_expired() -> None:
    full = header(9)
    increment = header(1, full)
    (chain,) = build_chains([increment])
    assert decide_kind(chain, ChainPolicy(), now=NOW, share=0).kind is BackupKind.FULL


def test_an_increment_is_made_as_long_as_nothing_speaks_against_it() -> None:
    (chain,) = build_chains([header(1)])
    decision = decide_kind(chain, ChainPolicy(), now=NOW, share=0.2)
    assert decision.kind is BackupKind.INCREMENTAL
    assert chain.newest.backup_id in decision.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"forced": True}, "asked"),
        ({"share": 0.51}, "51%"),
        ({"now": NOW + timedelta(days=6)}, "7d"),
        ({"policy": ChainPolicy(max_length=1)}, "1 backups"),
        ({"chain": None}, "no backup"),
        ({"broken": "its own"}, "broken"),
    ],
)
def test_a_full_backup_is_made_when_it_is_due_and_says_why(change: dict[str, object], reason: str) -> None:
    (chain,) = build_chains([header(1)])
    arguments: dict[str, object] = {"chain": chain, "policy": ChainPolicy(), "now": NOW, "share": 0.1} | change
    if "broken" in change:
        arguments["broken"] = {chain.newest.backup_id}
    decision = decide_kind(**arguments)  # type: ignore[arg-type]
    assert decision.kind is BackupKind.FULL
    assert reason in decision.reason


def test_only_files_unchanged_in_path_size_and_time_whose_object_is_there_are_reused() -> None:
    same, resized, rewritten, gone, cut = (file(path) for path in ("same", "resized", "rewritten", "gone", "cut"))
    parent = [stored(each) for each in (same, resized, rewritten, gone, cut)]
    index = {each.object_name: 10 for each in parent if each.source is not gone} | {"ob/cut": 9}
    now = capture(same, replace(resized, size=11), replace(rewritten, mtime_ns=2), gone, cut, file("new"))
    plan = incremental_plan(now, parent, index)
    assert [each.source.path for each in plan.reuse] == ["same"]
    assert [each.path for each in plan.copy] == ["resized", "rewritten", "gone", "cut", "new"]
    assert set(plan.known) == {"resized", "rewritten", "gone", "cut"}


def test_what_the_log_says_about_a_reused_file_is_taken_from_now() -> None:
    old = replace(file("a"), add={"path": "a"})
    new = replace(old, add={"path": "a", "deletionVector": {"storageType": "u"}})
    (reused,) = incremental_plan(capture(new), [stored(old)], {"ob/a": 10}).reuse
    assert reused.source == new


def test_a_job_that_goes_on_copies_nothing_twice_and_a_full_one_trusts_only_its_own_notes() -> None:
    one, two, three = file("one"), file("two"), file("three")
    parent, notes = [stored(one), stored(two)], [stored(two, "ob/new"), stored(three)]
    index = {"ob/one": 10, "ob/two": 10, "ob/new": 10, "ob/three": 10}
    assert incremental_plan(capture(one, two, three), parent, index, notes).copy == ()
    plan = full_plan(capture(one, two, three), parent, index, notes)
    assert [each.object_name for each in plan.reuse] == ["ob/new", "ob/three"]
    assert plan.copy == (one,)
    assert plan.known == {"one": parent[0]}


@given(
    paths=st.lists(st.sampled_from("abcdefgh"), unique=True),
    known=st.sets(st.sampled_from("abcdefgh")),
    present=st.sets(st.sampled_from("abcdefgh")),
    full=st.booleans(),
)
def test_every_plan_has_every_file_once_and_reuses_only_what_is_there(
    paths: list[str], known: set[str], present: set[str], *, full: bool
) -> None:
    parent = [stored(file(path)) for path in known]
    index = {f"ob/{path}": 10 for path in present}
    plan = (full_plan if full else incremental_plan)(capture(*map(file, paths)), parent, index)
    assert sorted([each.source.path for each in plan.reuse] + [each.path for each in plan.copy]) == sorted(paths)
    assert all(index[each.object_name] == each.object_size for each in plan.reuse)
    assert full is False or plan.reuse == ()
    assert 0 <= plan.share <= 1


def test_policies_that_keep_nothing_or_trust_forever_are_refused_when_they_are_built() -> None:
    for wrong in ({"max_count": 0}, {"max_age": timedelta(0)}, {"max_bytes": 0}):
        with pytest.raises(InvalidValueError, match="no backup would be kept"):
            RetentionPolicy(**wrong)  # type: ignore[arg-type]
    for chain in ({"full_every": timedelta(0)}, {"max_length": 0}, {"max_share": 0.0}, {"max_share": 1.1}):
        with pytest.raises(InvalidValueError):
            ChainPolicy(**chain)  # type: ignore[arg-type]
    for sweep in ({"grace": timedelta(minutes=59)}, {"notes_for": timedelta(hours=23)}):
        with pytest.raises(InvalidValueError):
            SweepPolicy(**sweep)
