"""The path "marginals": questions about whole marginals, planned part by part in the residual basis.

What earlier releases tell about each part adds up, the cheapest precisions that are missing are released by integer
rows, and all grouping sets are answered from the same parts: totals equal the sums of what they are made of.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from mechanisms.least import marginals as helmert
from mechanisms.least.marginals import Rows, Subset
from mechanisms.tolerances import MET
from planner.basics.errors import TooLarge
from planner.basics.limits import MAX_UNITS
from planner.cells.costs import UNIT_BITS, Cost, constant, to_units, to_units_down
from planner.cells.workload import Recipe
from planner.cells.workspace import Floats
from planner.history import marginals
from planner.history.marginals import MarginalEvidence, MarginalQuestion
from planner.ledger.accounts import Release
from planner.ledger.kinds import Kind
from planner.plans.estimates import Columns, Estimates, linear_columns, recipe_error
from planner.plans.rounding import rounded
from planner.plans.wording import number
from planner.questions import body
from planner.sources.measure import Meter
from planner.sql.query import Aggregate, Measured

SLACK = 1e-6
"""Targets are met with so much to spare, relative to the variance."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MarginalTask:
    """The counts of some marginals, answered from what was `told` about their parts and from what is `made`."""

    table: str
    version: int
    question: MarginalQuestion
    recipes: tuple[Recipe, ...]
    told: tuple[MarginalEvidence, ...]  # on the question's own axes
    made: tuple[Rows, ...]
    cost: Cost | None
    path: str
    ways: Mapping[str, float] = field(default_factory=dict)  # rho on the dearest cell, by way
    kind: Kind = Kind.MARGINALS
    _found: dict[tuple[int, ...], dict[Subset, Floats]] = field(default_factory=dict, repr=False)

    history: ClassVar[tuple[Release, ...]] = ()

    @property
    def sets(self) -> range:
        return range(len(self.question.sets))

    @property
    def digest(self) -> str:
        return self.question.digest

    @cached_property
    def key(self) -> str:
        """Return the key of the release: the same rows on top of another history are another draw."""
        made = repr((self.version, self.digest, self.made, self.releases))
        return hashlib.sha256(made.encode()).hexdigest()

    @property
    def releases(self) -> tuple[int, ...]:
        """Return the numbers of the earlier releases that are used."""
        return tuple(sorted(number for found in self.told for number in found.ids))

    @property
    def share(self) -> float:
        """Return how much was known: the part of what measuring afresh costs that is saved."""
        if self.cost is None:
            return 1.0
        return float(np.clip(1 - self.ways["marginals"] / self.ways["fresh"], 0.0, 1.0))

    @property
    def rows(self) -> int:
        """Return how many noisy sums are released."""
        sizes = self.question.workspace.shape
        return sum(int(np.prod([sizes[i] - 1 for i in rows.A], dtype=np.int64)) for rows in self.made)

    def draw(self, meter: Meter) -> bytes:
        workspace = self.question.workspace
        return body.marginals(workspace, self.made, meter.helmert(workspace, self.made))

    @cached_property
    def variances(self) -> Floats:
        """Return the variance that a count of each grouping set has once this task is done: (sets, 1)."""
        new = {rows.A: rows.precision for rows in self.made}
        return self._variances(helmert.added([*(found.precisions for found in self.told), new]))

    def _variances(self, known: Mapping[Subset, float]) -> Floats:
        sizes = self.question.workspace.shape
        each = {A: helmert.cell_variance(sizes, known, A) for A in set(self.question.sets)}
        return np.array([[each[A]] for A in self.question.sets])

    def answers(self, new: Sequence[Release] | None, s: int) -> tuple[Floats, Floats]:
        """Return what is known of the groups of set s: estimates (G, 1) and their variances (G, 1, 1).

        `new` are the releases of this statement; None stands for zeros, before anything is measured.
        """
        cells, A = self.question.cells[s], self.question.sets[s]
        ones = np.ones((len(cells), 1))
        if new is None:
            return 0 * ones, 0 * ones[:, :, None]
        told = self._all_told(new)
        found, sizes = self._parts(told), self.question.workspace.shape
        variance = helmert.cell_variance(sizes, helmert.added(each.precisions for each in told), A)
        values = helmert.reconstructed(sizes, found, A).reshape(-1, 1)[cells]
        return rounded(values, variance * ones[:, :, None])

    def points(self, _: int) -> Floats:
        """Return what one record adds to a count of any set, shape (1, 1, 1)."""
        return np.ones((1, 1, 1))

    @property
    def said(self) -> str:
        return f"{number(self.rows, 'noisy sum')} of {number(len(self.made), 'part')} of the marginals"

    def columns(self, measured: Measured, new: Sequence[Release], s: int, z: float) -> tuple[Columns, str]:
        if s not in self.sets:
            return {}, ""
        known = Estimates(*self.answers(new, s))
        return linear_columns(measured, self.recipes, known, lambda: self.points(s), s, z), ""

    def error(self, number: int, aggregate: Aggregate, z: float) -> float | None:
        return recipe_error(self.recipes, self.variances, number, aggregate, z)

    def _all_told(self, new: Sequence[Release]) -> list[MarginalEvidence]:
        table = self.question.workspace.table
        own = [release for release in new if release.table == self.table and release.kind == self.kind]
        read = [found for release in own if (found := marginals.read(release, table)) is not None]
        return [*self.told, *(marginals.onto(found, self.question.workspace) for found in read)]

    def _parts(self, told: Sequence[MarginalEvidence]) -> dict[Subset, Floats]:
        """Return the best centred table of every part: the mean over releases, weighted by their precision.

        It is worked out once for the same releases, since every grouping set asks for it.
        """
        kept = tuple(found.id for found in told)
        if kept not in self._found:
            self._found[kept] = {part: _mean(told, part) for part in self.question.parts}
        return self._found[kept]


