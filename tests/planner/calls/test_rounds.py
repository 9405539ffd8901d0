"""Rounds: everything enlisted is released at once, every target is met, and nobody pays more than alone."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mechanisms.gaussian.known import Known
from planner.basics.errors import (
    BadValue,
    BudgetExceeded,
    Forbidden,
    Refusal,
    UnknownColumn,
    UnknownFunction,
    Unsupported,
)
from planner.calls.rounds import axes, payment, roster, rounds, solve
from planner.calls.rounds.offer import RELEASED
from planner.calls.rounds.payment import MECHANISMS, water_levels
from planner.calls.rounds.rounds import Terms
from planner.cells.bills import covers
from planner.cells.costs import rho_of
from planner.cells.workspace import Floats
from planner.gate import Gate
from planner.ledger.accounts import joint_account
from planner.ledger.kinds import Kind
from planner.session import Session
from tests.planner.gates import open_gate

pytestmark = pytest.mark.slow  # whole rounds through a gate

ROWS = """SELECT ['n', 's', 'w'][1 + i % 3] AS region, CASE WHEN i % 7 < 3 THEN 'F' ELSE 'M' END AS sex,
    (i * 37 % 60)::INTEGER AS age, (i % 11)::INTEGER AS income FROM range(4000) AS r(i)"""
COLUMNS = """region = { values = ["n", "s", "w"] }
sex = { values = ["F", "M"] }
age = { type = "integer", min = 0, max = 59 }
income = { type = "integer", min = 0, max = 10, role = "measure" }"""
ANALYSTS = """[analysts.ann]
share = 0.5
[analysts.bob]
share = 0.3
[analysts.eve]
"""
BY_REGION = "SELECT region, count(*) AS n FROM people GROUP BY region"
BY_AGE = "SELECT age / 10 AS decade, sex, count(*) AS n FROM people GROUP BY 1, 2"
YOUNG = "SELECT count(*) AS n FROM people WHERE age < 25"

Open = Callable[..., Gate]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Return a function that opens a gate, each time with a new ledger unless it is told which."""
    gates: list[Gate] = []

    def make(**options: Any) -> Gate:
        folder = tmp_path / str(options.pop("folder", len(gates)))
        gates.append(open_gate(folder, ROWS, columns=COLUMNS, rest=options.pop("rest", ANALYSTS), **options))
        return gates[-1]

    yield make
    for gate in gates:
        gate.close()


def enlist(session: Session, sql: str, error: float, *, name: str = "q3") -> int:
    found = session.execute(f"SELECT * FROM noisegate.enlist('{name}', $${sql}$$, error => {error})")
    assert not found.cost
    return int(found.rows[0][1])


def release(session: Session, rest: str = "", *, name: str = "q3") -> Any:
    return session.execute(f"SELECT * FROM noisegate.release('{name}'{rest})")


def spent(gate: Gate) -> Fraction:
    return rho_of(gate.ledger.spent("default"))


def accounts(gate: Gate) -> dict[str, Fraction]:
    return {name: rho_of(gate.ledger.account_spent("default", name)) for name in gate.policy.analysts}


def half_widths(session: Session, sql: str, error: float) -> list[float]:
    """Return the half-widths that the plain SELECT states, after checking that it is free."""
    session.execute(f"SET noisegate.error = {error}")
    found = session.execute(sql)
    assert not found.cost
    assert found.plan is not None
    assert found.plan.path == "free"
    return [(high - low) / 2 for row in found.intervals for pair in row if pair for low, high in [pair]]


# --- enlisting ---------------------------------------------------------------------------------------------


def test_enlisting_spends_nothing_and_is_seen_by_everyone(opened: Open) -> None:
    gate = opened()
    enlist(gate.session("ann"), BY_REGION, 20)
    enlist(gate.session("bob"), BY_AGE, 30)
    rows = gate.session("eve").execute("SELECT query, analyst, sql, error, state FROM noisegate.rounds").rows
    assert rows == [(1, "ann", BY_REGION, "20", "open"), (2, "bob", BY_AGE, "30", "open")]
    assert spent(gate) == 0


def test_what_is_enlisted_survives_a_restart(opened: Open) -> None:
    gate = opened(folder="same")
    enlist(gate.session("ann"), BY_REGION, 20)
    again = Gate.open(gate.policy.path)
    try:
        assert [entry.sql for entry in roster.entries(again.ledger, "q3")] == [BY_REGION]
    finally:
        again.close()


def test_a_select_of_the_call_alone_is_the_call_in_from(opened: Open) -> None:
    session = opened().session("ann")
    first = session.execute(f"SELECT noisegate.enlist('q3', $${BY_REGION}$$, error => 20)")
    second = session.execute(f"SELECT * FROM noisegate.enlist('q3', $${BY_REGION}$$, error => 20)")
    assert first.rows == second.rows
    assert [column.name for column in first.columns] == list(rounds.ENLISTED)


