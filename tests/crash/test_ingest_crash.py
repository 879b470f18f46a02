"""An ingest that is killed at any moment, beside a producer and upkeep: every acknowledged record is there, once."""

from pathlib import Path

import pytest

from tests.crash.ingest_rounds import CrashRounds

pytestmark = pytest.mark.crash


def test_an_ingest_killed_at_any_moment_neither_loses_nor_repeats_a_record(tmp_path: Path) -> None:
    rounds = CrashRounds(tmp_path, seed=11)
    with rounds.platform:
        for _ in range(5):
            rounds.round("here", longest_s=0.6)
        rounds.finish()
        assert rounds.commits > 5
        assert sum(rounds.acknowledged) > 0


@pytest.mark.spark
def test_an_ingest_whose_spark_tasks_are_killed_neither_loses_nor_repeats_a_record(tmp_path: Path) -> None:
    rounds = CrashRounds(tmp_path, seed=12)
    with rounds.platform:
        rounds.round("spark", longest_s=2.0)
        rounds.round("here", longest_s=0.5)
        rounds.finish()
