"""A new platform from nothing; whatever is there already stays as it is."""

from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Dw


def test_a_new_platform_is_valid_and_knows_its_schema(dw: Dw, tmp_path: Path) -> None:
    code, out, err = dw("init", "shop")
    assert (code, err) == (0, "")
    assert out.splitlines()[:2] == [f"A new platform is in {tmp_path / 'shop'}.", "  cd shop"]
    assert sorted(path.name for path in Path("shop").iterdir()) == [
        ".gitignore",
        "dagster.yaml",
        "platform.schema.json",
        "platform.yaml",
        "workspace.yaml",
    ]
    first = Path("shop/platform.yaml").read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=platform.schema.json"
    assert dw("config", "check", "-c", "shop/platform.yaml").code == 0


def test_the_current_folder_is_the_default(dw: Dw) -> None:
    assert "  cd " not in dw("init").out
    assert dw("config", "check").code == 0


def test_a_platform_that_is_there_is_never_touched(dw: Dw, tmp_path: Path) -> None:
    (tmp_path / "platform.yaml").write_text("name: mine\n")
    code, out, err = dw("init")
    assert (code, out) == (2, "")
    assert "exists already; nothing was changed" in err
    assert [entry.name for entry in tmp_path.iterdir()] == ["platform.yaml"]
    assert (tmp_path / "platform.yaml").read_text() == "name: mine\n"


def test_other_files_that_are_there_are_kept_and_named(dw: Dw, tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: true}\n")
    code, out, _ = dw("init")
    assert code == 0
    assert "Files that were there are unchanged: dagster.yaml." in out
    assert yaml.safe_load((tmp_path / "dagster.yaml").read_text()) == {"telemetry": {"enabled": True}}


@pytest.mark.parametrize("target", ["file", "file/below", "/proc/nope/platform"])
def test_a_folder_that_cannot_be_made_is_a_users_mistake(dw: Dw, tmp_path: Path, target: str) -> None:
    (tmp_path / "file").write_text("mine")
    code, out, err = dw("init", target)
    assert (code, out) == (2, "")
    assert "Choose another folder." in err
    assert (tmp_path / "file").read_text() == "mine"


def test_an_init_that_failed_half_way_can_be_repeated(dw: Dw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dw_platform.cli import init

    real = init.replace_file

    def full_disk(path: Path, content: bytes) -> None:
        if path.name == "platform.yaml":
            raise OSError(28, "No space left on device")
        real(path, content)

    monkeypatch.setattr(init, "replace_file", full_disk)
    assert dw("init").code == 2
    monkeypatch.setattr(init, "replace_file", real)
    assert dw("init").code == 0
    assert (tmp_path / "platform.yaml").exists()
