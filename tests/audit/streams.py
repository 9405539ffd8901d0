"""Random streams of every kind of question, on small tables whose every possible row can be listed."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from planner.basics.errors import Refusal
from planner.calls.rounds.payment import MECHANISMS
from planner.gate import Gate
from planner.history import recall
from planner.session import Session
from tests.audit.books import Record, Table, tables
from tests.planner.gates import write

POLICY = """
[budget]
epsilon = 1e6
delta = 1e-9
[analysts.ann]
share = 0.5
[analysts.bob]
share = 0.3
[analysts.eve]
[tables.people]
source = "people.parquet"
[tables.people.columns]
g = { values = ["a", "b", "c"] }
s = { values = ["x", "y"], nullable = true }
age = { type = "integer", min = 0, max = 3 }
pay = { type = "integer", min = -2, max = 4, step = 2, nullable = true, role = "measure" }
[tables.visits]
source = "visits.parquet"
privacy_unit = "person"
max_rows_per_unit = 2
row_key = "visit"
[tables.visits.columns]
ward = { values = ["h", "c", "e"] }
day = { type = "integer", min = 0, max = 1 }
bill = { type = "integer", min = 0, max = 3, role = "measure" }
[tables.twin]
source = "twin.parquet"
synthetic_of = "people"
[tables.shadow]
source = "shadow.parquet"
synthetic_of = "visits"
[tables.zones]
source = "zones.csv"
public = true
[tables.tags]
source = "tags.csv"
public = true
"""
ZONES = "SELECT * FROM (VALUES ('a', 'north'), ('b', 'south'), ('c', 'north')) AS t(g, zone)"
TAGS = "SELECT * FROM (VALUES ('a', 'p', 2), ('a', 'q', -1), ('a', 'q', 3), ('b', 'p', 1)) AS t(g, tag, weight)"
ANALYSTS = ("ann", "bob", "eve")
COPIES = {"people": "twin", "visits": "shadow"}


def literal(value: object) -> str:
    return "NULL" if value is None else repr(value)


@dataclass
class World:
    """A gate on random rows, and all that is true of it: the rows of every table in every version."""

    folder: Path
    rng: random.Random
    extra: dict[str, tuple[Record, ...]] = field(default_factory=dict)  # one more unit of a table
    domains: dict[str, Table] = field(init=False)
    rows: dict[tuple[str, int], Counter[Record]] = field(default_factory=dict)
    gate: Gate = field(init=False)
    answered: Counter[str] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        policy = self.folder / "policy.toml"
        policy.write_text(POLICY, encoding="utf-8")
        self.domains = tables(policy)
        write(self.folder / "zones.csv", ZONES)
        write(self.folder / "tags.csv", TAGS)
        for name, copy in COPIES.items():
            self.fill(name, 1)
            self.store(name, self.units(name), file=copy)
        self.gate = Gate.open(policy)
        self.sessions = {name: self.gate.session(name) for name in ANALYSTS}

    @property
    def ledger(self) -> Path:
        return self.folder / "noisegate.ledger.sqlite"

    def fill(self, name: str, version: int) -> None:
        units = [*self.units(name), *([self.extra[name]] if name in self.extra else [])]
        self.store(name, units, file=name)
        self.rows[name, version] = Counter(record for unit in units for record in unit)

    def units(self, name: str) -> list[tuple[Record, ...]]:
        """Return a random table: of people every row that is possible at least once, of visits up to two a person."""
        table, rng = self.domains[name], self.rng
        if table.rows_per_unit == 1:
            return [(record,) for record in table.records for _ in range(rng.randint(1, 4))]
        return [tuple(rng.choices(table.records, k=rng.randint(1, table.rows_per_unit))) for _ in range(80)]

    def store(self, name: str, units: list[tuple[Record, ...]], *, file: str) -> None:
        table, lines = self.domains[name], []
        for person, unit in enumerate(units):
            for visit, record in enumerate(unit):
                values = [c.value(i) for c, i in zip(table.columns.values(), record, strict=True)]
                lines.append("(" + ", ".join(map(literal, [*values, person, visit])) + ")")
        names = ", ".join((*table.columns, "person", "visit"))
        write(self.folder / f"{file}.parquet", f"SELECT * FROM (VALUES {', '.join(lines)}) AS t({names})")

    def refresh(self, name: str) -> None:
        version = self.gate.ledger.version(name) + 1
        self.fill(name, version)
        assert self.gate.refresh(name) == version

    def ask(self, kind: str, sql: str, analyst: str | None = None) -> Any:
        """Ask as some analyst, at some accuracy; what is refused is noted."""
        session: Session = self.sessions[analyst or self.rng.choice(ANALYSTS)]
        try:
            found = session.execute(sql)
        except Refusal as refused:
            self.refused.append(f"{kind}: {refused.message}: {sql}")
            return None
        self.answered[kind] += 1
        return found

    def tune(self) -> None:
        """Give every session another accuracy."""
        for session in self.sessions.values():
            session.execute("RESET ALL")
            if self.rng.random() < 0.3:
                session.execute(f"SET noisegate.rho = {self.rng.choice(['0.01', '0.3', '2'])}")
            else:
                session.execute(f"SET noisegate.error = {self.rng.choice([1, 2, 5, 20])}")
                session.execute(f"SET noisegate.sum_error = {self.rng.choice([3, 10, 50])}")

    def close(self) -> None:
        self.gate.close()


WHERE = {
    "people": ["", "WHERE g = 'a'", "WHERE g <> 'b' AND age > 1", "WHERE s IS NULL OR pay > 0", "WHERE age IN (0, 3)"],
    "visits": ["", "WHERE ward = 'h'", "WHERE day = 0 OR bill > 1", "WHERE bill <> 2"],
}
GROUP = {"people": ["", "g", "s", "age", "g, s", "age / 2"], "visits": ["", "ward", "day", "ward, day"]}
COUNTS = {
    "people": ["count(*)", "count(pay)", "count(*) FILTER (WHERE age < 2)", "count(*), count(s)"],
    "visits": ["count(*)", "count(*) FILTER (WHERE bill > 0)", "count(*), sum(CASE WHEN day = 1 THEN 1 ELSE 0 END)"],
}
SUMS = {
    "people": ["sum(pay)", "sum(age), count(*)", "sum(CASE WHEN g = 'a' THEN age ELSE -2 * age END)", "sum(pay + age)"],
    "visits": ["sum(bill)", "sum(bill), sum(day)", "sum(CASE WHEN ward = 'h' THEN bill * 1.5 ELSE 0 END)"],
}
MEASURE = {"people": ["pay", "age"], "visits": ["bill", "day"]}


def select(world: World, aggregates: str, *, table: str, source: str = "") -> str:
    group = world.rng.choice(GROUP[table])
    keys, by = (f"{group}, ", f" GROUP BY {group}") if group else ("", "")
    return f"SELECT {keys}{aggregates} FROM {source or table} {world.rng.choice(WHERE[table])}{by}"


def some(world: World) -> str:
    return world.rng.choice(["people", "visits"])


def counts(world: World) -> None:
    table = some(world)
    world.ask("counts", select(world, world.rng.choice(COUNTS[table]), table=table))


def sums(world: World) -> None:
    table = some(world)
    world.ask("sums", select(world, world.rng.choice(SUMS[table]), table=table))


def averages(world: World) -> None:
    table = some(world)
    world.ask("averages", select(world, f"avg({world.rng.choice(MEASURE[table])})", table=table))


def variances(world: World) -> None:
    table, how = some(world), world.rng.choice(["variance", "stddev_pop"])
    world.ask("variances", select(world, f"{how}({world.rng.choice(MEASURE[table])}), count(*)", table=table))


def quantiles(world: World) -> None:
    table = some(world)
    column = world.rng.choice(MEASURE[table])
    form = world.rng.choice(["median({})", "quantile_disc({}, 0.9)", "median({}) AS m, dp_low(median({}))"])
    world.ask("quantiles", select(world, form.format(column, column), table=table))


def distincts(world: World) -> None:
    table = some(world)
    column = world.rng.choice([*MEASURE[table], "g" if table == "people" else "ward"])
    world.ask("distincts", select(world, f"count(DISTINCT {column})", table=table))


def units(world: World) -> None:
    world.ask("units", select(world, "count(DISTINCT person)", table="visits"))


def ward_by_ward(world: World) -> None:
    """Ask for the people of each ward apart: a person of two wards pays twice, in cells that are disjoint."""
    for ward in ("h", "c", "e"):
        world.ask("units", f"SELECT count(DISTINCT person) FROM visits WHERE ward = '{ward}'", analyst="ann")


def grouping_sets(world: World) -> None:
    what = world.rng.choice(["count(*)", "sum(pay)", "count(*), avg(age)"])
    how = world.rng.choice(["CUBE (g, s)", "ROLLUP (g, age)", "GROUPING SETS ((g), (s), ())"])
    keys = how.replace("CUBE", "").replace("ROLLUP", "").replace("GROUPING SETS", "")
    keys = ", ".join(dict.fromkeys(k for k in ("g", "s", "age") if k in keys))
    world.ask("grouping sets", f"SELECT {keys}, {what} FROM people GROUP BY {how}")


def joins(world: World) -> None:
    what = world.rng.choice(["count(*)", "sum(age)", "avg(pay)"])
    world.ask("joins", f"SELECT zone, {what} FROM people JOIN zones ON people.g = zones.g GROUP BY zone")
    what = world.rng.choice(["count(*)", "sum(weight)", "sum(age * weight)", "count(*), sum(age)"])
    how = world.rng.choice(["JOIN", "LEFT JOIN"])
    world.ask("matches", f"SELECT tag, {what} FROM people {how} tags ON people.g = tags.g GROUP BY tag")


DECIDED = {
    "count(*)": ("auto", "LM_count", "EM_count"),
    "sum({})": ("auto", "LM_sum", "EM_sum", "R2T_sum", "SVT_sum"),
    "avg({})": ("auto", "LM_avg", "EM_avg"),
    "median({})": ("auto", "EM_rank", "EM_med", "Hist_med"),
}


def verdicts(world: World) -> None:
    """Verify one query by each decider that fits it."""
    for asked, names in DECIDED.items():
        copy, column, group = world.rng.choice([("twin", "age", "g"), ("shadow", "bill", "ward"), ("twin", "pay", "s")])
        keys, by = world.rng.choice([(f"{group}, ", f" GROUP BY {group}"), ("", "")])
        sql = f"SELECT {keys}{asked.format(column)} FROM {copy}{by}"
        for name in names:
            if name == "SVT_sum" and column == "pay":  # for values of one sign only
                sql = f"SELECT {keys}sum(age) FROM {copy}{by}"
            epsilon = world.rng.choice(["0.5", "1", "3"])
            rest = f"tau => {world.rng.choice([1, 2, 5])}, epsilon => {epsilon}, decider => '{name}'"
            world.ask(f"verify {name}", f"SELECT * FROM noisegate.verify($${sql}$$, {rest})")


def choices(world: World) -> None:
    table, first, second = world.rng.choice([("people", "g", "age"), ("visits", "ward", "bill")])
    what = world.rng.choice(["count(*)", f"sum({second})"])
    sqls = [
        f"SELECT {what} FROM {table}",
        f"SELECT {first}, {what} FROM {table} GROUP BY 1",
        f"SELECT {first}, {second}, {what} FROM {table} GROUP BY 1, 2",
    ]
    rho, snr = world.rng.choice(["0.01", "0.5"]), world.rng.choice([1, 5])
    array = ", ".join(f"$${sql}$$" for sql in sqls)
    world.ask("choose", f"SELECT * FROM noisegate.choose(ARRAY[{array}], rho => {rho}, snr => {snr})")


def rounds(world: World) -> None:
    """One round by each mechanism."""
    for mechanism in MECHANISMS:
        world.number += 1
        name = f"round {world.number}"
        for analyst in ("ann", "bob", "eve"):
            table = some(world)
            what = world.rng.choice([*COUNTS[table], *SUMS[table]])
            sql, error = select(world, what, table=table), world.rng.choice([1, 4, 10])
            world.ask("enlist", f"SELECT * FROM noisegate.enlist('{name}', $${sql}$$, error => {error})", analyst)
        world.ask(f"round {mechanism}", f"SELECT * FROM noisegate.release('{name}', mechanism => '{mechanism}')", "ann")


def marginal_tables(world: World) -> None:
    """Counts of whole marginals, on the way that large tables go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recall, "SMALL_MARGINALS", 0)
        patch.setattr(recall, "MAX_ASKED", 0)
        keys = world.rng.choice(["g, s, age", "g, age", "s, age"])
        world.ask("marginals", f"SELECT {keys}, count(*) FROM people GROUP BY CUBE ({keys})")
        world.ask("marginals", "SELECT ward, day, count(*) FROM visits GROUP BY 1, 2")


