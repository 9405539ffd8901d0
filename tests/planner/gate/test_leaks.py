"""What can be seen without paying is the same on neighbouring tables, on broken rows, and on no rows at all.

The corpus runs on pairs of tables. The numbers that are drawn are replaced by constants after the source was
read in earnest: whatever still differs between two tables came past the charge.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from planner.basics.errors import Refusal
from planner.cells.costs import to_bytes
from planner.gate import Gate
from planner.questions.body import decode
from planner.session import Session
from planner.sources.measure import Meter
from tests.planner.gates import KINDS, open_gate, policy, source

pytestmark = pytest.mark.slow  # whole gates on neighbouring tables

POLICY = """
[tables.people]
source = "{people}"
[tables.people.columns]
age = {{ type = "integer", min = 0, max = 110, nullable = true }}
sex = {{ values = ["F", "M"] }}
city = {{ values = ["Oslo", "Rome"], other = "elsewhere", nullable = true }}
income = {{ type = "integer", min = -100, max = 500_000, role = "measure" }}
wealth = {{ type = "integer", min = -1_000_000_000_000, max = 1_000_000_000_000, nullable = true }}
vast = {{ type = "integer", min = -9_000_000_000_000_000_000, max = -8_000_000_000_000_000_000, nullable = true }}
score = {{ type = "float", min = 0, max = 1, step = 0.125, nullable = true }}
joined = {{ type = "date", min = "2020-01-01", max = "2020-12-31", nullable = true }}
seen = {{ type = "timestamp", min = "2020-01-01", max = "2020-01-02 23:00:00", step = "1 hour", nullable = true }}
active = {{ type = "boolean", nullable = true }}
grade = {{ values = [1, 2, 9007199254740993], nullable = true }}
note = {{ hidden = true }}

[tables.visits]
source = "{visits}"
privacy_unit = "who"
max_rows_per_unit = 2
population = "visitors"
[tables.visits.columns]
item = {{ values = ["pen", "ink"] }}
amount = {{ type = "integer", min = 0, max = 9, nullable = true }}