def test_a_query_has_the_accuracy_it_was_enlisted_with_last(opened: Open) -> None:
    gate = opened()
    enlist(gate.session("ann"), BY_REGION, 20)
    enlist(gate.session("ann"), BY_REGION, 40)
    enlist(gate.session("bob"), BY_REGION, 10)
    assert [(e.analyst, e.wish.error) for e in roster.entries(gate.ledger, "q3")] == [("ann", 40.0), ("bob", 10.0)]


def test_settings_and_importance_say_what_is_not_said(opened: Open) -> None:
    session = opened().session("ann")
    session.execute("SET noisegate.error = 80")
    session.execute("SET noisegate.confidence = 0.9")
    session.execute(f"SELECT noisegate.enlist('q3', $${BY_REGION}$$)")
    session.execute(f"SELECT noisegate.enlist('q3', $${BY_AGE}$$, importance => 4)")
    wishes = [e.wish for e in roster.entries(session.gate.ledger, "q3")]
    assert [(wish.error, wish.confidence) for wish in wishes] == [(80.0, 0.9), (40.0, 0.9)]


WRONG = [
    ("enlist('q3', $$SELECT nope FROM people$$)", UnknownColumn, "nope"),
    ("enlist('q3', $$SELECT * FROM people$$)", Forbidden, "people"),
    ("enlist('q3', $$SELECT count(*) FROM nowhere$$)", Refusal, "nowhere"),
    ("enlist('q3', $$SET noisegate.error = 3$$)", Forbidden, None),
    ("enlist('q3', $$SELECT 1$$)", Unsupported, None),
    ("enlist('', $$SELECT count(*) FROM people$$)", BadValue, "''"),
    ("enlist('q3', $$SELECT count(*) FROM people$$, error => -1)", BadValue, "-1"),
    ("enlist('q3', $$SELECT count(*) FROM people$$, error => 1, importance => 2)", BadValue, "2"),
    ("enlist('q3')", UnknownFunction, None),
    ("release('q4')", BadValue, "'q4'"),
    ("release('q3', mechanism => 'magic')", BadValue, "'magic'"),
    ("release('q3', weights => 'ann: 3')", BadValue, "'ann: 3'"),
    ("withdraw('q3', query => 99)", BadValue, None),
]


@pytest.mark.parametrize(("call", "kind", "piece"), WRONG)
def test_a_wrong_call_is_refused_and_points_at_the_place(
    opened: Open, call: str, kind: type[Refusal], piece: str | None
) -> None:
    gate, sql = opened(), f"SELECT * FROM noisegate.{call}"
    with pytest.raises(kind) as caught:
        gate.session("ann").execute(sql)
    if piece is not None:
        assert caught.value.span is not None
        start, end = caught.value.span
        assert sql[start : end + 1].lstrip("-") == piece.lstrip("-")
    assert caught.value.hint
    assert spent(gate) == 0


def test_describing_a_call_does_nothing(opened: Open) -> None:
    gate = opened()
    columns = gate.session("ann").describe(f"SELECT noisegate.enlist('q3', $${BY_REGION}$$)")
    assert [column.name for column in columns] == list(rounds.ENLISTED)
    gate.session("ann").execute(f"EXPLAIN SELECT noisegate.enlist('q3', $${BY_REGION}$$)")
    assert roster.entries(gate.ledger) == []


def test_each_analyst_withdraws_their_own(opened: Open) -> None:
    gate = opened()
    first, second = enlist(gate.session("ann"), BY_REGION, 20), enlist(gate.session("bob"), BY_AGE, 30)
    with pytest.raises(Forbidden):
        gate.session("ann").execute(f"SELECT noisegate.withdraw('q3', query => {second})")
    assert gate.session("ann").execute("SELECT noisegate.withdraw('q3')").rows == [("q3", first, BY_REGION)]
    assert [e.number for e in roster.entries(gate.ledger, "q3")] == [second]


# --- releasing ---------------------------------------------------------------------------------------------


def test_afterwards_the_plain_selects_are_free_for_everyone(opened: Open) -> None:
    gate = opened()
    enlist(gate.session("ann"), BY_REGION, 20)
    enlist(gate.session("bob"), BY_AGE, 30)
    found = release(gate.session("ann"))
    assert found.cost == spent(gate) > 0
    for analyst in gate.policy.analysts:
        assert max(half_widths(gate.session(analyst), BY_REGION, 20)) <= 20 * (1 + 1e-6)
        assert max(half_widths(gate.session(analyst), BY_AGE, 30)) <= 30 * (1 + 1e-6)
    again = release(gate.session("bob"))
    assert again.rows == found.rows
    assert not again.cost
    assert gate.session("eve").execute("SELECT DISTINCT state FROM noisegate.rounds").rows == [("released",)]
    with pytest.raises(BadValue, match="released already"):
        enlist(gate.session("ann"), YOUNG, 20)


