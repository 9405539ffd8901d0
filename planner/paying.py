"""Who pays for a round: what each analyst would pay alone is the most that anybody else can make them pay.

Accuracy first, the targets decide what is released: as little as meets them all. What is left to decide is who pays.
Privacy first, everybody has a part of the given rho, and what is released decides how accurate each one's answers are.

Water-filling, accuracy first: what planning together saves is poured out among all by their weights, and nobody is
given more than they would pay alone. So taking part never costs more than going alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from planner.accounts import Charge, joint_account
from planner.costs import PARTS
from planner.joint import Asked, Together
from planner.together import Workshop, identity, separately

MECHANISMS = ("waterfilling", "independent", "identity", "utilitarian", "weighted_utilitarian")


@dataclass(frozen=True, eq=False)
class Deal:
    """What is released, by which mechanism, and what each analyst pays for it.

    gains: what going alone would cost over what is paid; or, if a rho is given, the error alone over the error now.
    rho: what was to be spent, if that was given; scale: by how much errors are then larger than asked for, at most.
    """

    mechanism: str
    together: Together
    paid: Mapping[str, Fraction]
    gains: Mapping[str, float]
    payers: Mapping[str, str]  # by key of a task: who pays for it
    scale: float | None = None
    rho: Fraction | None = None

    @cached_property
    def charges(self) -> list[Charge]:
        """Return what is charged to whom."""
        plan = self.together
        return [
            Charge(plan.populations[task.table], task.table, task.cost, self.payers[task.key])
            for task in plan.tasks
            if task.cost is not None
        ]


def filled(total: Fraction, limits: Mapping[str, Fraction], weights: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Return each one's part of a total: as much as their weight says, but never more than their limit.

    The level rises alike for all until the total is poured out. If it is more than all limits, everybody has theirs.

    >>> filled(Fraction(6), {"ann": Fraction(1), "bob": Fraction(9)}, {"ann": Fraction(1), "bob": Fraction(1)})
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
    queries: Sequence[Asked],
    mechanism: str | None,
    rho: Fraction | None,
    weights: Mapping[str, Fraction],
    *,
    releaser: str,
) -> Deal:
    """Return what a round releases and who pays for it."""
    if mechanism is None:
        mechanism = "waterfilling" if len(weights) > 1 else "one plan"
    if rho is not None:
        return _privacy_first(shop, queries, mechanism, rho, weights, releaser)
    return _accuracy_first(shop, queries, mechanism, weights, releaser)


def _own(queries: Sequence[Asked], analyst: str) -> list[Asked]:
    return [query for query in queries if query.entry.analyst == analyst]


def _accuracy_first(
    shop: Workshop, queries: Sequence[Asked], mechanism: str, weights: Mapping[str, Fraction], releaser: str
) -> Deal:
    """Return the deal in which every target is met.

    waterfilling: as little as meets all targets; what that saves is filled by weight into what each would pay alone.
    utilitarian: the same, paid by weight. weighted_utilitarian: the same, paid in proportion to the prices alone.
    identity: noisy counts of all cells. independent: everybody's own plan, which they pay for themselves.
    """
    if len(weights) == 1:
        plan = shop.together(queries, solve=identity if mechanism == "identity" else None)
        return _paid(mechanism, plan, {releaser: plan.rho}, {releaser: plan.rho}, releaser)
    plans = {name: shop.together(_own(queries, name)) for name in weights}
    alone = {name: plan.rho for name, plan in plans.items()}
    if mechanism == "independent":
        tasks, payers = separately(plans)
        return Deal(mechanism, shop.having(queries, tasks), alone, dict.fromkeys(alone, 1.0), payers)
    plan = shop.together(queries, solve=identity if mechanism == "identity" else None)
    by = {name: alone[name] for name in weights if alone[name]} if mechanism == "weighted_utilitarian" else weights
    if mechanism == "waterfilling":
        saved = filled(sum(alone.values(), -plan.rho), alone, weights)
        paid = {name: alone[name] - saved[name] for name in weights}
    else:
        whole = sum((by.get(name, Fraction(0)) for name in weights), Fraction(0)) or Fraction(1)
        paid = {name: min(plan.rho * by.get(name, Fraction(0)) / whole, alone[name]) for name in weights}
    return _paid(mechanism, plan, paid, alone, releaser)


def _paid(
    mechanism: str, plan: Together, paid: Mapping[str, Fraction], alone: Mapping[str, Fraction], releaser: str
) -> Deal:
    """Return the deal; what nobody else pays, whoever releases the round does."""
    rest = plan.rho - sum(paid.values(), Fraction(0))
    paid = {**paid, releaser: paid[releaser] + max(rest, Fraction(0))}
    gains = {name: float(alone[name] / own) for name, own in paid.items() if own}
    account = joint_account(_parts(paid, releaser)) if plan.rho else releaser
    return Deal(mechanism, plan, paid, gains, dict.fromkeys((task.key for task in plan.tasks), account))


def _parts(paid: Mapping[str, Fraction], releaser: str) -> dict[str, int]:
    """Return payments as 2^-20ths of their sum; what rounding leaves is the releaser's."""
    whole = sum(paid.values(), Fraction(0))
    parts = {name: int(own * PARTS / whole) for name, own in paid.items()}
    parts[releaser] += PARTS - sum(parts.values())
    return parts


def _privacy_first(
    shop: Workshop,
    queries: Sequence[Asked],
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
    """
    alone = {name: shop.together(_own(queries, name)).rho for name in weights}
    parts = filled(rho, {**alone, releaser: rho}, weights) if len(weights) > 1 else {releaser: rho}
    parts[releaser] += rho - sum(parts.values(), Fraction(0))
    plans = {name: shop.spending(_own(queries, name), part) for name, part in parts.items() if part}
    if mechanism in ("waterfilling", "independent"):
        tasks, payers = separately({name: plan for name, (plan, _) in plans.items()})
        plan, scale = shop.having(queries, tasks), max(scale for _, scale in plans.values())
        paid = {name: plans[name][0].rho if name in plans else Fraction(0) for name in weights}
    else:
        least = mechanism.endswith("utilitarian") and shop.shared(queries, mechanism, rho, weights)
        if least:
            plan, scale = least, None
        else:
            plan, scale = shop.spending(queries, rho, solve=identity if mechanism == "identity" else None)
        paid = {name: plan.rho * part / rho for name, part in parts.items()}
        account = joint_account(_parts(paid, releaser)) if plan.rho else releaser
        payers = dict.fromkeys((task.key for task in plan.tasks), account)
    if scale is None:
        pairs = zip(plan.asked, plan.errors, strict=True)
        scale = max((error / asked for asked, error in pairs if asked and error), default=1.0)
    return Deal(mechanism, plan, paid, _gains(queries, plan, plans), payers, scale, rho)


def _gains(queries: Sequence[Asked], plan: Together, plans: Mapping[str, tuple[Together, float]]) -> dict[str, float]:
    """Return for each analyst the mean over queries of the error alone over the error now."""
    now = {query.entry.number: error for query, error in zip(queries, plan.errors, strict=True)}
    gains = {}
    for name, (own, _) in plans.items():
        mine = zip(_own(queries, name), own.errors, strict=True)
        ratios = [error / then for query, error in mine if error and (then := now[query.entry.number])]
        if ratios:
            gains[name] = sum(ratios) / len(ratios)
    return gains
