"""What a query will measure, what is already known, and what it costs: decided from public things only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mechanisms.tolerances import MET
from planner.basics.errors import BadValue, TooLarge
from planner.cells.costs import Cost, rho_of
from planner.duck.sandbox import Sandbox, Workbench
from planner.history.chart import Evidence
from planner.history.marginals import MarginalQuestion, symmetric
from planner.history.recall import History, Recall, recallable, small
from planner.ledger.accounts import Release
from planner.ledger.ledger import Ledger
from planner.plans.marginals import MarginalTask, planned
from planner.plans.release import DistinctTask, LinearTask, QuantileTask, Task
from planner.plans.settings import Settings
from planner.questions import body, linear
from planner.questions import labelled as nonlinear
from planner.questions.labelled import Labelled, Noise
from planner.questions.linear import Measurement, Question
from planner.sources.measure import Meter
from planner.sql.placement import Placement, Placer
from planner.sql.query import Compiled, Measured
from planner.sql.workload import Floats, Recipe, Workload, workload

LINEAR_KINDS = ("count", "sum", "avg", "variance", "stddev")

LEAST_SAVING = 0.02
"""A join that saves all cells together less than this is not taken if it is the dearer way, either."""

LEAST_GAIN = 0.01
"""What charges the dearest cell least is taken if that will then have paid less in all by more than this part.