def _mean(told: Sequence[MarginalEvidence], part: Subset) -> Floats:
    pairs = [(precision, found) for found in told if (precision := found.precisions.get(part, 0.0)) > 0]
    total = sum(precision for precision, _ in pairs)
    mean: Floats = np.sum([precision / total * found.table(part) for precision, found in pairs], axis=0)
    return mean


def planned(
    question: MarginalQuestion,
    recipes: tuple[Recipe, ...],
    told: Sequence[MarginalEvidence],
    *,
    version: int,
    target: float | Mapping[Subset, float],
    rho: Fraction | None = None,
) -> MarginalTask:
    """Return the task that knows every count within the target variance, for as little as we can.

    Grouping sets may have targets of their own. With a rho, the target is what that would buy if nothing was known.
    """
    brought = (marginals.onto(found, question.workspace) for found in told)
    used = tuple(found for found in brought if not question.parts.isdisjoint(found.precisions))
    before = helmert.added(found.precisions for found in used)
    if rho is not None:
        target = _bought(question, before, rho)
    targets = target if isinstance(target, Mapping) else dict.fromkeys(question.sets, target)
    known = MarginalTask(
        table=question.workspace.table.name,
        version=version,
        question=question,
        recipes=recipes,
        told=used,
        made=(),
        cost=None,
        path="free",
    )
    if (known.variances[:, 0] <= np.array([targets[A] for A in question.sets]) * MET).all():
        return known
    return _charged(known, _missing(question, before, targets), targets)


def _charged(known: MarginalTask, made: tuple[Rows, ...], targets: Mapping[Subset, float]) -> MarginalTask:
    """Return the task that releases what is missing, with what other ways would charge."""
    question, rows = known.question, known.question.workspace.table.max_rows_per_unit
    cost = constant(_units(question, made))
    ways = {
        "each set on its own": sum(1 / target for target in targets.values()) / 2 * rows**2,
        "fresh": helmert.top_up(question.workspace.shape, {}, targets).cost / 2 * rows**2,
        "marginals": cost.highest / 2**UNIT_BITS,
    }
    return MarginalTask(
        table=known.table,
        version=known.version,
        question=question,
        recipes=known.recipes,
        told=known.told,
        made=made,
        cost=cost,
        path="marginals",
        ways=ways,
    )


def _missing(
    question: MarginalQuestion, known: Mapping[Subset, float], targets: Mapping[Subset, float]
) -> tuple[Rows, ...]:
    """Return the rows that still have to be released for every count to have its target variance."""
    sizes = question.workspace.shape
    wanted = helmert.top_up(sizes, known, {A: target * (1 - SLACK) for A, target in targets.items()}).precisions
    return tuple(
        Rows.telling(A, precision - known.get(A, 0.0), tuple(sizes[i] for i in A))
        for A, precision in sorted(wanted.items(), key=lambda item: (len(item[0]), item[0]))
        if precision - known.get(A, 0.0) > SLACK / 100 * precision
    )


def _units(question: MarginalQuestion, made: Sequence[Rows]) -> int:
    """Return what the rows cost in every cell alike, in units, rounded up: k^2 times the sum of their profiles / 2."""
    sizes, rows = question.workspace.shape, question.workspace.table.max_rows_per_unit
    profile = sum((part.profile(tuple(sizes[i] for i in part.A)) for part in made), Fraction(0))
    units = to_units(profile / 2 * rows**2)
    if units > MAX_UNITS:
        raise TooLarge("an answer this accurate costs more than can be booked", hint="ask for a larger error")
    return units


def _fresh(question: MarginalQuestion) -> float:
    """Return the profile of the cheapest release that tells every count with variance 1, if nothing is known."""
    return helmert.top_up(question.workspace.shape, {}, dict.fromkeys(question.sets, 1.0)).cost


def _bought(question: MarginalQuestion, known: Mapping[Subset, float], rho: Fraction) -> float:
    """Return the variance of every count that rho buys if nothing is known, and that costs no more if something is."""
    allowed = max(to_units_down(rho), 1)
    target = _fresh(question) * question.workspace.table.max_rows_per_unit**2 / float(2 * rho) * (1 + 2 * SLACK)
    for _ in range(12):
        every = dict.fromkeys(question.sets, target)
        asked = max(_units(question, _missing(question, before, every)) for before in ({}, known))
        if asked <= allowed:
            return target
        target *= asked / allowed * (1 + SLACK)
    raise TooLarge("so little budget can't be spent on the grid of the noise", hint="set a larger noisegate.rho")
