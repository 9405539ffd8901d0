"""The workshop of a round: one plan for all its queries, or one for each, and what each would cost alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from mechanisms import interrupts
from mechanisms.gaussian.known import Known
from mechanisms.least.residual import Join
from mechanisms.tolerances import MET
from planner.basics.errors import TooLarge
from planner.basics.limits import MAX_IDENTITY_CELLS
from planner.calls.rounds.model import Joint, RoundPlan, RoundQuery, scaled
from planner.calls.rounds.solve import CellLimits, RoundSolver, Solver
from planner.cells.costs import to_units_down
from planner.cells.workspace import Floats
from planner.ledger.accounts import Charge, total
from planner.plans.marginals import MarginalTask
from planner.plans.plan import Plan, Planner
from planner.plans.release import LinearTask
from planner.plans.settings import Settings
from planner.plans.task import Payable, Task
from planner.policy.table import Table


class Workshop:
    """Plans the queries of one round; a query's price when it is asked alone is worked out once."""

    def __init__(self, planner: Callable[[Settings], Planner], tables: Mapping[str, Table]) -> None:
        self._planner, self._tables = planner, tables
        self._alone: dict[tuple[int, float], Plan] = {}

    def alone(self, asked: RoundQuery, *, scale: float = 1.0) -> Plan:
        """Return the plan of a query as if it were asked now, by itself, with an error of so many times its own."""
        key = (asked.entry.number, scale)
        if key not in self._alone:
            settings = scaled(asked.settings, scale)
            self._alone[key] = self._planner(settings).plan(asked.compiled, asked.parts)
        return self._alone[key]

    def shell(self, asked: RoundQuery, *, scale: float) -> Plan:
        """Return the plan of a query, of which only what can't be shared must be planned for that accuracy."""
        plan = self.alone(asked)
        return plan if all(is_shareable(task) for task in plan.tasks) else self.alone(asked, scale=scale)

    def alone_charges(self, asked: RoundQuery) -> list[Charge]:
        """Return what the query would be charged by itself."""
        return self._charges(self.alone(asked).paid)

    def _charges(self, tasks: Sequence[Task]) -> list[Charge]:
        return [
            Charge(population=self.population(t.table), table=t.table, version=t.version, cost=t.cost)
            for t in tasks
            if t.cost is not None
        ]

    def within(self, queries: Sequence[RoundQuery], within: Mapping[str, CellLimits]) -> RoundPlan:
        """Return a plan for all targets in which no cell pays more than its limit, if we find one."""
        return RoundSolver(self, queries, within=within).plan()

    def together(self, queries: Sequence[RoundQuery], *, scale: float = 1.0, solve: Solver | None = None) -> RoundPlan:
        """Return the cheapest plan we find for all targets, each error so many times as large as asked.

        If planning each query by itself is cheaper, it is that.
        """
        found = RoundSolver(self, queries, scale, solve).plan()
        if solve is None and scale == 1.0 and self.each_alone(queries) < found.rho:
            apart = {task.key: task for query in queries for task in self.alone(query).paid}
            prices = [float(total(self.alone_charges(query))) for query in queries]
            savings = tuple((1 - 1.1**-2) * price / (sum(prices) or 1.0) for price in prices)
            return replace(self.having(queries, list(apart.values())), bound=found.bound, savings=savings)
        return found

    def each_alone(self, queries: Sequence[RoundQuery]) -> Fraction:
        """Return what all queries would cost together if each were planned by itself; the same one is paid once."""
        paid = {task.key: task for query in queries for task in self.alone(query).paid}
        return total(self._charges(list(paid.values())))

    def spending(
        self, queries: Sequence[RoundQuery], rho: Fraction, *, solve: Solver | None = None
    ) -> tuple[RoundPlan, float]:
        """Return the plan that costs at most rho with the least scale of all errors, and that scale.

        Costs fall with the square of the scale if nothing is known, and faster if something is.
        """
        scale, allowed = 1.0, max(to_units_down(rho), 1)
        best: tuple[RoundPlan, float] | None = None
        for _ in range(14):
            interrupts.check()
            found = self.together(queries, scale=scale, solve=solve)
            units = to_units_down(found.rho)
            if units <= allowed and (best is None or scale < best[1]):
                best = found, scale
            if allowed * 0.98 <= units <= allowed:
                break
            ratio = max(units, 1) / allowed * (1.005 if units > allowed else 0.995)
            low, high = (best[1] / 4 if best else 0.0), (best[1] if best else np.inf)
            scale = float(np.clip(scale * np.sqrt(ratio), low, high * (1 - 1e-4) if units > allowed else high))
            if not units:
                scale = (best[1] if best else scale) / 4
        if best is None:
            raise TooLarge("so little budget can't be spent on the grid of the noise", hint="name a larger rho")
        return best

    def shared(
        self, queries: Sequence[RoundQuery], mechanism: str, rho: Fraction, weights: Mapping[str, Fraction]
    ) -> RoundPlan | None:
        """Return the plan that costs at most rho with the least total error of all analysts, each measured in what
        they asked for; None if the queries are not one small problem of counts and sums.
        """
        found = RoundSolver(self, queries)
        tasks = found.shared(mechanism, rho, weights)
        return None if tasks is None else self.having(queries, tasks)

    def having(self, queries: Sequence[RoundQuery], tasks: Sequence[Payable]) -> RoundPlan:
        """Return the plan that releases just these tasks, and what it then tells about each query."""
        found = RoundSolver(self, queries)
        found.tasks = {task.key: task for task in tasks}
        return found.result()

    def planner(self, settings: Settings) -> Planner:
        return self._planner(settings)

    def population(self, table: str) -> str:
        return self._tables[table].population


def separately(plans: Mapping[str, RoundPlan]) -> dict[str, list[Payable]]:
    """Return everybody's own tasks, each a release of its own; what two would release alike is the first one's."""
    found: dict[str, Payable] = {}
    owners: dict[str, list[Payable]] = {name: [] for name in plans}
    for name, plan in plans.items():
        for task in plan.tasks:
            own = replace(task, payer=name) if isinstance(task, Joint) else task
            if own.key not in found:
                found[own.key] = own
                owners[name].append(own)
    return owners


def identity(known: Known, W: Floats, c: Floats) -> Join:
    """Return one row for every cell, all alike, with which each row of W is known with variance at most c_j."""
    if W.shape[1] > MAX_IDENTITY_CELLS:
        raise TooLarge(f"{W.shape[1]:,} cells are too many for the mechanism identity", hint="use another mechanism")
    if (known.variances(W) <= c * MET).all():
        return Join(W[:0], 0.0, 0.0, np.zeros(len(W)))
    low, high = 0.0, float(((W**2).sum(axis=1) / c).max())
    if known.rank:
        values, vectors = np.linalg.eigh(known.rows.T @ known.rows)
        squares = (W @ vectors) ** 2
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            enough = squares @ (1 / (np.maximum(values, 0.0) + middle)) <= c
            low, high = (low, middle) if enough.all() else (middle, high)
    return Join(np.sqrt(high) * np.eye(W.shape[1]), high, 0.0, np.zeros(len(W)))


def is_shareable(task: Task | Payable) -> bool:
    """Return whether a task can be planned together with others."""
    return isinstance(task, MarginalTask | Joint) or (isinstance(task, LinearTask) and task.is_small)
