"""`{schema.table}` in a query: which tables it reads is known without running it, and without a JVM."""

import re
from collections.abc import Callable

_REFERENCE = re.compile(r"\{([a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)?)\}")


def table_references(statement: str) -> list[str]:
    """Return the tables that `statement` reads, each once, in the order of their first appearance."""
    return list(dict.fromkeys(_REFERENCE.findall(statement)))


def replace_references(statement: str, name: Callable[[str], str]) -> str:
    """Return `statement` as a format string whose fields are `name(table)`; other braces are escaped."""
    parts = _REFERENCE.split(statement)
    for index, part in enumerate(parts):
        literal = part.replace("{", "{{").replace("}", "}}")
        parts[index] = f"{{{name(part)}}}" if index % 2 else literal
    return "".join(parts)
