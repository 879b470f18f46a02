"""Whether a capture adds up: what must hold before anybody calls it a backup."""

import json
from collections.abc import Mapping

from dw_platform.backup.contents import TableState
from dw_platform.backup.delta_errors import ChecksumMismatchError, FileSizeDiffersError, FilesMissingError
from dw_platform.backup.delta_files import FoundFile, read_file
from dw_platform.backup.delta_listing import LogListing
from dw_platform.backup.delta_mentions import Mentions
from dw_platform.backup.place import Place


def verify_checksum(place: Place, listing: LogListing, state: TableState) -> None:
    """Compare with what the writer of the version counted, if it left word."""
    file = listing.checksums.get(state.version)
    if file is None:
        return
    try:
        told = json.loads(read_file(place, file.path))
        stated = int(told["numFiles"]), int(told["tableSizeBytes"])
    except (ValueError, KeyError, TypeError):
        # Delta writes it without a sync, so a crash may leave it empty; readers pass over it then.
        return
    if stated != (state.files, state.bytes):
        raise ChecksumMismatchError(place.shown, state.version, stated=stated, found=(state.files, state.bytes))


def check_present(place: Place, version: int, live: Mentions, present: Mapping[str, FoundFile]) -> None:
    """Raise a DamagedTableError unless every live file was found, whole."""
    missing = sorted(path for path in (*live.data, *live.vectors) if path not in present)
    if missing:
        raise FilesMissingError(place.shown, version, missing)
    for path, add in live.data.items():
        if present[path].size != add["size"]:
            raise FileSizeDiffersError(place.shown, path, int(add["size"]), present[path].size)
    for path, end in live.vectors.items():
        if present[path].size < end:
            raise FileSizeDiffersError(place.shown, path, end, present[path].size)
