"""What a person pays: integer functions on the cells of a public domain, and the maximum of their sum.

A cost is kept in units of 2^-50 of rho, so that sums are exact. Rounding happens once, upwards, when a
rho becomes units. The product of all columns is never formed: releases that speak of the same columns are
added up to one table (a class), and the maximum over cells of the sum of all classes is found by
eliminating one column after the other.
"""

from __future__ import annotations

import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from planner.basics.cache import BoundedCache
from planner.basics.limits import MAX_COST_TABLE

UNIT_BITS = 50
PARTS = 2**20
"""Into so many equal parts a cost is cut when several analysts pay for it."""

_SAFE = 2**62
"""Sums that stay below it can't overflow an int64."""

Ints = NDArray[np.int64]


def to_units(rho: Fraction) -> int:
    """Return rho in units of 2^-50, rounded up: what a release is charged.

    >>> to_units(Fraction(1, 2**51))
    1
    """
    return -((-_nonnegative(rho).numerator << UNIT_BITS) // rho.denominator)


def to_units_down(rho: Fraction) -> int:
    """Return rho in units of 2^-50, rounded down: what a cap allows."""
    return (_nonnegative(rho).numerator << UNIT_BITS) // rho.denominator


def rho_of(units: int) -> Fraction:
    """Return units * 2^-50, exactly."""
    return Fraction(units, 2**UNIT_BITS)


def _nonnegative(rho: Fraction) -> Fraction:
    if rho < 0:
        raise ValueError("rho must not be negative")
    return rho


@dataclass(frozen=True, eq=False)
class Cost:
    """A nonnegative integer function on cells, in units: values[atom of column 1, atom of column 2, ...].

    Args:
        scope: keys of the columns it depends on, unique; () for a constant.
        partitions: for each column of the scope the atom number of every value of its domain.
        values: shape (atoms of column 1, atoms of column 2, ...), entries from 0 to 2^62 - 1.
    """

    scope: tuple[str, ...]
    partitions: tuple[Ints, ...]
    values: Ints

    def __post_init__(self) -> None:
        object.__setattr__(self, "partitions", tuple(_frozen(partition) for partition in self.partitions))
        object.__setattr__(self, "values", _frozen(self.values))
        if len(set(self.scope)) != len(self.scope):
            raise ValueError("the columns of a cost must be unique")
        if not len(self.scope) == len(self.partitions) == self.values.ndim:
            raise ValueError(
                f"a cost on {len(self.scope)} columns has {len(self.partitions)} partitions "
                f"and values of shape {self.values.shape}"
            )
        for partition, atoms in zip(self.partitions, self.values.shape, strict=True):
            if partition.ndim != 1 or not partition.size or not 0 <= partition.min() <= partition.max() < atoms:
                raise ValueError(f"a partition must number the atoms of a domain from 0 to {atoms - 1}")

    @cached_property
    def highest(self) -> int:
        """The largest value: what the release costs by itself."""
        return int(self.values.max())

    def part(self, parts: int) -> Cost:
        """Return so many 2^-20ths of the cost, rounded up in every cell: parts that cover the whole cover its cost.

        >>> [int(constant(3).part(PARTS // 2).values), int(constant(2**61 + 1).part(PARTS).values) - 2**61]
        [2, 1]
        """
        if parts == PARTS:
            return self
        # values = high 2^20 + low, and high times parts is a whole number of units: nothing overflows.
        high, low = self.values >> 20, self.values & (PARTS - 1)
        return replace(self, values=high * parts - (-(low * parts) >> 20))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cost) and (
            self.scope == other.scope
            and all(map(np.array_equal, self.partitions, other.partitions))
            and np.array_equal(self.values, other.values)
        )

    def __hash__(self) -> int:
        return hash((self.scope, self.values.tobytes()))


def _frozen(numbers: NDArray[np.integer]) -> Ints:
    """Return a read-only copy as int64; entries must be integers from 0 to 2^62 - 1."""
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"a cost is made of integers, got {numbers.dtype}")
    if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < _SAFE:
        raise ValueError("the entries of a cost must lie between 0 and 2^62 - 1")
    copy = np.array(numbers, dtype=np.int64, order="C")
    copy.setflags(write=False)
    return copy


def constant(units: int) -> Cost:
    """Return the cost that every cell pays alike."""
    return Cost((), (), np.array(units))


EVEN_BITS = 24


def evened(cost: Cost, *, bits: int = EVEN_BITS) -> Cost:
    """Return the cost rounded up to 24 significant bits of its highest value: cells that pay alike pay the same.

    Rows that treat cells alike do so up to the rounding of their entries; without this a cost would depend on columns
    that do not matter.
    """
    shift = max(cost.highest.bit_length() - bits, 0)
    return simplified(replace(cost, values=-(-cost.values >> shift) << shift))


