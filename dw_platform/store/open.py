"""From an address to a store; every process opens its own by the same address."""

from urllib.parse import unquote, urlsplit

from dw_platform.foundation import InvalidValueError
from dw_platform.store.contract import PersistentStore
from dw_platform.store.files import FileStore
from dw_platform.store.memory import MemoryStore
from dw_platform.store.urls import without_password

ALLOWED = "one of memory://, file:///DIRECTORY, sqlite:///FILE and postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


def open_store(url: str) -> PersistentStore:
    """Return a working store: the address is understood, the backing answers and its files or tables exist.

    `memory://` gives a new, empty store each time; hand the object on to share it inside a process.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise _unknown(url)
    if scheme == "memory" and not rest:
        return MemoryStore()
    if scheme == "file":
        return _open_directory(url)
    if scheme.partition("+")[0] in {"sqlite", "postgresql", "postgres"}:
        # SQLAlchemy takes half a second to import, which a process on files or in memory need not wait for.
        from dw_platform.store.sql import SqlStore  # noqa: PLC0415

        return SqlStore(url)
    raise _unknown(url)


def _open_directory(url: str) -> PersistentStore:
    parts = urlsplit(url)
    # `file://data` names a host, not a directory; taking it for a relative path would be a guess.
    if parts.netloc not in {"", "localhost"} or parts.path in {"", "/"}:
        raise _unknown(url)
    return FileStore(unquote(parts.path))


def _unknown(url: str) -> InvalidValueError:
    return InvalidValueError("store address", without_password(url), ALLOWED)
