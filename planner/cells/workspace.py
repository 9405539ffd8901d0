"""Workspaces: the columns a query touches, each cut into the atoms that the query can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planner.policy.domain import Domain
from planner.policy.table import Table

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

Feature = tuple[str, int]
"""A measured column and the power of its grid index; the count of records is feature 0 and has no name."""


@dataclass(frozen=True, eq=False)
class Axis:
    """One column cut into atoms: `atoms[i]` is the atom of domain cell i, `first[a]` the first cell of atom a."""

    column: str
    domain: Domain
    atoms: Ints
    first: Ints
    presence: bool = False
    """The column is too large to write out, and only told apart into not NULL (cell 0) and NULL (cell 1)."""

    @property
    def size(self) -> int:
        return len(self.first)

    @property
    def key(self) -> str:
        """Return the name of the column for accounting: another domain counts as another column."""
        return f"{self.column}#{self.domain.fingerprint}{'?' if self.presence else ''}"

    def ranges(self) -> tuple[Ints, Ints]:
        """Return the lowest and highest domain index that is not NULL in every atom (-1 where there is none)."""
        if self.presence:
            ends = np.array([[0, -1], [self.domain.size - 1, -1]])[:, : self.size]
            return ends[0], ends[1]
        values = np.arange(self.domain.size)
        low, high = np.full(self.size, self.domain.size), np.full(self.size, -1)
        np.minimum.at(low, self.atoms[: self.domain.size], values)
        np.maximum.at(high, self.atoms[: self.domain.size], values)
        return np.where(high < 0, -1, low), high


@dataclass(frozen=True, eq=False)
class Workspace:
    """The product of the atoms of some columns of one table; cells are numbered with the last axis fastest."""

    table: Table
    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def strides(self) -> list[int]:
        """Return by how much the number of a cell grows with the atom of each axis."""
        return [int(np.prod(self.shape[i + 1 :], dtype=np.int64)) for i in range(len(self.axes))]

    @property
    def cells(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) if self.axes else 1

    def index(self, column: str) -> int | None:
        return next((i for i, axis in enumerate(self.axes) if axis.column == column), None)

    def ranges(self, features: Sequence[Feature], cells: Ints) -> tuple[Ints, Ints]:
        """Return the lowest and highest grid index of each feature's column in the given cells; (cells, features)."""
        low, high = (np.zeros((len(cells), len(features)), dtype=np.int64) for _ in range(2))
        for i, (column, _) in enumerate(features):
            axis = self.index(column)
            if axis is None:
                domain = self.table.columns[column].domain
                assert domain is not None
                high[:, i] = domain.size - 1
            else:
                atoms = self.atom_of(cells, axis)
                low[:, i], high[:, i] = (ends[atoms] for ends in self.axes[axis].ranges())
        return low, high

    def atom_of(self, cells: Ints, axis: int) -> Ints:
        """Return the atom of one axis in each of the given cells."""
        return np.unravel_index(cells, self.shape)[axis]
