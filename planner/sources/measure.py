"""The only module that ever holds x, the true data vector: it reads sources, adds exact noise, returns releases.

Guarantee: what leaves a public function of this module is the output of a mechanism whose cost on every cell is
the one computed for the same arguments by planner.questions.linear.cost, planner.plans.marginals or
planner.questions.labelled. No branch, retry or error depends on the values read.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.deciders import claims, deciders
from mechanisms.deciders.claims import Buckets, Histogram, Ranks, Totals
from mechanisms.deciders.deciders import Decider
from mechanisms.least import marginals as helmert
from mechanisms.least.marginals import Rows, Subset
from mechanisms.noise import sampling, selection
from planner.basics.errors import SourceFailed
from planner.basics.limits import CACHE_ENTRIES, ROW_BITS
from planner.cells.workspace import Axis, Feature, Ints, Workspace
from planner.counting.tally import Cut, Tally
from planner.duck.reader import Reader
from planner.ledger.accounts import Edition, Reading
from planner.ledger.ledger import Ledger, source_changed
from planner.policy.table import Table
from planner.questions.linear import Integers, Measurement, Question
from planner.questions.statistic import Asked, Ranked, Summed
from planner.sources.source import open_source

Vector = Callable[[Workspace, Sequence[Feature]], Integers]
Scan = Callable[[Sequence[Axis], Sequence[Feature], Cut | None, Sequence[Ints]], Tally]


class Exact:
    """Statistics of one relation, without noise.

    Of a protected table they go into `deciders.decide`, inside its Meter, and nowhere else. Those of a synthetic
    table are public; both are read by the same code.
    """

    def __init__(self, vector: Vector, scan: Scan) -> None:
        self._vector, self._scan = vector, scan

    @classmethod
    def of(cls, reader: Reader) -> Exact:
        """Return the statistics of a public relation."""

        def vector(workspace: Workspace, features: Sequence[Feature]) -> Integers:
            return _rolled_up(reader.tally(workspace.axes, features), workspace, features)

        return cls(vector, reader.tally)

    def statistics(self, asked: Asked, wanted: Mapping[int, Decider]) -> dict[int, Any]:
        """Return what each group's decider looks at, from one scan of the rows."""
        if isinstance(asked, Ranked):
            histograms = self.histograms(asked)
            return {
                group: claims.ranks_of(histograms[group], decider.claim)
                if decider.statistics is Ranks
                else histograms[group]
                for group, decider in wanted.items()
            }
        if not any(decider.statistics is Buckets for decider in wanted.values()):
            found = self.totals(asked)
            return {g: found[g] if decider.statistics is Totals else found[g].sum for g, decider in wanted.items()}
        buckets = self.buckets(asked)
        return {g: buckets[g] if d.statistics is Buckets else buckets[g].total for g, d in wanted.items()}

    def totals(self, asked: Summed) -> list[Totals]:
        """Return the sum, and unless only that is asked the number, of the values of each group."""
        x = self._vector(asked.question.workspace, asked.question.features)
        return [Totals(*asked.total(row)) for row in _summed(asked.question, asked.question.E, x).tolist()]

    def histograms(self, asked: Asked) -> list[Histogram]:
        """Return the values of each group."""
        if isinstance(asked, Ranked):
            q = asked.question
            x = self._vector(q.workspace, ())[:, 0]
            counts = _histogram(x, cell=q.cell, group=q.group, groups=q.groups, label=q.label, size=q.size)
            return [Histogram(asked.values[row > 0], row[row > 0]) for row in counts]
        found: list[dict[int, int]] = [{} for _ in range(asked.groups)]
        cut = Cut(asked.columns[0]) if asked.columns else None
        for group, value, rows, _ in self._added(asked, cut):
            found[group][value] = found[group].get(value, 0) + rows
        return [_as_histogram(values) for values in found]

    def buckets(self, asked: Summed) -> list[Buckets]:
        """Return number and sum of the values of every magnitude, in each group."""
        size = claims.buckets_for(asked.most)
        counts = np.zeros((asked.groups, size), dtype=object)
        sums = np.zeros((asked.groups, size), dtype=object)
        for group, value, rows, total in self._added(asked, asked.cut):
            place = max(0, abs(value) - 1).bit_length()
            counts[group, place] += rows
            sums[group, place] += total
        return [Buckets(tuple(n), tuple(t)) for n, t in zip(counts.tolist(), sums.tolist(), strict=True)]

    def _added(self, asked: Summed, cut: Cut | None) -> Iterator[tuple[int, int, int, int]]:
        """Yield what rows add, range by range: their group, a value among theirs, their number and their sum."""
        question, workspace = asked.question, asked.question.workspace
        place_of = np.full(workspace.cells, -1)
        place_of[question.cell] = np.arange(len(question.cell))
        wanted = [np.unique(workspace.atom_of(question.cell, i)) for i in range(len(workspace.axes))]
        tally = self._scan(workspace.axes, () if cut is None else ((cut.column, 1),), cut, wanted)
        ranges = np.zeros(len(tally.codes), dtype=np.int64) if tally.ranges is None else tally.ranges
        lines = [asked.affine(pattern) for pattern in range(len(asked.present))]
        places = place_of[_cells_of(tally, workspace)]
        for i in np.flatnonzero(places >= 0):
            place, sums = places[i], tally.sums[i]
            if not asked.present[question.pattern[place]]:
                continue
            constant, slope = lines[question.pattern[place]]
            rows, u = int(sums[0]), int(sums[1]) if cut is not None else 0
            first = 0 if cut is None else cut.first(int(ranges[i]))
            yield int(question.group[place]), constant + slope * first, rows, constant * rows + slope * u


