"""noisegate.choose takes the finest analysis that the data support, and pays for that one and for nothing else.

Planted tables have the same number of people in every cell, so that all cells of an analysis pass or fail together.
Decisions are at least six standard deviations of the noise away from their thresholds: with at most 40 cells in at
most three looks a test fails by chance with probability below 1e-6 (40 * 3 * 1e-9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.basics.errors import (
    BadValue,
    BudgetExceeded,
    Forbidden,
    Refusal,
    SyntaxRefusal,
    TooDear,
    TooLarge,
    UnknownColumn,
    UnknownFunction,
    Unsupported,
    WrongType,
)
from planner.calls import call as functions
from planner.calls.choose.choose import Choice, Considered
from planner.cells.costs import rho_of
from planner.gate import FUNCTIONS, Gate
from planner.history import atlas, recall, union
from planner.session import Session
from planner.sources import measure
from planner.sql import statement
from proxy import dbapi
from tests.planner.gates import open_gate, switch_noise_off

ROWS = """SELECT CASE WHEN i // 100 % 2 = 0 THEN 'F' ELSE 'M' END AS sex, (i % 100)::INTEGER AS age,
    (i % 10)::INTEGER AS income FROM range({n}) AS r(i)"""
COLUMNS = """sex = { values = ["F", "M"] }
age = { type = "integer", min = 0, max = 99 }
income = { type = "integer", min = 0, max = 10, role = "measure" }"""
OTHERS = """[tables.others]
source = "people.parquet"
[tables.others.columns]
sex = { values = ["F", "M"] }
"""
BY_SEX = "SELECT sex, count(*) FROM people GROUP BY sex"
BY_QUARTER = "SELECT sex, age / 25, count(*) FROM people GROUP BY 1, 2"
BY_FIVE = "SELECT sex, age / 5, count(*) FROM people GROUP BY 1, 2"
NESTED = (BY_SEX, BY_QUARTER, BY_FIVE)
"""Read off the finest, a cell by sex has the noise of 20 cells, one by quarter that of 5."""

KINDS = ["linear", "choice", "linear", "choice"]
"""What a choice with one look stores: it, what was known before, the rest, and what was decided."""

RHO = Fraction(1, 1000)
SIGMA = float(1 / (2 * RHO)) ** 0.5


def call(*sqls: str, rest: str = "rho => 0.001, snr => 100") -> str:
    return f"SELECT * FROM noisegate.choose(ARRAY[{', '.join(f'$${sql}$$' for sql in sqls)}], {rest})"


@pytest.fixture
def people(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Return a function that opens a session on so many people, each time with a new ledger."""
    gates: list[Gate] = []

    def opened(n: int, **options: Any) -> Session:
        gates.append(open_gate(tmp_path / str(len(gates)), ROWS.format(n=n), columns=COLUMNS, rest=OTHERS, **options))
        return gates[-1].session()

    yield opened
    for found in gates:
        found.close()


def spent(session: Session) -> Fraction:
    return rho_of(session.gate.ledger.spent("default"))


def chosen(rows: list[tuple[Any, ...]]) -> list[int]:
    return [row[0] for row in rows if row[2]]


def alone(session: Session, sql: str) -> Fraction:
    """Return what a question costs at RHO."""
    session.execute("SET noisegate.rho = 0.001")
    try:
        return session.explain(sql).rho
    finally:
        session.execute("RESET noisegate.rho")


# --- what is taken, and what it costs ----------------------------------------------------------------------

SIZES = {6_400: 1, 20_000: 2, 50_000: 3}
"""How many people there are, and which analysis they support at a ratio of 100: see `margin`."""

FEW = 1_000
"""So many people support none of them."""


def margin(n: int, look: int, *, alone: bool = False) -> float:
    """Return how many standard deviations the estimate of a cell is above its threshold in a look.

    What is looked at has the noise of the finest analysis, what decides that of the next finer one, or its own.
    """
    cell, parts, next_parts = [(n / 2, 20, 4), (n / 8, 5, 5)][look]
    noise, then = SIGMA * parts**0.5, SIGMA * (1 if alone else next_parts) ** 0.5
    return (cell - 100 * then) / noise


def test_the_planted_sizes_are_far_from_the_thresholds() -> None:
    assert margin(FEW, 0, alone=True) < -6
    assert margin(6_400, 0, alone=True) > 6
    assert margin(6_400, 0) < -6
    assert margin(20_000, 0) > 6
    assert margin(20_000, 1) < -6
    assert min(margin(50_000, 0), margin(50_000, 1)) > 6


@pytest.mark.parametrize(("n", "taken"), SIZES.items())
def test_the_finest_analysis_with_enough_signal_is_taken_at_the_price_of_that_one(
    people: Callable[..., Session], n: int, taken: int
) -> None:
    session = people(n)
    price = alone(session, NESTED[taken - 1])
    assert price == pytest.approx(float(RHO), rel=1e-6)
    result = session.execute(call(*NESTED))
    assert chosen(result.rows) == [taken]
    assert float(result.cost) == pytest.approx(float(price), rel=1e-8)
    assert result.cost == spent(session)
    assert result.plan is not None
    assert result.plan.rho == result.cost


@pytest.mark.parametrize(("n", "taken"), SIZES.items())
def test_afterwards_the_plain_select_is_free_and_the_same_choice_too(
    people: Callable[..., Session], n: int, taken: int
) -> None:
    session = people(n)
    first = session.execute(call(*NESTED))
    again = session.execute(call(*NESTED))
    assert (again.cost, again.rows) == (0, first.rows)
    session.execute("SET noisegate.rho = 0.001")
    assert session.execute(NESTED[taken - 1]).cost == 0
    assert session.explain(NESTED[taken - 1]).path == "free"
    assert spent(session) == first.cost