def drawn(source: random.Random) -> str:
    """Return a random query: counts and sums, in groups or not, of all or of some."""
    keys = source.sample(["region", "sex", "age / 10", "age / 20", "CASE WHEN age < 18 THEN 1 ELSE 0 END"], 2)
    keys = keys[: source.randint(0, 2)]
    aggregate = source.choice(["count(*)", "count(*)", "count(*)", "sum(income)", "avg(income)"])
    where = source.choice(["", "", f" WHERE age < {source.randint(5, 55)}", " WHERE sex = 'F'", " WHERE region <> 's'"])
    group = f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""
    return f"SELECT {', '.join([*keys, aggregate])} AS n FROM people{where}{group}"


@pytest.mark.parametrize("seed", range(12))
def test_every_target_of_a_random_round_is_met_for_no_more_than_one_by_one(opened: Open, seed: int) -> None:
    source, gate = random.Random(seed), opened()
    names = list(gate.policy.analysts)
    for _ in range(source.randint(0, 3)):
        before = gate.session(source.choice(names))
        before.execute(f"SET noisegate.error = {source.choice([15, 30, 60])}")
        before.execute(drawn(source))
    asked = [
        (source.choice(names), drawn(source), source.choice([10, 20, 40, 80])) for _ in range(source.randint(1, 6))
    ]
    for name, sql, error in asked:
        enlist(gate.session(name), sql, error)
    entries = roster.entries(gate.ledger, "q3")
    session = gate.session(entries[0].analyst)
    plan = rounds.settle(session, "q3", [rounds.asked(gate, e) for e in entries], Terms())
    assert plan.together.bound is None or plan.together.bound <= float(plan.together.rho) * (1 + 1e-9)
    assert plan.together.rho <= plan.each_alone
    booked = accounts(gate)
    price = session.explain("SELECT noisegate.release('q3')")
    found = release(session)
    assert found.cost == price.rho == plan.together.rho
    for name, paid in plan.deal.paid.items():
        grown = accounts(gate)[name] - booked[name]
        assert grown <= paid + plan.together.rho / 10**5  # cells that paid before may make it less
    for entry, row in zip(entries, found.rows, strict=True):
        widths = half_widths(gate.session(source.choice(names)), entry.sql, entry.wish.error)
        if "avg" not in entry.sql:
            bound = entry.wish.error * (10 if "sum" in entry.sql else 1)
            assert max(widths) <= bound * (1 + 1e-6)
            assert row[4] <= bound * (1 + 1e-6)
            assert max(widths) <= row[4] * (1 + 1e-6)


def test_a_round_pays_only_for_what_is_not_known(opened: Open) -> None:
    fresh, later = opened(), opened()
    later.session("eve").execute("SET noisegate.error = 30")
    session = later.session("eve")
    session.execute("SET noisegate.error = 30")
    session.execute(BY_AGE)
    for gate in (fresh, later):
        enlist(gate.session("ann"), BY_AGE, 20)
        enlist(gate.session("ann"), BY_REGION, 20)
    costs = [release(gate.session("ann")).cost for gate in (fresh, later)]
    assert costs[1] < costs[0]
    enlist(later.session("bob"), "SELECT sex, count(*) FROM people GROUP BY sex", 120, name="known")
    assert not release(later.session("bob"), name="known").cost