def _as_histogram(values: dict[int, int]) -> Histogram:
    ordered = sorted(values)
    return Histogram(np.array(ordered, np.int64), np.array([values[value] for value in ordered], np.int64))


class _Tallies:
    """Tallies of one table's current version, each with the reading that it is from. Threads may share it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Tally, Reading]] = OrderedDict()
        self._lock = threading.Lock()
        self._version = 0

    def serving(
        self, version: int, fingerprint: str | None, workspace: Workspace, features: Sequence[Feature]
    ) -> tuple[Tally, Reading] | None:
        """Return a tally of a version, of the source with this fingerprint, that is fine enough; None if there is none.

        From now on tallies of this version are kept.
        """
        with self._lock:
            if version != self._version:
                self._kept.clear()
                self._version = version
            found = [kept for kept in reversed(self._kept.values()) if kept[1].fingerprint == fingerprint]
            return next((kept for kept in found if _serves(kept[0], workspace, features)), None)

    def put(self, tally: Tally, reading: Reading) -> None:
        with self._lock:
            if reading.version != self._version:  # refreshed meanwhile, and another thread has seen it
                return
            self._kept[id(tally)] = tally, reading
            while sum(t.codes.size + t.sums.size for t, _ in self._kept.values()) > CACHE_ENTRIES:
                self._kept.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


class Meter:
    """Measures one protected table. Keeps its data vectors for the current version of the data."""

    def __init__(self, table: Table, ledger: Ledger) -> None:
        self.table, self._ledger = table, ledger
        self._source = open_source(table)
        self._kept = _Tallies()
        self._edition: Edition | None = None
        self._seen: dict[Reading, None] = {}
        self._exact = Exact(self._vector, self._scanned)

    def at(self, edition: Edition) -> Meter:
        """Return a meter of the same table that measures this version of its data, and notes what it reads."""
        found = copy(self)
        found._edition, found._seen, found._exact = edition, {}, Exact(found._vector, found._scanned)
        return found

    @property
    def readings(self) -> list[Reading]:
        """Return what was read so far, for the commit to compare with what others have read in the same version."""
        return list(self._seen)

    def version(self) -> int:
        """Return the version of the data, refusing if the source changed without a refresh."""
        return self._now()[0]

    def _now(self) -> tuple[int, str | None]:
        """Return the same with the fingerprint that the source has now."""
        edition = self._edition or self._ledger.snapshot().edition(self.table.name)
        now = self._source.fingerprint()
        if now and edition.fingerprint and now != edition.fingerprint:
            raise source_changed(self.table.name)
        return edition.version, now

    @contextmanager
    def _reading(self) -> Iterator[Reading]:
        """Hold the rows, and give what they are; refuse if they changed meanwhile.

        Guarantee: whatever gates store about one version, they read the same rows: the commit compares what they
        read. A fingerprint may be late to tell that rows changed; the reading itself is not.
        """
        version, before = self._now()
        with self._source.reading() as rows:
            found = Reading(self.table.name, version, before, rows)
            yield found
        if self._source.fingerprint() != before:
            raise SourceFailed(f"the source of table {self.table.name} changed while it was read", hint="ask again")
        self._seen[found] = None

    def refresh(self) -> int:
        """Start a new version of the data."""
        now = self._source.fingerprint()
        if now is None:
            raise SourceFailed(f"table {self.table.name} is not here", hint="refresh it at a gate that reads it")
        self._kept.clear()
        return self._ledger.refresh(self.table.name, now)

    def linear(self, question: Question, measurement: Measurement) -> list[list[int]]:
        """Return B x + round(N(0, 4^bits)) for each group: shape (groups, r)."""
        x = self._vector(question.workspace, question.features)
        exact = _summed(question, measurement.rows(question), x)
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
            fits = ROW_BITS + sum(n.bit_length() for n in x.shape) < 63
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
        with self._reading():
            counts = self._source.units(workspace, cell=cell, group=group, groups=groups)
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
        histogram = _histogram(x, cell=cell, group=group, groups=groups, label=label, size=size)
        rows = self.table.max_rows_per_unit
        return [
            [selection.quantile(row, p=p, epsilon=epsilon, offset=offset, rows=rows) for epsilon, offset in draws]
            for row in histogram
        ]

    def decisions(self, asked: Asked, wanted: Mapping[int, Decider]) -> dict[int, bool]:
        """Return the decision of each group that has a decider. Reads the source once, whatever the deciders.

        Guarantee: for tables that differ by one unit of at most k rows, of which m_g are in group g, the decision of
        group g costs at most m_g / k times its decider's rho; a decider's rho as a function of epsilon grows at
        least in proportion, and a unit's rows are in at most k groups.
        """
        found = self._exact.statistics(asked, wanted)
        return {group: deciders.decide(decider, found[group]) for group, decider in wanted.items()}

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
        kept = self._kept.serving(*self._now(), workspace, features)
        if kept is None:
            with self._reading() as reading:
                tally = self._source.tally(workspace.axes, features)
            self._kept.put(tally, reading)
        else:
            tally, reading = kept
            self._seen[reading] = None
        return _rolled_up(tally, workspace, features)

    def _scanned(
        self, axes: Sequence[Axis], features: Sequence[Feature], cut: Cut | None, wanted: Sequence[Ints]
    ) -> Tally:
        """Return a tally of rows in the wanted atoms; it is not kept."""
        with self._reading():
            return self._source.tally(axes, features, cut, wanted)

    def close(self) -> None:
        self._kept.clear()
        self._source.close()


def _largest(parts: Sequence[Subset]) -> list[Subset]:
    """Return parts that no other of those returned contains, and that contain all others."""
    found: list[Subset] = []
    for A in sorted(parts, key=len, reverse=True):
        if not any(set(A) <= set(B) for B in found):
            found.append(A)
    return found


def _summed(question: Question, B: Integers, x: Integers) -> Integers:
    """Return B x for each group, exactly: shape (groups, r)."""
    kind: Any = np.int64 if _bits(B) + _data_bits(question) < 63 else object
    at_places = x[question.cell].astype(kind)
    exact = np.zeros((question.groups, len(B)), dtype=object)
    order = np.argsort(question.group, kind="stable")
    starts = np.flatnonzero(np.diff(question.group[order], prepend=-1))
    for j, row in enumerate(B):
        products = (row.astype(kind)[question.pattern] * at_places).sum(axis=1)[order]
        if len(starts):
            exact[question.group[order][starts], j] = np.add.reduceat(products, starts)
    return exact


def _histogram(x: Integers, *, cell: Ints, group: Ints, groups: int, label: Ints, size: int) -> Ints:
    """Return how many rows of each group have each label: shape (groups, size)."""
    present = label >= 0
    found = np.zeros((groups, size), dtype=np.int64)
    np.add.at(found, (group[present], label[present]), x[cell[present]])
    return found


def _data_bits(question: Question) -> int:
    """Return a bound on the bits of the sum, over features and places, of what is multiplied with a row of B."""
    tops = [
        power * int(question.high[:, i].max(initial=0)).bit_length() for i, (_, power) in enumerate(question.features)
    ]
    matches = int(np.bincount(question.cell).max(initial=1))  # a row counts so many times, through a public join
    return max(tops, default=0) + len(question.features).bit_length() + matches.bit_length() + ROW_BITS


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


def _cells_of(tally: Tally, workspace: Workspace) -> Ints:
    """Return the cell of each combination of codes."""
    cell = np.zeros(len(tally.codes), dtype=np.int64)
    for axis in workspace.axes:
        atoms = _finer(tally, axis)
        assert atoms is not None
        cell = cell * axis.size + atoms[tally.codes[:, tally.columns.index(axis.column)]]
    return cell


def _rolled_up(tally: Tally, workspace: Workspace, features: Sequence[Feature]) -> Integers:
    cell = _cells_of(tally, workspace)
    wanted = [0, *(1 + tally.features.index(feature) for feature in features)]
    x = np.zeros((workspace.cells, len(wanted)), dtype=tally.sums.dtype)
    np.add.at(x, cell, tally.sums[:, wanted])
    return x
