"""What the lake needs to know, as frozen values; `config/` builds them from `platform.yaml`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from dw_platform.foundation import InvalidValueError

# deltalake decodes %41 in a path, and Spark takes the others for a pattern.
_MISREAD = frozenset("%*?[]{}\\")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Where the work runs: this process, a cluster (`spark://...`) or a Spark Connect server (`sc://...`)."""

    app_name: str = "dw_platform"
    master: str = "local[*]"
    remote: str | None = field(default=None, repr=False)
    """A Spark Connect address; wins over `master`. It may carry a token, so it is not shown."""

    driver_memory_mib: int = 1024
    """Heap of the driver's JVM. Rows stay in Arrow outside it, so a gigabyte serves large tables."""

    scratch: Path
    """Folder for Spark's spill files and its warehouse; on a disk, because /tmp is memory on some systems."""

    conf: Mapping[str, str] = field(default_factory=dict)
    """Further Spark settings; they win over the platform's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """An S3 server and how to sign in to it; empty values fall back to the environment, as AWS tools do."""

    endpoint: str | None = None
    region: str = "us-east-1"
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    path_style: bool = True
    """`host/bucket/key` instead of `bucket.host/key`: what servers other than AWS expect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeSettings:
    """Where tables live: a folder or an `s3://bucket/prefix`; a table `shop.orders` is at `root/shop/orders`."""

    root: str
    s3: S3Settings = field(default_factory=S3Settings)

    def __post_init__(self) -> None:
        scheme, separator, rest = self.root.partition("://")
        if (separator and scheme != "s3") or not (rest.strip("/") if separator else self.root):
            raise InvalidValueError("root", self.root, "a folder, or s3://BUCKET/PREFIX")
        if odd := sorted(_MISREAD.intersection(self.root)):
            raise InvalidValueError(
                "root", self.root, f"a path without {' '.join(odd)}, which Spark or deltalake misread"
            )

    @property
    def is_s3(self) -> bool:
        return self.root.startswith("s3://")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """How a table is kept small and fast."""

    target_file_bytes: int = 128 * 1024 * 1024
    """Files well below this size are joined."""

    retention: timedelta = timedelta(days=7)
    """Removed files stay this long, for readers of older versions and for backups under way."""

    zorder: tuple[str, ...] = ()
    """Columns to cluster by when files are joined."""

    def __post_init__(self) -> None:
        if self.target_file_bytes < 1024 * 1024:
            raise InvalidValueError("target_file_bytes", self.target_file_bytes, "at least 1 MiB")
        # An hour: a reader that planned from the version before must be able to finish.
        if self.retention < timedelta(hours=1):
            raise InvalidValueError("retention", self.retention, "at least 1 hour, so running readers keep their files")