[tables.regions]
source = "regions.csv"
public = true
"""

REGIONS = "city,region,people\nOslo,north,700\nRome,south,2800\nRome,west,1\nParis,west,2100\n"

# Loose types: what a careless source has. CSV fields are text whatever is written here.
PEOPLE = {
    "age": "VARCHAR", "sex": "VARCHAR", "city": "VARCHAR", "income": "DOUBLE", "wealth": "HUGEINT", "vast": "HUGEINT",
    "score": "DOUBLE", "joined": "VARCHAR", "seen": "TIMESTAMPTZ", "active": "VARCHAR", "grade": "BIGINT",
    "note": "VARCHAR",
}  # fmt: skip
VISITS = {"who": "VARCHAR", "item": "VARCHAR", "amount": "DOUBLE"}

GOOD = ("40", "F", "Oslo", 1000, 5, 5, 0.5, "2020-05-05", "2020-01-01 05:00:00+00", "true", 1, "hush")

Row = tuple[Any, ...]


def person(**changes: Any) -> Row:
    return tuple(changes.get(name, value) for name, value in zip(PEOPLE, GOOD, strict=True))


CROWD = [
    person(
        age=str(20 + i),
        sex="FM"[i % 2],
        income=100 * i,
        score=i / 40,
        grade=1 + i % 2,
        joined=f"2020-02-{1 + i % 28:02}",
    )
    for i in range(40)
]
TRADE = [(f"c{i % 15}", "pen" if i % 3 else "ink", float(i % 10)) for i in range(30)]

NOTHING: Row = (None,) * len(PEOPLE)

ODD: dict[str, list[Row]] = {
    "one more": [person(age="77")],
    "outside": [
        person(age="-5"), person(age="4000"), person(sex="X"), person(sex="f"), person(city="Paris"), person(city=""),
        person(income=-1e6), person(income=1e12), person(score=-3.0), person(score=2.5), person(joined="1066-10-14"),
        person(joined="9999-12-31"), person(seen="1901-01-01 00:00:00+00"), person(grade=77), person(grade=-1),
    ],
    "null": [NOTHING, *(person(**{name: None}) for name in PEOPLE)],
    "not a number": [
        person(age="abc"), person(age=""), person(age="12.5"), person(age="1e3"), person(age="NaN"), person(age="0x1F"),
        person(active="maybe"), person(joined="not a date"), person(joined="2020-13-45"), person(joined="2020-02-30"),
        person(income="nan"), person(score="nan"), person(age="٤٢"), person(age="--5"), person(age="1" * 400),
    ],
    "infinite": [
        person(income="inf"), person(income="-inf"), person(score="inf"), person(score="-inf"), person(age="inf"),
        person(age="-Infinity"), person(joined="infinity"), person(joined="-infinity"), person(seen="infinity"),
        person(seen="-infinity"), person(age="1e999"), person(age="-1e999"),
    ],
    "huge": [
        person(income=1e300), person(income=-1e300), person(income=1.7e308), person(wealth=2**126),
        person(wealth=-(2**126)), person(wealth=9 * 10**18), person(wealth=-9 * 10**18), person(vast=2**126),
        person(vast=-(2**126)), person(age=str(2**63)), person(age=str(-(2**200))), person(grade=2**53),
        person(grade=2**53 + 1), person(grade=2**53 + 2), person(grade=2**63 - 1), person(score=5e-324),
        person(seen="294246-12-31 00:00:00+00"), person(seen="4713-01-01 (BC) 00:00:00+00"),
    ],
    "strange text": [
        person(sex="'F'"), person(sex="F;M"), person(sex='F"'), person(city="Os\nlo"), person(city="Os\r\nlo"),
        person(city="a,b"), person(city="# no"), person(city="\\N"), person(city="x" * 100_000), person(note="'"),
        person(city="\u202eolsO"), person(note='"'), person(note=";;;;;"), person(note="|"), person(note="\t\t"),
        person(city="NULL"),
    ],
}  # fmt: skip
ODD["all of it"] = [row for rows in ODD.values() for row in rows]

PEOPLE_TABLES: dict[str, list[Row]] = {
    "crowd": CROWD,
    "one less": CROWD[1:],
    "empty": [],
    "one row": CROWD[:1],
    **{name: CROWD + rows for name, rows in ODD.items()},
    "only odd": ODD["all of it"],
}

VISITS_TABLES: dict[str, list[Row]] = {
    "crowd": TRADE,
    "one less": [row for row in TRADE if row[0] != "c3"],
    "empty": [],
    "one row": TRADE[:1],
    "null": TRADE + [(None, "pen", 3.0)] * 9,
    "huge": TRADE + [("giant", "pen", float(i)) for i in range(1000)],
    "all of it": [*TRADE, ("", "ink", 1e300), ("c1", None, None), ("c1", "pen", "nan"), ("c\n", "ink", "-inf")],
}

GOOD_SQL = """
SELECT count(*) FROM people
SELECT count(age), count(note_free.city) FROM (SELECT age, city FROM people) AS note_free
SELECT age, count(*) FROM people GROUP BY age
SELECT city, count(*) AS n FROM people GROUP BY city ORDER BY n DESC
SELECT sex, city, active, count(*) FROM people GROUP BY 1, 2, 3
SELECT joined, count(*) FROM people GROUP BY joined HAVING count(*) > 3
SELECT date_trunc('month', joined) AS month, sum(income) FROM people GROUP BY month
SELECT seen, count(*) FROM people WHERE seen < '2020-01-01 12:00:00' GROUP BY seen
SELECT grade, avg(score) FROM people GROUP BY grade
SELECT score, stddev(income) FROM people GROUP BY score
SELECT sum(income), avg(income), variance(income), stddev_pop(income) FROM people
SELECT sum(wealth) FROM people
SELECT count(*) FROM people WHERE wealth IS NULL
SELECT count(*), count(vast) FROM people WHERE vast IS NOT NULL
SELECT sum(CASE WHEN sex = 'F' THEN income ELSE age END) FROM people
SELECT sum(income / 7.0), sum(income * 3 - 5) FROM people WHERE active
SELECT avg(100 / (age + 1)) FROM people
SELECT median(age), percentile_disc(0.9) WITHIN GROUP (ORDER BY income / 10000) FROM people
SELECT sex, median(score), count(*) FROM people GROUP BY sex
SELECT median(age) AS m, DP_INTERVAL_LOW(m), DP_INTERVAL_HIGH(m) FROM people
SELECT count(DISTINCT city), count(DISTINCT grade), count(DISTINCT age / 10) FROM people
SELECT count(DISTINCT joined) FROM people WHERE score IS NOT NULL
SELECT region, count(*) FROM people JOIN regions ON people.city = regions.city GROUP BY region
SELECT region, sum(income) FROM people LEFT JOIN regions ON people.city = regions.city GROUP BY region
SELECT count(*) FILTER (WHERE r.people > age), count(*) FROM people AS p, regions AS r WHERE p.city = r.city
SELECT sex, count(*) FROM people GROUP BY GROUPING SETS ((sex), (), (sex))
SELECT sex, city, sum(income), GROUPING(sex) FROM people GROUP BY CUBE (sex, city)
SELECT count(*) FROM people WHERE city LIKE '%o%' AND regexp_matches(city, '^[A-Z]')
SELECT count(*) FROM people WHERE CAST(age AS VARCHAR) LIKE '1%' OR sqrt(income) > 100
SELECT count(*)::double precision / nullif(sum(income), 0) AS ratio FROM people
SELECT CASE WHEN count(*) > 20 THEN 'many' ELSE 'few' END FROM people
SELECT max(n), min(n) FROM (SELECT age / 10 AS decade, count(*) AS n FROM people GROUP BY 1) AS t
SELECT sex, n, rank() OVER (ORDER BY n) FROM (SELECT sex, count(*) AS n FROM people GROUP BY sex) AS t
WITH f AS (SELECT income, age FROM people WHERE sex = 'F') SELECT avg(income) FROM f WHERE age > 30
SELECT (SELECT count(*) FROM people) + (SELECT count(*) FROM visits)
SELECT count(*) FROM people WHERE 1 / (age - age) > age
SELECT count(*) FROM people WHERE ln(age) > 0
SELECT sum(1 / age) FROM people
SELECT DISTINCT sex, active FROM people ORDER BY sex, active
SELECT item, count(*), sum(amount), count(DISTINCT who) FROM visits GROUP BY item
SELECT avg(amount), median(amount), variance(amount), count(DISTINCT amount) FROM visits
SELECT count(DISTINCT who) FROM visits WHERE amount IS NULL
SELECT amount, count(DISTINCT who) FROM visits GROUP BY amount
SELECT region, max(people) FROM regions GROUP BY region ORDER BY region
SELECT * FROM noisegate.domains ORDER BY 1, 2
SELECT "table", kind, rho, sql FROM noisegate.releases ORDER BY id
SELECT population, rho_spent, epsilon_spent FROM noisegate.budget ORDER BY 1
SELECT * FROM noisegate.accounts ORDER BY 1
"""

BAD_SQL = """
SELECT * FROM people
SELECT age FROM people LIMIT 1
SELECT note FROM people
SELECT count(note) FROM people
SELECT max(age) FROM people
SELECT string_agg(sex, ',') FROM people
SELECT count(*) FROM people WHERE CAST(city AS INTEGER) = 1
SELECT sum(CAST(city AS INTEGER)) FROM people
SELECT count(*) FROM people WHERE error(city) IS NULL
SELECT sum(ln(age)) FROM people
SELECT sum(exp(income)) FROM people
SELECT variance(vast) FROM people
SELECT avg(vast) FROM people
SELECT median(wealth) FROM people
SELECT wealth, count(*) FROM people GROUP BY wealth
SELECT age, joined, seen, score, grade, income, count(*) FROM people GROUP BY 1, 2, 3, 4, 5, 6
SELECT count(*) FROM people AS a JOIN people AS b ON a.age = b.age
SELECT count(*) FROM people, visits
SELECT count(*) FROM people WHERE age IN (SELECT age FROM people)
SELECT count(*) FROM people WHERE random() < 0.5
SELECT count(*) FROM people WHERE regexp_matches(city, '(')
SELECT count(*) FROM people WHERE strptime(city, '%Y') IS NULL
SELECT who, count(*) FROM visits GROUP BY who
SELECT count(*) FROM visits WHERE who = 'giant'
SELECT sum(who) FROM visits
SELECT count(*) FROM nobody
SELECT nothing FROM people
SELECT count(* FROM people
DELETE FROM people
SELECT count(*) FROM read_csv('people.csv')
SELECT count(*) FROM people TABLESAMPLE BERNOULLI (10)
SELECT row_number() OVER () FROM people
SELECT first_value(age) OVER () FROM people
"""

STATEMENTS = [line for line in (GOOD_SQL + BAD_SQL).splitlines() if line]

FEW = [
    "SELECT count(*) FROM people",
    "SELECT age, sex, count(*), sum(income), avg(income) FROM people GROUP BY age, sex",
    "SELECT city, grade, active, count(*), variance(score) FROM people GROUP BY 1, 2, 3",
    "SELECT joined, count(*) FROM people GROUP BY joined",
    "SELECT seen, median(age) FROM people GROUP BY seen",
    "SELECT sum(wealth) FROM people",
    "SELECT count(DISTINCT age), count(DISTINCT grade), count(DISTINCT score) FROM people WHERE wealth IS NOT NULL",
    "SELECT max(age) FROM people",
    "SELECT item, count(*), sum(amount), count(DISTINCT who), median(amount) FROM visits GROUP BY item",
]


# --- the two worlds ----------------------------------------------------------------------------------------


def literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return "'" + str(value).replace("'", "''") + "'"


def write_rows(path: Path, columns: dict[str, str], rows: list[Row]) -> None:
    """Write rows into a file, each field cast to its loose type."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        if path.suffix == ".duckdb":
            connection.execute(f"ATTACH '{path}' AS f")
        place = "f.t" if path.suffix == ".duckdb" else "t"
        kinds = dict.fromkeys(columns, "VARCHAR") if path.suffix == ".csv" else columns
        declared = ", ".join(f'"{name}" {kind}' for name, kind in kinds.items())
        connection.execute(f"CREATE TABLE {place} ({declared})")
        for start in range(0, len(rows), 200):
            values = ", ".join("(" + ", ".join(map(literal, row)) + ")" for row in rows[start : start + 200])
            connection.execute(f"INSERT INTO {place} VALUES {values}")
        if path.suffix != ".duckdb":
            options = "FORMAT csv, HEADER" if path.suffix == ".csv" else "FORMAT parquet"
            connection.execute(f"COPY t TO '{path}' ({options})")


def make_world(folder: Path, kind: str, name: str, *, epsilon: float) -> Gate:
    folder.mkdir(parents=True)
    write_rows(folder / f"people.{kind}", PEOPLE, PEOPLE_TABLES[name])
    write_rows(folder / f"visits.{kind}", VISITS, VISITS_TABLES.get(name, TRADE))
    (folder / "regions.csv").write_text(REGIONS)
    text = POLICY.format(people=source(kind, "people"), visits=source(kind, "visits"))
    return Gate.open(policy(folder, text, epsilon=epsilon))


@pytest.fixture(scope="module", autouse=True)
def constant_draws() -> Iterator[None]:
    """Read the source and draw as always, then replace what was drawn by numbers that any table could give."""

    def masked(real: Any, value: int) -> Any:
        def draw(self: Meter, *arguments: Any, **options: Any) -> list[list[int]]:
            found = real(self, *arguments, **options)
            return [[value + 3 * i + j for j in range(len(row))] for i, row in enumerate(found)]

        return draw

    def chosen(self: Meter, *arguments: Any, **options: Any) -> list[list[int]]:
        found = quantiles(self, *arguments, **options)
        return [[min(j, options["size"] - 1) for j in range(len(row))] for row in found]

    quantiles = Meter.quantiles
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("linear", 2**30), ("distinct", 2**24), ("units", 2**24)):
            patch.setattr(Meter, name, masked(getattr(Meter, name), value))
        patch.setattr(Meter, "quantiles", chosen)
        yield


