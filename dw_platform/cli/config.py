"""`dw config`: check the file, show what it means, print its schema."""

import typer

from dw_platform.cli.output import ConfigOption, JsonOption, emit_json, emit_table, say
from dw_platform.config import config_schema, produced_tables
from dw_platform.pipelines import Platform

app = typer.Typer(help="Check platform.yaml, show what it means, print its schema.", no_args_is_help=True)


@app.command()
def check(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Check the file; every problem is listed with its place and what is allowed."""
    platform = Platform.open(config)
    produced = produced_tables(platform.config)
    if json:
        emit_json({"file": str(platform.config.source), "valid": True, "config": platform.config.describe()})
        return
    say(f"{platform.config.source} is valid: platform {platform.config.name}, {len(produced)} tables.")
    emit_table("", ["table", "made by"], [(name, producer.path) for name, producer in produced.items()])


@app.command()
def schema() -> None:
    """Print the JSON Schema of platform.yaml, for editors."""
    emit_json(config_schema())
