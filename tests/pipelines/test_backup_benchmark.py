import shutil
import sys
from pathlib import Path

import pytest

from benchmarks import backup, run
from benchmarks.backup_ours import append_files, open_platform, same_files, same_rows
from benchmarks.backup_peers import Borg, Restic

# What every machine has; Java is not among them, so a JVM would be missed.
PROGRAMS = ("cp", "nice", "openssl", "sha256sum", "sync", "xargs")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PATH without the peers that somebody may have installed."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("programs")
def test_a_quick_run_names_the_peers_that_are_missing_and_goes_on(tmp_path: Path) -> None:
    result = run("backup", quick=True, directory=tmp_path)
    assert {"restic", "borg"} <= set(result["not_installed"])
    assert "cp -r" in result["versions"]
    assert result["cache_dropped"] is False
    names = [row["name"] for row in result["measures"]]
    assert names[0] == f"full: {backup.THREADS}"
    assert [name for name in names if name.startswith("verify")] == [
        f"verify: {each}" for each in (backup.THREADS, backup.SHA256SUM, backup.OPENSSL)
    ]
    assert all(row["median"] > 0 and row["unit"] for row in result["measures"])
    assert result["checks"][f"equal rows, restored by {backup.THREADS}"] is True
    assert not [name for name in result["checks"] if "restic" in name]


@pytest.mark.parametrize("kind", [Restic, Borg], ids=["restic", "borg"])
def test_a_peer_puts_back_what_it_copied_last(tmp_path: Path, kind: type[Restic | Borg]) -> None:
    table = tmp_path / "table"
    table.mkdir()
    peer = kind(table, tmp_path / "peer")
    if peer.version is None:
        pytest.skip(f"{peer.name} is not installed")
    peer.empty()
    for name in ("first", "second"):
        (table / name).write_text(name)
        peer.back_up()
    peer.make_room()
    peer.restore()
    peer.verify()
    assert same_files(table, peer.restored)


def test_rows_that_changed_on_the_way_are_not_equal_to_their_source(tmp_path: Path) -> None:
    with open_platform(tmp_path / "first") as platform:
        append_files(platform, 0, 2, 100)
        source = platform.lake.location("bench.orders").local
    restored = tmp_path / "restored"
    shutil.copytree(source, restored)
    assert same_rows(source, restored)
    assert same_files(source, restored)
    one, other = sorted(restored.glob("*.parquet"))
    one.write_bytes(other.read_bytes())
    assert not same_rows(source, restored)
    assert not same_files(source, restored)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the kernel's switch")
def test_a_process_without_the_right_does_not_claim_a_cold_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backup, "DROP_CACHES", Path("/proc/version"))
    assert backup.drop_caches() is False
