"""Names that are also folders: of topics, and of groups, which end up in keys and in listings beside them."""

import re

from dw_platform.log.errors import InvalidNameError

LONGEST = 200
_ALLOWED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


def check_name(kind: str, name: str) -> str:
    """Return `name`; raise InvalidNameError if it could leave its folder, or cannot be shown or stored."""
    if not name:
        raise InvalidNameError(kind, name, "it is empty")
    if len(name) > LONGEST:
        raise InvalidNameError(kind, name, f"it has {len(name)} characters, at most {LONGEST} are allowed")
    if not name.isprintable():
        raise InvalidNameError(kind, name, "it contains characters that cannot be shown")
    if "/" in name or "\\" in name or name.startswith("."):
        raise InvalidNameError(kind, name, "it could name a place outside its folder, or a hidden file")
    if not _ALLOWED.fullmatch(name):
        raise InvalidNameError(kind, name, "it contains other characters")
    return name
