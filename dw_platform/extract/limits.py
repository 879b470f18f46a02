"""What one process may ask of databases; everything here can be changed while it runs."""

from dataclasses import dataclass, field
from datetime import timedelta

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling import DEFAULT_THRESHOLDS, PressureThresholds, bounded, check_limits
from dw_platform.store import CachePolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseLimits:
    """The limits of one DatabaseStorageScalingManager."""

    max_page_size: int = field(
        default=10_000, metadata=bounded(at_least=1, unit="rows", reason="a page is held in memory as Python values")
    )
    max_connections: int | None = field(
        default=None,
        metadata=bounded(at_least=2, unit="connections", reason="of each database; none: as the database's own says"),
    )
    connection_wait: timedelta = field(
        default=timedelta(seconds=30), metadata=bounded(above=timedelta(0), reason="for a free connection")
    )
    token_ttl: timedelta = field(
        default=timedelta(days=3), metadata=bounded(at_least=timedelta(seconds=1), reason="of new continuation tokens")
    )
    cache_entries: int = field(default=256, metadata=bounded(at_least=1, unit="pages"))
    cache_bytes: int = field(default=64 * 1024 * 1024, metadata=bounded(at_least=1))
    cache_ttl: timedelta = field(
        default=timedelta(seconds=30), metadata=bounded(above=timedelta(0), reason="how old a cached page may be")
    )
    stream_rows: int = field(
        default=1_000, metadata=bounded(at_least=1, unit="rows", reason="fetched at once by a streaming query")
    )
    chunk_bytes: int | None = field(
        default=None, metadata=bounded(at_least=1, unit="bytes", reason="of large values; none: as the database's says")
    )
    buffer_bytes: int | None = field(
        default=None, metadata=bounded(at_least=1, unit="bytes", reason="of large values; none: as the database's says")
    )
    health_timeout: timedelta = field(
        default=timedelta(seconds=5), metadata=bounded(above=timedelta(0), reason="for all checks together")
    )
    thresholds: PressureThresholds = DEFAULT_THRESHOLDS

    def __post_init__(self) -> None:
        check_limits(self)
        if self.chunk_bytes and self.buffer_bytes and self.chunk_bytes > self.buffer_bytes:
            raise InvalidValueError("chunk_bytes", self.chunk_bytes, f"at most buffer_bytes ({self.buffer_bytes})")

    def cache_policy(self) -> CachePolicy:
        """Return what the cache of pages needs."""
        return CachePolicy(max_entries=self.cache_entries, max_bytes=self.cache_bytes, ttl=self.cache_ttl)