So after a SELECT the budget stands at most 1 % higher than after a round of it. For less, what is known is used.
"""

MOST_BURDEN = 1.25
"""A join that charges some cell more than this times what measuring afresh charges the dearest is not taken."""


@dataclass(frozen=True, eq=False)
class Part:
    """One measured query with its tasks and the placement that has its group keys."""

    measured: Measured
    placement: Placement
    tasks: tuple[Task, ...]


@dataclass(frozen=True, eq=False)
class Plan:
    """A whole statement: nothing in it depends on protected data."""

    compiled: Compiled
    parts: tuple[Part, ...]

    @property
    def tasks(self) -> list[Task]:
        return [task for part in self.parts for task in part.tasks]

    @property
    def paid(self) -> list[Task]:
        """Return the tasks that release something new, each once."""
        return list({task.key: task for task in self.tasks if task.cost is not None}.values())


@dataclass(frozen=True, eq=False)
class Prepared:
    """One measured query, placed: what it asks, whatever the accuracy; its tables live in one workbench."""

    measured: Measured
    placement: Placement
    linear: tuple[tuple[Question, tuple[int, ...]], ...]  # with the grouping sets of each
    recipes: tuple[Recipe, ...]
    labelled: tuple[tuple[int, int, Labelled], ...]  # with the numbers of the aggregate and of the set
    marginals: MarginalQuestion | None = None  # in place of `linear`, or beside it: what costs less is taken
    whole: MarginalQuestion | None = None  # the same question however small it is, if it is one about whole marginals

    @property
    def tasks(self) -> int:
        return (len(self.linear) if self.marginals is None else 1) + len(self.labelled)


def prepare(measured: Measured, sandbox: Sandbox, bench: Workbench) -> Prepared:
    """Return a measured query on its workspaces. Depends on public things only."""
    placer = Placer(measured, sandbox, bench)
    numbered = list(enumerate(measured.aggregates))
    work = workload([(i, a) for i, a in numbered if a.kind in LINEAR_KINDS], placer)
    others = [(i, a) for i, a in numbered if a.kind not in LINEAR_KINDS]
    labelled = [(i, s, found) for i, a in others for s, found in enumerate(nonlinear.labelled(a, placer))]
    whole = symmetric(work)
    answers, cells = sum(work.placement.group_counts), work.placement.workspace.cells
    marginals = None if small(answers, cells) else whole
    questions = _questions(work, len(measured.sets)) if marginals is None or recallable(answers, cells) else ()
    return Prepared(measured, work.placement, questions, work.recipes, tuple(labelled), marginals, whole)


def _questions(work: Workload, sets: int) -> tuple[tuple[Question, tuple[int, ...]], ...]:
    """Return the linear questions: all grouping sets as one problem, or as a few when that would be too large.

    Sets with more groups come first: what they tell about the others is known when those are planned.
    """
    if not work.functionals:
        return ()
    if linear.is_one_problem(work, range(sets)):
        return ((linear.question(work, range(sets)), tuple(range(sets))),)
    packs: list[tuple[int, ...]] = []
    for s in sorted(range(sets), key=lambda s: -work.placement.group_counts[s]):
        wider = next((i for i, pack in enumerate(packs) if linear.is_one_problem(work, (*pack, s))), None)
        if wider is None:
            packs.append((s,))
        else:
            packs[wider] = (*packs[wider], s)
    return tuple((linear.question(work, pack), pack) for pack in packs)


class Planner:
    """Decides how accurately each prepared query is measured, and what of it is known already."""

    def __init__(
        self, ledger: Ledger, meters: Mapping[str, Meter], histories: Mapping[str, History], settings: Settings
    ) -> None:
        self.ledger, self.meters, self.histories, self.settings = ledger, meters, histories, settings

    def plan(self, compiled: Compiled, prepared: Sequence[Prepared]) -> Plan:
        tasks = sum(part.tasks for part in prepared)
        self._pending: dict[str, list[Evidence]] = {}
        self.rho = self.settings.rho / tasks if self.settings.rho is not None and tasks else None
        return Plan(compiled, tuple(self._part(part) for part in prepared))

    def _part(self, part: Prepared) -> Part:
        tasks: list[Task] = [self._counted(part, part.marginals)] if part.marginals is not None else []
        if part.marginals is None:
            tasks += [self._linear(part, question, sets) for question, sets in part.linear]
        for number, set_, question in part.labelled:
            make = self._distinct if question.aggregate.kind == "distinct" else self._quantile
            tasks.append(make(part.measured, question, number, set_))
        return Part(part.measured, part.placement, tuple(tasks))

    # What is known already.

    def _history(self, digest: str, table: str) -> tuple[Release, ...]:
        """Return the releases that answer a question: on today's data, or on those of `as_of`."""
        found, latest, version = self.ledger.find(digest, table=table), self.settings.as_of, self.version(table)
        return tuple(r for r in found if r.version == version and (latest is None or r.id <= latest))

    def error(self, table: str) -> float:
        """Return the half-width that a count should have."""
        if not self.settings.relative:
            return self.settings.error
        size = self.meters[table].table.size or self._known_size(table)
        if size is None:
            raise BadValue(
                "a relative error needs a public or already known size of the table",
                hint=f"ask SELECT count(*) FROM {table} first, or give noisegate.error as a number",
            )
        return self.settings.error * size

    def _known_size(self, table: str) -> float | None:
        """Return the number of rows as far as it was released, at least 1; None if that is not known."""
        recall = self.histories[table].recall(linear.row_count(self.meters[table].table), version=self.version(table))
        assert recall is not None
        size = float(recall.known.estimate(recall.W)[0])
        return None if math.isnan(size) else max(size, 1.0)

    def _needs(self, cost: Cost | None) -> Cost | None:
        if cost is not None and self.settings.as_of is not None:
            raise BadValue(
                f"release {self.settings.as_of} and those before it do not answer this",
                hint="RESET noisegate.as_of to ask anew",
            )
        return cost

    # Accuracy.

    def _linear(self, part: Prepared, question: Question, sets: tuple[int, ...]) -> LinearTask:
        found = self._recalled(part, question, sets)
        if self._needs(found.cost) is not None:
            self._pending.setdefault(found.table, []).append(found.evidence)
        return found

    def _recalled(self, part: Prepared, question: Question, sets: tuple[int, ...]) -> LinearTask:
        """Return the task of a question, with what is known and what the statement releases before it."""
        table, version = part.measured.table.name, self.version(part.measured.table.name)
        before = self.histories[table].recall(question, version=version, as_of=self.settings.as_of)
        recall = before.with_evidence(self._pending.get(table, [])) if before is not None else None
        history = () if before is not None else self._history(question.digest, table)
        counts = tuple(part.placement.group_counts[s] for s in sets)
        nothing = Measurement(np.zeros((0, len(question.units)), dtype=object), 0)
        known = LinearTask(
            table,
            version,
            question,
            part.recipes,
            sets,
            counts,
            history,
            before,
            recall,
            question,
            nothing,
            None,
            "free",
        )
        return self._topped_up(known, part.measured.table.max_rows_per_unit)

    def _counted(self, part: Prepared, question: MarginalQuestion) -> Task:
        """Return the task for counts of whole marginals: part by part, or with all that is known if that costs less."""
        found, table = self._marginal(part, question), part.measured.table.name
        history, version = self.histories[table], self.version(table)
        if found.cost is None or len(part.linear) != 1 or history.is_symmetric(version):
            return found
        other = self._recalled(part, *part.linear[0])
        if other.recall is None or (other.cost is not None and other.cost.highest >= found.cost.highest):
            return found
        return self._linear(part, *part.linear[0])

    def _marginal(self, part: Prepared, question: MarginalQuestion) -> MarginalTask:
        table, version = part.measured.table.name, self.version(part.measured.table.name)
        told = self.histories[table].told(version, as_of=self.settings.as_of)
        target = (self.error(table) / self.settings.z) ** 2
        found = planned(question, part.recipes, told, version=version, target=target, rho=self.rho)
        self._needs(found.cost)
        return found

    def _topped_up(self, known: LinearTask, rows_per_unit: int) -> LinearTask:
        """Return the task that makes what is known accurate enough: free, the join, or measured afresh."""
        question, targets = known.question, self.targets(known.question, self.error(known.table))
        if self.rho is None:
            if _met(known, targets):
                return known
            measurement = linear.meeting(question, targets)
        else:
            measurement, targets = linear.spending(question, targets, rho=self.rho, rows_per_unit=rows_per_unit)
        if not len(measurement.K) or _met(known, targets):
            return known
        cost = linear.cost(question, measurement, rows_per_unit=rows_per_unit)
        ways = {"fresh": float(rho_of(cost.highest))}
        direct = replace(known, measurement=measurement, cost=cost, path="direct", fresh=measurement, looked_at=ways)
        if known.recall is None or known.recall.is_apart:
            return direct
        return self._joined(direct, known.recall, targets, rows_per_unit)

    def _joined(self, direct: LinearTask, recall: Recall, targets: Floats, rows_per_unit: int) -> LinearTask:
        """Return the task that releases only what is missing.

        It charges all cells together the least, and over a stream of questions the dearest cell pays less for it.
        Where it would charge one cell much more than measuring afresh does, it is not taken. Nor where the dearest cell
        will have paid less in all if it pays least now, as a round would have it.
        """
        limit = MOST_BURDEN * direct.looked_at["fresh"] if self.rho is None else float(self.rho)
        joined, found = self._completed(direct, recall, targets, rows_per_unit, "join"), direct
        if joined is not None:
            ways = joined.looked_at
            worth = joined.share > LEAST_SAVING or ways["join"] < ways["fresh"]
            found = joined if worth and ways["join"] <= limit else replace(direct, looked_at=ways)
        even = self._completed(found, recall, targets, rows_per_unit, "even")
        if even is None or recall.dearest(even.evidence) >= recall.dearest(found.evidence) * (1 - LEAST_GAIN):
            return found
        return even if even.looked_at["even"] <= limit else found

    def _completed(
        self, found: LinearTask, recall: Recall, targets: Floats, rows_per_unit: int, way: str
    ) -> LinearTask | None:
        """Return the task that releases what is missing, by one way to spread it; None if that does not work out."""
        now, wanted = recall.known.variances(recall.W), np.tile(targets, found.question.groups)
        for slack in (1 - 1e-6, 1 - 1e-3):
            aims = np.where(now <= wanted * MET, np.maximum(now, wanted), wanted * slack)
            try:
                rows = recall.missing(aims) if way == "join" else recall.evenly(aims)
                if rows is None:
                    return None
                made, measurement = recall.chart.released(rows)
                cost = linear.cost(made, measurement, rows_per_unit=rows_per_unit)
            except (ValueError, TooLarge):  # far beyond what floating point can tell apart
                return None
            ways = {**found.looked_at, way: float(rho_of(cost.highest))}
            made_so = replace(found, made=made, measurement=measurement, cost=cost, path="join", looked_at=ways)
            if _met(made_so, targets):
                return made_so
        return None

    def version(self, table: str) -> int:
        """Return the version of the data that answers are about: today's, or that of `as_of`."""
        if self.settings.as_of is None:
            return self.meters[table].version()
        return self.ledger.version_at(table, self.settings.as_of)

    def targets(self, question: Question, error: float) -> Floats:
        """Return the variance that each functional may have: a count's, scaled by what one record can add."""
        reach = linear.reach(question)
        half = error * np.where(reach > 0, reach, 1.0)
        if self.settings.sum_error is not None:
            half = np.where([role == "sum" for role in question.roles], self.settings.sum_error, half)
        return (half / self.settings.z) ** 2

    def _distinct(self, measured: Measured, question: Labelled, number: int, set_: int) -> DistinctTask:
        table = measured.table.name
        history = self._history(question.digest, table)
        if self.rho is None:
            noise = Noise.of((self.error(table) / self.settings.z) ** 2)
        else:
            reach = max(nonlinear.distinct_reach(question), 1)
            noise = Noise.of(float(reach / (2 * self.rho)) * (1 + 1e-5))
        variance = 1 / sum((1 / body.noise(release).variance for release in history), 0.0) if history else np.inf
        free = variance <= noise.variance * MET or not question.size
        cost = None if free else nonlinear.distinct_cost(question, noise)
        return DistinctTask(table, self.version(table), question, number, set_, history, noise, self._needs(cost))

    def _quantile(self, measured: Measured, question: Labelled, number: int, set_: int) -> QuantileTask:
        table, alpha = measured.table.name, 1 - self.settings.confidence
        if self.rho is None:
            draws = nonlinear.draws_for_error(question, error=self.error(table), alpha=alpha)
        else:
            draws = nonlinear.draws_for_rho(question, rho=self.rho, alpha=alpha)
        found = self._history(question.digest, table)
        reached = [nonlinear.rank_error(question, body.draws(release), alpha=alpha) for release in found]
        wanted = draws.rank_error * MET
        history = tuple(release for release, error in zip(found, reached, strict=True) if error <= wanted)[:1]
        cost = None if history or not question.size else nonlinear.quantile_cost(question, draws)
        return QuantileTask(table, self.version(table), question, number, set_, history, draws, self._needs(cost))


def _met(task: LinearTask, targets: Floats) -> bool:
    return bool((task.variances <= targets * MET).all())