def test_the_rows_tell_what_was_seen_and_paid(people: Callable[..., Session]) -> None:
    session = people(20_000)
    result = session.execute(call(*NESTED))
    assert [column.name for column in result.columns] == [
        "analysis", "sql", "chosen", "rule", "passed", "possible", "good", "gain", "rho", "rest", "why",
    ]  # fmt: skip
    one, two, three = result.rows
    assert one[:8] == (1, BY_SEX, False, "nested", 1.0, 1.0, 1.0, None)
    assert two[:8] == (2, BY_QUARTER, True, "nested", 0.0, 0.0, 1.0, None)
    assert three[:9] == (3, BY_FIVE, False, "nested", None, None, 0.0, None, None)
    assert 0 < one[8] < two[8] == pytest.approx(float(result.cost))
    assert one[9] > two[9] == 0 < three[9]
    assert [row[10] for row in result.rows] == [
        "100% of its groups keep a ratio of 100 in analysis 2",
        "taken: only 0% of its groups keep a ratio of 100 in analysis 3",
        "too fine: analysis 2 would suffer",
    ]


def test_what_is_looked_at_first_is_a_small_part_of_the_price(people: Callable[..., Session]) -> None:
    """All analyses share the counts by sex with the noise of 20 cells: a twentieth of the information."""
    session = people(6_400)
    session.execute(call(*NESTED))
    look, begun, rest, record = session.gate.ledger.releases()
    assert float(rho_of(look.cost.highest)) == pytest.approx(float(RHO) / 20, rel=1e-6)
    assert float(rho_of(rest.cost.highest)) == pytest.approx(float(RHO) * 19 / 20, rel=1e-6)
    assert {(each.kind, each.cost.highest) for each in (begun, record)} == {("choice", 0)}
    assert session.gate.ledger.only_gaussian("default")


def test_a_two_way_choice_is_the_common_mechanism_and_one_residual(people: Callable[..., Session]) -> None:
    session = people(50_000)
    result = session.execute(call(BY_SEX, BY_FIVE))
    assert chosen(result.rows) == [2]
    assert [release.kind for release in session.gate.ledger.releases()] == KINDS
    assert float(result.cost) == pytest.approx(float(RHO), rel=1e-6)


def test_the_order_in_which_analyses_are_given_does_not_matter(people: Callable[..., Session]) -> None:
    result = people(20_000).execute(call(BY_FIVE, BY_SEX, BY_QUARTER))
    assert [row[1] for row in result.rows] == [BY_FIVE, BY_SEX, BY_QUARTER]
    assert chosen(result.rows) == [3]


def test_a_lower_ratio_goes_on_from_what_is_known_and_pays_the_rest(people: Callable[..., Session]) -> None:
    session = people(20_000)
    first = session.execute(call(*NESTED))
    second = session.execute(call(*NESTED, rest="rho => 0.001, snr => 1"))
    assert chosen(second.rows) == [3]
    assert 0 < second.cost < RHO
    assert first.cost + second.cost < 2 * RHO


def test_sums_are_chosen_among_as_counts_are(people: Callable[..., Session]) -> None:
    """The largest income is 10 and the mean 4.5, so that the signal is 0.45 times that of a count."""
    sqls = [sql.replace("count(*)", "sum(income)") for sql in NESTED]
    session = people(120_000)
    result = session.execute(call(*sqls))
    assert chosen(result.rows) == [3]
    assert float(result.cost) == pytest.approx(float(RHO), rel=1e-6)
    session.execute("SET noisegate.rho = 0.001")
    assert session.execute(sqls[2]).cost == 0
    assert chosen(people(16_000).execute(call(*sqls)).rows) == [1]


def test_units_with_several_rows_pay_for_all_of_them(people: Callable[..., Session]) -> None:
    session = people(50_000, table='privacy_unit = "age"\nmax_rows_per_unit = 300')
    result = session.execute(call(*NESTED, rest="rho => 0.001, stop => false"))
    assert chosen(result.rows) == [1]
    assert float(result.cost) == pytest.approx(float(RHO), rel=1e-6)


def test_without_rho_each_analysis_has_the_accuracy_of_the_session(people: Callable[..., Session]) -> None:
    session = people(50_000)
    session.execute("SET noisegate.error = 40")
    price = session.explain(BY_FIVE).rho
    result = session.execute(call(*NESTED, rest="snr => 20"))
    assert chosen(result.rows) == [3]
    assert float(result.cost) == pytest.approx(float(price), rel=1e-6)
    assert session.execute(BY_FIVE).cost == 0


# --- history -----------------------------------------------------------------------------------------------


def test_what_history_tells_is_not_paid_again(people: Callable[..., Session]) -> None:
    """Counts by sex at the same cost tell one of the four directions of each sex's quarters more than well enough."""
    session = people(50_000)
    session.execute("SET noisegate.rho = 0.001")
    session.execute(BY_SEX)
    result = session.execute(call(BY_SEX, BY_QUARTER))
    assert chosen(result.rows) == [2]
    assert float(result.cost) == pytest.approx(0.75 * float(RHO), rel=1e-6)
    assert [release.kind for release in session.gate.ledger.releases()] == ["linear", "linear", "choice"]


def test_history_helps_where_the_join_would_burden_a_cell(people: Callable[..., Session]) -> None:
    """The join of the total with parts of unequal size charges the small part more than asking afresh does."""
    session = people(60_000)
    session.execute("SET noisegate.rho = 0.001")
    session.execute("SELECT count(*) FROM people")
    parts = "SELECT age < 5, age < 50, count(*) FROM people GROUP BY 1, 2"
    price = session.explain(call("SELECT count(*) FROM people", parts)).rho
    assert float(price) == pytest.approx(float(RHO) * 2 / 3, rel=1e-6)
    result = session.execute(call("SELECT count(*) FROM people", parts))
    assert (chosen(result.rows), result.cost) == ([2], price)
    assert session.execute(parts).cost == 0


