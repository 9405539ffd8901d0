"""Who moves between refreshes pays in a cell of each version: nobody pays more than is booked, however they move."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.basics.errors import BudgetExceeded
from planner.cells.costs import PARTS, Cost, Spending, constant, rho_of
from planner.curator import archive
from planner.curator.relocation import relocate
from planner.gate import Gate
from planner.ledger.accounts import Caps, Charge, Draft, View, joint_account, payers, total
from planner.ledger.ledger import Ledger
from planner.policy.ledger import Remote
from tests.planner.gates import open_gate
from tests.planner.ledger_worker import remote
from tests.proxy.postgres import Postgres, running

PLENTY = 2**60
AGES, SEXES = 3, 2
CELLS = list(itertools.product(range(AGES), range(SEXES)))
TABLES = ("people", "visits")
ANALYSTS = ("ann", "bob", joint_account({"ann": PARTS // 4, "bob": 3 * PARTS // 4}))


def on_cells(values: list[int]) -> Cost:
    """Return the cost that charges each pair of an age and a sex its own."""
    return Cost(("age#1", "sex#1"), (np.arange(AGES), np.arange(SEXES)), np.array(values).reshape(AGES, SEXES))


def aged(age: int, units: int) -> Cost:
    return Cost(("age#1",), (np.arange(AGES),), np.eye(AGES, dtype=int)[age] * units)


def dearest_life(charges: list[Charge], analyst: str | None = None) -> int:
    """Return what anybody can have paid, by trying every cell in every version of every table; or to one account."""
    paid: defaultdict[tuple[str, int], dict[tuple[int, int], int]] = defaultdict(lambda: dict.fromkeys(CELLS, 0))
    for charge in charges:
        part = PARTS if analyst is None else payers(charge.analyst).get(analyst, 0)
        for cell in CELLS:
            units = int(charge.cost.values[cell])
            paid[charge.table, charge.version][cell] += -(-units * part // PARTS)
    return sum(max(cells.values()) for cells in paid.values())


COSTS = st.lists(st.integers(0, 9), min_size=len(CELLS), max_size=len(CELLS)).map(on_cells)
STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from(TABLES), st.sampled_from(ANALYSTS), COSTS), max_size=25)
"""A stream of questions, each perhaps after a refresh of its table."""


def stream(steps: list[tuple[bool, str, str, Cost]]) -> list[Charge]:
    version, found = dict.fromkeys(TABLES, 1), []
    for is_refreshed, table, analyst, cost in steps:
        version[table] += is_refreshed
        found.append(Charge(population="everyone", table=table, version=version[table], cost=cost, analyst=analyst))
    return found


@given(steps=STEPS, cut=st.integers(0, 25))
def test_a_view_is_the_dearest_life_over_all_versions(steps: list[tuple[bool, str, str, Cost]], cut: int) -> None:
    charges = stream(steps)
    at_once = View(0, "").charged(charges, analyst="")
    in_two = View(0, "").charged(charges[:cut], analyst="").charged(charges[cut:], analyst="")
    one_by_one = View(0, "")
    for charge in charges:
        one_by_one = one_by_one.charged([charge], analyst="")
    for view in (at_once, in_two, one_by_one):
        assert view.spent("everyone") == dearest_life(charges)
        for analyst in ("ann", "bob"):
            assert view.account_spent("everyone", analyst) == dearest_life(charges, analyst)
    assert total(charges) == rho_of(dearest_life(charges))


def test_a_charge_on_a_version_that_is_over_shares_no_cells() -> None:
    """No ledger books one; whoever makes one by hand still finds nobody's payments left out."""
    costs = [(1, aged(0, 5)), (2, aged(1, 7)), (1, aged(1, 3))]
    view = View(0, "").charged(
        [Charge(population="everyone", table="people", version=version, cost=cost) for version, cost in costs],
        analyst="ann",
    )
    assert view.spent("everyone") == 5 + 7 + 3


