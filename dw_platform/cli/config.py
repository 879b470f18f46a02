"""`dw config`: check the file, show what it means, print its schema."""

import typer

from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, say
from dw_platform.config import ConfigError, config_schema, produced_tables

app = typer.Typer(help="Check platform.yaml, show what it means, print its schema.", no_args_is_help=True)


@app.command(short_help="List everything that is wrong with the file.")
def check(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Check the file; every problem is listed with its place and what is allowed there. Nothing is opened."""
    try:
        platform = open_platform(config)
    except ConfigError as error:
        if json:
            emit_json({"file": str(error.source), "valid": False, "problems": _listed(error)})
        raise
    produced = produced_tables(platform.config)
    if json:
        emit_json({"file": str(platform.config.source), "valid": True, "config": platform.config.describe()})
        return
    many = "1 table" if len(produced) == 1 else f"{len(produced)} tables"
    say(f"{platform.config.source} is valid: platform {platform.config.name}, {many}.")
    if produced:
        say()
        emit_table("", ["table", "made by"], [(name, producer.path) for name, producer in produced.items()])


def _listed(error: ConfigError) -> list[dict[str, object]]:
    return [
        {"path": problem.path, "line": problem.line, "message": problem.message, "allowed": problem.allowed}
        for problem in error.problems
    ]


@app.command(short_help="Print the JSON Schema of platform.yaml.")
def schema() -> None:
    """Print the JSON Schema of platform.yaml, for editors."""
    emit_json(config_schema())
