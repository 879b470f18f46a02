"""A crew works on every piece once, with as many threads as its rule allows, and stops at the first error."""

import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dw_platform.fileio.crew import Crew, CrewStoppedError


def steady(streams: int) -> int:
    return streams


@settings(deadline=None, max_examples=50)
@given(pieces=st.lists(st.integers()), streams=st.integers(0, 5))
def test_every_piece_is_worked_on_once_and_results_keep_their_order(pieces: list[int], streams: int) -> None:
    assert Crew[int, int](lambda piece: piece + 1, pace=steady, every_s=5, streams=streams).run(pieces) == [
        piece + 1 for piece in pieces
    ]


def test_more_threads_start_while_the_first_piece_is_worked_on() -> None:
    both = threading.Barrier(3)
    crew = Crew[int, int](lambda _: both.wait(timeout=20), pace=lambda streams: streams + 1, every_s=0.01)
    assert sorted(crew.run(range(3))) == [0, 1, 2]
    assert crew.streams >= 3


def test_a_thread_too_many_ends_with_its_piece() -> None:
    together, most = set[int](), list[int]()
    shrunk = threading.Event()

    def work(piece: int) -> None:
        together.add(piece)
        most.append(len(together))
        shrunk.wait(20)
        together.discard(piece)

    def pace(_: int) -> int:
        shrunk.set()
        return 1

    Crew[int, None](work, pace=pace, every_s=0.01, streams=3).run(range(40))
    assert max(most) == 3
    assert set(most[10:]) == {1}


def test_the_first_error_stops_the_others_and_is_raised() -> None:
    failed = threading.Event()

    def work(piece: int) -> None:
        if piece == 0:
            failed.set()
            raise ValueError("the disk is gone")
        failed.wait(20)
        while True:  # long work that looks up now and then
            crew.check()

    crew = Crew[int, None](work, pace=steady, every_s=5, streams=2)
    with pytest.raises(ValueError, match="the disk is gone"):
        crew.run([0, 1, *range(2, 100)])
    with pytest.raises(CrewStoppedError):
        crew.check()


def test_an_error_of_the_rule_itself_ends_the_work() -> None:
    begun = threading.Event()

    def work(_: int) -> None:
        begun.set()
        while True:
            crew.check()

    def pace(_: int) -> int:
        begun.wait(20)
        raise OSError("no such device")

    crew = Crew[int, None](work, pace=pace, every_s=0.01)
    with pytest.raises(OSError, match="no such device"):
        crew.run(range(3))
