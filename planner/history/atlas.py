"""Which chart a question gets, so that as much as possible of what was released can be used for it.

Decided from public things only: the columns and atoms of the question and of what was released.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Protocol

from planner.basics.limits import MAX_POINTS
from planner.cells.workspace import Axis, Feature
from planner.history.chart import Brought, chart_size, finest, finest_axes, is_single
from planner.questions.linear import Question

Axes = Mapping[str, Axis]


class Offered(Protocol):
    """Releases of one form, as far as charts are chosen by them."""

    @property
    def form(self) -> Brought: ...
    @property
    def first(self) -> tuple[bool, int]:
        """Return when the first of them was released."""

    @property
    def rounds(self) -> frozenset[str]:
        """Return the digests of the questions of rounds that they were released for."""


def chosen(question: Question, pools: Collection[Offered]) -> Choice | None:
    """Return the axes and features of the chart for a question that can't have all that was ever told apart.

    Its own; then what the rounds need that it took part in; then what the releases need that share columns with
    these, in the order of release, while it fits. So a question is answered alike by every gate, and what it was
    told before it is told later. None if the question alone is too large.
    """
    choice = Choice(finest_axes([question], {}), frozenset(question.features))
    if chart_size(choice.axes, choice.features) > MAX_POINTS:
        return None
    in_order = sorted(pools, key=lambda pool: pool.first)
    for pool in sorted(in_order, key=lambda pool: question.digest not in pool.rounds):
        choice.offer(pool.form, needed=question.digest in pool.rounds)
    choice.offered = len(pools)
    return choice


class Choice:
    """Axes and features while they grow; `offered` says how many pools they were offered."""

    def __init__(self, axes: Axes, features: frozenset[Feature], *, limit: int = MAX_POINTS) -> None:
        self.axes, self.features, self.offered, self._limit = axes, features, 0, limit
        self._is_full = _is_full(axes, features, limit)
        self._later: defaultdict[str, list[Brought]] = defaultdict(list)
        self._finer: dict[tuple[int, int], tuple[Axis, Axis, Axis]] = {}

    def resumed(self, pools: Collection[Offered]) -> Choice:
        """Return the choice once more was released; it must stand last among the pools, and be of no round."""
        if self.offered == len(pools):
            return self
        found = Choice(self.axes, self.features, limit=self._limit)
        found._later.update({column: list(waiting) for column, waiting in self._later.items()})
        for pool in islice(pools, self.offered, None):
            found.offer(pool.form)
        found.offered = len(pools)
        return found

    def offer(self, found: Brought, *, needed: bool = False) -> None:
        """Tell apart what a release does, as far as that fits; one that shares nothing yet waits until it does."""
        if self._is_full and self.features.issuperset(found.features) and self._tells_apart(found):
            return
        columns = found.columns.union(column for column, _ in found.features)
        if self._columns and not columns & self._columns and not needed:
            for column in columns:
                self._later[column].append(found)
            return
        before = self._columns
        fits = self._may_fit(found)
        if fits:
            finer = {axis.column: self._refined(axis) for axis in found.workspace.axes}
            fits = self._grown({**self.axes, **finer}, self.features.union(found.features))
        if not fits and found.groups > 1 and self.features.issuperset(found.features):
            finer = {axis.column: self._refined(axis) for axis in found.workspace.axes}
            for column in sorted(found.columns):  # a part of it tells something: groups are summed over the others
                self._grown({**self.axes, column: finer[column]}, self.features)
        for column in sorted(self._columns - before):
            for waiting in self._later.pop(column, []):
                self.offer(waiting)

    def _may_fit(self, found: Brought) -> bool:
        """Return whether the chart has room for as many atoms as a release or the choice has, of each column."""
        sizes = {column: axis.size for column, axis in self.axes.items()}
        for axis in found.workspace.axes:
            sizes[axis.column] = max(axis.size, sizes.get(axis.column, 1))
        return math.prod(sizes.values()) <= MAX_POINTS

    def _tells_apart(self, found: Brought) -> bool:
        """Return whether no column would be added that takes no room, having one atom."""
        return all(axis.size > 1 or axis.column in self.axes for axis in found.workspace.axes)

    def _refined(self, axis: Axis) -> Axis:
        """Return the coarsest axis that is finer than one and than what was chosen; releases share many axes."""
        known = self.axes.get(axis.column)
        if known is None:
            return axis
        pair = id(known), id(axis)
        if pair not in self._finer:
            self._finer[pair] = known, axis, finest(known, axis)  # the first two, so that their ids stay theirs
        return self._finer[pair][2]

    @property
    def _columns(self) -> frozenset[str]:
        return frozenset(self.axes).union(column for column, _ in self.features)

    def _grown(self, axes: Axes, features: frozenset[Feature]) -> bool:
        if chart_size(axes, features) > self._limit:
            return False
        if axes is not self.axes:
            self._is_full = _is_full(axes, features, self._limit)
        self.axes, self.features = axes, features
        return True


def _is_full(axes: Axes, features: frozenset[Feature], limit: int) -> bool:
    """Return whether nothing finer on the same features can fit: not one atom more, nor another column.

    Where a summed column may come to be told apart value by value, its two ends become one, and more may fit.
    """
    if any(not is_single(axes.get(column)) for column, _ in features):
        return False
    most = max((axis.size for axis in axes.values() if not is_single(axis)), default=1)
    return chart_size(axes, features) // most * (most + 1) > limit
