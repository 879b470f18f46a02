"""When the versions of a table were committed, and which one was the newest at a moment.

With in-commit timestamps the commit itself says it, from the version on that turned them on. Otherwise it is the time
of the commit's file, as far as it is later than that of the version before: copies and clocks that were set back put
files out of order, and readers of Delta then count each version as a millisecond later than the one before.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate

from dw_platform.backup.checkpoints import Action
from dw_platform.backup.delta_errors import DamagedLogError, VersionNotKeptError
from dw_platform.backup.delta_listing import LogListing
from dw_platform.backup.delta_log import read_commits
from dw_platform.backup.place import Place

_NS_PER_MS = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Timeline:
    """The times of a table's commits, by its configuration at the newest version that matters."""

    place: Place
    listing: LogListing
    configuration: Mapping[str, str]

    def committed_at_ms(self, version: int) -> int:
        """Return when `version` was committed."""
        start = self._in_commit_from
        if start is None or version < start:
            return self.listing.commits[version].mtime_ns // _NS_PER_MS
        return self._in_commit(version)

    def version_at(self, moment: datetime) -> int:
        """Return the newest version at `moment`, which has a time zone."""
        earliest = self.listing.earliest
        kept = sorted(version for version in self.listing.commits if earliest is not None and version >= earliest)
        if not kept:
            raise DamagedLogError(self.place.shown, 0, "no version in it can be read")
        moment_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
        start = self._in_commit_from
        timed = [version for version in kept if start is not None and version >= start]
        found = bisect_right(timed, moment_ms, key=self._in_commit)
        if found:
            return timed[found - 1]
        filed = kept[: len(kept) - len(timed)]
        times = in_order(self.listing.commits[version].mtime_ns // _NS_PER_MS for version in filed)
        found = bisect_right(times, moment_ms)
        if found:
            return filed[found - 1]
        since = _EPOCH + timedelta(milliseconds=times[0] if times else self._in_commit(kept[0]))
        raise VersionNotKeptError(self.place.shown, moment.isoformat(), kept[0], kept[-1], since)

    @property
    def _in_commit_from(self) -> int | None:
        """The first version whose commit has its time in itself."""
        if self.configuration.get("delta.enableInCommitTimestamps", "").lower() != "true":
            return None
        return int(self.configuration.get("delta.inCommitTimestampEnablementVersion", 0))

    def _in_commit(self, version: int) -> int:
        [(_, actions)] = read_commits(self.place, self.listing, [version])
        stamp = _stamp(actions)
        if stamp is None:
            raise DamagedLogError(self.place.shown, version, f"commit {version} lacks its in-commit timestamp")
        return stamp


def in_order(times_ms: Iterable[int]) -> list[int]:
    """Return the times as readers of Delta count them: each later than the one before."""
    return list(accumulate(times_ms, lambda before, time: max(before + 1, time)))


def _stamp(actions: Iterable[Action]) -> int | None:
    for action in actions:
        stamp = action.get("commitInfo", {}).get("inCommitTimestamp")
        if stamp is not None:
            return int(stamp)
    return None
