"""What answers betray of a person, found from the answers alone, is never more than the gate says that was spent.

Pairs of neighbouring tables: 1,000 towns with a person more, or not, by a coin in each. Random statements, several
gates each with a ledger of its own. What a person was charged is read off noisegate.budget. The answers are those of a
real server to psycopg in the first test, and of the DB-API connection in the others, which is quicker.

A bound passes what it should not with probability at most 1e-8; there are fewer than 60, so the false-alarm rate of
the file is below 1e-6. A planted mistake is found with the computed power, above 1 - 1e-6.

NOISEGATE_AUDIT=10 asks ten times as many statements.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import noisegate
from mechanisms.noise import sampling
from planner import session as sessions
from planner.cells import costs
from planner.gate import Gate
from tests.audit.blackbox import Trials, found_rho, power
from tests.planner.gates import write
from tests.proxy.servers import running

pytestmark = pytest.mark.slow  # streams of statements through a whole gate

TIMES = int(os.environ.get("NOISEGATE_AUDIT", "1"))
TOWNS = 1000
RHO = 1.25
PLANTED = 4 * RHO
WHOLE = [["SELECT town, count(*) FROM people GROUP BY town"]]
TRAINING, TESTING = 2, 4
SIZE = 1900
"""At least so many of 4,000 coins fall on each side; they are the same every time."""

POLICY = """
[budget]
epsilon = 1e4
delta = 1e-9
[tables.people]
source = "people.parquet"
{unit}
[tables.people.columns]
town = {{ type = "integer", min = 0, max = 999 }}
sex = {{ values = ["f", "m"] }}
age = {{ type = "integer", min = 0, max = 9 }}
[tables.copy]
source = "copy.parquet"
synthetic_of = "people"
"""
UNITS = 'privacy_unit = "person"\nmax_rows_per_unit = 2\nrow_key = "visit"'
OTHERS = """SELECT (i // 3)::INT AS town, CASE WHEN i % 2 = 0 THEN 'f' ELSE 'm' END AS sex, (i * 7 % 5)::INT AS age,
    i::INT AS person, 0 AS visit FROM range(3000) AS r(i) """
COPY = "SELECT (i % 1000)::INT AS town, 'f' AS sex, 4 AS age, i AS person, 0 AS visit FROM range(2000) AS r(i)"
Ask = Callable[[str], list[tuple[Any, ...]]]
Way = Callable[[Path], AbstractContextManager[Ask]]


@dataclass(frozen=True)
class Town:
    """How a table is made: which rows an additional person has, and how the policy tells people apart."""

    extra: tuple[tuple[str, int], ...] = (("f", 9),)
    unit: str = ""

    def store(self, folder: Path, coins: Sequence[bool], *, shift: int = 0) -> None:
        """Write three rows of other people in every town, and one person more where the coin says so."""
        there = [
            (person + shift, sex, age, 100_000 + person, visit)
            for person, coin in enumerate(coins)
            for visit, (sex, age) in enumerate(self.extra if coin else ())
        ]
        more = f"UNION ALL SELECT * FROM (VALUES {', '.join(map(str, there))}) AS t(town, sex, age, person, visit)"
        write(folder / "people.parquet", OTHERS + (more if there else ""))

    def make(self, folder: Path, coins: Sequence[bool]) -> Path:
        folder.mkdir(parents=True)
        self.store(folder, coins)
        write(folder / "copy.parquet", COPY)
        policy = folder / "policy.toml"
        policy.write_text(POLICY.format(unit=self.unit), encoding="utf-8")
        return policy


ROW, UNIT = Town(), Town((("f", 9), ("f", 8)), UNITS)


@contextmanager
def by_wire(policy: Path) -> Iterator[Ask]:
    """Yield a way to ask a real server by psycopg."""
    with running(policy) as served, psycopg.connect(served.dsn("analyst"), autocommit=True) as connection:
        yield lambda sql: connection.execute(sql).fetchall() if sql.startswith("SELECT") else []  # type: ignore[arg-type]


@contextmanager
def by_dbapi(policy: Path) -> Iterator[Ask]:
    """Yield a way to ask by PEP 249."""
    with closing(noisegate.connect(policy)) as connection:
        cursor = connection.cursor()

        def ask(sql: str) -> list[tuple[Any, ...]]:
            cursor.execute(sql)
            return cursor.fetchall() if sql.startswith("SELECT") else []

        yield ask


def numbers(rows: Sequence[tuple[Any, ...]]) -> np.ndarray[Any, Any]:
    """Return the answers about each town, in order of towns; whatever is far away is brought nearer."""
    ordered = sorted(rows, key=lambda row: row[0])
    found = [[0.0 if value is None else float(value) for value in row[1:]] for row in ordered]
    return np.clip(np.nan_to_num(np.array(found)), -100, 100)


def spent(ask: Ask) -> float:
    return float(ask("SELECT rho_spent FROM noisegate.budget")[0][0])


def tried(
    folder: Path,
    asked: Sequence[Sequence[str]],
    *,
    before: Sequence[str] = (),
    town: Town = ROW,
    way: Way = by_dbapi,
    rho: float = RHO,
) -> tuple[float, float, int]:
    """Return what was found, what was booked, and how many persons were there, or were not, if that is fewer.

    A question may be asked in several statements, each about some of the first towns. With statements `before` it,
    which release what it asks, it must be free.
    """
    rng, trials, booked = random.Random(str(asked)), [], set()
    for number in range(TRAINING + TESTING):
        coins = [rng.random() < 0.5 for _ in range(TOWNS)]
        with way(town.make(folder / str(number), coins)) as ask:
            ask("SET noisegate.error = 1000" if before else f"SET noisegate.rho = {rho / len(asked)}")
            for sql in before:
                ask(sql)
            paid = spent(ask)
            answers = [numbers([row for sql in parts for row in ask(sql)]) for parts in asked]
            booked.add(spent(ask))
            assert not before or booked == {paid}
        table = np.column_stack(answers)
        trials.append(Trials(table, np.array(coins[: len(table)])))
    assert len(booked) == 1  # the same on all neighbours
    testing = Trials.joined(trials[TRAINING:])
    present = int(testing.present.sum())
    found = found_rho(Trials.joined(trials[:TRAINING]), testing)
    return found, booked.pop(), min(present, len(testing.present) - present)


AGGREGATES = (
    "count(*)", "count(*) FILTER (WHERE age > 5)", "sum(age)", "sum(CASE WHEN age > 4 THEN age ELSE 1 END)", "avg(age)",
    "median(age)", "quantile_disc(age, 0.9)", "count(DISTINCT age)", "variance(age)", "count(*), sum(age)",
)  # fmt: skip
CONDITIONS = ("", "WHERE age > 2", "WHERE sex = 'f'", "WHERE sex = 'f' OR age > 3")


def statements(rng: random.Random, count: int, more: Sequence[str] = ()) -> list[list[str]]:
    """Return random questions about every town; the person who may be there counts in all of them."""
    pairs = zip(rng.sample((*AGGREGATES, *more), count), rng.choices(CONDITIONS, k=count), strict=True)
    return [[f"SELECT town, {what} FROM people {where} GROUP BY town"] for what, where in pairs]


@pytest.mark.parametrize("seed", range(2 * TIMES))
def test_answers_that_leave_the_wire_betray_no_more_than_was_booked(tmp_path: Path, seed: int) -> None:
    found, booked, _ = tried(tmp_path, statements(random.Random(seed), 3), way=by_wire)
    assert found <= booked


@pytest.mark.parametrize("seed", range(6 * TIMES))
def test_random_questions_betray_no_more_than_was_booked(tmp_path: Path, seed: int) -> None:
    found, booked, _ = tried(tmp_path, statements(random.Random(100 + seed), random.Random(seed).randint(1, 4)))
    assert found <= booked


@pytest.mark.parametrize("seed", range(3 * TIMES))
def test_units_of_two_rows_betray_no_more_than_was_booked(tmp_path: Path, seed: int) -> None:
    asked = statements(random.Random(200 + seed), 2, more=("count(DISTINCT person)",) * 6)
    found, booked, _ = tried(tmp_path, asked, town=UNIT)
    assert found <= booked


BLOCKS = 4
WIDTH = TOWNS // BLOCKS
QUARTERS = [f"town >= {first} AND town < {first + WIDTH}" for first in range(0, TOWNS, WIDTH)]
"""So many groups at once can be verified."""


def decided(what: str, decider: str, tau: float) -> list[str]:
    arguments = f"tau => {tau}, epsilon => 2, decider => '{decider}'"
    sqls = [f"SELECT town, {what} FROM copy WHERE {quarter} GROUP BY town" for quarter in QUARTERS]
    return [f"SELECT town, decision::INT FROM noisegate.verify($${sql}$$, {arguments})" for sql in sqls]


@pytest.mark.parametrize(
    ("town", "asked"),
    [
        (ROW, [decided("count(*)", "EM_count", 1.5), decided("sum(age)", "EM_sum", 4)]),
        (UNIT, [decided("count(*)", "EM_count", 1.5), decided("avg(age)", "EM_avg", 2)]),
    ],
    ids=["rows", "units"],
)
def test_decisions_betray_no_more_than_was_booked(tmp_path: Path, town: Town, asked: list[list[str]]) -> None:
    found, booked, _ = tried(tmp_path, asked, town=town)
    assert found <= booked


# --- rounds and choices ------------------------------------------------------------------------------------


def enlisted(asked: Sequence[Sequence[str]], *, mechanism: str = "waterfilling") -> list[str]:
    """Return the statements of a round of some questions."""
    enlist = [f"SELECT * FROM noisegate.enlist('all', $${sql}$$)" for parts in asked for sql in parts]
    return [*enlist, f"SELECT * FROM noisegate.release('all', rho => {RHO}, mechanism => '{mechanism}')"]


ROUND = [
    ["SELECT town, count(*) FROM people GROUP BY town"],
    ["SELECT town, count(*) FROM people WHERE age > 5 GROUP BY town"],
    ["SELECT town, sum(age) FROM people GROUP BY town"],
]
PARTS = [f"SELECT town, count(*) FROM people WHERE town >= {f} AND town < {f + 25}" for f in range(0, 200, 25)]
"""A choice among many groups takes long, so that only some towns are asked about."""

CHOICE = [[f"{part} GROUP BY town" for part in PARTS], [f"{part} AND sex = 'f' GROUP BY town" for part in PARTS]]


def chosen(sql: str) -> str:
    """Return a choice between a question and one that is finer.

    So little is asked of the finer one that it is taken, whatever the coins: then what it tells is free.
    """
    finer = sql.replace("town,", "town, sex,").replace("GROUP BY town", "GROUP BY town, sex")
    analyses = f"ARRAY[$${sql}$$, $${finer}$$]"
    return f"SELECT * FROM noisegate.choose({analyses}, snr => 0.1, fraction => 0.1, rho => {RHO})"


@pytest.mark.parametrize("mechanism", ["waterfilling", "independent", "identity"])
def test_rounds_betray_no_more_than_was_booked(tmp_path: Path, mechanism: str) -> None:
    found, booked, _ = tried(tmp_path, ROUND, before=enlisted(ROUND, mechanism=mechanism))
    assert 0 < found <= booked


def test_choices_betray_no_more_than_was_booked(tmp_path: Path) -> None:
    found, booked, _ = tried(tmp_path, CHOICE, before=[chosen(sql) for sql in CHOICE[0]])
    assert 0 < found <= booked


def test_the_audit_finds_much_of_what_is_spent(tmp_path: Path) -> None:
    found, booked, size = tried(tmp_path, WHOLE, rho=PLANTED)
    assert size >= SIZE
    assert power(booked, 0.25 * booked, size=SIZE) > 1 - 1e-6
    assert 0.25 * booked < found <= booked


# --- who moves between refreshes ---------------------------------------------------------------------------


def moved(folder: Path, *, gates: int, seed: int) -> tuple[Trials, float]:
    """Return trials of persons who live in another quarter of the towns in every version of the data."""
    rng, trials, booked = random.Random(seed), [], set()
    for number in range(gates):
        coins, answers = [rng.random() < 0.5 for _ in range(WIDTH)], []
        policy = ROW.make(folder / str(number), coins)
        with closing(Gate.open(policy)) as other, by_dbapi(policy) as ask:
            ask(f"SET noisegate.rho = {RHO}")
            for block, quarter in enumerate(QUARTERS):
                if block:
                    ROW.store(policy.parent, coins, shift=block * WIDTH)
                    other.refresh("people")
                answers.append(numbers(ask(f"SELECT town, count(*) FROM people WHERE {quarter} GROUP BY town")))
            booked.add(spent(ask))
        trials.append(Trials(np.column_stack(answers), np.array(coins)))
    return Trials.joined(trials), booked.pop()


def test_who_moves_between_refreshes_has_paid_no_more_than_was_booked(tmp_path: Path) -> None:
    """Were charges added up cell by cell over versions, four questions would be booked as one: seen here."""
    training, _ = moved(tmp_path / "training", gates=6, seed=1)
    testing, booked = moved(tmp_path / "testing", gates=16, seed=2)
    assert power(BLOCKS * RHO, RHO, size=SIZE) > 1 - 1e-6
    assert min(int(testing.present.sum()), int((~testing.present).sum())) >= SIZE
    assert RHO < found_rho(training, testing) <= booked


# --- planted mistakes --------------------------------------------------------------------------------------


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    real = sampling.rounded_gaussian
    patch.setattr(sampling, "rounded_gaussian", lambda size, *, bits: real(size, bits=bits - 1))


def dropped_charges(patch: pytest.MonkeyPatch) -> None:
    """Only the first of four releases of a gate is charged."""
    real, count = sessions.Draft, itertools.count()
    patch.setattr(
        sessions,
        "Draft",
        lambda **named: real(**named) if next(count) % 4 == 0 else replace(real(**named), cost=costs.constant(0)),
    )


def wrong_cells(patch: pytest.MonkeyPatch) -> None:
    """Each release of a gate is booked on ages two years above those of the one before."""
    real, count = sessions.Draft, itertools.count()

    def draft(**named: Any) -> sessions.Draft:
        found, shift = real(**named), 2 * (next(count) % 4)
        assert [key.split("#")[0] for key in found.cost.scope] == ["age"]
        (partition,) = found.cost.partitions
        return replace(found, cost=replace(found.cost, partitions=(np.roll(partition, shift),)))

    patch.setattr(sessions, "Draft", draft)


FOUR = ("count(*)", "sum(age)", "count(*) FILTER (WHERE age > 8)", "sum(CASE WHEN age = 9 THEN 2 ELSE 1 END)")
RARE = [[f"SELECT town, {what} FROM people WHERE age > 7 GROUP BY town"] for what in FOUR]
FRESH = [*RARE[:3], ["SELECT town, count(*) FROM people WHERE age > 7 AND sex = 'f' GROUP BY town"]]
"""None of them is told by those before it, so that there are four releases."""


@pytest.mark.parametrize(
    ("plant", "asked", "rho"),
    [(half_the_noise, WHOLE, RHO), (dropped_charges, FRESH, PLANTED), (wrong_cells, RARE, PLANTED)],
)
def test_a_planted_mistake_is_found(
    tmp_path: Path, plant: Callable[[pytest.MonkeyPatch], None], asked: list[list[str]], rho: float
) -> None:
    """Each makes persons pay four times what is booked."""
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        found, booked, size = tried(tmp_path, asked, rho=rho)
    assert size >= SIZE
    assert booked == pytest.approx(RHO, rel=0.01)
    assert power(PLANTED, booked, size=SIZE) > 1 - 1e-6
    assert found > booked
