"""`dw init`: a new platform, ready to run."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from dw_platform.cli.output import say
from dw_platform.config import config_schema
from dw_platform.foundation import UserError, replace_file

_TEMPLATES = files("dw_platform.cli") / "templates"
_SCHEMA_HERE = "platform.schema.json"


class NotEmptyError(UserError):
    """A platform is there already."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"{path} exists already; nothing was changed. Choose another folder, or edit that file.")


def init(
    directory: Annotated[Path, typer.Argument(help="The folder to make; the current one by default.")] = Path(),
) -> None:
    """Make a new platform: platform.yaml with its schema, and what Dagster needs to find it."""
    target = directory.absolute()
    if (target / "platform.yaml").exists():
        raise NotEmptyError(target / "platform.yaml")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in _files().items():
            if not (target / name).exists():
                replace_file(target / name, text.encode())
    except OSError as error:
        raise UserError(f"{target} cannot be written: {error.strerror}. Choose another folder.") from error
    say(f"A new platform is in {target}.")
    say("  dw doctor     what works on this machine")
    say("  dw demo       build and check its tables")
    say("  dw up         open it in the Dagster UI")


def _files() -> dict[str, str]:
    platform = (_TEMPLATES / "platform.yaml").read_text()
    return {
        # The schema lies beside the file here; in the project's own repository it is under docs/.
        "platform.yaml": platform.replace("$schema=docs/platform.schema.json", f"$schema={_SCHEMA_HERE}"),
        _SCHEMA_HERE: json.dumps(config_schema(), indent=2) + "\n",
        "dagster.yaml": (_TEMPLATES / "dagster.yaml").read_text(),
        "workspace.yaml": (_TEMPLATES / "workspace.yaml").read_text(),
        ".gitignore": ".dw/\n",
    }
