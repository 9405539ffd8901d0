"""What counting gives back: integers by combination of codes, and where a column is cut into ranges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.cells.workspace import Feature, Ints


@dataclass(frozen=True, eq=False, kw_only=True)
class Tally:
    """Counts (and sums of grid indices) of the rows in each occupied combination of codes.

    `partitions[j]` maps the domain cells of column j to its codes. Holds protected data: see planner.sources.measure.
    """

    columns: tuple[str, ...]
    partitions: tuple[Ints, ...]
    features: tuple[Feature, ...]
    codes: Ints  # (n, columns)
    sums: np.ndarray[Any, Any]  # (n, 1 + features), int64 or Python ints
    ranges: Ints | None = None  # (n,), with a Cut: the range in which the rows lie


@dataclass(frozen=True)
class Cut:
    """A column cut into ranges of its index: range i ends before edges[i], the last one is open.

    Without edges every index is a range of its own.
    """

    column: str
    edges: tuple[int, ...] | None = None

    def sql(self, found: str) -> str:
        """Return the SQL of the number of the range in which an index lies: a tree, of few comparisons a row."""
        return found if self.edges is None else self._between(found, self.edges, 0)

    def first(self, number: int) -> int:
        """Return the first index of a range."""
        if self.edges is None:
            return number
        return self.edges[number - 1] if number else 0

    def _between(self, found: str, edges: Sequence[int], number: int) -> str:
        if not edges:
            return str(number)
        middle = len(edges) // 2
        low = self._between(found, edges[:middle], number)
        high = self._between(found, edges[middle + 1 :], number + middle + 1)
        return f"CASE WHEN {found} < {edges[middle]} THEN {low} ELSE {high} END"