def top_ups(world: World) -> None:
    """The same again and more finely, so that what is known is completed."""
    for sql, error in (("", 20), ("g, ", 10), ("g, ", 3), ("g, s, ", 3)):
        session = world.sessions["bob"]
        session.execute(f"SET noisegate.error = {error}")
        by = f" GROUP BY {sql.rstrip(', ')}" if sql else ""
        world.ask("top-ups", f"SELECT {sql}count(*) FROM people WHERE age > 0{by}", "bob")


def refreshes(world: World) -> None:
    world.refresh(world.rng.choice(["people", "visits"]))
    world.answered["refresh"] += 1


KINDS: tuple[Callable[[World], None], ...] = (
    counts, sums, averages, variances, quantiles, distincts, units, ward_by_ward, grouping_sets, joins, verdicts,
    choices, rounds, marginal_tables, top_ups,
)  # fmt: skip

EXPECTED = {
    "counts", "sums", "averages", "variances", "quantiles", "distincts", "units", "grouping sets", "joins", "matches",
    "choose", "marginals", "top-ups", "enlist", "refresh",
    *(f"round {mechanism}" for mechanism in MECHANISMS),
    *(f"verify {name}" for names in DECIDED.values() for name in names),
}  # fmt: skip
"""What must have been answered at least once by all streams together."""


def run(world: World, *, length: int, refreshing: bool) -> None:
    """Ask every kind of question at least once, in random order, and more of them."""
    steps = [*KINDS, *world.rng.choices([counts, sums, averages, distincts, quantiles, joins, choices], k=length)]
    world.rng.shuffle(steps)
    if refreshing:
        for _ in range(4):
            steps.insert(world.rng.randrange(len(steps)), refreshes)
    for step in steps:
        world.tune()
        step(world)
