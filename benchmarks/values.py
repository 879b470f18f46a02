"""Values of the 1 GiB class out of PostgreSQL and SQLite: how fast, and how much memory the reading process grows.

Each reading is a process of its own, so that its memory is its own. Speed is measured with a reader that drops every
chunk at once; growth with the slowest reader there is, which lets the buffer fill up before it reads on, and compares
what it got with a hash of what is stored. The peer asks for the whole value with psycopg, as a row.

PostgreSQL keeps values below 1 GiB, hence 1,000,000,000 bytes there. Its server runs on the same machine and shares
the processors.
"""

import contextlib
import hashlib
import json
import sqlite3
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.harness import Options

NAME = "values"
DESCRIPTION = "1 GB values out of PostgreSQL and SQLite by stream_value: MB/s, and growth of memory against psycopg"

POSTGRES_BYTES, SQLITE_BYTES, QUICK_BYTES = 1_000_000_000, 1 << 30, 20_000_000
ROUNDS, QUICK_ROUNDS = 3, 1
GROWTH_LIMIT_MIB = 80
# One piece that a server makes: 32 hexadecimal digits of a hash, often enough for 500,000 bytes.
PIECE_BYTES = 500_000
STREAMED, WHOLE = "stream_value", "psycopg, the whole value"


@dataclass(frozen=True, slots=True)
class Case:
    """One stored value."""

    name: str
    url: str
    column: str
    bytes: int
    digest: str


def run(options: Options) -> dict[str, Any]:
    """Make the values, then read each several times for speed and once for memory."""
    assert options.directory is not None
    repeats = options.repeats or (QUICK_ROUNDS if options.quick else ROUNDS)
    measures, checks = list[dict[str, Any]](), dict[str, Any]()
    for case in _cases(options.directory, quick=options.quick):
        ways = [WHOLE, STREAMED] if case.url.startswith("postgresql") else [STREAMED]
        # In turn, so that a machine that gets slower meanwhile treats both alike.
        rounds = [{how: _rate(case, how) for how in ways} for _ in range(repeats)]
        measures += [_row(case, how, [each[how] for each in rounds]) for how in ways]
        if len(ways) > 1:
            ratios = [round(each[STREAMED] / each[WHOLE], 2) for each in rounds]
            measures[-1] |= {"peer": WHOLE, "ratio": statistics.median(ratios), "ratios": ratios}
        for how in ways:
            growth = _growth_mib(case, how)
            checks[f"{case.name}, {how}: growth of memory"] = f"{growth} MiB"
            if how == STREAMED:
                checks[f"{case.name}, {how}: below {GROWTH_LIMIT_MIB} MiB, with a full buffer"] = (
                    growth < GROWTH_LIMIT_MIB
                )
    versions = f"psycopg {metadata.version('psycopg')}, SQLite {sqlite3.sqlite_version}"
    return {"measures": measures, "checks": checks | {"versions": versions}}


def _row(case: Case, how: str, rates: list[float]) -> dict[str, Any]:
    return {"name": f"{case.name}, {how}", "unit": "MB/s", "runs": rates, "median": statistics.median(rates)}


def _rate(case: Case, how: str) -> float:
    return float(round(case.bytes / 1e6 / _child(case, how, slow=False)["seconds"], 1))


def _growth_mib(case: Case, how: str) -> int:
    """Return by how much a process grows that also makes sure that it got the right bytes."""
    careful = _child(case, how, slow=True)
    assert careful["digest"] == case.digest, f"{case.name}: another value arrived"
    return int(careful["growth_mib"])