def test_a_history_too_large_to_be_brought_whole_leaves_the_promise_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (atlas, recall, union):
        monkeypatch.setattr(module, "MAX_POINTS", 64)
    columns = "".join(f'{name} = {{ type = "integer", min = 0, max = 3 }}\n' for name in "abcd")
    rows = "SELECT i % 4 AS a, i // 4 % 4 AS b, i % 3 AS c, i % 2 AS d FROM range(20000) AS r(i)"
    found = open_gate(tmp_path, rows, columns=columns)
    session = found.session()
    for one, two in ("ab", "bc", "cd", "da"):
        session.execute(f"SELECT {one}, {two}, count(*) FROM people GROUP BY 1, 2")
    sqls = ["SELECT a, count(*) FROM people GROUP BY 1", "SELECT a, c, count(*) FROM people GROUP BY 1, 2"]
    result = session.execute(call(*sqls))
    assert float(result.cost) == pytest.approx(float(RHO), rel=1e-6)
    session.execute("SET noisegate.rho = 0.001")
    assert session.execute(sqls[chosen(result.rows)[0] - 1]).cost == 0
    found.close()


def test_a_choice_whose_every_way_is_known_is_free(people: Callable[..., Session]) -> None:
    session = people(50_000)
    session.execute("SET noisegate.rho = 0.01")
    session.execute(BY_FIVE)
    session.execute("RESET noisegate.rho")
    assert session.explain(call(BY_QUARTER, BY_FIVE)).path == "free"
    result = session.execute(call(BY_QUARTER, BY_FIVE))
    assert (chosen(result.rows), result.cost) == ([2], 0)


def test_a_way_that_is_known_is_free_though_another_would_not_be(people: Callable[..., Session]) -> None:
    session = people(50_000)
    session.execute("SET noisegate.rho = 0.001")
    session.execute(BY_FIVE)
    assert session.explain(call(BY_QUARTER, BY_FIVE)).rho > 0
    result = session.execute(call(BY_QUARTER, BY_FIVE))
    assert (chosen(result.rows), result.cost) == ([2], 0)
    assert result.plan is not None
    assert result.plan.path == "free"


@pytest.mark.parametrize("seed", range(3))
def test_no_history_makes_a_cell_pay_more_than_the_analysis_alone(people: Callable[..., Session], seed: int) -> None:
    generator, session = np.random.default_rng(seed), people(2_000)
    for _ in range(4):
        low, high = sorted(generator.integers(0, 100, 2))
        session.execute(f"SET noisegate.error = {generator.choice([20, 50, 100])}")
        session.execute(f"SELECT count(*) FROM people WHERE age BETWEEN {low} AND {high}")
    session.execute("RESET ALL")
    choice = call(*NESTED, rest="rho => 0.001, stop => false")
    price = session.explain(choice).rho
    assert float(price) <= float(RHO) * (1 + 1e-7)
    result = session.execute(choice)
    assert result.cost <= price
    session.execute("SET noisegate.rho = 0.001")
    assert session.execute(NESTED[chosen(result.rows)[0] - 1]).cost == 0


def test_a_choice_is_replayed_as_of_a_release_and_refused_before(people: Callable[..., Session]) -> None:
    session = people(20_000)
    session.execute(BY_SEX)
    first = session.execute(call(*NESTED))
    last = session.gate.ledger.releases()[-1].id
    session.execute("SET noisegate.error = 5")
    session.execute(BY_FIVE)
    session.execute("RESET noisegate.error")
    session.execute(f"SET noisegate.as_of = {last}")
    assert session.execute(call(*NESTED)).rows == first.rows
    session.execute("SET noisegate.as_of = 1")
    with pytest.raises(BadValue, match="do not tell this choice"):
        session.execute(call(*NESTED))


def test_refreshed_data_are_chosen_from_anew(people: Callable[..., Session]) -> None:
    session = people(6_400)
    session.execute(call(*NESTED))
    session.gate.refresh("people")
    assert float(session.execute(call(*NESTED)).cost) == pytest.approx(float(RHO), rel=1e-6)


# --- how sure ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("deviations", "taken"), [(0, 2), (20, 1)])
def test_how_many_deviations_a_ratio_must_be_clear_of_is_an_argument(
    people: Callable[..., Session], deviations: float, taken: int
) -> None:
    """With 11,600 people a sex is 13 deviations of the look above what it needs in quarters."""
    assert 13 < margin(11_600, 0) < 14
    result = people(11_600).execute(call(*NESTED, rest=f"rho => 0.001, snr => 100, deviations => {deviations}"))
    assert chosen(result.rows) == [taken]
    assert result.rows[0][4:6] == (float(taken == 2), 1.0)


# --- stopping ---------------------------------------------------------------------------------------------


def test_where_none_can_be_good_enough_nothing_is_taken_and_only_the_look_is_paid(
    people: Callable[..., Session],
) -> None:
    session = people(FEW)
    result = session.execute(call(*NESTED))
    assert chosen(result.rows) == []
    assert float(result.cost) == pytest.approx(float(RHO) / 20, rel=1e-6)
    assert result.cost == spent(session)
    assert [row[6] for row in result.rows] == [0.0, 0.0, 0.0]
    assert [row[10] for row in result.rows] == [
        "stopped: 0% of its groups would have a ratio of 100",
        "stopped: not even analysis 1 is good enough",
        "stopped: not even analysis 1 is good enough",
    ]
    assert session.execute(call(*NESTED)).rows == result.rows
    assert spent(session) == result.cost


