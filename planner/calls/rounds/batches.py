"""Which questions of a table are planned as one problem: as rows on one chart, or as whole marginals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mechanisms.least.marginals import Subset
from planner.basics.errors import TooLarge
from planner.basics.limits import MAX_DENSE, MAX_POINTS, MAX_ROUND_ROWS
from planner.cells.workspace import Axis, Floats, Workspace
from planner.history.marginals import MarginalQuestion
from planner.history.union import union
from planner.questions.linear import Question


@dataclass(frozen=True, eq=False)
class Linear:
    """A question of counts and sums within a query: `targets` (groups * F,) are variances."""

    query: int
    question: Question
    whole: MarginalQuestion | None  # the same, if it is one about whole marginals
    targets: Floats


@dataclass(frozen=True, eq=False)
class Whole:
    """A question about whole marginals within a query, with the variance that a count may have."""

    query: int
    question: MarginalQuestion
    target: float


def points(questions: Sequence[Question]) -> int:
    try:
        return union(questions).workspace.cells if questions else 0
    except TooLarge:
        return MAX_POINTS + 1


def into_batches(joint: Sequence[Linear]) -> list[list[Linear]]:
    """Return the questions in groups, each small enough to be one problem; the finest questions come first."""
    groups: list[list[Linear]] = []
    for one in sorted(joint, key=lambda one: -one.question.workspace.cells):
        for group in groups:
            wider = [*group, one]
            rows = sum(len(each.targets) for each in wider)
            if rows <= MAX_ROUND_ROWS and points([each.question for each in wider]) <= MAX_POINTS:
                group.append(one)
                break
        else:
            groups.append([one])
    return groups


def rows_and_marginals(joint: Sequence[Linear], whole: Sequence[Whole]) -> tuple[list[Linear], list[Whole]]:
    """Return the questions that are planned as rows, and those that are planned as whole marginals."""
    rows = sum(len(one.targets) for one in joint)
    if not whole and rows <= MAX_ROUND_ROWS and points([one.question for one in joint]) <= MAX_DENSE:
        return list(joint), []
    more = [Whole(one.query, one.whole, float(one.targets[0])) for one in joint if one.whole is not None]
    return [one for one in joint if one.whole is None], [*whole, *more]


def by_cuts(wholes: Sequence[Whole]) -> list[list[Whole]]:
    """Return groups of questions that cut each column in the same way."""
    groups: list[tuple[dict[str, Axis], list[Whole]]] = []
    for one in sorted(wholes, key=lambda one: -one.question.workspace.cells):
        mine = {axis.column: axis for axis in one.question.workspace.axes}
        for axes, group in groups:
            if all(_same(axes.get(column, axis), axis) for column, axis in mine.items()):
                axes.update(mine)
                group.append(one)
                break
        else:
            groups.append((dict(mine), [one]))
    return [group for _, group in groups]


def _same(one: Axis, other: Axis) -> bool:
    return one.key == other.key and np.array_equal(one.atoms, other.atoms)


def merge(group: Sequence[Whole]) -> tuple[MarginalQuestion, dict[Subset, float]]:
    """Return one question about all marginals of a group, and the least target of each."""
    axes = {axis.column: axis for one in group for axis in one.question.workspace.axes}
    workspace = Workspace(group[0].question.workspace.table, tuple(axes[column] for column in sorted(axes)))
    targets: dict[Subset, float] = {}
    cells = {}
    for one in group:
        for A, each in zip(one.question.sets, one.question.cells, strict=True):
            B = _placed(one, A, workspace)
            targets[B] = min(one.target, targets.get(B, np.inf))
            cells[B] = each
    return MarginalQuestion(workspace, tuple(targets), tuple(cells[B] for B in targets)), targets


def _placed(one: Whole, A: Subset, workspace: Workspace) -> Subset:
    found = [workspace.index(one.question.workspace.axes[i].column) for i in A]
    return tuple(sorted(place for place in found if place is not None))
