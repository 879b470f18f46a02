"""Where the platform's gateway listens, for programs that publish through it.

dw://internal/gateway/address    {"url": "http://127.0.0.1:8080", "pid": 4711, "node": "host1", "at": "..."}
"""

import json
import os
import socket
from datetime import datetime

from dw_platform.store import Entry, PersistentStore, StaleVersionError, internal_key

ADDRESS = internal_key("gateway", "address")
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  compared, not bound


def gateway_address(store: PersistentStore) -> str | None:
    """Return the URL of the gateway that runs, or None.

    One that was killed leaves its address behind; on its own machine that is noticed, because its process is gone.
    """
    entry = store.get(ADDRESS)
    if entry is None:
        return None
    try:
        told = json.loads(entry.value)
        url, pid, node = str(told["url"]), int(told["pid"]), str(told["node"])
    except (ValueError, KeyError, TypeError):
        return None
    return None if node == socket.gethostname() and not _lives(pid) else url


def announce(store: PersistentStore, url: str, *, at: datetime) -> Entry:
    """Write the address of this process, over whatever was there."""
    told = {"url": url, "pid": os.getpid(), "node": socket.gethostname(), "at": at.isoformat()}
    return store.put(ADDRESS, json.dumps(told).encode())


def withdraw(store: PersistentStore, announced: Entry) -> None:
    """Remove the address unless another gateway has taken over meanwhile."""
    try:
        store.delete(ADDRESS, expected=announced.version)
    except StaleVersionError:
        return


def url_of(scheme: str, host: str, port: int) -> str:
    """Return the address for programs of this machine; who listens everywhere also does on loopback."""
    bare = host.strip("[]")
    name = _EVERYWHERE.get(bare, bare)
    return f"{scheme}://[{name}]:{port}" if ":" in name else f"{scheme}://{name}:{port}"


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
