"""Names for files that are not whole yet, and the end of those that killed writers left.

VACUUM passes over names that begin with a dot, so nobody else would ever remove them. Whoever holds the claim on a
folder may remove them all once its writers have ended.
"""

import os
import re
import secrets
from pathlib import Path

from dw_platform.foundation.durable import TEMPORARY_SUFFIX

# The same form as that of `replace_file`, which writes the claim.
_ASIDE = re.compile(rf"\.[0-9a-f]{{16}}{re.escape(TEMPORARY_SUFFIX)}")


def aside(folder: Path) -> Path:
    """Return a new name in the folder; it is short, because the final one may be as long as a name can be."""
    return folder / f".{secrets.token_hex(8)}{TEMPORARY_SUFFIX}"


def remove_aside(folder: Path) -> None:
    """Remove every file below the folder that somebody began and did not finish."""
    for inside, _, names in os.walk(folder):
        for name in filter(_ASIDE.fullmatch, names):
            (Path(inside) / name).unlink(missing_ok=True)
