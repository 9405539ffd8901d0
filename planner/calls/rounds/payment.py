"""Who pays for a round: in no cell more than alone, and nobody more because somebody else joined.

Accuracy first, the targets decide what is released. What is left to decide is who pays. Privacy first, everybody has a
part of the given rho, and what is released decides how accurate each one's answers are.

An account stands at its dearest cell of all that it was ever charged. So what an analyst is charged for a round is a
function on cells, their *share*; what holds for shares in every cell holds for accounts, whatever they were charged
before and will be later. The releases of a round charge the population, the shares beside them the accounts.

Water-filling, accuracy first, takes the analysts in the order in which they joined. The first one's share is what
their own plan costs. When another joins, nobody may be charged more than before, and they not more than alone: those
are the limits. A plan for all is taken if no cell is released for more than all limits together, and what it saves is
poured out by weight. Stacking what there was and the newcomer's own plan always is such a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

from planner.calls.rounds.model import Deal, RoundPlan, RoundQuery, Shares, costs_by_table
from planner.calls.rounds.planner import Workshop, identity, is_shareable, separately
from planner.calls.rounds.solve import CellLimits
from planner.cells.bills import capped, divided, mean, poured
from planner.cells.costs import PARTS, Cost, dearest
from planner.ledger.accounts import Charge, total
from planner.plans.task import Payable

MECHANISMS = ("waterfilling", "independent", "identity", "utilitarian", "weighted_utilitarian")


def water_levels(
    total: Fraction, limits: Mapping[str, Fraction], weights: Mapping[str, Fraction]
) -> dict[str, Fraction]:
    """Return each one's part of a total: as much as their weight says, but never more than their limit.

    The level rises alike for all until the total is poured out. If it is more than all limits, everybody has theirs.

    >>> water_levels(Fraction(6), {"ann": Fraction(1), "bob": Fraction(9)}, {"ann": Fraction(1), "bob": Fraction(1)})
    {'ann': Fraction(1, 1), 'bob': Fraction(5, 1)}
    """
    parts = dict.fromkeys(limits, Fraction(0))
    rest, below = min(total, sum(limits.values(), Fraction(0))), [name for name in limits if limits[name]]
    while rest > 0 and below:
        width = sum((weights[name] for name in below), Fraction(0))
        level = min(rest / width, *((limits[name] - parts[name]) / weights[name] for name in below))
        for name in below:
            parts[name] += level * weights[name]
        rest -= level * width
        below = [name for name in below if parts[name] < limits[name]]
    return parts


def deal(
    shop: Workshop,
    queries: Sequence[RoundQuery],
    mechanism: str | None,
    rho: Fraction | None,
    weights: Mapping[str, Fraction],
    *,
    releaser: str,
) -> Deal:
    """Return what a round releases and who pays for it; the weights stand in the order in which analysts joined."""
    if mechanism is None:
        mechanism = "waterfilling" if len(weights) > 1 else "one plan"
    if rho is not None:
        return _privacy_first(shop, queries, mechanism, rho, weights, releaser)
    if len(weights) == 1:
        plan = shop.together(queries, solve=identity if mechanism == "identity" else None)
        return Deal(
            mechanism=mechanism, together=plan, paid={releaser: plan.rho}, gains={releaser: 1.0} if plan.rho else {}
        )
    return _accuracy_first(shop, queries, mechanism, weights, releaser)


def _own(queries: Sequence[RoundQuery], analyst: str) -> list[RoundQuery]:
    return [query for query in queries if query.entry.analyst == analyst]


def _paid(costs: Mapping[str, Sequence[Cost]]) -> Fraction:
    """Return what costs come to: the dearest cell of each table, over all tables the sum."""
    return total(
        [Charge(population="", table=table, version=0, cost=cost) for table, each in costs.items() for cost in each]
    )


def _accuracy_first(
    shop: Workshop, queries: Sequence[RoundQuery], mechanism: str, weights: Mapping[str, Fraction], releaser: str
) -> Deal:
    """Return the deal in which every target is met.

    waterfilling: everybody is charged at most what they would be alone, or without those who joined after them.
    utilitarian: as little as meets all targets, paid by weight. weighted_utilitarian: the same, paid in proportion to
    the prices alone. identity: noisy counts of all cells, paid by weight. With these three nobody is charged more than
    alone but who releases the round, who is charged what that leaves.
    independent: everybody's own plan, which they pay for themselves.
    """
    plans = {name: shop.together(_own(queries, name)) for name in weights}
    alone = {name: costs_by_table(plan.tasks) for name, plan in plans.items()}
    if mechanism == "waterfilling":
        plan, shares = _joined(shop, queries, plans, weights)
    elif mechanism == "independent":
        own = separately(plans)
        plan = shop.having(queries, [task for tasks in own.values() for task in tasks])
        shares = {name: costs_by_table(tasks) for name, tasks in own.items()}
    else:
        plan = shop.together(queries, solve=identity if mechanism == "identity" else None)
        prices = {name: found.rho for name, found in plans.items()}
        by = prices if mechanism == "weighted_utilitarian" and any(prices.values()) else weights
        parts = _parts(by)
        shares = _shared_out(
            plan, lambda costs, table: divided(costs, parts, _of(alone, table), rest=releaser), releaser
        )
    paid = {name: _paid(shares.get(name, {})) for name in weights}
    gains = {name: float(plans[name].rho / own) for name, own in paid.items() if own}
    return Deal(mechanism=mechanism, together=plan, paid=paid, gains=gains, shares=shares)


def _of(shares: Shares, table: str) -> dict[str, Sequence[Cost]]:
    return {name: tables.get(table, ()) for name, tables in shares.items()}


def _parts(payments: Mapping[str, Fraction]) -> dict[str, int]:
    """Return payments as 2^-20ths of their sum, rounded down."""
    whole = sum(payments.values(), Fraction(0))
    return {name: int(own * PARTS / whole) for name, own in payments.items()}


def _shared_out(
    plan: RoundPlan, share: Callable[[Sequence[Cost], str], Mapping[str, Cost] | None], releaser: str
) -> dict[str, dict[str, list[Cost]]]:
    """Return what a way to share says for each table; where there are too many cells for it the releaser is charged."""
    shares: dict[str, dict[str, list[Cost]]] = {}
    for table, costs in costs_by_table(plan.tasks).items():
        found = share(costs, table)
        for name, own in {releaser: costs}.items() if found is None else ((n, [c]) for n, c in found.items()):
            shares.setdefault(name, {})[table] = own
    return shares


# --- one after the other -----------------------------------------------------------------------------------

Lot = tuple[str, str]
"""A table, and the key of a task that shares nothing with others; no key for all that is planned together."""


@dataclass(frozen=True, eq=False)
class _Stage:
    """What is released for those who have joined so far, lot by lot, and each one's share of it."""

    tasks: Mapping[Lot, Mapping[str, Payable]]  # by key
    shares: Mapping[Lot, Mapping[str, Sequence[Cost]]]  # by analyst
    alone: Mapping[Lot, Mapping[str, Sequence[Cost]]]  # what everybody would be charged alone
    savings: Mapping[int, Fraction]  # by query: the rho that 10 % more error would save
    bound: float | None

    @classmethod
    def of(cls, queries: Sequence[RoundQuery], plan: RoundPlan, analyst: str) -> _Stage:
        """Return what one analyst's own plan releases."""
        tasks = _lots(plan)
        shares = {lot: {analyst: _costs(found)} for lot, found in tasks.items()}
        return cls(tasks, shares, shares, _savings(queries, plan), plan.bound)

    def paid(self, lot: Lot) -> tuple[int, int, float]:
        """Return what the dearest cells of all shares add up to, what that of all releases pays, and the mean cell."""
        released = _costs(self.tasks[lot])
        return sum(map(dearest, self.shares[lot].values())), dearest(released), mean(released)


