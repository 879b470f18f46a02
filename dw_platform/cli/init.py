"""`dw init`: a new platform, ready to run."""

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from dw_platform.cli.output import say
from dw_platform.config import config_schema_text
from dw_platform.foundation import UserError, replace_file

_TEMPLATES = files("dw_platform.cli") / "templates"
_SCHEMA_HERE = "platform.schema.json"


class NotEmptyError(UserError):
    """A platform is there already."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} exists already; nothing was changed. Choose another folder, or edit that file.")


class FolderNotWritableError(UserError):
    """The new platform's folder cannot be made or written."""

    def __init__(self, path: Path, cause: str) -> None:
        self.path, self.cause = path, cause
        super().__init__(f"{path} cannot be written: {cause}. Choose another folder.")


def init(
    directory: Annotated[
        Path, typer.Argument(help="The folder to make; the current one by default.", show_default=False)
    ] = Path(),
) -> None:
    """Make a new platform: platform.yaml with its schema, and what Dagster needs to find it."""
    target = directory.absolute()
    if (target / "platform.yaml").exists():
        raise NotEmptyError(target / "platform.yaml")
    try:
        kept = _write(target)
    except FileExistsError as error:
        raise FolderNotWritableError(target, "there is a file of that name") from error
    except OSError as error:
        raise FolderNotWritableError(target, error.strerror or str(error)) from error
    say(f"A new platform is in {target}.")
    if kept:
        say(f"Files that were there are unchanged: {', '.join(kept)}.")
    if target != Path.cwd():
        say(f"  cd {directory}")
    say("  dw doctor     what works on this machine")
    say("  dw demo       build and check its tables")
    say("  dw up         open it in the Dagster UI")


def _write(target: Path) -> list[str]:
    """Write the files that are not there yet and return the names of those that are."""
    target.mkdir(parents=True, exist_ok=True)
    made = _files()
    kept = [name for name in made if (target / name).exists()]
    for name in made.keys() - kept:
        replace_file(target / name, made[name].encode())
    # Last, because it is what makes the folder a platform: an `init` that failed half-way can be repeated.
    platform = (_TEMPLATES / "platform.yaml").read_text()
    # The schema lies beside the file here; in the project's own repository it is under docs/.
    here = platform.replace("$schema=docs/platform.schema.json", f"$schema={_SCHEMA_HERE}")
    replace_file(target / "platform.yaml", here.encode())
    return kept


def _files() -> dict[str, str]:
    return {
        _SCHEMA_HERE: config_schema_text(),
        "dagster.yaml": (_TEMPLATES / "dagster.yaml").read_text(),
        "workspace.yaml": (_TEMPLATES / "workspace.yaml").read_text(),
        ".gitignore": ".dw/\n",
    }