# --- what can be seen --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """Everything that comes back from one statement, in the three ways it can be sent."""

    sql: str
    described: Any
    explained: Any
    answered: Any


def outcome(work: Any) -> object:
    """Return the value, or all that an error tells."""
    try:
        return work()
    except Refusal as refusal:
        return refusal.sqlstate, type(refusal).__name__, refusal.message, refusal.hint, refusal.span
    # Anything else is a defect that a client would see: let it fail the test.


def answered(session: Session, sql: str) -> object:
    result = session.execute(sql)
    rows = [tuple(repr(value) for value in row) for row in result.rows]
    return result.columns, rows, result.intervals, result.cost, result.tag


def observe(session: Session, sql: str) -> Seen:
    return Seen(
        sql,
        outcome(lambda: session.describe(sql)),
        [outcome(lambda form=form: session.execute(f"EXPLAIN {form} {sql}").rows) for form in ("", "(FORMAT JSON)")],
        outcome(lambda: answered(session, sql)),
    )


def stored(gate: Gate) -> list[object]:
    """Return all that the ledger keeps of each release, with what was drawn taken out and the clock left aside."""
    found: list[object] = []
    for release in gate.ledger.releases():
        body = {**decode(release.body)}
        shape = [len(row) for row in body.pop("y")]
        names = (release.id, release.key, release.question, release.population, release.table, release.version)
        found.append(
            (*names, release.analyst, release.sql, release.kind, to_bytes(release.cost), json.dumps(body), shape)
        )
    return found


