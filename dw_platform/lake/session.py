"""The Spark session: one a process, kept warm, the same code on this machine, a cluster or Spark Connect.

Starting it costs 5 to 7 seconds, so nothing here runs until `get` is called, and Dagster definitions, sensors
and most of `dw` never call it. On a cluster or a Connect server this package is shipped to the workers, because
tasks run its code there.
"""

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import dw_platform
from dw_platform.foundation import TransientError
from dw_platform.lake.jars import DELTA_JARS, S3_JARS, resolve_jars
from dw_platform.lake.java import find_java
from dw_platform.lake.settings import LakeSettings, SparkSettings

_ASSUMED_CORES = 8
_LOGGING = Path(__file__).with_name("log4j2.properties")


class SparkUnavailableError(TransientError):
    """The session could not be opened."""

    def __init__(self, target: str, cause: str) -> None:
        self.target, self.cause = target, cause
        super().__init__(
            f"Spark at {target} did not answer: {cause}. Check `spark.master` and `spark.remote` in platform.yaml; "
            "`dw doctor` shows what works."
        )


class SparkProvider:
    """Opens the process's session when it is first needed and hands out the same one afterwards."""

    def __init__(
        self, spark: SparkSettings, lake: LakeSettings, *, on_progress: Callable[[str], None] = lambda _: None
    ) -> None:
        self.settings = spark
        self._lake = lake
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._warm = False

    def get(self) -> SparkSession:
        """Return the session, opening it if this is the first call."""
        with self._lock:
            if self._session is None:
                self._session = self._open()
            return self._session

    @property
    def started(self) -> bool:
        """Whether the session has been opened; asking does not open it."""
        return self._session is not None

    def warm(self) -> None:
        """Open the session and run one small job of Python workers, so that the first real one does not wait."""
        self.get().range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").collect()
        self._warm = True

    @property
    def ready(self) -> bool:
        """Whether `warm` is done, so that a job starts at once; asking opens nothing."""
        return self._session is not None and self._warm

    @property
    def parallelism(self) -> int:
        """How many tasks run at once; opens the session. A Connect server does not say, so a few are assumed."""
        session = self.get()
        return _ASSUMED_CORES if self.settings.remote else max(1, session.sparkContext.defaultParallelism)

    def stop(self) -> None:
        """End the session and, when it is local, its JVM's Spark context; `get` opens a new one."""
        with self._lock:
            if self._session is not None:
                self._session.stop()
                self._session, self._warm = None, False

    def _open(self) -> SparkSession:
        # A Connect address is shown up to its first parameter, because a token is one.
        target = self.settings.remote.split("/;")[0] if self.settings.remote else self.settings.master
        self._on_progress(f"starting Spark ({target})")
        try:
            return self._connect() if self.settings.remote else self._launch()
        except PySparkException as error:
            raise SparkUnavailableError(target, str(error).splitlines()[0]) from error

    def _connect(self) -> SparkSession:
        session = SparkSession.builder.remote(str(self.settings.remote)).getOrCreate()
        for key, value in self.settings.conf.items():
            session.conf.set(key, value)
        session.addArtifacts(str(_pack_library(self.settings.scratch)), pyfile=True)
        return session

    def _launch(self) -> SparkSession:
        java = find_java()
        coordinates = DELTA_JARS + S3_JARS if self._lake.is_s3 else DELTA_JARS
        jars = resolve_jars(coordinates, java, on_fetch=self._on_progress)
        # Spark reads these from the environment only, at the moment the JVM and its workers start.
        os.environ["JAVA_HOME"] = str(java.home)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # Arrow's own allocator keeps what it once had for each thread. With the system's, the processes of an
        # extraction of 2 M rows take 531 MB together instead of 621 (the driver's own included).
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
        os.environ.setdefault("MALLOC_ARENA_MAX", "2")
        builder = SparkSession.builder.appName(self.settings.app_name).master(self.settings.master)
        for key, value in (launch_conf(self.settings, self._lake, jars) | dict(self.settings.conf)).items():
            builder = builder.config(key, value)
        with _stdout_to_stderr():
            session = builder.getOrCreate()
        _sign_in(session, self._lake)
        if not self.settings.master.startswith("local"):
            session.sparkContext.addPyFile(str(_pack_library(self.settings.scratch)))
        return session


def launch_conf(spark: SparkSettings, lake: LakeSettings, jars: list[Path]) -> dict[str, str]:
    """Return the settings of a session that this process launches, tuned for few cores."""
    # Delta's default of 50 snapshot partitions and Spark's 200 shuffle partitions cost seconds a query on 2 cores.
    partitions = str(max(2, os.cpu_count() or 2))
    conf = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": partitions,
        "spark.sql.shuffle.partitions": partitions,
        # VACUUM lists folders in this many tasks. With the default of 10,000, joining and vacuuming a table of three
        # files took 84 s on 2 busy cores, with this 15 s; one run each.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": partitions,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.warehouse.dir": str(spark.scratch / "warehouse"),
        "spark.local.dir": str(spark.scratch / "local"),
        "spark.driver.memory": f"{spark.driver_memory_mib}m",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if spark.master.startswith("local"):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
    return conf | (_s3a_conf(lake) if lake.is_s3 else {})


def _s3a_conf(lake: LakeSettings) -> dict[str, str]:
    s3 = lake.s3
    conf = {
        "spark.hadoop.fs.s3a.endpoint.region": s3.region,
        "spark.hadoop.fs.s3a.path.style.access": str(s3.path_style).lower(),
        # Plain ranged reads: Hadoop's other streams prefetch by a second, asynchronous client.
        "spark.hadoop.fs.s3a.input.stream.type": "classic",
        # Delta writes its own log store for s3a; the generic committer's warnings do not apply to it.
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.delta.logStore.s3.impl": "io.delta.storage.S3SingleDriverLogStore",
    }
    if s3.endpoint:
        conf["spark.hadoop.fs.s3a.endpoint"] = s3.endpoint
        conf["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(s3.endpoint.startswith("https")).lower()
    return conf


def _sign_in(session: SparkSession, lake: LakeSettings) -> None:
    """Give the JVM the keys of S3 after it has started: as settings they would stand in its command line."""
    if not (lake.is_s3 and lake.s3.access_key and lake.s3.secret_key):
        return
    settings: Any = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    settings.set("fs.s3a.access.key", lake.s3.access_key)
    settings.set("fs.s3a.secret.key", lake.s3.secret_key)


def _pack_library(scratch: Path) -> Path:
    """Zip this package, so that workers elsewhere can import the functions that tasks run.

    The driver serves the archive to executors for as long as the session lives, so it stays until the process ends.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="ship-", dir=scratch))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    source = Path(dw_platform.__file__).parent
    archive = folder / "dw_platform.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as bundle:
        for path in sorted(source.rglob("*.py")):
            bundle.write(path, Path("dw_platform") / path.relative_to(source))
    return archive


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Let the JVM inherit stderr as its stdout, so that what VACUUM prints does not end up in `--json` output."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
