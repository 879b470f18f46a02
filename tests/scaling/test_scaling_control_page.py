from pathlib import Path
from typing import Any

from benchmarks.control import PICTURES
from dw_platform.scaling.traces import kinds

PAGE = Path(__file__).parents[2] / "docs" / "control.md"


def test_the_example_on_the_page_runs() -> None:
    example = PAGE.read_text().split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, str(PAGE), "exec"), names)
    assert len(names["wanted"]) == 8


def test_every_made_up_load_has_its_picture_on_the_page() -> None:
    page = PAGE.read_text()
    for kind in kinds():
        name = f"{kind.replace(' ', '-')}.svg"
        assert f"](images/control/{name})" in page
        assert (PICTURES / name).is_file()
