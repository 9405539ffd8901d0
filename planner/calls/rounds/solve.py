"""One plan for the queries of a round, as it is made: the questions of each table as one problem, or as a few.

Questions of counts and sums are planned on what they tell apart, with what is known. Rounds that tell too much apart
are cut into smaller ones, whole marginals that are too large for that are planned part by part, and what can't be
shared is planned as if it were asked alone. Everything here is decided from public things.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Protocol

import numpy as np

from mechanisms import interrupts, sharing
from mechanisms.gaussian.known import Known
from mechanisms.least import marginals as helmert
from mechanisms.least.minimax import Plan as Least
from mechanisms.least.minimax import even_join
from mechanisms.least.residual import Join
from mechanisms.least.symmetry import Key, Piece
from mechanisms.tolerances import MET
from planner.basics.limits import MAX_POINTS, MAX_ROUND_ENTRIES, MAX_ROUND_ROWS, MAX_SHARED
from planner.calls.rounds.axes import RoundProblem, common_problem, owners
from planner.calls.rounds.batches import (
    Linear,
    Whole,
    by_cuts,
    into_batches,
    merge,
    points,
    rows_and_marginals,
)
from planner.calls.rounds.model import Joint, RoundPlan, RoundQuery, scaled
from planner.cells.costs import EVEN_BITS, Cost, dearest, evened, rho_of, to_units_down
from planner.cells.workspace import Floats
from planner.history import marginals
from planner.history.chart import Chart, Evidence, shareable
from planner.history.marginals import MarginalEvidence
from planner.history.recall import Recall, Recalls
from planner.history.union import union
from planner.ledger.accounts import Charge, total
from planner.plans import marginals as marginal
from planner.plans.marginals import MarginalTask
from planner.plans.plan import Plan, Planner
from planner.plans.prepared import Prepared
from planner.plans.release import LinearTask
from planner.plans.settings import Settings
from planner.plans.task import Payable, Task
from planner.questions import linear
from planner.questions.linear import Question
from planner.sql.aggregates import AggregateKind

MARGIN = 1 - 1e-6
"""Targets are met with so much to spare, for rounding."""

NEAR = 1.5
"""Variances up to so many times their targets are rounding, and smaller targets make up for it. Beyond, a question is
answered on a chart that has no room for what the plan counts on."""


SEVERAL = 1 - 1e-7
"""The same where several analysts plan together: what one of them shares with nobody then costs no more than alone."""

FINE_BITS = 40
"""To so many bits of their dearest cell costs are rounded there."""


@dataclass(frozen=True)
class CellLimits:
    """What every cell of a table may pay, as costs that are added up, and tasks that keep within that."""

    limits: Sequence[Cost]
    instead: Sequence[Payable]


Solver = Callable[[Known, Floats, Floats], Join]
"""From what is known, rows and target variances to rows that meet them."""


class Shop(Protocol):
    """What a plan is made with: the plans of single queries, and a planner for any settings."""

    def alone(self, asked: RoundQuery, *, scale: float = 1.0) -> Plan: ...
    def shell(self, asked: RoundQuery, *, scale: float) -> Plan: ...
    def planner(self, settings: Settings) -> Planner: ...
    def population(self, table: str) -> str: ...


class RoundSolver:
    """One plan while it is made: what is to be released so far, and what is known once it is."""

    def __init__(
        self,
        shop: Shop,
        queries: Sequence[RoundQuery],
        scale: float = 1.0,
        solve: Solver | None = None,
        within: Mapping[str, CellLimits] | None = None,
    ) -> None:
        self.shop, self.queries, self.scale, self.solve, self.within = shop, queries, scale, solve, within or {}
        self.is_shared = len({asked.entry.analyst for asked in queries}) > 1
        self.settings = [scaled(asked.settings, scale) for asked in queries]
        self.plans = [shop.shell(asked, scale=scale) for asked in queries]
        self.tasks: dict[str, Payable] = {}
        self.bounds: dict[str, float | None] = {}
        self.savings = np.zeros(len(queries))
        self.releases: set[int] = set()
        self.after: dict[str, Recall] = {}  # by digest: what will be known of a question
        self.recalls: tuple[list[str], Recalls] = [], OrderedDict()  # the same by chart, once these tasks are released

    def plan(self) -> RoundPlan:
        """Return the plan: questions of each table as one problem, or as few."""
        for table in self._tables():
            self._table(table)
        return self.result()

    def _tables(self) -> list[str]:
        return list(dict.fromkeys(part.measured.table.name for asked in self.queries for part in asked.parts))

    def result(self) -> RoundPlan:
        """Return what was planned so far, and what it means for each query."""
        populations = {task.table: self.shop.population(task.table) for task in self.tasks.values()}
        tasks = self.tasks.values()
        rho = float(
            total(
                Charge(population=populations[t.table], table=t.table, version=t.version, cost=t.cost)
                for t in tasks
                if t.cost
            )
        )
        savings = tuple(float(part) for part in self.savings / rho) if rho else (0.0,) * len(self.queries)
        bounds = list(self.bounds.values())
        bound = None if None in bounds else sum(found for found in bounds if found is not None) or None
        asked, errors = zip(*(self._error(i) for i in range(len(self.queries))), strict=True)
        return RoundPlan(
            tasks=tuple(self.tasks.values()),
            populations=populations,
            bound=bound,
            asked=asked,
            errors=errors,
            savings=savings,
            releases=tuple(sorted(self.releases)),
        )

    def _table(self, table: str) -> None:
        self.bounds[table] = 0.0
        joint, whole = list[Linear](), list[Whole]()
        for i, part, task in self._questions(table):
            interrupts.check()
            self.releases.update(task.releases)
            planner = self.shop.planner(self.settings[i])
            if isinstance(task, MarginalTask):
                whole.append(Whole(i, task.question, (planner.error(table) / self.settings[i].z) ** 2))
            elif isinstance(task, LinearTask) and task.is_small:
                targets = np.tile(planner.targets(task.question, planner.error(table)), task.question.groups)
                joint.append(Linear(i, task.question, part.whole, targets))
            elif task.cost is not None:
                self.tasks[task.key] = task
                self.bounds[table] = None  # of what is planned by itself, nobody has shown that it is the least
        if not whole and self._met(joint):
            return
        rows, more = rows_and_marginals([one for one in joint if len(one.targets) <= MAX_ROUND_ROWS], whole)
        if any(len(one.targets) > MAX_ROUND_ROWS for one in joint):
            self.bounds[table] = None  # they are planned by themselves
        large = points([one.question for one in rows]) > MAX_SHARED
        for several in into_batches(rows) if large else ():  # too large a problem to bring whole marginals to
            self._solved(several)
        for group in by_cuts(more):
            self._marginals(group)
        for several in () if large else into_batches(rows):
            self._solved(several)
        for one in joint:
            self._topped_up(one)

    def _questions(self, table: str) -> Iterator[tuple[int, Prepared, Task]]:
        for i, (asked, plan) in enumerate(zip(self.queries, self.plans, strict=True)):
            for part, planned in zip(asked.parts, plan.parts, strict=True):
                if part.measured.table.name == table:
                    yield from ((i, part, task) for task in planned.tasks)

    def _pending(self, table: str) -> tuple[list[Evidence], list[MarginalEvidence]]:
        """Return what is to be released about a table so far."""
        here = [task for task in self.tasks.values() if task.table == table]
        evidence = [task.evidence for task in here if isinstance(task, Joint)]
        evidence += [task.evidence for task in here if isinstance(task, LinearTask) and shareable(task.made)]
        numbered = [replace(found, id=-1 - i) for i, found in enumerate(evidence)]
        told = [_told(task, -1 - len(numbered) - i) for i, task in enumerate(here) if isinstance(task, MarginalTask)]
        return numbered, told

    def _bounded(self, table: str, bound: float) -> None:
        """Note the bound of one problem, which holds for the table while it counts on nothing still to be released."""
        known = self.bounds[table]
        self.bounds[table] = None if known is None else max(known, bound)

    # Rows in blocks.

    def _met(self, group: Sequence[Linear]) -> bool:
        """Plan questions as one problem in blocks; False if that is too large, or does not work out.

        Questions that are known already are left out: the common axes may have no room for what tells them.
        """
        if self.solve is not None or not group:
            return not group
        every, group = group, [one for one in group if self._excess(one) > MET]
        if not group:
            return True
        table = group[0].question.workspace.table
        planner, pending = self.shop.planner(self.settings[0]), self._pending(table.name)
        history, version = planner.history(table.name), planner.version(table.name)
        meeting = common_problem(group, history, history.found(version).plus(*pending))
        if meeting is None:
            self.after.clear()  # what is planned in another way has still to be looked at
            return False
        before, margin = dict(self.tasks), SEVERAL if self.is_shared else MARGIN
        for _ in range(4):
            interrupts.check()
            plan, is_within = self._least(meeting, margin)
            pieces = meeting.problem.pieces(plan, meeting.partners)
            made = [self._piece(meeting, group, key, piece, version) for key, piece in pieces]
            if None in made:
                break
            # What is so little that it is rounding is not released.
            self.tasks = before | {task.key: task for task in made if task is not None and task.cost.highest}
            self.after.clear()
            worst = max(self._excess(one) for one in every)
            if worst <= MET:
                first, paid = not any(pending), [task.cost for task in made if task] if is_within else None
                self._noted(meeting, plan, group, margin, first=first, paid=paid)
                return True
            if worst > NEAR or is_within:
                break
            margin *= (1 - 1e-6) / worst
        self.tasks = before
        self.after.clear()
        return False

    def _least(self, meeting: RoundProblem, margin: float) -> tuple[Least, bool]:
        """Return the cheapest plan of a problem, or one within limits, and whether limits were kept."""
        wanted = self.within.get(meeting.table.name)
        limits = None if wanted is None else meeting.limits(wanted.limits)
        if wanted is None or limits is None:
            return meeting.problem.solved(tighter=margin), False
        shared = [task.evidence for task in wanted.instead if isinstance(task, (Joint, LinearTask))]
        is_all = not any(isinstance(task, MarginalTask) for task in wanted.instead)
        return meeting.problem.within(limits, meeting.told_by(shared) if is_all else None, tighter=margin), True

    def _excess(self, one: Linear) -> float:
        """Return the largest variance over its target that a question will have."""
        recall = self._known(one.question)
        return float((recall.known.variances(recall.W) / one.targets).max(initial=0.0))

    def _piece(
        self, meeting: RoundProblem, group: Sequence[Linear], key: Key, piece: Piece, version: int
    ) -> Joint | None:
        """Return the release of a block; None if it is too large."""
        chart, rows = meeting.placed(piece)
        if chart.size > MAX_POINTS or rows.size > MAX_ROUND_ENTRIES // 2:
            return None
        digests = [group[i].question.digest for i in meeting.telling(key)]
        return self._joint(chart, rows, digests, meeting.releases, version)

    def _noted(
        self,
        meeting: RoundProblem,
        plan: Least,
        group: Sequence[Linear],
        margin: float,
        *,
        first: bool,
        paid: Sequence[Cost] | None,
    ) -> None:
        """Note what a plan is worth: how much less could do, and what each target costs.

        With prices its cost is a part of them, and `paid` says what that is for the dearest cell.
        """
        table, scale = meeting.table, meeting.table.max_rows_per_unit**2 / 2
        if paid is not None:
            scale = float(rho_of(dearest(paid))) / (plan.cost or 1.0)
        self.releases.update(number for number in meeting.releases if number > 0)
        if not meeting.whole or paid is not None:
            self.bounds[table.name] = None  # what was left out might have helped, or another plan
        elif first:
            self._bounded(table.name, plan.bound_at(1 / margin) * scale)  # the aim was a little lower than asked
        for row, question in owners(meeting).items():
            self.savings[group[question].query] += float(plan.multipliers[row]) * scale * (1 - 1.1**-2)

    # Rows on one chart.

    def _solved(self, group: Sequence[Linear]) -> None:
        """Plan questions as one problem: rows that are missing on a chart fine enough for all of them."""
        table = group[0].question.workspace.table
        planner, pending = self.shop.planner(self.settings[0]), self._pending(table.name)
        history, version = planner.history(table.name), planner.version(table.name)
        recall = history.recall(union([one.question for one in group]), version=version, pending=pending)
        assert recall is not None
        W = np.vstack([_rows(recall.chart, one.question) for one in group])
        targets = np.concatenate([one.targets for one in group])
        found, task, after = self._missing(recall, W, targets, group, version)
        if found is None:
            return
        scale, whole = table.max_rows_per_unit**2 / 2, history.fits(recall.chart, version)
        if not whole:
            self.bounds[table.name] = None  # what was left out might have helped
        elif not any(pending):
            self._bounded(table.name, found.bound * scale)
        if task is not None:
            self.tasks[task.key] = task
            self.releases.update(task.releases)
        starts = np.cumsum([0, *(len(one.targets) for one in group)])
        for one, start, end in zip(group, starts, starts[1:], strict=False):
            self.savings[one.query] += float(found.multipliers[start:end].sum()) * scale * (1 - 1.1**-2)
        if whole and all(recall.chart.fits(each) for each in pending[0]):
            # Then everybody will look at this chart, and know what is known here.
            for one in group:
                self.after[one.question.digest] = replace(after, W=_rows(after.chart, one.question))

    def _missing(
        self, recall: Recall, W: Floats, targets: Floats, group: Sequence[Linear], version: int
    ) -> tuple[Join | None, Joint | None, Recall]:
        """Return what must be released for the targets, and what is known then; None if they can't be met so."""
        now = recall.known.variances(W)
        for margin in (MARGIN, 1 - 1e-4, 1 - 1e-2):
            aims = np.where(now <= targets * MET, np.maximum(now, targets), targets * margin)
            found = self._rows(recall, W, aims)
            if found is None:
                break
            task = self._joint_of(recall, found.rows, group, version) if len(found.rows) else None
            after = recall if task is None else recall.with_evidence([task.evidence])
            if (after.known.variances(W) <= targets * MET).all():
                # The aim was a little lower than asked; a dual solution tells as much about the targets themselves.
                slack = 2 * (1 - margin) * float(found.multipliers.sum())
                return replace(found, bound=max(found.bound - slack, 0.0)), task, after
        return None, None, recall

    def shared(self, mechanism: str, rho: Fraction, weights: Mapping[str, Fraction]) -> list[Payable] | None:
        """Return the release by which a mechanism shares rho among the analysts; None if it is no small problem."""
        (table, *others), group = self._tables(), list[Linear]()
        for i, part, task in self._questions(table):
            if not isinstance(task, LinearTask) or not task.is_small:
                return None
            planner = self.shop.planner(self.settings[i])
            targets = np.tile(planner.targets(task.question, planner.error(table)), task.question.groups)
            group.append(Linear(i, task.question, part.whole, targets))
        if others or points([one.question for one in group]) > MAX_SHARED:
            return None
        planner = self.shop.planner(self.settings[0])
        version = planner.version(table)
        recall = planner.history(table).recall(union([one.question for one in group]), version=version)
        assert recall is not None
        analysts = []
        for name, weight in weights.items():
            own = [one for one in group if self.queries[one.query].entry.analyst == name]
            W = np.vstack([_rows(recall.chart, one.question) / np.sqrt(one.targets)[:, None] for one in own])
            analysts.append(sharing.Analyst(W, float(weight)))
        budget = 2 * float(rho) / group[0].question.workspace.table.max_rows_per_unit ** 2
        found = sharing.share(analysts, budget=budget * MARGIN, mechanism=mechanism)
        basis = recall.known.with_rows(
            np.vstack([one.W for one in analysts]), np.zeros(sum(len(one.W) for one in analysts))
        ).basis
        rows = found.rows if basis is None else found.rows @ basis.T @ basis
        made = self._joint_of(recall, rows, group, version)
        return [made] if made.cost.highest <= to_units_down(rho) else None

    def _rows(self, recall: Recall, W: Floats, aims: Floats) -> Join | None:
        try:
            found = (self.solve or even_join)(recall.known, W, aims)
        except ValueError:  # far beyond what floating point can tell apart
            return None
        # Nothing else is missing than what was asked: what leaves the span of both by rounding would open directions
        # that are hardly known at all.
        basis = recall.known.with_rows(W, np.zeros(len(W))).basis
        return found if basis is None else replace(found, rows=found.rows @ basis.T @ basis)

    def _joint_of(self, recall: Recall, rows: Floats, group: Sequence[Linear], version: int) -> Joint:
        return self._joint(recall.chart, rows, [one.question.digest for one in group], recall.releases, version)

    def _joint(
        self, chart: Chart, rows: Floats, digests: Sequence[str], releases: Sequence[int], version: int
    ) -> Joint:
        """Return the release of rows on the points of a chart."""
        table = chart.workspace.table
        made, measurement = chart.released(rows)
        cost = linear.cost(made, measurement, rows_per_unit=table.max_rows_per_unit)
        cost = evened(cost, bits=FINE_BITS if self.is_shared else EVEN_BITS)
        known = tuple(number for number in releases if number > 0)
        return Joint(
            table=table.name,
            version=version,
            made=made,
            measurement=measurement,
            cost=cost,
            releases=known,
            also=tuple(dict.fromkeys(digests)),
        )

    def _topped_up(self, one: Linear) -> None:
        """Make sure that a question will be answered within its targets; else it is measured by itself as well."""
        recall = self._known(one.question)
        if not (recall.known.variances(recall.W) <= one.targets * MET).all():
            plan = self.shop.alone(self.queries[one.query], scale=self.scale)
            for task in plan.paid:
                if isinstance(task, LinearTask) and task.question.digest == one.question.digest:
                    self.tasks[task.key] = task
                    self.releases.update(task.releases)
                    self.after.clear()

    def _known(self, question: Question) -> Recall:
        """Return what will be known of a question."""
        if question.digest not in self.after:
            table = question.workspace.table.name
            planner, pending = self.shop.planner(self.settings[0]), self._pending(table)
            if self.recalls[0] != list(self.tasks):
                self.recalls = list(self.tasks), OrderedDict()
            found = planner.history(table).recall(
                question,
                version=planner.version(table),
                pending=pending if any(pending) else None,
                recalls=self.recalls[1],
            )
            assert found is not None
            self.after[question.digest] = found
        return self.after[question.digest]

    # Whole marginals.

    def _marginals(self, group: Sequence[Whole]) -> None:
        """Plan questions about whole marginals as one problem, part by part."""
        question, targets = merge(group)
        table, planner = question.workspace.table, self.shop.planner(self.settings[0])
        version, history = planner.version(table.name), planner.history(table.name)
        first = not any(self._pending(table.name))
        task = marginal.planned(question, (), history.told(version), version=version, target=targets)
        self.releases.update(task.releases)
        sizes, known = question.workspace.shape, helmert.added(found.precisions for found in task.told)
        scale, found = table.max_rows_per_unit**2 / 2, helmert.top_up(question.workspace.shape, known, targets)
        if not history.is_symmetric(version):
            self.bounds[table.name] = None  # what is known beyond marginals might have helped
        elif first:
            self._bounded(table.name, found.bound * scale)
        if task.cost is not None:
            self.tasks[task.key] = task
            for one in group:
                relaxed = merge([replace(each, target=each.target * (1.21 if each is one else 1)) for each in group])
                cost = helmert.top_up(sizes, known, relaxed[1]).cost
                self.savings[one.query] += max(found.cost - cost, 0.0) * scale

    # Afterwards.

    def _error(self, index: int) -> tuple[float, float] | tuple[None, None]:
        """Return the half-width asked for, and that there will be, of what is worst off among counts and sums."""
        settings = self.queries[index].settings
        planner = self.shop.planner(settings)
        found: list[tuple[float, float]] = []
        for planned in self.plans[index].parts:
            after = replace(planned, tasks=tuple(self._after(task) for task in planned.tasks))
            for number, aggregate in enumerate(planned.measured.aggregates):
                error = after.error(number, settings)
                if error is not None:
                    target = planner.error(planned.measured.table.name)
                    if aggregate.kind == AggregateKind.SUM:
                        target = max(_sum_target(planner, task, number, target) for task in planned.tasks)
                    found.append((target, error))
        return max(found, key=lambda pair: pair[1] / pair[0], default=(None, None))

    def _after(self, task: Task) -> Task:
        """Return a task as it will be, once all is released."""
        if isinstance(task, MarginalTask):
            told = [marginals.onto(found, task.question.workspace) for found in self._pending(task.table)[1]]
            return replace(task, told=(*task.told, *told), made=(), cost=None)
        if isinstance(task, LinearTask) and task.is_small:
            return replace(task, recall=self._known(task.question), cost=None)
        return task


def _sum_target(planner: Planner, task: Task, number: int, error: float) -> float:
    """Return the half-width that a sum should have, if one of a count should have this one."""
    if not isinstance(task, LinearTask):
        return error
    part = next(recipe.parts[0] for recipe in task.recipes if recipe.aggregate == number)
    return planner.settings.z * float(np.sqrt(planner.targets(task.question, error)[part]))


def _rows(chart: Chart, question: Question) -> Floats:
    return chart.place(question, question.E.astype(float) * question.units[:, None, None])


def _told(task: MarginalTask, number: int) -> MarginalEvidence:
    """Return what a task will tell about marginals, as if all were zero."""
    workspace = task.question.workspace
    sizes = workspace.shape
    return MarginalEvidence(
        number, workspace, {rows.A: rows.precision for rows in task.made}, lambda A: np.zeros([sizes[i] for i in A])
    )