@dataclass(frozen=True, eq=False)
class _Newcomer:
    """Somebody joins: what there was, what they would release alone, and the weights of all."""

    before: _Stage
    own: _Stage
    weights: Mapping[str, Fraction]

    def limits(self, lot: Lot) -> dict[str, Sequence[Cost]]:
        """Return what each of all may be charged at most: what they were before, or alone."""
        return {**self.before.shares.get(lot, {}), **self.own.shares.get(lot, {})}

    @cached_property
    def alone(self) -> dict[Lot, dict[str, Sequence[Cost]]]:
        before, own = self.before.alone, self.own.alone
        return {lot: {**before.get(lot, {}), **own.get(lot, {})} for lot in dict.fromkeys([*before, *own])}

    def shares(self, lot: Lot, tasks: Mapping[str, Payable]) -> dict[str, Sequence[Cost]]:
        """Return everybody's share of some tasks; nothing if these can't be borne within the limits."""
        found = poured(_costs(tasks), self.limits(lot), self.alone.get(lot, {}), self.weights)
        return {name: [cost] for name, cost in (found or {}).items()}

    @cached_property
    def stacked(self) -> _Stage:
        """Return what there was and what is new, one beside the other; what both would release alike only once."""
        before, own = self.before.tasks, self.own.tasks
        tasks = {lot: {**before.get(lot, {}), **own.get(lot, {})} for lot in dict.fromkeys([*before, *own])}
        shares = {lot: self.shares(lot, found) or self.limits(lot) for lot, found in tasks.items()}
        return _Stage(tasks, shares, self.alone, {**self.before.savings, **self.own.savings}, None)

    def improved(self, stage: _Stage, plan: RoundPlan, queries: Sequence[RoundQuery]) -> tuple[_Stage, list[Lot]]:
        """Return the stage with what a plan makes cheaper of that which is planned together, and where nobody saves."""
        rest, planned = list[Lot](), _lots(plan)
        for lot in [lot for lot in stage.tasks if not lot[1]]:
            tasks = planned.get(lot, {})
            shares, now, then = self.shares(lot, tasks), stage.paid(lot), None
            if shares:
                found = replace(stage, tasks={**stage.tasks, lot: tasks}, shares={**stage.shares, lot: shares})
                then = found.paid(lot)
                stage = replace(found, savings=_savings(queries, plan)) if then < now else stage
            if then is None or then[0] >= now[0]:
                rest.append(lot)
        return stage, rest

    def within(self, lot: Lot) -> CellLimits:
        costs = [cost for each in self.limits(lot).values() for cost in each]
        return CellLimits(costs, list(self.stacked.tasks[lot].values()))


