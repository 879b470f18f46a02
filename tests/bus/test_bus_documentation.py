from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "bus.md"


def test_the_example_on_the_page_runs() -> None:
    example = PAGE.read_text().split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, str(PAGE), "exec"), names)
    assert names["seen"] == [0, 1, 2, 3]
