"""Which chart a question gets, so that as much as possible of what was released can be used for it.

Decided from public things only: the columns and atoms of the question and of what was released.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice

from planner.cells.workspace import Axis, Feature
from planner.history.chart import MAX_POINTS, Evidence, chart_size, finest_axes
from planner.history.pool import Key, Pool
from planner.questions.linear import Question

Axes = Mapping[str, Axis]


def chosen(question: Question, pools: Mapping[Key, Pool]) -> Choice | None:
    """Return the axes and features of the chart for a question that can't have all that was ever told apart.

    Its own; then what the rounds need that it took part in; then what the releases need that share columns with
    these, in the order of release, while it fits. So a question is answered alike by every gate, and what it was
    told before it is told later. None if the question alone is too large.
    """
    choice = Choice(finest_axes([question], {}), frozenset(question.features))
    if chart_size(choice.axes, choice.features) > MAX_POINTS:
        return None
    in_order = sorted(pools.values(), key=lambda pool: pool.first)
    for pool in sorted(in_order, key=lambda pool: question.digest not in pool.rounds):
        choice.offer(pool.form, needed=question.digest in pool.rounds)
    choice.offered = len(pools)
    return choice


class Choice:
    """Axes and features while they grow; `offered` says how many pools they were offered."""

    def __init__(self, axes: Axes, features: frozenset[Feature]) -> None:
        self.axes, self.features, self.offered = axes, features, 0
        self._later: defaultdict[str, list[Evidence]] = defaultdict(list)

    def resumed(self, pools: Mapping[Key, Pool]) -> Choice:
        """Return the choice once more was released; it must stand last among the pools, and be of no round."""
        if self.offered == len(pools):
            return self
        found = Choice(self.axes, self.features)
        found._later.update({column: list(waiting) for column, waiting in self._later.items()})
        for pool in islice(pools.values(), self.offered, None):
            found.offer(pool.form)
        found.offered = len(pools)
        return found

    def offer(self, found: Evidence, *, needed: bool = False) -> None:
        """Tell apart what a release does, as far as that fits; one that shares nothing yet waits until it does."""
        columns = found.columns.union(column for column, _ in found.features)
        if self._columns and not columns & self._columns and not needed:
            for column in columns:
                self._later[column].append(found)
            return
        before = self._columns
        finer = finest_axes([found], self.axes)
        fits = self._grown(finer, self.features.union(found.features))
        if not fits and found.groups > 1 and self.features.issuperset(found.features):
            for column in sorted(found.columns):  # a part of it tells something: groups are summed over the others
                self._grown({**self.axes, column: finer[column]}, self.features)
        for column in sorted(self._columns - before):
            for waiting in self._later.pop(column, []):
                self.offer(waiting)

    @property
    def _columns(self) -> frozenset[str]:
        return frozenset(self.axes).union(column for column, _ in self.features)

    def _grown(self, axes: Axes, features: frozenset[Feature]) -> bool:
        if chart_size(axes, features) > MAX_POINTS:
            return False
        self.axes, self.features = axes, features
        return True
