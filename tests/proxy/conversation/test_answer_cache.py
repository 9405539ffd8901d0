"""A free answer is kept while nothing new is released, and under the settings it was asked with."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from planner.basics.cache import ENTRY
from planner.gate import Gate
from planner.plans.plan import Plan
from proxy.conversation.answer_cache import MOST_BYTES, MOST_ROWS, AnswerCache, key_of
from proxy.conversation.route import Outcome, Price

SQL = "SELECT count(*) FROM adult"


@pytest.fixture
def gate(adult_policy: Path) -> Iterator[Gate]:
    gate = Gate.open(adult_policy)
    yield gate
    gate.close()


@pytest.fixture
def cache(gate: Gate) -> Iterator[AnswerCache]:
    cache = AnswerCache(gate.policy.ledger)
    yield cache
    cache.close()


def answer(gate: Gate, sql: str = SQL) -> Outcome:
    session = gate.session("ann")
    session.execute(sql)
    result = session.execute(sql)
    assert result.plan is not None
    return Outcome(result.tag, (), result.rows, Price.of(result.plan, result.cost), result.cost)


def keep(cache: AnswerCache, gate: Gate, outcome: Outcome, sql: str = SQL) -> None:
    cache.put(key_of(sql, (), gate.session("ann").settings), outcome, stamp=cache.stamp())


def kept(cache: AnswerCache, gate: Gate, sql: str = SQL) -> Outcome | None:
    return cache.get(key_of(sql, (), gate.session("ann").settings), cache.stamp())


def test_a_free_answer_is_kept(gate: Gate, cache: AnswerCache) -> None:
    outcome = answer(gate)
    assert outcome.cost == 0
    keep(cache, gate, outcome)
    assert kept(cache, gate) is outcome


def test_a_new_release_of_anyone_makes_it_old(gate: Gate, cache: AnswerCache, adult_policy: Path) -> None:
    keep(cache, gate, answer(gate))
    other = Gate.open(adult_policy)
    other.session("bob").execute("SELECT sex, count(*) FROM adult GROUP BY sex")
    other.close()
    assert kept(cache, gate) is None
    keep(cache, gate, answer(gate))
    gate.session("ann").execute("SELECT race, count(*) FROM adult GROUP BY race")
    assert kept(cache, gate) is None


def test_a_refreshed_table_makes_it_old(gate: Gate, cache: AnswerCache) -> None:
    keep(cache, gate, answer(gate))
    gate.refresh("adult")
    assert kept(cache, gate) is None


def test_an_answer_that_a_release_overtook_is_not_kept(gate: Gate, cache: AnswerCache) -> None:
    outcome, stamp = answer(gate), cache.stamp()
    gate.session("ann").execute("SELECT race, count(*) FROM adult GROUP BY race")
    cache.put(key_of(SQL, (), gate.session("ann").settings), outcome, stamp=stamp)
    assert kept(cache, gate) is None


def test_only_free_answers_of_the_gate_that_are_not_large_are_kept(gate: Gate, cache: AnswerCache) -> None:
    outcome = answer(gate)
    for unfit in (
        replace(outcome, cost=Fraction(1, 1000)),
        replace(outcome, price=None),
        replace(outcome, rows=[(1,)] * (MOST_ROWS + 1)),
    ):
        keep(cache, gate, unfit)
        assert kept(cache, gate) is None


def test_the_bytes_of_answers_are_bounded(gate: Gate, cache: AnswerCache) -> None:
    outcome = replace(answer(gate), rows=[("x" * 1_000_000,)])
    most = MOST_BYTES // (2 * outcome.size + ENTRY)
    assert 10 < most < 100
    for number in range(most + 5):
        keep(cache, gate, outcome, f"{SQL} WHERE age > {number}")
    assert kept(cache, gate, f"{SQL} WHERE age > 4") is None
    assert kept(cache, gate, f"{SQL} WHERE age > 5") is outcome


def test_a_kept_answer_holds_nothing_of_its_plan(gate: Gate, cache: AnswerCache) -> None:
    """A plan holds all that was known when it was made: a thousand answers would hold a thousand matrices."""
    keep(cache, gate, answer(gate))
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
    cache = AnswerCache(tmp_path / "none.sqlite")
    assert cache.stamp() is None
    cache.put(key_of(SQL, (), gate.session("ann").settings), answer(gate), stamp=None)
    assert cache.get(key_of(SQL, (), gate.session("ann").settings), None) is None
