"""Kill extractions at random moments while their source changes; compare with the source.

`python -m tests.crash.extract_rounds FILE spark|here` is the extraction: it copies one table in full and another by
what is newer, reconciles it, and begins again; it prints `opened`, and `committed` after its first commit.
`CrashRounds` is everything around it.
"""

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg

from dw_platform.pipelines import Platform
from dw_platform.pipelines.extract import extract_table, reconcile_table

REPOSITORY = Path(__file__).parents[2]
BASE = 20_000
PLATFORM = """
name: crashed
home: home
spark: {{master: "local[2]"}}
databases:
  - name: crm
    url: "{url}"
    tables:
      - {{source: people, table: crm.copied, page_size: 500, commit_rows: 2_000}}
      - {{source: public.people, table: crm.followed, mode: incremental, cursor: version, overlap: 5_000,
          page_size: 500, commit_rows: 2_000}}
"""


class CrashRounds:
    """A platform in `folder` that copies a table of PostgreSQL, killed round by round."""

    def __init__(self, folder: Path, url: str, *, seed: int, base: int = BASE) -> None:
        self._file, self._url, self._base = folder / "platform.yaml", url, base
        self._file.write_text(PLATFORM.format(url=url))
        self._chance = random.Random(seed)
        self.killed = self.changes = 0
        self.platform = Platform.open(self._file, environ={})
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE SEQUENCE versions")
            connection.execute(
                "CREATE TABLE people (id bigint PRIMARY KEY, name text NOT NULL, "
                "version bigint NOT NULL DEFAULT nextval('versions'))"
            )
            connection.execute("CREATE INDEX ON people (version)")
            connection.execute(
                "INSERT INTO people (id, name) SELECT i, 'name ' || i FROM generate_series(1, %s) i", (base,)
            )
            connection.execute("ANALYZE people")

    def round(self, mode: str, longest_s: float) -> None:
        """Start an extraction, kill it after a moment, and look at what it left."""
        # Half of them die around their first commit, the others in the middle of their work.
        after = self._chance.choice(["opened", "committed"])
        with self._changing(), _started(self._file, mode, after) as process:
            time.sleep(self._chance.uniform(0.0, longest_s))
            process.kill()
            process.wait()
            self.killed += 1
        self.check()

    def finish(self) -> None:
        """Let everything run to its end; then both tables must equal the source."""
        copied = extract_table(self.platform, "crm.people")
        # One that was interrupted goes on with what its end was then; the next one sees everything.
        if copied.resumed:
            extract_table(self.platform, "crm.people")
        reconcile_table(self.platform, "crm.followed")
        source = self._source()
        for table in ("crm.copied", "crm.followed"):
            rows = self._rows(table)
            wrong = [key for key in sorted(source.keys() | rows.keys()) if source.get(key) != rows.get(key)]
            assert not wrong, f"{table}: {len(wrong)} rows differ, the first is {wrong[0]}"

    def check(self) -> None:
        """A table shows nothing, or every row that was always there; and no key twice."""
        for table in ("crm.copied", "crm.followed"):
            if not self.platform.lake.table(table).exists():
                continue
            rows = self._rows(table)
            # Only rows beyond the base are deleted by the writer, so a table that shows any row shows all of these.
            assert not rows or set(range(1, self._base + 1)) <= rows.keys(), f"{table} is half visible"

    def _rows(self, table: str) -> dict[int, tuple[str, int]]:
        found = self.platform.lake.table(table).snapshot().read_arrow()
        rows = {row["id"]: (row["name"], row["version"]) for row in found.to_pylist()}
        assert len(rows) == len(found), f"a key is twice in {table}"
        return rows

    def _source(self) -> dict[int, tuple[str, int]]:
        with psycopg.connect(self._url) as connection:
            return {row[0]: (row[1], row[2]) for row in connection.execute("SELECT id, name, version FROM people")}

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Insert, update and delete beside the extraction; rows of the base change, but stay."""
        stop, errors = threading.Event(), list[BaseException]()

        def work() -> None:
            try:
                with psycopg.connect(self._url, autocommit=True) as connection:
                    while not stop.wait(0.02):
                        self._change(connection)
            except BaseException as error:
                errors.append(error)
                raise

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        assert not errors

    def _change(self, connection: "psycopg.Connection[Any]") -> None:
        number = self._base + self.changes
        self.changes += 1
        changed = self._chance.randrange(1, self._base + 1)
        connection.execute("INSERT INTO people (id, name) VALUES (%s, %s)", (number + 1, f"new {number}"))
        connection.execute(
            "UPDATE people SET name = %s, version = nextval('versions') WHERE id = %s", (f"changed {number}", changed)
        )
        if self.changes % 3 == 0:
            connection.execute("DELETE FROM people WHERE id = %s", (number - 1,))


@contextlib.contextmanager
def _started(file: Path, mode: str, after: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-m", "tests.crash.extract_rounds", str(file), mode]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=REPOSITORY
    ) as child:
        try:
            assert child.stdout is not None
            assert f"{after}\n" in iter(child.stdout.readline, ""), "it ended by itself"
            yield child
        finally:
            child.kill()


def main(file: str, mode: str) -> None:
    """Be the extraction that is killed."""
    with Platform.open(file) as platform:
        if mode == "spark":
            platform.spark.warm()
        said = list[str]()

        def say(line: str) -> None:
            if line not in said:
                said.append(line)
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()

        say("opened")
        while True:
            for work, name in (
                (extract_table, "crm.copied"),
                (extract_table, "crm.followed"),
                (reconcile_table, "crm.followed"),
            ):
                work(platform, name, on_progress=lambda at: say("committed") if at.committed else None)


if __name__ == "__main__":
    main(*sys.argv[1:])
