"""Values that must not be read over somebody's shoulder: passwords, addresses with passwords, options with either.

Every representation is masked: `repr`, `str`, model dumps and JSON. Only `get_secret_value` and reading an option
by its key give the plain text.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, Secret
from pydantic_core import CoreSchema, core_schema

from dw_platform.config.written import refusal

MASK = "***"
_SENSITIVE = re.compile(
    r"passw|passphrase|pwd|secret|token|credential|private|jaas|(api|access|account|encryption)[._-]?key", re.IGNORECASE
)
# Up to the last @: a password may itself contain one, and hiding too much is the safe mistake.
_USER = re.compile(r"([a-z][a-z0-9+.-]*://)(?:([^:/@?#]*):)?[^@]*(?:@[^@]*)*@", re.IGNORECASE)
_HOST = r"(?:\[[0-9a-f:]+\]|[\w.-]+)(?::\d+)?"
_REST = re.compile(
    rf"(?:[a-z][a-z0-9+.-]*://(?:[^/?#@]*@)?(?:{_HOST}(?:,{_HOST})*)?(?:[/?#;].*)?)|{_HOST}(?:,{_HOST})*", re.IGNORECASE
)
_OPTION = re.compile(r"([?&;]([^=&;?]+)=)([^&;]*)")


def masked_url(url: str) -> str:
    """Return `url` without anything secret; wholly masked when it is not clear where a secret might be."""
    shown = _USER.sub(lambda match: f"{match[1]}{match[2] or ''}{':' if match[2] is not None else ''}{MASK}@", url)
    shown = _OPTION.sub(lambda match: f"{match[1]}{MASK}" if _SENSITIVE.search(match[2]) else match[0], shown)
    return shown if _REST.fullmatch(shown) else MASK


def is_sensitive(key: str) -> bool:
    """Return whether a setting of this name holds a secret."""
    return _SENSITIVE.search(key) is not None


class SecretText(Secret[str]):
    """A password or a key."""

    def _display(self) -> str:
        return MASK


class SecretUrl(Secret[str]):
    """An address that may hold a password; shown without it."""

    def _display(self) -> str:
        return masked_url(self.get_secret_value())


class Options(Mapping[str, str]):
    """Settings of a library, by its own names; values of sensitive names are masked wherever they are shown."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Options({self.shown()})"

    def shown(self) -> dict[str, str]:
        """Return the options with secrets masked."""
        return {key: _shown_option(key, value) for key, value in self._values.items()}

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        serialization = core_schema.plain_serializer_function_ser_schema(cls.shown)
        return core_schema.no_info_plain_validator_function(cls._validate, serialization=serialization)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        del schema, handler
        return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}

    @classmethod
    def _validate(cls, value: Any) -> "Options":
        if isinstance(value, Options):
            return value
        if not isinstance(value, dict):
            raise refusal("names and values")
        for key, item in value.items():
            if not isinstance(item, str | int | float):
                raise refusal("texts, numbers and switches", f"has something else under {key[:60]}")
        return cls({key: _option_text(item) for key, item in value.items()})


def _option_text(value: str | float) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shown_option(key: str, value: str) -> str:
    if is_sensitive(key):
        return MASK
    return masked_url(value) if "://" in value else value
