"""A load that was measured, from rows of a metrics table or of an ops table, to try a rule on."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from dw_platform.foundation import InvalidValueError
from dw_platform.scaling.traces import Trace

# A gap in a record of a year by mistake would otherwise become a list of thirty million seconds.
_LONGEST_S = 31 * 24 * 3_600


def recorded(
    name: str,
    rows: Iterable[Mapping[str, Any]],
    *,
    partitions: int,
    at: str = "at",
    records_per_s: str = "records_per_s",
) -> Trace:
    """Return the trace that `rows` tell: at each time, how many records a second came in since the row before.

    Rows may come in any order; times are datetimes, ISO texts or seconds. Of several rows of one time (a partition
    each) the rates add up.
    """
    rates: dict[float, float] = {}
    for row in rows:
        rate = _number(row, records_per_s)
        second = _seconds(row, at)
        rates[second] = rates.get(second, 0.0) + rate
    times = sorted(rates)
    if len(times) < 2:
        raise InvalidValueError("rows", f"{len(times)} times", "at least two times, or there is no load between them")
    if times[-1] - times[0] > _LONGEST_S:
        raise InvalidValueError(
            "rows", f"{times[-1] - times[0]:,.0f} s", f"at most {_LONGEST_S:,} s from first to last"
        )
    offered: list[float] = []
    for time in times[1:]:
        offered += [rates[time]] * (round(time - times[0]) - len(offered))
    return Trace(name=name, offered=offered, partitions=partitions)


def _number(row: Mapping[str, Any], key: str) -> float:
    try:
        number = float(row[key])
    except (KeyError, TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidValueError(key, row.get(key), f"a number in every row; the columns are {', '.join(sorted(row))}")
    return number


def _seconds(row: Mapping[str, Any], key: str) -> float:
    value = row.get(key)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return _number(row, key)
    return value.timestamp() if isinstance(value, datetime) else _number(row, key)
