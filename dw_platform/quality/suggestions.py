"""Guesses what somebody meant who wrote a name that does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """Return ` (did you mean NAME?)` for the closest of `known`, or nothing when none is close."""
    names = list(known)
    # Short forms first: `min` is far from `min_value` by edit distance, and yet plainly meant.
    close = [name for name in names if len(given) >= 3 and name.startswith(given)]
    # 0.75: below it, any two tables of one schema look alike.
    close = close or get_close_matches(given, names, n=1, cutoff=0.75)
    return f" (did you mean {close[0]}?)" if close else ""
