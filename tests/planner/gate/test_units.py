"""Privacy units of several rows: at most k rows of a unit count, always the same ones, whoever else is there."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

from planner.gate import Gate
from tests.planner.gates import KINDS, open_gate, policy, switch_noise_off

LIMIT = 3
COLUMNS = """
id = { type = "integer", min = 0, max = 1499 }
sex = { values = ["F", "M"] }
age = { type = "integer", min = 0, max = 110, nullable = true }
wealth = { type = "integer", min = -1_000_000_000, max = 1_000_000_000, nullable = true }
"""

Row = tuple[str | None, int, str, int | None, int | None, int | None]
"""who, id, sex, age, wealth, row key."""


def rows_of(who: str | None, count: int, *, first: int) -> list[Row]:
    """Return rows with ids of their own, and values of every kind."""
    return [
        (who, first + i, "FM"[i % 2], i % 111 if i % 7 else None, i * 1000 if i % 5 else None, 10_000 - i)
        for i in range(count)
    ]


SMALL = [row for unit in range(40) for row in rows_of(f"unit {unit}", unit % 7, first=10 * unit)]
GIANT = rows_of("giant", 1000, first=400)
NOBODY = rows_of(None, 99, first=1400)


def select(rows: list[Row]) -> str:
    """Return SQL that gives the rows, in this order."""
    values = ", ".join("(" + ", ".join("NULL" if v is None else repr(v) for v in row) + ")" for row in rows)
    return f"SELECT * FROM (VALUES {values}) AS t(who, id, sex, age, wealth, rk)"


Make = Callable[..., Gate]


@pytest.fixture(scope="module", params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    """Return a function that opens a gate without noise on rows, in a file of this kind; one for equal rows."""
    gates: dict[object, Gate] = {}

    def build(rows: list[Row], *, key: bool = False) -> Gate:
        name = (tuple(rows), key)
        if name not in gates:
            table = f'privacy_unit = "who"\nmax_rows_per_unit = {LIMIT}\n' + ('row_key = "rk"\n' if key else "")
            folder = tmp_path_factory.mktemp("units")
            gates[name] = open_gate(folder, select(rows), columns=COLUMNS, kind=request.param, table=table, epsilon=1e5)
        return gates[name]

    with pytest.MonkeyPatch.context() as patch:
        switch_noise_off(patch)
        yield build
    for gate in gates.values():
        gate.close()


def ask(gate: Gate, sql: str) -> list[tuple[object, ...]]:
    return gate.session().execute(sql).rows


def kept(gate: Gate, where: str = "true") -> set[int]:
    """Return the ids of the rows that count."""
    found = ask(gate, f"SELECT id, count(*) AS n FROM people WHERE {where} GROUP BY id ORDER BY id")
    return {int(str(key)) for key, n in found if n == 1}


@pytest.mark.parametrize("key", [False, True])
def test_a_unit_of_a_thousand_rows_changes_counts_by_at_most_its_limit(make: Make, key: bool) -> None:
    without, with_giant = make(SMALL, key=key), make(SMALL + GIANT, key=key)
    by_sex = "SELECT sex, count(*) FROM people GROUP BY sex ORDER BY sex"
    changes = [
        int(str(b[1])) - int(str(a[1])) for a, b in zip(ask(without, by_sex), ask(with_giant, by_sex), strict=True)
    ]
    assert all(change >= 0 for change in changes)
    assert sum(changes) == LIMIT
    (before,), (after,) = (ask(gate, "SELECT count(*) FROM people") for gate in (without, with_giant))
    assert int(str(after[0])) - int(str(before[0])) == LIMIT
    assert len(kept(with_giant) & {row[1] for row in GIANT}) == LIMIT


@pytest.mark.parametrize("key", [False, True])
def test_the_kept_rows_of_a_unit_do_not_depend_on_other_units(make: Make, key: bool) -> None:
    everyone = kept(make(SMALL + GIANT + NOBODY, key=key))
    assert kept(make(SMALL, key=key)) == everyone - {row[1] for row in GIANT}
    rest = [row for row in SMALL + GIANT if row[0] != "unit 6"]
    assert kept(make(rest, key=key)) == everyone - {row[1] for row in SMALL if row[0] == "unit 6"}


def test_the_order_of_other_units_rows_in_the_file_does_not_matter(make: Make) -> None:
    """Rows of one unit stay in order; those of different units are interleaved anew."""
    rows = SMALL + GIANT
    units = sorted({str(row[0]) for row in rows})
    queues = {unit: [row for row in rows if row[0] == unit] for unit in units}
    turns = [str(row[0]) for row in rows]
    random.Random(5).shuffle(turns)
    assert kept(make([queues[unit].pop(0) for unit in turns])) == kept(make(rows))


def test_with_a_row_key_the_order_of_the_file_does_not_matter(make: Make) -> None:
    rows = SMALL + GIANT
    shuffled = list(rows)
    random.Random(6).shuffle(shuffled)
    assert kept(make(shuffled, key=True)) == kept(make(rows, key=True))


@pytest.mark.parametrize("same_key", [7, None])
def test_equal_row_keys_keep_the_same_rows_for_every_question(make: Make, same_key: int | None) -> None:
    """Otherwise a unit could count in two questions that are charged as disjoint."""
    rows = [(*row[:5], same_key) for row in SMALL + GIANT]
    gate = make(rows, key=True)
    everyone = kept(gate)
    parts = [kept(gate, condition) for condition in ("sex = 'F'", "sex = 'M'")]
    assert parts[0] | parts[1] == everyone
    assert not parts[0] & parts[1]
    assert kept(gate, "age IS NULL OR age >= 0") == everyone
    assert len(everyone & {row[1] for row in GIANT}) == LIMIT


def test_every_question_counts_the_same_rows(make: Make) -> None:
    gate = make(SMALL + GIANT + NOBODY)
    everyone = kept(gate)
    for condition, opposite in (
        ("sex = 'F'", "sex = 'M'"),
        ("age > 50", "(age > 50) IS NOT TRUE"),
        ("wealth IS NULL", "wealth IS NOT NULL"),
        ("sex = 'M' AND age IS NOT NULL", "sex = 'F' OR age IS NULL"),
    ):
        inside, outside = kept(gate, condition), kept(gate, opposite)
        assert inside | outside == everyone
        assert not inside & outside


def test_rows_outside_the_domain_do_not_use_up_the_limit(make: Make) -> None:
    inside = rows_of("a", 4, first=0)
    outside: list[Row] = [("a", 10 + i, "X", 1, 1, i) for i in range(50)]
    assert len(kept(make(outside + inside))) == LIMIT


def test_rows_without_a_unit_do_not_count(make: Make) -> None:
    assert not kept(make(NOBODY))
    assert kept(make(SMALL + NOBODY)) == kept(make(SMALL))
    assert ask(make(NOBODY), "SELECT count(*), count(DISTINCT who) FROM people") == [(0, 0)]


def test_sums_and_quantiles_see_the_kept_rows_only(make: Make) -> None:
    gate = make(SMALL + GIANT)
    ids = kept(gate)
    values = sorted(row[1] for row in SMALL + GIANT if row[1] in ids)
    assert ask(gate, "SELECT sum(id) FROM people") == [(sum(values),)]
    [(median,)] = ask(gate, "SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY id) FROM people")
    assert values[len(values) // 2 - 1] <= int(str(median)) <= values[len(values) // 2]


def test_distinct_units_are_counted_once_each(make: Make) -> None:
    gate = make(SMALL + GIANT + NOBODY)
    ids, owner = kept(gate), {row[1]: row for row in SMALL + GIANT}
    units = {owner[i][0] for i in ids}
    assert ask(gate, "SELECT count(DISTINCT who) FROM people") == [(len(units),)]
    for condition, test in (
        ("sex = 'F'", lambda row: row[2] == "F"),
        ("age IS NULL", lambda row: row[3] is None),
        ("age BETWEEN 1 AND 3", lambda row: row[3] in (1, 2, 3)),
        ("wealth IS NULL", lambda row: row[4] is None),
        ("wealth IS NOT NULL", lambda row: row[4] is not None),
    ):
        expected = len({owner[i][0] for i in ids if test(owner[i])})
        assert ask(gate, f"SELECT count(DISTINCT who) FROM people WHERE {condition}") == [(expected,)], condition


def test_one_unit_changes_the_number_of_units_by_one_in_each_of_its_groups(make: Make) -> None:
    sql = "SELECT sex, count(DISTINCT who) FROM people GROUP BY sex ORDER BY sex"
    before, after = ask(make(SMALL), sql), ask(make(SMALL + GIANT), sql)
    changes = [int(str(b[1])) - int(str(a[1])) for a, b in zip(before, after, strict=True)]
    assert all(change in (0, 1) for change in changes)
    assert sum(changes) >= 1


@pytest.mark.parametrize(
    ("aggregate", "power"),
    [
        ("count(*)", 2),
        ("sum(age)", 2),
        ("avg(age)", 2),
        ("stddev(age)", 2),
        ("count(DISTINCT id)", 2),
        ("count(DISTINCT who)", 0),
    ],
)
def test_the_cost_grows_with_the_square_of_the_limit(tmp_path: Path, aggregate: str, power: int) -> None:
    """A unit with k rows shifts a sum by k times as much; the number of units by 1, whatever k is."""

    def rho(limit: int) -> Fraction:
        table = f'privacy_unit = "who"\nmax_rows_per_unit = {limit}\n'
        gate = open_gate(tmp_path / f"{limit}", select(SMALL), columns=COLUMNS, table=table)
        return gate.session().explain(f"SELECT {aggregate} FROM people").rho

    one = rho(1)
    rounding = 49 * one * Fraction(1, 2**37) + Fraction(100, 2**50)
    for limit in (2, 7):
        assert abs(rho(limit) - one * limit**power) <= rounding


def test_a_quantile_costs_for_its_rank_error_in_rows_of_one_unit(tmp_path: Path) -> None:
    """A unit moves ranks by k rows, so the same rank error takes k times the epsilon: k^2 of the cost."""

    def rho(limit: int) -> Fraction:
        table = f'privacy_unit = "who"\nmax_rows_per_unit = {limit}\n'
        gate = open_gate(tmp_path / f"{limit}", select(SMALL), columns=COLUMNS, table=table)
        return gate.session().explain("SELECT median(age) FROM people").rho

    assert 0.99 < float(rho(6) / rho(1)) / 36 < 1.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["", 'row_key = "rk"\n'])
def test_in_a_table_that_many_threads_read_the_same_rows_are_kept_every_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, key: str
) -> None:
    """400,000 rows of 50 units, all with the same key: without a last word the engine keeps others each time."""
    switch_noise_off(monkeypatch)
    rows = "SELECT range % 50 AS who, range % 1500 AS id, 'F' AS sex, 1 AS age, 1 AS wealth, 7 AS rk FROM range(400000)"
    table = f'privacy_unit = "who"\nmax_rows_per_unit = {LIMIT}\n{key}'
    gate = open_gate(tmp_path, rows, columns=COLUMNS, kind=kind, table=table, epsilon=1e6)
    found = []
    for _ in range(3):
        gate.refresh("people")
        found.append(ask(gate, "SELECT id, count(*) AS n FROM people GROUP BY id ORDER BY id"))
    gate.close()
    assert sum(int(str(n)) for _, n in found[0]) == 50 * LIMIT
    assert found == [found[0]] * 3


def test_a_collation_in_a_database_file_does_not_merge_values_or_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_noise_off(monkeypatch)
    rows = "SELECT unnest(['a', 'A', 'A']) COLLATE NOCASE AS who, unnest(['F', 'f', 'F']) COLLATE NOCASE AS sex"
    file = tmp_path / "people.duckdb"
    with duckdb.connect(str(file)) as connection:
        connection.execute("CREATE TABLE t (who VARCHAR COLLATE NOCASE, sex VARCHAR COLLATE NOCASE)")
        connection.execute(f"INSERT INTO t {rows}")
    text = '[tables.people]\nsource = "people.duckdb#t"\nprivacy_unit = "who"\nmax_rows_per_unit = 2\n'
    gate = Gate.open(policy(tmp_path, text + '[tables.people.columns]\nsex = { values = ["F", "f"] }\n'))
    assert ask(gate, "SELECT sex, count(*) FROM people GROUP BY sex ORDER BY sex") == [("F", 2), ("f", 1)]
    assert ask(gate, "SELECT count(DISTINCT who) FROM people") == [(2,)]
    gate.close()
