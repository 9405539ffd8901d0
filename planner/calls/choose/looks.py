"""The stages of a choice among linear analyses: what can be looked at for nothing, and what is then still missing.

What several analyses share is a part of each of them (arXiv 2212.00135). It is released first and looked at; then
only the rest of the analysis that is taken. Everything here but `ratios` and `gain` is decided from public things,
and those two are functions of what was released.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mechanisms.gaussian import signals
from mechanisms.gaussian.common import common, common_many, residual, sequence
from mechanisms.gaussian.known import Known, nothing_known
from mechanisms.gaussian.linear import Mechanism, row_space, standardised
from mechanisms.gaussian.signals import Answers, SignalToNoise
from mechanisms.least.residual import join_residual
from mechanisms.tolerances import MET
from planner.basics.errors import TooLarge, Unsupported
from planner.basics.limits import SMALL_MARGINALS
from planner.cells.costs import Cost, dearest
from planner.cells.workload import Recipe
from planner.cells.workspace import Floats
from planner.history.chart import Chart
from planner.history.recall import History, Releases
from planner.history.union import LESS, union
from planner.plans.release import Residual
from planner.policy.table import Table
from planner.questions import linear
from planner.questions.linear import Measurement, Question

_SEEN = 1 + 1e-6
"""A look is not worth a release if all that it would tell is known with variances larger by less than this."""

_ROUNDING = 1 + 1e-8
"""By how much an integer cost may be larger than the one it should be."""

_CUT = 1e-12
"""What is missing of this fraction of the information wanted is rounding."""

Missing = Callable[[Known, Floats], Floats]
"""From what is known and what is wanted to rows that must still be released."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """How an analysis is measured when it is asked alone, and the variance that each functional then has.

    `recipes` make its answers of functionals.
    """

    question: Question
    recipes: tuple[Recipe, ...]
    measurement: Measurement
    variances: Floats


@dataclass(frozen=True, eq=False, kw_only=True)
class Analysis:
    """One analysis on the points of a chart: what its answers are made of, W (n, P), and rows that tell it well enough.

    `number` is its place in the order given, `cost` what it costs when it is asked alone.
    """

    number: int
    answers: Answers
    W: Floats
    targets: Floats
    rows: Floats
    cost: Cost

    @property
    def mechanism(self) -> Mechanism:
        return Mechanism(self.rows, np.eye(len(self.rows)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Ground:
    """One chart that is fine enough for all analyses, from the coarsest to the finest, and what is known on it.

    `is_whole` says that all of history fits onto the chart. Otherwise a later question about an analysis may bring
    another part of history than the one that is known here. `last` is the last release of all that was found.
    """

    table: Table
    version: int
    chart: Chart
    known: Known
    releases: tuple[int, ...]
    is_whole: bool
    last: int
    analyses: tuple[Analysis, ...]

    @property
    def is_nested(self) -> bool:
        """Whether each analysis follows from the next finer one."""
        return all(np.isfinite(_telling(finer.rows).variances(one.W)).all() for one, finer in pairwise(self.analyses))

    def rows(self, residual: Residual) -> Floats:
        """Return the rows of a residual as they are released, on the points of the chart."""
        B = residual.measurement.rows(residual.made).astype(float)
        return self.chart.place(residual.made, np.ldexp(B, -residual.measurement.bits))


@dataclass(frozen=True, eq=False)
class Course:
    """What is released on each way: the looks one after the other, and then the rest of what is taken.

    Look i completes what is known to the rows shared[i]. None where nothing is missing.
    """

    shared: tuple[Floats, ...]
    looks: tuple[Residual | None, ...]
    rests: tuple[Residual | None, ...]

    def way(self, index: int) -> list[Residual]:
        """Return all that is released if this analysis is taken."""
        looks = self.looks[: index + 1]  # in a nested choice the one before the last decides about the last
        return [part for part in (*looks, self.rests[index]) if part is not None]


def highest(way: Sequence[Residual]) -> int:
    """Return what a way charges the dearest cell, in units."""
    return dearest(part.cost for part in way)


# --- the ground --------------------------------------------------------------------------------------------


def ground(strategies: Sequence[Strategy], history: History, version: int, *, as_of: int | None = None) -> Ground:
    """Return the analyses on one chart, and what is known of them, or was known as of a release."""
    table, found = strategies[0].question.workspace.table, history.found(version)
    found = found if as_of is None else found.until(as_of)
    recall = history.recall(union([strategy.question for strategy in strategies]), version=version, as_of=as_of)
    if recall is None:
        raise TooLarge("the analyses together tell too many cells apart", hint=LESS)
    for strategy in strategies:
        answers = strategy.question.groups * len(strategy.question.units)
        if answers > SMALL_MARGINALS or history.recall(strategy.question, version=version, as_of=as_of) is None:
            raise TooLarge("an analysis has too many answers to be answered from what is known", hint=LESS)
    analyses = [_analysis(number, strategy, recall.chart) for number, strategy in enumerate(strategies)]
    ordered = sorted(analyses, key=lambda one: len(row_space(one.rows)))
    is_whole = all(recall.chart.fits(each) for each in found.evidence)
    return Ground(
        table=table,
        version=version,
        chart=recall.chart,
        known=recall.known,
        releases=recall.releases,
        is_whole=is_whole,
        last=_last(found),
        analyses=tuple(ordered),
    )


def _last(found: Releases) -> int:
    pooled = (number for pool in found.pools.values() for number in pool.ids)
    return max((*pooled, *(number for told in found.told for number in told.ids)), default=0)


def _analysis(number: int, strategy: Strategy, chart: Chart) -> Analysis:
    question, measurement = strategy.question, strategy.measurement
    W = chart.place(question, question.E.astype(float) * question.units[:, None, None])
    answers = _answers(W, strategy.recipes)
    counted = np.abs(W).max(axis=1) > 0  # to the others no record can add anything
    rows = chart.place(question, np.ldexp(measurement.rows(question).astype(float), -measurement.bits))
    cost = linear.cost(question, measurement, rows_per_unit=question.workspace.table.max_rows_per_unit)
    targets = np.tile(strategy.variances, question.groups)
    return Analysis(number=number, answers=answers, W=W[counted], targets=targets[counted], rows=rows * MET, cost=cost)


def _answers(W: Floats, recipes: Sequence[Recipe]) -> Answers:
    """Return what is asked, made of its functionals, without the groups that no record can be in."""
    each = 1 + max(part for recipe in recipes for part in recipe.parts)
    groups = W.reshape(-1, each, W.shape[1])
    sums, counts = [], []
    for recipe in recipes:
        count, last = groups[:, recipe.parts[0]], groups[:, recipe.parts[-1]]
        averaged = len(recipe.parts) > 1
        sums.append(last + recipe.centre * count if averaged else last)
        counts.append(count if averaged else np.zeros_like(count))
    found = Answers(np.vstack(sums), np.vstack(counts))
    return found.where(found.are_averages | (np.abs(found.sums).max(axis=1) > 0))


# --- the course --------------------------------------------------------------------------------------------


def course(ground: Ground, *, nested: bool) -> Course:
    """Return what is released on each way: what history does not tell.

    The join charges all cells together least, and yet may charge a single one more than asking afresh. Then what
    history and a stage have in common is subtracted instead, and if even that does not help, nothing. Nor is
    anything subtracted if history is too large to be brought whole: the analysis must be free afterwards.

    Guarantee: no way charges a cell more than its analysis charges the dearest cell when it is asked alone, up to
    rounding.
    """
    shared, own = _shared(ground, nested=nested), [one.cost.highest for one in ground.analyses]
    for missing in (join_residual, _beyond_common) if ground.is_whole else ():
        found = _course(ground, shared, ground.known, missing)
        if all(highest(found.way(i)) <= cost * _ROUNDING for i, cost in enumerate(own)):
            return found
    return _course(ground, shared, nothing_known(ground.chart.size), join_residual)


def _shared(ground: Ground, *, nested: bool) -> list[Floats]:
    """Return for each look the rows that it completes: what the analyses which may still be taken have in common.

    Nested: of all, of all but the coarsest, and so on (section 7.5); otherwise of all, once.
    """
    mechanisms = [one.mechanism for one in ground.analyses]
    try:
        if nested:
            found = [stage.common for stage in sequence(mechanisms)[:-1]]
        else:
            found = [common(*mechanisms) if len(mechanisms) == 2 else common_many(mechanisms)]
    except ValueError:
        raise TooLarge("what the analyses share can't be worked out", hint="choose among fewer") from None
    if any(not len(one.B) for one in found):
        raise Unsupported(
            "the analyses have nothing in common that could be looked at", hint="add what they share to each of them"
        )
    return [standardised(one).B for one in found]


def _course(ground: Ground, shared: Sequence[Floats], known: Known, missing: Missing) -> Course:
    looks, at = [], [known]
    for wanted in shared:
        rows = _missing(at[-1], wanted, missing, W=wanted, targets=np.full(len(wanted), _SEEN))
        looks.append(_residual(ground, rows))
        at.append(at[-1] if looks[-1] is None else _with(at[-1], ground.rows(looks[-1])))
    rests = [
        _residual(ground, _missing(at[min(i + 1, len(shared))], one.rows, missing, W=one.W, targets=one.targets))
        for i, one in enumerate(ground.analyses)
    ]
    return Course(tuple(shared), tuple(looks), tuple(rests))


def _missing(known: Known, wanted: Floats, missing: Missing, *, W: Floats, targets: Floats) -> Floats:
    """Return rows to release so that `wanted` is known; none if W is within its targets already."""
    if (known.variances(W) <= targets * MET).all():
        return wanted[:0]
    rows = missing(known, wanted) if known.rank else wanted
    kept: Floats = rows[(rows**2).sum(axis=1) > _CUT * (wanted**2).sum(axis=1).max()]
    return kept


def _beyond_common(known: Known, wanted: Floats) -> Floats:
    """Return what `wanted` has beyond the most that is answerable from both; and, for rounding, what the join adds."""
    M_known, M = (Mechanism(rows, np.eye(len(rows))) for rows in (known.rows, wanted))
    rows = residual(M, common(M, M_known)).B
    found: Floats = np.vstack([rows, join_residual(_with(known, rows), wanted)])
    return found


def _telling(rows: Floats) -> Known:
    """Return what is known once rows are released, whatever they tell."""
    return _with(nothing_known(rows.shape[1]), rows)


def _with(known: Known, *more: Floats) -> Known:
    for rows in more:
        known = known.with_rows(rows, np.zeros(len(rows)))
    return known


def _residual(ground: Ground, rows: Floats) -> Residual | None:
    if not len(rows):
        return None
    made, measurement = ground.chart.released(rows)
    cost = linear.cost(made, measurement, rows_per_unit=ground.table.max_rows_per_unit)
    return Residual(table=ground.table.name, version=ground.version, made=made, measurement=measurement, cost=cost)


# --- deciding ----------------------------------------------------------------------------------------------


def ratios(
    ground: Ground, course: Course, known: Known, *, of: int, taking: int, deviations: float = 0.0
) -> SignalToNoise:
    """Return bounds for the ratios of an analysis's answers if one is taken, itself or a finer one to read it off."""
    then = _with(ground.known, *(ground.rows(part) for part in course.way(taking)))
    return signals.ratios(known, then, answers=ground.analyses[of].answers, deviations=deviations)


def gain(ground: Ground, course: Course, known: Known, *, index: int, ratio: float, deviations: float = 0.0) -> float:
    """Return how much of an analysis becomes usable if it is taken, of 1: what it is then, less what it is already.

    Section 6.2 takes what lowers uncertainty most. Summed over answers that is whatever has the most of them, so here
    it is averaged over them, and nobody gains by a ratio beyond the one that is wanted.
    """
    answers = ground.analyses[index].answers
    then = ratios(ground, course, known, of=index, taking=index, deviations=deviations)
    already = signals.ratios(known, known, answers=answers, deviations=deviations)
    return then.usable(ratio) - already.usable(ratio)
