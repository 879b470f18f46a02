from pathlib import Path
from typing import Any

from dw_platform.fileio import QUEUE_DEPTHS, DeviceKind, IoLimits
from dw_platform.scaling import describe_limits

PAGE = (Path(__file__).parents[2] / "docs" / "fileio.md").read_text()


def test_the_example_on_the_page_runs_and_does_what_it_says() -> None:
    example = PAGE.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, "docs/fileio.md", "exec"), names)
    assert names["restored"] == b"x" * 3_000_000
    assert names["tick"].sample.reading is None, "the second tick came at once, so there is nothing to compare yet"
    assert names["decision"].limit == 2


def test_the_page_has_the_depths_that_are_used() -> None:
    for kind, word in ((DeviceKind.NVME, "NVMe"), (DeviceKind.SSD, "SSD"), (DeviceKind.HDD, "HDD")):
        assert f"| {word} | {QUEUE_DEPTHS[kind]} |" in PAGE


def test_every_limit_that_the_page_names_exists() -> None:
    known = {info.key for info in describe_limits(IoLimits())}
    shown = {
        word.partition("=")[0]
        for line in PAGE.splitlines()
        if "dw scale set fileio" in line
        for word in line.split()
        if "=" in word
    }
    assert shown
    assert shown <= known
