"""`dw scale`: what is in force, who follows, and that a bad change changes nothing."""

import contextlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.bus import ScalableMessageBus, TopicOptions
from dw_platform.cli.scale import MalformedChangeError, parse_changes
from dw_platform.foundation import FakeClock
from dw_platform.pipelines import Platform
from dw_platform.pipelines.bus import open_bus
from dw_platform.pipelines.limits import limit_control
from dw_platform.scaling import ScalingRegistry
from tests.cli.conftest import Dw, MakeFile


@pytest.fixture
def file(make_file: MakeFile) -> Path:
    return make_file("bus: {partitions: 2}\nscaling: {thresholds: {warning: 65%}}")


@pytest.fixture
def bus(file: Path) -> Iterator[ScalableMessageBus]:
    """A bus that runs and follows, as the gateway's does."""
    with Platform.open(file, environ={}) as platform:
        bus = open_bus(platform)
        registry = ScalingRegistry(platform.store, node="gateway@test", clock=platform.clock, watch_every_s=0.02)
        registry.register(bus)
        with registry:
            yield bus
        bus.close_sync()


@pytest.mark.usefixtures("file")
def test_every_limit_is_shown_as_configured_and_in_force_with_who_changed_it_and_why(dw: Dw) -> None:
    assert dw("scale", "set", "bus", "partitions=8", "max_record_bytes=64KiB", "--reason", "more load").code == 0
    [shown] = json.loads(dw("scale", "show", "bus", "--json").out)
    limits = {limit["key"]: limit for limit in shown["limits"]}
    assert (limits["partitions"]["value"], limits["partitions"]["configured"]) == (8, 2)
    assert (limits["max_record_bytes"]["value"], limits["max_record_bytes"]["unit"]) == (65_536, "bytes")
    assert (limits["thresholds.warning"]["value"], limits["max_topics"]["value"]) == (0.65, 1000)
    assert shown["record"]["reason"] == "more load"
    assert "@" in shown["record"]["changed_by"]
    out = dw("scale", "show", "bus").out
    assert "partitions                 8          2           partitions   of each topic" in out
    assert "UTC, version 1: more load" in out
    assert "No process runs bus now" in out


@pytest.mark.usefixtures("file")
def test_all_subsystems_are_shown_unless_one_is_named(dw: Dw) -> None:
    assert {each["subsystem"] for each in json.loads(dw("scale", "show", "--json").out)} >= {"bus", "streaming"}
    code, _, err = dw("scale", "show", "buss")
    assert code == 2
    assert "There is no subsystem 'buss'. Known are: backup, bus" in err


def test_a_change_reaches_a_running_process_which_is_named(dw: Dw, bus: ScalableMessageBus) -> None:
    code, out, _ = dw("scale", "set", "bus", "partitions=8", "thresholds.warning=0.6", "thresholds.warning_exit=0.5")
    assert code == 0
    assert "partitions: 2 -> 8" in out
    assert "  gateway@test applied it\n" in out
    assert (bus.current_limits().partitions, bus.current_limits().thresholds.warning) == (8, 0.6)
    out = dw("scale", "show", "bus").out
    assert "gateway@test  follows  normal    0%" in out
    assert "published_total" in out
    code, out, _ = dw("scale", "reset", "bus", "partitions")
    assert (code, bus.current_limits().partitions, bus.current_limits().thresholds.warning) == (0, 2, 0.6)
    assert dw("scale", "reset", "bus", "--reason", "over").code == 0
    assert bus.current_limits().thresholds.warning == 0.65


def test_a_process_that_must_refuse_is_named_with_its_reason_and_the_exit_code_is_1(
    dw: Dw, bus: ScalableMessageBus
) -> None:
    bus.declare("a", TopicOptions())
    subscriptions = [bus.subscribe(topic) for topic in ("a", "b")]
    code, out, err = dw("scale", "set", "bus", "max_topics=1")
    assert code == 1
    assert "gateway@test refuses it" in out
    assert "gateway@test refuses it and keeps its limits: max_topics cannot be 1: at least the 2 in use." in err
    assert bus.current_limits().max_topics == 1000
    code, out, err = dw("scale", "show", "bus")
    assert code == 1
    assert "gateway@test  refused" in out
    assert "refuses the limits of bus" in err
    for subscription in subscriptions:
        subscription.close()


