"""What is known is not paid for twice: coarser is free, finer is cheaper, answers agree and only get better."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest
from scipy.stats import chi2

from mechanisms.noise import sampling
from planner.gate import Gate
from planner.history import atlas, recall
from planner.questions import body
from planner.questions.linear import corners
from planner.session import Session

POLICY = """[budget]
epsilon = 1000.0
delta = 1e-9
[tables.people]
source = "people.parquet"
[tables.people.columns]
sex = { values = ["F", "M"] }
region = { values = ["n", "e", "s", "w", "c"] }
level = { type = "integer", min = 1, max = 9 }
income = { type = "integer", min = 0, max = 1000, role = "measure" }
[tables.others]
source = "people.parquet"
[tables.others.columns]
sex = { values = ["F", "M"] }
"""
ROWS = """SELECT CASE WHEN hash(i) % 3 = 0 THEN 'F' ELSE 'M' END AS sex,
    (['n', 'e', 's', 'w', 'c'])[1 + (hash(i + 1) % 5)::INTEGER] AS region,
    1 + (hash(i + 2) % 9)::INTEGER AS level, (hash(i + 3) % 1001)::INTEGER AS income FROM range(20000) AS r(i)"""
ONE = Fraction(1, 2) * Fraction(1.959963984540054) ** 2 / 2500
"""What one count at ± 50 costs."""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    duckdb.execute(f"COPY ({ROWS}) TO '{tmp_path / 'people.parquet'}'")
    (tmp_path / "noisegate.toml").write_text(POLICY)
    return tmp_path / "noisegate.toml"


@pytest.fixture
def gate(policy: Path) -> Iterator[Gate]:
    found = Gate.open(policy)
    yield found
    found.close()


@pytest.fixture
def session(gate: Gate) -> Session:
    return gate.session()


def spent(session: Session) -> float:
    return float(session.execute("SELECT rho_spent FROM noisegate.budget").rows[0][0])


def rows_of(session: Session, sql: str) -> dict[tuple[object, ...], float]:
    return {row[:-1]: row[-1] for row in session.execute(sql).rows}


def test_coarser_after_finer_is_free_when_it_is_accurate_enough(session: Session) -> None:
    session.execute("SELECT sex, region, count(*) FROM people GROUP BY sex, region")
    session.execute("SET noisegate.error = 112")  # the sum of five counts at ± 50
    assert session.execute("SELECT sex, count(*) FROM people GROUP BY sex").cost == 0
    assert session.explain("SELECT sex, count(*) FROM people GROUP BY sex").path == "free"


def test_finer_after_coarser_is_cheaper_than_afresh(session: Session) -> None:
    session.execute("SELECT count(*) FROM people WHERE level <= 4")
    found = session.explain("SELECT level <= 4, sex, count(*) FROM people GROUP BY 1, 2")
    assert found.path == "join"
    assert found.rho_after - found.rho_before < Fraction(1, 2) * ONE


def test_a_sharper_error_pays_the_difference_only(session: Session) -> None:
    first = session.execute("SELECT sex, count(*) FROM people GROUP BY sex").cost
    session.execute("SET noisegate.error = 25")
    second = session.execute("SELECT sex, count(*) FROM people GROUP BY sex").cost
    assert float(first + second) == pytest.approx(float(4 * ONE), rel=1e-2)
    assert session.execute("SELECT sex, count(*) FROM people GROUP BY sex").cost == 0


def test_sum_count_and_average_of_the_same_cells_share_what_is_known(session: Session) -> None:
    session.execute("SELECT sex, avg(income) FROM people GROUP BY sex")
    assert session.execute("SELECT sex, count(*) FROM people GROUP BY sex").cost == 0
    session.execute("SET noisegate.error = 80")
    assert session.execute("SELECT sex, sum(income) FROM people GROUP BY sex").cost == 0


def test_sums_follow_from_counts_of_every_value(session: Session) -> None:
    session.execute("SELECT level, count(*) FROM people GROUP BY level")
    session.execute("SET noisegate.error = 150")
    assert session.execute("SELECT sum(level), avg(level) FROM people").cost == 0


def test_totals_are_the_sums_of_their_parts_up_to_rounding(session: Session) -> None:
    asked = ["sex", "region", "sex, region", "level <= 4", "level", "sex, level > 6"]
    for keys in asked:
        session.execute(f"SELECT {keys}, count(*) FROM people GROUP BY {keys}")
    session.execute("SET noisegate.error = 1000")
    total = rows_of(session, "SELECT count(*) FROM people")[()]
    for keys in asked:
        parts = rows_of(session, f"SELECT {keys}, count(*) FROM people GROUP BY {keys}")
        assert abs(sum(parts.values()) - total) <= 0.5 * (len(parts) + 1), keys


def test_asking_again_later_is_free_and_at_least_as_accurate(session: Session) -> None:
    sql = "SELECT sex, count(*) AS n FROM people GROUP BY sex"
    first = session.execute(sql)
    session.execute("SET noisegate.error = 10")
    session.execute("SELECT sex, region, count(*) FROM people GROUP BY sex, region")
    session.execute("SET noisegate.error = 50")
    again = session.execute(sql)
    assert again.cost == 0
    for before, after in zip(first.intervals, again.intervals, strict=True):
        assert before[1] is not None
        assert after[1] is not None
        assert after[1][1] - after[1][0] < before[1][1] - before[1][0]


def test_as_of_gives_the_earlier_answer_to_the_digit(session: Session) -> None:
    sql = "SELECT sex, count(*) AS n FROM people GROUP BY sex"
    first = session.execute(sql)
    session.execute("SET noisegate.error = 10")
    session.execute("SELECT sex, region, count(*) FROM people GROUP BY sex, region")
    session.execute("SET noisegate.error = 50")
    assert session.execute(sql).intervals != first.intervals
    session.execute("SET noisegate.as_of = 1")
    assert session.execute(sql).rows == first.rows
    assert session.execute(sql).intervals == first.intervals


def test_history_of_another_table_or_of_older_data_is_not_used(gate: Gate, session: Session) -> None:
    sql = "SELECT sex, count(*) FROM {} GROUP BY sex"
    session.execute(sql.format("people"))
    assert session.explain(sql.format("others")).path == "direct"
    gate.refresh("people")
    assert session.explain(sql.format("people")).path == "direct"


def test_a_gate_opened_later_recalls_what_another_released(policy: Path, session: Session) -> None:
    sql = "SELECT region, count(*) FROM people GROUP BY region"
    answer = session.execute(sql)
    other = Gate.open(policy)
    try:
        found = other.session().execute(sql)
        assert (found.cost, found.rows) == (0, answer.rows)
    finally:
        other.close()


def no_noise(size: int, *, bits: int) -> np.ndarray:  # the signature of the sampler
    return np.zeros(size, dtype=np.int64)


def random_query(generator: random.Random) -> str:
    keys, tests = [], []
    for column, values in (("sex", "FM"), ("region", "neswc"), ("level", "123456789")):
        kind = generator.random()
        if kind < 0.35:
            keys.append(column)
        elif kind < 0.7 and column == "level" and generator.random() < 0.5:
            low, high = sorted(generator.choices(range(1, 10), k=2))
            tests.append(f"level BETWEEN {low} AND {high}")
        elif kind < 0.7:
            tests.append(f"{column} = '{generator.choice(values)}'")
    measured = generator.choice(["count(*)", "count(*)", "count(*)", "sum(income)"])
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, measured])} FROM people{where}{group}"


def test_a_dashboard_of_a_hundred_questions_costs_less_than_a_twelfth(session: Session) -> None:
    generator = random.Random(7)
    fresh = Fraction(0)
    for _ in range(100):
        sql = random_query(generator).replace("sum(income)", "count(*)")
        found = session.execute(sql)
        assert found.plan is not None
        fresh += ONE
    assert spent(session) < float(fresh) / 12


def test_every_answer_of_a_stream_is_exact_without_noise(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "rounded_gaussian", no_noise)
    generator, gate = random.Random(3), Gate.open(policy)
    try:
        session = gate.session()
        paths = set()
        for _ in range(60):
            sql = random_query(generator)
            found = session.execute(sql)
            assert found.plan is not None
            paths.add(found.plan.path)
            expected = {
                row[:-1]: row[-1]
                for row in duckdb.execute(sql.replace("people", f"'{policy.parent / 'people.parquet'}'")).fetchall()
            }
            for row in found.rows:
                assert row[-1] == pytest.approx(float(expected.get(row[:-1]) or 0), abs=1.0), sql
        assert {"free", "join", "direct"} <= paths
    finally:
        gate.close()


def test_what_a_stream_stores_is_charged_on_every_cell(gate: Gate, session: Session) -> None:
    """The booked cost is at least |B phi|^2 / 2 of every record that there can be, computed anew in fractions."""
    generator = random.Random(11)
    for _ in range(12):
        session.execute(random_query(generator))
    table = gate.policy.tables["people"]
    stored = [release for release in gate.ledger.releases() if release.kind == "linear"]
    assert len(stored) >= 6
    for release in stored:
        found = body.read(release, table)
        assert found is not None
        question, measurement, _ = found
        B, highest = measurement.rows(question), Fraction(0)
        phi, place = corners(question.features, question.low, question.high)
        for point, where in zip(phi, place, strict=True):
            here = B[:, question.pattern[where]]
            total = [sum(int(b) * int(p) for b, p in zip(row, point, strict=True)) for row in here]
            highest = max(highest, Fraction(sum(value * value for value in total), 8 * 4**measurement.bits))
        assert highest > 0
        booked = Fraction(release.cost.highest, 2**50)
        assert highest <= booked <= highest * (1 + Fraction(1, 10**9)) + Fraction(1, 2**49)


def test_stated_errors_of_recalled_answers_are_the_real_ones(policy: Path) -> None:
    """100 gates answer the same stream, and z of the last answer is N(0, 1): the sum of z^2 is chi-squared.

    False alarm below 1e-6; errors stated half as large as they are would be missed with probability below 1e-3.
    """
    stream = [
        "SELECT sex, region, count(*) FROM people GROUP BY sex, region",
        "SELECT region, count(*) FROM people WHERE level <= 5 GROUP BY region",
        "SELECT count(*) FROM people WHERE sex = 'F' AND level <= 6",
    ]
    truth = duckdb.execute(
        f"SELECT count(*) FROM '{policy.parent / 'people.parquet'}' WHERE sex = 'F' AND level <= 6"
    ).fetchall()[0][0]
    scores = []
    for number in range(100):
        folder = policy.parent / str(number)
        folder.mkdir()
        text = POLICY.replace('"people.parquet"', f'"{policy.parent / "people.parquet"}"')
        (folder / "noisegate.toml").write_text(text)
        gate = Gate.open(folder / "noisegate.toml")
        session = gate.session()
        answers = [session.execute(sql) for sql in stream]
        interval = answers[-1].intervals[0][0]
        assert interval is not None
        middle, half = sum(interval) / 2, (interval[1] - interval[0]) / 2
        scores.append((middle - truth) / (half / session.settings.z))
        gate.close()
    tail = chi2(len(scores)).cdf(np.sum(np.square(scores)))
    assert 2.5e-7 < tail < 1 - 2.5e-7
    assert abs(np.mean(scores)) < 5.1 / len(scores) ** 0.5
    assert chi2(len(scores)).cdf(chi2(len(scores)).ppf(1 - 2.5e-7) / 2**2) < 1e-3


def test_no_pair_of_identical_questions_is_charged_twice(session: Session) -> None:
    generator = random.Random(5)
    asked = [random_query(generator) for _ in range(15)]
    for sql in itertools.chain(asked, asked):
        session.execute(sql)
    before = spent(session)
    for sql in asked:
        assert session.execute(sql).cost == 0
    assert spent(session) == before


def test_groups_that_can_not_be_are_answered_after_others_were(session: Session) -> None:
    session.execute("SELECT sex, count(*) FROM people GROUP BY sex")
    sql = "SELECT sex, count(*), count(*) FILTER (WHERE level > 3) FROM people WHERE level > 9 GROUP BY sex"
    assert session.execute(sql).rows == []


@pytest.mark.parametrize("seed", range(4))
def test_where_history_does_not_fit_nothing_is_paid_twice_and_answers_are_right(
    policy: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """On charts of 24 points, where all columns have 90 cells: releases are folded, and chosen among."""
    for module in (atlas, recall):
        monkeypatch.setattr(module, "MAX_POINTS", 24)
    monkeypatch.setattr(sampling, "rounded_gaussian", no_noise)
    generator, gate, seen = random.Random(seed), Gate.open(policy), set[str]()
    try:
        session = gate.session()
        for _ in range(40):
            sql = generator.choice(sorted(seen)) if seen and generator.random() < 0.4 else random_query(generator)
            found = session.execute(sql)
            assert found.cost == 0 or sql not in seen, sql
            seen.add(sql)
            expected = {
                row[:-1]: row[-1]
                for row in duckdb.execute(sql.replace("people", f"'{policy.parent / 'people.parquet'}'")).fetchall()
            }
            for row in found.rows:
                assert row[-1] == pytest.approx(float(expected.get(row[:-1]) or 0), abs=1.0), sql
    finally:
        gate.close()


@pytest.mark.parametrize("seed", range(3))
def test_where_history_does_not_fit_gates_agree_now_and_as_of_any_release(
    policy: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Two gates take turns; a third one, which has not seen a question, gives the answers that there were each time."""
    for module in (atlas, recall):
        monkeypatch.setattr(module, "MAX_POINTS", 48)
    generator, gates = random.Random(seed), [Gate.open(policy), Gate.open(policy)]
    sessions = [gate.session() for gate in gates]
    asked = []
    for turn in range(24):
        sql = random_query(generator)
        found = sessions[turn % 2].execute(sql)
        again = sessions[1 - turn % 2].execute(sql)
        assert again.cost == 0, sql
        assert same(again.rows, found.rows), sql
        [(last,)] = sessions[0].execute("SELECT max(id) FROM noisegate.releases").rows
        asked.append((sql, last, found.rows))
    gates.append(Gate.open(policy))
    late = gates[-1].session()
    for sql, _, _ in asked:
        found = late.execute(sql)
        assert found.cost == 0, sql
        assert same(found.rows, sessions[0].execute(sql).rows), sql
    for sql, last, rows in asked:
        late.execute(f"SET noisegate.as_of = {last}")
        assert same(late.execute(sql).rows, rows), sql
    for gate in gates:
        gate.close()


def same(one: list[tuple[object, ...]], other: list[tuple[object, ...]]) -> bool:
    return [row[:-1] for row in one] == [row[:-1] for row in other] and [row[-1] for row in one] == pytest.approx(
        [row[-1] for row in other], rel=1e-9, abs=1e-6
    )


def test_the_parts_of_one_statement_share_what_they_release(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is planned after those before it, whose outcome is not known then; and is answered with it."""
    monkeypatch.setattr(sampling, "rounded_gaussian", no_noise)
    gate = Gate.open(policy)
    sql = """SELECT 'all' AS k, count(*) AS n FROM people UNION ALL SELECT sex, count(*) FROM people GROUP BY sex
             UNION ALL SELECT region, count(*) FROM people WHERE level > 3 GROUP BY region"""
    try:
        found = gate.session().execute(sql)
        expected = duckdb.execute(sql.replace("people", f"'{policy.parent / 'people.parquet'}'")).fetchall()
        assert sorted(found.rows) == sorted(expected)
        assert found.cost < 3 * ONE * Fraction(9, 10)
        assert gate.session().execute(sql).rows == found.rows
    finally:
        gate.close()