def simplified(cost: Cost) -> Cost:
    """Return the same function with sorted columns, the fewest atoms, and no column that does not matter.

    Atoms are numbered by their first appearance, so that equal functions become equal costs.
    """
    order = sorted(range(len(cost.scope)), key=lambda axis: cost.scope[axis])
    values = cost.values.transpose(order)
    numbered = [_numbered(cost.partitions[axis]) for axis in order]
    for axis, (_, first) in enumerate(numbered):
        atoms = cost.partitions[order[axis]][first]
        values = values.take(atoms, axis=axis)
    partitions = []
    for axis, (labels, _) in enumerate(numbered):
        merged, first = _numbered(_equal_slices(values, axis))
        values = values.take(first, axis=axis)
        partitions.append(merged[labels])
    kept = [axis for axis, atoms in enumerate(values.shape) if atoms > 1]
    return Cost(
        scope=tuple(cost.scope[order[axis]] for axis in kept),
        partitions=tuple(partitions[axis] for axis in kept),
        values=values.reshape([values.shape[axis] for axis in kept]),
    )


def _equal_slices(values: Ints, axis: int) -> Ints:
    """Return a number for every index along the axis, the same for exactly those with equal slices."""
    rows = np.ascontiguousarray(np.moveaxis(values, axis, 0)).reshape(values.shape[axis], -1)
    as_bytes = rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1])))
    return np.unique(as_bytes.ravel(), return_inverse=True)[1].astype(np.int64)


def _numbered(labels: Ints) -> tuple[Ints, Ints]:
    """Return the same partition numbered densely by first appearance, and where each atom first appears."""
    _, first, dense = np.unique(labels, return_index=True, return_inverse=True) if _sparse(labels) else _scan(labels)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[dense], first[order]


def _sparse(labels: Ints) -> bool:
    return bool(labels.max() > 4 * labels.size + 1024)


def _scan(labels: Ints) -> tuple[Ints, Ints, Ints]:
    """Return what np.unique would, without sorting: for labels that are not much larger than their number."""
    places = np.full(int(labels.max()) + 1, -1, dtype=np.int64)
    places[labels[::-1]] = np.arange(labels.size - 1, -1, -1)  # of equal labels the last written stays: the first
    present = np.flatnonzero(places >= 0)
    dense = np.zeros_like(places)
    dense[present] = np.arange(present.size)
    return present, places[present], dense[labels]


def to_bytes(cost: Cost) -> bytes:
    """Return a compact encoding, with runs in place of partitions; from_bytes gives the cost back."""
    runs = [_runs(partition) for partition in cost.partitions]
    head = {"scope": cost.scope, "shape": cost.values.shape, "runs": [len(lengths) for lengths, _ in runs]}
    arrays = [array for pair in runs for array in pair] + [cost.values.ravel()]
    body = b"".join(array.astype("<i8").tobytes() for array in arrays)
    return zlib.compress(json.dumps(head).encode() + b"\n" + body)


_READ = BoundedCache[Cost](16 * 2**20)
"""Costs that were read, by their bytes."""


def from_bytes(encoded: bytes) -> Cost:
    """Return the cost that to_bytes encoded; anything else is a ValueError."""
    found = _READ.get(encoded)
    if found is None:
        found = _read(encoded)
        _READ.put(encoded, found, len(encoded) + found.values.nbytes + sum(p.nbytes for p in found.partitions))
    return found


def _read(encoded: bytes) -> Cost:
    try:
        head, _, body = zlib.decompress(encoded).partition(b"\n")
        fields = json.loads(head)
        scope, shape, runs = tuple(fields["scope"]), tuple(fields["shape"]), fields["runs"]
        numbers, partitions = np.frombuffer(body, dtype="<i8"), []
        for count in runs:
            lengths, atoms, numbers = numbers[:count], numbers[count : 2 * count], numbers[2 * count :]
            partitions.append(np.repeat(atoms, lengths))
        return Cost(scope, tuple(partitions), numbers.reshape(shape))
    except (zlib.error, KeyError, TypeError, ValueError) as error:
        raise ValueError("the bytes do not encode a cost") from error


def _runs(partition: Ints) -> tuple[Ints, Ints]:
    """Return the lengths and the atoms of the runs of equal atoms."""
    starts = np.flatnonzero(np.diff(partition, prepend=-1))
    return np.diff(starts, append=partition.size), partition[starts]


@dataclass(frozen=True, eq=False)
class _Column:
    """The atoms that all costs of a table together distinguish on one column."""

    labels: Ints  # atom of every value of the domain
    first: Ints  # a value of the domain in every atom

    @property
    def atoms(self) -> int:
        return len(self.first)


