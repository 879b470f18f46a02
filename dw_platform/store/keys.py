"""How the platform's own keys are built: `dw://internal/backup/{job_id}`.

A part may be any text. Inside it, `/` and `%` are escaped, so two different lists of parts never make the same
key and a prefix ends where a part ends: the prefix of job `a` does not match job `ab`.
"""

ROOT = "dw://internal/"
_ESCAPES = (("%", "%25"), ("/", "%2F"))


def internal_key(*parts: str) -> str:
    """Return the key of `parts`, from the general to the particular."""
    return ROOT + "/".join(_escape(part) for part in parts)


def internal_prefix(*parts: str) -> str:
    """Return the prefix of all keys below `parts`."""
    return internal_key(*parts, "") if parts else ROOT


def key_parts(key: str) -> tuple[str, ...]:
    """Return the parts that `internal_key` made `key` of."""
    return tuple(_unescape(part) for part in key.removeprefix(ROOT).split("/"))


def _escape(part: str) -> str:
    for character, escape in _ESCAPES:
        part = part.replace(character, escape)
    return part


def _unescape(part: str) -> str:
    for character, escape in reversed(_ESCAPES):
        part = part.replace(escape, character)
    return part
