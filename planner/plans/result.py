"""The result of a statement: its rows with their intervals, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, overload

import numpy as np

from planner.duck.relations import OutputColumn
from planner.plans.explain import Explanation
from planner.plans.presence import Notice

Interval = tuple[float, float]


@dataclass(frozen=True)
class Columns(Sequence[tuple[Any, ...]]):
    """Rows that are kept column by column: numbers, texts and booleans, with NULL as a masked value."""

    arrays: tuple[np.ndarray[Any, Any], ...]

    def __len__(self) -> int:
        return len(self.arrays[0])

    @overload
    def __getitem__(self, place: int) -> tuple[Any, ...]: ...

    @overload
    def __getitem__(self, place: slice) -> Columns: ...

    def __getitem__(self, place: int | slice) -> tuple[Any, ...] | Columns:
        if isinstance(place, slice):
            return Columns(tuple(array[place] for array in self.arrays))
        return next(iter(self[place : place + 1 or None]))

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return zip(*(array.tolist() for array in self.arrays), strict=True)


@dataclass(frozen=True, kw_only=True)
class Result:
    """Rows with their intervals (None where there is none); `cost` is the rho newly charged to the dearest cell.

    `notices` are for whoever reads the rows.
    """

    columns: tuple[OutputColumn, ...] = ()
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    intervals: list[tuple[Interval | None, ...]] = field(default_factory=list)
    cost: Fraction = Fraction(0)
    tag: str = ""
    plan: Explanation | None = None
    notices: tuple[Notice, ...] = ()


def single_column(name: str, lines: list[str], *, tag: str) -> Result:
    """Return a result of one text column."""
    return Result(
        columns=(OutputColumn(name, "VARCHAR"),),
        rows=[(line,) for line in lines],
        intervals=[(None,)] * len(lines),
        tag=tag,
    )