@dataclass(frozen=True, eq=False)
class _Factor:
    """A sum of costs with one sorted scope; its labels map the atoms of a column to its own, coarser ones."""

    scope: tuple[str, ...]
    labels: tuple[Ints, ...]
    values: Ints

    @cached_property
    def highest(self) -> int:
        return int(self.values.max())


@dataclass(frozen=True, eq=False)
class _Sum:
    """Costs added up: what all cells pay alike, the atoms of each column, and the factors of each scope."""

    constant: int = 0
    columns: Mapping[str, _Column] = field(default_factory=dict)
    classes: Mapping[tuple[str, ...], tuple[_Factor, ...]] = field(default_factory=dict)

    def plus(self, costs: Sequence[Cost], *, limit: int) -> _Sum:
        """Return the sum with more costs, quick for many at once: each column is cut and each table formed once."""
        columns, scopes = dict(self.columns), defaultdict(list)
        for cost in costs:
            for column, partition in zip(cost.scope, cost.partitions, strict=True):
                columns[column] = _refined(columns.get(column), partition)
        for cost in costs:
            if cost.scope:
                factor = _factor(cost, columns)
                scopes[factor.scope].append(factor)
        classes = self._reindexed(columns)
        for scope, factors in scopes.items():
            members = classes.get(scope, ())
            classes[scope] = (*members[:-1], *_pooled([*members[-1:], *factors], limit=limit))
        constant = self.constant + sum(cost.highest for cost in costs if not cost.scope)
        return _Sum(constant, columns, classes)

    def _reindexed(self, columns: Mapping[str, _Column]) -> dict[tuple[str, ...], tuple[_Factor, ...]]:
        """Return the classes with labels on the new columns."""
        parents = {
            name: column.labels[columns[name].first]
            for name, column in self.columns.items()
            if column is not columns[name]
        }
        if not parents:
            return dict(self.classes)
        return {scope: tuple(_relabelled(f, parents) for f in members) for scope, members in self.classes.items()}


@dataclass(frozen=True, eq=False)
class Spending:
    """The sum of the costs of all releases on one table; plus() returns the next one.

    Costs are added up when the dearest cell is asked for, all that are new together.

    Guarantee: dearest is at least the maximum over all cells of the product domain of the sum of all
    costs added, and equal to it while no table of more than `limit` entries is needed to find it.
    """

    limit: int = MAX_COST_TABLE
    _before: _Sum = field(default_factory=_Sum)
    _new: tuple[Cost, ...] = ()
    _sizes: Mapping[str, int] = field(default_factory=dict)
    _bound: int = 0

    @property
    def bound(self) -> int:
        """What the dearest cell has paid at most, in units, found without a search: as if all new costs met in it."""
        found: int = self.__dict__.get("dearest", self._bound)
        return found

    def plus(self, *costs: Cost) -> Spending:
        """Return the spending with more costs; quick when they are simplified. ValueError if one does not fit."""
        sizes = dict(self._sizes)
        for cost in costs:
            for column, partition in zip(cost.scope, cost.partitions, strict=True):
                size = sizes.setdefault(column, partition.size)
                if size != partition.size:
                    raise ValueError(f"column {column} has {size} values, a cost has {partition.size}")
        known: _Sum | None = self.__dict__.get("_sum")
        before, new = (self._before, self._new) if known is None else (known, ())
        bound = self.bound + sum(cost.highest for cost in costs)
        return Spending(self.limit, before, (*new, *costs), sizes, bound)

    @cached_property
    def _sum(self) -> _Sum:
        return self._before.plus(self._new, limit=self.limit)

    @cached_property
    def dearest(self) -> int:
        """What the dearest cell has paid, in units, or an upper bound where that would take too long."""
        factors = [factor for members in self._sum.classes.values() for factor in members]
        atoms = {name: column.atoms for name, column in self._sum.columns.items()}
        return self._sum.constant + _maximum(factors, atoms=atoms, limit=self.limit)


def dearest(costs: Iterable[Cost], *, limit: int = MAX_COST_TABLE) -> int:
    """Return the maximum over all cells of the sum of the costs, or an upper bound: see Spending."""
    return Spending(limit=limit).plus(*costs).dearest


def _refined(known: _Column | None, labels: Ints) -> _Column:
    """Return a column cut along the labels as well; the same object if it already is."""
    if known is None:
        return _Column(*_numbered(labels))
    if np.array_equal(labels[known.first][known.labels], labels):
        return known
    return _Column(*_numbered(_crossed(known.labels, labels)))


