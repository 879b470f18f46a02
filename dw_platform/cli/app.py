"""The command tree, and what happens to errors: one paragraph, exit code 2 for a user's mistake, 1 for the rest."""

import logging
import os
import traceback
from collections.abc import Sequence

import typer

from dw_platform import __version__
from dw_platform.cli import bench, config, demo, doctor, init, quality, status, tables, up
from dw_platform.cli.output import complain
from dw_platform.foundation import PlatformError, UserError

USER_MISTAKE = 2
FAILURE = 1
INTERRUPTED = 130

app = typer.Typer(
    name="dw",
    help="Durable streams, resumable extracts and restorable Delta tables in one Dagster project.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(*, value: bool) -> None:
    if value:
        typer.echo(f"dw_platform {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    *,
    debug: bool = typer.Option(False, "--debug", help="Show tracebacks and debug logs."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),  # noqa: ARG001
) -> None:
    if debug:
        os.environ["DW_DEBUG"] = "1"
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


app.command("init")(init.init)
app.command("demo")(demo.demo)
app.command("up")(up.up)
app.command("doctor")(doctor.doctor)
app.add_typer(config.app, name="config")
app.add_typer(tables.app, name="tables")
app.command("quality")(quality.quality)
app.command("status")(status.status)
app.command("bench")(bench.bench)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    try:
        app(args=list(arguments))
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except PlatformError as error:
        return _explain(error, USER_MISTAKE if isinstance(error, UserError) else FAILURE)
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has gone, which is its right
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return 0


def _explain(error: PlatformError, code: int) -> int:
    if os.environ.get("DW_DEBUG"):
        traceback.print_exception(error)
    complain(str(error))
    return code
