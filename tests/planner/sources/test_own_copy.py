"""A protected file registered as its own copy is right about everything, whatever the policy.

No noise is involved: of every question, every decider must be given the same integers from both. So whatever is read
in another way on one side only (a unit's rows, a bound, NULL, a time zone, a delimiter) shows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from mechanisms.deciders import deciders
from mechanisms.deciders.deciders import Histogram
from planner.calls.call import Constant
from planner.calls.verify import decisions
from planner.calls.verify.decisions import VerifyArguments
from planner.calls.verify.synthetic import Subject, subject
from planner.curator.fidelity import fidelity
from planner.gate import Gate
from proxy.show.page import page
from tests.planner.gates import policy, source, write

WILD = """SELECT CASE WHEN h % 23 = 0 THEN NULL ELSE 'u' || (h % 97) END AS who,
    CASE WHEN h % 11 = 0 THEN NULL ELSE h % 5 END AS rk, ['F', 'M', 'X', '', NULL][1 + h % 5] AS sex,
    CASE WHEN h % 17 = 0 THEN NULL ELSE h % 190 - 40 END AS age,
    [NULL, 'NaN', 'Infinity', '-Infinity', '1e300', NULL][1 + h % 31]::DOUBLE AS odd,
    coalesce(odd, (h % 401) / 150.0 - 0.3) AS height,
    CASE WHEN h % 13 = 0 THEN NULL ELSE (h % 3000001) - 1000000 END AS wealth,
    CASE WHEN h % 7 = 0 THEN NULL ELSE h % 2 = 0 END AS flag,
    TIMESTAMPTZ '2019-12-20 00:30:00+00' + to_hours((h % 9600)::BIGINT) AS seen
    FROM (SELECT (hash(i) % 1000003)::BIGINT AS h FROM range(700) AS r(i))"""

QUESTIONS = [
    "SELECT count(*) FROM copy",
    "SELECT sex, count(age) FROM copy GROUP BY sex",
    "SELECT flag, sum(age) FROM copy WHERE sex = 'F' OR age > 30 GROUP BY flag",
    "SELECT sum(wealth) FROM copy WHERE flag",
    "SELECT sum(height) FROM copy WHERE age IS NOT NULL",
    "SELECT sex, avg(height) FROM copy GROUP BY sex",
    "SELECT avg(2 * wealth + 1) FROM copy WHERE age BETWEEN 20 AND 50",
    "SELECT date_trunc('month', seen) AS month, count(*) FROM copy GROUP BY 1",
    "SELECT flag, median(age) FROM copy GROUP BY flag",
    "SELECT percentile_disc(0.9) WITHIN GROUP (ORDER BY height) FROM copy WHERE sex = 'M'",
]


@dataclass(frozen=True)
class Shape:
    """How a policy reads the file."""

    kind: str = "parquet"
    delimiter: str = ","
    unit: str | None = None  # how its column is declared; "" for not at all
    most: int = 1
    key: bool = False
    nullable: tuple[bool, ...] = (False,) * 6
    other: bool = False

    @property
    def table(self) -> str:
        unit = "" if self.unit is None else f'privacy_unit = "who"\nmax_rows_per_unit = {self.most}\n'
        return unit + ('row_key = "rk"\n' if self.key else "")

    @property
    def columns(self) -> str:
        sex, age, height, wealth, flag, seen = (f", nullable = {str(yes).lower()}" for yes in self.nullable)
        other = ', other = "?"' if self.other else ""
        return f"""sex = {{ values = ["F", "M", ""]{other}{sex} }}
            age = {{ type = "integer", min = 0, max = 99{age} }}
            height = {{ type = "float", min = 0, max = 2, step = 0.01{height} }}
            wealth = {{ type = "integer", min = -500_000, max = 1_000_000{wealth} }}
            flag = {{ type = "boolean"{flag} }}
            seen = {{ type = "date", min = "2020-01-01", max = "2020-12-31"{seen} }}
            {f"who = {{ {self.unit} }}" if self.unit else ""}"""


SHAPES = st.builds(
    Shape,
    kind=st.sampled_from(["parquet", "csv", "duckdb"]),
    delimiter=st.sampled_from([",", ";"]),
    unit=st.sampled_from([None, "", "", "hidden = true", 'values = ["u1", "u2", "u3", "u5", "u8", "u13", "u21"]']),
    most=st.integers(1, 4),
    key=st.booleans(),
    nullable=st.tuples(*[st.booleans()] * 6),
    other=st.booleans(),
)


@pytest.fixture(scope="module", autouse=True)
def elsewhere() -> Iterator[None]:
    """Run in a time zone in which some of the times are of another day."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


