"""A made-up operational database for demonstrations: customers in SQLite, who come, move and leave.

The first call fills it; each further one changes it a little, as an application would: a few new customers, a few who
move, a few who are deleted. So the second `dw demo` has something to extract.
"""

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

_COUNTRIES = ("AT", "BE", "CH", "DE", "DK", "ES", "FR", "IT", "NL", "PL")
_GIVEN = ("Ada", "Ben", "Cleo", "Dina", "Emil", "Fay", "Gus", "Hana", "Ivo", "June")
_FAMILY = ("Abel", "Brandt", "Conti", "Dahl", "Eder", "Falk", "Gallo", "Holm", "Iglesias", "Jansen")
# One in so many is changed, and one in as many of those deleted, each time.
_CHANGED = 50

_TABLE = """
CREATE TABLE IF NOT EXISTS customers (
    customer_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT,
    country TEXT NOT NULL,
    credit DECIMAL(10, 2) NOT NULL,
    updated_at TIMESTAMP NOT NULL
)
"""


@dataclass(frozen=True, slots=True)
class Made:
    """What was done to the database."""

    added: int
    changed: int
    deleted: int


def make_customers(file: Path, rows: int, *, seed: int, now: datetime) -> Made:
    """Fill the database with `rows` customers, or change the one that is there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file, timeout=30)) as connection, connection:
        connection.execute("PRAGMA journal_mode=WAL")  # readers and this writer do not wait for each other
        connection.execute(_TABLE)
        connection.execute("CREATE INDEX IF NOT EXISTS customers_updated ON customers (updated_at)")
        (last,) = connection.execute("SELECT coalesce(max(customer_id), 0) FROM customers").fetchone()
        chance = random.Random(seed + last)  # noqa: S311  made up, and the same on every machine
        moment = now.replace(tzinfo=None).isoformat(" ", timespec="seconds")
        count = rows if last == 0 else max(1, rows // _CHANGED)
        connection.executemany(
            "INSERT INTO customers VALUES (?, ?, ?, ?, ?, ?)", _customers(last, count, chance, now, fresh=last > 0)
        )
        if last == 0:
            return Made(added=count, changed=0, deleted=0)
        moved = chance.sample(range(1, last + 1), max(1, last // _CHANGED))
        changed = connection.executemany(
            "UPDATE customers SET country = ?, updated_at = ? WHERE customer_id = ?",
            [(chance.choice(_COUNTRIES), moment, number) for number in moved],
        ).rowcount
        gone = [(number,) for number in moved[: max(1, len(moved) // _CHANGED)]]
        deleted = connection.executemany("DELETE FROM customers WHERE customer_id = ?", gone).rowcount
        return Made(added=count, changed=changed, deleted=deleted)


def _customers(
    last: int, count: int, chance: random.Random, now: datetime, *, fresh: bool
) -> Iterator[tuple[int, str, str | None, str, str, str]]:
    for number in range(last + 1, last + count + 1):
        given, family = chance.choice(_GIVEN), chance.choice(_FAMILY)
        email = None if chance.random() < 0.1 else f"{given}.{family}.{number}@example.com".lower()
        moment = now if fresh else now - timedelta(seconds=chance.randrange(365 * 86_400))
        told = moment.replace(tzinfo=None).isoformat(" ", timespec="seconds")
        credit = f"{chance.randrange(100_000) / 100:.2f}"
        yield number, f"{given} {family}", email, chance.choice(_COUNTRIES), credit, told
