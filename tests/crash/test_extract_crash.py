"""An extraction that is killed at any moment beside a writer of its source: both tables equal the source at the end."""

from pathlib import Path

import pytest

from tests.crash.extract_rounds import CrashRounds
from tests.servers import postgres_server_url, postgres_url

__all__ = ["postgres_server_url", "postgres_url"]

pytestmark = [pytest.mark.crash, pytest.mark.server]


def test_an_extraction_killed_at_any_moment_neither_loses_nor_repeats_a_row(tmp_path: Path, postgres_url: str) -> None:
    rounds = CrashRounds(tmp_path, postgres_url, seed=21)
    with rounds.platform:
        for _ in range(5):
            rounds.round("here", longest_s=1.5)
        rounds.finish()
        assert rounds.changes > 0


@pytest.mark.spark
def test_an_extraction_whose_spark_tasks_are_killed_neither_loses_nor_repeats_a_row(
    tmp_path: Path, postgres_url: str
) -> None:
    rounds = CrashRounds(tmp_path, postgres_url, seed=22)
    with rounds.platform:
        rounds.round("spark", longest_s=4.0)
        rounds.round("here", longest_s=1.0)
        rounds.finish()
