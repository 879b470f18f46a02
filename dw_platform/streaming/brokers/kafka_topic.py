"""What a topic takes: checked before anything is sent, because Kafka would refuse one batch and take the next."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow.compute as pc

from dw_platform.log import InvalidRecordsError
from dw_platform.log.columns import Columns
from dw_platform.log.policy import LARGEST_BATCH_BYTES
from dw_platform.streaming.brokers.kafka_config import FRAMING, LARGEST_BATCH


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as publishers need to know it."""

    partitions: int
    largest_batch: int = LARGEST_BATCH
    largest_record: int = LARGEST_BATCH_BYTES // 2
    """Key, value and headers together."""

    needs_keys: bool = False
    """Whether it is compacted, which is done by key."""

    keeps_ms: int | None = None
    """Age at which a record goes, by its own time; None: never."""

    earliest_ms: int | None = None
    latest_ms: int | None = None
    """How far a record's time may lie before and behind the server's clock; None: any time."""

    @classmethod
    def of(cls, partitions: int, config: Mapping[str, str] | None) -> "TopicFacts":
        """Return the facts; `config` is None where this user may not see it, and then the server has the last word."""
        if config is None:
            return cls(partitions)
        largest = int(config["max.message.bytes"])
        return cls(
            partitions,
            largest_batch=largest,
            largest_record=max(largest - FRAMING, 1),
            needs_keys="compact" in config.get("cleanup.policy", ""),
            keeps_ms=_limit(config.get("retention.ms")) if "delete" in config.get("cleanup.policy", "") else None,
            earliest_ms=_limit(config.get("message.timestamp.before.max.ms")),
            latest_ms=_limit(config.get("message.timestamp.after.max.ms")),
        )


def _limit(written: str | None) -> int | None:
    """Return a limit in milliseconds; the largest number there is, and -1, mean none."""
    return None if written is None or not 0 <= int(written) < 2**62 else int(written)


def check_records(columns: Columns, facts: TopicFacts, now: datetime) -> None:
    """Raise RecordTooLargeError or InvalidRecordsError for a batch that the topic would not take as a whole."""
    columns.check_sizes(facts.largest_record)
    if facts.needs_keys and (columns.keys is None or columns.keys.null_count):
        raise InvalidRecordsError("the topic is compacted, so each needs a key")
    if columns.times is not None:
        span = pc.min_max(columns.times).as_py()
        _check_times(span["min"], span["max"], facts, int(now.timestamp() * 1000))


def _check_times(first: int, last: int, facts: TopicFacts, now_ms: int) -> None:
    # To Kafka 0 means now, and -1 that there is no time.
    if first < 1:
        raise InvalidRecordsError("Kafka has no times before 1970-01-01 00:00:00.001 UTC")
    # Kafka counts a record's age from its own time: it would be acknowledged and then removed before anybody reads it.
    if facts.keeps_ms is not None and first < now_ms - facts.keeps_ms:
        raise InvalidRecordsError(
            f"a time lies {now_ms - first} ms back and the topic keeps records for {facts.keeps_ms}: raise retention.ms"
        )
    if facts.earliest_ms is not None and first < now_ms - facts.earliest_ms:
        raise InvalidRecordsError(f"a time lies {now_ms - first} ms back, the topic takes {facts.earliest_ms}")
    if facts.latest_ms is not None and last > now_ms + facts.latest_ms:
        raise InvalidRecordsError(f"a time lies {last - now_ms} ms ahead, the topic takes {facts.latest_ms}")