def opened(folder: Path, shape: Shape, *, copy: str | None = None) -> Gate:
    """Return a gate whose copy is the protected file itself, or another one."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"people.{shape.kind}"
    file.unlink(missing_ok=True)
    write(file, WILD)
    if shape.kind == "csv" and shape.delimiter != ",":
        file.write_text(file.read_text(encoding="utf-8").replace(",", shape.delimiter), encoding="utf-8")
    if copy is not None:
        write(folder / "copy.parquet", copy)
    place = source(shape.kind) if copy is None else "copy.parquet"
    head = f'[tables.people]\nsource = "{source(shape.kind)}"\n{shape.table}[tables.people.columns]\n{shape.columns}\n'
    return Gate.open(policy(folder, f'{head}[tables.copy]\nsource = "{place}"\nsynthetic_of = "people"\n', epsilon=1e6))


def statistics(gate: Gate, about: Subject) -> Iterator[tuple[str, Any, Any]]:
    """Yield what each decider of each group is given, of the protected table and of the copy."""
    wish = VerifyArguments(
        tau=Fraction(3), relative=False, epsilon=Fraction(1), decider="auto", delta=0.05, explain=False
    )
    found = enumerate(decisions.claims_of(about, wish))
    queries = {group: decisions._query(about, wish, case.claim) for group, case in found if case.claim is not None}
    offered = {group: deciders.candidates(query, epsilon=wish.epsilon) for group, query in queries.items()}
    for name in next(iter(offered.values()), {}):
        wanted = {group: offered[group][name] for group in offered}
        true, copied = (exact.statistics(about.asked, wanted) for exact in (gate.meters["people"]._exact, about.exact))
        for group, decider in wanted.items():
            assert decider.truth(true[group])
            yield name, true[group], copied[group]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, Histogram):
        return np.array_equal(left.values, right.values) and np.array_equal(left.counts, right.counts)
    return bool(left == right)


@example(Shape(unit="", most=2))
@example(Shape(kind="csv", delimiter=";", unit="hidden = true", most=3, key=True, nullable=(True,) * 6, other=True))
@settings(max_examples=10, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(SHAPES)
def test_a_file_that_is_its_own_copy_is_exactly_right_about_every_question(
    tmp_path_factory: pytest.TempPathFactory, shape: Shape
) -> None:
    gate, seen = opened(tmp_path_factory.mktemp("own"), shape), set()
    for sql in QUESTIONS:
        about = subject(gate, Constant(sql), taken=())
        assert about.limited == (shape.unit is not None)
        for name, true, copied in statistics(gate, about):
            assert same(true, copied), (sql, name)
            seen.add(name)
    assert seen >= {"LM_count", "EM_sum", "R2T_sum", "LM_avg", "EM_med", "EM_rank"}
    gate.close()


UNITS = Shape(unit="", most=2)


def told(gate: Gate, sql: str, rest: str = "tau => '5%', epsilon => 1") -> list[dict[str, Any]]:
    result = gate.session().execute(f"SELECT * FROM noisegate.verify($${sql}$$, {rest})")
    return [dict(zip([column.name for column in result.columns], row, strict=True)) for row in result.rows]


def test_what_is_decided_is_yes_although_a_plain_count_of_the_copy_is_larger(tmp_path: Path) -> None:
    """The decision is wrong with probability below 1e-9: tau is 5 % of the answer, which is 100 times the noise."""
    gate = opened(tmp_path, UNITS)
    (plain,) = gate.session().execute("SELECT count(*) FROM copy").rows[0]
    (row,) = told(gate, "SELECT count(*) FROM copy", "tau => '20%', epsilon => 5")
    assert json.loads(row["wrong"])[0][1] < 1e-9
    assert row["decision"] is True
    assert row["synthetic"] < 0.8 * plain
    assert row["compared"] == "at most 2 rows of each who, in people and in copy alike"
    gate.close()


def test_a_row_key_tells_which_rows_count_in_whichever_order_they_are(tmp_path: Path) -> None:
    shape = Shape(unit="", most=2, key=True)
    gate = opened(tmp_path, shape, copy=f"SELECT * FROM ({WILD}) ORDER BY hash(wealth, seen)")
    for sql in QUESTIONS:
        for name, true, copied in statistics(gate, subject(gate, Constant(sql), taken=())):
            assert same(true, copied), (sql, name)
    gate.close()


def test_without_the_row_key_as_many_rows_of_a_unit_count(tmp_path: Path) -> None:
    gate = opened(tmp_path, Shape(unit="", most=2, key=True), copy=f"SELECT * EXCLUDE (rk) FROM ({WILD})")
    (_, true, copied), _ = statistics(gate, subject(gate, Constant("SELECT count(*) FROM copy"), taken=()))
    assert true == copied
    gate.close()


def test_without_the_units_column_it_is_said_everywhere_what_is_compared(tmp_path: Path) -> None:
    gate = opened(tmp_path, UNITS, copy=f"SELECT * EXCLUDE (who) FROM ({WILD})")
    sql = "SELECT count(*) FROM copy"
    (plain,) = gate.session().execute(sql).rows[0]
    words = "at most 2 rows of each who in people, and all rows of copy, which has no column who"
    (row,) = told(gate, sql, "tau => '5%', epsilon => 5, explain => true")
    assert (row["synthetic"], row["compared"]) == (plain, words)
    lines = gate.session().explain(f"SELECT * FROM noisegate.verify($${sql}$$, tau => 5, epsilon => 1)").lines
    assert any(words in line for line in lines)
    assert words in page(fidelity(gate.session(), "copy", epsilon=50.0))
    again = told(gate, sql)
    assert again == told(gate, sql)  # as it was stored
    assert again[0]["compared"] == words
    gate.close()


def test_where_rows_are_units_nothing_has_to_be_said(tmp_path: Path) -> None:
    gate = opened(tmp_path, Shape())
    assert [row["compared"] for row in told(gate, QUESTIONS[1])] == [None] * 3
    gate.close()


def test_a_copy_that_is_a_view_of_the_same_rows_is_cut_alike(tmp_path: Path) -> None:
    opened(tmp_path, Shape(kind="duckdb", unit="", most=2)).close()
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute("CREATE VIEW alike AS SELECT * FROM t")
    file = tmp_path / "policy.toml"
    tables, copy = file.read_text(encoding="utf-8").split("[tables.copy]")
    file.write_text(f"{tables}[tables.copy]{copy.replace('#t', '#alike')}", encoding="utf-8")
    gate = Gate.open(file)
    gate.refresh("people")  # the file has changed
    for sql in QUESTIONS:
        about = subject(gate, Constant(sql), taken=())
        assert about.limited
        assert all(same(true, copied) for _, true, copied in statistics(gate, about)), sql
    gate.close()
