"""Backups and sweeps keep out of each other's way by a lease, and a token shows when that did not work.

A backup holds the repository SHARED, a sweep EXCLUSIVE. A lease cannot stop a process that was paused for longer than
the lease lasts, so a sweep writes a new token into the repository before it looks at anything, and a backup compares:

| order of events                                             | what comes of it                                    |
|-------------------------------------------------------------|-----------------------------------------------------|
| manifest written, token read, then new token                | the sweep reads the manifest and keeps its objects  |
| new token, then manifest written and token read             | the backup sees it and looks for all its objects    |
| the backup's own lease ended, whatever else happened        | the manifest is taken back                          |
| a sweep whose lease ended is about to remove                | it stops: it asks before each object                |
| a sweep sees a backup that it has not read, before a batch  | it reads it and keeps its objects                   |

What is left: a sweep that is paused for longer than its lease between the question and the removal of one object,
while a backup decides to use this very object and is published. The next backup then stores the object again,
because it takes from its parent only what is there.
"""

import logging
import secrets
from dataclasses import dataclass
from datetime import datetime

from dw_platform.backup.keys import RepositoryKeys
from dw_platform.backup.layout import FENCE
from dw_platform.backup.sealed import DocumentDamagedError, seal, unseal
from dw_platform.backup.storage import Storage
from dw_platform.store import Lease

log = logging.getLogger(__name__)
_KIND = "fence"


@dataclass(frozen=True, slots=True)
class Fence:
    """The token of the latest sweep, in the repository itself."""

    storage: Storage
    keys: RepositoryKeys | None

    def current(self) -> str:
        """Return the token; where there is none to be read, one that is equal to no other."""
        try:
            return self.read()
        except DocumentDamagedError as error:
            log.warning("fence unreadable, objects are looked for instead", extra={"reason": str(error)})
            return f"unknown-{secrets.token_hex(16)}"

    def advance(self, owner: str, now: datetime) -> str:
        """Write a new token and return it."""
        token = secrets.token_hex(16)
        self.storage.write(FENCE, seal(_KIND, {"token": token, "owner": owner, "at": now.isoformat()}, self.keys))
        return token

    def read(self) -> str:
        """Return the token; raise DocumentDamagedError if there is none to be read."""
        try:
            return str(unseal(_KIND, self.storage.read(FENCE), self.keys)[0]["token"])
        except FileNotFoundError:
            raise DocumentDamagedError("it is missing") from None


@dataclass(frozen=True, slots=True)
class Hold:
    """The right to use a repository, and the token at its beginning."""

    lease: Lease
    token: str
