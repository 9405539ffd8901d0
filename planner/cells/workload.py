"""What a query asks, on cells: where its rows may lie, and sums over them with coefficients. Value objects only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from planner.cells.workspace import Feature, Floats, Ints, Workspace


@dataclass(frozen=True, eq=False, kw_only=True)
class Placement:
    """Every (cell, public match) in which the WHERE holds: its cell, its group in each set, and the values of
    the asked expressions there. `keys[s]` names a table (g, k0, k1, …) with the group keys of set s."""

    workspace: Workspace
    cell: Ints
    groups: tuple[Ints, ...]
    group_counts: tuple[int, ...]
    values: tuple[NDArray[Any], ...]
    keys: tuple[str, ...]
    key_types: tuple[str, ...]
    relation: str

    @property
    def repeats(self) -> bool:
        """Whether a row can count more than once, through a public join with several matches."""
        return len(np.unique(self.cell)) < len(self.cell)


@dataclass(frozen=True)
class Piece:
    """Where `condition` holds (and the column is not NULL), a record adds low + slope * u to the sum."""

    condition: exp.Expr | None
    column: str | None
    low: float
    slope: float


@dataclass(frozen=True, eq=False)
class Functional:
    """One row of W before it is placed on groups: coefficients of each feature at every place, shape (R, Q).

    `role` is count, sum, centred or square: it decides the accuracy target.
    """

    role: str
    coefficients: Floats


@dataclass(frozen=True, eq=False)
class Recipe:
    """How one aggregate is made of functionals: their numbers, and the centre that sums were taken around.

    `bounds` are, for each grouping set, the least and the most that the argument can be in every group of an average
    or a variance; infinite and the wrong way round where no record can count.
    """

    aggregate: int
    parts: tuple[int, ...]
    centre: float = 0.0
    bounds: tuple[tuple[Floats, Floats], ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Workload:
    """The linear part of a measured query, placed: functionals on places, and the recipes of its aggregates."""

    placement: Placement
    features: tuple[Feature, ...]
    functionals: tuple[Functional, ...]
    recipes: tuple[Recipe, ...]
    low: Ints  # lowest grid index of each feature's column at each place, shape (R, Q - 1)
    high: Ints
