"""Small plots as SVG text, without a library: panels of lines over a few named places, and of boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import numpy as np

from mechanisms.gaussian.linear import Matrix

MARGIN = 12
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


@dataclass(frozen=True, eq=False)
class Boxes:
    """Values by name, on a logarithmic scale; `mark` is a height where a dotted line lies."""

    title: str
    values: Mapping[str, Matrix]
    colours: Mapping[str, str]
    mark: float | None = None


def write(path: Path, title: str, panels: Sequence[Panel], *, columns: int = 4) -> None:
    """Write the panels in rows below a title and a legend."""
    _write_page(
        path, title, {line.name: line.colour for line in panels[0].lines}, [_panel(each) for each in panels], columns
    )


def write_boxes(path: Path, title: str, panels: Sequence[Boxes], *, columns: int = 4) -> None:
    """Write the panels in rows below a title and a legend."""
    _write_page(path, title, panels[0].colours, [_boxes(panel) for panel in panels], min(columns, len(panels)))


def _write_page(path: Path, title: str, colours: Mapping[str, str], panels: Sequence[str], columns: int) -> None:
    rows = -(-len(panels) // columns)
    width, height = columns * WIDTH, rows * HEIGHT + 40
    legend, x = [], 10
    for name, colour in colours.items():
        legend.append(f'<path d="M{x} 31h18" stroke="{colour}" stroke-width="2"/>')
        legend.append(f'<text x="{x + 22}" y="34" {_TEXT}>{escape(name)}</text>')
        x += 40 + 6 * len(name)
    body = [
        f'<g transform="translate({WIDTH * (i % columns)} {40 + HEIGHT * (i // columns)})">{panel}</g>'
        for i, panel in enumerate(panels)
    ]
    wide = max(width, x) + MARGIN  # for long labels on the left, and for the legend
    size = f'width="{wide}" height="{height}"'
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-{MARGIN} 0 {wide} {height}" {size}>\n'
        f'<rect x="-{MARGIN}" {size} fill="white"/>\n'
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


def _boxes(panel: Boxes) -> str:
    """Return whiskers from the least to the most, boxes of quartiles, lines at medians, triangles at means."""
    everything = np.concatenate([*panel.values.values(), [] if panel.mark is None else [panel.mark]])
    low, high = np.log10(everything.min()) - 0.02, np.log10(everything.max()) + 0.02
    tall, step = HEIGHT - TOP - BOTTOM, (WIDTH - LEFT - RIGHT) / len(panel.values)

    def y(value: float) -> float:
        return float(round(TOP + tall * (high - np.log10(value)) / (high - low), 1))

    parts = [f'<text x="{LEFT}" y="14" {_TEXT}>{escape(panel.title)}</text>']
    for value in 10 ** np.linspace(low, high, 4):
        parts.append(f'<path d="M{LEFT} {y(value)}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 4}" y="{y(value)}" text-anchor="end" dy="3" {_TEXT}>{value:.2g}</text>')
    if panel.mark is not None:
        parts.append(f'<path d="M{LEFT} {y(panel.mark)}H{WIDTH - RIGHT}" stroke="#888" stroke-dasharray="2 2"/>')
    for place, (name, values) in enumerate(panel.values.items()):
        x = round(LEFT + step * (place + 0.5), 1)
        least, lower, middle, upper, most = (y(value) for value in np.quantile(values, [0, 0.25, 0.5, 0.75, 1]))
        ink = f'stroke="{panel.colours[name]}" fill="none"'
        parts.append(f'<path d="M{x} {least}V{lower}M{x} {upper}V{most}" {ink}/>')
        parts.append(f'<path d="M{x - 8} {lower}h16V{upper}h-16z" {ink}/>')
        parts.append(f'<path d="M{x - 8} {middle}h16" stroke-width="2" {ink}/>')
        parts.append(f'<path d="M{x} {round(y(float(values.mean())) - 3, 1)}l3 5h-6z" {ink}/>')
    return "".join(parts)
