"""Slices: a question that is too large for one chart, on many that fit, each with what speaks of its cells alone.

A slice is a box of cells. What was released about cells of one slice is brought to it; what speaks across slices is
not. So the slices are independent of each other: what is known of a group that lies in several is the sum of what is
known of its parts, and of its own releases, which lie in no slice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mechanisms.gaussian.known import Known, nothing_known
from mechanisms.least.separate import fused
from planner.basics.limits import MAX_SLICES, OWN_POINTS, SLICE_POINTS
from planner.cells.workspace import Axis, Floats, Ints, Workspace
from planner.history.atlas import Choice
from planner.history.chart import Chart, Evidence, finest_axes, fold, merged_atoms
from planner.questions.linear import Question, ends

Box = Mapping[str, NDArray[np.bool_]]
"""By column, which cells of its domain are inside; other columns are inside with all they have."""


@dataclass(frozen=True, eq=False)
class Slice:
    """What is known of a box: rows W (n * F, P) are the parts of the groups that lie in it."""

    box: Box
    chart: Chart
    known: Known
    groups: Ints  # (n,)
    W: Floats

    def with_evidence(self, brought: Sequence[Evidence]) -> Slice:
        """Return the slice once more is released."""
        return self.told([inside for found in brought if (inside := within(found, self.box)) is not None])

    def told(self, inside: Sequence[Evidence]) -> Slice:
        """Return the slice once something is released that lies in it."""
        told = [local for found in inside if (local := self._brought(found)) is not None]
        if not told:
            return self
        rows = [self.chart.place(e, e.rows) * np.repeat(e.weight, len(e.rows))[:, None] for e in told]
        return replace(self, known=self.known.with_rows(np.vstack(rows), np.concatenate([e.y.ravel() for e in told])))

    def _brought(self, inside: Evidence) -> Evidence | None:
        """Return what evidence tells on the chart; None if that is nothing."""
        if not set(inside.features) <= set(self.chart.features):
            return None
        if self.chart.fits(inside):
            return inside
        way = fold(inside, {axis.column: axis for axis in self.chart.workspace.axes})
        return None if way is None else way.of(inside)


@dataclass(frozen=True, eq=False)
class Slices:
    """What is known of a question, slice by slice."""

    question: Question
    slices: tuple[Slice, ...]
    releases: tuple[int, ...]
    is_all: bool  # nothing that was released speaks across slices
    own: tuple[Floats, Floats] | None = None  # the answers of releases of the question itself, if groups are divided

    def with_evidence(self, brought: Sequence[Evidence]) -> Slices:
        """Return what is known once more is released."""
        return replace(self, slices=tuple(each.with_evidence(brought) for each in self.slices))

    @property
    def is_apart(self) -> bool:
        """Return whether nothing is known."""
        return self.own is None and not any(each.known.rank for each in self.slices)

    @cached_property
    def is_divided(self) -> bool:
        """Return whether some group lies in several slices: then what is released of it can't be brought to one."""
        return bool((np.bincount(np.concatenate([each.groups for each in self.slices])) > 1).any())

    @cached_property
    def _answers(self) -> tuple[Floats, Floats]:
        """Return the best answers (groups, F) and their covariances (groups, F, F); nan for what is not known."""
        groups, width = self.question.groups, len(self.question.units)
        values, covariances = np.zeros((groups, width)), np.zeros((groups, width, width))
        for each in self.slices:
            shape = len(each.groups), width
            roots = each.known.roots(each.W)[0].reshape(*shape, each.known.rank)
            estimate = each.known.estimate(each.W).reshape(shape)
            values[each.groups] += estimate
            covariances[each.groups] += np.einsum("gfn,ghn->gfh", roots, roots)
        known = values, np.where(np.isnan(values[:, :, None] + values[:, None, :]), np.nan, covariances)
        return known if self.own is None else fused(known, self.own)

    @property
    def variances(self) -> Floats:
        """Return the variance of every functional, (groups, F), inf for what is not known."""
        found: Floats = np.einsum("gff->gf", self._answers[1])
        return np.where(np.isnan(found), np.inf, found)

    def estimates(self, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        """Return the best answers in groups of functionals that stand in a row, and their covariances."""
        values, covariances = self._answers
        if shape == values.shape:
            return values, covariances
        count, width = shape
        blocks = [covariances[0, i : i + width, i : i + width] for i in range(0, count * width, width)]
        return values.reshape(shape), np.array(blocks)


def surveyed(question: Question, releases: Sequence[tuple[Iterable[int], Evidence]]) -> Slices | None:
    """Return what releases tell of a question in slices; None if those would be too many, or if there is nothing."""
    boxes = cut(question) if releases else None
    if boxes is None:
        return None
    insides = [[within(found, box) for _, found in releases] for box in boxes]
    if not any(one is not None for inside in insides for one in inside):
        return None
    asked, slices, groups = _asked(question), list[Slice](), np.zeros(len(releases), dtype=np.int64)
    for box, inside in zip(boxes, insides, strict=True):
        found = _slice(asked, box, [one for one in inside if one is not None])
        if found is not None:
            slices.append(found)
            groups += [0 if one is None else one.groups for one in inside]
    used = {number for (ids, _), count in zip(releases, groups, strict=True) if count for number in ids}
    is_all = all(count == _touching(found, question) for (_, found), count in zip(releases, groups, strict=True))
    return Slices(question, tuple(slices), tuple(sorted(used)), is_all)


def _touching(found: Evidence, question: Question) -> int:
    """Return how many groups of evidence have to do with the cells of a question, or may have."""
    touches = np.ones(len(found.cell), dtype=bool)
    for i, axis in enumerate(question.workspace.axes):
        place = found.workspace.index(axis.column)
        if place is not None and len(found.workspace.axes[place].atoms) == len(axis.atoms):
            inside = np.isin(axis.atoms, question.workspace.atom_of(question.cell, i))
            atoms = np.unique(found.workspace.axes[place].atoms[inside])
            touches &= np.isin(found.workspace.atom_of(found.cell, place), atoms)
    return len(np.unique(found.group[touches]))


def cut(question: Question) -> list[Box] | None:
    """Return boxes that hold all cells of a question, each with few points; None if there would be too many.

    They are cut along axes on which groups keep to themselves, as long as there are such; the longest side first.
    """
    axes, place = question.workspace.axes, question.workspace.atom_of
    sides = [np.unique(place(question.cell, i)) for i in range(len(axes))]
    crossed = [_is_crossed(question, place(question.cell, i)) for i in range(len(axes))]
    corners, todo, done = ends(question.features), [sides], list[list[Ints]]()
    while todo:
        box = todo.pop()
        if len(done) + len(todo) > MAX_SLICES:
            return None
        longest = max(range(len(axes)), key=lambda i: (len(box[i]) > 1, not crossed[i], len(box[i])), default=None)
        if np.prod([len(side) for side in box]) * corners <= OWN_POINTS or longest is None or len(box[longest]) == 1:
            done.append(box)
            continue
        for half in np.array_split(box[longest], 2):
            todo.append([*box[:longest], half, *box[longest + 1 :]])
    return [_box(axes, box) for box in sorted(done, key=lambda box: [int(side[0]) for side in box])]


def _is_crossed(question: Question, atoms: Ints) -> bool:
    """Return whether some group has several atoms of an axis."""
    low, high = np.full(question.groups, np.iinfo(np.int64).max), np.full(question.groups, -1)
    np.minimum.at(low, question.group, atoms)
    np.maximum.at(high, question.group, atoms)
    return bool((high > low).any())


def _box(axes: Sequence[Axis], sides: Sequence[Ints]) -> Box:
    """Return the cells of each column that lie in these atoms; columns that are whole are left out."""
    inside = {axis.column: np.isin(axis.atoms, side) for axis, side in zip(axes, sides, strict=True)}
    return {column: mask for column, mask in inside.items() if not mask.all()}


def _asked(question: Question) -> Evidence:
    """Return the functionals of a question in the form of evidence."""
    rows = question.E.astype(float) * question.units[:, None, None]
    return Evidence(
        id=0,
        question=question.digest,
        workspace=question.workspace,
        features=question.features,
        cell=question.cell,
        group=question.group,
        groups=question.groups,
        pattern=question.pattern,
        rows=rows,
        weight=np.ones(question.groups),
        y=np.zeros((question.groups, len(rows))),
    )


def _slice(asked: Evidence, box: Box, inside: Sequence[Evidence]) -> Slice | None:
    """Return what is known of a box from what lies in it; None if the question does not speak of it."""
    mine = within(asked, box, parts=True)
    if mine is None:
        return None
    choice = Choice(finest_axes([mine], {}), frozenset(mine.features), limit=SLICE_POINTS)
    for one in inside:
        choice.offer(one)
    axes = tuple(choice.axes[column] for column in sorted(choice.axes))
    chart = Chart(Workspace(asked.workspace.table, axes), tuple(sorted(choice.features)))
    W, groups = chart.place(mine, mine.rows), mine.y[:, 0].astype(np.int64)
    return Slice(box, chart, nothing_known(chart.size), groups, W).told(inside)


def within(found: Evidence, box: Box, *, parts: bool = False) -> Evidence | None:
    """Return the groups of evidence that lie in a box, with all that is outside as one atom; None if there are none.

    With `parts`, groups are cut to what lies inside, and told by their numbers.
    """
    workspace = found.workspace
    places = {column: workspace.index(column) for column in box}
    if any(place is None or len(workspace.axes[place].atoms) != len(box[c]) for c, place in places.items()):
        return None
    atoms, axes = list(np.unravel_index(found.cell, workspace.shape)) if workspace.axes else [], list(workspace.axes)
    inside = np.ones(len(found.cell), dtype=bool)
    for column, place in places.items():
        assert place is not None
        axis = axes[place]
        whole = np.ones(axis.size, dtype=bool)
        whole[axis.atoms[~box[column]]] = False
        inside &= whole[atoms[place]]
        axes[place] = merged_atoms(axis, np.where(whole, np.arange(axis.size), axis.size))
        atoms[place] = axes[place].atoms[axis.first[atoms[place]]]
    crossing = np.zeros(found.groups, dtype=bool)
    crossing[found.group[~inside]] = not parts
    kept = inside & ~crossing[found.group]
    if not kept.any():
        return None
    members, group = np.unique(found.group[kept], return_inverse=True)
    small = Workspace(workspace.table, tuple(axes))
    cell = np.ravel_multi_index([each[kept] for each in atoms], small.shape) if atoms else found.cell[kept]
    y = members[:, None].astype(float) if parts else found.y[members]
    return replace(
        found, workspace=small, cell=cell, group=group.ravel().astype(np.int64), groups=len(members),
        pattern=found.pattern[kept], weight=found.weight[members], y=y, form="",
    )  # fmt: skip
