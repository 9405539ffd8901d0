"""Engines that hold protected rows and return integer data vectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from planner.errors import SourceFailed
from planner.policy import Table
from planner.workspace import Axis, Feature, Ints, Workspace

ENGINES = {
    "absent": ("planner.sources.absent", "AbsentSource"),
    "duckdb": ("planner.sources.duckdb", "DuckdbSource"),
    "postgres": ("planner.sources.postgres", "PostgresSource"),
    "spark": ("planner.sources.spark", "SparkSource"),
}
"""Where each engine's source is; imported when it is needed."""


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts (and sums of grid indices) of the rows in each occupied combination of codes.

    `partitions[j]` maps the domain cells of column j to its codes. Holds protected data: see planner.measure.
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


class Source(Protocol):
    """One protected table. Whatever fails is a SourceFailed that holds no word of the engine."""

    def columns(self) -> dict[str, str]:
        """Return the types of the source's columns, as the engine's part of this package names them."""

    def fingerprint(self) -> str | None:
        """Return a text that changes when the rows, or what the policy makes of them, change; None without rows."""

    def reading(self) -> AbstractContextManager[str]:
        """Hold the rows for what is read inside, and give a text that is another whenever a row of them is.

        Unlike the fingerprint it is found by reading, and can't be late; it does not depend on the policy.
        """

    def tally(
        self,
        axes: Sequence[Axis],
        features: Sequence[Feature],
        cut: Cut | None = None,
        wanted: Sequence[Ints] | None = None,
    ) -> Tally:
        """Return the counts and sums on a partition at least as fine as the axes, all of one snapshot.

        Args:
            cut: ranges of a column among the features, in which rows are counted apart: one pass, however many.
            wanted: some atoms of each axis; rows of other ones may be left out.
        """

    def units(self, workspace: Workspace, *, cell: Ints, group: Ints, groups: int) -> Ints:
        """Return the number of different units in each group, a group being a set of cells."""

    def close(self) -> None: ...


def open_source(table: Table) -> Source:
    """Return the source of a table, its columns checked; no row is read."""
    module, name = ENGINES[table.location.engine]
    try:
        source: Source = getattr(import_module(module), name)(table)
    except ModuleNotFoundError as missing:
        if missing.name != "pyspark":
            raise
        raise SourceFailed(
            f"the source of table {table.name} needs the package pyspark", hint="pip install 'noisegate[spark]'"
        ) from None
    return source