def test_versions_that_are_over_are_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View(0, "")
    for version in range(1, 200):
        view = view.charged(
            [Charge(population="everyone", table="people", version=version, cost=aged(version % AGES, 2))],
            analyst="ann",
        )
    sought = []
    plain = Spending.dearest.func  # type: ignore[attr-defined]
    monkeypatch.setattr(Spending, "dearest", property(lambda own: (sought.append(own), plain(own))[1]))
    after = view.charged([Charge(population="everyone", table="people", version=199, cost=aged(0, 2))], analyst="ann")
    assert after.spent("everyone") == 2 * 199 + 2 * (199 % AGES == 0)
    assert len(sought) == 1


# --- the ledger --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running(durable=True) as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path | Remote:
    if request.param == "sqlite":
        return tmp_path / "ledger.sqlite"
    return remote(request.getfixturevalue("server"), tmp_path)


def draft(key: str, version: int, cost: Cost, *, analyst: str = "ann", table: str = "people") -> Draft:
    return Draft(
        key=key,
        question="question",
        population="everyone",
        table=table,
        version=version,
        analyst=analyst,
        sql="SELECT 1",
        kind="linear",
        body=b"answer",
        cost=cost,
    )


def test_who_ages_between_refreshes_is_paid_for_in_every_version(place: Path | Remote) -> None:
    """The same person may be in any cell of each version: 99.99 % of the cap can be charged once only."""
    caps = Caps(100_000, 100_000)
    with Ledger.open(place) as ledger:
        ledger.commit([draft("1", 1, aged(0, 99_990))], caps=caps)
        for number in range(2, 12):
            version = ledger.refresh("people", f"data {number}")
            with pytest.raises(BudgetExceeded):
                ledger.commit([draft(str(number), version, aged(number % AGES, 99_990))], caps=caps)
        assert ledger.spent("everyone") == ledger.account_spent("everyone", "ann") == 99_990
        ledger.commit([draft("12", version, aged(1, 4))], caps=caps)
        ledger.commit([draft("13", version, aged(2, 4))], caps=caps)  # in one version, cells are still shared
        assert ledger.spent("everyone") == 99_994


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, cap=st.integers(5, 60))
def test_a_ledger_charges_what_fits_and_agrees_with_a_brute_force(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[bool, str, str, Cost]], cap: int
) -> None:
    path = tmp_path_factory.mktemp("stream") / "ledger.sqlite"
    stored: list[Charge] = []
    version = dict.fromkeys(TABLES, 1)
    with Ledger.open(path) as ledger, Ledger.open(path) as other:
        for number, (is_refreshed, table, analyst, cost) in enumerate(steps):
            if is_refreshed:
                version[table] = other.refresh(table, f"data {number}")
            charge = Charge(population="everyone", table=table, version=version[table], cost=cost, analyst=analyst)
            [quote] = ledger.quote([charge], analyst="ann", populations=["everyone"])
            assert (quote.spent, quote.after) == (dearest_life(stored), dearest_life([*stored, charge]))
            made = draft(str(number), version[table], cost, analyst=analyst, table=table)
            if quote.after > cap and cost.highest:
                with pytest.raises(BudgetExceeded):
                    ledger.commit([made], caps=Caps(cap, PLENTY))
            else:
                ledger.commit([made], caps=Caps(cap, PLENTY))
                stored.append(charge)
        assert ledger.spent("everyone") == other.spent("everyone") == dearest_life(stored) <= cap
    with Ledger.open(path) as again:
        assert again.spent("everyone") == dearest_life(stored)
        assert again.account_spent("everyone", "bob") == dearest_life(stored, "bob")


def filled(place: Path | Remote) -> None:
    """Make a ledger that has charged 10 and 7 to different cells of two versions, and 3 to another table."""
    with Ledger.open(place) as ledger:
        ledger.commit([draft("1", 1, aged(0, 10))], caps=Caps(PLENTY, PLENTY))
        ledger.commit([draft("2", 1, constant(3), analyst="bob", table="visits")], caps=Caps(PLENTY, PLENTY))
        assert ledger.first_read("people", 1, "these rows") == "these rows"
        version = ledger.refresh("people", "new data")
        ledger.commit([draft("3", version, aged(1, 7), analyst="bob")], caps=Caps(PLENTY, PLENTY))


def spent(ledger: Ledger) -> list[int]:
    return [ledger.spent("everyone"), *(ledger.account_spent("everyone", name) for name in ("ann", "bob"))]


