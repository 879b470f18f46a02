"""The same tables through Spark Connect: the driver is elsewhere, and this process has no JVM."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from dw_platform.lake.jars import DELTA_JARS, resolve_jars
from dw_platform.lake.java import find_java
from dw_platform.lake.session import launch_conf
from dw_platform.lake.settings import LakeSettings, SparkSettings
from tests.lake.workers import REPOSITORY
from tests.servers import require_server

pytestmark = [pytest.mark.spark, pytest.mark.server]


@pytest.fixture
def connect_server(tmp_path: Path) -> Iterator[str]:
    """A Connect server of its own on this machine."""
    spec, java = find_spec("pyspark"), find_java()
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = SparkSettings(master="local[2]", scratch=tmp_path / "scratch")
    conf = launch_conf(settings, LakeSettings(root=str(tmp_path)), resolve_jars(DELTA_JARS, java))
    conf |= {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": str(port)}
    command = [home / "bin" / "spark-submit", "--master", "local[2]",
               "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]  # fmt: skip
    for key, value in conf.items():
        command += ["--conf", f"{key}={value}"]
    environment = os.environ | {"JAVA_HOME": str(java.home), "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    with (
        (tmp_path / "server.log").open("wb") as log,
        subprocess.Popen([*command, "spark-internal"], stdout=log, stderr=log, env=environment) as server,
    ):
        try:
            wait_for(port, server, tmp_path / "server.log")
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.terminate()


def wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 120
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if server.poll() is not None or time.monotonic() > deadline:
            require_server(f"Spark Connect does not start: {log.read_text()[-500:]}")
        time.sleep(0.1)


def test_writes_through_spark_connect_report_their_own_version_and_keep_positions(
    connect_server: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "tests.lake.connect_client", connect_server, str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=REPOSITORY, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "frame": ["arrow", 3],
        "one position": "spark 0",
        "the same again": "StalePositionError",
        "two positions": "OnePositionError",
        "deleted": 1,
        "merged": 1,
        "rows": [[2, "merged"], [3, "frame"], [5, "once"]],
        "position": 1,
    }
