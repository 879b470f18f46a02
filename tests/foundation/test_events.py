import logging

import pytest

from dw_platform.foundation import EventHub


def test_every_listener_hears_every_event_in_the_order_of_subscription() -> None:
    hub, heard = EventHub[str](), list[tuple[str, str]]()
    hub.subscribe(lambda event: heard.append(("first", event)))
    hub.subscribe(lambda event: heard.append(("second", event)))
    hub.publish("a")
    hub.publish("b")
    assert heard == [("first", "a"), ("second", "a"), ("first", "b"), ("second", "b")]


def test_a_listener_that_left_hears_nothing_more_and_may_leave_twice() -> None:
    hub, heard = EventHub[int](), list[int]()
    leave = hub.subscribe(heard.append)
    hub.publish(1)
    leave()
    leave()
    hub.publish(2)
    assert heard == [1]


def test_each_subscription_of_one_listener_ends_by_itself() -> None:
    hub, heard = EventHub[int](), list[int]()
    listener = heard.append
    leave_first = hub.subscribe(listener)
    hub.subscribe(listener)
    hub.publish(1)
    leave_first()
    hub.publish(2)
    assert heard == [1, 1, 2]


def test_a_broken_listener_is_logged_and_does_not_silence_the_others(caplog: pytest.LogCaptureFixture) -> None:
    hub, heard = EventHub[int](), list[int]()

    def broken(_: int) -> None:
        raise RuntimeError("listener is broken")

    hub.subscribe(broken)
    hub.subscribe(heard.append)
    with caplog.at_level(logging.ERROR):
        hub.publish(7)
    assert heard == [7]
    assert "listener is broken" in caplog.text


def test_a_listener_may_subscribe_another_during_delivery() -> None:
    hub, heard = EventHub[int](), list[int]()

    def invite(_: int) -> None:
        hub.subscribe(heard.append)

    hub.subscribe(invite)
    hub.publish(1)
    assert heard == []
    hub.publish(2)
    assert heard == [2]