def test_what_was_looked_at_stays_usable_after_a_stop(people: Callable[..., Session]) -> None:
    """The look has the noise of 20 cells: counts by sex with that error are free."""
    session = people(FEW)
    session.execute(call(*NESTED))
    session.execute(f"SET noisegate.error = {2 * SIGMA * 20**0.5}")
    assert session.execute(BY_SEX).cost == 0
    for number, row in enumerate(session.execute(call(*NESTED)).rows):
        again = session.explain(call(*NESTED, rest=f"rho => 0.001, take => {number + 1}"))
        assert float(again.rho) == pytest.approx(row[9]) == pytest.approx(float(RHO) * 19 / 20, rel=1e-6)


def test_a_stop_can_be_forbidden_before_or_after_it(people: Callable[..., Session]) -> None:
    session = people(FEW)
    stopped = session.execute(call(*NESTED))
    result = session.execute(call(*NESTED, rest="rho => 0.001, snr => 100, stop => false"))
    assert chosen(result.rows) == [1]
    assert float(stopped.cost + result.cost) == pytest.approx(float(RHO), rel=1e-6)
    assert float(spent(session)) == pytest.approx(float(RHO), rel=1e-6)


def test_python_tells_a_stop_from_a_look(people: Callable[..., Session]) -> None:
    with dbapi.connect(people(FEW).gate.policy.path) as connection:
        looked = connection.choose(NESTED, snr=100, rho=0.001, look=True)
        assert (looked.index, looked.sql, looked.rule, looked.is_stopped) == (None, None, "look", False)
        stopped = connection.choose(NESTED, snr=100, rho=0.001)
        assert (stopped.index, stopped.rule, stopped.is_stopped, stopped.cost) == (None, "nested", True, 0)
        taken = connection.choose(NESTED, rho=0.001, take=2)
        assert (taken.index, taken.sql, taken.rule) == (2, BY_FIVE, "take")
        assert float(looked.cost + taken.cost) == pytest.approx(float(RHO), rel=1e-6)


# --- looking first ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("take", [1, 2, 3])
def test_who_looks_and_then_takes_one_pays_what_that_one_costs(people: Callable[..., Session], take: int) -> None:
    session = people(20_000)
    looked = session.execute(call(*NESTED, rest="rho => 0.001, snr => 100, look => true"))
    assert {(row[2], row[3]) for row in looked.rows} == {(False, "look")}
    assert [row[6] for row in looked.rows] == [1.0, 1.0, 0.0]
    assert looked.rows[1][10] == "100% of its groups would have a ratio of 100"
    taken = session.execute(call(*NESTED, rest=f"rho => 0.001, take => {take}"))
    assert chosen(taken.rows) == [take]
    assert float(taken.cost) == pytest.approx(looked.rows[take - 1][9])
    assert float(looked.cost + taken.cost) == pytest.approx(float(RHO), rel=1e-6)
    assert float(spent(session)) == pytest.approx(float(RHO), rel=1e-6)
    session.execute("SET noisegate.rho = 0.001")
    assert session.execute(NESTED[take - 1]).cost == 0


def test_a_look_is_free_the_second_time_and_tells_what_is_still_missing_now(people: Callable[..., Session]) -> None:
    session, look = people(20_000), call(*NESTED, rest="rho => 0.001, snr => 100, look => true")
    first = session.execute(look)
    assert session.explain(look).path == "free"
    again = session.execute(look)
    assert (again.cost, again.rows) == (0, first.rows)
    session.execute(call(*NESTED, rest="rho => 0.001, take => 1"))
    after = session.execute(look)
    assert after.cost == 0
    assert after.rows[0][9] == 0 < after.rows[2][9]


def test_a_choice_goes_on_from_a_look_for_the_rest_of_its_price(people: Callable[..., Session]) -> None:
    session = people(20_000)
    looked = session.execute(call(*NESTED, rest="rho => 0.001, look => true"))
    price = session.explain(call(*NESTED))
    result = session.execute(call(*NESTED))
    assert chosen(result.rows) == [2]
    assert float(looked.cost + result.cost) == pytest.approx(float(RHO), rel=1e-6)
    assert float(price.rho) == pytest.approx(float(RHO) * 19 / 20, rel=1e-6)
    assert "look 1          at analysis 1: known already" in "\n".join(price.lines)


def test_to_take_one_without_a_look_is_one_commit_at_its_price(people: Callable[..., Session]) -> None:
    session = people(FEW)
    result = session.execute(call(*NESTED, rest="rho => 0.001, take => 2"))
    assert chosen(result.rows) == [2]
    assert float(result.cost) == pytest.approx(float(RHO), rel=1e-6)
    assert [row[10] for row in result.rows] == ["not taken", "taken, as you asked", "not taken"]


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_between_a_look_and_taking_one_makes_nothing_dearer(
    people: Callable[..., Session], seed: int
) -> None:
    """Whatever was released before and between: the look and the rest cost no more than the choice would have."""
    generator, session = np.random.default_rng(seed), people(2_000)
    look = call(*NESTED, rest="rho => 0.001, look => true")

    def ask_something() -> None:
        for _ in range(3):
            low, high = sorted(generator.integers(0, 100, 2))
            session.execute(f"SET noisegate.error = {generator.choice([20, 50, 100])}")
            session.execute(f"SELECT count(*) FROM people WHERE age BETWEEN {low} AND {high}")
        session.execute("RESET ALL")

    ask_something()
    prices = [session.explain(call(*NESTED, rest=f"rho => 0.001, take => {i}")).rho for i in (1, 2, 3)]
    looked = session.execute(look)
    ask_something()
    for number, price in enumerate(prices):
        rest = session.explain(call(*NESTED, rest=f"rho => 0.001, take => {number + 1}")).rho
        assert float(rest) <= looked.rows[number][9] * (1 + 1e-9)
        assert float(looked.cost + rest) <= float(price) * (1 + 1e-6)