def test_what_is_known_is_not_paid_where_there_is_no_room_for_what_tells_it(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = opened()
    session = gate.session("ann")
    session.execute("SET noisegate.error = 20")
    session.execute(BY_AGE)
    monkeypatch.setattr(axes, "MAX_KNOWN", 0)
    enlist(session, BY_AGE, 20)
    assert not release(session).cost
    for name, sql in {"ann": BY_AGE, "bob": BY_REGION}.items():
        enlist(gate.session(name), sql, 20, name="again")
    alone = gate.session("bob").explain(f"{BY_REGION}").rho
    assert alone
    paid = {row[1]: row[6] for row in release(session, name="again").rows}
    assert paid["ann"] == 0


def test_everything_that_can_be_asked_can_be_enlisted(opened: Open) -> None:
    gate = opened()
    queries = [
        "SELECT region, avg(income) AS a FROM people GROUP BY region",
        "SELECT median(age) AS m FROM people",
        "SELECT count(DISTINCT age) AS d FROM people",
        "SELECT region, sex, count(*) AS n FROM people GROUP BY CUBE (region, sex)",
        "SELECT variance(income) AS v FROM people",
    ]
    for sql in queries:
        enlist(gate.session("ann"), sql, 60)
    release(gate.session("ann"))
    for sql in queries:
        half_widths(gate.session("bob"), sql, 60)


@pytest.mark.parametrize("beside", [(), (YOUNG,), (BY_REGION, BY_AGE)])
def test_questions_without_an_answer_to_measure_can_be_enlisted(opened: Open, beside: tuple[str, ...]) -> None:
    gate = opened()
    queries = [
        "SELECT region, count(*) AS n FROM people WHERE false GROUP BY region",
        "SELECT sum(income) AS s FROM people WHERE age < 5 AND age > 10",
        "SELECT age AS k, avg(income) AS a FROM people WHERE age < 5 AND age > 10 GROUP BY ROLLUP (age)",
        *beside,
    ]
    for sql in queries:
        assert gate.session("ann").explain(sql).lines
        enlist(gate.session("ann"), sql, 20)
    price = gate.session("ann").explain("SELECT noisegate.release('q3')")
    assert release(gate.session("ann")).cost == price.rho
    assert bool(price.rho) == bool(beside)
    for sql in queries:
        half_widths(gate.session("bob"), sql, 20)


def released_and_free(gate: Gate, queries: list[str]) -> None:
    """Release queries as a round; then each is free at its error."""
    for sql in queries:
        enlist(gate.session(), sql, 20)
    release(gate.session())
    for sql in queries:
        half_widths(gate.session(), sql, 20)


def test_a_round_whose_blocks_fit_on_no_chart_of_a_question_is_planned_otherwise(tmp_path: Path) -> None:
    select = """SELECT ['n', 's', NULL][1 + i % 3] AS region, (i * 37 % 60)::INTEGER AS age, i % 3 = 0 AS flag,
        (i % 11)::INTEGER AS income, (i % 17) / 4.0 AS score FROM range(900) AS r(i)"""
    columns = """region = { values = ["n", "s", "w"], nullable = true }
age = { type = "integer", min = 0, max = 59 }
flag = { type = "boolean" }
income = { type = "integer", min = -3, max = 7, nullable = true }
score = { type = "float", min = 0, max = 4, step = 0.25, role = "measure" }"""
    queries = [
        "SELECT sum(score) AS a, sum(CASE WHEN age < 30 THEN 1 ELSE 0 END) AS b, sum(2 * income) AS c "
        "FROM people WHERE region = 'n'",
        "SELECT sum(income) FILTER (WHERE income > 0) AS a FROM people",
        "SELECT age / 20 AS k, avg(CASE WHEN flag THEN score END) AS a FROM people GROUP BY 1",
        "SELECT age AS k, count(*) AS n, sum(score) AS a FROM people WHERE region IS NULL GROUP BY 1",
    ]
    with closing(open_gate(tmp_path, select, columns=columns)) as gate:
        released_and_free(gate, queries)


def test_a_question_on_all_values_of_a_summed_column_can_be_enlisted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(solve, "common_problem", lambda *_: None)  # as in rounds that are too large for it
    select = "SELECT (i % 60)::INTEGER AS age, (i % 40)::INTEGER AS x, i % 3 = 0 AS flag FROM range(900) AS r(i)"
    columns = """age = { type = "integer", min = 0, max = 59 }
x = { type = "integer", min = 0, max = 39 }
flag = { type = "boolean" }"""
    queries = [
        "SELECT sum(x) AS s, sum(age) AS t FROM people WHERE age > x",
        "SELECT flag, count(*) AS n FROM people GROUP BY 1",
    ]
    with closing(open_gate(tmp_path, select, columns=columns)) as gate:
        released_and_free(gate, queries)


def test_large_marginals_share_what_they_have_in_common(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(6)]
    values = "[" + ", ".join(f"'{v}'" for v in "abcdefgh") + "]"
    made = ", ".join(f"{values}[1 + (i * {i + 3}) % 8] AS {n}" for i, n in enumerate(names))
    select = f"SELECT {made} FROM range(2000) r(i)"
    columns = "\n".join(f'{name} = {{ values = ["a", "b", "c", "d", "e", "f", "g", "h"] }}' for name in names)
    gate = open_gate(tmp_path, select, columns=columns)
    try:
        session = gate.session()
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        queries = [f"SELECT {a}, {b}, count(*) AS n FROM people GROUP BY 1, 2" for a, b in pairs]
        queries.append("SELECT c0, c1, c2, c3, count(*) AS n FROM people GROUP BY 1, 2, 3, 4")
        for sql in queries:
            enlist(session, sql, 50)
        price = session.explain("SELECT noisegate.release('q3')")
        assert price.path == "marginals"
        assert any("certified" in line for line in price.lines)
        found = release(session)
        assert found.cost * Fraction(13, 10) < sum(Fraction(row[5]) for row in found.rows)
        for sql in (*source_of(queries), queries[-1]):
            assert max(half_widths(session, sql, 50)) <= 50 * (1 + 1e-6)
    finally:
        gate.close()


def source_of(queries: list[str]) -> list[str]:
    return random.Random(5).sample(queries, 5)


def test_tables_with_the_same_columns_are_told_apart(opened: Open) -> None:
    other = f'[tables.others]\nsource = "people.parquet"\n[tables.others.columns]\n{COLUMNS}\n'
    session = opened(rest=other + ANALYSTS).session("ann")
    for table, error in (("people", 5), ("others", 80)):
        for sql in (BY_REGION, YOUNG):
            enlist(session, sql.replace("people", table), error)
    told = [(asked, error) for _, _, _, asked, error, *_ in release(session).rows]
    assert [asked for asked, _ in told] == [5, 5, 80, 80]
    assert all(asked / 2 <= error <= asked * (1 + 1e-6) for asked, error in told)


def test_a_refreshed_table_opens_its_rounds_again(opened: Open) -> None:
    gate = opened()
    session = gate.session("ann")
    enlist(session, BY_REGION, 20)
    first = release(session)
    gate.refresh("people")
    enlist(session, YOUNG, 20)
    second = release(session)
    assert second.cost > 0
    assert len(second.rows) == len(first.rows) + 1
    assert spent(gate) == first.cost + second.cost


# --- who pays ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("rho", [None, 0.001])
def test_nobody_but_who_releases_pays_more_than_alone(opened: Open, mechanism: str, rho: float | None) -> None:
    gate = opened()
    asked = {"ann": BY_REGION, "bob": BY_AGE, "eve": YOUNG}
    for name, sql in asked.items():
        enlist(gate.session(name), sql, 30)
    alone = {}
    for name, sql in asked.items():
        session = gate.session(name)
        session.execute("SET noisegate.error = 30")
        alone[name] = session.explain(sql).rho
    found = release(gate.session("bob"), f", mechanism => '{mechanism}'" + (f", rho => {rho}" if rho else ""))
    paid = accounts(gate)
    for name in ("ann", "eve"):
        assert paid[name] <= alone[name] * (1 + Fraction(1, 10**5))
    assert sum(paid.values()) >= found.cost == spent(gate)
    if rho is not None:
        assert Fraction(rho) * Fraction(8, 10) <= found.cost <= Fraction(rho)
    else:
        for name, sql in asked.items():
            assert max(half_widths(gate.session(name), sql, 30)) <= 30 * (1 + 1e-6)


def test_a_given_rho_scales_all_errors_alike(opened: Open) -> None:
    gate = opened()
    session = gate.session("ann")
    enlist(session, BY_REGION, 10)
    enlist(session, BY_AGE, 20)
    whole = session.explain("SELECT noisegate.release('q3')").rho
    found = release(session, f", rho => {float(whole) / 4}")
    assert whole / 4 * Fraction(95, 100) <= found.cost <= whole / 4
    factors = [row[4] / row[3] for row in found.rows]
    assert max(factors) == pytest.approx(2, rel=0.03)
    assert max(half_widths(session, BY_REGION, 10 * max(factors) * 1.001)) <= 10 * max(factors) * 1.001


def test_savings_are_poured_out_by_weight() -> None:
    limits = {"ann": Fraction(4), "bob": Fraction(1), "eve": Fraction(0)}
    weights = {"ann": Fraction(1), "bob": Fraction(1), "eve": Fraction(5)}
    assert water_levels(Fraction(3), limits, weights) == {"ann": 2, "bob": 1, "eve": 0}
    assert water_levels(Fraction(9), limits, weights) == limits
    assert water_levels(Fraction(-1), limits, weights) == dict.fromkeys(limits, 0)


def test_weights_say_who_gains(opened: Open) -> None:
    paid = []
    for weights in ("ann = 9, bob = 1", "ann = 1, bob = 9"):
        gate = opened()
        enlist(gate.session("ann"), BY_AGE, 30)
        enlist(gate.session("bob"), BY_AGE.replace("sex", "region"), 30)
        release(gate.session("ann"), f", weights => '{weights}'")
        paid.append(accounts(gate))
    assert paid[0]["ann"] < paid[1]["ann"]
    assert paid[0]["bob"] > paid[1]["bob"]


def test_only_those_who_take_part_release_a_round(opened: Open) -> None:
    gate = opened()
    enlist(gate.session("ann"), BY_REGION, 20)
    with pytest.raises(Forbidden):
        release(gate.session("bob"))
    with pytest.raises(BadValue, match="takes no part"):
        release(gate.session("ann"), ", weights => 'ann = 1, bob = 2'")


def test_a_round_beyond_somebodys_account_is_refused_and_charges_nothing(opened: Open) -> None:
    gate = opened(epsilon=0.4)
    enlist(gate.session("ann"), YOUNG, 500)
    enlist(gate.session("eve"), BY_AGE, 30)
    with pytest.raises(BudgetExceeded, match="account of eve"):
        release(gate.session("ann"))
    assert spent(gate) == 0
    assert gate.ledger.releases() == []


def test_the_shares_of_analysts_stand_beside_what_was_released(opened: Open) -> None:
    gate = opened()
    enlist(gate.session("ann"), BY_REGION, 20)
    enlist(gate.session("bob"), BY_AGE, 20)
    release(gate.session("ann"))
    *found, record = gate.ledger.releases()
    shares = [each for each in found if each.kind == Kind.SHARE]
    assert {each.analyst for each in shares} == {"ann", "bob"}
    assert not any(each.body for each in shares)
    told = [each for each in found if each.kind != Kind.SHARE]
    assert {each.analyst for each in told} == {joint_account(["ann", "bob"])}
    assert covers([each.cost for each in shares], [each.cost for each in told])
    assert (record.kind, record.cost.highest) == ("round", 0)
    session = gate.session("ann")
    assert session.execute("SELECT analyst FROM noisegate.releases WHERE id = 1").rows == [("ann, bob",)]
    asked = session.execute("SELECT analyst, releases, rho FROM noisegate.queries ORDER BY first_release").rows
    assert [row[:2] for row in asked] == [("ann, bob", len(told)), ("ann", 1)]


# --- once, and wholly --------------------------------------------------------------------------------------


def test_of_two_who_release_at_once_one_pays(opened: Open) -> None:
    gate = opened(folder="same")
    other = Gate.open(gate.policy.path)
    try:
        enlist(gate.session("ann"), BY_REGION, 20)
        enlist(other.session("bob"), BY_AGE, 20)
        both, results = threading.Barrier(2), list[Any]()

        def run(session: Session) -> None:
            def step(text: str) -> None:
                if text == "charging":
                    both.wait(timeout=30)

            results.append(session.execute("SELECT * FROM noisegate.release('q3')", on_step=step))

        threads = [threading.Thread(target=run, args=(each,)) for each in (gate.session("ann"), other.session("bob"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(bool(result.cost) for result in results) == [False, True]
        assert results[0].rows == results[1].rows
        assert [release.kind for release in gate.ledger.releases()].count("round") == 1
        assert spent(gate) == max(result.cost for result in results)
    finally:
        other.close()


def test_a_gate_plans_one_round_at_a_time(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, original, inside, most = opened(), payment.deal, list[int](), list[int]()
    enlist(gate.session("ann"), BY_REGION, 20)

    def deal(*arguments: Any, **options: Any) -> Any:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.05)
        found = original(*arguments, **options)
        inside.pop()
        return found

    monkeypatch.setattr(payment, "deal", deal)
    explain = "EXPLAIN SELECT * FROM noisegate.release('q3')"
    threads = [threading.Thread(target=gate.session("ann").execute, args=(explain,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 4


def test_a_round_that_changes_while_it_is_planned_is_not_released(opened: Open) -> None:
    gate = opened()
    enlist(gate.session("ann"), BY_REGION, 20)

    def step(text: str) -> None:
        if text == "measuring":
            enlist(gate.session("bob"), BY_AGE, 20)

    with pytest.raises(BadValue, match="changed while it was planned"):
        gate.session("ann").execute("SELECT * FROM noisegate.release('q3')", on_step=step)
    assert gate.ledger.releases() == []
    assert spent(gate) == 0


KILLED = """
import os, signal, sys
from planner.gate import Gate
session = Gate.open(sys.argv[1]).session("ann")
def step(text):
    if text == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
session.execute("SELECT * FROM noisegate.release('q3')", on_step=step)
"""


@pytest.mark.parametrize(("moment", "stored"), [("charging", 0), ("answering", 1)])
def test_a_killed_release_happened_wholly_or_not_at_all(opened: Open, moment: str, stored: int) -> None:
    gate = opened()
    enlist(gate.session("ann"), BY_REGION, 20)
    enlist(gate.session("bob"), BY_AGE, 20)
    ended = subprocess.run([sys.executable, "-c", KILLED, str(gate.policy.path), moment], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert [release.kind for release in gate.ledger.releases()].count("round") == stored
    assert bool(spent(gate)) == bool(stored)
    assert bool(release(gate.session("ann")).cost) != bool(stored)


# --- shares that move --------------------------------------------------------------------------------------


def test_a_moved_share_counts_at_once_and_never_raises_the_total(opened: Open) -> None:
    gate = opened(folder="same", epsilon=1.0)
    running = Gate.open(gate.policy.path)
    try:
        before = running.session("eve").execute("SELECT sum(rho_total) FROM noisegate.accounts").rows
        gate.move("0.2", source="ann", target="eve")
        rows = running.session("eve").execute("SELECT analyst, share FROM noisegate.accounts ORDER BY 1").rows
        assert [(name, round(share, 9)) for name, share in rows] == [("ann", 0.3), ("bob", 0.3), ("eve", 0.4)]
        after = running.session("eve").execute("SELECT sum(rho_total) FROM noisegate.accounts").rows
        assert after[0][0] == pytest.approx(before[0][0])
        session = running.session("eve")
        session.execute(f"SET noisegate.rho = {float(running.cap) * 0.35}")
        assert session.execute(YOUNG).cost  # more than the policy gives to eve
        with pytest.raises(BudgetExceeded, match=r"the account of eve has 0\.05 left"):
            gate.move("0.1", source="eve", target="bob")
        gate.move("0.05", source="eve", target="bob")
        with pytest.raises(BudgetExceeded):
            session.execute(BY_REGION)
    finally:
        running.close()


@pytest.mark.parametrize(
    ("share", "source", "target"),
    [("0", "ann", "bob"), ("x", "ann", "bob"), ("0.6", "ann", "bob"), ("0.1", "ann", "ann"), ("0.1", "ann", "zoe")],
)
def test_what_is_no_share_is_not_moved(opened: Open, share: str, source: str, target: str) -> None:
    gate = opened()
    with pytest.raises(Refusal):
        gate.move(share, source=source, target=target)
    assert gate.ledger.moved() == {}


# --- nobody pays for what they did not ask -----------------------------------------------------------------


def test_a_bill_is_not_shared_across_populations(opened: Open) -> None:
    staff = '[tables.staff]\nsource = "people.parquet"\npopulation = "staff"\n[tables.staff.columns]\n' + COLUMNS
    gate = opened(rest=f"{ANALYSTS}{staff}\n")
    enlist(gate.session("ann"), BY_REGION, 20)
    enlist(gate.session("bob"), BY_REGION.replace("people", "staff"), 20)
    with pytest.raises(Unsupported, match="several populations"):
        release(gate.session("ann"))
    assert (spent(gate), gate.ledger.spent("staff")) == (0, 0)


def test_who_withdraws_after_a_release_is_not_asked_to_pay_after_a_refresh(opened: Open) -> None:
    gate = opened()
    enlist(gate.session("ann"), BY_REGION, 20)
    enlist(gate.session("bob"), BY_AGE, 30)
    release(gate.session("ann"))
    before = accounts(gate)
    gate.session("bob").execute("SELECT noisegate.withdraw('q3')")
    gate.refresh("people")
    release(gate.session("ann"))
    assert accounts(gate)["bob"] == before["bob"]
    assert accounts(gate)["ann"] > before["ann"]


def test_a_round_of_somebody_who_left_is_refused_in_words(opened: Open) -> None:
    gate = opened(folder="same")
    enlist(gate.session("eve"), BY_REGION, 20)
    enlist(gate.session("ann"), BY_AGE, 20)
    text = gate.policy.path.read_text(encoding="utf-8")
    gate.policy.path.write_text(text.replace("[analysts.eve]\n", ""), encoding="utf-8")
    with closing(Gate.open(gate.policy.path)) as again, pytest.raises(Forbidden, match="no analyst any more"):
        release(again.session("ann"))


@pytest.mark.parametrize("weight", ["9" * 5000, "9" * 400])
def test_weights_are_short_numbers(opened: Open, weight: str) -> None:
    gate = opened()
    enlist(gate.session("ann"), BY_REGION, 20)
    with pytest.raises(BadValue, match="weights must be positive numbers"):
        release(gate.session("ann"), f", weights => 'ann = {weight}'")


@pytest.mark.parametrize(
    ("sql", "rest", "asked"),
    [
        ("SELECT sum(income) AS s FROM people", "sum_error => 900", 900.0),
        ("SELECT count(*) AS n, sum(income) AS s FROM people", "error => 30", 30.0),
        ("SELECT sum(income) AS s FROM people", "error => 30", 300.0),
    ],
)
def test_what_was_asked_and_what_there_is_are_in_the_same_unit(opened: Open, sql: str, rest: str, asked: float) -> None:
    session = opened().session("ann")
    session.execute(f"SELECT noisegate.enlist('q3', $${sql}$$, {rest})")
    (row,) = release(session).rows
    told = dict(zip(RELEASED, row, strict=True))
    assert told["asked"] == pytest.approx(asked) or told["asked"] == pytest.approx(10 * asked)
    assert 0.5 * told["asked"] < told["error"] <= told["asked"] * (1 + 1e-9)


# --- many columns ------------------------------------------------------------------------------------------

REPORT = [
    ("ann", "SELECT count(*) AS n FROM adult", 20),
    ("ann", "SELECT sex, count(*) AS n FROM adult GROUP BY 1", 40),
    ("ann", "SELECT race, sex, count(*) AS n FROM adult GROUP BY 1, 2", 60),
    ("ann", "SELECT education, sex, count(*) AS n FROM adult WHERE age >= 30 GROUP BY 1, 2", 70),
    ("ann", "SELECT age / 10, sex, count(*) AS n FROM adult GROUP BY 1, 2", 70),
    ("bob", "SELECT workclass, sex, count(*) AS n FROM adult WHERE hours > 40 GROUP BY 1, 2", 70),
    ("bob", "SELECT count(*) AS n FROM adult WHERE education = 'Doctorate'", 40),
    ("bob", "SELECT marital_status, avg(hours) AS n FROM adult WHERE age < 40 GROUP BY 1", 80),
]


@pytest.mark.parametrize("asked_before", [[], REPORT[2:3], [REPORT[3], ("bob", "SELECT count(*) FROM adult", 30)]])
def test_a_report_over_many_columns_is_one_problem_with_a_certificate(
    adult_policy: Path, asked_before: list[tuple[str, str, int]]
) -> None:
    """Seven columns with 201,600 cells: no chart holds them, and yet the plan is within 3 % of the least.

    It is that plan which is released if the analysts choose the mechanism that spends least.
    """
    with closing(Gate.open(adult_policy)) as gate:
        for name, sql, error in asked_before:
            session = gate.session(name)
            session.execute(f"SET noisegate.error = {error}")
            assert session.execute(sql).cost
        for name, sql, error in REPORT:
            enlist(gate.session(name), sql, error)
        entries = [rounds.asked(gate, entry) for entry in roster.entries(gate.ledger, "q3")]
        plan = rounds.settle(gate.session("ann"), "q3", entries, Terms("utilitarian"))
        assert plan.together.bound is not None
        assert plan.together.bound <= float(plan.together.rho) <= plan.together.bound * 1.03
        assert plan.together.rho < plan.each_alone
        found = release(gate.session("ann"), ", mechanism => 'utilitarian'")
        assert found.cost == plan.together.rho
        assert all(error is None or error <= asked * (1 + 1e-6) for _, _, _, asked, error, *_ in found.rows)
        for name, sql, error in REPORT:
            session = gate.session("bob" if name == "ann" else "ann")
            session.execute(f"SET noisegate.error = {error}")
            assert not session.execute(sql).cost


def filtered(count: int) -> list[tuple[str, int]]:
    """Return queries whose filters tell all levels of education and most ages apart: nothing can be swapped."""
    source, levels = random.Random(5), [str(number) for number in range(1, 17)]
    found = []
    for i in range(count):
        some = ", ".join(level for place, level in enumerate(levels) if place >> i % 4 & 1)
        low = 20 + 5 * i
        found.append((f"SELECT age / 10, sex, count(*) FROM adult WHERE education_num IN ({some}) GROUP BY 1, 2", 50))
        rest = source.choice(["hours >= 35", "hours >= 50", "hours >= 50 AND sex = 'Male'"])
        where = f"WHERE age BETWEEN {low} AND {low + source.choice([9, 19, 24])} AND {rest}"
        found.append((f"SELECT education_num, count(*) FROM adult {where} GROUP BY 1", 30))
    return found


def settled(gate: Gate, name: str = "q3") -> Any:
    asked = [rounds.asked(gate, entry) for entry in roster.entries(gate.ledger, name)]
    return rounds.settle(gate.session("ann"), name, asked, Terms()).together


@pytest.mark.parametrize("asked_before", [[], [("SELECT education_num, sex, count(*) FROM adult GROUP BY 1, 2", 60)]])
def test_filters_that_leave_nothing_to_swap_are_one_problem_with_a_certificate(
    adult_policy: Path, monkeypatch: pytest.MonkeyPatch, asked_before: list[tuple[str, int]]
) -> None:
    with closing(Gate.open(adult_policy)) as gate:
        session = gate.session("ann")
        for sql, error in asked_before:
            session.execute(f"SET noisegate.error = {error}")
            assert session.execute(sql).cost
        for sql, error in filtered(6):
            enlist(session, sql, error)
        plan = settled(gate)
        assert plan.bound <= float(plan.rho) <= plan.bound * 1.02
        with monkeypatch.context() as limits:
            limits.setattr(axes, "MAX_ROUND_WORK", 2**16)
            apart = settled(gate)
        assert plan.rho < apart.rho
        assert apart.bound is None or apart.bound <= float(plan.rho)
        found = release(session)
        assert found.cost == plan.rho
        assert all(error <= asked * (1 + 1e-6) for _, _, _, asked, error, *_ in found.rows)
        for sql, error in filtered(6):
            assert max(half_widths(gate.session("bob"), sql, error)) <= error * (1 + 1e-6)


def test_what_a_round_will_have_told_is_worked_out_once_for_all_questions(
    adult_policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[int] = []
    original = Known.with_rows

    def counted(self: Known, B: Floats, y: Floats) -> Known:
        added.append(len(B))
        return original(self, B, y)

    with closing(Gate.open(adult_policy)) as gate:
        for sql, error in filtered(4):
            enlist(gate.session("ann"), sql, error)
        monkeypatch.setattr(Known, "with_rows", counted)
        rows = sum(len(task.measurement.K) for task in settled(gate).tasks)
    assert 0 < sum(added) < 2 * rows


def test_a_thousand_answers_on_a_thousand_cells_are_one_problem_with_a_certificate(adult_policy: Path) -> None:
    with closing(Gate.open(adult_policy)) as gate:
        for rest in ("hours >= 35", "hours >= 50", "sex = 'Male'", "sex = 'Male' AND hours >= 35"):
            sql = f"SELECT age / 5, education_num, count(*) FROM adult WHERE {rest} GROUP BY 1, 2"
            enlist(gate.session("ann"), sql, 80)
        for sql, error in filtered(6):
            enlist(gate.session("ann"), sql, error)
        plan = settled(gate)
        assert plan.bound <= float(plan.rho) <= plan.bound * 1.02


def test_what_a_block_is_charged_does_not_depend_on_columns_that_do_not_matter(adult_policy: Path) -> None:
    with closing(Gate.open(adult_policy)) as gate:
        for name, sql, error in REPORT[1:4]:
            enlist(gate.session(name), sql, error)
        release(gate.session("ann"))
        scopes = {column.split("#")[0] for each in gate.ledger.releases() for column in each.cost.scope}
        assert scopes <= {"age"}