def _lots(plan: RoundPlan) -> dict[Lot, dict[str, Payable]]:
    found: dict[Lot, dict[str, Payable]] = {}
    for task in plan.tasks:
        lot = task.table, "" if is_shareable(task) else task.key
        found.setdefault(lot, {})[task.key] = task
    return found


def _costs(tasks: Mapping[str, Payable]) -> list[Cost]:
    return [task.cost for task in tasks.values() if task.cost is not None]


def _savings(queries: Sequence[RoundQuery], plan: RoundPlan) -> dict[int, Fraction]:
    return {query.entry.number: Fraction(part) * plan.rho for query, part in zip(queries, plan.savings, strict=True)}


def _joined(
    shop: Workshop, queries: Sequence[RoundQuery], plans: Mapping[str, RoundPlan], weights: Mapping[str, Fraction]
) -> tuple[RoundPlan, Shares]:
    """Return the plan for all and everybody's share, after one analyst after the other has joined."""
    stage: _Stage | None = None
    for number, name in enumerate(weights, start=1):
        own = _Stage.of(_own(queries, name), plans[name], name)
        present = [query for query in queries if query.entry.analyst in list(weights)[:number]]
        stage = own if stage is None else _joined_by(shop, present, _Newcomer(stage, own, weights))
    assert stage is not None
    plan = shop.having(queries, [task for tasks in stage.tasks.values() for task in tasks.values()])
    savings = tuple(float(stage.savings[q.entry.number] / plan.rho) if plan.rho else 0.0 for q in queries)
    shares: dict[str, dict[str, list[Cost]]] = {name: {} for name in weights}
    for (table, _), found in stage.shares.items():
        for name, costs in found.items():
            shares[name].setdefault(table, []).extend(costs)
    return replace(plan, bound=stage.bound, savings=savings), shares