def files(folder: Path) -> dict[str, str]:
    """Return the permissions of every file that is there."""
    return {str(path.relative_to(folder)): stat.filemode(path.stat().st_mode) for path in sorted(folder.rglob("*"))}


def watch(
    folder: Path, kind: str, name: str, statements: list[str], *, epsilon: float = 1e4
) -> tuple[list[Seen], list[object], dict[str, str]]:
    gate = make_world(folder / name.replace(" ", "_"), kind, name, epsilon=epsilon)
    try:
        session = gate.session()
        seen = [observe(session, sql) for sql in statements]
        return seen, stored(gate), files(gate.policy.path.parent)
    finally:
        gate.close()


def assert_same(left: Any, right: Any) -> None:
    for one, other in zip(left[0], right[0], strict=True):
        assert one == other
    for one, other in zip(left[1], right[1], strict=True):
        assert one == other
    assert left[2] == right[2]


# --- tests -------------------------------------------------------------------------------------------------

World = tuple[Path, str, Any]


@pytest.fixture(scope="module", params=KINDS)
def crowd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """All that the whole corpus shows on the table that others are compared with."""
    folder = tmp_path_factory.mktemp(f"leaks_{request.param}")
    return folder, request.param, watch(folder, request.param, "crowd", STATEMENTS)


