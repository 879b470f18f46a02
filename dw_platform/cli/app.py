"""The command tree, and what becomes of errors.

Whatever fails is told in one paragraph on stderr. The exit code is 0 only if `dw` did what it was asked: 2 is a
mistake in the input, 1 any other failure, 130 an interruption. Tracebacks are for `--debug`.
"""

import contextlib
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Sequence

import typer

from dw_platform import __version__
from dw_platform.cli import (
    backup,
    bench,
    config,
    demo,
    doctor,
    extract,
    gateway,
    health,
    ingest,
    init,
    keys,
    page,
    publish,
    quality,
    scale,
    status,
    tables,
    topics,
    up,
)
from dw_platform.cli.output import complain
from dw_platform.cli.secrecy import MaskedFormatter, masked
from dw_platform.foundation import PlatformError, UserError

USER_MISTAKE = 2
FAILURE = 1
INTERRUPTED = 130

_DEBUG = "--debug"
_OWN_LOGGER = "dw_platform"

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
    debug: bool = typer.Option(False, _DEBUG, help="Show tracebacks and this program's debug logs."),
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None: ...


app.command("init", short_help="Make a new platform, ready to run.")(init.init)
app.command("demo", short_help="Build and check every table through Dagster.")(demo.demo)
app.command("up", short_help="Start the Dagster UI and daemon until Ctrl-C.")(up.up)
app.command("status", short_help="Show tables and checks at a glance.")(status.status)
app.command("doctor", short_help="Say what works on this machine.")(doctor.doctor)
app.command("health", short_help="Ask every database whether it answers.")(health.health)
app.add_typer(config.app, name="config", short_help="Check platform.yaml; print its schema.")
app.add_typer(tables.app, name="tables", short_help="Look at tables, build one, keep them small.")
app.command("quality", short_help="Run the checks of a table now.")(quality.quality)
app.command("publish", short_help="Publish lines of standard input to a topic.")(publish.publish)
app.add_typer(topics.app, name="topics", short_help="Look at topics; make, grow, check and keep them.")
app.add_typer(scale.app, name="scale", short_help="Look at limits and pressure; change limits at run time.")
app.command("ingest", short_help="Bring streams into their tables, once or all the time.")(ingest.ingest)
app.command("page", short_help="Show a table of a database, a page at a time.")(page.page)
app.command("extract", short_help="Copy tables of databases into the lake.")(extract.extract)
app.add_typer(backup.app, name="backup", short_help="Back up tables; verify, restore and prune backups.")
app.command("gateway", short_help="Serve publishing and reading over HTTP until Ctrl-C.")(gateway.gateway)
app.add_typer(keys.app, name="keys", short_help="Make, list and revoke the gateway's API keys.")
app.command("bench", short_help="Run a benchmark with its peers.")(bench.bench)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    debug = _DEBUG in arguments or bool(os.environ.get("DW_DEBUG"))
    try:
        with _logging(debug=debug):
            # Wherever --debug stands, it belongs to `dw` itself.
            app(args=[argument for argument in arguments if argument != _DEBUG], prog_name="dw")
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
        if code == INTERRUPTED:
            complain("interrupted")
        return _flushed(code)
    except PlatformError as error:
        return _explain(error, str(error), USER_MISTAKE if isinstance(error, UserError) else FAILURE, debug=debug)
    except Exception as error:  # noqa: BLE001  the process ends here, with these words
        told = str(error).strip().partition("\n")[0] or "no further explanation"
        advice = "" if debug else f" `dw {_DEBUG}` shows where it comes from."
        return _explain(error, f"{type(error).__name__}: {told.rstrip('.')}.{advice}", FAILURE, debug=debug)
    return _flushed(0)


def _explain(error: Exception, text: str, code: int, *, debug: bool) -> int:
    if debug:
        sys.stderr.write(masked("".join(traceback.format_exception(error))))
    complain(text)
    return code


def _flushed(code: int) -> int:
    """Return `code` once the output is out; a reader that has gone is told nothing, which is its wish."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILURE
    return code


@contextlib.contextmanager
def _logging(*, debug: bool) -> Iterator[None]:
    """Show warnings of everybody, and with --debug more of this program only: py4j would log every credential."""
    handler = logging.StreamHandler()
    handler.setFormatter(MaskedFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(
        lambda record: record.levelno >= logging.WARNING or (debug and record.name.startswith(_OWN_LOGGER))
    )
    root, own = logging.getLogger(), logging.getLogger(_OWN_LOGGER)
    before = own.level
    root.addHandler(handler)
    own.setLevel(logging.DEBUG if debug else before)
    try:
        yield
    finally:
        root.removeHandler(handler)
        own.setLevel(before)
