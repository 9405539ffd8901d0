"""noisegate.verify decides about answers on a synthetic table: from exact statistics, at a booked price, only once.

Decisions that are asserted have errors below 2e-9 by their own closed form (`certain` checks it): in all tests
together a false alarm has probability below 1e-6. Halved noise or a swapped end of an interval shows in
`test_a_decider_sees_exactly_the_statistics_of_the_table`, which has no noise at all.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import noisegate
from mechanisms.deciders import claims, deciders
from mechanisms.deciders.claims import Buckets, Claim, Histogram, Ranks, Totals
from planner.basics.errors import (
    BadValue,
    BudgetExceeded,
    Forbidden,
    LedgerFailed,
    NotGrouped,
    Refusal,
    SourceFailed,
    SyntaxRefusal,
    TooLarge,
    UnknownColumn,
    UnknownFunction,
    UnknownTable,
    Unsupported,
    WrongType,
)
from planner.calls.call import Constant
from planner.calls.verify.decisions import stored_rows
from planner.calls.verify.synthetic import subject
from planner.calls.verify.verify import COLUMNS, DECIDERS, Verification
from planner.cells.costs import rho_of, to_units
from planner.counting.tally import Cut
from planner.gate import Gate
from planner.questions import body as bodies
from planner.questions.statistic import Ranked, Summed
from planner.session import Session
from planner.sources.duckdb import DuckdbSource
from tests.planner.gates import open_gate, write

PEOPLE = """SELECT CASE WHEN i % 2 = 0 THEN 'F' ELSE 'M' END AS sex, (i // 2 % 100)::INTEGER AS age,
    (i * 7919 % 5001)::INTEGER AS income, ((i * 31) % 401 - 200)::INTEGER AS debt, (i % 251) / 100.0 AS height,
    CASE WHEN i % 5 = 0 THEN NULL ELSE i % 50 END AS score, ['Bern', 'Oslo', NULL][1 + i % 3] AS city,
    DATE '2020-01-01' + CAST(i % 366 AS INTEGER) AS joined, 'secret' AS note FROM range(20000) AS r(i)"""
COPY = f"""SELECT * REPLACE (CASE WHEN sex = 'M' THEN age // 2 ELSE age END AS age) FROM ({PEOPLE})
    WHERE (sex = 'F' OR age < 50)"""
"""Right for women. Half of the men are missing, and those who are there are half as old."""

COLUMNS_TOML = """sex = { values = ["F", "M"] }
age = { type = "integer", min = 0, max = 99 }
income = { type = "integer", min = 0, max = 5000, role = "measure" }
debt = { type = "integer", min = -200, max = 200, role = "measure" }
height = { type = "float", min = 0, max = 2.5, step = 0.01 }
score = { type = "integer", min = 0, max = 1_000_000_000, nullable = true }
city = { values = ["Bern", "Oslo"], nullable = true }
joined = { type = "date", min = "2020-01-01", max = "2020-12-31" }
note = { hidden = true }"""
REST = """[analysts.ann]
share = 0.6
[analysts.bob]
share = 0.4
[tables.copy]
source = "copy.parquet"
synthetic_of = "people"
[tables.cities]
source = "cities.csv"
public = true
[tables.tags]
source = "tags.csv"
public = true
[views.grown]
sql = "SELECT * FROM copy WHERE age >= 18"
"""


def call(sql: str, rest: str = "tau => 500, epsilon => 1") -> str:
    return f"SELECT * FROM noisegate.verify($${sql}$$, {rest})"


def make(folder: Path, *, people: str = PEOPLE, copy: str = COPY, **options: Any) -> Gate:
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "copy.parquet", copy)
    (folder / "cities.csv").write_text("city,land\nBern,CH\nOslo,NO\n", encoding="utf-8")
    (folder / "tags.csv").write_text("city,tag\nBern,a\nBern,b\nOslo,a\n", encoding="utf-8")
    return open_gate(folder, people, columns=COLUMNS_TOML, rest=REST, **options)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    found = make(tmp_path)
    yield found
    found.close()


@pytest.fixture
def session(gate: Gate) -> Session:
    return gate.session("ann")


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """A gate with a large budget, for tests that do not mind what was spent before."""
    found = make(tmp_path_factory.mktemp("shared"), epsilon=100_000.0)
    yield found
    found.close()


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    """The same, where it is known how many women and men there are."""
    found = make(tmp_path_factory.mktemp("counted"), epsilon=100_000.0)
    session = found.session("ann")
    session.execute("SET noisegate.error = 20")
    session.execute("SELECT sex, count(*) FROM people GROUP BY sex")
    yield found
    found.close()


@pytest.fixture(scope="module")
def truth() -> Iterator[duckdb.DuckDBPyConnection]:
    """Both tables as the policy sees them: all values lie in their domains."""
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE people AS {PEOPLE}; CREATE TABLE copy AS {COPY}")
        connection.execute("CREATE VIEW grown AS SELECT * FROM copy WHERE age >= 18")
        yield connection


def told(session: Session, sql: str) -> list[dict[str, Any]]:
    result = session.execute(sql)
    return [dict(zip([column.name for column in result.columns], row, strict=True)) for row in result.rows]


def spent(session: Session) -> Fraction:
    return rho_of(session.gate.ledger.spent("default"))


def certain(row: dict[str, Any], gap: float) -> bool:
    """Return whether a decision is wrong with probability below 2e-9 at a true gap, by its own closed form."""
    wrong = {float(at): chance for at, chance in json.loads(row["wrong"])}
    nearest = [
        chance for at, chance in wrong.items() if (at <= row["tau"]) == (gap < row["tau"]) and at <= max(gap, 1e-9)
    ]
    return bool(nearest) and nearest[-1] < 2e-9 if gap >= row["tau"] else wrong[0.0] < 2e-9


# --- decisions ---------------------------------------------------------------------------------------------

CLEAR = [
    ("count(*)", "tau => 1000, epsilon => 1", ["auto", "LM_count", "EM_count"], 5000),
    ("sum(income)", "tau => 3000000, epsilon => 1", ["auto", "LM_sum", "EM_sum", "R2T_sum"], 12_000_000),
    ("sum(debt)", "tau => 30000, epsilon => 8", ["auto", "LM_sum", "EM_sum"], None),
    ("avg(age)", "tau => 5, epsilon => 1", ["auto", "LM_avg", "EM_avg"], 37),
    ("median(age)", "tau => 5, epsilon => 1", ["auto", "EM_med", "EM_rank", "Hist_med"], 37),
    ("percentile_disc(0.9) WITHIN GROUP (ORDER BY age)", "tau => 9, epsilon => 1", ["auto", "EM_rank"], 65),
]


@pytest.mark.parametrize(("aggregate", "rest", "names", "gap"), CLEAR)
def test_what_is_right_holds_and_what_is_far_off_does_not(
    shared: Gate, counted: Gate, aggregate: str, rest: str, names: list[str], gap: float | None
) -> None:
    """How often averages and quantiles are decided wrongly depends on how many rows there are."""
    session = (shared if aggregate.startswith(("count", "sum")) else counted).session("ann")
    for name in names:
        rows = told(session, call(f"SELECT sex, {aggregate} FROM copy GROUP BY sex", f"{rest}, decider => '{name}'"))
        women, men = sorted(rows, key=lambda row: str(row["sex"]))
        assert certain(women, 0.0)
        assert women["decision"] is True
        if gap is not None:
            assert men["decision"] is False
        if name != "auto":
            assert {women["decider"], men["decider"]} == {name}


def test_svt_says_no_to_a_sum_that_is_far_too_large_and_yes_to_a_right_one(shared: Gate) -> None:
    """It looks at truncated sums only: the claimed one is met by some truncation or by none (error below 1e-9)."""
    session, rest = shared.session("ann"), "tau => 10000000, epsilon => 20, decider => 'SVT_sum'"
    (row,) = told(session, call("SELECT sum(income) FROM copy WHERE sex = 'F'", rest))
    assert json.loads(row["wrong"])[0][1] < 1e-9
    assert row["decision"] is True
    (row,) = told(session, call("SELECT sum(income) FROM copy WHERE sex = 'M'", rest))
    assert row["decision"] is False


def test_a_row_tells_the_interval_the_price_and_the_errors(session: Session) -> None:
    sql = call("SELECT count(*) FROM copy WHERE sex = 'F'", "tau => '3.2%', epsilon => 0.25, decider => 'EM_count'")
    result = session.execute(sql)
    assert [column.name for column in result.columns] == list(COLUMNS)
    assert [column.type for column in result.columns] == list(COLUMNS.values())
    (row,) = told(session, sql)
    assert (row["synthetic"], row["tau"]) == (10_000, 320)
    assert (row["low"], row["high"]) == (9680, 10_320)
    assert row["epsilon"] == 0.25
    assert row["rho"] == pytest.approx(0.25**2 / 8)
    assert row["effective_tau"] == pytest.approx(4 * np.log(19))
    assert row["delta"] == 0.05
    wrong = dict(json.loads(row["wrong"]))
    assert list(wrong) == [0, 160, 288, 320, 352, 480, 640, 960]
    assert wrong[320.0] == 0.5
    assert wrong[288.0] == pytest.approx(1 / (1 + np.exp(8)))
    assert float(result.cost) == pytest.approx(0.25**2 / 8)
    assert rho_of(to_units(Fraction(1, 128))) == result.cost


def test_delta_moves_the_threshold_and_not_the_decision(session: Session) -> None:
    question = "SELECT count(*) FROM copy WHERE sex = 'F'"
    first = told(
        session, call(question, "tau => 500, epsilon => 1, delta => 0.01, decider => 'LM_count', explain => true")
    )
    assert first[0]["effective_tau"] == pytest.approx(np.log(100), rel=1e-6)


@pytest.mark.parametrize(
    "aggregate",
    [
        "count(*)", "count(score)", "count(*) FILTER (WHERE city = 'Oslo')", "sum(income)", "sum(debt)",
        "sum(2 * age + 1)",
        "sum(height)", "sum(CASE WHEN city = 'Bern' THEN income END)", "sum(CASE WHEN age > 20 THEN 1 ELSE 0 END)",
        "avg(income)", "avg(height)", "avg(score)", "avg(CASE WHEN age > 20 THEN 1 ELSE 0 END)", "median(age)",
        "median(height)", "percentile_cont(0.25) WITHIN GROUP (ORDER BY income)",
        "percentile_disc(0.25) WITHIN GROUP (ORDER BY debt)", "quantile_cont(age, 0.9)", "sum(age * debt)",
    ],
)  # fmt: skip
def test_the_synthetic_answer_is_that_of_the_plain_select(shared: Gate, aggregate: str) -> None:
    session = shared.session("ann")
    for tail in ("WHERE age < 40", "GROUP BY sex", "WHERE city IS NULL GROUP BY 1"):
        head = "sex, " if "GROUP" in tail else ""
        sql = f"SELECT {head}{aggregate} AS answer FROM copy {tail}"
        exact = dict.fromkeys(["F", "M", None]) | {
            (row[0] if head else None): row[-1] for row in session.execute(sql).rows
        }
        decider = {"count": "LM_count", "sum": "LM_sum", "avg": "LM_avg"}.get(aggregate.partition("(")[0], "EM_rank")
        for row in told(session, call(sql, f"tau => 50, epsilon => 1, explain => true, decider => '{decider}'")):
            found = exact[row.get("sex")]
            if row["compared"] is None:
                assert row["synthetic"] == pytest.approx(float(found or 0), rel=1e-9)
            else:  # a quantile between two values, in whichever the truth is not sought
                assert row["compared"] == "a value that occurs, where a plain SELECT has its answer between two"
                assert row["synthetic"] == pytest.approx(float(found or 0), rel=0.01, abs=0.5)
                assert row["synthetic"] != found


def test_views_public_joins_and_aliases_are_read_as_they_are_elsewhere(session: Session) -> None:
    plain = session.execute("SELECT count(*) FROM grown").rows[0][0]
    (row,) = told(session, call("SELECT count(*) FROM grown"))
    assert row["synthetic"] == plain
    sql = "SELECT c.land, count(*) AS n FROM copy JOIN cities c ON copy.city = c.city GROUP BY c.land"
    rows = told(session, call(sql))
    assert {row["land"]: row["synthetic"] for row in rows} == dict(session.execute(sql).rows)
    (row,) = told(
        session,
        call(
            "WITH young AS (SELECT age FROM copy AS c WHERE c.age < 9) SELECT avg(age) FROM young",
            "tau => 9, epsilon => 1",
        ),
    )
    assert 0 < row["synthetic"] < 9


def test_groups_have_their_keys_in_their_own_types(session: Session) -> None:
    rows = told(session, call("SELECT date_trunc('month', joined) AS month, city, count(*) FROM copy GROUP BY 1, 2"))
    assert len(rows) == 36
    assert {row["city"] for row in rows} == {"Bern", "Oslo", None}
    names = session.describe(call("SELECT age / 10 AS decade, sex, count(*) FROM copy GROUP BY 1, 2"))
    assert [(column.name, column.type) for column in names[:3]] == [
        ("decade", "BIGINT"), ("sex", "VARCHAR"), ("decision", "BOOLEAN"),
    ]  # fmt: skip
    outer = "SELECT count(*), sum(CASE WHEN decision THEN 1 ELSE 0 END) FROM"
    sql = call("SELECT age / 10 AS decade, sex, count(*) FROM copy GROUP BY 1, 2").replace("SELECT * FROM", outer)
    assert session.execute(sql).rows[0][0] == 20


def test_where_there_is_nothing_to_claim_nothing_is_decided_or_paid(tmp_path: Path) -> None:
    gate = make(tmp_path, copy=f"SELECT * FROM ({COPY}) WHERE sex = 'F'")
    session = gate.session("ann")
    women, men = told(
        session, call("SELECT sex, avg(age) FROM copy GROUP BY sex ORDER BY sex", "tau => 5, epsilon => 1")
    )
    assert women["decision"] is True
    assert (men["decision"], men["decider"], men["rho"], men["synthetic"]) == (None, None, 0, None)
    (release,) = gate.ledger.releases()
    assert [float(rho_of(int(units))) for units in release.cost.values] == [pytest.approx(women["rho"], rel=1e-9), 0]
    _, men = told(
        session, call("SELECT sex, count(*) FROM copy GROUP BY sex ORDER BY sex", "tau => '5%', epsilon => 1")
    )
    assert men["decision"] is None
    assert "give tau as a number" in men["why"]
    (row,) = told(session, call("SELECT count(*) FROM copy WHERE age > 200"))
    assert (row["decision"], row["decider"], row["synthetic"], row["rho"]) == (True, "free", 0, 0)
    gate.close()


# --- what deciders see -------------------------------------------------------------------------------------


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Deciders and what they were given, in the order of groups."""
    found: list[tuple[Any, Any]] = []

    def noted(decider: Any, statistics: Any) -> bool:
        found.append((decider, statistics))
        return bool(decider.truth(statistics))

    monkeypatch.setattr(deciders, "decide", noted)
    return found


def values(truth: duckdb.DuckDBPyConnection, expression: str, where: str) -> Histogram:
    rows = truth.execute(
        f"SELECT {expression} AS v, count(*) FROM people WHERE {where} GROUP BY 1 ORDER BY 1"
    ).fetchall()
    kept = [(value, count) for value, count in rows if value is not None]
    return Histogram(np.array([v for v, _ in kept], np.int64), np.array([n for _, n in kept], np.int64))


EXPRESSIONS = ["income", "debt", "age", "2 * debt - 7", "100 - age", "3 * income + 1"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    expression=st.sampled_from(EXPRESSIONS),
    where=st.sampled_from(["sex = 'F'", "age BETWEEN 20 AND 41 OR city = 'Oslo'", "income > 2500", "city IS NULL"]),
    kind=st.sampled_from(["count", "sum", "avg", "median"]),
    tau=st.sampled_from([Fraction(1, 2), Fraction(12), Fraction(399, 4)]),
)
def test_a_decider_sees_exactly_the_statistics_of_the_table(
    shared: Gate, truth: duckdb.DuckDBPyConnection, expression: str, where: str, kind: str, tau: Fraction
) -> None:
    """One row more or less, a value in the next bucket, an end on the wrong side: all would show."""
    about = subject(shared, Constant(f"SELECT {kind}({expression}) FROM copy WHERE {where}"), taken=())
    expected = values(truth, expression, where)
    grid = about.asked.unit.denominator
    claim = Claim(expected.quantile(Fraction(1, 2)), tau * grid)
    least, most = about.asked.bounds if isinstance(about.asked, Summed) else (0, 0)
    domain = tuple(about.asked.values.tolist()) if isinstance(about.asked, Ranked) else ()
    query = deciders.Query(kind=about.asked.kind, claim=claim, least=least, most=most, domain=domain)
    for decider in deciders.candidates(query, epsilon=Fraction(1, 2)).values():
        found = shared.meters["people"]._exact.statistics(about.asked, {0: decider})[0]
        assert isinstance(found, decider.statistics)
        if isinstance(found, Buckets):
            assert found == claims.buckets_of(expected, most=decider.most)  # type: ignore[attr-defined]
        elif isinstance(found, Totals):
            assert found == Totals(expected.total * grid, expected.rows)
        elif isinstance(found, Ranks):
            assert found == claims.ranks_of(expected, claim)
        elif isinstance(found, Histogram):
            assert np.array_equal(found.values, expected.values)
            assert np.array_equal(found.counts, expected.counts)
        else:
            assert found == (expected.rows if kind == "count" else expected.total)


def test_one_row_less_is_one_row_less(tmp_path: Path) -> None:
    """A neighbour of the table: what is seen differs by the row that is missing, in its own group and bucket."""
    found = []
    for name, people in (
        ("all", PEOPLE),
        ("less", f"SELECT * FROM ({PEOPLE}) WHERE NOT (sex = 'M' AND income = 4801)"),
    ):
        gate = make(tmp_path / name, people=people)
        about = subject(gate, Constant("SELECT sex, sum(income) FROM copy GROUP BY sex"), taken=())
        assert isinstance(about.asked, Summed)
        found.append(gate.meters["people"]._exact.buckets(about.asked))
        gate.close()
    (women, men), (same, fewer) = found
    assert women == same
    rows = [a - b for a, b in zip(men.counts, fewer.counts, strict=True)]
    sums = [a - b for a, b in zip(men.sums, fewer.sums, strict=True)]
    assert (rows[:-1], sums[:-1]) == ([0] * (len(rows) - 1), [0] * (len(rows) - 1))
    assert rows[-1] == 2  # two men have it
    assert sums[-1] == 2 * 4801


def test_groups_see_their_own_rows_and_floats_are_whole_on_their_grid(
    shared: Gate, truth: duckdb.DuckDBPyConnection, seen: list[tuple[Any, Any]]
) -> None:
    told(
        shared.session("ann"),
        call("SELECT city, sum(height) FROM copy GROUP BY city", "tau => 7.5, epsilon => 3, decider => 'R2T_sum'"),
    )
    rows = truth.execute("SELECT city, sum(round(height * 100)) FROM people GROUP BY city ORDER BY city").fetchall()
    assert [int(found.total) for _, found in seen] == [int(total) for _, total in rows]
    assert {decider.claim.tau for decider, _ in seen} == {750}
    assert {decider.most for decider, _ in seen} == {250}


def test_a_column_too_large_to_write_out_is_summed_in_buckets(shared: Gate, truth: duckdb.DuckDBPyConnection) -> None:
    about = subject(shared, Constant("SELECT sum(score) FROM copy WHERE sex = 'M'"), taken=())
    assert isinstance(about.asked, Summed)
    assert about.asked.most == 10**9
    (found,) = shared.meters["people"]._exact.buckets(about.asked)
    assert found == claims.buckets_of(values(truth, "score", "sex = 'M'"), most=10**9)


@pytest.mark.parametrize("name", [name for name in DECIDERS if name != "SVT_sum"] + ["SVT_sum"])
def test_the_source_is_read_once_for_a_query_whatever_the_decider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    gate, scans = make(tmp_path), list[Cut | None]()
    plain = DuckdbSource.tally

    def counted(self: DuckdbSource, axes: Any, features: Any, cut: Cut | None = None, wanted: Any = None) -> Any:
        scans.append(cut)
        return plain(self, axes, features, cut, wanted)

    monkeypatch.setattr(DuckdbSource, "tally", counted)
    aggregate = {"count": "count(*)", "sum": "sum(income)", "avg": "avg(income)", "quantile": "median(age)"}
    gate.session("ann").execute(
        call(
            f"SELECT sex, {aggregate[DECIDERS[name]]} FROM copy GROUP BY sex",
            f"tau => 9, epsilon => 1, decider => '{name}'",
        )
    )
    assert len(scans) == 1
    gate.close()


def test_nothing_that_an_analyst_wrote_reaches_the_source(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[str] = []
    plain = DuckdbSource.fetch

    def noted(self: DuckdbSource, query: str, *, exact: bool = False) -> Any:
        queries.append(query)
        return plain(self, query, exact=exact)

    monkeypatch.setattr(DuckdbSource, "fetch", noted)
    sql = "SELECT sum(debt * 31337) FROM copy WHERE 10 / nullif(age - 60, 0) < 4711 AND sqrt(abs(debt) / age) > 2"
    gate.session("ann").execute(call(sql, "tau => 99, epsilon => 1, decider => 'LM_sum'"))
    assert queries
    assert not any(word in query for query in queries for word in ("31337", "4711", "sqrt", "nullif"))


def test_cuts_put_every_index_into_its_range() -> None:
    with duckdb.connect() as connection:
        for edges in ((), (3,), (1, 2, 5, 9), tuple(range(1, 40, 3))):
            sql = Cut("c", edges).sql("u")
            found = connection.execute(f"SELECT u, {sql} FROM range(45) AS r(u) ORDER BY u").fetchall()
            assert [number for _, number in found] == np.searchsorted(edges, range(45), side="right").tolist()
            assert all(Cut("c", edges).first(number) <= u for u, number in found)


# --- what it costs -----------------------------------------------------------------------------------------


def test_a_decision_is_booked_on_the_cells_that_satisfy_the_condition_only(session: Session) -> None:
    rest = "tau => 500, epsilon => 0.5, decider => 'EM_count'"
    price = rho_of(to_units(Fraction(1, 32)))
    session.execute(call("SELECT count(*) FROM copy WHERE sex = 'F' AND age < 20", rest))
    (release,) = session.gate.ledger.releases()
    assert [scope.partition("#")[0] for scope in release.cost.scope] == ["age", "sex"]
    assert [rho_of(int(units)) for units in release.cost.values.ravel()] == [price, 0, 0, 0]
    assert spent(session) == price
    session.execute(call("SELECT count(*) FROM copy WHERE sex = 'M'", rest))
    session.execute(call("SELECT count(*) FROM copy WHERE age >= 20 AND sex = 'F'", rest))
    assert spent(session) == price  # other people
    session.execute(call("SELECT count(*) FROM copy WHERE age < 10", rest))
    assert spent(session) == 2 * price


def test_groups_are_paid_for_side_by_side_each_at_the_price_of_its_decider(session: Session) -> None:
    result = session.execute(
        call("SELECT age / 10, count(*) FROM copy WHERE sex = 'F' GROUP BY 1", "tau => 300, epsilon => 0.25")
    )
    prices = [row[list(COLUMNS).index("rho") + 1] for row in result.rows]
    assert float(result.cost) == pytest.approx(max(prices), rel=1e-9)
    assert spent(session) == result.cost


def test_a_row_that_is_null_in_a_sum_is_not_charged(session: Session) -> None:
    session.execute(call("SELECT sum(score) FROM copy", "tau => 1000, epsilon => 1, decider => 'LM_sum'"))
    (release,) = session.gate.ledger.releases()
    assert [scope.partition("#")[0] for scope in release.cost.scope] == ["score"]
    assert release.cost.values.min() == 0 < release.cost.values.max()


def test_units_of_several_rows_are_considered_by_the_decider(tmp_path: Path, seen: list[tuple[Any, Any]]) -> None:
    visits = "SELECT 'u' || (i // 4) AS who, (i % 10)::INTEGER AS age FROM range(4000) AS r(i)"
    write_copy = "SELECT (i % 10)::INTEGER AS age FROM range(3000) AS r(i)"
    folder = tmp_path / "units"
    folder.mkdir()
    write(folder / "copy.parquet", write_copy)
    gate = open_gate(
        folder, visits, columns='age = { type = "integer", min = 0, max = 9 }',
        table='privacy_unit = "who"\nmax_rows_per_unit = 3',
        rest='[tables.copy]\nsource = "copy.parquet"\nsynthetic_of = "people"\n',
    )  # fmt: skip
    session = gate.session()
    for aggregate, name in (
        ("count(*)", "EM_count"),
        ("sum(age)", "R2T_sum"),
        ("avg(age)", "LM_avg"),
        ("median(age)", "EM_rank"),
    ):
        rest = f"tau => 5, epsilon => 0.5, decider => '{name}'"
        (row,) = told(session, call(f"SELECT {aggregate} FROM copy", rest))
        decider, statistics = seen[-1]
        assert row["synthetic"] == {"count(*)": 3000, "sum(age)": 13_500, "avg(age)": 4.5, "median(age)": 4}[aggregate]
        rows = decider.sensitivity if name == "EM_count" else decider.rows
        assert rows == 3
        if aggregate == "count(*)":
            assert statistics == 3000  # of four rows of a unit three are kept
    gate.close()


def test_a_budget_that_does_not_suffice_is_refused_before_anything_is_read(
    tmp_path: Path, seen: list[tuple[Any, Any]]
) -> None:
    gate = make(tmp_path, epsilon=0.5)
    session = gate.session("bob")
    with pytest.raises(BudgetExceeded):
        session.execute(call("SELECT count(*) FROM copy", "tau => 500, epsilon => 2"))
    assert not seen
    assert spent(session) == 0
    assert not gate.ledger.releases()
    gate.close()


def test_other_releases_pay_into_the_same_account(session: Session) -> None:
    first = session.execute("SELECT sex, count(*) FROM people GROUP BY sex").cost
    second = session.execute(call("SELECT median(age) FROM copy", "tau => 2, epsilon => 0.5")).cost
    assert spent(session) == first + second
    (everyone,) = session.execute("SELECT rho_spent FROM noisegate.budget").rows
    assert float(first + second) == pytest.approx(everyone[0])
    gaussian = session.execute("SELECT epsilon_spent_gaussian FROM noisegate.budget").rows
    assert gaussian == [(None,)]  # a decision has no Gaussian noise


# --- only once ---------------------------------------------------------------------------------------------


def test_the_same_decision_is_free_and_the_same_for_everyone_and_after_a_restart(gate: Gate) -> None:
    sql = call("SELECT sex, age / 25 AS quarter, count(*) FROM copy GROUP BY 1, 2", "tau => 20, epsilon => 0.05")
    first = gate.session("ann").execute(sql)
    assert first.cost > 0
    again = gate.session("bob").execute(sql.replace("count(*)", "count( * ) AS n"))
    assert (again.cost, again.rows) == (0, first.rows)
    assert gate.session("bob").explain(sql).path == "free"
    gate.close()
    reopened = Gate.open(gate.policy.path)
    later = reopened.session("bob").execute(sql)
    assert (later.cost, later.rows) == (0, first.rows)
    assert len(reopened.ledger.releases()) == 1
    reopened.close()


@pytest.mark.parametrize(
    "rest",
    ["tau => 21, epsilon => 0.05", "tau => 20, epsilon => 0.06", "tau => 20, epsilon => 0.05, decider => 'LM_count'"],
)
def test_another_tau_epsilon_or_decider_is_another_decision(session: Session, rest: str) -> None:
    question = "SELECT count(*) FROM copy WHERE age < 30"
    session.execute(call(question, "tau => 20, epsilon => 0.05"))
    assert session.execute(call(question, rest)).cost > 0
    assert session.execute(call(question, "tau => 20, epsilon => 0.05")).cost == 0


def test_other_data_are_another_decision_and_a_changed_source_is_refused(gate: Gate) -> None:
    session, sql = gate.session("ann"), call("SELECT median(age) FROM copy", "tau => 5, epsilon => 1")
    session.execute(sql)
    write(gate.policy.tables["people"].file, PEOPLE.replace("20000", "30000"))
    with pytest.raises(SourceFailed):
        session.execute(sql)
    gate.refresh("people")
    assert session.execute(sql).cost > 0


def test_another_synthetic_table_is_another_claim(gate: Gate) -> None:
    sql = call("SELECT count(*) FROM copy")
    gate.session("ann").execute(sql)
    gate.close()
    write(gate.policy.tables["copy"].file, f"{COPY} AND age <> 7")
    reopened = Gate.open(gate.policy.path)
    assert reopened.session("ann").execute(sql).cost > 0
    reopened.close()


def test_as_of_a_release_tells_what_was_decided_then_and_spends_nothing(session: Session) -> None:
    one, other = (call(f"SELECT count(*) FROM copy WHERE age < {age}") for age in (20, 30))
    rows = session.execute(one).rows
    session.execute(other)
    session.execute("SET noisegate.as_of = 1")
    assert session.execute(one).rows == rows
    with pytest.raises(BadValue, match="do not tell this decision"):
        session.execute(other)


def test_a_failed_commit_tells_nothing_and_costs_nothing(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The draw is made before the commit; what was drawn is lost with it, and the next draw is a new one."""
    session, sql = gate.session("ann"), call("SELECT count(*) FROM copy WHERE sex = 'F'", "tau => 3, epsilon => 0.1")
    drawn: list[bool] = []
    plain = deciders.decide
    monkeypatch.setattr(
        deciders, "decide", lambda decider, statistics: drawn.append(plain(decider, statistics)) or drawn[-1]
    )

    def fail(*_: object, **__: object) -> None:
        raise LedgerFailed("the ledger can't be written")

    with monkeypatch.context() as patch:
        patch.setattr(gate.ledger, "commit", fail)
        with pytest.raises(LedgerFailed):
            session.execute(sql)
    assert len(drawn) == 1
    assert spent(session) == 0
    (row,) = told(session, sql)
    assert len(drawn) == 2
    assert row["decision"] == drawn[1]
    assert spent(session) > 0


def test_sessions_that_ask_at_once_get_one_decision_and_pay_once(gate: Gate) -> None:
    # Each of fifty decisions is a coin: four sessions do not draw the same ones by chance.
    sql = call("SELECT age / 2, count(*) FROM copy WHERE sex = 'F' GROUP BY 1", "tau => 3, epsilon => 0.05")
    barrier, results = threading.Barrier(4), list[Any]()

    def ask(name: str) -> None:
        session = gate.session(name)
        barrier.wait()
        results.append(session.execute(sql))

    threads = [threading.Thread(target=ask, args=(name,)) for name in ("ann", "bob") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(result.rows == results[0].rows for result in results)
    assert len(gate.ledger.releases()) == 1
    assert sum(result.cost for result in results) == rho_of(gate.ledger.spent("default"))


# --- for free ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("aggregate", "tau"), [("count(*)", 1000), ("sum(income)", 4_000_000), ("avg(age)", 6), ("sum(debt)", 300_000)]
)
def test_what_earlier_releases_settle_is_free_and_says_so(session: Session, aggregate: str, tau: int) -> None:
    """The noise is below a hundredth of tau, and the gaps are 0 and above 2 tau: errors are below 1e-9."""
    session.execute("SET noisegate.error = 20")
    session.execute(f"SELECT sex, {aggregate} FROM people GROUP BY sex")
    before = spent(session)
    rows = told(
        session, call(f"SELECT sex, {aggregate} FROM copy GROUP BY sex ORDER BY sex", f"tau => {tau}, epsilon => 0.1")
    )
    assert [row["decider"] for row in rows] == ["free", "free"]
    assert rows[0]["decision"] is True
    assert all(row["rho"] == row["epsilon"] == 0 and row["wrong"] is None for row in rows)
    assert all("release 1" in row["why"] for row in rows)
    if aggregate != "sum(debt)":
        assert rows[1]["decision"] is False
    assert spent(session) == before


def test_what_is_settled_for_some_groups_is_paid_for_the_others_only(session: Session) -> None:
    session.execute("SET noisegate.error = 10")
    session.execute("SELECT count(*) FROM people WHERE sex = 'F'")
    rows = told(
        session, call("SELECT sex, count(*) FROM copy GROUP BY sex ORDER BY sex", "tau => 1000, epsilon => 0.1")
    )
    assert [row["decider"] for row in rows] == ["free", "EM_count"]
    release = session.gate.ledger.releases()[-1]
    assert [int(units) > 0 for units in release.cost.values] == [False, True]
    again = told(
        session, call("SELECT sex, count(*) FROM copy GROUP BY sex ORDER BY sex", "tau => 1000, epsilon => 0.1")
    )
    assert again == rows


def test_what_earlier_releases_leave_open_is_paid_for(session: Session) -> None:
    session.execute("SET noisegate.error = 500")
    session.execute("SELECT count(*) FROM people WHERE sex = 'F'")
    (row,) = told(session, call("SELECT count(*) FROM copy WHERE sex = 'F'", "tau => 10, epsilon => 1, delta => 1e-9"))
    assert row["decider"] != "free"


def test_a_free_decision_leaves_the_gaussian_report_as_it_was(session: Session) -> None:
    session.execute("SELECT count(*) FROM people")
    told(session, call("SELECT count(*) FROM copy", "tau => 1000, epsilon => 1"))
    assert session.gate.ledger.releases()[-1].kind == "settled"
    assert session.execute("SELECT epsilon_spent_gaussian FROM noisegate.budget").rows[0][0] is not None


# --- the price first ---------------------------------------------------------------------------------------


def test_explain_tells_everything_but_the_decision_and_spends_nothing(
    session: Session, seen: list[tuple[Any, Any]]
) -> None:
    question = "SELECT sex, sum(income) FROM copy GROUP BY sex ORDER BY sex"
    first = told(session, call(question, "tau => 100000, epsilon => 0.5, explain => true"))
    assert spent(session) == 0
    assert not seen
    assert [row["decision"] for row in first] == [None, None]
    paid = told(session, call(question, "tau => 100000, epsilon => 0.5"))
    assert [{**row, "decision": None} for row in paid] == first
    replayed = told(session, call(question, "tau => 100000, epsilon => 0.5, explain => true"))
    assert replayed == first


def test_explain_select_tells_the_price(session: Session) -> None:
    sql = call("SELECT count(*) FROM copy WHERE age < 40", "tau => 100, epsilon => 0.1")
    explained = session.explain(sql)
    assert explained.path == "direct"
    lines = [line for (line,) in session.execute(f"EXPLAIN {sql}").rows]
    assert lines[0] == "Whether count of copy is within 100 of people"
    assert any("EM_count" in line for line in lines)
    assert any("effective tau" in line for line in lines)
    assert spent(session) == 0
    assert session.execute(sql).cost == explained.rho
    assert session.explain(sql).path == "free"


# --- refusals ----------------------------------------------------------------------------------------------

OK = "tau => 5, epsilon => 1"
REFUSED: list[tuple[str, str, type[Refusal], str | None]] = [
    ("SELECT count(*) FROM copy", "tau => 0, epsilon => 1", BadValue, "0"),
    ("SELECT count(*) FROM copy", "tau => -3, epsilon => 1", BadValue, None),
    ("SELECT count(*) FROM copy", "tau => '0%', epsilon => 1", BadValue, "'0%'"),
    ("SELECT count(*) FROM copy", "tau => 'much', epsilon => 1", BadValue, "'much'"),
    ("SELECT count(*) FROM copy", "tau => true, epsilon => 1", WrongType, None),
    ("SELECT count(*) FROM copy", "tau => 5, epsilon => 0", BadValue, "0"),
    ("SELECT count(*) FROM copy", "tau => 5, epsilon => 1000", BadValue, "1000"),
    ("SELECT count(*) FROM copy", "tau => 5", UnknownFunction, None),
    ("SELECT count(*) FROM copy", "tau => 5, epsilon => 1, delta => 0.7", BadValue, "0.7"),
    ("SELECT count(*) FROM copy", "tau => 5, epsilon => 1, explain => 'yes'", WrongType, "'yes'"),
    ("SELECT count(*) FROM copy", f"{OK}, decider => 'LM_sum'", Unsupported, "'LM_sum'"),
    ("SELECT median(age) FROM copy", f"{OK}, decider => 'SVT_sum'", Unsupported, "'SVT_sum'"),
    ("SELECT sum(debt) FROM copy", f"{OK}, decider => 'SVT_sum'", Unsupported, "'SVT_sum'"),
    ("SELECT count(*) FROM copy", f"{OK}, decider => 'magic'", BadValue, "'magic'"),
    ("SELECT count(*) FROM people", OK, Unsupported, "people"),
    ("SELECT count(*) FROM cities", OK, Unsupported, "cities"),
    ("SELECT 1", OK, Unsupported, None),
    ("SELECT count(*) FROM nobody", OK, UnknownTable, "nobody"),
    ("SELECT count(agee) FROM copy", OK, UnknownColumn, "agee"),
    ("SELECT count(note) FROM copy", OK, UnknownColumn, "note"),
    ("SELECT count(*), sum(age) FROM copy", OK, Unsupported, "sum(age"),
    ("SELECT sex FROM copy GROUP BY sex", OK, Unsupported, None),
    ("SELECT count(*) * 2 FROM copy", OK, Unsupported, "count(*"),
    ("SELECT sex, age, count(*) FROM copy GROUP BY sex", OK, Refusal, None),
    ("SELECT * FROM copy", OK, Forbidden, None),
    ("SELECT age FROM copy", OK, Forbidden, None),
    ("SELECT max(age) FROM copy", OK, Unsupported, "max(age"),
    ("SELECT count(DISTINCT age) FROM copy", OK, Unsupported, "count(DISTINCT age"),
    ("SELECT stddev(age) FROM copy", OK, Unsupported, "stddev(age"),
    ("SELECT quantile_cont(age, 0) FROM copy", OK, BadValue, "quantile_cont(age, 0"),
    ("SELECT percentile_disc(1) WITHIN GROUP (ORDER BY age) FROM copy", OK, BadValue, None),
    ("SELECT median(joined) FROM copy", OK, WrongType, "median(joined"),
    ("SELECT sum(CASE WHEN sex = 'F' THEN age ELSE income END) FROM copy", OK, Unsupported, None),
    ("SELECT sex, count(*) FROM copy GROUP BY ROLLUP (sex)", OK, Unsupported, None),
    ("SELECT sex, count(*) FROM copy GROUP BY sex HAVING count(*) > 5", OK, Unsupported, None),
    ("SELECT sex, count(*) FROM copy GROUP BY sex LIMIT 1", OK, Unsupported, None),
    ("SELECT sex AS decision, count(*) FROM copy GROUP BY sex", OK, NotGrouped, None),
    ("SELECT count(*) FROM copy AS a, copy AS b", OK, Unsupported, "copy AS b"),
    ("SELECT count(*) FROM copy JOIN tags ON copy.city = tags.city", OK, Unsupported, None),
    ("SELECT count(*) FROM (SELECT sex, count(*) AS n FROM copy GROUP BY sex) AS t", OK, Unsupported, None),
    ("SELECT age, income, count(*) FROM copy GROUP BY 1, 2", OK, TooLarge, None),
    ("SELECT count(*) FROM copy WHERE sex = 'M' AND age > 60", "tau => '5%', epsilon => 1", BadValue, "'5%'"),
    ("SELECT count(*) FROM", OK, SyntaxRefusal, None),
    ("SET noisegate.error = 5", OK, Forbidden, None),
    ("SELECT count(*) FROM copy; SELECT 1", OK, SyntaxRefusal, None),
    ("SELECT * FROM noisegate.choose(ARRAY['SELECT 1', 'SELECT 2'])", OK, Unsupported, None),
    ("SELECT count(*) FROM copy WHERE random() < 0.5", OK, Unsupported, "random"),
]  # fmt: skip


@pytest.mark.parametrize(("question", "rest", "kind", "piece"), REFUSED)
def test_what_can_not_be_verified_is_refused_with_its_place_and_costs_nothing(
    shared: Gate, question: str, rest: str, kind: type[Refusal], piece: str | None
) -> None:
    session = shared.session("ann")
    before, sql = spent(session), call(question, rest)
    with pytest.raises(Refusal) as refused:
        session.execute(sql)
    assert isinstance(refused.value, kind), refused.value
    assert refused.value.hint
    assert len(refused.value.sqlstate) == 5
    if piece is not None:
        assert refused.value.span is not None
        start, end = refused.value.span
        assert sql[start : end + 1] == piece
    with pytest.raises(Refusal):
        session.explain(sql)
    assert spent(session) == before


SHORT = {
    "count(*)": {"LM": "LM_count", "EM": "EM_count"},
    "sum(income)": {"LM": "LM_sum", "EM": "EM_sum", "R2T": "R2T_sum", "SVT": "SVT_sum"},
    "sum(debt)": {"LM": "LM_sum", "EM": "EM_sum", "R2T": "R2T_sum"},
    "avg(age)": {"LM": "LM_avg", "EM": "EM_avg"},
    "median(age)": {"EM": "EM_med", "HIST": "Hist_med"},
}


@pytest.mark.parametrize("aggregate", SHORT)
def test_a_short_name_is_the_decider_of_that_name_for_what_is_asked_or_refused(shared: Gate, aggregate: str) -> None:
    session, question = shared.session("ann"), f"SELECT {aggregate} FROM copy"
    for name in ("LM", "EM", "R2T", "SVT", "HIST"):
        for written in (name, name.lower(), name.title()):
            sql = call(question, f"tau => 77, epsilon => 1, decider => '{written}', explain => true")
            if name in SHORT[aggregate]:
                assert told(session, sql)[0]["decider"] == SHORT[aggregate][name]
                continue
            with pytest.raises(Unsupported, match=f"{written} can't decide about") as refused:
                session.execute(sql)
            there = str(refused.value.hint).removeprefix("use one of: ").split(", ")
            assert {"auto", *SHORT[aggregate], *SHORT[aggregate].values()} <= {*there}
            assert name not in there


def test_short_and_long_names_are_the_same_decision_and_paid_once(gate: Gate) -> None:
    session, question = gate.session("ann"), "SELECT count(*) FROM copy WHERE age < 9"
    first = session.execute(call(question, "tau => 77, epsilon => 1, decider => 'lm'"))
    again = session.execute(call(question, "tau => 77, epsilon => 1, decider => 'LM_count'"))
    assert first.cost > 0
    assert (again.cost, again.rows) == (0, first.rows)


def test_a_decision_of_an_earlier_version_is_told_with_what_was_stored(session: Session) -> None:
    sql = call("SELECT sex, count(*) FROM copy GROUP BY sex")
    now = told(session, sql)
    (release,) = session.gate.ledger.releases()
    body = bodies.decode(release.body)
    old = replace(release, body=bodies.encode({**body, "rows": [row[:12] for row in body["rows"]]}))
    about = subject(session.gate, Constant("SELECT sex, count(*) FROM copy GROUP BY sex"), taken=())
    rows = stored_rows(about, old, width=len(COLUMNS))
    assert [row[:13] for row in rows] == [tuple(row.values())[:13] for row in now]
    assert [row[13:] for row in rows] == [(None, None, None)] * 2


def test_beside_a_verification_no_protected_table_is_read(session: Session) -> None:
    with pytest.raises(Unsupported, match="can't read protected tables as well"):
        session.execute(f"{call('SELECT count(*) FROM copy')}, (SELECT count(*) FROM people) AS t")


# --- synthetic tables --------------------------------------------------------------------------------------


def test_a_synthetic_table_is_read_by_the_domains_of_its_original(tmp_path: Path) -> None:
    rows = """SELECT * FROM (VALUES ('F', 150, 'Bern', 1.234, 'x'), ('M', -5, 'Rome', 9.0, 'x'),
        ('?', 20, NULL, 0.1, 'x'),
        ('M', NULL, NULL, 0.5, 'x'), ('F', 44, NULL, 0.5, 'x')) AS t(sex, age, city, height, note)"""
    gate = make(tmp_path, copy=rows)
    found = gate.session("ann").execute("SELECT * FROM copy ORDER BY age")
    assert [column.name for column in found.columns] == ["sex", "age", "height", "city"]
    assert [column.type for column in found.columns] == ["VARCHAR", "BIGINT", "DOUBLE", "VARCHAR"]
    # Not in the list, or NULL where that can't be: left out; beyond a bound: moved to it.
    assert found.rows == [("F", 44, 0.5, None), ("F", 99, 1.23, "Bern")]
    assert found.cost == 0
    gate.close()


def test_a_copy_that_shares_no_column_is_refused_when_the_gate_opens(tmp_path: Path) -> None:
    with pytest.raises(SourceFailed, match="copy"):
        make(tmp_path, copy="SELECT 1 AS other")


def test_a_synthetic_csv_is_read_by_the_policys_types(tmp_path: Path) -> None:
    gate = make(tmp_path)
    gate.close()
    (tmp_path / "copy.csv").write_text("sex,age\nF,007\nM,many\nF,12\n", encoding="utf-8")
    text = gate.policy.path.read_text(encoding="utf-8").replace("copy.parquet", "copy.csv")
    gate.policy.path.write_text(text, encoding="utf-8")
    reopened = Gate.open(gate.policy.path)
    assert reopened.session("ann").execute("SELECT sex, age FROM copy ORDER BY age").rows == [("F", 7), ("F", 12)]
    reopened.close()


# --- in Python ---------------------------------------------------------------------------------------------


def test_python_gives_verdicts_with_groups_and_profiles(gate: Gate) -> None:
    gate.close()
    with noisegate.connect(gate.policy.path, analyst="ann") as connection:
        question = "SELECT sex, count(*) FROM copy WHERE city = 'Oslo' GROUP BY sex ORDER BY sex"
        explained = connection.verify(question, tau="10%", epsilon=1, explain=True)
        assert explained.decision is None
        assert explained.cost == 0
        found = connection.verify(question, tau="10%", epsilon=1)
        assert isinstance(found, Verification)
        assert [dict(verdict.group) for verdict in found.verdicts] == [{"sex": "F"}, {"sex": "M"}]
        assert [verdict.decision for verdict in found.verdicts] == [True, False]
        assert found.decision is False
        assert found.cost > 0
        assert min(found.verdicts[0].wrong) == 0.0
        single = connection.verify("SELECT count(*) FROM copy WHERE sex = 'F'", tau=1000, epsilon=0.5)
        assert single.decision is True
        with pytest.raises(noisegate.DataError, match="tau must be a positive number"):
            connection.verify(question, tau=0, epsilon=1)
        with pytest.raises(noisegate.ProgrammingError, match="there is no column agee"):
            connection.verify("SELECT sum(agee) FROM copy WHERE sex = 'F'", tau=1, epsilon=1)


def test_a_release_of_decisions_can_be_read_without_this_program(session: Session) -> None:
    session.execute(call("SELECT sex, count(*) FROM copy GROUP BY sex"))
    (release,) = session.gate.ledger.releases()
    body = bodies.decode(release.body)
    assert [row[0] for row in body["rows"]] == [True, False]
    assert [axis["column"] for axis in body["axes"]] == ["sex"]


# --- no failure depends on the rows ------------------------------------------------------------------------

MERGING = """SELECT median(CASE WHEN income = 1000 THEN 10000000000.1::DOUBLE
    WHEN income = 1001 THEN 10000000000.2::DOUBLE
    ELSE 10000000000.0::DOUBLE + 10.0 * (1 + income) END) FROM copy WHERE sex = 'F' AND age = 37"""
"""Two values that are so near that rounding to few digits makes them one."""


@pytest.mark.parametrize("both", [False, True])
def test_labels_that_are_nearly_equal_are_told_apart_whatever_rows_there_are(tmp_path: Path, both: bool) -> None:
    """An error that depends on which labels occur would tell, for nothing, whether they do."""
    extra = "SELECT * REPLACE ('F' AS sex, 37 AS age, {} AS income) FROM (FROM ({}) LIMIT 1)"
    incomes = [1000, 1001] if both else [1000]
    people = " UNION ALL ".join([PEOPLE, *(extra.format(income, PEOPLE) for income in incomes)])
    gate = make(tmp_path, people=people)
    (row,) = told(gate.session("ann"), call(MERGING, "tau => 1000, epsilon => 1"))
    assert row["decider"] == "EM_rank"
    assert row["rho"] > 0
    gate.close()


@pytest.mark.parametrize("value", ["ln(age + 1)", "age * 1e30", "income / 1000.0 + 10000000", "age * 1e300 * 1e300"])
def test_quantiles_of_any_numbers_are_decided_or_refused(shared: Gate, value: str) -> None:
    outcome: object = None
    with suppress(Unsupported):  # what can't be told apart exactly
        (outcome,) = told(
            shared.session("ann"), call(f"SELECT median({value}) FROM copy", "tau => '50%', epsilon => 1")
        )
    assert outcome is None or isinstance(outcome, dict)


def test_another_delta_is_another_decision(session: Session) -> None:
    session.execute("SELECT count(*) FROM people")
    for delta in (0.4, 1e-6):
        (row,) = told(session, call("SELECT count(*) FROM copy", f"tau => 4000, epsilon => 1, delta => {delta}"))
        assert row["delta"] == delta


def test_an_average_of_nothing_but_zeros_is_known(session: Session) -> None:
    (row,) = told(session, call("SELECT avg(0 * age) FROM copy", "tau => 1, epsilon => 1"))
    assert (row["decision"], row["rho"]) == (True, 0.0)


@pytest.mark.parametrize("tau", ["1e3000000", "1e999", "-1", "nan", "inf", "1e", ".", "9" * 60, "1/0"])
def test_a_tau_that_is_no_short_number_is_refused_at_once(shared: Gate, tau: str) -> None:
    with pytest.raises(BadValue, match="tau must be a positive number"):
        shared.session("ann").execute(call("SELECT count(*) FROM copy", f"tau => '{tau}', epsilon => 1"))