@pytest.fixture(scope="module")
def crowd_few(crowd: World) -> Any:
    folder, kind, _ = crowd
    return watch(folder / "few", kind, "crowd", FEW)


def test_the_whole_corpus_shows_the_same_on_other_rows(crowd: World, capfd: Any, caplog: Any) -> None:
    """Not one row in common with the crowd, and nothing in order: no other table is further away."""
    folder, kind, expected = crowd
    caplog.set_level(logging.DEBUG)
    capfd.readouterr()
    assert_same(watch(folder, kind, "only odd", STATEMENTS), expected)
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


@pytest.mark.parametrize("name", [name for name in PEOPLE_TABLES if name not in ("crowd", "only odd")])
def test_every_kind_of_neighbour_shows_the_same(crowd: World, crowd_few: Any, name: str) -> None:
    folder, kind, _ = crowd
    assert_same(watch(folder / "few", kind, name, FEW), crowd_few)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("pair")
    PEOPLE_TABLES["pair"] = CROWD[:2]
    return folder, "csv", watch(folder, "csv", "pair", FEW[1:3])


@pytest.mark.parametrize("number", range(len(ODD["strange text"])))
def test_a_single_odd_line_does_not_change_how_others_are_read(pair: World, number: int) -> None:
    """A quote, a delimiter or a type that is guessed from the lines would change with one of them."""
    folder, kind, expected = pair
    PEOPLE_TABLES[f"odd {number}"] = [ODD["strange text"][number], *CROWD[:2]]
    assert_same(watch(folder, kind, f"odd {number}", FEW[1:3]), expected)


