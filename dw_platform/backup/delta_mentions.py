"""Every file that a part of a table's log names, told apart by what it is to the table.

Removed files and change data may be gone, which is nobody's fault; live files must be there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dw_platform.backup.checkpoints import Action
from dw_platform.backup.deletion_vectors import OutsideVectorError, UnreadableVectorError, vector_end, vector_file
from dw_platform.backup.delta_errors import AbsolutePathError, DamagedLogError
from dw_platform.backup.delta_log import decoded_path, is_outside
from dw_platform.backup.place import Place


@dataclass(frozen=True, slots=True)
class Mentions:
    """Files by their path below the table's folder."""

    place: Place
    version: int
    data: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """With the action that names each."""

    vectors: dict[str, int] = field(default_factory=dict)
    """With the least size that each must have."""

    changes: set[str] = field(default_factory=set)

    def note_data(self, entry: Mapping[str, Any]) -> None:
        """Take in an `add` or `remove`, with its deletion vector."""
        self.data[self._inside(entry)] = entry
        vector = entry.get("deletionVector")
        if vector is None:
            return
        try:
            path, end = vector_file(vector), vector_end(vector)
        except OutsideVectorError as error:
            raise AbsolutePathError(self.place.shown, error.path) from error
        except (UnreadableVectorError, KeyError, ValueError) as error:
            raise DamagedLogError(self.place.shown, self.version, str(error)) from error
        if path is not None:
            self.vectors[path] = max(end, self.vectors.get(path, 0))

    def note_changes(self, actions: Iterable[Action]) -> None:
        """Take in the change data of commits."""
        self.changes.update(self._inside(action["cdc"]) for action in actions if "cdc" in action)

    def note_commit(self, actions: Iterable[Action]) -> None:
        """Take in everything that commits name."""
        for action in actions:
            for kind in action.keys() & {"add", "remove"}:
                self.note_data(action[kind])
        self.note_changes(actions)

    def _inside(self, entry: Mapping[str, Any]) -> str:
        if is_outside(str(entry["path"])):
            raise AbsolutePathError(self.place.shown, str(entry["path"]))
        return decoded_path(entry)
