"""The only module that ever holds x, the true data vector: it reads sources, adds exact noise, returns releases.

Guarantee: what leaves a public function of this module is the output of a mechanism whose cost on every cell is
the one computed for the same arguments by planner.linear.cost, planner.marginal or planner.nonlinear. No branch,
retry or error depends on the values read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms import helmert, sampling, selection
from mechanisms.helmert import Rows
from mechanisms.marginals import Subset
from planner.errors import SourceFailed
from planner.ledger import Ledger
from planner.linear import Integers, Measurement, Question
from planner.policy import Table
from planner.sources import Tally, open_source
from planner.workspace import Axis, Feature, Ints, Workspace

CACHE_ENTRIES = 8_000_000
"""How many numbers the cache of data vectors may hold."""

MAX_ROWS_BITS = 40
"""A table is taken to have at most 2^40 rows: arithmetic that could pass 63 bits then uses Python integers."""


class Meter:
    """Measures one protected table. Keeps its data vectors for the current version of the data."""

    def __init__(self, table: Table, ledger: Ledger) -> None:
        self.table, self._ledger = table, ledger
        self._source = open_source(table)
        self._cache: OrderedDict[int, Tally] = OrderedDict()
        self._lock = threading.Lock()
        self._version = 0

    def version(self) -> int:
        """Return the version of the data, refusing if the source changed without a refresh."""
        name, now = self.table.name, self._source.fingerprint()
        recorded = self._ledger.fingerprint(name) or self._ledger.claim(name, now)
        if recorded != now:
            raise SourceFailed(
                f"the source of table {self.table.name} changed since it was first read",
                hint="run `noisegate refresh`: earlier answers stop being reused, and stay charged",
            )
        return self._ledger.version(self.table.name)

    def refresh(self) -> int:
        """Start a new version of the data."""
        with self._lock:
            self._cache.clear()
        return self._ledger.refresh(self.table.name, self._source.fingerprint())

    def linear(self, question: Question, measurement: Measurement) -> list[list[int]]:
        """Return B x + round(N(0, 4^bits)) for each group: shape (groups, r)."""
        x = self._vector(question.workspace, question.features)
        B = measurement.rows(question)
        kind: Any = np.int64 if _bits(B) + _data_bits(question) < 63 else object
        at_places = x[question.cell].astype(kind)
        exact = np.zeros((question.groups, len(B)), dtype=object)
        order = np.argsort(question.group, kind="stable")
        starts = np.flatnonzero(np.diff(question.group[order], prepend=-1))
        for j, row in enumerate(B):
            products = (row.astype(kind)[question.pattern] * at_places).sum(axis=1)[order]
            if len(starts):
                exact[question.group[order][starts], j] = np.add.reduceat(products, starts)
        noise = sampling.rounded_gaussian(exact.size, bits=measurement.bits).reshape(exact.shape)
        return [
            [int(value) + int(draw) for value, draw in zip(*pair, strict=True)]
            for pair in zip(exact, noise, strict=True)
        ]

    def helmert(self, workspace: Workspace, made: Sequence[Rows]) -> list[list[int]]:
        """Return k (r x) + round(N(0, 4^bits)) for all Helmert rows r of each part, k = ceil(scale / |r|).

        Guarantee: k (r x) is computed exactly, so each number is a rounding of a Gaussian around it, and what is
        returned costs a record in any cell at most the sum of the parts' `Rows.profile` / 2 of rho.
        """
        found: list[list[int]] = []
        marginals = {A: self._marginal(workspace, A) for A in _largest([rows.A for rows in made])}
        for rows in made:
            whole = next(A for A in marginals if set(rows.A) <= set(A))
            others = tuple(place for place, i in enumerate(whole) if i not in rows.A)
            x = np.asarray(marginals[whole].sum(axis=others))  # of Python integers, one sum is no array
            fits = MAX_ROWS_BITS + sum(n.bit_length() for n in x.shape) < 63
            exact = helmert.coefficients(np.asarray(x, dtype=np.int64 if fits else object)).ravel().tolist()
            multipliers = rows.multipliers(x.shape).ravel().tolist()
            noise = sampling.rounded_gaussian(len(exact), bits=rows.bits).tolist()
            found.append([int(k) * t + z for k, t, z in zip(multipliers, exact, noise, strict=True)])
        return found

    def distinct(
        self,
        workspace: Workspace,
        *,
        cell: Ints,
        group: Ints,
        groups: int,
        label: Ints,
        scale: int,
        bits: int,
    ) -> list[list[int]]:
        """Return scale * (number of labels present) + round(N(0, 4^bits)) for each group; shape (groups, 1).

        A label below 0 does not count. One row changes the number of one group by at most 1.
        """
        x = self._vector(workspace, ())[:, 0]
        present = label >= 0
        pairs = group[present] * (int(label.max(initial=0)) + 1) + label[present]
        values, inverse = np.unique(pairs, return_inverse=True)
        totals = np.zeros(len(values), dtype=np.int64)
        np.add.at(totals, inverse.ravel(), x[cell[present]])
        found = values[totals > 0] // (int(label.max(initial=0)) + 1)
        return self._noisy(np.bincount(found, minlength=groups), scale=scale, bits=bits)

    def units(
        self, workspace: Workspace, *, cell: Ints, group: Ints, groups: int, scale: int, bits: int
    ) -> list[list[int]]:
        """Return scale * (number of units) + round(N(0, 4^bits)) for each group; shape (groups, 1)."""
        before = self._source.fingerprint()
        counts = self._source.units(workspace, cell=cell, group=group, groups=groups)
        self._unchanged(before)
        return self._noisy(counts, scale=scale, bits=bits)

    def quantiles(
        self,
        workspace: Workspace,
        *,
        cell: Ints,
        group: Ints,
        groups: int,
        label: Ints,
        size: int,
        p: Fraction,
        draws: Sequence[tuple[Fraction, Fraction]],
    ) -> list[list[int]]:
        """Return for each group and each (epsilon, offset) of `draws` the chosen one of `size` ordered labels."""
        x = self._vector(workspace, ())[:, 0]
        present = label >= 0
        histogram = np.zeros((groups, size), dtype=np.int64)
        np.add.at(histogram, (group[present], label[present]), x[cell[present]])
        rows = self.table.max_rows_per_unit
        return [
            [selection.quantile(row, p=p, epsilon=epsilon, offset=offset, rows=rows) for epsilon, offset in draws]
            for row in histogram
        ]

    def _noisy(self, counts: NDArray[np.int64], *, scale: int, bits: int) -> list[list[int]]:
        noise = sampling.rounded_gaussian(len(counts), bits=bits)
        return [[scale * int(count) + int(draw)] for count, draw in zip(counts, noise, strict=True)]

    # Data vectors.

    def _marginal(self, workspace: Workspace, A: Subset) -> Integers:
        """Return x summed over all axes but A, shape (n_i for i in A)."""
        small = Workspace(workspace.table, tuple(workspace.axes[i] for i in A))
        return self._vector(small, ())[:, 0].reshape(small.shape)

    def _vector(self, workspace: Workspace, features: Sequence[Feature]) -> Integers:
        """Return x on the cells of a workspace, shape (cells, 1 + features); from the cache if it can be."""
        before, version = self._source.fingerprint(), self.version()
        with self._lock:
            if version != self._version:
                self._cache.clear()
                self._version = version
            tally = next((t for t in reversed(self._cache.values()) if _serves(t, workspace, features)), None)
        if tally is None:
            tally = self._source.tally(workspace.axes, features)
            self._unchanged(before)
            self._keep(tally)
        return _rolled_up(tally, workspace, features)

    def _unchanged(self, before: str) -> None:
        if self._source.fingerprint() != before:
            raise SourceFailed(f"the source of table {self.table.name} changed while it was read", hint="ask again")

    def _keep(self, tally: Tally) -> None:
        with self._lock:
            self._cache[id(tally)] = tally
            while sum(t.codes.size + t.sums.size for t in self._cache.values()) > CACHE_ENTRIES:
                self._cache.popitem(last=False)

    def close(self) -> None:
        self._cache.clear()
        self._source.close()


def _largest(parts: Sequence[Subset]) -> list[Subset]:
    """Return parts that no other of those returned contains, and that contain all others."""
    found: list[Subset] = []
    for A in sorted(parts, key=len, reverse=True):
        if not any(set(A) <= set(B) for B in found):
            found.append(A)
    return found


def _data_bits(question: Question) -> int:
    """Return a bound on the bits of the sum, over features and places, of what is multiplied with a row of B."""
    tops = [
        power * int(question.high[:, i].max(initial=0)).bit_length() for i, (_, power) in enumerate(question.features)
    ]
    matches = int(np.bincount(question.cell).max(initial=1))  # a row counts so many times, through a public join
    return max(tops, default=0) + len(question.features).bit_length() + matches.bit_length() + MAX_ROWS_BITS


def _bits(array: Integers) -> int:
    return max((abs(int(value)).bit_length() for value in array.ravel()), default=0)


def _serves(tally: Tally, workspace: Workspace, features: Sequence[Feature]) -> bool:
    known = all(axis.column in tally.columns for axis in workspace.axes) and set(features) <= set(tally.features)
    return known and all(_finer(tally, axis) is not None for axis in workspace.axes)


def _finer(tally: Tally, axis: Axis) -> Ints | None:
    """Return the atom of each code of a tally's column, or None if its codes do not determine the atom."""
    partition = tally.partitions[tally.columns.index(axis.column)]
    if len(partition) != len(axis.atoms):
        return None
    atoms = np.zeros(int(partition.max()) + 1, dtype=np.int64)
    atoms[partition] = axis.atoms
    return atoms if np.array_equal(atoms[partition], axis.atoms) else None


def _rolled_up(tally: Tally, workspace: Workspace, features: Sequence[Feature]) -> Integers:
    cell = np.zeros(len(tally.codes), dtype=np.int64)
    for axis in workspace.axes:
        atoms = _finer(tally, axis)
        assert atoms is not None
        cell = cell * axis.size + atoms[tally.codes[:, tally.columns.index(axis.column)]]
    wanted = [0, *(1 + tally.features.index(feature) for feature in features)]
    x = np.zeros((workspace.cells, len(wanted)), dtype=tally.sums.dtype)
    np.add.at(x, cell, tally.sums[:, wanted])
    return x
