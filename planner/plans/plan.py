"""What a query will measure, what is already known, and what it costs: decided from public things only."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from mechanisms import interrupts
from mechanisms.tolerances import MET
from planner.basics.errors import BadValue, TooLarge
from planner.basics.limits import MAX_POINTS
from planner.cells.costs import Cost, rho_of
from planner.cells.workload import Placement
from planner.cells.workspace import Floats
from planner.history.chart import Evidence
from planner.history.marginals import MarginalQuestion
from planner.history.recall import History, Recall
from planner.history.slices import Slices
from planner.ledger.accounts import Release
from planner.plans.marginals import MarginalTask, planned
from planner.plans.moment import Moment
from planner.plans.prepared import Prepared
from planner.plans.release import DistinctTask, LinearTask, QuantileTask, own_answers
from planner.plans.settings import Settings
from planner.plans.task import Task
from planner.plans.topping import topped_up
from planner.questions import body, linear
from planner.questions import labelled as nonlinear
from planner.questions.labelled import Labelled
from planner.questions.linear import Measurement, Question
from planner.questions.noise import Noise
from planner.sql.aggregates import AggregateKind
from planner.sql.query import Compiled, Measured

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

    def error(self, number: int, settings: Settings) -> float | None:
        """Return the largest half-width that an aggregate will have in any group, if it is known beforehand."""
        errors = [task.error(number, self.measured.aggregates[number], settings.z) for task in self.tasks]
        return max((error for error in errors if error is not None), default=None)


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


class Planner:
    """Decides how accurately each prepared query is measured, and what of it is known already."""

    def __init__(self, moment: Moment, settings: Settings) -> None:
        self.moment, self.settings = moment, settings

    def plan(self, compiled: Compiled, prepared: Sequence[Prepared]) -> Plan:
        self._pending: dict[str, list[Evidence]] = {}
        self.rho = rho_of_each(self.settings, prepared)
        return Plan(compiled, tuple(self._part(part) for part in prepared))

    def _part(self, part: Prepared) -> Part:
        tasks: list[Task] = [self._counted(part, part.marginals)] if part.marginals is not None else []
        if part.marginals is None:
            tasks += [self._linear(part, question, sets) for question, sets in part.linear]
        for number, set_, question in part.labelled:
            interrupts.check()
            tasks.append(MAKERS[question.aggregate.kind](self, part.measured, question, number, set_))
        return Part(part.measured, part.placement, tuple(tasks))

    # What is known already.

    def _history(self, digest: str, table: str) -> tuple[Release, ...]:
        """Return the releases that answer a question: on today's data, or on those of `as_of`."""
        found, latest, version = self.moment.find(digest, table=table), self.settings.as_of, self.version(table)
        return tuple(r for r in found if r.version == version and (latest is None or r.id <= latest))

    def error(self, table: str) -> float:
        """Return the half-width that a count should have."""
        if not self.settings.relative:
            return self.settings.error
        size = self.moment.table(table).size or self._known_size(table)
        if size is None:
            raise BadValue(
                "a relative error needs a public or already known size of the table",
                hint=f"ask SELECT count(*) FROM {table} first, or give noisegate.error as a number",
            )
        return self.settings.error * size

    def _known_size(self, table: str) -> float | None:
        """Return the number of rows as far as it was released, at least 1; None if that is not known."""
        recall = self.history(table).recall(linear.row_count(self.moment.table(table)), version=self.version(table))
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
        interrupts.check()
        found = self._recalled(part, question, sets)
        if self._needs(found.cost) is not None:
            self._pending.setdefault(found.table, []).append(found.evidence)
        return found

    def _recalled(self, part: Prepared, question: Question, sets: tuple[int, ...]) -> LinearTask:
        """Return the task of a question, with what is known and what the statement releases before it."""
        table, version = part.measured.table.name, self.version(part.measured.table.name)
        before, history = self._remembered(question), tuple[Release, ...]()
        if before is None or (isinstance(before, Slices) and before.is_divided):
            history = self._history(question.digest, table)
        if isinstance(before, Slices) and history:
            before = replace(before, own=own_answers(question, history))
        recall = before.with_evidence(self._pending.get(table, [])) if before is not None else None
        counts = tuple(part.placement.group_counts[s] for s in sets)
        nothing = Measurement(np.zeros((0, len(question.units)), dtype=object), 0)
        known = LinearTask(
            table=table,
            version=version,
            question=question,
            recipes=part.recipes,
            sets=sets,
            counts=counts,
            history=history,
            before=before,
            recall=recall,
            made=question,
            measurement=nothing,
            cost=None,
            path="free",
        )
        return self._topped_up(known, part.measured.table.max_rows_per_unit)

    def _remembered(self, question: Question) -> Recall | Slices | None:
        """Return what is known of a question; None if it can't be brought to it, but for releases of its own.

        One that is too large to be one problem is looked at slice by slice. Where that leaves out what speaks across
        slices, one chart is better, if it fits.
        """
        table, as_of = question.workspace.table.name, self.settings.as_of
        history, version = self.history(table), self.version(table)
        found = history.recall(question, version=version, as_of=as_of)
        if found is not None or history.is_empty(version):
            return found
        slices = history.survey(question, version=version, as_of=as_of) if question.groups > 1 else None
        if slices is not None and not slices.is_divided and (slices.is_all or self._is_enough(slices)):
            return slices
        found = history.recall(question, version=version, as_of=as_of, most=MAX_POINTS)
        if found is not None:
            return found
        return history.survey(question, version=version, as_of=as_of) if slices is None else slices

    def _is_enough(self, known: Slices) -> bool:
        """Return whether what is known is accurate enough."""
        targets = self.targets(known.question, self.error(known.question.workspace.table.name))
        return self.rho is None and bool((known.variances <= targets * (1 + 1e-9)).all())

    def _counted(self, part: Prepared, question: MarginalQuestion) -> Task:
        """Return the task for counts of whole marginals: part by part, or with all that is known if that costs less."""
        found, table = self._marginal(part, question), part.measured.table.name
        history, version = self.history(table), self.version(table)
        if found.cost is None or len(part.linear) != 1 or history.is_symmetric(version):
            return found
        other = self._recalled(part, *part.linear[0])
        if other.recall is None or (other.cost is not None and other.cost.highest >= found.cost.highest):
            return found
        return self._linear(part, *part.linear[0])

    def _marginal(self, part: Prepared, question: MarginalQuestion) -> MarginalTask:
        table, version = part.measured.table.name, self.version(part.measured.table.name)
        told = self.history(table).told(version, as_of=self.settings.as_of)
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
        if isinstance(known.recall, Slices) or (known.recall.pieces > 1 and question.groups > 1):
            return self._filled(direct, known.recall, targets, rows_per_unit)
        return self._joined(direct, known.recall, targets, rows_per_unit)

    def _filled(self, direct: LinearTask, recall: Recall | Slices, targets: Floats, rows_per_unit: int) -> LinearTask:
        """Return the task that tells each group what it lacks, and nothing that groups could share."""
        question, fresh = direct.question, direct.fresh
        assert fresh is not None
        _, covariances = recall.estimates((question.groups, len(question.units)))
        is_divided = isinstance(recall, Slices) and recall.is_divided
        found = topped_up(question, fresh, covariances, targets, alike=is_divided)
        if found is None:
            return direct
        cost = linear.cost(found.made, found.measurement, rows_per_unit=rows_per_unit)
        ways = {**direct.looked_at, "top-up": float(rho_of(cost.highest))}
        made = replace(
            direct, made=found.made, measurement=found.measurement, cost=cost, path="join", looked_at=ways,
            reached=found.reached,
        )  # fmt: skip
        limit = MOST_BURDEN * ways["fresh"] if self.rho is None else float(self.rho)
        worth = made.share > LEAST_SAVING or ways["top-up"] < ways["fresh"]
        return made if worth and ways["top-up"] <= limit and _met(made, targets) else replace(direct, looked_at=ways)

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
        return self.moment.version(table, as_of=self.settings.as_of)

    def history(self, table: str) -> History:
        """Return what was released about a table."""
        return self.moment.history(table)

    def targets(self, question: Question, error: float) -> Floats:
        """Return the variance that each functional may have."""
        return variances_asked(question, self.settings, error)

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
        return DistinctTask(
            table=table,
            version=self.version(table),
            question=question,
            number=number,
            set=set_,
            history=history,
            noise=noise,
            cost=self._needs(cost),
        )

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
        return QuantileTask(
            table=table,
            version=self.version(table),
            question=question,
            number=number,
            set=set_,
            history=history,
            draws=draws,
            cost=self._needs(cost),
        )


MAKERS: Mapping[AggregateKind, Callable[[Planner, Measured, Labelled, int, int], Task]] = {
    AggregateKind.DISTINCT: Planner._distinct,
    AggregateKind.QUANTILE: Planner._quantile,
}
"""What becomes of a question that is not made of counts and sums."""


def variances_asked(question: Question, settings: Settings, error: float) -> Floats:
    """Return the variance that each functional may have: a count's, scaled by what one record can add."""
    reach = linear.reach(question)
    half = error * np.where(reach > 0, reach, 1.0)
    if settings.sum_error is not None:
        half = np.where([role == "sum" for role in question.roles], settings.sum_error, half)
    variances: Floats = (half / settings.z) ** 2
    return variances


def rho_of_each(settings: Settings, prepared: Sequence[Prepared]) -> Fraction | None:
    """Return what the settings let each task of a statement spend, if they say that."""
    tasks = sum(part.tasks for part in prepared)
    return settings.rho / tasks if settings.rho is not None and tasks else None


def _met(task: LinearTask, targets: Floats) -> bool:
    return bool((task.variances <= targets * MET).all())
