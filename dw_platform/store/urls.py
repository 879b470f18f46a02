"""Store addresses the way they may appear in messages and logs."""

import re

# Up to the last @: a password may itself contain one, and hiding too much is the safe mistake.
_PASSWORD = re.compile(r"^([\w+.-]+://[^:/@?#]*):.*@", re.DOTALL)
_PASSWORD_OPTION = re.compile(r"([?&](?:ssl)?password=)[^&]*", re.IGNORECASE)


def without_password(url: str) -> str:
    """Return `url` with every password replaced by `***`."""
    return _PASSWORD_OPTION.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))
