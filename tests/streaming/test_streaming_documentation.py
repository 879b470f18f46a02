from dataclasses import fields
from pathlib import Path
from typing import Any

from dw_platform.log import Records
from dw_platform.streaming import BackpressureStrategy, StreamingLimits
from tests.streaming.streams import definition, memory, serving

PAGE = Path(__file__).parents[2] / "docs" / "streaming.md"


def test_the_example_on_the_page_runs() -> None:
    example = PAGE.read_text().split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, str(PAGE), "exec"), names)
    assert names["seen"] == [b"one", b"two"]


def test_every_limit_and_every_strategy_is_on_the_page() -> None:
    text = PAGE.read_text()
    for limit in fields(StreamingLimits):
        assert f"`{limit.name}" in text
    for strategy in BackpressureStrategy:
        assert f"| `{strategy}` |" in text


def test_every_metric_is_on_the_page() -> None:
    text = PAGE.read_text()
    with serving(definition(memory(), groups=("g",)), started=False) as streams:
        streams.publish_sync("orders", Records([b"x"]))
        streams.evaluate()
        for name in streams.scaling_metrics():
            stem = name.split(".")[0].replace("_p95_", "_p50_").replace("_p99_", "_p50_")
            assert f"`{stem}" in text, name
