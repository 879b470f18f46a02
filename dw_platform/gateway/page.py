"""The status page: plain HTML that reloads itself, in light or dark, without anything from elsewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

REFRESH_S = 5

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #777; --ok: #1a7f37; --warn: #9a6700; --bad: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --soft: #999; --ok: #3fb950; --warn: #d29922; --bad: #f85149; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p, small { color: var(--soft); } table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; } th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line); }
.n { text-align: right; font-variant-numeric: tabular-nums; } code { font-size: .92em; }
.normal { color: var(--ok); } .warning { color: var(--warn); } .critical, .shedding, .bad { color: var(--bad); }
meter { width: 8rem; vertical-align: middle; }
"""


@dataclass(frozen=True, slots=True)
class TopicRow:
    """One topic as the page shows it."""

    name: str
    kind: str
    partitions: int | None
    offsets: Mapping[int, tuple[int, int]]
    per_second: float
    problem: str


@dataclass(frozen=True, slots=True)
class PressureRow:
    """The pressure of one subsystem."""

    subsystem: str
    level: str
    occupancy: float


def render(topics: Sequence[TopicRow], pressure: Sequence[PressureRow], now: datetime) -> str:
    """Return the page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dw gateway</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{REFRESH_S}"><style>{_STYLE}</style></head><body>'
        f"<h1>dw gateway</h1><p>{now:%Y-%m-%d %H:%M:%S} UTC, again every {REFRESH_S} s</p>"
        f"<h2>Pressure</h2>{_pressure(pressure)}<h2>Topics</h2>{_topics(topics)}"
        '<p><a href="/openapi.json">API</a> · <a href="/metrics">metrics</a> · <a href="/ready">ready</a></p>'
        "</body></html>"
    )


def _pressure(rows: Sequence[PressureRow]) -> str:
    if not rows:
        return "<p>Nothing is measured here.</p>"
    cells = "".join(
        f'<tr><td>{escape(row.subsystem)}<td class="{escape(row.level)}">{escape(row.level)}'
        f'<td class="n">{row.occupancy:.1%}<td><meter value="{min(row.occupancy, 1):.3f}"></meter></tr>'
        for row in rows
    )
    return f'<table><tr><th>subsystem<th>level<th class="n">filled<th></tr>{cells}</table>'


def _topics(rows: Sequence[TopicRow]) -> str:
    if not rows:
        return "<p>There are none yet: add <code>streams</code> to platform.yaml.</p>"
    head = '<tr><th>topic<th>kind<th class="n">partitions<th class="n">kept<th>offsets<th class="n">records/s</tr>'
    return f"<table>{head}{''.join(map(_topic, rows))}</table><small>records/s: through this gateway, last 10 s</small>"


def _topic(row: TopicRow) -> str:
    if row.problem:
        return f'<tr><td>{escape(row.name)}<td>{escape(row.kind)}<td colspan="4" class="bad">{escape(row.problem)}</tr>'
    kept = f"{sum(end - start for start, end in row.offsets.values()):,}" if row.offsets else "-"
    shown = ", ".join(f"{start:,} to {end:,}" for _, (start, end) in sorted(row.offsets.items())[:8])
    more = f" and {len(row.offsets) - 8} more" if len(row.offsets) > 8 else ""
    return (
        f"<tr><td><code>{escape(row.name)}</code><td>{escape(row.kind)}<td class=n>{row.partitions}<td class=n>{kept}"
        f"<td><small>{shown}{more}</small><td class=n>{row.per_second:,.0f}</tr>"
    )
