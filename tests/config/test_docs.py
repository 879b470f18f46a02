"""The reference pages say what the code says; on a difference the test prints the lines to put there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from dw_platform.config.platform import PlatformConfig
from dw_platform.config.section import Section
from dw_platform.config.translate import _inner
from dw_platform.quality import CATALOGUE, Kind

DOCS = Path(__file__).parents[2] / "docs"


def section_of(annotation: Any) -> type[Section] | None:
    """The section that a field holds, alone or in a list."""
    found = _inner(annotation)
    found = found.__args__[0] if getattr(found, "__origin__", None) is tuple else found
    return found if isinstance(found, type) and issubclass(found, Section) else None


def rows(model: type[Section], path: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{path}{field.alias or name}"
        inner = section_of(field.annotation)
        is_list = "tuple" in str(field.annotation)
        if inner is None:
            yield f"| `{key}` | {default_text(field)} | {' '.join((field.description or '').split())} |"
        else:
            yield from rows(inner, f"{key}{'[]' if is_list else ''}.")


def default_text(field: FieldInfo) -> str:
    if field.is_required():
        return "**needed**"
    default = field.get_default(call_default_factory=True)
    if default is None or default == "" or (hasattr(default, "__len__") and len(default) == 0):
        return ""
    for metadata in field.metadata:
        if getattr(metadata, "show", None):
            default = metadata.show(default)
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def kind_row(kind: Kind) -> str:
    parameters = ", ".join(
        f"**{parameter.name}**" if parameter.required else parameter.name for parameter in kind.parameters
    )
    return f"| `{kind.name}` | {kind.columns.key} | {parameters} | {kind.summary} |"


def missing(expected: Iterator[str], page: str) -> str:
    written = (DOCS / page).read_text().splitlines()
    return "\n".join(row for row in expected if row not in written)


def test_the_reference_explains_every_key_as_the_code_does() -> None:
    assert missing(rows(PlatformConfig), "config.md") == ""


def test_the_catalogue_lists_every_check_as_the_code_does() -> None:
    assert missing(map(kind_row, CATALOGUE.values()), "quality.md") == ""


def test_the_pages_explain_nothing_that_is_gone() -> None:
    keys = [line for line in (DOCS / "config.md").read_text().splitlines() if line.startswith("| `")]
    kinds = [line for line in (DOCS / "quality.md").read_text().splitlines() if line.startswith("| `")]
    assert keys == [row for row in rows(PlatformConfig) if row in keys]
    assert kinds == [kind_row(kind) for kind in CATALOGUE.values()]
