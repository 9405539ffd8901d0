"""Answers as text: numbers with their intervals, tables for people, JSON and CSV for programs."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from types import TracebackType
from typing import Any, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from planner.cells.costs import rho_of
from planner.plans.explain import Explanation
from planner.plans.result import Interval, Result
from planner.plans.wording import percent
from proxy.duck_types import family
from proxy.errors import printable

Value = Any  # whatever a column holds


@dataclass(frozen=True)
class Signs:
    """The three characters that not every terminal has."""

    plus_minus: str = "±"
    infinity: str = "∞"
    to: str = "…"


SIGNS = Signs()
ASCII = Signs(plus_minus="+/-", infinity="inf", to="to")
SPELT_OUT = str.maketrans(
    {"±": "+/-", "∞": "inf", "…": "...", "→": "->", "×": "x", "ρ": "rho", "ε": "epsilon", "δ": "delta"}
)


def is_plain(console: Console) -> bool:
    """Return whether the text goes to a file, a pipe, or a terminal without UTF-8: then it stays ASCII."""
    return not console.is_terminal or console.options.ascii_only


# --- values ------------------------------------------------------------------------------------------------


def value_text(value: Value) -> str:
    """Return a value as it stands in a table.

    >>> [value_text(v) for v in (None, True, 1990, 0.5, 12345678.9, 1e-9, Decimal("1.50"))]
    ['NULL', 'true', '1990', '0.5', '12345678.9', '1e-09', '1.50']
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case float():
            return _float_text(value)
        case dt.datetime():
            return value.isoformat(sep=" ")
        case _:
            return printable(str(value))


def _float_text(value: float) -> str:
    """Return six significant digits, or all before the point and one behind it."""
    if not math.isfinite(value) or value == 0 or not 1e-4 <= abs(value) < 1e15:
        return f"{value:.6g}"
    decimals = max(1, 5 - math.floor(math.log10(abs(value))))
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".")


def measured_text(value: Value, interval: Interval | None, *, ranks: float | None = None, signs: Signs = SIGNS) -> str:
    """Return a value with its interval, both to the digits that the interval leaves certain.

    >>> measured_text(413, (363.4, 462.6)), measured_text(38.5816, (38.3716, 38.7916))
    ('413 ± 50', '38.58 ± 0.21')
    >>> measured_text(37, (35.0, 48.0)), measured_text(37, None), measured_text(37, None, ranks=50)
    ('37 (35 … 48)', '37', '37 ± 50 ranks')
    """
    if value is None or isinstance(value, bool | str | dt.date | dt.time):
        return value_text(value)
    if interval is None:
        return value_text(value) + (f" {signs.plus_minus} {ranks:,.4g} ranks" if ranks else "")
    half = (interval[1] - interval[0]) / 2
    if not math.isfinite(half):
        return f"{value_text(value)} {signs.plus_minus} {signs.infinity}"
    return _with_interval(value, interval, half, signs)


def _with_interval(value: Value, interval: Interval, half: float, signs: Signs) -> str:
    low, high = interval
    whole = isinstance(value, int)
    unit = 10.0 ** (math.floor(math.log10(half)) - 1) if half > 0 else 1.0
    decimals = max(0, -round(math.log10(unit)))
    shown = f"{value:,}" if whole else f"{value:,.{decimals}f}"
    if abs((low + high) / 2 - float(value)) <= max(unit, 0.5 if whole else 0.0):
        # Rounded up, unless it is a rounding error above the number that was asked for.
        return f"{shown} {signs.plus_minus} {math.ceil(half / unit - 0.05) * unit:,.{decimals}f}"
    if whole:
        return f"{shown} ({math.floor(low):,} {signs.to} {math.ceil(high):,})"
    return f"{shown} ({low:,.{decimals}f} {signs.to} {high:,.{decimals}f})"


def rank_errors(
    names: Sequence[str], intervals: Sequence[Sequence[Interval | None]], plan: Explanation | None
) -> list[float | None]:
    """Return for each column its error in ranks: quantiles alone have a known error and no interval."""
    exact = [not any(row[i] for row in intervals) for i in range(len(names))]
    errors = plan.errors if plan else {}
    return [errors.get(name) if alone else None for name, alone in zip(names, exact, strict=True)]


def cost_text(plan: Explanation) -> str:
    """Return by how much an answer moves the budget, which counts what the dearest cell has paid."""
    if plan.path == "exact":
        return "free: nothing protected is read"
    if plan.path == "free":
        return "free: already known"
    moved = rho_of(max(quote.after - quote.spent for quote in plan.quotes))
    return f"cost {percent(moved / plan.budget)} of the budget" if moved else "free: about other people than before"


def refresh_lines(table: str, population: str, spent: Fraction, cap: Fraction) -> tuple[str, ...]:
    """Return what a refresh costs: nothing at once, but what was paid can't be shared by cells any more."""
    left = max(cap - spent, Fraction(0))
    return (
        f"{table}: population {population} has paid {percent(spent / cap)} of the budget, rho {float(spent):.3g}",
        f"after a refresh {percent(left / cap)} is left for new questions, rho {float(left):.3g}",
        "what was paid can then no longer be shared by cells: anybody may be in another one in the new data,",
        "so what new questions cost comes on top of it, and earlier answers are not reused",
    )


