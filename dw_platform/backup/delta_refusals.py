"""Which tables a copy of their folder would not be: a pure decision over protocol and log listing."""

from collections.abc import Mapping
from typing import Any

from dw_platform.backup.delta_errors import CatalogOwnedError, UnknownFeatureError
from dw_platform.backup.delta_listing import LogListing
from dw_platform.backup.place import Place

# Features of readers whose files were looked at: none keeps any that the log does not name by add, remove, cdc,
# deletion vector or sidecar. Features of writers alone cannot, because readers do not have to know them.
KNOWN_READER_FEATURES = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)

_NEWEST_READER = 3
_CATALOG_FEATURES = frozenset({"catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview"})


def refuse_unrestorable(place: Place, listing: LogListing, protocol: Mapping[str, Any]) -> None:
    """Raise a NotRestorableError if the table's folder does not hold all of the table, or may not."""
    readers = frozenset(protocol.get("readerFeatures") or ())
    owned = (readers | frozenset(protocol.get("writerFeatures") or ())) & _CATALOG_FEATURES
    if owned:
        raise CatalogOwnedError(place.shown, f"table feature {min(owned)}")
    if listing.staged is not None and listing.staged > max(listing.commits, default=-1):
        raise CatalogOwnedError(place.shown, f"version {listing.staged} is staged and not published")
    unknown = [f"table feature {name}" for name in sorted(readers - KNOWN_READER_FEATURES)]
    reader = int(protocol.get("minReaderVersion", 1))
    if reader > _NEWEST_READER:
        unknown.append(f"reader version {reader}")
    if unknown:
        raise UnknownFeatureError(place.shown, unknown, sorted(KNOWN_READER_FEATURES))
