"""The lake: a root under which every table has its place by name."""

import os
import re
import socket
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
from pyspark.sql import DataFrame

from dw_platform.foundation import InvalidValueError
from dw_platform.lake.location import TableLocation
from dw_platform.lake.lock import table_lock
from dw_platform.lake.references import replace_references, table_references
from dw_platform.lake.session import SparkProvider
from dw_platform.lake.settings import LakeSettings
from dw_platform.lake.spark_writer import translated
from dw_platform.lake.table import LakeTable
from dw_platform.store import PersistentStore

# A folder whose name starts with _ is hidden from Spark and from VACUUM.
TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}(\.[a-z][a-z0-9_]{0,62})?")


class Lake:
    """Hands out tables by name; `shop.orders` lives at `root/shop/orders`."""

    def __init__(self, settings: LakeSettings, *, store: PersistentStore, spark: SparkProvider) -> None:
        self.settings = settings
        self.spark = spark
        self._store = store
        self._root = settings.root if settings.is_s3 else str(Path(settings.root).absolute())
        self._owner = f"{socket.gethostname()}/{os.getpid()}"

    def location(self, name: str) -> TableLocation:
        """Return where a table is or would be."""
        if not TABLE_NAME.fullmatch(name):
            raise InvalidValueError(
                "table", name, "lower-case letters, digits and _, starting with a letter, as `table` or `schema.table`"
            )
        return TableLocation(f"{self._root.rstrip('/')}/{name.replace('.', '/')}", self.settings.s3)

    def table(self, name: str) -> LakeTable:
        """Return the handle of a table, whether it exists yet or not."""
        location = self.location(name)
        return LakeTable(name, location, lock=table_lock(location, self._store, owner=self._owner), spark=self.spark)

    def query(self, statement: str) -> DataFrame:
        """Return the result of Spark SQL in which `{schema.table}` stands for a table of this lake."""
        names = {table: f"t{number}" for number, table in enumerate(table_references(statement))}
        frames: dict[str, Any] = {name: self.table(table).read() for table, name in names.items()}
        with translated("query"):
            return self.spark.get().sql(replace_references(statement, names.__getitem__), **frames)

    def table_names(self) -> list[str]:
        """Return the names of all tables under the root, sorted."""
        system, root = TableLocation(self._root, self.settings.s3).filesystem()
        found = []
        for depth in ("*", "*/*"):
            for folder in _folders(system, root, depth):
                name = folder.removeprefix(root).strip("/").replace("/", ".")
                if (
                    TABLE_NAME.fullmatch(name)
                    and system.get_file_info(f"{folder}/_delta_log").type == pafs.FileType.Directory
                ):
                    found.append(name)
        return sorted(found)


def _folders(system: pafs.FileSystem, root: str, depth: str) -> list[str]:
    level = [root]
    for _ in depth.split("/"):
        level = [
            info.path
            for parent in level
            for info in system.get_file_info(pafs.FileSelector(parent, allow_not_found=True))
            if info.type == pafs.FileType.Directory and not info.base_name.startswith(("_", "."))
        ]
    return level
