"""Small plots as SVG text: panels of lines over a few named places, without a library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 230, 150
LEFT, TOP, RIGHT, BOTTOM = 34, 22, 12, 24
_TEXT = 'font-family="sans-serif" font-size="9"'


@dataclass(frozen=True)
class Line:
    """Values between 0 and 1 at every place, and what was simulated there."""

    name: str
    colour: str
    values: Sequence[float]
    dots: Sequence[float]


@dataclass(frozen=True)
class Panel:
    """One small plot; `mark` is the place where a dotted line stands."""

    title: str
    places: Sequence[str]
    lines: Sequence[Line]
    mark: int | None = None


def write(path: Path, title: str, panels: Sequence[Panel], *, columns: int = 4) -> None:
    """Write the panels in rows below a title and a legend."""
    rows = -(-len(panels) // columns)
    width, height = columns * WIDTH, rows * HEIGHT + 40
    legend, x = [], 10
    for line in panels[0].lines:
        legend.append(f'<path d="M{x} 31h18" stroke="{line.colour}" stroke-width="2"/>')
        legend.append(f'<text x="{x + 22}" y="34" {_TEXT}>{escape(line.name)}</text>')
        x += 40 + 6 * len(line.name)
    body = [
        f'<g transform="translate({WIDTH * (i % columns)} {40 + HEIGHT * (i // columns)})">{_panel(panel)}</g>'
        for i, panel in enumerate(panels)
    ]
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">\n'
        f'<rect width="{width}" height="{height}" fill="white"/>\n'
        f'<text x="10" y="18" font-family="sans-serif" font-size="12">{escape(title)}</text>\n'
        + "\n".join([*legend, *body])
        + "\n</svg>\n"
    )


def _panel(panel: Panel) -> str:
    step = (WIDTH - LEFT - RIGHT) / (len(panel.places) - 1)
    tall = HEIGHT - TOP - BOTTOM

    def x(place: int) -> str:
        return f"{LEFT + step * place:.1f}"

    def y(value: float) -> str:
        return f"{TOP + tall * (1 - value):.1f}"

    parts = [f'<text x="{LEFT}" y="14" {_TEXT}>{escape(panel.title)}</text>']
    for value in (0, 0.5, 1):
        parts.append(f'<path d="M{LEFT} {y(value)}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{y(value)}" text-anchor="end" dy="3" {_TEXT}>{value}</text>')
    for place, name in enumerate(panel.places):
        parts.append(f'<text x="{x(place)}" y="{HEIGHT - 10}" text-anchor="middle" {_TEXT}>{escape(name)}</text>')
    if panel.mark is not None:
        parts.append(f'<path d="M{x(panel.mark)} {y(0)}V{y(1)}" stroke="#888" stroke-dasharray="2 2"/>')
    for line in panel.lines:
        points = " ".join(f"{x(place)},{y(value)}" for place, value in enumerate(line.values))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="1.5"/>')
        parts += [f'<circle cx="{x(k)}" cy="{y(v)}" r="2" fill="{line.colour}"/>' for k, v in enumerate(line.dots)]
    return "".join(parts)
