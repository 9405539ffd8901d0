"""What a query will measure, what is already known, and what it costs: decided from public things only."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from planner import linear, nonlinear
from planner.accounts import Release
from planner.costs import Cost
from planner.errors import BadValue, TooLarge
from planner.ledger import Ledger
from planner.linear import Known, Measurement, Question
from planner.measure import Meter
from planner.measured import Compiled, Measured
from planner.nonlinear import Draws, Labelled, Noise
from planner.place import Placement, Placer
from planner.sandbox import Sandbox, Workbench
from planner.settings import Settings
from planner.workload import Floats, Recipe, Workload, workload
from planner.workspace import Workspace

LINEAR_KINDS = ("count", "sum", "avg", "variance", "stddev")


@dataclass(frozen=True, eq=False)
class LinearTask:
    """Functionals of some grouping sets, from earlier releases of the same question or a new one."""

    table: str
    question: Question
    recipes: tuple[Recipe, ...]
    sets: tuple[int, ...]
    history: tuple[Release, ...]
    measurement: Measurement
    cost: Cost | None
    kind: str = "linear"

    @property
    def digest(self) -> str:
        return self.question.digest

    @property
    def key(self) -> str:
        return self.measurement.digest(self.question)

    @cached_property
    def known(self) -> Known:
        """Return what will be known once this task is done."""
        stack = [_measurement(release) for release in self.history]
        return linear.known(self.question, stack + ([] if self.cost is None else [self.measurement]))

    def draw(self, meter: Meter) -> bytes:
        y = meter.linear(self.question, self.measurement)
        return encode(
            {
                **_described(self.question.workspace),
                "features": self.question.features,
                "cell": _packed(self.question.cell),
                "group": _packed(self.question.group),
                "pattern": _packed(self.question.pattern),
                "E": self.question.E.tolist(),
                "units": self.question.units.tolist(),
                "K": self.measurement.K.tolist(),
                "bits": self.measurement.bits,
                "y": y,
            }
        )

    def estimates(self, releases: Sequence[Release]) -> tuple[Floats, Floats]:
        """Return all functionals of every group (groups, F), and their covariance (F, F), from what was released."""
        bodies = [decode(release.body) for release in releases]
        found = linear.known(self.question, [_measurement(release) for release in releases])
        columns = [
            np.array([[value / (1 << body["bits"]) for value in row] for row in body["y"]]).reshape(
                self.question.groups, -1
            )
            for body in bodies
        ]
        y = np.concatenate(columns, axis=1) if columns else np.zeros((self.question.groups, 0))
        return y @ found.L.T, found.covariance


@dataclass(frozen=True, eq=False)
class DistinctTask:
    """The number of different values of a column, or of units, in each group."""

    table: str
    question: Labelled
    number: int  # of the aggregate
    set: int
    history: tuple[Release, ...]
    noise: Noise
    cost: Cost | None
    kind: str = "distinct"

    @property
    def digest(self) -> str:
        return self.question.digest

    @property
    def key(self) -> str:
        return f"{self.digest[:40]}{_short(self.noise)}"

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
        return encode({**_described(q.workspace), "scale": scale, "bits": bits, "y": y})


@dataclass(frozen=True, eq=False)
class QuantileTask:
    """A quantile of each group, chosen among the values of the public domain."""

    table: str
    question: Labelled
    number: int
    set: int
    history: tuple[Release, ...]
    draws: Draws
    cost: Cost | None
    kind: str = "quantile"

    @property
    def digest(self) -> str:
        return self.question.digest

    @property
    def key(self) -> str:
        return f"{self.digest[:40]}{_short(self.draws)}"

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
        return encode({**_described(q.workspace), "draws": described, "y": y})


Task = LinearTask | DistinctTask | QuantileTask
"""One thing to measure, or to read off the history; its cost is None when nothing has to be released."""


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
    def paid(self) -> list[Task]:
        """Return the tasks that release something new, each once."""
        found = {task.key: task for part in self.parts for task in part.tasks if task.cost is not None}
        return list(found.values())


@dataclass(frozen=True, eq=False)
class Prepared:
    """One measured query, placed: what it asks, whatever the accuracy; its tables live in one workbench."""

    measured: Measured
    placement: Placement
    linear: tuple[tuple[Question, tuple[int, ...]], ...]  # with the grouping sets of each
    recipes: tuple[Recipe, ...]
    labelled: tuple[tuple[int, int, Labelled], ...]  # with the numbers of the aggregate and of the set

    @property
    def tasks(self) -> int:
        return len(self.linear) + len(self.labelled)


def prepare(measured: Measured, sandbox: Sandbox, bench: Workbench) -> Prepared:
    """Return a measured query on its workspaces. Depends on public things only."""
    placer = Placer(measured, sandbox, bench)
    numbered = list(enumerate(measured.aggregates))
    work = workload([(i, a) for i, a in numbered if a.kind in LINEAR_KINDS], placer)
    others = [(i, a) for i, a in numbered if a.kind not in LINEAR_KINDS]
    labelled = [(i, s, found) for i, a in others for s, found in enumerate(nonlinear.labelled(a, placer))]
    return Prepared(measured, work.placement, _questions(work, len(measured.sets)), work.recipes, tuple(labelled))


def _questions(work: Workload, sets: int) -> tuple[tuple[Question, tuple[int, ...]], ...]:
    """Return the linear questions: all grouping sets as one problem, or one each when that would be too large."""
    every = tuple(range(sets))
    if not work.functionals:
        return ()
    try:
        return ((linear.question(work, every), every),)
    except TooLarge:
        return tuple((linear.question(work, (s,)), (s,)) for s in every)


class Planner:
    """Decides how accurately each prepared query is measured, and what of it is known already."""

    def __init__(self, ledger: Ledger, meters: Mapping[str, Meter], settings: Settings) -> None:
        self.ledger, self.meters, self.settings = ledger, meters, settings

    def plan(self, compiled: Compiled, prepared: Sequence[Prepared]) -> Plan:
        tasks = sum(part.tasks for part in prepared)
        self.rho = self.settings.rho / tasks if self.settings.rho is not None and tasks else None
        return Plan(compiled, tuple(self._part(part) for part in prepared))

    def _part(self, part: Prepared) -> Part:
        tasks: list[Task] = [self._linear(part.measured, q, part.recipes, sets) for q, sets in part.linear]
        for number, set_, question in part.labelled:
            make = self._distinct if question.aggregate.kind == "distinct" else self._quantile
            tasks.append(make(part.measured, question, number, set_))
        return Part(part.measured, part.placement, tuple(tasks))

    # What is known already.

    def _history(self, digest: str, table: str) -> tuple[Release, ...]:
        """Return the releases that answer a question: on today's data, or on those of `as_of`."""
        found, latest = self.ledger.find(digest, table=table), self.settings.as_of
        if latest is not None:
            found = [release for release in found if release.id <= latest]
        version = self.meters[table].version() if latest is None else max((r.version for r in found), default=0)
        return tuple(release for release in found if release.version == version)

    def _error(self, table: str) -> float:
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
        """Return the number of rows that earlier answers to SELECT count(*) gave, at least 1; None if nobody asked."""
        question = linear.row_count(self.meters[table].table)
        releases = self._history(question.digest, table)
        if not releases:
            return None
        values, _ = LinearTask(table, question, (), (0,), releases, _measurement(releases[0]), None).estimates(releases)
        return max(float(values[0, 0]), 1.0)

    def _needs(self, cost: Cost | None) -> Cost | None:
        if cost is not None and self.settings.as_of is not None:
            raise BadValue(
                f"release {self.settings.as_of} and those before it do not answer this",
                hint="RESET noisegate.as_of to ask anew",
            )
        return cost

    # Accuracy.

    def _linear(
        self,
        measured: Measured,
        question: Question,
        recipes: tuple[Recipe, ...],
        sets: tuple[int, ...],
    ) -> LinearTask:
        history = self._history(question.digest, measured.table.name)
        targets = self._targets(question, self._error(measured.table.name))
        rows = measured.table.max_rows_per_unit
        if self.rho is None:
            measurement = linear.meeting(question, targets)
        else:
            measurement, targets = linear.spending(question, targets, rho=self.rho, rows_per_unit=rows)
        now = linear.known(question, [_measurement(release) for release in history])
        free = bool(np.all(now.variances <= targets * (1 + 1e-9))) or not len(measurement.K)
        cost = None if free else linear.cost(question, measurement, rows_per_unit=rows)
        return LinearTask(measured.table.name, question, recipes, sets, history, measurement, self._needs(cost))

    def _targets(self, question: Question, error: float) -> Floats:
        """Return the variance that each functional may have: a count's, scaled by what one record can add."""
        V, _, _ = question.points
        reach = np.abs(V * question.units[:, None]).max(axis=1, initial=0.0)
        half = error * np.where(reach > 0, reach, 1.0)
        if self.settings.sum_error is not None:
            half = np.where([role == "sum" for role in question.roles], self.settings.sum_error, half)
        return (half / self.settings.z) ** 2

    def _distinct(self, measured: Measured, question: Labelled, number: int, set_: int) -> DistinctTask:
        history = self._history(question.digest, measured.table.name)
        rows = measured.table.max_rows_per_unit
        if self.rho is None:
            noise = Noise.of((self._error(measured.table.name) / self.settings.z) ** 2)
        else:
            noise = Noise.of(float((rows if question.units else rows * rows) / (2 * self.rho)) * (1 + 1e-5))
        variance = 1 / sum((1 / _noise(release).variance for release in history), 0.0) if history else np.inf
        free = variance <= noise.variance * (1 + 1e-9) or not question.size
        cost = None if free else nonlinear.distinct_cost(question, noise)
        return DistinctTask(measured.table.name, question, number, set_, history, noise, self._needs(cost))

    def _quantile(self, measured: Measured, question: Labelled, number: int, set_: int) -> QuantileTask:
        alpha = 1 - self.settings.confidence
        if self.rho is None:
            draws = nonlinear.draws_for_error(question, error=self._error(measured.table.name), alpha=alpha)
        else:
            draws = nonlinear.draws_for_rho(question, rho=self.rho, alpha=alpha)
        found = self._history(question.digest, measured.table.name)
        reached = [nonlinear.rank_error(question, _draws(release), alpha=alpha) for release in found]
        wanted = draws.rank_error * (1 + 1e-9)
        history = tuple(release for release, error in zip(found, reached, strict=True) if error <= wanted)[:1]
        cost = None if history or not question.size else nonlinear.quantile_cost(question, draws)
        return QuantileTask(measured.table.name, question, number, set_, history, draws, self._needs(cost))


