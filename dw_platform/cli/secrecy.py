"""The last line of defence: what `dw` says about failures is searched for the platform's secrets first.

Every layer masks what it shows. Texts of other people's exceptions are beyond that: a driver may quote an address.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, Secret

from dw_platform.config.secrets import MASK, Options, SecretUrl, is_sensitive

# Shorter ones would blank out half of every sentence, and protect nothing.
_SHORTEST = 4
_PASSWORD = re.compile(r"://[^:/@]*:(.+)@")

_known: dict[str, str] = {}


def hide_secrets_of(config: BaseModel) -> None:
    """Keep the secrets of `config` out of everything that is said from now on."""
    _known.update((text, shown) for text, shown in _secrets(config) if len(text) >= _SHORTEST)


def masked(text: str) -> str:
    """Return `text` without any secret that is known; the longest go first, as one may contain another."""
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, _known[secret])
    return text


class MaskedFormatter(logging.Formatter):
    """Formats log records, tracebacks included, without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


def _secrets(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, Secret):
        yield from _secret(value)
    elif isinstance(value, Options):
        yield from ((text, MASK) for key, text in value.items() if is_sensitive(key))
    elif isinstance(value, BaseModel):
        yield from (pair for name in type(value).model_fields for pair in _secrets(getattr(value, name)))
    elif isinstance(value, tuple | list):
        yield from (pair for item in value for pair in _secrets(item))
    elif isinstance(value, Mapping):
        yield from (pair for item in value.values() for pair in _secrets(item))


def _secret(value: Secret[str]) -> Iterator[tuple[str, str]]:
    text = value.get_secret_value()
    if not isinstance(value, SecretUrl):
        yield text, MASK
    elif str(value) != text:
        yield text, str(value)
        for found in _PASSWORD.findall(text):
            yield from ((found, MASK), (unquote(found), MASK))
