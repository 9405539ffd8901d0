"""Tasks: what a plan measures, or reads off the history. Each knows its cost, its draw, and what it then tells."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from mechanisms.gaussian.common import common
from mechanisms.gaussian.linear import Mechanism, information
from planner.basics.limits import MAX_ASKED, MAX_COMMON
from planner.cells.costs import Cost
from planner.cells.workload import Recipe
from planner.cells.workspace import Floats
from planner.history.chart import Evidence, made_evidence
from planner.history.recall import Recall
from planner.history.slices import Slices
from planner.ledger.accounts import Release
from planner.ledger.kinds import Kind
from planner.plans.estimates import Columns, Estimates, distincts, linear_columns, quantiles, recipe_error
from planner.plans.rounding import rounded
from planner.plans.task import of_task
from planner.plans.wording import number
from planner.questions import body, linear
from planner.questions.labelled import Draws, Labelled
from planner.questions.linear import Measurement, Question
from planner.questions.noise import Noise
from planner.sources.measure import Meter
from planner.sql.query import Aggregate, Measured


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearTask:
    """Functionals of some grouping sets: asked by `question`, answered from the history and from what is `made`.

    With a recall, the history is everything that was released about these cells, slice by slice if they are very many;
    without, the question can't be joined with others, and its history is its own earlier releases.
    """

    table: str
    version: int
    question: Question
    recipes: tuple[Recipe, ...]
    sets: tuple[int, ...]
    counts: tuple[int, ...]  # groups of each of the sets
    history: tuple[Release, ...]
    before: Recall | Slices | None  # what earlier releases tell
    recall: (
        Recall | Slices | None
    )  # the same with what the statement releases before this task, whose outcome is not known
    made: Question
    measurement: Measurement
    cost: Cost | None
    path: str
    fresh: Measurement | None = None  # of the question itself, if that was looked at
    looked_at: Mapping[str, float] = field(default_factory=dict)  # rho on the dearest cell, by way
    reached: Floats | None = None  # the variances that groups have once they are topped up, each by itself
    kind: Kind = Kind.LINEAR

    @property
    def is_small(self) -> bool:
        """Return whether it can be planned with others, as rows on one chart."""
        answers = self.question.groups * len(self.question.units)
        return isinstance(self.recall, Recall) and answers <= MAX_ASKED

    @property
    def digest(self) -> str:
        return self.question.digest

    @cached_property
    def key(self) -> str:
        """Return the key of the release; what completes another history is another release."""
        before = self.releases if self.path == "join" else ()
        return versioned(self.version, f"{self.measurement.digest(self.made)}{before}")

    @property
    def releases(self) -> tuple[int, ...]:
        """Return the numbers of the earlier releases that are used."""
        known = self.recall.releases if self.recall is not None else ()
        return tuple(sorted({*known, *(release.id for release in self.history)}))

    def draw(self, meter: Meter) -> bytes:
        return body.linear(self.made, self.measurement, meter.linear(self.made, self.measurement))

    @cached_property
    def evidence(self) -> Evidence:
        """Return what will be released, as evidence that has not told anything yet."""
        return made_evidence(self.made, self.measurement, np.zeros((self.made.groups, len(self.measurement.K))))

    @cached_property
    def variances(self) -> Floats:
        """Return the variance of each functional once this task is done: (groups, F), or (1, F) if alike in all."""
        if self.recall is None:
            new = [] if self.cost is None else [self.measurement]
            return linear.known(self.question, [*map(body.measurement, self.history), *new]).variances[None]
        if self.cost is not None and self.reached is not None:
            return self.reached
        after = self.recall if self.cost is None else self.recall.with_evidence([self.evidence])
        return after.variances.reshape(self.question.groups, len(self.question.units))

    @property
    def share(self) -> float:
        """Return how much was known: the part of what measuring afresh charges all cells together that is saved."""
        if self.cost is None:
            return 1.0
        if self.path != "join" or self.fresh is None:
            return 0.0
        if self.reached is not None:
            needed, fresh = linear.burden(self.made, self.measurement), linear.burden(self.question, self.fresh)
            return float(np.clip(1 - needed / fresh, 0.0, 1.0))
        fresh, needed = (float(np.square(rows).sum()) for rows in (self._fresh_rows, self._rows(self.evidence)))
        return float(np.clip(1 - needed / fresh, 0.0, 1.0))

    def answers(self, new: Sequence[Release] | None, s: int) -> tuple[Floats, Floats]:
        """Return what is known of the groups of set s: estimates (G, F) and their covariances (G, F, F).

        `new` are the releases of this statement; None stands for zeros, before anything is measured.
        """
        values, covariance = self._estimates(new)
        return values[self._mine(s)], covariance[self._mine(s)]

    def points(self, s: int) -> Floats:
        """Return points between which lies what one record can add to functionals of set s: (G or 1, F, P)."""
        found: Floats = self.question.points[0] * self.question.units[:, None]
        if len(self.sets) == 1:
            return found[None]
        groups = sum(self.counts)
        return found.reshape(groups, len(found) // groups, -1)[self._mine(s)]

    def _mine(self, s: int) -> slice:
        """Return which of the groups of all sets are those of set s."""
        place = self.sets.index(s)
        before = sum(self.counts[:place])
        return slice(before, before + self.counts[place]) if len(self.sets) > 1 else slice(None)

    def _estimates(self, new: Sequence[Release] | None) -> tuple[Floats, Floats]:
        """Return all functionals of every group of all sets (G, F) and their covariances (G, F, F).

        Several sets are one problem of one group, in which the functionals stand in a row, group after group.
        """
        question = self.question
        groups = question.groups if len(self.sets) == 1 else sum(self.counts)
        width = question.groups * len(question.units) // groups if groups else len(question.units)
        if new is None:
            return np.zeros((groups, width)), np.zeros((groups, width, width))
        if self.before is None:
            releases = of_task(self, new)
            found = linear.known(self.question, [body.measurement(release) for release in releases])
            ys = [body.values(release) for release in releases]
            y = np.concatenate(ys, axis=1) if ys else np.zeros((question.groups, 0))
            covariances = np.broadcast_to(found.covariances(width), (groups, width, width))
            return (y @ found.L.T).reshape(groups, width), covariances
        table, known = self.question.workspace.table, set(self.before.releases)
        own = [r for r in new if r.table == self.table and r.kind == Kind.LINEAR and r.id not in known]
        before = self.before
        if isinstance(before, Slices) and before.is_divided:
            releases = of_task(self, new)
            before = replace(before, own=own_answers(question, releases)) if releases else before
            own = [release for release in own if release not in releases]
        told = [read for release in own if (read := body.read(release, table)) is not None]
        after = before.with_evidence([made_evidence(*read) for read in told])
        return rounded(*after.estimates((groups, width)))

    @property
    def said(self) -> str:
        rows = self.made.groups * len(self.measurement.K)
        return f"{number(rows, 'noisy sum')} on {number(self.made.workspace.cells, 'cell')}"

    def columns(self, measured: Measured, new: Sequence[Release], s: int, z: float) -> tuple[Columns, str]:
        if s not in self.sets:
            return {}, ""
        known = Estimates(*self.answers(new, s))
        return linear_columns(measured, self.recipes, known, lambda: self.points(s), s, z), ""

    def error(self, number: int, aggregate: Aggregate, z: float) -> float | None:
        return recipe_error(self.recipes, self.variances, number, aggregate, z)

    # What the ways not taken would cost.

    def _rows(self, found: Evidence) -> Floats:
        assert isinstance(self.recall, Recall)
        return self.recall.rows(found)

    @cached_property
    def _fresh_rows(self) -> Floats:
        assert self.fresh is not None
        zeros = np.zeros((self.question.groups, len(self.fresh.K)))
        return self._rows(made_evidence(self.question, self.fresh, zeros))

    @cached_property
    def ways(self) -> dict[str, float]:
        """Return what each way would charge the dearest cell, the common mechanism with its residual among them."""
        if not isinstance(self.recall, Recall) or self.path != "join" or self.recall.chart.size > MAX_COMMON:
            return dict(self.looked_at)
        known, fresh = (Mechanism(rows, np.eye(len(rows))) for rows in (self.recall.known.rows, self._fresh_rows))
        missing = information(fresh) - information(common(known, fresh))
        rows = self.question.workspace.table.max_rows_per_unit
        return {**self.looked_at, "common/residual": float(missing.diagonal().max(initial=0.0)) / 2 * rows**2}


@dataclass(frozen=True, eq=False, kw_only=True)
class DistinctTask:
    """The number of different values of a column, or of units, in each group."""

    table: str
    version: int
    question: Labelled
    number: int  # of the aggregate
    set: int
    history: tuple[Release, ...]
    noise: Noise
    cost: Cost | None
    kind: Kind = Kind.DISTINCT

    ways: ClassVar[Mapping[str, float]] = {}

    @property
    def path(self) -> str:
        return "free" if self.cost is None else "direct"

    @property
    def share(self) -> float:
        return float(self.cost is None)

    @property
    def releases(self) -> tuple[int, ...]:
        return tuple(sorted(release.id for release in self.history))

    @property
    def digest(self) -> str:
        return self.question.digest

    @property
    def key(self) -> str:
        return versioned(self.version, f"{self.digest[:40]}{body.short(self.noise)}")

    @property
    def said(self) -> str:
        return f"{number(self.question.groups, 'noisy number')} of values"

    def columns(self, measured: Measured, new: Sequence[Release], s: int, z: float) -> tuple[Columns, str]:  # noqa: ARG002
        return (distincts(self.question, self.number, of_task(self, new), z), "") if s == self.set else ({}, "")

    def error(self, number: int, aggregate: Aggregate, z: float) -> float | None:  # noqa: ARG002
        return z * float(np.sqrt(self.noise.variance)) if number == self.number else None

    def draw(self, meter: Meter) -> bytes:
        q, scale, bits = self.question, self.noise.scale, self.noise.bits
        if q.units:
            keep = q.label >= 0
            y = meter.units(
                q.workspace, cell=q.cell[keep], group=q.group[keep], groups=q.groups, scale=scale, bits=bits
            )
        else:
            y = meter.distinct(
                q.workspace,
                cell=q.cell,
                group=q.group,
                groups=q.groups,
                label=q.label,
                scale=scale,
                bits=bits,
            )
        placed = body.placed(q.workspace, cell=q.cell, group=q.group, label=q.label)
        return body.encode({**placed, "units": q.units, "scale": scale, "bits": bits, "y": y})


@dataclass(frozen=True, eq=False, kw_only=True)
class QuantileTask:
    """A quantile of each group, chosen among the values of the public domain."""

    table: str
    version: int
    question: Labelled
    number: int
    set: int
    history: tuple[Release, ...]
    draws: Draws
    cost: Cost | None
    kind: Kind = Kind.QUANTILE

    ways: ClassVar[Mapping[str, float]] = {}

    @property
    def path(self) -> str:
        return "free" if self.cost is None else "direct"

    @property
    def share(self) -> float:
        return float(self.cost is None)

    @property
    def releases(self) -> tuple[int, ...]:
        return tuple(sorted(release.id for release in self.history))

    @property
    def digest(self) -> str:
        return self.question.digest

    @property
    def key(self) -> str:
        return versioned(self.version, f"{self.digest[:40]}{body.short(self.draws)}")

    @property
    def said(self) -> str:
        choices = number(self.question.groups * len(self.draws.draws), "choice")
        return f"{choices} among {number(self.question.size, 'value')}"

    def columns(self, measured: Measured, new: Sequence[Release], s: int, z: float) -> tuple[Columns, str]:  # noqa: ARG002
        return quantiles(self.question, self.number, of_task(self, new)) if s == self.set else ({}, "")

    def error(self, number: int, aggregate: Aggregate, z: float) -> float | None:  # noqa: ARG002
        return self.draws.rank_error if number == self.number else None

    def draw(self, meter: Meter) -> bytes:
        q, p = self.question, self.question.aggregate.p
        assert p is not None
        y = meter.quantiles(
            q.workspace,
            cell=q.cell,
            group=q.group,
            groups=q.groups,
            label=q.label,
            size=q.size,
            p=p,
            draws=self.draws.draws,
        )
        described = [[str(epsilon), str(offset)] for epsilon, offset in self.draws.draws]
        placed = body.placed(q.workspace, cell=q.cell, group=q.group, label=q.label)
        return body.encode({**placed, "size": q.size, "p": str(p), "draws": described, "y": y})


def own_answers(question: Question, releases: Sequence[Release]) -> tuple[Floats, Floats]:
    """Return what releases of a question tell of it: (groups, F) and covariances (groups, F, F), nan for the rest."""
    found, width = linear.known(question, list(map(body.measurement, releases))), len(question.units)
    values = np.concatenate([body.values(release) for release in releases], axis=1) @ found.L.T
    covariances = np.broadcast_to(found.covariances(width), (question.groups, width, width))
    either = found.missing[:, None] | found.missing[None, :]
    return np.where(found.missing, np.nan, values), np.where(either, np.nan, covariances)


def versioned(version: int, text: str) -> str:
    """Return the key of a release: the same question on other data is another one."""
    return hashlib.sha256(f"{version}\0{text}".encode()).hexdigest()


@dataclass(frozen=True, eq=False, kw_only=True)
class Residual:
    """Rows that are still to be released, as integers, on a chart."""

    table: str
    version: int
    made: Question
    measurement: Measurement
    cost: Cost
    kind: Kind = Kind.LINEAR

    @property
    def digest(self) -> str:
        return self.made.digest

    @cached_property
    def key(self) -> str:
        return versioned(self.version, self.measurement.digest(self.made))

    def draw(self, meter: Meter) -> bytes:
        return body.linear(self.made, self.measurement, meter.linear(self.made, self.measurement))
