from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dw_platform.config import PlatformConfig, parse_config
from dw_platform.config.values import exact_size
from dw_platform.foundation import parse_bytes

Parse = Callable[..., PlatformConfig]


@given(st.integers(1, 2**63 - 1))
def test_every_size_is_written_so_that_it_reads_back_the_same(size: int) -> None:
    assert parse_bytes(exact_size(size)) == size


@given(st.integers(1, 10_000), st.sampled_from(["B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"]))
def test_a_size_survives_the_file_in_both_directions(number: int, unit: str) -> None:
    written = f"name: x\ngateway: {{max_request: {number}{unit}}}"
    config = parse_config(written, source=Path("platform.yaml"), environ={})
    again = f"name: x\ngateway: {{max_request: {config.describe()['gateway']['max_request']}}}"
    assert parse_config(again, source=Path("platform.yaml"), environ={}).gateway == config.gateway


@given(st.integers(1, 10**12))
def test_a_duration_survives_the_file_in_both_directions(microseconds: int) -> None:
    written = f"name: x\nfabric: {{heartbeat: {microseconds / 1000:.3f}ms}}"
    config = parse_config(written, source=Path("platform.yaml"), environ={})
    assert config.fabric.heartbeat == timedelta(microseconds=microseconds)
    again = f"name: x\nfabric: {{heartbeat: {config.describe()['fabric']['heartbeat']}}}"
    assert parse_config(again, source=Path("platform.yaml"), environ={}).fabric == config.fabric


@pytest.mark.parametrize(
    ("size", "text"), [(1, "1B"), (1000, "1KB"), (1024, "1KiB"), (10**11, "100GB"), (1025, "1025B")]
)
def test_sizes_are_shown_in_the_largest_unit_that_divides_them(size: int, text: str) -> None:
    assert exact_size(size) == text


def test_relative_paths_are_relative_to_the_file(parse: Parse, tmp_path: Path) -> None:
    text = (
        "name: x\nhome: state\nlake: {root: ../lake}\nstore: {url: 'sqlite:///db/control.db'}\nbackups: {repository: b}"
    )
    config = parse(text)
    assert config.home == tmp_path / "state"
    assert config.lake_settings.root == str(tmp_path / "../lake")
    assert config.store_url == f"sqlite:///{tmp_path}/db/control.db"
    assert config.backup_repository == str(tmp_path / "b")


def test_absolute_paths_stay(parse: Parse) -> None:
    config = parse("name: x\nhome: /srv/dw\nstore: {url: 'sqlite:////srv/control.db'}\nlake: {root: s3://bucket/a/}")
    assert config.home == Path("/srv/dw")
    assert config.store_url == "sqlite:////srv/control.db"
    assert config.lake_settings.root == "s3://bucket/a"


def test_a_tilde_is_the_home_of_the_user(parse: Parse, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse("name: x\nhome: ~/dw").home == tmp_path / "dw"


def test_defaults_live_in_the_home(parse: Parse, tmp_path: Path) -> None:
    config = parse("name: x")
    assert config.home == tmp_path / ".dw"
    assert config.lake_settings.root == str(tmp_path / ".dw/lake")
    assert config.store_url == f"sqlite:///{tmp_path}/.dw/control.db"
    assert config.backup_repository == str(tmp_path / ".dw/backups")
    assert config.spark_settings.scratch == tmp_path / ".dw/spark"


@pytest.mark.parametrize("url", ["file://state dir", "sqlite:///state dir/x.db", "memory://"])
def test_store_addresses_open_the_store_they_name(parse: Parse, tmp_path: Path, url: str) -> None:
    from dw_platform.store import open_store

    (tmp_path / "state dir").mkdir()
    store = open_store(parse(f"name: x\nstore: {{url: {url}}}").store_url)
    store.put("dw://internal/test/key", b"value")
    store.close()
    assert bool(list((tmp_path / "state dir").iterdir())) == ("state" in url)
