"""Five-field cron expressions, checked when the file is read instead of when the schedule would first run."""

import re
from dataclasses import dataclass

ALLOWED = "five fields (minute hour day month weekday) such as '0 * * * *', or @hourly, @daily, @weekly, @monthly"
NICKNAMES = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
_ITEM = re.compile(r"(\*|[a-z0-9]{1,3})(?:-([a-z0-9]{1,3}))?(?:/([0-9]{1,3}))?", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    words: tuple[str, ...] = ()

    def number(self, text: str) -> int | None:
        if text in self.words:
            return self.words.index(text) + self.low
        return int(text) if text.isdigit() and self.low <= int(text) <= self.high else None


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("weekday", 0, 7, _DAYS),
)


def cron_problem(text: str) -> str | None:
    """Return what is wrong with a schedule, or None when it is one that will run."""
    schedule = text.strip().lower()
    if schedule in NICKNAMES:
        return None
    parts = schedule.split()
    if len(parts) != len(_FIELDS):
        return f"has {len(parts)} fields instead of 5"
    chosen = []
    for field, part in zip(_FIELDS, parts, strict=True):
        numbers = _numbers(field, part)
        if numbers is None:
            return f"has a {field.name} that cron does not know ({field.low} to {field.high})"
        chosen.append(numbers)
    _, _, days, months, _ = chosen
    if parts[4] == "*" and all(min(days) > _LONGEST[month - 1] for month in months):
        return "names a day that its months do not have, so it would never run"
    return None


def _numbers(field: _Field, part: str) -> set[int] | None:
    found: set[int] = set()
    for item in part.split(","):
        numbers = _range(field, item)
        if numbers is None:
            return None
        found |= numbers
    return found


def _range(field: _Field, item: str) -> set[int] | None:
    match = _ITEM.fullmatch(item)
    if not match:
        return None
    first, last, step = match.groups()
    if first == "*":
        low, high = (None, None) if last else (field.low, field.high)
    else:
        low = field.number(first)
        high = field.number(last) if last else (field.high if step else low)
    if low is None or high is None or low > high or (step is not None and int(step) == 0):
        return None
    return set(range(low, high + 1, int(step or 1)))
