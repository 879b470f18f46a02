import time
from pathlib import Path
from typing import Any

from dw_platform.scaling import BackpressureAware

PAGE = Path(__file__).parents[2] / "docs" / "scaling.md"


def test_the_example_on_the_page_runs_and_its_change_is_applied() -> None:
    example = PAGE.read_text().split("```python\n")[1].split("```")[0]
    wait = "    deadline = time.monotonic() + 10\n    while outbox.current_limits() == configured:\n"
    wait += "        assert time.monotonic() < deadline\n        time.sleep(0.01)\n"
    names: dict[str, Any] = {"time": time, "__name__": "example"}
    exec(compile(example + wait, str(PAGE), "exec"), names)
    assert names["outbox"].current_limits().capacity == 4_000
    assert isinstance(names["outbox"], BackpressureAware)
    assert names["store"].list("dw://internal/metrics/") == []