def _joined_by(shop: Workshop, queries: Sequence[RoundQuery], joining: _Newcomer) -> _Stage:
    """Return what there is once another has joined: the first plan for all by which somebody saves.

    First the plan with the least dearest cell, then the one that charges every cell the least part of what all limits
    allow; if with neither anybody saves, what there was and the newcomer's own plan.
    """
    together = shop.together(queries)
    stage, rest = joining.improved(replace(joining.stacked, bound=together.bound), together, queries)
    if rest:
        within = shop.within(queries, {lot[0]: joining.within(lot) for lot in rest})
        stage, _ = joining.improved(stage, within, queries)
    return stage


# --- a given rho -------------------------------------------------------------------------------------------


def _privacy_first(
    shop: Workshop,
    queries: Sequence[RoundQuery],
    mechanism: str,
    rho: Fraction,
    weights: Mapping[str, Fraction],
    releaser: str,
) -> Deal:
    """Return the deal that costs at most rho.

    waterfilling and independent: everybody's own plan for their part of rho; all of them see what all release. Under
    Gaussian noise information adds up, so that stacking these plans is pouring them into common buckets; nobody's
    errors are larger than alone, and nobody who joins makes another's larger.
    utilitarian: least total error. weighted_utilitarian: each analyst's error counts in relation to that alone.
    One analyst, or identity: one plan for all queries, with the least common scale of all errors.

    With all of them nobody is charged in any cell more than their queries as exact as asked would cost alone, but who
    releases the round, who is charged what that leaves.
    """
    own = {name: shop.together(_own(queries, name)) for name in weights}
    alone = {name: costs_by_table(plan.tasks) for name, plan in own.items()}
    prices = {name: plan.rho for name, plan in own.items()}
    parts = water_levels(rho, {**prices, releaser: rho}, weights) if len(weights) > 1 else {releaser: rho}
    parts[releaser] += rho - sum(parts.values(), Fraction(0))
    plans = {name: shop.spending(_own(queries, name), part) for name, part in parts.items() if part}
    stacks = separately({name: plan for name, (plan, _) in plans.items()})
    if mechanism in ("waterfilling", "independent"):
        tasks = [task for own_tasks in stacks.values() for task in own_tasks]
        plan, scale = shop.having(queries, tasks), max(scale for _, scale in plans.values())
        costs = {name: costs_by_table(found) for name, found in stacks.items()}
        shares = _shared_out(
            plan, lambda all_, table: capped(all_, _of(costs, table), _of(alone, table), rest=releaser), releaser
        )
    else:
        least = mechanism.endswith("utilitarian") and shop.shared(queries, mechanism, rho, weights)
        if least:
            plan, scale = least, None
        else:
            plan, scale = shop.spending(queries, rho, solve=identity if mechanism == "identity" else None)
        whole = _parts(parts)
        shares = _shared_out(plan, lambda all_, table: divided(all_, whole, _of(alone, table), rest=releaser), releaser)
    if scale is None:
        pairs = zip(plan.asked, plan.errors, strict=True)
        scale = max((error / asked for asked, error in pairs if asked and error), default=1.0)
    paid = {name: _paid(shares.get(name, {})) for name in weights}
    return Deal(
        mechanism=mechanism,
        together=plan,
        paid=paid,
        gains=_gains(queries, plan, plans),
        shares=shares if len(weights) > 1 else {},
        scale=scale,
        rho=rho,
    )


def _gains(
    queries: Sequence[RoundQuery], plan: RoundPlan, plans: Mapping[str, tuple[RoundPlan, float]]
) -> dict[str, float]:
    """Return for each analyst the mean over queries of the error alone over the error now."""
    now = {query.entry.number: error for query, error in zip(queries, plan.errors, strict=True)}
    gains = {}
    for name, (own, _) in plans.items():
        mine = zip(_own(queries, name), own.errors, strict=True)
        ratios = [error / then for query, error in mine if error and (then := now[query.entry.number])]
        if ratios:
            gains[name] = sum(ratios) / len(ratios)
    return gains
