"""What a restore writes, compares and leaves alone."""

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from dw_platform.backup.contents import FileKind, SourceFile, StoredFile
from dw_platform.backup.restore_plan import destination, plan_restore


def entry(path: str, size: int = 1) -> StoredFile:
    kind = FileKind.LOG if path.startswith("_delta_log/") else FileKind.DATA
    name = hashlib.sha256(path.encode()).hexdigest()
    source = SourceFile(path=path, kind=kind, size=size, mtime_ns=0)
    return StoredFile(source=source, sha256=name, object_name=name, object_size=size)


def test_the_same_size_is_compared_another_size_is_written_and_strangers_stay() -> None:
    files = [entry("a", 1), entry("b", 2), entry("c", 3)]
    plan = plan_restore(files, {"a": 1, "b": 9, "x/other": 5}, job="j")
    assert (plan.write, plan.check, plan.foreign) == ((files[1], files[2]), (files[0],), ("x/other",))
    assert plan.bytes == 5


def test_files_of_the_log_wait_in_the_folder_of_the_restore() -> None:
    files = [entry("_delta_log/0.json"), entry("_delta_log/_sidecars/s.parquet")]
    assert [destination(each.source, "j") for each in files] == [
        "_delta_log.dw-j/0.json", "_delta_log.dw-j/_sidecars/s.parquet"
    ]  # fmt: skip
    plan = plan_restore(files, {"_delta_log/0.json": 1, "_delta_log.dw-j/_sidecars/s.parquet": 1}, job="j")
    assert (plan.write, plan.check, plan.foreign) == ((files[0],), (files[1],), ())


@given(
    st.dictionaries(st.text("abc/", min_size=1, max_size=4), st.integers(0, 3)),
    st.dictionaries(st.text("abc/", min_size=1, max_size=4), st.integers(0, 3)),
)
def test_every_file_is_written_or_compared_and_every_other_one_is_foreign(
    wanted: dict[str, int], existing: dict[str, int]
) -> None:
    plan = plan_restore([entry(path, size) for path, size in wanted.items()], existing, job="j")
    assert sorted(each.source.path for each in plan.write + plan.check) == sorted(wanted)
    assert all(existing[each.source.path] == each.source.size for each in plan.check)
    assert not any(existing.get(each.source.path) == each.source.size for each in plan.write)
    assert set(plan.foreign) == existing.keys() - wanted.keys()
