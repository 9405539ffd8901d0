"""The questions of a round on common axes: what is asked and what is known, as arrays.

Every question and every release lives on a few of the axes, so that the product of all columns is never formed. An
axis is a column cut into atoms, or the two ends of a column that is summed (`planner.history.chart`). What the
questions do not tell apart is found in `mechanisms.least.symmetry`, and the cheapest release in
`mechanisms.least.minimax`; here its rows become integers on small charts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mechanisms.least.symmetry import Asked, Given, Key, Orbits, Piece, Symmetric, orbits, symmetric
from planner.basics.limits import MAX_KNOWN, MAX_ORBITS, MAX_POINTS, MAX_ROUND_ENTRIES, MAX_ROUND_WORK
from planner.calls.rounds.batches import Linear
from planner.cells.bills import lowest
from planner.cells.costs import Cost, rho_of
from planner.cells.workspace import Feature, Floats, Workspace
from planner.history.atlas import Axes
from planner.history.chart import Chart, Evidence, finest_axes, is_finer, is_single, merged_atoms
from planner.history.marginals import is_small
from planner.history.recall import History, Releases
from planner.policy.table import Table
from planner.questions.linear import Question

LEAST_LIMIT = 1e-6
"""The least that a cell may pay, in relation to the most."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RoundProblem:
    """Questions and what is known of them. `whole` says that everything released is there, as it was released."""

    table: Table
    axes: Axes
    ends: tuple[Feature, ...]  # summed columns with two ends; they come before the columns
    asked: tuple[Asked, ...]
    given: tuple[Given, ...]
    releases: tuple[int, ...]
    whole: bool

    @cached_property
    def orbits(self) -> Orbits:
        """Return the orbits; the ends of a summed column are told apart, as are its atoms, on which its ends depend."""
        columns = sorted(self.axes)
        sizes = [2] * len(self.ends) + [self.axes[column].size for column in columns]
        return orbits(sizes, self.asked, self.given, {*range(len(self.ends)), *self.partners.values()})

    @cached_property
    def problem(self) -> Symmetric:
        return symmetric(self.asked, self.given, self.orbits)

    @property
    def partners(self) -> dict[int, int]:
        """Return for the ends of a column the axis on which it is cut: what its ends are depends on that."""
        columns = sorted(self.axes)
        return {
            i: len(self.ends) + columns.index(column) for i, (column, _) in enumerate(self.ends) if column in columns
        }

    def placed(self, piece: Piece) -> tuple[Chart, Floats]:
        """Return rows on the points of a chart of their own."""
        columns, cut = sorted(self.axes), dict(zip(piece.axes, piece.labels, strict=True))
        kept = [columns[i - len(self.ends)] for i in piece.axes if i >= len(self.ends)]
        axes = [merged_atoms(self.axes[name], cut[len(self.ends) + columns.index(name)]) for name in kept]
        features = tuple(self.ends[i] for i in piece.axes if i < len(self.ends))
        return Chart(Workspace(self.table, tuple(axes)), features), piece.rows.reshape(len(piece.rows), -1)

    def limits(self, costs: Sequence[Cost]) -> Floats | None:
        """Return how much each cell of the orbits may pay for information on it; None if there are too many cells.

        A cell that may pay nothing has a limit all the same, so small that hardly anything is sought there.
        """
        domains = {name: self.table.columns[name].domain for name, _ in self.ends}
        keys = [f"{name}#{domain.fingerprint}/ends" for name, _ in self.ends if (domain := domains[name])]
        atoms = [np.arange(2)] * len(keys) + [self.axes[column].atoms for column in sorted(self.axes)]
        keys += [self.axes[column].key for column in sorted(self.axes)]
        labels = [labels[each] for labels, each in zip(self.orbits.labels, atoms, strict=True)]
        found = lowest(costs, list(zip(keys, labels, strict=True)))
        if found is None or found.max() <= 0:
            return None
        unit = 2 * float(rho_of(1)) / self.table.max_rows_per_unit**2
        return np.asarray(unit * np.maximum(found, LEAST_LIMIT * found.max()).ravel())

    def told_by(self, releases: Sequence[Evidence]) -> list[Given] | None:
        """Return the information of releases that are still to be made; None if the axes are too coarse for it."""
        given = []
        for each in releases:
            placed = _on_axes(each, each.rows, self.axes, self.ends) if self._has_room(each) else None
            if placed is None or placed[1][0].size > MAX_KNOWN:
                return None
            B = placed[1].reshape(len(placed[1]), -1) * np.repeat(each.weight, len(each.rows))[:, None]
            given.append(Given(placed[0], B.T @ B))
        return given

    def _has_room(self, one: Evidence) -> bool:
        """Return whether the axes are as fine as what is released."""
        features = {feature for feature in one.features if not is_single(self.axes.get(feature[0]))}
        return features <= set(self.ends) and all(
            is_finer(self.axes.get(axis.column), axis) for axis in one.workspace.axes
        )

    def telling(self, key: Key) -> list[int]:
        """Return the numbers of the questions that have rows in a block."""
        rows = self.problem.blocks[self.problem.keys.index(key)].rows
        return [i for i, places in enumerate(self.problem.places) if np.isin(places, rows).any()]


