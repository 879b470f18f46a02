from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from dw_platform.fabric import FabricLimits
from dw_platform.fabric.events import FabricEvent

PAGE = (Path(__file__).parents[2] / "docs" / "fabric.md").read_text()


def test_the_example_on_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = PAGE.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "docs/fabric.md", "exec"), names)
    assert "star: " in capsys.readouterr().out


def test_the_page_names_every_limit_and_every_column() -> None:
    for limit in fields(FabricLimits):
        assert f"`{limit.name}`" in PAGE or limit.name == "thresholds"
    for column in fields(FabricEvent):
        assert f"`{column.name}`" in PAGE