def test_versions_stay_apart_when_a_ledger_is_opened_again_moved_exported_and_imported(
    place: Path | Remote, server: Postgres, tmp_path: Path
) -> None:
    filled(place)
    with Ledger.open(place) as ledger:
        assert spent(ledger) == [20, 10, 10]
        archive.export(ledger, tmp_path / "releases.parquet")
    imported = tmp_path / "imported.sqlite"
    archive.load(imported, tmp_path / "releases.parquet")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    new = folder / "moved.sqlite" if isinstance(place, Remote) else remote(server, folder)
    relocate(place, new)
    for each in (imported, new):
        with Ledger.open(each) as ledger:
            assert spent(ledger) == [20, 10, 10]
    with Ledger.open(new) as ledger:
        assert ledger.first_read("people", 1, "other rows") == "these rows"


def test_a_ledger_from_before_that_stands_above_its_cap_opens_and_charges_nothing_more(tmp_path: Path) -> None:
    """It was filled while versions shared their cells; what it holds is summed rightly now."""
    filled(tmp_path / "ledger.sqlite")
    caps = Caps(11, 11)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.spent("everyone") == 20
        with pytest.raises(BudgetExceeded, match="the budget of everyone is overspent by rho=") as refused:
            ledger.commit([draft("4", 2, aged(2, 1))], caps=caps)
        assert refused.value.hint is not None
        assert "nothing was charged" in refused.value.hint
        assert ledger.commit([draft("3", 2, aged(1, 7))], caps=caps)[0].id == 3  # what is stored is given


# --- the gate ----------------------------------------------------------------------------------------------

COLUMNS = 'age = { type = "integer", min = 0, max = 110 }\n'


def ageing(folder: Path, *, rest: str = "") -> Gate:
    return open_gate(folder, "SELECT 30 AS age FROM range(900)", columns=COLUMNS, epsilon=1.0, rest=rest)


def test_ten_refreshes_at_nearly_the_cap_are_refused_from_the_second_on(tmp_path: Path) -> None:
    gate = ageing(tmp_path)
    session = gate.session()
    nearly = gate.cap * Fraction(9999, 10000)
    session.execute(f"SET noisegate.rho = {float(nearly)}")
    session.execute("SELECT count(*) FROM people WHERE age = 30")
    for age in range(31, 41):
        gate.refresh("people")
        with pytest.raises(BudgetExceeded):
            session.execute(f"SELECT count(*) FROM people WHERE age = {age}")
    assert rho_of(gate.ledger.spent("default")) <= gate.cap
    gate.close()


def test_system_tables_explain_and_results_agree_on_what_versions_cost(tmp_path: Path) -> None:
    gate = ageing(tmp_path)
    session, costs = gate.session(), []
    for age in (30, 31, 32):
        sql = f"SELECT count(*) FROM people WHERE age = {age}"
        [quote] = session.explain(sql).quotes
        result = session.execute(sql)
        costs.append(result.cost)
        assert rho_of(quote.after - quote.spent) == result.cost > 0
        assert session.execute(sql).cost == 0  # in one version, an answer is given again for nothing
        assert gate.ledger.spent("default") == quote.after
        gate.refresh("people")
    expected = float(sum(costs, Fraction(0)))
    for table in ("budget", "accounts"):
        assert session.execute(f"SELECT rho_spent FROM noisegate.{table}").rows == [(expected,)]
    versions = session.execute("SELECT version, sum(rho) FROM noisegate.releases GROUP BY 1 ORDER BY 1").rows
    assert versions == [(number, float(cost)) for number, cost in enumerate(costs, start=1)]
    gate.close()


def test_as_of_an_earlier_version_answers_from_it_and_charges_nothing(tmp_path: Path) -> None:
    gate = ageing(tmp_path)
    session, sql = gate.session(), "SELECT count(*) FROM people WHERE age = 30"
    first = session.execute(sql)
    gate.refresh("people")
    session.execute("SELECT count(*) FROM people WHERE age = 31")
    spent = gate.ledger.spent("default")
    session.execute("SET noisegate.as_of = 1")
    [quote] = session.explain(sql).quotes
    assert (quote.spent, quote.after) == (spent, spent)
    assert (session.execute(sql).rows, gate.ledger.spent("default")) == (first.rows, spent)
    gate.close()