MALFORMED = (
    b"1",
    b"1,2,3,4,5,6,7,8,9,10,11,12,13,14",
    b"",
    b",,,,,,,,,,,",
    b"\xff\xfe,F,Oslo,1,1,1,1,1,1,1,1,\xff",
    b"a;b;c;d",
    b"'40,F,Oslo',1,1,1,1,1,1,1,1,1",
    b"#40,F",
    b'4"0,F"",Oslo,1,1,1,1,1,1,1,1,"x',
    b"40,F\r,Oslo,1,1,1,1,1,1,1,1,1\r",
    b"40,F,Oslo," + b"9" * 3_000_000 + b",1,1,1,1,1,1,1,1",
)


@pytest.mark.parametrize("number", range(len(MALFORMED)))
def test_a_malformed_line_of_a_csv_file_shows_nothing(pair: World, number: int) -> None:
    """It is left out or read as it can be: never an error. (As the last line, since an open quote takes the rest.)"""
    folder, kind, expected = pair
    name = f"malformed_{number}"
    PEOPLE_TABLES[name] = CROWD[:2]
    gate = make_world(folder / name, kind, name, epsilon=1e4)
    gate.close()
    with (folder / name / "people.csv").open("ab") as file:
        file.write(MALFORMED[number] + b"\n")
    gate = Gate.open(folder / name / "policy.toml")
    seen = [observe(gate.session(), sql) for sql in FEW[1:3]]
    gate.close()
    assert seen == expected[0]


def test_refusals_at_the_limit_of_the_budget_are_the_same(tmp_path: Path) -> None:
    """The corpus in a budget that runs out on the way."""
    found = [watch(tmp_path, "duckdb", name, STATEMENTS[:24], epsilon=0.6) for name in ("crowd", "only odd")]
    assert_same(*found)
    refused = [seen for seen in found[0][0] if "BudgetExceeded" in str(seen.answered)]
    paid = [seen for seen in found[0][0] if "SELECT" in str(seen.answered)]
    assert len(refused) > 3
    assert len(paid) > 3


def test_the_corpus_is_what_it_says(crowd: World) -> None:
    """Good statements are answered, bad ones refused with a SQLSTATE."""
    _, _, (seen, _, _) = crowd
    good = sum(1 for line in GOOD_SQL.splitlines() if line)
    refused = [one for one in seen if re.fullmatch(r"[0-9A-Z]{5}", str(one.answered[0]))]
    assert [one.sql for one in refused] == [one.sql for one in seen[good:]]
    assert good >= 40
    assert len(refused) >= 30


def test_nothing_shown_or_stored_holds_a_value_of_a_row(tmp_path: Path) -> None:
    """A secret in every text column appears nowhere, whatever is asked."""
    secret = "xyzzy-4711"
    PEOPLE_TABLES["secret"] = [*CROWD, person(city=secret, note=secret), person(age=secret), person(joined=secret)]
    seen, kept, names = watch(tmp_path, "csv", "secret", STATEMENTS)
    assert secret not in repr((seen, kept, names))
    rest = [path for path in (tmp_path / "secret").iterdir() if not path.name.startswith(("people", "visits"))]
    assert rest
    assert not [path.name for path in rest if secret.encode() in path.read_bytes()]


def test_the_ledger_and_what_belongs_to_it_is_closed_to_others(crowd: World) -> None:
    _, _, (_, _, names) = crowd
    own = {name: mode for name, mode in names.items() if "ledger" in name}
    assert own
    assert set(own.values()) == {"-rw-------"}


def test_a_source_that_spills_writes_where_nobody_else_can_read(tmp_path: Path) -> None:
    gate = make_world(tmp_path / "world", "parquet", "crowd", epsilon=1.0)
    connection = gate.meters["people"]._source._connection
    [(place,)] = connection.execute("SELECT current_setting('temp_directory')").fetchall()
    assert stat.S_IMODE(os.stat(place).st_mode) == 0o700
    gate.close()


