"""What `dw status` and `dw tables list` both say below their tables."""

from collections.abc import Sequence

from dw_platform.cli.output import complain, say
from dw_platform.pipelines.overview import UnreadableTable


def hint_at_unbuilt(tables: Sequence[str]) -> None:
    """Say which tables of the file do not exist yet, and how they come to be."""
    if tables:
        say(f"Not built yet: {', '.join(tables)}. `dw demo` builds all tables, `dw tables build TABLE` one.")


def complain_about(tables: Sequence[UnreadableTable]) -> None:
    """Say on stderr why each table cannot be read."""
    for table in tables:
        complain(table.error)
