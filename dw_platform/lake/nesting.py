"""No table inside another: VACUUM of the outer one would delete the inner one's files as its own leftovers."""

import pyarrow.fs as pafs

from dw_platform.foundation import UserError
from dw_platform.lake.location import TableLocation


class NestedTableError(UserError):
    """A table would lie in the folder of another."""

    def __init__(self, table: str, other: str) -> None:
        self.table, self.other = table, other
        super().__init__(
            f"{table}: its folder and that of the table at {other} would lie inside each other, and upkeep of the outer"
            " one deletes the files of the inner one. Give one of them another name."
        )


def refuse_nesting(table: str, location: TableLocation) -> None:
    """Raise if the folder above `location`, or one directly below it, is a Delta table."""
    system, root = location.filesystem()
    parent = root.rstrip("/").rpartition("/")[0]
    below = pafs.FileSelector(root, allow_not_found=True)
    children = [info.path for info in system.get_file_info(below) if info.type == pafs.FileType.Directory]
    for folder in (parent, *children):
        if folder and system.get_file_info(f"{folder}/_delta_log").type == pafs.FileType.Directory:
            raise NestedTableError(table, folder)