# --- tables ------------------------------------------------------------------------------------------------


def print_result(console: Console, result: Result) -> None:
    """Print the rows as a table, with each interval beside its number."""
    names = [column.name for column in result.columns]
    right = [family(column.type) == "NUMBER" and column.type != "BOOLEAN" for column in result.columns]
    ranks = rank_errors(names, result.intervals, result.plan)
    signs = ASCII if is_plain(console) else SIGNS
    rows = [
        [measured_text(*cell, ranks=error, signs=signs) for *cell, error in zip(row, bounds, ranks, strict=True)]
        for row, bounds in zip(result.rows, result.intervals, strict=True)
    ]
    print_table(console, names, rows, right=right)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines of our own as they are, or with their signs spelt out."""
    for line in lines:
        shown = printable(line)
        console.print(Text(shown.translate(SPELT_OUT) if is_plain(console) else shown), soft_wrap=True)


def print_table(
    console: Console, names: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[bool]
) -> None:
    """Print rows of text below their names; the columns in `right` are aligned to the right."""
    if is_plain(console):
        console.file.write(_plain_table(names, list(rows), right))
        return
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for name, to_right in zip(names, right, strict=True):
        table.add_column(Text(printable(name)), justify="right" if to_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style="dim" if cell == "NULL" else "") for cell in row))
    console.print(table)


def _plain_table(names: Sequence[str], rows: list[Sequence[str]], right: Sequence[bool]) -> str:
    heads = [printable(name) for name in names]
    widths = [max(len(cell) for cell in column) for column in zip(heads, *rows, strict=True)]
    lines = [
        " | ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in (heads, *rows)
    ]
    rule = "-+-".join("-" * width for width in widths)
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


# --- for programs ------------------------------------------------------------------------------------------


def as_json(result: Result, *, intervals: bool) -> str:
    """Return the rows as a JSON list of objects."""
    names, rows = _flat(result, intervals=intervals)
    return json.dumps([dict(zip(names, map(_json_value, row), strict=True)) for row in rows], indent=2)


def _json_value(value: Value) -> Value:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list() | tuple():
            return [_json_value(item) for item in value]
        case dict():
            return {str(key): _json_value(item) for key, item in value.items()}
        case dt.date() | dt.time():
            return value.isoformat()
        case _:
            return str(value)


def as_csv(result: Result, *, intervals: bool) -> str:
    """Return the rows as CSV with a header; NULL is an empty field."""
    names, rows = _flat(result, intervals=intervals)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()


def _flat(result: Result, *, intervals: bool) -> tuple[list[str], list[list[Value]]]:
    """Return unique names and the rows; each measured column is followed by its low and high if asked for."""
    measured = [intervals and any(column) for column in zip(*result.intervals, strict=True)] or [
        False for _ in result.columns
    ]
    names = [
        name
        for column, noisy in zip(result.columns, measured, strict=True)
        for name in ([column.name, f"{column.name}_low", f"{column.name}_high"] if noisy else [column.name])
    ]
    rows = [
        [
            item
            for value, bounds, noisy in zip(row, all_bounds, measured, strict=True)
            for item in ([value, *(bounds or (None, None))] if noisy else [value])
        ]
        for row, all_bounds in zip(result.rows, result.intervals, strict=True)
    ]
    return _unique(names), rows


def _unique(names: Iterable[str]) -> list[str]:
    """Return the names, a repeated one with a number.

    >>> _unique(["count", "count", "sex"])
    ['count', 'count_2', 'sex']
    """
    found: list[str] = []
    for name in names:
        candidate, number = name, 2
        while candidate in found:
            candidate, number = f"{name}_{number}", number + 1
        found.append(candidate)
    return found


# --- progress ----------------------------------------------------------------------------------------------


PATIENCE = 1.0
"""Seconds that a command may take without a word."""


STEPS = ("planning", "measuring", "charging", "answering")
"""The steps of a question, in order, as the gate names them."""


class ProgressLine:
    """Says on a terminal what a command is doing, once that has taken a second."""

    def __init__(self, console: Console, text: str) -> None:
        columns = SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn()
        self._progress = Progress(*columns, console=console, transient=True)
        self._task = self._progress.add_task(text, total=None)
        self._timer = threading.Timer(PATIENCE, self._start)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._over = not console.is_terminal

    def step(self, text: str) -> None:
        """Say what is being done from now on."""
        done = STEPS.index(text) if text in STEPS else None
        total = None if done is None else len(STEPS)
        self._progress.update(self._task, description=printable(text), total=total, completed=done)

    def count(self, done: int, total: int, text: str) -> None:
        """Say how many of several things are done, and what is next."""
        shown = f"{done} of {total}: {printable(text)[:60]}"
        self._progress.update(self._task, description=shown, total=total, completed=done)

    def _start(self) -> None:
        with self._lock:
            if not self._over:
                self._progress.start()

    def __enter__(self) -> Self:
        if not self._over:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._progress.live.is_started:
                self._progress.stop()
