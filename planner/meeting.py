"""Where the questions of a round meet: the axes of all of them, with what is asked and what is known as arrays.

Every question and every release lives on a few of the axes, so that the product of all columns is never formed. An
axis is a column cut into atoms, or the two ends of a column that is summed (`planner.chart`). What the questions do
not tell apart is found in `mechanisms.symmetry`, and the cheapest release in `mechanisms.orbits`; here its rows become
integers on small charts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mechanisms.symmetry import Asked, Given, Key, Orbits, Piece, Symmetric, orbits, symmetric
from planner.chart import MAX_POINTS, Chart, Evidence, merged_atoms
from planner.grouping import Linear
from planner.linear import Question
from planner.policy import Table
from planner.recall import Axes, Found, History, finest_axes, is_single
from planner.symmetric import is_small
from planner.workload import Floats
from planner.workspace import Feature, Workspace

MAX_ORBITS = MAX_POINTS
"""Most cells that may be told apart: what is released for all of them has to find room on a chart."""

MAX_WORK = 2**33
"""Most operations of a step of the solver: some 2,000 answers that differ, so that all steps take a minute or so."""

MAX_KNOWN = 2048
"""Most points on which earlier releases are added up."""

MAX_ENTRIES = 2**23
"""Largest array of rows on points."""


@dataclass(frozen=True, eq=False)
class Meeting:
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
        """Return what is told apart; the ends of a column are, and its atoms where they decide what its ends are."""
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

    def telling(self, key: Key) -> list[int]:
        """Return which of the questions have rows in a block."""
        rows = self.problem.blocks[self.problem.keys.index(key)].rows
        return [i for i, places in enumerate(self.problem.places) if np.isin(places, rows).any()]


def met(group: Sequence[Linear], history: History, found: Found) -> Meeting | None:
    """Return where questions meet, on the finest axes for which that is no too large a problem; None if on none.

    With all columns of what was released, with those that are asked about, or just as fine as asked.
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


def _is_small(meeting: Meeting) -> bool:
    if math.prod(meeting.orbits.shape) > MAX_ORBITS:
        return False
    return meeting.problem.work <= MAX_WORK and meeting.problem.entries <= MAX_ENTRIES // 2


def _meeting(
    group: Sequence[Linear], history: History, found: Found, axes: Axes, features: set[Feature], *, whole: bool
) -> Meeting | None:
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
    return Meeting(table, axes, ends, tuple(asked), known, tuple(sorted(used)), complete)


def _on_axes(
    one: Question | Evidence, rows: Floats, axes: Axes, ends: tuple[Feature, ...]
) -> tuple[tuple[int, ...], Floats] | None:
    """Return the axes of a question or a release, and its rows on them; None if that is too large."""
    columns = sorted({axis.column for axis in one.workspace.axes} | {name for name, _ in one.features if name in axes})
    chart = Chart(Workspace(one.workspace.table, tuple(axes[name] for name in columns)), tuple(sorted(one.features)))
    if chart.size > MAX_POINTS or chart.size * one.groups * len(rows) > MAX_ENTRIES:
        return None
    order = sorted(axes)
    mine = [ends.index(chart.features[i]) for i in chart.ended]
    places = (*mine, *(len(ends) + order.index(name) for name in columns))
    shape = (2,) * len(mine) + chart.workspace.shape
    return places, chart.place(one, rows).reshape(-1, *shape)


def owners(meeting: Meeting) -> Mapping[int, int]:
    """Return for every row of the problem the question with the least target for it."""
    found: dict[int, tuple[float, int]] = {}
    for i, (one, places) in enumerate(zip(meeting.asked, meeting.problem.places, strict=True)):
        for place, target in zip(places.tolist(), one.c.tolist(), strict=True):
            if place >= 0:
                found[place] = min(found.get(place, (math.inf, i)), (target, i))
    return {place: question for place, (_, question) in found.items()}
