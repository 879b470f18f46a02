import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.config.cron import cron_problem


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *",
        "5 * * * *",
        "*/15 0-6,22 1 jan-mar mon",
        "0 0 29 2 *",
        "0 0 31 1,4 *",
        "0 0 30 2 mon",
        "0 12 * * 7",
        "0 0 * * SUN",
        "1-59/2 * * * *",
        "5/10 * * * *",
        "@daily",
        " 0  0 * * * ",
    ],
)
def test_schedules_that_run_are_accepted(schedule: str) -> None:
    assert cron_problem(schedule) is None


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("", "has 0 fields instead of 5"),
        ("* * * *", "has 4 fields instead of 5"),
        ("0 * * * * *", "has 6 fields instead of 5"),
        ("60 * * * *", "has a minute that cron does not know (0 to 59)"),
        ("* 24 * * *", "has a hour that cron does not know (0 to 23)"),
        ("* * 0 * *", "has a day that cron does not know (1 to 31)"),
        ("* * * 13 *", "has a month that cron does not know (1 to 12)"),
        ("* * * * 8", "has a weekday that cron does not know (0 to 7)"),
        ("* * * * monday", "has a weekday that cron does not know (0 to 7)"),
        ("*/0 * * * *", "has a minute that cron does not know (0 to 59)"),
        ("5-1 * * * *", "has a minute that cron does not know (0 to 59)"),
        ("1,,2 * * * *", "has a minute that cron does not know (0 to 59)"),
        ("*-5 * * * *", "has a minute that cron does not know (0 to 59)"),
        ("0 0 30 2 *", "names a day that its months do not have, so it would never run"),
        ("0 0 31 4,6 *", "names a day that its months do not have, so it would never run"),
        ("@reboot", "has 1 fields instead of 5"),
    ],
)
def test_schedules_that_cannot_run_are_refused(schedule: str, problem: str) -> None:
    assert cron_problem(schedule) == problem


numbers = st.integers(0, 70).map(str)
items = st.one_of(
    st.just("*"),
    numbers,
    st.builds("{}-{}".format, numbers, numbers),
    st.builds("*/{}".format, st.integers(0, 40)),
    st.builds("{}-{}/{}".format, numbers, numbers, st.integers(0, 9)),
    st.sampled_from(["mon", "jan", "feb", "sun", "x", "l"]),
)
fields = st.lists(items, min_size=1, max_size=3).map(",".join)


@settings(deadline=None)  # the first example also imports the scheduler
@given(st.lists(fields, min_size=5, max_size=5).map(" ".join))
def test_what_is_accepted_here_is_accepted_by_the_scheduler(schedule: str) -> None:
    from datetime import UTC, datetime

    from dagster._utils.schedules import cron_string_iterator, is_valid_cron_string

    if cron_problem(schedule) is None:
        assert is_valid_cron_string(schedule)
        start = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
        assert len(list(itertools.islice(cron_string_iterator(start, schedule, "UTC"), 1))) == 1