def _factor(cost: Cost, columns: Mapping[str, _Column]) -> _Factor:
    """Return the cost as a factor on the atoms of the columns, which refine its own."""
    order = sorted(range(len(cost.scope)), key=lambda axis: cost.scope[axis])
    names = tuple(cost.scope[axis] for axis in order)
    labels = [cost.partitions[axis][columns[cost.scope[axis]].first] for axis in order]
    values = cost.values.transpose(order)
    for axis, own in enumerate(labels):
        if not _is_numbered(own, values.shape[axis]):
            labels[axis], first = _numbered(own)
            values = values.take(own[first], axis=axis)
    return _Factor(names, tuple(labels), values)


def _is_numbered(labels: Ints, atoms: int) -> bool:
    """Return whether so many atoms are numbered by their first appearance, as those of a simplified cost are."""
    highest = np.maximum.accumulate(labels)
    return bool(labels[0] == 0 and highest[-1] == atoms - 1 and (labels[1:] <= highest[:-1] + 1).all())


def _relabelled(factor: _Factor, parents: Mapping[str, Ints]) -> _Factor:
    if parents.keys().isdisjoint(factor.scope):
        return factor
    pairs = zip(factor.scope, factor.labels, strict=True)
    return replace(factor, labels=tuple(labels[parents[c]] if c in parents else labels for c, labels in pairs))


def _crossed(left: Ints, right: Ints) -> Ints:
    """Return labels that are equal exactly where both are equal, not densely numbered."""
    return left * (int(right.max()) + 1) + right


_Frame = dict[str, _Column]
"""The columns of a table that is to be formed, cut as it needs them."""


def _framed(frame: _Frame, factor: _Factor) -> _Frame:
    """Return the frame refined so that the factor is constant on its cells."""
    pairs = zip(factor.scope, factor.labels, strict=True)
    return frame | {column: _refined(frame.get(column), labels) for column, labels in pairs}


def _entries(frame: _Frame) -> int:
    return math.prod(column.atoms for column in frame.values())


def _pooled(factors: Sequence[_Factor], *, limit: int) -> list[_Factor]:
    """Return fewer factors with the same sum, joined while tables stay within the limit and below 2^62."""
    pools: list[tuple[list[_Factor], _Frame, int]] = []
    for factor in factors:
        for place, (members, frame, highest) in enumerate(pools):
            wider = _framed(frame, factor)
            fits = _entries(wider) <= max(limit, _entries(frame))
            if fits and highest + factor.highest < _SAFE:
                members.append(factor)
                pools[place] = (members, wider, highest + factor.highest)
                break
        else:
            pools.append(([factor], _framed({}, factor), factor.highest))
    return [_joined(members, frame) for members, frame, _ in pools]


def _joined(members: list[_Factor], frame: _Frame) -> _Factor:
    """Return the sum of the factors as one table on the frame."""
    if len(members) == 1:
        return members[0]
    scope = tuple(sorted(frame))
    values: Ints = np.zeros([1] * len(scope), dtype=np.int64)
    for member in sorted(members, key=lambda f: f.values.size):  # small ones first, so that few sums are large
        pairs = zip(member.scope, member.labels, strict=True)
        table = member.values[np.ix_(*(labels[frame[column].first] for column, labels in pairs))]
        values = values + table.reshape([frame[c].atoms if c in member.scope else 1 for c in scope])
    return _Factor(scope, tuple(frame[column].labels for column in scope), values)


def _maximum(factors: Sequence[_Factor], *, atoms: Mapping[str, int], limit: int) -> int:
    """Return the maximum of the sum of the factors, by eliminating columns: the narrowest join first.

    Where the join of all factors on a column would pass the limit, it is split into several and the
    maxima of the parts are added: max(f + g) <= max f + max g, so the result is never too small.
    """
    total = 0
    while factors:
        columns = sorted({c for factor in factors for c in factor.scope})
        column = min(columns, key=lambda c: _width(c, factors, atoms))
        bucket = sorted((f for f in factors if column in f.scope), key=lambda f: -f.values.size)
        messages = [_without(column, factor) for factor in _pooled(bucket, limit=limit)]
        total += sum(message.highest for message in messages if not message.scope)
        factors = [f for f in factors if column not in f.scope] + [m for m in messages if m.scope]
    return total


def _width(column: str, factors: Sequence[_Factor], atoms: Mapping[str, int]) -> tuple[int, int]:
    """Return bounds on the entries of the join of all factors on the column, and of what is left of it."""
    joined = {c for factor in factors if column in factor.scope for c in factor.scope}
    entries = math.prod(atoms[c] for c in joined)
    return entries, entries // atoms[column]


def _without(column: str, factor: _Factor) -> _Factor:
    """Return the maximum of the factor over one of its columns."""
    axis = factor.scope.index(column)
    scope, labels = list(factor.scope), list(factor.labels)
    del scope[axis], labels[axis]
    return _Factor(tuple(scope), tuple(labels), factor.values.max(axis=axis))
