"""Charts: workspaces on which questions and earlier releases meet, as rows of one matrix.

A chart is fine enough for everything that is brought onto it: a refined cell has the column of the cell it came
from, a column of the table that a release does not know is passed over. Its points are what one record can add:
a cell, and in it one end of the range of each measured column. Where the range is a single value both ends are
the same, so that there a sum is a multiple of the count by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.basics.cache import BoundedCache
from planner.basics.limits import MAX_RANGE
from planner.cells.workspace import Axis, Feature, Floats, Ints, Workspace
from planner.ledger.accounts import Stored
from planner.policy.table import Table
from planner.questions import body as bodies
from planner.questions.linear import Integers, Measurement, Question, corners

COUNT_BITS, SUM_BITS = 46, 58
"""Rows of a residual are rounded to multiples of 2^-46 of the noise, 2^-58 where grid indices are summed or where the
noise is so large that less would be a large part of a row."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence:
    """Rows that were released, in units of their noise, and what they told.

    Place i lies in cell `cell[i]`, group `group[i]` and pattern `pattern[i]`; row j of group g is weight[g] times
    the sum over its places of rows[j, pattern, :] times the features of the records there, and told y[g, j].
    """

    id: int
    question: str  # digest of the question that it was released for
    workspace: Workspace
    features: tuple[Feature, ...]
    cell: Ints
    group: Ints
    groups: int
    pattern: Ints
    rows: Floats  # (r, S, Q)
    weight: Floats  # (groups,)
    y: Floats  # (groups, r)
    also: frozenset[str] = frozenset()  # digests of other questions that it was released for
    form: str = ""  # the same for all releases that differ in rows and y alone

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(axis.column for axis in self.workspace.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the numbers of patterns and features of each row."""
        return self.rows.shape[1:]

    @property
    def nbytes(self) -> int:
        """Return how many bytes its numbers take."""
        return sum(each.nbytes for each in (self.cell, self.group, self.pattern, self.rows, self.weight, self.y))

    @property
    def whole(self) -> Evidence:
        return self


@dataclass(frozen=True, eq=False, kw_only=True)
class Shelved:
    """Evidence without its numbers, which lie in the ledger until they are wanted: of most releases they never are."""

    id: int
    question: str
    workspace: Workspace
    features: tuple[Feature, ...]
    groups: int
    shape: tuple[int, ...]
    also: frozenset[str]
    form: str
    load: Callable[[], Evidence]

    @cached_property
    def columns(self) -> frozenset[str]:
        return frozenset(axis.column for axis in self.workspace.axes)

    @property
    def whole(self) -> Evidence:
        return self.load()


def shelved(found: Evidence, load: Callable[[], Evidence]) -> Shelved:
    """Return evidence without its numbers, which `load` gives again."""
    return Shelved(
        id=found.id,
        question=found.question,
        workspace=found.workspace,
        features=found.features,
        groups=found.groups,
        shape=found.shape,
        also=found.also,
        form=found.form,
        load=load,
    )


Brought = Evidence | Shelved

FORMS_BYTES = 8 * 2**20
"""About how many bytes of forms of releases are kept for others of the same form."""

Forms = BoundedCache[tuple[Evidence | None]]
"""By form, what releases of it have in common; None where that can't be shared."""


def evidence(release: Stored, table: Table, forms: Forms) -> Evidence | None:
    """Return what a linear release tells; None if it can't be shared or if domains changed."""
    form, body = bodies.form(release)
    known = forms.get(form)
    if known is None:
        known = (_first_of(release, table, body),)
        forms.put(form, known, 0 if known[0] is None else known[0].nbytes)
    found = known[0]
    if found is None:
        return None
    rows, y = bodies.rows(body, len(found.features))
    return Evidence(
        id=release.id,
        question=release.question,
        workspace=found.workspace,
        features=found.features,
        cell=found.cell,
        group=found.group,
        groups=found.groups,
        pattern=found.pattern,
        rows=rows,
        weight=found.weight,
        y=y,
        also=bodies.questions(body),
        form=form,
    )


def _first_of(release: Stored, table: Table, body: Mapping[str, Any]) -> Evidence | None:
    """Return what releases of one form have in common, without rows and what they told."""
    found = bodies.about(release, table)
    if found is None:
        return None
    workspace, features, cell, group, pattern = found
    if not _once_each(features, cell, workspace.ranges(features, cell)[1]):
        return None
    groups, patterns, nothing = len(body["y"]), len(body["E"][0]), np.zeros((0, 0, 0))
    workspace, cell, group, pattern = _merged(workspace, features, cell, group * patterns + pattern, patterns)
    return Evidence(
        id=0,
        question="",
        workspace=workspace,
        features=features,
        cell=cell,
        group=group,
        groups=groups,
        pattern=pattern,
        rows=nothing,
        weight=np.ones(groups),
        y=nothing,
    )


def made_evidence(question: Question, measurement: Measurement, y: Floats) -> Evidence:
    """Return the evidence of a measurement of a question, on axes that tell apart no more than it does."""
    rows = np.ldexp(measurement.rows(question).astype(float), -measurement.bits)
    patterns = question.E.shape[1]
    code = question.group * patterns + question.pattern
    workspace, cell, group, pattern = _merged(question.workspace, question.features, question.cell, code, patterns)
    return Evidence(
        id=0,
        question=question.digest,
        workspace=workspace,
        features=question.features,
        cell=cell,
        group=group,
        groups=question.groups,
        pattern=pattern,
        rows=rows,
        weight=np.ones(question.groups),
        y=y.reshape(question.groups, -1),
    )


def _merged(
    workspace: Workspace, features: Sequence[Feature], cell: Ints, code: Ints, patterns: int
) -> tuple[Workspace, Ints, Ints, Ints]:
    """Return a workspace without what none of its places needs, and the cell, group and pattern of each.

    A residual is released on all that was known when it was planned, though it may depend on little of that. Columns
    that are summed are left as they are: what a sum is on an atom with a NULL among its values depends on the cut.
    """
    summed, codes = {column for column, _ in features}, np.full(workspace.cells, -1, dtype=np.int64)
    codes[cell] = code
    cube, axes = codes.reshape(workspace.shape), list[Axis]()
    for axis in workspace.axes:
        place = len(axes)
        first, labels = _alike(np.moveaxis(cube, place, 0).reshape(axis.size, -1))
        if axis.column in summed or len(first) == axis.size:
            axes.append(axis)
        elif len(first) == 1:
            cube = np.moveaxis(cube, place, 0)[0]
        else:
            axes.append(merged_atoms(axis, labels))
            cube = cube.take(axis.atoms[axes[-1].first], axis=place)
    cell = np.flatnonzero(cube.ravel() >= 0)
    group, pattern = np.divmod(cube.ravel()[cell], patterns)
    return Workspace(workspace.table, tuple(axes)), cell, group, pattern


def _alike(rows: Ints) -> tuple[Ints, Ints]:
    """Return where each of the different rows first stands, in their order, and which of them every row is.

    As np.unique of rows does, which takes a hundred times as long for rows of a thousand numbers; none is below -1.
    """
    texts = np.ascontiguousarray(rows + 1, dtype=">u8")  # as bytes in the order of the numbers
    _, first, labels = np.unique(
        texts.view(np.dtype((np.void, 8 * rows.shape[1]))).ravel(), return_index=True, return_inverse=True
    )
    return first, labels.ravel().astype(np.int64)


def shareable(question: Question) -> bool:
    """Return whether a question can share: each row counts once, no squares are summed, and no ranges are huge."""
    return _once_each(question.features, question.cell, question.high)


def _once_each(features: Sequence[Feature], cell: Ints, high: Ints) -> bool:
    once = len(np.unique(cell)) == len(cell)
    plain = all(power == 1 for _, power in features)
    return once and plain and int(high.max(initial=0)) < MAX_RANGE


@dataclass(frozen=True, eq=False, kw_only=True)
class Fold:
    """How evidence of one form is summed onto coarser axes: `number` is the new group of each old one, or -1."""

    workspace: Workspace
    cell: Ints
    group: Ints
    groups: int
    pattern: Ints
    number: Ints

    def of(self, found: Evidence) -> Evidence:
        """Return what evidence of that form tells there; the noise grows with the root of what is added up."""
        members = self.number >= 0
        sums, sizes = np.zeros((self.groups, found.y.shape[1])), np.zeros(self.groups)
        np.add.at(sums, self.number[members], found.y[members] / found.weight[members, None])
        np.add.at(sizes, self.number[members], found.weight[members] ** -2.0)
        weight = 1 / np.sqrt(sizes)
        return replace(
            found,
            workspace=self.workspace,
            cell=self.cell,
            group=self.group,
            groups=self.groups,
            pattern=self.pattern,
            weight=weight,
            y=sums * weight[:, None],
            form="",
        )


def covered(found: Brought | Question, axes: Mapping[str, Axis]) -> bool:
    """Return whether axes are fine enough for evidence."""
    return all(is_finer(axes.get(axis.column), axis) for axis in found.workspace.axes)


def fold(found: Evidence, axes: Mapping[str, Axis]) -> Fold | None:
    """Return how evidence of one form is summed onto coarser axes; None if nothing is left of it.

    Groups that look alike on these axes are added up, y and all; the noise grows with the root of their number. What
    then still depends on more than the axes tell apart is left out.
    """
    workspace = found.workspace
    coarser = [coarsened(axis, axes.get(axis.column)) for axis in workspace.axes]
    small = Workspace(workspace.table, tuple(axis for axis in coarser if axis is not None))
    below = _parents(workspace, small)
    cell, times_each = below[found.cell], np.bincount(below, minlength=small.cells)
    family = _families(found, cell)
    pair = family[found.group] * small.cells + cell
    pairs, first, times = np.unique(pair, return_index=True, return_counts=True)
    alike = np.ones(len(pairs), dtype=bool)
    alike[np.searchsorted(pairs, pair[found.pattern != found.pattern[first][np.searchsorted(pairs, pair)]])] = False
    whole = alike & (times == times_each[pairs % small.cells])
    good = np.ones(int(family.max(initial=-1)) + 1, dtype=bool)
    good[pairs[~whole] // small.cells] = False
    if not good.any():
        return None
    number = np.cumsum(good) - 1
    here = good[pairs // small.cells]
    return Fold(
        workspace=small,
        cell=pairs[here] % small.cells,
        group=number[pairs[here] // small.cells],
        groups=int(good.sum()),
        pattern=found.pattern[first[here]],
        number=np.where(good[family], number[family], -1),
    )


def _families(found: Evidence, cell: Ints) -> Ints:
    """Return a number for every group, equal for groups whose places look alike: a hash of their cells and patterns.

    Groups of one family that are not alike after all do no harm: their sum then fails the check for wholeness.
    """
    group, cell, pattern = _different(found.group, cell, found.pattern)
    with np.errstate(over="ignore"):
        mixed = (cell.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) ^ (
            pattern.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
        )
        mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
        total = np.zeros(found.groups, dtype=np.uint64)
        np.add.at(total, group, mixed ^ (mixed >> np.uint64(32)))
    return np.unique(total, return_inverse=True)[1].ravel().astype(np.int64)


def _different(group: Ints, cell: Ints, pattern: Ints) -> tuple[Ints, Ints, Ints]:
    """Return groups, cells and patterns, each combination of them once."""
    order = np.lexsort((pattern, cell, group))
    group, cell, pattern = group[order], cell[order], pattern[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (np.diff(group) != 0) | (np.diff(cell) != 0) | (np.diff(pattern) != 0)
    return group[is_new], cell[is_new], pattern[is_new]


@dataclass(frozen=True, eq=False)
class Chart:
    """The points of a workspace: every cell with every choice of an end for each measured column.

    A column that is cut into single values has no ends: its sums are multiples of counts, and cost no points.
    """

    workspace: Workspace
    features: tuple[Feature, ...]

    @property
    def size(self) -> int:
        return self.workspace.cells << len(self.ended)

    @cached_property
    def ended(self) -> list[int]:
        """Return which features have different values within some cell."""
        low, high = self.ranges
        return np.flatnonzero((high > low).any(axis=0)).tolist()

    @cached_property
    def ranges(self) -> tuple[Ints, Ints]:
        """Return the lowest and highest grid index of each feature in every cell."""
        return self.workspace.ranges(self.features, np.arange(self.workspace.cells))

    @cached_property
    def points(self) -> tuple[Floats, Ints]:
        """Return what a record at each point adds to count and features (P, Q), and the point's cell (P,)."""
        low, high = self.ranges
        names = [self.features[i] for i in self.ended]
        ends, cell = corners(names, low[:, self.ended], high[:, self.ended])
        phi = np.column_stack([np.ones(len(cell)), low[cell]])
        phi[:, [1 + i for i in self.ended]] = ends[:, 1:].astype(float) / 2
        return phi, cell

    def place(self, found: Evidence | Question, rows: Floats) -> Floats:
        """Return rows (r, S, Q) of every group on the points of this chart, group after group: (groups * r, P)."""
        phi, cells = self.points
        at = np.full(found.workspace.cells, -1, dtype=np.int64)
        at[found.cell] = np.arange(len(found.cell))
        place = at[_parents(self.workspace, found.workspace)[cells]]
        inside = np.flatnonzero(place >= 0)
        place = place[inside]
        columns = [0, *(1 + self.features.index(feature) for feature in found.features)]
        values = np.einsum("rpq,pq->pr", rows[:, found.pattern[place], :], phi[inside][:, columns])
        placed = np.zeros((found.groups, len(rows), len(cells)))
        placed[found.group[place], :, inside] = values
        return placed.reshape(-1, len(cells))

    def same_as(self, other: Chart) -> bool:
        mine, theirs = self.workspace.axes, other.workspace.axes
        alike = len(mine) == len(theirs) and all(
            one.key == two.key and np.array_equal(one.atoms, two.atoms) for one, two in zip(mine, theirs, strict=True)
        )
        return alike and self.features == other.features

    def finer_than(self, other: Chart) -> bool:
        """Return whether rows on the other chart can be carried to this one."""
        axes = {axis.column: axis for axis in self.workspace.axes}
        return self.features == other.features and all(
            is_finer(axes.get(axis.column), axis) for axis in other.workspace.axes
        )

    def carry(self, rows: Floats, coarser: Chart) -> Floats:
        """Return rows on the points of a coarser chart of the same columns and features, on the points of this one."""
        phi, cells = self.points
        found = coarser._coefficients(rows)[_parents(self.workspace, coarser.workspace)[cells]]
        carried: Floats = np.einsum("prq,pq->rp", found, phi)
        return carried

    def fits(self, found: Brought | Question) -> bool:
        """Return whether this chart is fine enough for a question or a release."""
        axes = {axis.column: axis for axis in self.workspace.axes}
        return set(found.features) <= set(self.features) and covered(found, axes)

    def released(self, rows: Floats) -> tuple[Question, Measurement]:
        """Return real rows (r, P), linear in the features on every cell, as integers, and their noise.

        Rounding moves a row by at most 2^-bits for each record and unit of a feature: far less than the noise.
        """
        if not self.features and _is_multiple_of_identity(rows):
            return self._counted(float(rows[0, 0]))
        smaller = max(0, -int(np.frexp(np.abs(rows).max(initial=0.0))[1]))
        bits = SUM_BITS if self.features else min(COUNT_BITS + smaller, SUM_BITS)
        whole = np.rint(np.ldexp(self._coefficients(rows), bits))  # (cells, r, Q)
        used = np.flatnonzero(np.abs(whole[:, :, 1:]).max(axis=(0, 1), initial=0.0) > 0)
        whole = whole[:, :, [0, *(1 + used)]]
        occupied = np.flatnonzero(np.abs(whole).max(axis=(1, 2), initial=0.0) > 0)
        _, first, pattern = np.unique(
            whole[occupied].reshape(len(occupied), whole[0].size), axis=0, return_index=True, return_inverse=True
        )
        E = _integers(whole[occupied[first]].transpose(1, 0, 2))
        low, high = self.ranges
        made = Question(
            workspace=self.workspace,
            features=tuple(self.features[i] for i in used),
            cell=occupied,
            group=np.zeros(len(occupied), dtype=np.int64),
            groups=1,
            pattern=pattern.ravel().astype(np.int64),
            low=low[occupied][:, used],
            high=high[occupied][:, used],
            E=E,
            units=np.ones(len(E)),
            roles=("row",) * len(E),
        )
        return made, Measurement(np.array(np.eye(len(E), dtype=int), dtype=object), bits)

    def _counted(self, scale: float) -> tuple[Question, Measurement]:
        """Return the count of every cell times a scale: a group for each."""
        cells, none = np.arange(self.workspace.cells), np.zeros(self.workspace.cells, dtype=np.int64)
        empty, one = np.zeros((len(cells), 0), dtype=np.int64), np.ones((1, 1, 1), dtype=np.int64).astype(object)
        made = Question(
            workspace=self.workspace,
            features=(),
            cell=cells,
            group=cells,
            groups=len(cells),
            pattern=none,
            low=empty,
            high=empty,
            E=one,
            units=np.ones(1),
            roles=("row",),
        )
        return made, Measurement(_integers(np.ceil(np.ldexp([[scale]], COUNT_BITS))), COUNT_BITS)

    def _coefficients(self, rows: Floats) -> Floats:
        """Return the coefficients of count and features of rows on points: (cells, r, Q).

        Where a column has one value, or is NULL, both its ends are the same point: the slope there is 0. What rounding
        leaves between two copies of one number must not be multiplied with what stands for a NULL.
        """
        low, high = self.ranges
        cells, count = self.workspace.cells, len(self.ended)
        corner = rows.reshape(len(rows), 1 << count, cells)  # the last feature's end changes fastest among corners
        found = np.zeros((cells, len(rows), 1 + len(self.features)))
        found[:, :, 0] = corner[:, 0].T
        for place, i in enumerate(self.ended):
            span = np.where(high[:, i] > low[:, i], high[:, i] - low[:, i], np.inf)
            slope = (corner[:, 1 << (count - 1 - place)] - corner[:, 0]).T / span[:, None]
            found[:, :, 1 + i] = slope
            found[:, :, 0] -= slope * low[:, i, None]
        return found


def _is_multiple_of_identity(rows: Floats) -> bool:
    """Return whether rows are a number times the identity; told without making one, which may take 134 MB."""
    if rows.shape[0] != rows.shape[1]:
        return False
    diagonal = rows.diagonal()
    return bool((diagonal == diagonal[:1]).all()) and np.count_nonzero(rows) == np.count_nonzero(diagonal)


def _integers(whole: Floats) -> Integers:
    if np.abs(whole).max(initial=0.0) < 2**62:
        return whole.astype(np.int64).astype(object)
    return np.array([int(value) for value in whole.ravel()], dtype=object).reshape(whole.shape)


def _parents(fine: Workspace, coarse: Workspace) -> Ints:
    """Return for each cell of a workspace the cell of a coarser one that it lies in."""
    cells = np.arange(fine.cells)
    parent = np.zeros(len(cells), dtype=np.int64)
    for axis in coarse.axes:
        index = fine.index(axis.column)
        assert index is not None
        parent = parent * axis.size + axis.atoms[fine.axes[index].first][fine.atom_of(cells, index)]
    return parent


def is_finer(axis: Axis | None, other: Axis) -> bool:
    """Return whether an axis tells apart all that another one does."""
    if axis is None or axis.key != other.key:
        return False
    return axis is other or np.array_equal(other.atoms, other.atoms[axis.first][axis.atoms])


def coarsened(axis: Axis, other: Axis | None) -> Axis | None:
    """Return the finest axis that is coarser than both; None if it tells nothing apart."""
    if is_finer(other, axis):
        return axis
    if other is None or other.key != axis.key:
        return None
    label = _linked(axis, other)
    return _numbered(axis, label[axis.atoms]) if label.any() else None


def _linked(axis: Axis, other: Axis) -> Ints:
    """Return for each atom of an axis the first one that atoms of the other link it with, step by step."""
    label = np.arange(axis.size)
    while True:
        below = np.full(other.size, axis.size)
        np.minimum.at(below, other.atoms, label[axis.atoms])
        least = np.full(axis.size, axis.size)
        np.minimum.at(least, axis.atoms, below[other.atoms])
        least = least[least]  # two steps at a time
        if np.array_equal(least, label):
            return label
        label = least


def merged_atoms(axis: Axis, labels: Ints) -> Axis:
    """Return an axis whose atoms with equal labels are one; labels are numbered from zero, in any order."""
    return _numbered(axis, labels[axis.atoms].astype(np.int64))


def _numbered(axis: Axis, labels: Ints) -> Axis:
    """Return a column's axis with one atom for each label of its cells."""
    _, first, atoms = np.unique(labels, return_index=True, return_inverse=True)
    return Axis(axis.column, axis.domain, atoms.ravel().astype(np.int64), first.astype(np.int64), axis.presence)


def refined(one: Axis, other: Axis) -> Axis:
    """Return the coarsest axis that is finer than both."""
    if one is other or np.array_equal(one.atoms, other.atoms):
        return one
    return _numbered(one, one.atoms * other.size + other.atoms)


def finest_axes(brought: Iterable[Brought | Question | Workspace], axes: Mapping[str, Axis]) -> dict[str, Axis]:
    """Return for every column the coarsest axis that is fine enough for all that is brought, and for `axes`."""
    found = dict(axes)
    for one in brought:
        for axis in (one if isinstance(one, Workspace) else one.workspace).axes:
            found[axis.column] = finest(found.get(axis.column), axis)
    return found


def finest(known: Axis | None, axis: Axis) -> Axis:
    """Return the coarsest axis that is finer than both; one of the two where that is possible."""
    return axis if known is None else known if is_finer(known, axis) else refined(known, axis)


def chart_size(axes: Mapping[str, Axis], features: Collection[Feature]) -> int:
    """Return how many points a chart has: columns that are summed have two ends, unless all values are told apart."""
    ended = sum(not is_single(axes.get(column)) for column, _ in features)
    return math.prod(axis.size for axis in axes.values()) << ended


def is_single(axis: Axis | None) -> bool:
    """Return whether every atom of an axis is a single value."""
    return axis is not None and not axis.presence and axis.size == len(axis.atoms)
