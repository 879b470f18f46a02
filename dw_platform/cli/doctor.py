"""`dw doctor`: what works on this machine, what does not, and what to do about it."""

import sys
from dataclasses import asdict

import typer
from rich.text import Text

from dw_platform.cli.examine import examine
from dw_platform.cli.findings import Health
from dw_platform.cli.opening import open_platform
from dw_platform.cli.output import ConfigOption, JsonOption, complain, emit_json, emit_table
from dw_platform.cli.secrecy import masked

_COLOURS = {Health.OK: "green", Health.WARNING: "yellow", Health.FAILED: "red"}


def doctor(config: ConfigOption = None, *, json: JsonOption = False) -> None:
    """Check Java, jars, disk, store, brokers, databases and ports; exit code 1 when something cannot work."""
    with open_platform(config) as platform:
        findings = list(examine(platform))
    if json:
        emit_json([asdict(finding) | {"finding": masked(finding.finding)} for finding in findings])
    else:
        rows = [
            (finding.part, Text(finding.health, _COLOURS[finding.health]), masked(finding.finding))
            for finding in findings
        ]
        emit_table("", ["part", "state", "finding"], rows)
    if failed := [finding.part for finding in findings if finding.health is Health.FAILED]:
        sys.stdout.flush()
        complain(f"Not working: {', '.join(failed)}. The findings above say what to do.")
        raise typer.Exit(1)