def _child(case: Case, how: str, *, slow: bool) -> dict[str, Any]:
    command = [sys.executable, "-c", "from benchmarks.values import child; child()"]
    given = json.dumps({"url": case.url, "column": case.column, "how": how, "slow": slow})
    done = subprocess.run(
        [*command, given], check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def child() -> None:
    """Read one value in this process and print what it took."""
    given = json.loads(sys.argv[1])
    pieces = _streamed if given["how"] == STREAMED else _whole
    for _ in pieces(given["url"], 0, given["column"], slow=False):
        pass  # now everything is loaded that is needed, and does not count as growth
    before, started, size = _peak(), time.perf_counter(), 0
    digest = hashlib.sha256()
    for piece in pieces(given["url"], 1, given["column"], slow=given["slow"]):
        size += len(piece)
        if given["slow"]:
            digest.update(piece)
    seconds = time.perf_counter() - started
    growth = (_peak() - before) // 2**20
    print(json.dumps({"seconds": seconds, "bytes": size, "growth_mib": growth, "digest": digest.hexdigest()}))


def _streamed(url: str, key: int, column: str, *, slow: bool) -> Iterator[bytes]:
    from dw_platform.extract.description import describe_table
    from dw_platform.extract.source import DatabaseSource, open_engine
    from dw_platform.extract.values import stream_value

    source = DatabaseSource(name="bench", url=url)
    engine = open_engine(source)
    with engine.connect() as connection:
        table = describe_table(connection, source, "big")
    engine.dispose()
    with stream_value(source, table, {"id": key}, column) as stream:
        yield stream.read()
        while slow and not stream.stats().closed and stream.stats().buffered_bytes < stream.max_bytes:
            time.sleep(0.01)
        yield from stream


def _whole(url: str, key: int, column: str, *, slow: bool) -> Iterator[bytes]:
    import psycopg

    del slow
    with psycopg.connect(url) as connection, connection.cursor(binary=True) as cursor:
        row = cursor.execute(f"SELECT {column} FROM big WHERE id = {key}".encode()).fetchone()
        assert row is not None
        yield row[0].encode() if isinstance(row[0], str) else row[0]


def _peak() -> int:
    # Not getrusage: what it says is at least what the process was that started this one.
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def _cases(folder: Path, *, quick: bool) -> Iterator[Case]:
    size = QUICK_BYTES if quick else POSTGRES_BYTES
    with _postgres() as url:
        for column, told in {
            "plain": "PostgreSQL, bytea as it is",
            "packed": "PostgreSQL, bytea compressed",
            "words": "PostgreSQL, text",
        }.items():
            yield Case(told, url, column, size, _made_in_postgres(url, column, size))
    yield _made_in_sqlite(folder / "big.db", QUICK_BYTES if quick else SQLITE_BYTES)


@contextlib.contextmanager
def _postgres() -> Iterator[str]:
    """Start the server that the tests use; it ends with this process, its data with the folder."""
    # `dw` is installed and does not have the clone on its path; `python -m benchmarks` does.
    sys.path.append(str(Path(__file__).parents[1]))
    import tempfile

    import psycopg

    from tests.servers import start_postgres

    # Not in the benchmark's folder: the server runs as a user of its own, who may not enter it.
    with tempfile.TemporaryDirectory(prefix="dw-postgres-", ignore_cleanup_errors=True) as data:
        url = start_postgres(Path(data))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE big (id int PRIMARY KEY, plain bytea, packed bytea, words text)")
            connection.execute("ALTER TABLE big ALTER plain SET STORAGE EXTERNAL, ALTER words SET STORAGE EXTERNAL")
            connection.execute("INSERT INTO big VALUES (0, '\\x00', '\\x00', 'x'), (1, NULL, NULL, NULL)")
        yield url


def _made_in_postgres(url: str, column: str, size: int) -> str:
    """Let the server make the value out of pieces, and return its hash."""
    import psycopg

    pieces = size // PIECE_BYTES
    digits = f"repeat(md5(i::text), {PIECE_BYTES // 32})"
    made = {
        "plain": f"string_agg(decode(repeat(md5(i::text), {PIECE_BYTES // 16}), 'hex'), ''::bytea ORDER BY i)",
        "packed": f"string_agg(decode(repeat(md5(i::text), {PIECE_BYTES // 16}), 'hex'), ''::bytea ORDER BY i)",
        "words": f"string_agg({digits}, '' ORDER BY i)",
    }[column]
    hashed = f"sha256({column})" if column != "words" else f"sha256(convert_to({column}, 'UTF8'))"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"UPDATE big SET {column} = (SELECT {made} FROM generate_series(1, {pieces}) AS i) WHERE id = 1".encode()
        )
        row = connection.execute(
            f"SELECT octet_length({column}), encode({hashed}, 'hex') FROM big WHERE id = 1".encode()
        ).fetchone()
    assert row is not None
    assert row[0] == size, row[0]
    return str(row[1])


def _made_in_sqlite(file: Path, size: int) -> Case:
    piece, digest = hashlib.sha512(b"dw").digest() * 16_384, hashlib.sha256()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE big (id INTEGER PRIMARY KEY, body BLOB)")
        # Most builds of SQLite take rows of 1,000,000,000 bytes at most; the rest of the row is small.
        size = min(size, connection.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) - 1000)
        connection.execute("INSERT INTO big VALUES (0, x'00'), (1, zeroblob(?))", [size])
        with connection.blobopen("big", "body", 1) as blob:
            for start in range(0, size, len(piece)):
                part = piece[: size - start]
                blob.write(part)
                digest.update(part)
        connection.commit()
    return Case("SQLite, blob", f"sqlite:///{file}", "body", size, digest.hexdigest())