# --- how releases are stored -------------------------------------------------------------------------------


def encode(body: Mapping[str, Any]) -> bytes:
    """Return the stored form of a release: compressed JSON, readable without this program."""
    return zlib.compress(json.dumps(body, separators=(",", ":")).encode())


@functools.lru_cache(maxsize=64)
def decode(body: bytes) -> dict[str, Any]:
    """Return what `encode` was given; shared between callers, so not to be changed."""
    return json.loads(zlib.decompress(body))  # type: ignore[no-any-return]


def _measurement(release: Release) -> Measurement:
    body = decode(release.body)
    return Measurement(np.array(body["K"], dtype=object).reshape(len(body["K"]), -1), body["bits"])


def _noise(release: Release) -> Noise:
    body = decode(release.body)
    return Noise(body["scale"], body["bits"])


def _draws(release: Release) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(epsilon), Fraction(offset)) for epsilon, offset in decode(release.body)["draws"]]


def _packed(array: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(array, dtype="<i4").tobytes()).decode()


def _described(workspace: Workspace) -> dict[str, Any]:
    """Return the axes of a workspace: each column, its domain's fingerprint, and its atoms as runs."""
    axes = []
    for axis in workspace.axes:
        starts = np.flatnonzero(np.diff(axis.atoms, prepend=-1))
        runs = [[int(start), int(axis.atoms[start])] for start in starts]
        axes.append({"column": axis.column, "domain": axis.domain.fingerprint, "cells": len(axis.atoms), "runs": runs})
    return {"axes": axes}


def _short(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()[:24]