def test_a_process_that_fell_silent_is_marked(dw: Dw, file: Path) -> None:
    with Platform.open(file, environ={}) as platform:
        bus, long_ago = open_bus(platform), FakeClock(datetime.now(UTC) - timedelta(minutes=5))
        registry = ScalingRegistry(platform.store, node="gateway@gone", clock=long_ago)
        registry.register(bus)
        registry.publish()
        out = dw("scale", "show").out
        assert re.search(r"gateway@gone  silent  normal    0%    3\d\d s ago, stale", out)
        [shown] = json.loads(dw("scale", "show", "bus", "--json").out)
        assert (shown["nodes"][0]["state"], shown["nodes"][0]["stale"]) == ("silent", True)
        code, out, _ = dw("scale", "set", "bus", "partitions=3")
        assert code == 0
        assert "No process runs bus now" in out


@pytest.mark.usefixtures("file")
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["partitions"], "'partitions' has no =. Write KEY=VALUE"),
        (["=4"], "has no key"),
        (["partitions=1", "partitions=2"], "named already"),
        (["partitions=0"], "partitions cannot be 0: at least 1"),
        (["partitions=many"], "partitions cannot be 'many'"),
        (["ring_size=1000"], "power of two"),
        (["partions=1"], "there is no such limit"),
        (["partitions=9", "thresholds.warning=0.9"], "above thresholds.warning"),
    ],
)
def test_a_bad_change_is_refused_by_name_and_nothing_is_stored(dw: Dw, changes: list[str], words: str) -> None:
    code, out, err = dw("scale", "set", "bus", *changes)
    assert (code, out) == (2, "")
    assert words in err or "critical" in err
    assert dw("scale", "history").out == "No limit was ever changed.\n"


@pytest.mark.usefixtures("file")
def test_the_history_tells_who_changed_what_from_which_value_newest_first(dw: Dw) -> None:
    dw("scale", "set", "bus", "partitions=8", "--reason", "first")
    dw("scale", "set", "streaming", "longest_wait=5s", "--reason", "second")
    dw("scale", "reset", "bus", "--reason", "third")
    records = json.loads(dw("scale", "history", "--json").out)
    assert [record["reason"] for record in records] == ["third", "second", "first"]
    assert records[0]["changes"] == {"partitions": {"before": 8, "after": 2}}
    assert [record["reason"] for record in json.loads(dw("scale", "history", "bus", "--limit", "1", "--json").out)] == [
        "third"
    ]
    assert "partitions: 2 -> 8" in dw("scale", "history", "bus").out


@pytest.mark.usefixtures("file")
def test_resetting_what_was_never_changed_says_so(dw: Dw) -> None:
    assert dw("scale", "reset", "bus").out.endswith("nothing was ever changed.\n")
    assert json.loads(dw("scale", "reset", "bus", "--json").out)["changes"] == {}


def test_a_record_that_cannot_be_read_is_a_problem_with_a_way_out(dw: Dw, file: Path) -> None:
    with Platform.open(file, environ={}) as platform:
        platform.store.put("dw://internal/limits/bus", b"not json")
        code, out, err = dw("scale", "show", "bus")
        assert code == 1
        assert "partitions" in out
        assert "cannot be read" in err
        assert dw("scale", "reset", "bus").code == 0
        assert limit_control(platform).current("bus") is not None
        assert dw("scale", "show", "bus").code == 0


keys = st.text(st.characters(exclude_characters="=", exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(st.dictionaries(keys.map(str.strip), st.text().map(str.strip), min_size=1))
def test_what_is_written_as_key_and_value_is_read_as_such(changes: dict[str, str]) -> None:
    assert parse_changes([f"{key}={value}" for key, value in changes.items()]) == changes


@given(st.lists(st.text(), max_size=4))
def test_any_text_is_a_change_or_is_refused(texts: list[str]) -> None:
    with contextlib.suppress(MalformedChangeError):
        assert len(parse_changes(texts)) == len(texts)
