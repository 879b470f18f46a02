"""Operational databases, read in pages that resume exactly where they stopped: keys, tokens, types, values, health.

Only what costs nothing to import is here. The manager is in `dw_platform.extract.manager`, the reader of pages as Arrow
in `dw_platform.extract.reader`; both bring SQLAlchemy and pyarrow along, and drivers only when they connect.
"""

from dw_platform.extract.conditions import Condition
from dw_platform.extract.errors import (
    DatabaseAccessError,
    DatabaseUnavailableError,
    NoKeyError,
    NullInKeyError,
    SourceChangedError,
    StatementRefusedError,
    TokenError,
    TokenExpiredError,
    TokenForgedError,
    TokenForOtherRequestError,
    TokenMalformedError,
    TokenOutdatedError,
    UnknownSourceColumnError,
    UnknownSourceTableError,
    UnmappableColumnError,
    ValueNotKeptError,
)
from dw_platform.extract.keyring import TokenKeyring
from dw_platform.extract.keyset import Branch, OrderColumn, Position, branches, position_of
from dw_platform.extract.limits import DatabaseLimits
from dw_platform.extract.pages import PagedQueryResult
from dw_platform.extract.token import ContinuationToken, decode_token, encode_token

__all__ = [
    "Branch",
    "Condition",
    "ContinuationToken",
    "DatabaseAccessError",
    "DatabaseLimits",
    "DatabaseUnavailableError",
    "NoKeyError",
    "NullInKeyError",
    "OrderColumn",
    "PagedQueryResult",
    "Position",
    "SourceChangedError",
    "StatementRefusedError",
    "TokenError",
    "TokenExpiredError",
    "TokenForOtherRequestError",
    "TokenForgedError",
    "TokenKeyring",
    "TokenMalformedError",
    "TokenOutdatedError",
    "UnknownSourceColumnError",
    "UnknownSourceTableError",
    "UnmappableColumnError",
    "ValueNotKeptError",
    "branches",
    "decode_token",
    "encode_token",
    "position_of",
]
