"""Following a run by its log."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.cli.steps import RunLog, StepEvent, StepState, step_event, step_names
from dw_platform.config import parse_config
from tests.cli.conftest import TABLES

START = "2026-11-18 10:46:39 +0000 - dagster - DEBUG - refresh - b0c6 - 8084"
NAMES = {"shop__orders": "build shop.orders", "shop_orders_checks": "check shop.orders"}
LOG = f"""{START} - RUN_START - Started execution of run for "refresh".
{START} - shop__orders - STEP_START - Started execution of step "shop__orders".
WARNING: Using incubator modules: jdk.incubator.vector
{START} - shop__orders - STEP_OUTPUT - Yielded output "result" of type "Nothing". (Type check passed).
{START} - shop__orders - STEP_SUCCESS - Finished execution of step "shop__orders" in 15.55s.
{START} - shop_orders_checks - STEP_UP_FOR_RETRY - Execution of step "shop_orders_checks" failed and has requested.
{START} - shop_orders_checks - STEP_RESTARTED - Started re-execution (attempt # 2) of step "shop_orders_checks".
{START} - shop_orders_checks - STEP_FAILURE - Execution of step "shop_orders_checks" failed.
{START} - other - STEP_SKIPPED - Skipping step.
"""
EVENTS = [
    StepEvent("build shop.orders", StepState.START),
    StepEvent("build shop.orders", StepState.SUCCESS),
    StepEvent("check shop.orders", StepState.UP_FOR_RETRY),
    StepEvent("check shop.orders", StepState.START),
    StepEvent("check shop.orders", StepState.FAILURE),
    StepEvent("other", StepState.SKIPPED),
]


def test_every_step_of_the_file_has_a_name_for_people(tmp_path: Path) -> None:
    config = parse_config(f"name: x\n{TABLES}", source=tmp_path / "platform.yaml", environ={})
    assert step_names(config) == {
        "shop__orders": "build shop.orders",
        "shop__revenue": "build shop.revenue",
        "shop_orders_checks": "check shop.orders",
    }


def test_a_log_becomes_the_events_of_its_steps(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    run = RunLog(tmp_path / "log", NAMES)
    assert list(run.new_events()) == EVENTS
    assert run.failed == ["check shop.orders"]
    assert list(run.new_events()) == []
    run.close()


@settings(deadline=None)  # a busy disk may take its time
@given(cuts=st.lists(st.integers(0, len(LOG.encode())), max_size=6))
def test_events_are_the_same_however_the_log_arrives(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    path = tmp_path_factory.mktemp("run") / "log"
    path.write_bytes(b"")
    run, content, seen = RunLog(path, NAMES), LOG.encode(), []
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), len(content)], strict=True):
        with path.open("ab") as file:
            file.write(content[first:last])
        seen += list(run.new_events())
    run.close()
    assert seen == EVENTS


def test_only_ended_steps_count_as_done() -> None:
    assert [state for state in StepState if state.ended] == [StepState.SUCCESS, StepState.SKIPPED, StepState.FAILURE]


def test_lines_of_others_are_no_events() -> None:
    assert step_event("STEP_START in somebody's own words", {}) is None
    assert step_event(f"{START} - x - STEP_INPUT - Got input", {}) is None


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("a\ndw_platform.lake.java.NoJavaError: Spark needs Java\n\nStack Trace:\n  x\n", "Spark needs Java"),
        ("ModuleNotFoundError: No module named 'definitions'\n", "No module named 'definitions'"),
        ("FirstError: one\n  caused by\nlib.SecondError: two\nafterwards\n", "two"),
        ("something ended\n\n", "something ended"),
        ("", "it said nothing"),
    ],
)
def test_the_cause_is_the_innermost_error(tmp_path: Path, text: str, cause: str) -> None:
    (tmp_path / "log").write_text(text)
    assert RunLog(tmp_path / "log", {}).cause() == cause
