"""A platform with one database and one table of it, for extraction tests on all three kinds of databases."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from dw_platform.config import parse_config
from dw_platform.pipelines import Platform
from tests.extract.conftest import Sandbox

TIME = {"sqlite": "TIMESTAMP", "postgresql": "timestamp", "mysql": "datetime(6)"}


def platform_for(box: Sandbox, folder: Path, table: str = "table: shop.people", **options: Any) -> Platform:
    """Return a platform that copies `people`; `table` and `options` are more of its section."""
    url = str(box.admin.url.render_as_string(hide_password=False))
    extra = "".join(f", {key}: {value}" for key, value in options.items())
    text = f"""
name: tested
home: home
databases:
  - name: crm
    url: {url}
    tables:
      - {{source: people, {table}{extra}}}
"""
    return Platform(parse_config(text, source=folder / "platform.yaml", environ={}))


def make_people(box: Sandbox, count: int, *, first: int = 1) -> None:
    """Make a table of people, whose cursor grows with the id, and fill it."""
    columns = f"id bigint PRIMARY KEY, name varchar(40), score decimal(12, 2), seen {TIME[box.kind]} NOT NULL"
    box.run(f"CREATE TABLE people ({columns})")
    add_people(box, first, first + count)


def add_people(box: Sandbox, first: int, after: int) -> None:
    box.insert("people", [(number, f"name {number}", number / 100, moment(number)) for number in range(first, after)])


def moment(number: int) -> str:
    return (datetime.fromisoformat("2026-01-01T00:00:00") + timedelta(seconds=number)).isoformat(" ")


def copied(platform: Platform, table: str = "shop.people") -> list[dict[str, Any]]:
    rows = platform.lake.table(table).snapshot().read_arrow().to_pylist()
    return sorted(rows, key=lambda row: str(row.get("id")).zfill(20))


def ids(platform: Platform, table: str = "shop.people") -> list[int]:
    """Return the ids, sorted; one that is there twice is twice in it."""
    return sorted(platform.lake.table(table).snapshot().read_arrow(["id"])["id"].to_pylist())
