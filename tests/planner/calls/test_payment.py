"""Who pays for a round: in no cell more than alone, nobody more because somebody joined, all together what is released.

What holds is tested in the account's own terms: where it stands after a round, with whatever was charged to it before.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from planner.calls.rounds import payment, roster, rounds
from planner.calls.rounds.model import RoundQuery
from planner.calls.rounds.offer import Offer
from planner.calls.rounds.payment import MECHANISMS
from planner.calls.rounds.rounds import Terms
from planner.cells import bills
from planner.cells.bills import covers, mean
from planner.cells.costs import Cost, rho_of
from planner.gate import Gate
from planner.ledger.accounts import Charge
from tests.planner.gates import open_gate

NAMES = ["ann", "bob", "cal", "dan", "eve", "fay"]
ROWS = """SELECT ['a', 'b', 'c', 'd'][1 + i % 4] AS g, ['x', 'y', 'z'][1 + i % 3] AS h, (i % 8)::INTEGER AS age,
    (i % 11)::INTEGER AS income FROM range(400) AS r(i)"""
COLUMNS = """g = { values = ["a", "b", "c", "d"] }
h = { values = ["x", "y", "z"] }
age = { type = "integer", min = 0, max = 7 }
income = { type = "integer", min = 0, max = 10, role = "measure" }"""
IN = "SELECT count(*) AS n FROM people WHERE g = '{}'"


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    with_shares = "".join(f"[analysts.{name}]\nshare = {0.1 + 0.02 * i:.2f}\n" for i, name in enumerate(NAMES))
    made = open_gate(tmp_path, ROWS, columns=COLUMNS, rest=with_shares)
    yield made
    made.close()


def ask(gate: Gate, name: str, sql: str, error: float) -> None:
    session = gate.session(name)
    session.execute(f"SET noisegate.error = {error}")
    session.execute(sql)


def enlist(gate: Gate, name: str, sql: str, error: float) -> None:
    gate.session(name).execute(f"SELECT * FROM noisegate.enlist('r', $${sql}$$, error => {error})")


def queries(gate: Gate) -> list[RoundQuery]:
    return [rounds.asked(gate, entry) for entry in roster.entries(gate.ledger, "r")]


def settled(gate: Gate, asked: Sequence[RoundQuery], **terms: Any) -> Offer:
    return rounds.settle(gate.session(asked[0].entry.analyst), "r", asked, Terms(**terms))


def of(asked: Sequence[RoundQuery], *names: str) -> list[RoundQuery]:
    return [query for query in asked if query.entry.analyst in names]


def stands(gate: Gate, charges: Sequence[Charge], name: str) -> int:
    """Return where an account stands after charges, in units."""
    [quote] = gate.ledger.quote(charges, analyst=name, populations=["default"])
    return quote.account_after


def share(found: Offer, name: str) -> list[Cost]:
    """Return what is charged to somebody, as costs."""
    deal = found.deal
    if not deal.shares:
        return [charge.cost for charge in found.together.charges]
    return [cost for who, _, cost in deal.shared if who == name]


def released(found: Offer) -> list[Cost]:
    return [charge.cost for charge in found.together.charges]


def drawn(source: random.Random) -> str:
    """Return a question: overlapping, nested, disjoint or the same, as it happens."""
    keys = ["", "", "g", "h", "age", "age / 2"]
    filters = ["", "", f"g = '{source.choice('abcd')}'", f"age < {source.randint(1, 7)}", "h <> 'x'"]
    filters.append(f"g IN ('a', '{source.choice('bcd')}') AND age >= {source.randint(1, 6)}")
    key, where = source.choice(keys), source.choice(filters)
    aggregate = source.choice(["count(*)"] * 6 + ["sum(income)", "quantile_cont(income, 0.5)"])
    return (
        f"SELECT {key + ', ' if key else ''}{aggregate} AS n FROM people"
        f"{' WHERE ' + where if where else ''}{' GROUP BY 1' if key else ''}"
    )


@pytest.mark.parametrize("seed", range(10))
def test_joining_one_by_one_nobodys_account_ever_stands_higher(gate: Gate, seed: int) -> None:
    """Sharing incentive, non-interference and cover, in every cell and where accounts stand, whatever came before."""
    source = random.Random(seed)
    names = NAMES[: 2 + seed % 5]
    for _ in range(source.randint(0, 3)):
        ask(gate, source.choice(names), drawn(source), source.choice([10, 20]))
    for name in names:
        for _ in range(source.randint(1, 2)):
            enlist(gate, name, drawn(source), source.choice([5, 10, 20]))
    weights = {name: Fraction(source.randint(1, 5)) for name in names} if seed % 2 else None
    asked, before = queries(gate), None
    alone = {name: settled(gate, of(asked, name)) for name in names}
    for count in range(2, len(names) + 1):
        present = names[:count]
        given = {name: weights[name] for name in present} if weights else None
        found = settled(gate, of(asked, *present), weights=given)
        for name in present:
            mine = share(found, name)
            assert covers(share(alone[name], name), mine)
            assert stands(gate, found.deal.charges, name) <= stands(gate, alone[name].deal.charges, name)
            if before is not None and name != present[-1]:
                assert covers(share(before, name), mine)
                assert stands(gate, found.deal.charges, name) <= stands(gate, before.deal.charges, name)
        assert covers([cost for name in present for cost in share(found, name)], released(found))
        before = found
    for query, asked_for, error in zip(asked, found.together.asked, found.together.errors, strict=True):
        assert error is None or error <= (asked_for or 0) * (1 + 1e-6), query.entry.sql


@pytest.mark.parametrize("seed", range(3))
def test_what_is_booked_is_what_was_explained(gate: Gate, seed: int) -> None:
    source = random.Random(100 + seed)
    ask(gate, "bob", drawn(source), 10)
    for name in ("ann", "bob", "cal"):
        enlist(gate, name, drawn(source), 10)
        enlist(gate, name, IN.format("a"), 10)
    found = settled(gate, queries(gate))
    standing = {name: stands(gate, found.deal.charges, name) for name in NAMES}
    result = gate.session("cal").execute("SELECT * FROM noisegate.release('r')")
    assert result.cost == found.together.rho
    assert {name: gate.ledger.account_spent("default", name) for name in NAMES} == standing
    assert {row[1]: Fraction(row[6]) for row in result.rows} == {
        n: Fraction(float(p)) for n, p in found.deal.paid.items()
    }
    again = Gate.open(gate.policy.path)  # read from the ledger, with every hash checked
    try:
        assert {name: again.ledger.account_spent("default", name) for name in NAMES} == standing
        assert again.ledger.spent("default") == gate.ledger.spent("default")
    finally:
        again.close()


def test_nobody_is_charged_in_cells_they_never_asked_about(gate: Gate) -> None:
    """Bob has paid for g = 'a' and asks about g = 'b', which does not raise his account; nor does a round with Ann."""
    ask(gate, "bob", IN.format("a"), 10)
    before = gate.ledger.account_spent("default", "bob")
    enlist(gate, "ann", IN.format("a"), 5)
    enlist(gate, "bob", IN.format("b"), 10)
    gate.session("ann").execute("SELECT * FROM noisegate.release('r')")
    assert gate.ledger.account_spent("default", "bob") == before
    assert gate.ledger.account_spent("default", "ann") > 0


@pytest.mark.parametrize("count", [2, 3, 4])
def test_who_asks_the_same_shares_the_cost_by_weight(gate: Gate, count: int) -> None:
    for name in NAMES[:count]:
        enlist(gate, name, "SELECT g, count(*) AS n FROM people GROUP BY g", 10)
    asked = queries(gate)
    one = settled(gate, asked[:1]).together.rho
    found = settled(gate, asked, weights=dict.fromkeys(NAMES[:count], Fraction(1)))
    assert float(found.together.rho / one) == pytest.approx(1, abs=1e-5)
    for paid in found.deal.paid.values():
        assert float(paid / one) == pytest.approx(1 / count, abs=1e-5)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "SELECT g, count(*) AS n FROM people GROUP BY g",
            "SELECT h, count(*) AS n FROM people GROUP BY h",
        ),  # crossing
        (IN.format("a"), "SELECT g, count(*) AS n FROM people GROUP BY g"),  # one of several
        (
            "SELECT age, count(*) AS n FROM people GROUP BY age",
            "SELECT count(*) AS n FROM people WHERE age < 3",
        ),  # nested
        (
            "SELECT age, count(*) AS n FROM people WHERE age < 5 GROUP BY 1",
            "SELECT age, count(*) FROM people WHERE age > 2 GROUP BY 1",
        ),
        ("SELECT sum(income) AS n FROM people", "SELECT g, sum(income) AS n FROM people GROUP BY g"),
        ("SELECT quantile_cont(income, 0.5) AS n FROM people", "SELECT quantile_cont(income, 0.5) AS n FROM people"),
    ],
)
def test_where_questions_overlap_somebody_pays_less(gate: Gate, first: str, second: str) -> None:
    enlist(gate, "ann", first, 10)
    enlist(gate, "bob", second, 10)
    asked = queries(gate)
    found = settled(gate, asked)
    alone = {name: mean(released(settled(gate, of(asked, name)))) for name in ("ann", "bob")}
    assert mean(released(found)) < sum(alone.values()) * 0.99
    assert max(mean(share(found, name)) / alone[name] for name in alone) <= 1
    assert min(mean(share(found, name)) / alone[name] for name in alone) < 0.99


def test_questions_about_other_cells_are_paid_for_as_alone(gate: Gate) -> None:
    enlist(gate, "ann", IN.format("a"), 10)
    enlist(gate, "bob", IN.format("b"), 5)
    asked = queries(gate)
    found = settled(gate, asked)
    alone = {name: settled(gate, of(asked, name)).together.rho for name in ("ann", "bob")}
    assert {n: float(p) for n, p in found.deal.paid.items()} == pytest.approx(
        {n: float(p) for n, p in alone.items()}, rel=1e-5
    )
    assert found.together.rho == max(found.deal.paid.values())


def test_what_shares_nothing_is_borne_by_those_who_ask_it(gate: Gate) -> None:
    """A median that two of three ask: each of the two pays half of it, and the third none."""
    enlist(gate, "ann", "SELECT count(*) AS n FROM people", 10)
    for name in ("bob", "cal"):
        enlist(gate, name, "SELECT quantile_cont(age, 0.5) AS n FROM people", 10)
    asked, equal = queries(gate), dict.fromkeys(["ann", "bob", "cal"], Fraction(1))
    found = settled(gate, asked, weights=equal)
    alone = {name: settled(gate, of(asked, name)).together.rho for name in equal}
    assert float(found.deal.paid["ann"] / alone["ann"]) == pytest.approx(1, abs=1e-5)
    for name in ("bob", "cal"):
        assert float(found.deal.paid[name] / alone[name]) == pytest.approx(1 / 2, abs=1e-5)


@pytest.mark.parametrize("rho", [None, Fraction(1, 100)])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_with_every_mechanism_nobody_but_who_releases_is_charged_more_than_alone(
    gate: Gate, mechanism: str, rho: Fraction | None
) -> None:
    ask(gate, "bob", IN.format("a"), 10)
    enlist(gate, "ann", "SELECT g, count(*) AS n FROM people WHERE age < 5 GROUP BY g", 10)
    enlist(gate, "bob", "SELECT age, count(*) AS n FROM people WHERE g <> 'a' GROUP BY 1", 10)
    enlist(gate, "cal", IN.format("a"), 5)
    asked = queries(gate)
    found = settled(gate, asked, mechanism=mechanism, rho=rho)
    assert covers([cost for name in NAMES[:3] for cost in share(found, name)], released(found))
    for name in ("bob", "cal") if rho or mechanism not in ("waterfilling", "independent") else NAMES[:3]:
        alone = settled(gate, of(asked, name))
        assert covers(share(alone, name), share(found, name))
        assert stands(gate, found.deal.charges, name) <= stands(gate, alone.deal.charges, name)
    if rho is not None:
        assert found.together.rho <= rho


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_where_there_are_too_many_cells_everything_is_covered_all_the_same(
    gate: Gate, mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, sql in zip(NAMES, [IN.format("a"), "SELECT g, count(*) AS n FROM people GROUP BY g"], strict=False):
        enlist(gate, name, sql, 10)
    asked = queries(gate)
    alone = {name: settled(gate, of(asked, name)) for name in ("ann", "bob")}
    with monkeypatch.context() as patch:
        patch.setattr(bills, "cells_of", lambda *_, **__: None)
        found = settled(gate, asked, mechanism=mechanism)
    assert covers([cost for name in ("ann", "bob") for cost in share(found, name)], released(found))
    assert covers(share(alone["bob"], "bob"), share(found, "bob"))
    if mechanism == "waterfilling":
        assert covers(share(alone["ann"], "ann"), share(found, "ann"))


def test_a_round_of_shares_that_do_not_cover_it_is_never_made(gate: Gate) -> None:
    enlist(gate, "ann", IN.format("a"), 10)
    enlist(gate, "bob", IN.format("a"), 10)
    found = settled(gate, queries(gate)).deal
    with pytest.raises(AssertionError, match="must cover"):
        payment.Deal(
            mechanism="waterfilling", together=found.together, paid={}, gains={}, shares={"ann": found.shares["ann"]}
        )


def test_the_price_of_a_round_is_within_the_caps_of_all(gate: Gate) -> None:
    """Shares are not charged to the population, and what is released is not charged to accounts besides."""
    enlist(gate, "ann", "SELECT g, count(*) AS n FROM people GROUP BY g", 10)
    enlist(gate, "bob", "SELECT g, count(*) AS n FROM people GROUP BY g", 10)
    result = gate.session("bob").execute("SELECT * FROM noisegate.release('r')")
    assert rho_of(gate.ledger.spent("default")) == result.cost
    assert sum(gate.ledger.account_spent("default", name) for name in NAMES) >= gate.ledger.spent("default")
    assert sum(gate.ledger.account_spent("default", name) for name in NAMES) <= gate.ledger.spent("default") + 8