@pytest.mark.parametrize("other", ["", ', other = "rest"'])
@pytest.mark.parametrize("nullable", ["", ", nullable = true"])
@pytest.mark.parametrize("kind", KINDS)
def test_undeclared_texts_take_no_room_however_many_they_are(
    tmp_path: Path, kind: str, nullable: str, other: str
) -> None:
    select = "SELECT CASE WHEN i % 5 = 0 THEN 'x' ELSE i || repeat('z', 400) END AS a, 7 AS v FROM range(300000) r(i)"
    columns = f'a = {{ values = ["x", "y"]{nullable}{other} }}\nv = {{ type = "integer", min = 0, max = 9 }}'
    gate = open_gate(tmp_path, select, columns=columns, kind=kind)
    connection = gate.meters["people"]._source._connection
    connection.execute("SET threads = 1; SET memory_limit = '110MB'; SET max_temp_directory_size = '1KB'")
    session = gate.session()
    session.execute("SET noisegate.error = 10")
    assert session.execute("SELECT a, count(*) AS n, sum(v) AS s FROM people GROUP BY a").rows  # and does not fail
    gate.close()


def test_the_identical_question_has_the_same_digest_in_every_gate(tmp_path: Path) -> None:
    """Also over a public join, whose rows the engine gives in any order: else it would be charged again."""
    joins = [sql for sql in STATEMENTS if "JOIN" in sql or "regions AS r" in sql][:3]
    digests = set()
    for number in range(4):
        _, kept, _ = watch(tmp_path / f"{number}", "parquet", "one row", joins)
        digests.add(tuple(one[2] for one in kept))  # type: ignore[index]
    assert len(digests) == 1


# --- the sandbox -------------------------------------------------------------------------------------------


def shop(folder: Path, count: int) -> Gate:
    """Return a gate whose protected and public tables are in one database file."""
    folder.mkdir()
    with duckdb.connect(str(folder / "shop.duckdb")) as connection:
        connection.execute(f"CREATE TABLE people AS SELECT range % 90 AS age, 'x' AS note FROM range({count})")
        connection.execute("CREATE TABLE regions AS SELECT 'north' AS region")
    text = """
[tables.people]
source = "shop.duckdb#people"
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
note = { hidden = true }
[tables.regions]
source = "shop.duckdb#regions"
public = true
"""
    return Gate.open(policy(folder, text))


def test_nothing_in_the_sandbox_knows_the_protected_file(tmp_path: Path) -> None:
    gate = shop(tmp_path / "one", 100)
    assert gate.session().execute("SELECT * FROM regions").rows == [("north",)]
    cursor = gate.sandbox._root.cursor()
    assert not cursor.execute("SELECT path FROM duckdb_databases() WHERE path IS NOT NULL").fetchall()
    assert not cursor.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'people'").fetchall()
    gate.close()


@pytest.mark.parametrize(
    "name",
    ["duckdb_tables", "duckdb_databases", "duckdb_columns", "sqlite_master", "pg_class", "pg_tables", "__domain_0"],
)
def test_the_name_of_a_cte_opens_no_table_outside_of_it(tmp_path: Path, name: str) -> None:
    """A WITH in one place does not make its name a table in another."""
    gate = shop(tmp_path / "one", 100)
    for sql in (
        f"SELECT (WITH {name} AS (SELECT 1 AS a) SELECT a FROM {name}) AS x, d.* FROM {name} AS d",
        f"SELECT 1 AS x FROM {name} AS d WHERE EXISTS (WITH {name} AS (SELECT 1 AS a) SELECT a FROM {name})",
        f"SELECT * FROM (WITH {name} AS (SELECT 1 AS a) SELECT a FROM {name}) AS t, {name} AS d",
        f"SELECT count(*) FROM people, {name} AS d WHERE age IN (WITH {name} AS (SELECT 1 AS a) SELECT a FROM {name})",
    ):
        with pytest.raises(Refusal):
            gate.session().execute(sql)
    gate.close()
