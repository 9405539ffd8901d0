"""A free answer is kept while nothing new is released about its tables, and under the settings it was asked with."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from planner.basics.cache import ENTRY
from planner.curator.relocation import relocate
from planner.gate import Gate
from planner.plans.plan import Plan
from proxy.conversation.answer_cache import AnswerCache, key_of
from proxy.conversation.route import Outcome, Price
from proxy.limits import ANSWER_BYTES, MAX_CACHED_ROWS

SQL = "SELECT count(*) FROM adult"

TOWN = """
[tables.{name}]
source = "{name}.csv"
[tables.{name}.columns]
sex = {{ values = ["F", "M"] }}
"""


def two_towns(folder: Path) -> Path:
    """Return a policy with two protected tables of one population."""
    for name in ("north", "south"):
        (folder / f"{name}.csv").write_text("sex\n" + "F\nM\n" * 50, encoding="utf-8")
    towns = "".join(TOWN.format(name=name) for name in ("north", "south"))
    path = folder / "towns.toml"
    path.write_text(f"[budget]\nepsilon = 100.0\ndelta = 1e-6\n[analysts]\nann = {{ share = 1.0 }}\n{towns}")
    return path


@pytest.fixture
def gate(adult_policy: Path) -> Iterator[Gate]:
    gate = Gate.open(adult_policy)
    yield gate
    gate.close()


@pytest.fixture
def recall(gate: Gate) -> Iterator[AnswerCache]:
    recall = AnswerCache(gate.policy.ledger)
    yield recall
    recall.close()


def answer(gate: Gate, sql: str = SQL) -> Outcome:
    session = gate.session("ann")
    session.execute(sql)
    result = session.execute(sql)
    assert result.plan is not None
    return Outcome(
        tag=result.tag, columns=(), rows=result.rows, price=Price.of(result.plan, result.cost), cost=result.cost
    )


def keep(recall: AnswerCache, gate: Gate, outcome: Outcome, sql: str = SQL) -> None:
    recall.put(key_of(sql, (), gate.session("ann").settings), outcome, stamp=recall.stamp())


def kept(recall: AnswerCache, gate: Gate, sql: str = SQL) -> Outcome | None:
    return recall.get(key_of(sql, (), gate.session("ann").settings), recall.stamp())


def test_a_free_answer_is_kept(gate: Gate, recall: AnswerCache) -> None:
    outcome = answer(gate)
    assert outcome.cost == 0
    keep(recall, gate, outcome)
    assert kept(recall, gate) is outcome


def test_a_new_release_of_anyone_makes_it_old(gate: Gate, recall: AnswerCache, adult_policy: Path) -> None:
    keep(recall, gate, answer(gate))
    other = Gate.open(adult_policy)
    other.session("bob").execute("SELECT sex, count(*) FROM adult GROUP BY sex")
    other.close()
    assert kept(recall, gate) is None
    keep(recall, gate, answer(gate))
    gate.session("ann").execute("SELECT race, count(*) FROM adult GROUP BY race")
    assert kept(recall, gate) is None


def test_a_refreshed_table_makes_it_old(gate: Gate, recall: AnswerCache) -> None:
    keep(recall, gate, answer(gate))
    gate.refresh("adult")
    assert kept(recall, gate) is None


def test_a_release_about_another_table_leaves_it_as_it_is(tmp_path: Path) -> None:
    with closing(Gate.open(two_towns(tmp_path))) as gate, closing(AnswerCache(gate.policy.ledger)) as recall:
        outcomes = {table: answer(gate, f"SELECT count(*) FROM {table}") for table in ("north", "south")}
        for table, outcome in outcomes.items():
            keep(recall, gate, outcome, f"SELECT count(*) FROM {table}")
        before = gate.ledger.releases()
        gate.session("ann").execute("SELECT sex, count(*) FROM south GROUP BY sex")
        assert len(gate.ledger.releases()) > len(before)
        assert kept(recall, gate, "SELECT count(*) FROM south") is None
        assert kept(recall, gate, "SELECT count(*) FROM north") is outcomes["north"]
        gate.refresh("south")
        assert kept(recall, gate, "SELECT count(*) FROM north") is outcomes["north"]
        gate.refresh("north")
        assert kept(recall, gate, "SELECT count(*) FROM north") is None


def test_an_answer_about_two_tables_is_old_when_either_is_released_about(tmp_path: Path) -> None:
    both = "SELECT (SELECT count(*) FROM north) + (SELECT count(*) FROM south)"
    with closing(Gate.open(two_towns(tmp_path))) as gate, closing(AnswerCache(gate.policy.ledger)) as recall:
        for table in ("north", "south"):
            keep(recall, gate, answer(gate, both), both)
            assert kept(recall, gate, both) is not None
            gate.session("ann").execute(f"SELECT sex, count(*) FROM {table} GROUP BY sex")
            assert kept(recall, gate, both) is None


@pytest.mark.parametrize("system", ["budget", "accounts", "releases", "queries", "rounds"])
def test_what_is_told_of_the_ledger_is_old_after_every_write(tmp_path: Path, system: str) -> None:
    with closing(Gate.open(two_towns(tmp_path))) as gate, closing(AnswerCache(gate.policy.ledger)) as recall:
        sql = f"SELECT * FROM noisegate.{system}"
        gate.session("ann").execute("SELECT count(*) FROM south")
        keep(recall, gate, answer(gate, sql), sql)
        assert kept(recall, gate, sql) is not None
        gate.session("ann").execute("SELECT count(*) FROM north")
        assert kept(recall, gate, sql) is None


def test_a_moved_share_changes_what_is_told_of_accounts(gate: Gate, recall: AnswerCache) -> None:
    sql = "SELECT analyst, share FROM noisegate.accounts ORDER BY 1"
    gate.session("ann").execute(SQL)
    before = answer(gate, sql)
    keep(recall, gate, before, sql)
    gate.move("0.1", source="ann", target="bob")
    assert kept(recall, gate, sql) is None
    assert answer(gate, sql).rows != before.rows


def test_a_ledger_that_was_moved_away_keeps_no_answer(gate: Gate, recall: AnswerCache, tmp_path: Path) -> None:
    """Others go on at the new place: what is released there is not seen here."""
    keep(recall, gate, answer(gate))
    assert kept(recall, gate) is not None
    relocate(gate.policy.ledger, tmp_path / "elsewhere.sqlite")
    assert kept(recall, gate) is None


def test_every_kept_answer_is_what_would_be_worked_out_now(gate: Gate, recall: AnswerCache) -> None:
    """A free answer draws on all that was released about its table, so a kept one must never outlive that."""
    session = gate.session("ann")
    questions = (SQL, "SELECT sex, count(*) FROM adult GROUP BY sex ORDER BY sex", "SELECT avg(age) FROM adult")
    for sql in questions:
        session.execute(sql)
    for age in range(20, 70, 10):
        for sql in questions:
            keep(recall, gate, answer(gate, sql), sql)
        session.execute(f"SELECT sex, count(*) FROM adult WHERE age > {age} GROUP BY sex")
        for sql in questions:
            found = kept(recall, gate, sql)
            assert found is None or found.rows == session.execute(sql).rows


def test_an_answer_that_a_release_overtook_is_not_kept(gate: Gate, recall: AnswerCache) -> None:
    outcome, stamp = answer(gate), recall.stamp()
    gate.session("ann").execute("SELECT race, count(*) FROM adult GROUP BY race")
    recall.put(key_of(SQL, (), gate.session("ann").settings), outcome, stamp=stamp)
    assert kept(recall, gate) is None


def test_only_free_answers_of_the_gate_that_are_not_large_are_kept(gate: Gate, recall: AnswerCache) -> None:
    outcome = answer(gate)
    for unfit in (
        replace(outcome, cost=Fraction(1, 1000)),
        replace(outcome, price=None),
        replace(outcome, rows=[(1,)] * (MAX_CACHED_ROWS + 1)),
    ):
        keep(recall, gate, unfit)
        assert kept(recall, gate) is None


def test_the_bytes_of_answers_are_bounded(gate: Gate, recall: AnswerCache) -> None:
    outcome = replace(answer(gate), rows=[("x" * 1_000_000,)])
    most = ANSWER_BYTES // (2 * outcome.size + ENTRY)
    assert 10 < most < 100
    for number in range(most + 5):
        keep(recall, gate, outcome, f"{SQL} WHERE age > {number}")
    assert kept(recall, gate, f"{SQL} WHERE age > 4") is None
    assert kept(recall, gate, f"{SQL} WHERE age > 5") is outcome


def test_a_kept_answer_holds_nothing_of_its_plan(gate: Gate, recall: AnswerCache) -> None:
    """A plan holds all that was known when it was made: a thousand answers would hold a thousand matrices."""
    keep(recall, gate, answer(gate))
    gc.collect()
    assert not [found for found in gc.get_objects() if isinstance(found, Plan)]


@pytest.mark.parametrize(
    "sql", ["SELECT now()", "SELECT CURRENT_DATE, count(*) FROM adult", "SELECT age(joined)", "SELECT localtimestamp"]
)
def test_questions_about_the_time_are_never_kept(gate: Gate, sql: str) -> None:
    assert key_of(sql, (), gate.session("ann").settings) is None


def test_settings_values_and_their_types_are_part_of_the_question(gate: Gate) -> None:
    settings = gate.session("ann").settings
    keys = [
        key_of(SQL, (), settings),
        key_of(SQL, (), replace(settings, error=10)),
        key_of(SQL, (1,), settings),
        key_of(SQL, (1.0,), settings),
        key_of(SQL, (True,), settings),
        key_of(SQL, (Decimal(1),), settings),
        key_of(SQL, ("1",), settings),
        key_of(SQL, (None,), settings),
    ]
    assert len(set(keys)) == len(keys)
    assert key_of(SQL, ([1],), settings) is None


def test_without_a_ledger_nothing_is_kept(gate: Gate, tmp_path: Path) -> None:
    recall = AnswerCache(tmp_path / "none.sqlite")
    assert recall.stamp() is None
    recall.put(key_of(SQL, (), gate.session("ann").settings), answer(gate), stamp=None)
    assert recall.get(key_of(SQL, (), gate.session("ann").settings), None) is None
