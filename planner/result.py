"""What a statement gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from planner.explain import Explanation

Interval = tuple[float, float]


@dataclass(frozen=True)
class OutputColumn:
    """Name and DuckDB type of one column of a result."""

    name: str
    type: str


@dataclass(frozen=True)
class Result:
    """Rows with their intervals (None where there is none); `cost` is the rho newly charged to the dearest cell."""

    columns: tuple[OutputColumn, ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    intervals: list[tuple[Interval | None, ...]] = field(default_factory=list)
    cost: Fraction = Fraction(0)
    tag: str = ""
    plan: Explanation | None = None


def single_column(name: str, lines: list[str], *, tag: str) -> Result:
    """Return a result of one text column."""
    return Result((OutputColumn(name, "VARCHAR"),), [(line,) for line in lines], [(None,)] * len(lines), tag=tag)
