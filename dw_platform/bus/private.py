"""Names of groups that are made for one subscriber; nobody can give one, because names begin with a letter or digit."""

_MARK = "~"


def private_name(number: int) -> str:
    """Return the name of a private group."""
    return f"{_MARK}{number}"


def is_private(group: str) -> bool:
    """Return whether the group ends with its only subscriber."""
    return group.startswith(_MARK)
