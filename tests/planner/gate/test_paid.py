"""Whoever is charged gets an answer: no number that noise can make keeps one from being told."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.basics.errors import EvaluationFailed, Refusal
from planner.gate import Gate
from planner.plans.result import Result
from planner.session import Session
from tests.planner.gates import open_gate

COLUMNS = """
g = { type = "integer", min = 0, max = 4 }
word = { values = ["one", "two"] }
big = { type = "integer", min = 0, max = 4_000_000_000_000_000_000, step = 1_000_000 }
large = { type = "integer", min = 0, max = 9_000_000_000_000, step = 1 }
f = { type = "float", min = 0, max = 1, step = 0.01 }
"""
ROWS = """
SELECT range % 4 AS g, if(range % 3 = 0, 'one', 'two') AS word, 4_000_000_000_000_000_000 AS big,
       9_000_000_000_000 AS large, 0.5 AS f
FROM range(60)
"""

MEASURED = ["count(*)", "sum(big)", "sum(large)", "sum(-big)", "avg(big)", "avg(f)", "stddev(f)", "variance(f)",
            "count(DISTINCT g)", "sum(f)", "sum(large * 1000)", "count(*) FILTER (WHERE f > 0.9)"]  # fmt: skip
MADE = [
    "{0}", "({0})::smallint", "({0})::int", "({0})::bigint", "({0})::numeric(4, 2)", "({0})::numeric(38, 10)",
    "({0})::text::smallint", "sqrt({0})", "ln({0})", "({0}) / ({1})", "1 / ({0})", "({0}) % ({1})", "({0}) * ({1})",
    "({0}) * 9000000000000000000", "power({0}, 40)", "exp({0})", "repeat('x', ({0})::int)", "chr(({0})::int)",
    "date '2000-01-01' + ({0})::int", "timestamp '2000-01-01' + ({0}) * interval '1 day'",
    "CASE WHEN ({0}) > 0 THEN ({1})::smallint END", "round(100.0 * ({0}) / ({1}), 1)", "coalesce(({0})::smallint, 0)",
    "({0})::boolean", "to_timestamp({0})", "make_date(2000, 1, ({0})::int)", "lpad('x', ({0})::int, 'y')",
    "abs({0})::bigint", "({0})::bigint << 62", "rank() OVER (ORDER BY ({0})::smallint)", "factorial(({0})::int)",
    "sum(({0})::smallint) OVER ()", "left('word', ({0})::int)",
]  # fmt: skip
SHAPES = [
    "SELECT {0} AS v FROM people",
    "SELECT g, {0} AS v, {1} AS w FROM people GROUP BY g",
    "SELECT g, {0} AS v FROM people GROUP BY ROLLUP (g) ORDER BY {0}",
    "SELECT word, {0} AS v FROM people GROUP BY word HAVING ({0}) IS NOT NULL ORDER BY 2 LIMIT 3",
    "SELECT sum(v::smallint), avg(v), max(v)::smallint FROM (SELECT g, {2} AS v FROM people GROUP BY g) AS inside",
    "SELECT g, (SELECT {2} FROM people)::smallint AS v FROM people GROUP BY g",
    "WITH a AS (SELECT g, {2} AS v FROM people GROUP BY g) SELECT * FROM a JOIN a AS b ON a.v::int = b.v::int",
    "SELECT {2} AS v, DP_INTERVAL_LOW(v), DP_INTERVAL_HIGH(v), DP_STDDEV(v) FROM people",
    "SELECT g FROM people GROUP BY g LIMIT (SELECT {2} FROM people)",
]
GROUPS = "(SELECT g, count(*) AS n FROM people GROUP BY g)"
ERRORS = ["0.05", "1", "30", "1e6", "1e15", "1e18"]


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    found = open_gate(tmp_path, ROWS, columns=COLUMNS, epsilon=1e9)
    yield found
    found.close()


def spent(gate: Gate) -> int:
    return gate.ledger.spent("default")


def statements(count: int) -> Iterator[tuple[str, str]]:
    """Yield statements and the errors that they are asked with."""
    chooser = random.Random(12)
    for _ in range(count):
        measured = [chooser.choice(MEASURED) for _ in range(3)]
        made = [chooser.choice(MADE).format(*measured), chooser.choice(MADE).format(*reversed(measured))]
        plain = measured[0] if chooser.random() < 0.5 else made[0]
        yield chooser.choice(SHAPES).format(*made, plain), chooser.choice(ERRORS)


def test_whatever_is_charged_is_answered(gate: Gate) -> None:
    """Statements at random, over sums up to 2^68 with errors up to 10^18 times what a record adds."""
    session, paid, refused = gate.session(), 0, 0
    for sql, error in statements(150):
        gate.refresh("people")
        session.execute(f"SET noisegate.error = {error}")
        before = spent(gate)
        try:
            described = session.describe(sql)
            result = session.execute(sql)
        except Refusal:
            refused += 1
            charged_for_nothing = spent(gate) > before
        else:
            assert result.columns == described
            paid += spent(gate) > before
            charged_for_nothing = False
        assert not charged_for_nothing, (sql, error)
    assert paid > 80  # most statements are answered
    assert refused < 50


def one(session: Session, sql: str) -> Result:
    return session.execute(sql)


@pytest.mark.parametrize("error", ["1", "30", "1e6"])
def test_a_sum_beyond_a_bigint_comes_in_a_wider_type(gate: Gate, error: str) -> None:
    session = gate.session()
    session.execute(f"SET noisegate.error = {error}")
    result = one(session, "SELECT sum(big) AS total FROM people")
    [interval], [value] = result.intervals[0], result.rows[0]
    assert [column.type for column in result.columns] == ["HUGEINT"]
    assert interval is not None
    assert interval[0] <= float(value) <= interval[1]
    deviation = (interval[1] - interval[0]) / 2 / 1.96
    assert abs(value - 60 * 4 * 10**18) < 7 * deviation  # once in 10^11 runs it is not
    assert [column.type for column in one(session, "SELECT sum(g), count(*) FROM people").columns] == ["BIGINT"] * 2


def test_what_noise_makes_impossible_is_null_in_its_row_only(gate: Gate) -> None:
    """Nobody is in group 4, and 15 people are in each other one: 33,000 is too much for a smallint."""
    session = gate.session()
    session.execute("SET noisegate.error = 0.05")
    numbers = "(30000 * count(*))::int / 14 AS n, (2200 * count(*))::smallint AS m"
    rows = one(session, f"SELECT g, {numbers} FROM people GROUP BY g ORDER BY g").rows
    assert [row[2] for row in rows] == [None, None, None, None, 0]
    assert [row[1] for row in rows] == [32142, 32142, 32142, 32142, 0]


def test_dates_that_no_client_can_read_are_null(gate: Gate) -> None:
    session = gate.session()
    session.execute("SET noisegate.error = 0.05")
    sql = "SELECT {} + (count(*) * 100000)::int * interval '1 day', {} + count(*)::int FROM people"
    rows = one(session, sql.format("timestamp '2000-01-01'", "date '2000-01-01'")).rows
    assert [(row[0], str(row[1])) for row in rows] == [(None, "2000-03-01")]


def test_what_fails_whatever_the_noise_is_refused_before_it_is_paid_for(gate: Gate) -> None:
    for sql in (
        "SELECT word::int, count(*) FROM people GROUP BY word",
        "SELECT count(*), 'abc'::int FROM people",
        "SELECT count(*) + ('x' || g)::int FROM people GROUP BY g",
        f"SELECT a.g FROM {GROUPS} AS a, (SELECT unnest(string_split(repeat('a,', 300000), ',')) AS x) AS b",
    ):
        with pytest.raises(Refusal):
            one(gate.session(), sql)
        assert spent(gate) == 0, sql


def test_what_can_not_be_told_after_all_is_free_in_another_form(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if no way of telling it was left: the charge stays, and so does what it bought."""
    session = gate.session()
    monkeypatch.setattr("planner.session.forgiving", lambda post: post)
    session.execute("SET noisegate.error = 0.05")
    with pytest.raises(EvaluationFailed, match="can't be worked out from the noisy numbers") as failure:
        one(session, "SELECT (2200 * count(*))::smallint FROM people")
    assert failure.value.hint is not None
    assert "free" in failure.value.hint
    before = spent(gate)
    assert before > 0
    assert one(session, "SELECT 2200 * count(*) FROM people").rows == [(132000,)]
    assert spent(gate) == before


def test_a_question_about_public_things_still_says_what_is_wrong(gate: Gate) -> None:
    with pytest.raises(EvaluationFailed):
        one(gate.session(), "SELECT 'abc'::int")


def test_sums_that_floating_point_can_not_tell_to_the_unit_say_so(gate: Gate) -> None:
    """Intervals are never narrower than floating point, nor the wrong way round."""
    session = gate.session()
    for error, aggregate in itertools.product(("0.5", "30"), ("sum(large)", "sum(big)", "avg(large)")):
        session.execute(f"SET noisegate.error = {error}")
        result = one(session, f"SELECT {aggregate} FROM people")
        [interval], [value] = result.intervals[0], result.rows[0]
        assert interval is not None
        assert interval[0] < interval[1]
        assert interval[0] <= float(value) <= interval[1]
