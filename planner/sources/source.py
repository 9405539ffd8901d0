"""Engines that hold protected rows and return integer data vectors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Protocol

from planner.basics.errors import SourceFailed
from planner.cells.workspace import Axis, Feature, Ints, Workspace
from planner.counting.tally import Cut, Tally
from planner.policy.table import Table

ENGINES = {
    "absent": ("planner.sources.absent", "AbsentSource"),
    "duckdb": ("planner.sources.duckdb", "DuckdbSource"),
    "postgres": ("planner.sources.postgres", "PostgresSource"),
    "spark": ("planner.sources.spark", "SparkSource"),
}
"""Where each engine's source is; imported when it is needed."""


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