# --- averages ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "snr", "taken"), [(20_000, 5, 3), (20_000, 70, 2), (20_000, 200, 1), (500, 200, 0)])
def test_averages_are_chosen_among_by_their_relative_error(
    people: Callable[..., Session], n: int, snr: float, taken: int
) -> None:
    """Of 20,000 people, an average by sex has a ratio of about 285 alone and 143 in quarters, estimated to 2.5 %;
    one by quarter has 25 to 38 in fives, estimated to 4 %: all more than six deviations from what is asked."""
    sqls = [sql.replace("count(*)", "avg(income)") for sql in NESTED]
    session = people(n)
    price = alone(session, sqls[0])
    result = session.execute(call(*sqls, rest=f"rho => 0.001, snr => {snr}"))
    assert chosen(result.rows) == ([taken] if taken else [])
    if taken:
        assert float(result.cost) == pytest.approx(float(price), rel=1e-6)
        session.execute("SET noisegate.rho = 0.001")
        assert session.execute(sqls[taken - 1]).cost == 0


def test_an_average_that_is_known_from_its_group_alone_has_all_the_signal_it_needs(
    people: Callable[..., Session],
) -> None:
    """Everyone in a group has the same age, so their average has no noise; counts decide whether anyone is there."""
    sqls = ["SELECT avg(age) FROM people", "SELECT age, avg(age) FROM people GROUP BY age"]
    result = people(20_000).execute(call(*sqls, rest="rho => 0.001, snr => 20, look => true"))
    assert result.rows[1][6] == 1.0


# --- the general rule --------------------------------------------------------------------------------------

BY_DECADE = "SELECT age / 10, count(*) FROM people GROUP BY 1"
BY_PARITY = "SELECT age % 2, count(*) FROM people GROUP BY 1"


@pytest.mark.parametrize("sqls", [(BY_SEX, BY_DECADE), (BY_DECADE, BY_SEX), (BY_PARITY, BY_DECADE, BY_SEX)])
def test_of_analyses_that_are_all_good_enough_the_general_rule_takes_the_first(
    people: Callable[..., Session], sqls: tuple[str, ...]
) -> None:
    session = people(20_000)
    result = session.execute(call(*sqls, rest="rho => 0.001, snr => 20"))
    assert {row[3] for row in result.rows} == {"general"}
    assert {row[6:8] for row in result.rows} == {(1.0, 1.0)}
    assert chosen(result.rows) == [1]
    assert float(result.cost) == pytest.approx(float(RHO), rel=1e-6)
    session.execute("SET noisegate.rho = 0.001")
    assert session.execute(sqls[0]).cost == 0


def test_the_general_rule_takes_what_is_worth_most(people: Callable[..., Session]) -> None:
    rest = "rho => 0.001, snr => 20, weights => ARRAY[1, 2, 1.5]"
    result = people(20_000).execute(call(BY_SEX, BY_DECADE, BY_PARITY, rest=rest))
    assert chosen(result.rows) == [2]
    assert [row[7] for row in result.rows] == [1.0, 2.0, 1.5]


def test_the_general_rule_does_not_take_what_is_too_noisy_however_many_groups_it_has(
    people: Callable[..., Session],
) -> None:
    """2,000 people a decade with a noise of 22 have a ratio of 89; the look tells the total to 1 in 280."""
    rest = "rho => 0.001, snr => 100"
    result = people(20_000).execute(call(BY_DECADE, BY_SEX, rest=rest))
    assert chosen(result.rows) == [2]
    assert [row[6] for row in result.rows] == [0.0, 1.0]
    assert result.rows[0][10] == "not good enough: 0% of its groups would have a ratio of 100"
    heavy = people(20_000).execute(call(BY_DECADE, BY_SEX, rest=f"{rest}, weights => ARRAY[9, 1]"))
    assert chosen(heavy.rows) == [2]
    assert 7.5 < heavy.rows[0][7] < 8.5


def test_the_general_rule_takes_what_history_does_not_tell(people: Callable[..., Session]) -> None:
    session = people(20_000)
    session.execute("SET noisegate.error = 20")
    session.execute(BY_DECADE)
    session.execute("RESET noisegate.error")
    result = session.execute(call(BY_DECADE, BY_SEX, rest="rho => 0.001, snr => 20"))
    assert chosen(result.rows) == [2]
    assert result.rows[0][7] == pytest.approx(0, abs=1e-6)


def test_the_general_rule_stops_where_nothing_is_good_enough_unless_told_not_to(people: Callable[..., Session]) -> None:
    session = people(FEW)
    result = session.execute(call(BY_SEX, BY_DECADE))
    assert chosen(result.rows) == []
    assert 0 < result.cost < RHO
    assert result.rows[1][10] == "stopped: 0% of its groups would have a ratio of 100"
    more = session.execute(call(BY_SEX, BY_DECADE, rest="rho => 0.001, snr => 100, stop => false"))
    assert chosen(more.rows) == [1]
    assert float(result.cost + more.cost) == pytest.approx(float(RHO), rel=1e-6)


def test_the_general_rule_can_be_asked_for(people: Callable[..., Session]) -> None:
    """What the look tells well enough is no gain: by sex it is told at a ratio of 100, by quarter at none."""
    result = people(50_000).execute(call(*NESTED[:2], rest="rho => 0.001, snr => 100, rule => 'general'"))
    assert {row[3] for row in result.rows} == {"general"}
    assert [row[7] for row in result.rows] == [0.0, 1.0]
    assert chosen(result.rows) == [2]
    assert float(result.cost) == pytest.approx(float(RHO), rel=1e-6)


# --- privacy -----------------------------------------------------------------------------------------------


