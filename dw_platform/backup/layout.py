"""Where everything is in a repository.

    dw_repository.json                 what this repository is
    fence.json                         the token of the latest sweep
    objects/ab/abcd...[.zst][.enc]     contents, named by their hash
    manifests/TABLE/ID.manifest        a backup exists when its manifest does
    copies/...                         twins of dw_repository.json and of every manifest
    pins/ID.json                       backups that never expire
    notes/JOB/*.note                   what jobs under way have stored
    health/...                         what verification found
    quarantine/...                     damaged files, kept to be looked at
    tmp/*.tmp                          files being written

Names of tables and jobs may be any text; what a file system could misread is escaped with `%`.
"""

import re
import secrets
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, unquote

from dw_platform.foundation import InvalidValueError

DESCRIPTION = "dw_repository.json"
FENCE = "fence.json"
OBJECTS = "objects"
OBJECT_FOLDERS = tuple(f"{number:02x}" for number in range(256))
MANIFESTS = "manifests"
COPIES = "copies"
PINS = "pins"
NOTES = "notes"
HEALTH = "health"
QUARANTINE = "quarantine"
TEMPORARY = "tmp"

MANIFEST_SUFFIX = ".manifest"
# The longest name most file systems take is 255 bytes, and a suffix and a share for the future must fit.
_LONGEST_NAME = 200
_ID = re.compile(r"(\d{8}T\d{6})\.(\d{3})Z-[0-9a-f]{8}")
_ID_ALLOWED = "an id such as 20261118T201500.000Z-1a2b3c4d"


def escaped(name: str) -> str:
    """Return a folder's name for `name`, different for different ones."""
    quoted = quote(name, safe="")
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if not 0 < len(quoted) <= _LONGEST_NAME:
        raise InvalidValueError("name", name, f"1 to {_LONGEST_NAME} characters once escaped for a file system")
    return quoted


def unescaped(folder: str) -> str:
    """Return the name that `escaped` made `folder` of."""
    return unquote(folder)


def manifest_path(table: str, backup_id: str) -> str:
    """Return where the manifest of a backup is."""
    return f"{MANIFESTS}/{escaped(table)}/{checked_id(backup_id)}{MANIFEST_SUFFIX}"


def twin_of(path: str) -> str:
    """Return where the second copy of a document is."""
    return f"{COPIES}/{path}"


def object_name(digest: str, suffix: str = "") -> str:
    """Return the name of an object, relative to the folder of objects; 256 folders keep each of them short."""
    return f"{digest[:2]}/{digest}{suffix}"


def new_backup_id(now: datetime, latest: str | None = None) -> str:
    """Return an id that sorts behind `latest`, also when the clock went back since."""
    moment = now.astimezone(UTC)
    if latest is not None:
        moment = max(moment, time_of(latest) + timedelta(milliseconds=1))
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03}Z-{secrets.token_hex(4)}"


def time_of(backup_id: str) -> datetime:
    """Return the time in a backup's id."""
    second, millisecond = _parts(backup_id)
    try:
        moment = datetime.strptime(second, "%Y%m%dT%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise InvalidValueError("backup", backup_id, _ID_ALLOWED) from None
    return moment + timedelta(milliseconds=int(millisecond))


def checked_id(backup_id: str) -> str:
    """Return the id, or raise for text that is none; it becomes a file's name."""
    time_of(backup_id)
    return backup_id


def is_backup_id(text: str) -> bool:
    """Return whether `text` is shaped like the id of a backup."""
    try:
        time_of(text)
    except InvalidValueError:
        return False
    return True


def _parts(backup_id: str) -> tuple[str, str]:
    match = _ID.fullmatch(backup_id)
    if match is None:
        raise InvalidValueError("backup", backup_id, _ID_ALLOWED)
    return match[1], match[2]
