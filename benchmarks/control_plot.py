"""One load and what the rules made of it, as a picture: what came in, how old the oldest record was, how many read.

Plain SVG, readable on light and on dark pages; the same input gives the same bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from dw_platform.scaling.simulator import Moment, Outcome

_WIDTH, _LEFT, _RIGHT = 860, 64, 16
_TOP, _PANEL, _GAP, _BOTTOM = 58, 130, 34, 40
# Lags of hours would flatten what happens around the limit.
_OLDEST_S = 300
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f; }
.title { font-size: 15px; font-weight: 600; }
.grid { stroke: #d0d7de; stroke-width: 1; }
.limit { stroke: #cf222e; stroke-width: 1; stroke-dasharray: 5 4; }
.line { fill: none; stroke-width: 1.6; }
.load { stroke: #57606a; }
.r0 { stroke: #0969da; stroke-width: 2.6; } .r1 { stroke: #bc4c00; } .r2 { stroke: #8250df; } .r3 { stroke: #1a7f37; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; } .grid { stroke: #30363d; } .limit { stroke: #ff7b72; } .load { stroke: #8b949e; }
  .r0 { stroke: #58a6ff; } .r1 { stroke: #ffa657; } .r2 { stroke: #d2a8ff; } .r3 { stroke: #56d364; }
}
"""


@dataclass(frozen=True, slots=True)
class _Panel:
    """One of the stacked diagrams: seconds to the right, from 0 to `highest` upwards."""

    number: int
    title: str
    seconds: int
    highest: float

    @property
    def top(self) -> int:
        return _TOP + self.number * (_PANEL + _GAP)

    @property
    def bottom(self) -> int:
        return self.top + _PANEL

    def x(self, second: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * second / max(self.seconds, 1)

    def y(self, value: float) -> float:
        return self.bottom - _PANEL * min(value, self.highest) / self.highest

    def frame(self) -> list[str]:
        parts = [f'<text x="{_LEFT}" y="{self.top - 8}">{escape(self.title)}</text>']
        for value in _ticks(self.highest, 4):
            y = self.y(value)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        return parts

    def line(self, kind: str, points: Sequence[tuple[int, float]]) -> str:
        """Return a line of steps; points that change nothing are left out."""
        (first, value), *rest = points
        path = [f"M{self.x(first):.1f} {self.y(value):.1f}"]
        for second, after in rest:
            if after != value:
                path.append(f"H{self.x(second):.1f}V{self.y(after):.1f}")
                value = after
        path.append(f"H{self.x(points[-1][0]):.1f}")
        return f'<path class="line {kind}" d="{"".join(path)}"/>'


def draw(name: str, outcomes: Sequence[Outcome], *, capacity: float, limit_s: int) -> str:
    """Return the picture of one load; the first outcome is drawn on top and thicker."""
    moments = outcomes[0].moments
    seconds = moments[-1].second

    def highest(of: Callable[[Moment], float], at_least: float) -> float:
        return max(at_least, *(of(moment) for outcome in outcomes for moment in outcome.moments))

    load = _Panel(0, "load, in what one consumer reads", seconds, highest(lambda m: m.offered / capacity, 1) * 1.05)
    oldest = min(highest(lambda m: m.age_s, limit_s * 2), _OLDEST_S)
    cut = f", cut at {_OLDEST_S} s" if oldest == _OLDEST_S else ""
    age = _Panel(1, f"age of the oldest record, s (dashed: late{cut})", seconds, oldest)
    consumers = _Panel(2, "consumers, with those that start", seconds, highest(lambda m: m.consumers, 4) * 1.05)
    parts = [*load.frame(), *age.frame(), *consumers.frame()]
    parts.append(load.line("load", [(m.second, round(m.offered / capacity, 2)) for m in moments]))
    y = age.y(limit_s)
    parts.append(f'<line class="limit" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for number, outcome in reversed(list(enumerate(outcomes))):
        parts.append(age.line(f"r{number}", [(m.second, m.age_s) for m in outcome.moments]))
        parts.append(consumers.line(f"r{number}", [(m.second, m.consumers) for m in outcome.moments]))
    height = consumers.bottom + _BOTTOM
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">',
            f"<title>{escape(name)}</title>",
            f"<style>{_STYLE}</style>",
            f'<text class="title" x="{_LEFT}" y="20">{escape(name)}</text>',
            *_legend([outcome.rule for outcome in outcomes]),
            *parts,
            *_hours(consumers),
            "</svg>\n",
        ]
    )


def _legend(rules: Sequence[str]) -> list[str]:
    parts, x = [], _LEFT + 190
    for number, rule in enumerate(rules):
        parts.append(f'<line class="line r{number}" x1="{x}" x2="{x + 22}" y1="16" y2="16"/>')
        parts.append(f'<text x="{x + 28}" y="20">{escape(rule)}</text>')
        x += 48 + 7 * len(rule)
    return parts


def _hours(panel: _Panel) -> list[str]:
    unit, size = ("h", 3_600) if panel.seconds > 6 * 3_600 else ("min", 60)
    return [
        f'<text x="{panel.x(value * size):.1f}" y="{panel.bottom + 20}" text-anchor="middle">{value:g} {unit}</text>'
        for value in _ticks(panel.seconds / size, 8)
    ]


def _ticks(highest: float, about: int) -> list[float]:
    """Return round numbers from 0 to `highest`, about as many as asked for."""
    step = next(
        base * 10**power for power in range(-2, 7) for base in (1, 2, 3, 5) if highest / (base * 10**power) <= about
    )
    return [round(step * number, 6) for number in range(int(highest / step) + 1)]
