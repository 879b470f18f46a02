"""Spark's extra jars: fetched once by coordinates, reused by every process and platform on the machine.

Only what pyspark does not ship is fetched. Delta's own dependency list would also bring a second Hadoop
client, Parquet and log4j (87 MB) onto the class path, so the seven jars that matter are named one by one.

A set of jars appears in the cache by one rename, so a crash or a second process never sees half of it.
Fetching uses Ivy, which pyspark ships, and the repositories that Ivy is configured for on this machine.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from dw_platform.foundation import TransientError, fsync_directory
from dw_platform.lake.cachedir import cache_directory, make_folder
from dw_platform.lake.java import Java
from dw_platform.lake.truststore import trust_options

DELTA = "4.4.0"
UNITY_CATALOG = "0.6.0"
HADOOP = "3.5.0"  # the version inside pyspark 4.2; hadoop-aws must be the same
AWS_SDK = "2.35.4"
S3_ACCELERATOR = "1.3.1"  # the version that Hadoop 3.5.0 names
_FETCH_TIMEOUT_S = 900  # 20 MB over a slow line; Ivy itself waits forever for a server that accepts and is silent


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One artifact; `transitive` also fetches what it depends on."""

    group: str
    artifact: str
    version: str
    transitive: bool = False


DELTA_JARS = (
    Coordinate("io.delta", "delta-spark_4.2_2.13", DELTA),
    Coordinate("io.delta", "delta-storage", DELTA),
    Coordinate("io.delta", "delta-kernel-api", DELTA),
    Coordinate("io.delta", "delta-kernel-defaults", DELTA),
    Coordinate("io.delta", "delta-kernel-unitycatalog", DELTA),
    Coordinate("io.unitycatalog", "unitycatalog-client", UNITY_CATALOG),
    Coordinate("io.unitycatalog", "unitycatalog-hadoop", UNITY_CATALOG),
)

# hadoop-aws itself asks for the whole SDK as one bundle; these modules of it are what s3a uses here.
S3_JARS = (
    Coordinate("org.apache.hadoop", "hadoop-aws", HADOOP),
    # Hadoop's S3 client loads classes of it whichever kind of stream it reads with.
    Coordinate("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", S3_ACCELERATOR),
    *(
        Coordinate("software.amazon.awssdk", module, AWS_SDK, transitive=True)
        for module in ("s3", "s3-transfer-manager", "sts", "netty-nio-client", "apache-client")
    ),
)

_IVY = """<ivy-module version="2.0"><info organisation="dw_platform" module="jars"/>
<configurations><conf name="default"/></configurations><dependencies>{dependencies}
<exclude org="org.slf4j" module="*" matcher="exactOrRegexp"/></dependencies></ivy-module>"""
_IVY_DEPENDENCY = (
    '<dependency org="{0.group}" name="{0.artifact}" rev="{0.version}" transitive="{1}" conf="default->{2}"/>'
)


class JarsUnavailableError(TransientError):
    """Jars could not be fetched and are not in the cache."""

    def __init__(self, missing: Sequence[Coordinate], answer: str) -> None:
        self.missing, self.answer = tuple(missing), answer
        names = ", ".join(f"{jar.group}:{jar.artifact}:{jar.version}" for jar in missing)
        super().__init__(
            f"Spark's jars could not be fetched ({answer}). They are fetched once and kept in {cache_directory()}: "
            f"connect to a package repository and try again, or copy that folder from a machine that has it. "
            f"Needed: {names}"
        )


def jars_present(coordinates: Sequence[Coordinate]) -> Path | None:
    """Return the folder that holds the jars of `coordinates`, or None when this machine never fetched them."""
    folder = _folder(coordinates)
    return folder if folder.is_dir() else None


def resolve_jars(
    coordinates: Sequence[Coordinate], java: Java, *, on_fetch: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Return the jars of `coordinates`, fetching them if this machine never did; `on_fetch` hears about it."""
    folder = _folder(coordinates)
    if not folder.is_dir():
        make_folder(folder.parent)
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                on_fetch(f"fetching {len(coordinates)} Spark libraries, once per machine")
                _fetch(coordinates, java, folder)
    return sorted(folder.glob("*.jar"))


def _folder(coordinates: Sequence[Coordinate]) -> Path:
    digest = hashlib.sha256(repr(sorted(map(repr, coordinates))).encode()).hexdigest()[:16]
    return cache_directory() / "jars" / digest


def _fetch(coordinates: Sequence[Coordinate], java: Java, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
        work = Path(scratch)
        dependencies = "".join(
            _IVY_DEPENDENCY.format(jar, str(jar.transitive).lower(), "default" if jar.transitive else "master,default")
            for jar in coordinates
        )
        (work / "ivy.xml").write_text(_IVY.format(dependencies=dependencies))
        command = [
            str(java.home / "bin" / "java"), *trust_options(java, work), "-jar", str(_ivy_jar()), "-warn",
            "-ivy", str(work / "ivy.xml"),
            "-confs", "default",
            "-types", "jar", "bundle",  # a bundle is a jar by another name
            "-retrieve", str(work / "jars" / "[artifact]-[revision].[ext]"), "-cache", str(work / "cache"),
        ]  # fmt: skip
        answer = _run(command)
        fetched = {path.name for path in (work / "jars").glob("*.jar")} if (work / "jars").is_dir() else set()
        missing = [jar for jar in coordinates if f"{jar.artifact}-{jar.version}.jar" not in fetched]
        if missing:
            raise JarsUnavailableError(missing, answer)
        for jar in (work / "jars").glob("*.jar"):
            with jar.open("rb") as file:
                os.fsync(file.fileno())
        shutil.move(work / "jars", folder)
    fsync_directory(folder.parent)


def _ivy_jar() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise JarsUnavailableError((), "pyspark is not installed")
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return _last_line(done.stdout + done.stderr)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no answer"
