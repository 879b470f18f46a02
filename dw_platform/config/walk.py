"""Moving about in a document whose values may be of any type, as long as nobody has checked them."""

from collections.abc import Iterator, Mapping
from typing import Any

from dw_platform.config.environment import FromEnvironment, Unset
from dw_platform.config.problems import Place

Entry = tuple[Place, Mapping[str, Any]]


def entries(values: Mapping[str, Any], *keys: str) -> Iterator[Entry]:
    """Yield the mappings in the list at `keys`; at a `*` every list on the way is entered."""
    found: list[tuple[Place, Any]] = [((), values)]
    for key in keys:
        found = [step for place, value in found for step in _steps(place, value, key)]
    yield from ((place, value) for place, value in found if isinstance(value, Mapping))


def _steps(place: Place, value: Any, key: str) -> Iterator[tuple[Place, Any]]:
    if key == "*" and isinstance(value, list):
        yield from (((*place, index), item) for index, item in enumerate(value))
    elif isinstance(value, Mapping) and key in value:
        yield (*place, key), value[key]


def text_at(value: Any) -> str | None:
    """Return `value` if it is a text that is known, variables filled in."""
    return str(value) if isinstance(value, str) and not isinstance(value, Unset) else None


def shown(original: str) -> str:
    """Return a name the way an error may repeat it: as it was written, not what a variable held."""
    return original.written if isinstance(original, FromEnvironment) else str(original)
