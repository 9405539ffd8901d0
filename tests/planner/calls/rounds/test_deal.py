"""Payment: water-filling is the common level, shares cover what is released, and parts never add up to more."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.calls.rounds.model import Deal, Joint, RoundPlan, Shares
from planner.calls.rounds.payment import _Newcomer, _parts, _shared_out, _Stage, water_levels
from planner.cells.bills import covers, divided
from planner.cells.costs import PARTS, Cost, constant, rho_of
from planner.ledger.accounts import joint_account
from planner.policy.table import Table
from planner.questions.linear import Measurement
from tests.planner.calls.rounds.questions import A, counts, table

positive = st.fractions(Fraction(1, 100), 100)
amounts = st.fractions(0, 100)
people = st.lists(st.tuples(amounts, positive), min_size=1, max_size=5)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return table(tmp_path_factory.mktemp("deal"))


def task(found: Table, *values: int, number: int = 1) -> Joint:
    """Return a release that charges each value of column a so much."""
    cost = Cost(("a",), (np.arange(4),), np.array(values)) if len(values) > 1 else constant(values[0])
    return Joint(
        table="t",
        version=1,
        made=counts(found, {"a": A}),
        measurement=Measurement(np.array([[number]], dtype=object), 0),
        cost=cost,
    )


def together(*tasks: Joint) -> RoundPlan:
    return RoundPlan(tasks=tasks, populations={"t": "p"}, bound=None, asked=(), errors=(), savings=(), releases=())


@given(amounts, people)
def test_water_stands_at_one_level_in_all_vessels_that_are_not_full(
    total: Fraction, drawn: list[tuple[Fraction, Fraction]]
) -> None:
    limits = {str(i): limit for i, (limit, _) in enumerate(drawn)}
    weights = {str(i): weight for i, (_, weight) in enumerate(drawn)}
    parts = water_levels(total, limits, weights)
    assert sum(parts.values()) == min(total, sum(limits.values()))
    assert all(0 <= parts[name] <= limits[name] for name in limits)
    levels = {parts[name] / weights[name] for name in limits if parts[name] < limits[name]}
    assert len(levels) <= 1
    for level in levels:
        assert all(parts[name] / weights[name] <= level for name in limits)


@given(st.dictionaries(st.text(max_size=3), positive, min_size=1))
def test_parts_of_a_bill_never_add_up_to_more_than_the_bill(payments: dict[str, Fraction]) -> None:
    parts = _parts(payments)
    assert PARTS - len(parts) < sum(parts.values()) <= PARTS
    whole = sum(payments.values())
    assert all(0 <= payments[name] / whole - Fraction(parts[name], PARTS) < Fraction(1, PARTS) for name in parts)


def test_shares_that_leave_a_cell_unpaid_make_no_deal(found: Table) -> None:
    released = together(task(found, 5, 5, 0, 0))
    short: Shares = {"ann": {"t": [task(found, 5, 4, 9, 9).cost]}, "bob": {"t": []}}
    with pytest.raises(AssertionError, match="must cover what it releases about t"):
        Deal(mechanism="waterfilling", together=released, paid={}, gains={}, shares=short)
    enough: Shares = {"ann": {"t": [task(found, 5, 4, 0, 0).cost]}, "bob": {"t": [task(found, 0, 1, 0, 0).cost]}}
    Deal(mechanism="waterfilling", together=released, paid={}, gains={}, shares=enough)


def test_releases_charge_the_joint_account_and_shares_the_accounts_of_analysts(found: Table) -> None:
    shares: Shares = {"ann": {"t": [constant(3)]}, "bob": {"t": [constant(2), constant(0)]}}
    deal = Deal(mechanism="waterfilling", together=together(task(found, 5)), paid={}, gains={}, shares=shares)
    charged = [(charge.analyst, charge.is_share, charge.cost.highest) for charge in deal.charges]
    assert charged == [(joint_account(["ann", "bob"]), False, 5), ("ann", True, 3), ("bob", True, 2)]


def test_one_analyst_is_charged_for_the_releases_themselves(found: Table) -> None:
    deal = Deal(mechanism="one plan", together=together(task(found, 5)), paid={}, gains={})
    assert [(charge.analyst, charge.is_share) for charge in deal.charges] == [("", False)]


def test_where_there_are_too_many_cells_who_releases_is_charged_all(found: Table) -> None:
    plan = together(task(found, 5))
    assert _shared_out(plan, lambda *_: None, "bob") == {"bob": {"t": [constant(5)]}}
    limits = {"ann": [constant(9)]}
    shares = _shared_out(plan, lambda costs, _: divided(costs, {"ann": PARTS // 5}, limits, rest="bob"), "bob")
    paid = {name: costs["t"][0].highest for name, costs in shares.items()}
    assert sum(paid.values()) == 5
    assert paid["ann"] in (1, 2)


def joining(found: Table) -> _Newcomer:
    """Return bob who joins ann: she pays for the left half of a, he for all of it."""
    ann = _Stage.of([], together(task(found, 8, 8, 0, 0, number=1)), "ann")
    bob = _Stage.of([], together(task(found, 4, 4, 4, 4, number=2)), "bob")
    return _Newcomer(ann, bob, {"ann": Fraction(1), "bob": Fraction(1)})


def test_who_joins_brings_their_plan_beside_what_there_was(found: Table) -> None:
    [(lot, tasks)] = joining(found).stacked.tasks.items()
    assert lot == ("t", "")
    assert sorted(each.cost.highest for each in tasks.values() if each.cost) == [4, 8]
    assert joining(found).stacked.paid(lot) == (12, 12, 8.0)


def test_a_plan_for_all_is_taken_if_somebody_saves_and_nobody_pays_more(found: Table) -> None:
    how, lot = joining(found), ("t", "")
    better, rest = how.improved(how.stacked, together(task(found, 8, 8, 2, 2, number=3)), [])
    assert not rest
    shares = better.shares[lot]
    for name in ("ann", "bob"):
        assert covers(how.limits(lot)[name], shares[name])
    assert covers([*shares["ann"], *shares["bob"]], [task(found, 8, 8, 2, 2).cost])
    assert sum(cost.highest for costs in shares.values() for cost in costs) < 12


def test_a_plan_that_some_cell_can_not_bear_is_not_taken(found: Table) -> None:
    how = joining(found)
    same, rest = how.improved(how.stacked, together(task(found, 1, 1, 5, 1, number=3)), [])
    assert same.tasks == how.stacked.tasks
    assert rest == [("t", "")]


def test_a_joint_plan_stays_within_what_all_may_pay_together(found: Table) -> None:
    within = joining(found).within(("t", ""))
    assert covers(within.limits, [task(found, 12, 12, 4, 4).cost])
    assert not covers(within.limits, [task(found, 12, 12, 5, 4).cost])
    assert len(within.instead) == 2


def test_what_is_paid_is_the_dearest_cell_of_all_charges(found: Table) -> None:
    assert together(task(found, 7, 1, 1, 1), task(found, 1, 1, 9, 1, number=2)).rho == rho_of(10)