def test_every_look_is_durable_before_anything_is_decided_from_it(
    people: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, events = people(20_000), list[str]()
    commit, draw = session.gate.ledger.commit, measure.Meter.linear

    def drawn(*arguments: Any) -> Any:
        events.append("draw")
        return draw(*arguments)

    def committed(*arguments: Any, **options: Any) -> Any:
        found = commit(*arguments, **options)
        events.append("commit")
        return found

    monkeypatch.setattr(session.gate.ledger, "commit", committed)
    monkeypatch.setattr(measure.Meter, "linear", drawn)
    session.execute(call(*NESTED))
    assert events == ["draw", "commit"] * 3


def test_a_crash_between_the_stages_keeps_what_was_charged_and_the_next_try_pays_the_rest(
    people: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = people(20_000)
    commit, count = session.gate.ledger.commit, iter(range(9))

    def crashing(*arguments: Any, **options: Any) -> Any:
        if next(count) == 1:
            raise KeyboardInterrupt
        return commit(*arguments, **options)

    monkeypatch.setattr(session.gate.ledger, "commit", crashing)
    with pytest.raises(KeyboardInterrupt):
        session.execute(call(*NESTED))
    monkeypatch.undo()
    assert float(spent(session)) == pytest.approx(float(RHO) / 20, rel=1e-6)
    again = Gate.open(session.gate.policy.path)
    result = again.session().execute(call(*NESTED))
    again.close()
    assert chosen(result.rows) == [2]
    assert float(result.cost) == pytest.approx(float(RHO) * 19 / 20, rel=1e-6)
    assert float(spent(session)) == pytest.approx(float(RHO), rel=1e-6)


def test_a_stage_that_is_refused_says_that_the_looks_were_charged(
    people: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = people(20_000)
    commit, count = session.gate.ledger.commit, iter(range(9))

    def refusing(*arguments: Any, **options: Any) -> Any:
        if next(count) == 1:  # as if somebody else had spent the budget meanwhile
            raise BudgetExceeded("nothing is left", hint="nothing was charged")
        return commit(*arguments, **options)

    monkeypatch.setattr(session.gate.ledger, "commit", refusing)
    with pytest.raises(BudgetExceeded) as caught:
        session.execute(call(*NESTED))
    assert caught.value.hint is not None
    assert "the looks so far were charged" in caught.value.hint


@pytest.mark.parametrize("ask", ["EXPLAIN", "explain", "describe", "LIMIT 0"])
def test_nothing_is_read_or_spent_before_it_is_executed(
    people: Callable[..., Session], monkeypatch: pytest.MonkeyPatch, ask: str
) -> None:
    session = people(20_000)

    def read(*arguments: Any) -> Any:
        raise AssertionError("protected data were read")

    monkeypatch.setattr(measure.Meter, "_vector", read)
    asked = {
        "EXPLAIN": lambda: session.execute(f"EXPLAIN {call(*NESTED)}"),
        "explain": lambda: session.explain(call(*NESTED)),
        "describe": lambda: session.describe(call(*NESTED)),
        "LIMIT 0": lambda: session.execute(f"{call(*NESTED)} LIMIT 0"),
    }
    assert asked[ask]()
    assert session.gate.ledger.releases() == []


def test_explain_tells_the_price_and_the_stages(people: Callable[..., Session]) -> None:
    session = people(20_000)
    found = session.explain(call(*NESTED))
    assert found.path == "direct"
    assert float(found.rho) == pytest.approx(float(RHO), rel=1e-6)
    assert found.rho_after == found.rho
    assert found.as_json()["errors"] == {}
    text = "\n".join(row[0] for row in session.execute(f"EXPLAIN {call(*NESTED)}").rows)
    for piece in (
        "Choice among 3 analyses of people",
        "nested: go on while 50% of the groups keep a ratio of 100",
        "stop            unless analysis 1 can be good enough: 50% of its groups have a ratio of 100",
        "look 2",
        "of the budget (ρ 0.001) in all",
        "(ρ 5e-05) at best, ",
        "(ρ 0.001) at worst",
    ):
        assert piece in text
    assert found.as_json()["rho_at_best"] == pytest.approx(float(RHO) / 20, rel=1e-6)


def test_people_who_differ_in_nothing_that_was_released_are_decided_about_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise: as many of each sex, but of quite different ages, which the analysis taken does not tell."""
    switch_noise_off(monkeypatch)
    told = []
    for name, ages in (("even", "i % 100"), ("young", "i % 3")):
        found = open_gate(tmp_path / name, ROWS.replace("i % 100", ages).format(n=6_400), columns=COLUMNS)
        result = found.session().execute(call(*NESTED))
        told.append((result.rows, result.cost, [(r.body, r.cost) for r in found.ledger.releases()]))
        found.close()
    assert chosen(told[0][0]) == [1]
    assert told[0] == told[1]


# --- refusals ----------------------------------------------------------------------------------------------

MEDIAN = "SELECT median(age) FROM people"
REFUSED: list[tuple[str, type[Refusal], str, str | None]] = [
    (call(BY_SEX, MEDIAN), Unsupported, "quantile has no signal-to-noise ratio", "median(age"),
    (call(BY_SEX, "SELECT stddev(income) FROM people"), Unsupported, "stddev has no signal-to-noise", "stddev(income"),
    (call(BY_SEX), BadValue, "among 2 to 16 analyses, got 1", BY_SEX),
    (call(BY_SEX, "SELECT count(*) FROM others"), Unsupported, "different tables", "SELECT count(*) FROM others"),
    (call(BY_SEX, "SELECT count(*) FROM people WHERE height > 3"), UnknownColumn, "no column height", "height"),
    (call(BY_SEX, "SELECT * FROM people"), Forbidden, "single rows", "people"),
    (call(BY_SEX, "SHOW noisegate.error"), Forbidden, "must be a SELECT", None),
    (call(BY_SEX, "SELECT 1"), Unsupported, "one aggregate query about a protected table", None),
    (call(BY_SEX, f"{BY_SEX} UNION ALL {BY_SEX}"), Unsupported, "one aggregate query", None),
    (call(BY_SEX, "SELECT count(*) FROM people WHERE age < 0"), Unsupported, "must count or sum something", None),
    (call(BY_SEX, "SELECT sex, age, income, count(*) FROM people GROUP BY 1, 2, 3"), TooLarge, "too many", None),
    (call(BY_SEX, BY_FIVE, rest="tau => 3"), UnknownFunction, "has no argument tau", "3"),
    (call(BY_SEX, BY_FIVE, rest="rho => 0"), BadValue, "rho must be a number from 1e-09", "0"),
    (call(BY_SEX, BY_FIVE, rest="rho => -0.5"), BadValue, "rho must be a number", "0.5"),
    (call(BY_SEX, BY_FIVE, rest="fraction => 1.5"), BadValue, "fraction must be a number from 1e-09 to 1", "1.5"),
    (call(BY_SEX, BY_FIVE, rest="snr => 'high'"), WrongType, "argument snr must be a number", "'high'"),
    (call(BY_SEX, BY_FIVE, rest="rule => 'best'"), BadValue, "there is no rule 'best'", "'best'"),
    (call(BY_SEX, BY_DECADE, rest="rule => 'nested'"), Unsupported, "not nested", "'nested'"),
    (call(BY_SEX, BY_FIVE, rest="snr => 2, 0.3"), SyntaxRefusal, "without a name follows", "0.3"),
    (call(BY_SEX, BY_FIVE, rest="2, snr => 3"), SyntaxRefusal, "snr is given twice", "3"),
    (call(BY_SEX, BY_FIVE, rest="1, 1, 1, 'nested', 0, true, NULL, true, 1, 7"), UnknownFunction, "only 10 arg", "7"),
    (call(BY_SEX, BY_FIVE, rest="deviations => -1"), BadValue, "deviations must be a number from 0 to 100", "1"),
    (call(BY_SEX, BY_FIVE, rest="stop => 1"), WrongType, "argument stop must be a boolean", "1"),
    (call(BY_SEX, BY_FIVE, rest="take => 3"), BadValue, "the number of an analysis, 1 to 2, got 3", "3"),
    (call(BY_SEX, BY_FIVE, rest="take => 0"), BadValue, "the number of an analysis, 1 to 2, got 0", "0"),
    (call(BY_SEX, BY_FIVE, rest="take => 1.5"), BadValue, "the number of an analysis, 1 to 2, got 1.5", "1.5"),
    (call(BY_SEX, BY_FIVE, rest="look => true, take => 2"), BadValue, "either look or take", "2"),
    (call(BY_SEX, BY_FIVE, rest="weights => 2"), WrongType, "weights must be a list of numbers", "2"),
    (call(BY_SEX, BY_FIVE, rest="weights => ARRAY['a', 'b']"), WrongType, "a list of numbers", "'a', 'b'"),
    (call(BY_SEX, BY_FIVE, rest="weights => ARRAY[1]"), BadValue, "one for each of the 2 analyses", "1"),
    (call(BY_SEX, BY_FIVE, rest="weights => ARRAY[1, 0]"), BadValue, "weights must be positive", "1, 0"),
    (call(BY_SEX, BY_FIVE, rest="weights => ARRAY[1, 2], rule => 'nested'"), BadValue, "not weigh", "'nested'"),
    (call(BY_SEX, BY_FIVE, rest="snr => 2 + 3"), Unsupported, "must be a constant", "2 + 3"),
    (
        call("SELECT count(*) FROM people WHERE sex = 'F'", "SELECT count(*) FROM people WHERE sex = 'M'"),
        Unsupported,
        "nothing in common",
        None,
    ),
    ("SELECT * FROM noisegate.choose(ARRAY[1, 2])", WrongType, "sqls must be a list of texts", "1, 2"),
    ("SELECT * FROM noisegate.choose()", UnknownFunction, "needs the argument sqls", "noisegate.choose"),
    ("SELECT * FROM noisegate.pick(1)", UnknownFunction, "no function noisegate.pick", "noisegate.pick(1"),
    ("SELECT 1, noisegate.choose(ARRAY['a', 'b'])", Unsupported, "stands in FROM", None),
    (f"{call(*NESTED)} AS a, noisegate.choose(ARRAY['a']) AS b", Unsupported, "one function", None),
    (f"{call(*NESTED)}, (SELECT count(*) FROM people) AS t", Unsupported, "protected tables as well", None),
    (call(BY_SEX, call(*NESTED).replace("$$", "'")), Unsupported, "one aggregate query", None),
    (f"{call(*NESTED)} WITH ORDINALITY", Unsupported, "ORDINALITY", None),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    found = open_gate(tmp_path_factory.mktemp("people"), ROWS.format(n=600), columns=COLUMNS, rest=OTHERS)
    yield found.session()
    found.close()


@pytest.mark.parametrize(("sql", "kind", "message", "piece"), REFUSED, ids=[f"{i}" for i in range(len(REFUSED))])
def test_what_can_not_be_chosen_among_is_refused_with_its_place_and_spends_nothing(
    shared: Session, sql: str, kind: type[Refusal], message: str, piece: str | None
) -> None:
    with pytest.raises(kind) as caught:
        shared.execute(sql)
    assert message in caught.value.message
    assert caught.value.hint
    if piece is not None:
        assert caught.value.span is not None
        assert sql[caught.value.span[0] : caught.value.span[1] + 1].strip("$") == piece
    assert shared.gate.ledger.releases() == []


def test_a_budget_that_can_not_pay_every_way_is_refused_before_anything_is_spent(
    people: Callable[..., Session],
) -> None:
    session = people(6_400, epsilon=0.25)
    with pytest.raises(BudgetExceeded):
        session.execute(call(*NESTED, rest="rho => 0.01"))
    assert session.gate.ledger.releases() == []


def test_more_than_max_rho_is_refused_before_anything_is_spent(people: Callable[..., Session]) -> None:
    session = people(6_400)
    session.execute("SET noisegate.max_rho = 0.0009")
    with pytest.raises(TooDear):
        session.execute(call(*NESTED))
    assert session.gate.ledger.releases() == []
    session.execute("SET noisegate.max_rho = 0.001")
    assert session.execute(call(*NESTED)).cost <= RHO


# --- calls in SQL and in Python ----------------------------------------------------------------------------


def test_the_result_is_an_ordinary_relation(people: Callable[..., Session]) -> None:
    session = people(20_000)
    assert session.execute(f"{call(*NESTED)} WHERE chosen").rows[0][1] == BY_QUARTER
    inner = call(*NESTED).removeprefix("SELECT * FROM ")
    assert session.execute(f"SELECT c.analysis FROM {inner} AS c ORDER BY 1 DESC LIMIT 2").rows == [(3,), (2,)]
    assert session.execute(f"SELECT choose.sql FROM {inner} WHERE chosen").rows == [(BY_QUARTER,)]
    assert session.execute(f"SELECT max(n) FROM {inner} AS c(n, text)").rows == [(3,)]
    counted = session.execute(f"WITH c AS ({call(*NESTED)}) SELECT count(*) FROM c, noisegate.budget AS b")
    assert counted.rows == [(3,)]


def test_arguments_may_be_positional_or_parameters(people: Callable[..., Session]) -> None:
    session = people(20_000)
    expected = session.execute(call(*NESTED, rest="snr => 100, fraction => 0.5, rho => 0.001")).rows
    sql = "SELECT * FROM noisegate.choose({}, {})"
    assert session.execute(sql.format("?", "?, ?, ?"), [NESTED, 100, 0.5, 0.001]).rows == expected
    texts = f"ARRAY[{', '.join(repr(sql) for sql in NESTED)}]::text[]"
    assert session.execute(sql.format(texts, "snr := 100, rho := CAST('0.001' AS double precision)")).rows == expected
    assert session.execute(sql.format(texts, "100, NULL, 1e-3")).rows == expected
    assert len(session.gate.ledger.releases()) == 5


def test_a_place_inside_a_quoted_analysis_is_found_unless_quotes_were_doubled(shared: Session) -> None:
    for quoted, piece in [
        ("$a$SELECT count(*) FROM people WHERE sex = 'F' AND height > 3$a$", "height"),
        ("'SELECT count(*) FROM people WHERE height > 3'", "height"),
        ("'SELECT count(*) FROM people WHERE sex = ''F'' AND height > 3'", None),
    ]:
        sql = f"EXPLAIN SELECT * FROM noisegate.choose(ARRAY['{BY_SEX}', {quoted}])"
        with pytest.raises(UnknownColumn) as caught:
            shared.execute(sql)
        assert caught.value.span is not None
        assert sql[caught.value.span[0] : caught.value.span[1] + 1] == (piece or quoted)


def test_python_chooses_as_sql_does(people: Callable[..., Session]) -> None:
    session = people(20_000)
    with dbapi.connect(session.gate.policy.path) as connection:
        found = connection.choose(NESTED, snr=100, rho=0.001)
        assert isinstance(found, Choice)
        assert (found.index, found.sql, found.rule) == (1, BY_QUARTER, "nested")
        assert float(found.cost) == pytest.approx(float(RHO), rel=1e-6)
        assert not found.is_stopped
        last = found.analyses[2]
        assert last == Considered(
            sql=BY_FIVE,
            chosen=False,
            passed=None,
            possible=None,
            good=0.0,
            gain=None,
            rho=None,
            rest=last.rest,
            why=last.why,
        )
        assert connection.choose(NESTED, snr=100, rho=RHO).cost == 0
        assert session.execute(call(*NESTED)).cost == 0
        with pytest.raises(connection.ProgrammingError, match="a list of texts"):
            connection.choose(BY_SEX)
        with pytest.raises(connection.DataError, match="got 1"):
            connection.choose([BY_SEX])
        with pytest.raises(connection.NotSupportedError, match="quantile"):
            connection.choose([BY_SEX, MEDIAN])


def test_any_text_is_written_so_that_it_is_read_back(shared: Session) -> None:
    text = "it's a $$ \\n \n back\\slash -- ; \" ü"
    read = statement.read(functions.written("choose", [text, text], rule=text))
    assert isinstance(read, statement.Query)
    _, found = functions.extract_call(read.tree, FUNCTIONS)
    assert found is not None
    assert [item.value for item in found.arguments["sqls"].value] == [text, text]
    assert found.arguments["rule"].value == text


def test_a_function_plugs_in_with_parameters_columns_and_a_plan(
    people: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(session: Session, arguments: functions.Arguments) -> functions.PlannedCall:
        rows = [(arguments["word"].value, arguments["times"].value), (session.analyst, None)]
        return functions.PlannedCall(
            alternatives=(),
            populations=("default",),
            path="free",
            lines=("Echo",),
            releases=(),
            run=lambda *_: functions.CallResult(rows, Fraction(0)),
        )

    parameters = (functions.Parameter("word", "text", required=True), functions.Parameter("times", "number"))
    columns = {"said": "VARCHAR", "times": "DOUBLE"}
    monkeypatch.setitem(FUNCTIONS, "echo", functions.Function("echo", parameters, columns, plan))
    session = people(6_400)
    result = session.execute("SELECT upper(said), times FROM NoiseGate.Echo('ho', times => -2.5)")
    assert result.rows == [("HO", -2.5), (session.analyst.upper(), None)]
    assert result.cost == 0
    assert session.execute("EXPLAIN SELECT * FROM noisegate.echo('ho')").rows[:2] == [
        ("Echo",),
        ("  cost            nothing: already known",),
    ]
