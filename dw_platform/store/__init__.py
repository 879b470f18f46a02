"""Where state lasts: the control store and its backings, a bounded cache, a watcher and leases.

`open_store` is the way in. `SqlStore` is in `dw_platform.store.sql`, apart because SQLAlchemy is slow to import.
"""

from dw_platform.store.backing import Backing, StoreBacking
from dw_platform.store.cache import BoundedCache, CacheStats
from dw_platform.store.contract import MAX_KEY_BYTES, MAX_VALUE_BYTES, Entry, PersistentStore
from dw_platform.store.errors import (
    CorruptLeaseError,
    InvalidKeyError,
    LeaseLostError,
    LeaseTimeoutError,
    StaleVersionError,
    StoreUnavailableError,
    StoreUnusableError,
    ValueTooLargeError,
)
from dw_platform.store.files import FileStore
from dw_platform.store.keys import internal_key, internal_prefix, key_parts
from dw_platform.store.lease import Lease, LeaseLock
from dw_platform.store.lease_state import LeaseMode
from dw_platform.store.lru import CachePolicy, Eviction
from dw_platform.store.memory import MemoryStore
from dw_platform.store.open import open_store
from dw_platform.store.update import update
from dw_platform.store.urls import without_password
from dw_platform.store.watcher import Change, ChangeKind, Watcher

__all__ = [
    "MAX_KEY_BYTES",
    "MAX_VALUE_BYTES",
    "Backing",
    "BoundedCache",
    "CachePolicy",
    "CacheStats",
    "Change",
    "ChangeKind",
    "CorruptLeaseError",
    "Entry",
    "Eviction",
    "FileStore",
    "InvalidKeyError",
    "Lease",
    "LeaseLock",
    "LeaseLostError",
    "LeaseMode",
    "LeaseTimeoutError",
    "MemoryStore",
    "PersistentStore",
    "StaleVersionError",
    "StoreBacking",
    "StoreUnavailableError",
    "StoreUnusableError",
    "ValueTooLargeError",
    "Watcher",
    "internal_key",
    "internal_prefix",
    "key_parts",
    "open_store",
    "update",
    "without_password",
]
