"""Which small files lie together in one object: a table's log alone is hundreds of them, and each costs two fsyncs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dw_platform.backup.contents import SourceFile, StoredFile

# An fsync and a rename take as long as writing about this much.
SMALL_BYTES = 256 * 1024
# A pack is held in memory by each stream, and reading one file of an encoded pack reads all of it.
PACK_BYTES = 16 * 1024 * 1024


def is_small(file: SourceFile) -> bool:
    """Return whether the file goes into a pack."""
    return file.size < SMALL_BYTES


def pack_groups(
    files: Iterable[SourceFile], former: Mapping[str, StoredFile] | None = None
) -> Iterator[tuple[SourceFile, ...]]:
    """Give the groups of small files that go into a pack each, in the order in which they lie there.

    Files that an earlier backup has in one pack come together again, in its order: if that pack was lost, an equal one
    takes its name, and every backup that needs it is whole again.
    """
    known = former or {}
    together: dict[str, list[SourceFile]] = {}
    fresh: list[SourceFile] = []
    for file in sorted(files, key=lambda each: each.path):
        stored = known.get(file.path)
        if stored is not None and stored.offset is not None and stored.source.size == file.size:
            together.setdefault(stored.object_name, []).append(file)
        else:
            fresh.append(file)
    for name in sorted(together):
        yield tuple(sorted(together[name], key=lambda each: known[each.path].offset or 0))
    yield from _filled(fresh)


def _filled(files: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, ...]]:
    group: list[SourceFile] = []
    size = 0
    for file in files:
        if group and size + file.size > PACK_BYTES:
            yield tuple(group)
            group, size = [], 0
        group.append(file)
        size += file.size
    if group:
        yield tuple(group)