def common_problem(group: Sequence[Linear], history: History, found: Releases) -> RoundProblem | None:
    """Return the problem of the questions on the finest common axes that keep it within the limits, or None.

    Tried in turn: all columns of what was released, only those that are asked about, and only as fine as asked.
    """
    questions = [one.question for one in group]
    own = finest_axes(questions, {})
    every = finest_axes(questions, found.axes)
    every = finest_axes([told.workspace for told in found.told], every)
    ways = [every, {name: axis for name, axis in every.items() if name in own}, own]
    features = {feature for question in questions for feature in question.features}
    large: object = None
    for number, axes in enumerate(ways):
        wanted = features | (found.features if number == 0 else set())
        way = wanted, {name: axis.size for name, axis in axes.items()}  # each is at most as fine as the one before
        meeting = _meeting(group, history, found, axes, wanted, whole=number == 0) if way != large else None
        if meeting is not None and _is_small(meeting):
            return meeting
        large = large if meeting is None else way
    return None


def _is_small(meeting: RoundProblem) -> bool:
    if math.prod(meeting.orbits.shape) > MAX_ORBITS:
        return False
    return meeting.problem.work <= MAX_ROUND_WORK and meeting.problem.entries <= MAX_ROUND_ENTRIES // 2


def _meeting(
    group: Sequence[Linear], history: History, found: Releases, axes: Axes, features: set[Feature], *, whole: bool
) -> RoundProblem | None:
    table = group[0].question.workspace.table
    ends = tuple(sorted(feature for feature in features if not is_single(axes.get(feature[0]))))
    asked = []
    for one in group:
        placed = _on_axes(one.question, one.question.E.astype(float) * one.question.units[:, None, None], axes, ends)
        if placed is None:
            return None
        asked.append(Asked(*placed, one.targets))
    given: dict[tuple[int, ...], Floats] = {}
    used: set[int] = set()
    for numbers, each in history.bring(found, axes, tuple(sorted(features))):
        placed = _on_axes(each, each.rows, axes, ends)
        if placed is None or placed[1][0].size > MAX_KNOWN:
            if whole:
                return None
            continue
        B = placed[1].reshape(len(placed[1]), -1) * np.repeat(each.weight, len(each.rows))[:, None]
        given[placed[0]] = given.get(placed[0], 0.0) + B.T @ B
        used |= numbers
    complete = whole and all(is_small(each) for each in found.told)
    known = tuple(Given(places, C) for places, C in given.items())
    return RoundProblem(
        table=table, axes=axes, ends=ends, asked=tuple(asked), given=known, releases=tuple(sorted(used)), whole=complete
    )


def _on_axes(
    one: Question | Evidence, rows: Floats, axes: Axes, ends: tuple[Feature, ...]
) -> tuple[tuple[int, ...], Floats] | None:
    """Return the axes of a question or a release, and its rows on them; None if that is too large."""
    columns = sorted({axis.column for axis in one.workspace.axes} | {name for name, _ in one.features if name in axes})
    chart = Chart(Workspace(one.workspace.table, tuple(axes[name] for name in columns)), tuple(sorted(one.features)))
    if chart.size > MAX_POINTS or chart.size * one.groups * len(rows) > MAX_ROUND_ENTRIES:
        return None
    order = sorted(axes)
    mine = [ends.index(chart.features[i]) for i in chart.ended]
    places = (*mine, *(len(ends) + order.index(name) for name in columns))
    shape = (2,) * len(mine) + chart.workspace.shape
    return places, chart.place(one, rows).reshape(-1, *shape)


def owners(meeting: RoundProblem) -> Mapping[int, int]:
    """Return for every row of the problem the question with the least target for it."""
    found: dict[int, tuple[float, int]] = {}
    for i, (one, places) in enumerate(zip(meeting.asked, meeting.problem.places, strict=True)):
        for place, target in zip(places.tolist(), one.c.tolist(), strict=True):
            if place >= 0:
                found[place] = min(found.get(place, (math.inf, i)), (target, i))
    return {place: question for place, (_, question) in found.items()}
