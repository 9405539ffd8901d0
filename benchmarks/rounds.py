"""What a released round costs, beside asking its queries one by one and the least possible; and how long it is planned.

    python -m benchmarks.rounds [largest number of queries, 32]    0: reports and wide rounds only

Random group-by and filter counts, with errors from ± 20 to ± 100, of a generated table. Each round is released by the
gate, and in the same run its queries are asked one after the other at another gate with a ledger of its own. Costs are
rho on the dearest cell: `apart` is one charge a query, as if nothing were shared; `in turn` asks one after the other,
each joined to all before; `round` is the release; `least` is the certified bound, below which nobody gets who knows all
targets beforehand. After a history, `in turn` is compared with by how much the round raises what the dearest cell has
paid in all. Then rounds of whole marginals; then reports about the bundled table, first ones and after a history; wide
rounds, whose filters leave nothing that could be swapped, beside what they would cost if they were cut into problems of
512 answers; and how many queries of a report are planned in a minute. Times are CPU seconds of EXPLAIN, beside a
product of two 1,000 x 1,000 matrices.
"""

from __future__ import annotations

import itertools
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np

from planner.calls.rounds import axes, roster, rounds
from planner.calls.rounds.rounds import Terms
from planner.cells.costs import rho_of
from planner.gate import Gate

COLUMNS = {"region": 6, "sex": 2, "status": 4}
ATTRIBUTES = 12
MINUTE = 60.0
POLICY = """[budget]
epsilon = 1000
delta = 1e-9
[tables.people]
source = "people.parquet"
[tables.people.columns]
age = {{ type = "integer", min = 0, max = 59 }}
{columns}
"""

Asked = tuple[str, int]

ADULT = Path(__file__).parents[1] / "noisegate" / "data"
REPORT: list[Asked] = [
    ("SELECT count(*) FROM adult", 20),
    ("SELECT sex, count(*) FROM adult GROUP BY 1", 30),
    ("SELECT race, sex, count(*) FROM adult GROUP BY 1, 2", 50),
    ("SELECT education, count(*) FROM adult GROUP BY 1", 50),
    ("SELECT education, sex, count(*) FROM adult WHERE age >= 30 GROUP BY 1, 2", 60),
    ("SELECT age / 10, count(*) FROM adult GROUP BY 1", 30),
    ("SELECT age / 10, sex, count(*) FROM adult GROUP BY 1, 2", 60),
    ("SELECT count(*) FROM adult WHERE hours > 40", 30),
    ("SELECT workclass, count(*) FROM adult GROUP BY 1", 50),
    ("SELECT workclass, sex, count(*) FROM adult WHERE hours > 40 GROUP BY 1, 2", 60),
    ("SELECT marital_status, avg(hours) FROM adult WHERE age < 40 GROUP BY 1", 50),
]
BEFORE: list[Asked] = [
    ("SELECT count(*) FROM adult WHERE age > 40", 30),
    ("SELECT sex, education, count(*) FROM adult GROUP BY 1, 2", 80),
    ("SELECT race, count(*) FROM adult GROUP BY 1", 50),
    ("SELECT age / 10, count(*) FROM adult GROUP BY 1", 60),
]
LEVELS = (
    "Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad", "Some-college", "Assoc-voc",
    "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate",
)  # fmt: skip
WIDE_KEYS = ("education, sex", "age / 5, sex", "age / 5", "education", "age / 5, education", "age / 10, education")
GROUPED = ("sex", "race", "education", "marital_status", "workclass", "relationship", "income", "occupation")


def make(folder: Path) -> Path:
    """Write the table and its policy."""
    sizes = {**COLUMNS, **{f"c{i}": 8 for i in range(ATTRIBUTES)}}
    values = ", ".join(
        f"(i * {7 + 2 * n} + i // {3 + n}) % {size} AS {name}" for n, (name, size) in enumerate(sizes.items())
    )
    with duckdb.connect() as connection:
        select = f"SELECT (i * 37 % 60)::INTEGER AS age, {values} FROM range(20000) AS r(i)"
        connection.execute(f"COPY ({select}) TO '{folder / 'people.parquet'}' (FORMAT parquet)")
    columns = "\n".join(f'{name} = {{ type = "integer", min = 0, max = {size - 1} }}' for name, size in sizes.items())
    path = folder / "noisegate.toml"
    path.write_text(POLICY.format(columns=columns), encoding="utf-8")
    return path


def drawn(source: random.Random) -> Asked:
    """Return a random query and its error."""
    keys = source.sample([*COLUMNS, "age / 10", "age / 5"], source.randint(0, 2))
    filters = [
        "",
        "",
        f" WHERE age < {source.randint(5, 55)}",
        " WHERE sex = 0",
        f" WHERE region <> {source.randint(0, 5)}",
    ]
    group = f" GROUP BY {', '.join(map(str, range(1, len(keys) + 1)))}" if keys else ""
    return f"SELECT {', '.join([*keys, 'count(*)'])} FROM people{source.choice(filters)}{group}", source.choice(
        [20, 30, 50, 100]
    )


def filtered(source: random.Random) -> Asked:
    """Return a random query of the bundled table and its error, with filters that tell most values apart."""
    keys, tests = source.choice(WIDE_KEYS), []
    low, high = sorted(source.sample(range(20, 95, 5), 2))
    if source.random() < 0.7:
        tests.append(f"age BETWEEN {low} AND {high - 1}")
    if source.random() < 0.5:
        tests.append(f"hours >= {source.choice((35, 40, 50))}")
    if source.random() < 0.3:
        tests.append(f"sex = '{source.choice(('Female', 'Male'))}'")
    if source.random() < 0.4:
        levels = ", ".join(f"'{level}'" for level in source.sample(LEVELS, source.randint(4, 12)))
        tests.append(f"education IN ({levels})")
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    group = ", ".join(map(str, range(1, keys.count(",") + 2)))
    return f"SELECT {keys}, count(*) FROM adult{where} GROUP BY {group}", source.choice([30, 50, 80])


def wide(count: int, seed: int) -> list[Asked]:
    source = random.Random(seed)
    return list(dict.fromkeys(filtered(source) for _ in range(count)))


def adult(folder: Path) -> Path:
    """Write the bundled table with a large budget."""
    for name in ("adult.parquet", "adult_synth.parquet", "adult.toml"):
        shutil.copy(ADULT / name, folder)
    path = folder / "adult.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("epsilon = 2.0", "epsilon = 1000.0"), encoding="utf-8")
    return path


def one_by_one(gate: Gate, queries: Sequence[Asked]) -> float:
    """Ask queries one after the other; return what all of them cost, and what was asked before."""
    session = gate.session(next(iter(gate.policy.analysts)))
    for sql, error in queries:
        session.execute(f"SET noisegate.error = {error}")
        session.execute(sql)
    return float(rho_of(gate.ledger.spent("default")))


def in_turn(policy: Path, queries: Sequence[Asked], before: Sequence[Asked]) -> float:
    """Return what the queries cost when they are asked one after the other."""
    with closing(Gate.open(policy)) as gate:
        already = one_by_one(gate, before)
        return one_by_one(gate, queries) - already


def enlisted_in(gate: Gate, queries: Sequence[Asked]) -> list[rounds.Asked]:
    """Return the queries, enlisted."""
    session = gate.session(next(iter(gate.policy.analysts)))
    for sql, error in queries:
        session.execute(f"SELECT noisegate.enlist('round', $${sql}$$, error => {error})")
    return [rounds.asked(gate, entry) for entry in roster.entries(gate.ledger, "round")]


def cut(policy: Path, queries: Sequence[Asked], before: Sequence[Asked]) -> float:
    """Return what the round would cost if it were not planned as one problem."""
    whole, axes.MAX_ROUND_WORK = axes.MAX_ROUND_WORK, 0
    try:
        with closing(Gate.open(policy)) as gate:
            one_by_one(gate, before)
            asked = enlisted_in(gate, queries)
            return float(rounds.settle(gate.session(asked[0].entry.analyst), "round", asked, Terms()).together.rho)
    finally:
        axes.MAX_ROUND_WORK = whole


def released(
    policy: Path, queries: Sequence[Asked], before: Sequence[Asked]
) -> tuple[float, float, float | None, float, float]:
    """Return what the queries cost apart, what the round costs, the bound for it, by how much it raises what was spent,
    and how long it is planned.
    """
    with closing(Gate.open(policy)) as gate:
        already = one_by_one(gate, before)
        asked = enlisted_in(gate, queries)
        start = time.process_time()
        plan = rounds.settle(gate.session(asked[0].entry.analyst), "round", asked, Terms())
        seconds = time.process_time() - start
        cost = gate.session(asked[0].entry.analyst).execute("SELECT * FROM noisegate.release('round')").cost
        assert cost == plan.together.rho
        raised = float(rho_of(gate.ledger.spent("default"))) - already
        return sum(plan.alone_rho), float(cost), plan.together.bound, raised, seconds


def compared(
    name: str,
    queries: Sequence[Asked],
    unit: float,
    *,
    table: Callable[[Path], Path],
    before: Sequence[Asked] = (),
    alone: bool = False,
) -> float:
    """Print one line on a round; return how long it is planned."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        turn = None if alone else in_turn(table(Path(one)), queries, before)
        apart, cost, bound, raised, seconds = released(table(Path(other)), queries, before)
    least = f"{bound:.5f}, {cost / bound - 1:.1%} above" if bound else "not shown"
    asked, ratio = ("", "") if turn is None else (f"in turn {turn:.5f}  ", f", in turn / round {turn / raised:.2f}")
    print(
        f"  {name:32s} apart {apart:.5f}  {asked}round {cost:.5f}  least {least}; "
        f"apart / round {apart / cost:.2f}{ratio}; planned in {seconds:.2f} s "
        f"({seconds / unit:.0f} products)",
        flush=True,
    )
    return seconds


def report(count: int) -> list[Asked]:
    """Return a large report: pairs of columns, each for all, for the young, and for those who work much."""
    filters = ("", " WHERE age < 30", " WHERE hours > 40", " WHERE age >= 60")
    pairs = [(a, b, f) for f in filters for a, b in itertools.combinations(GROUPED, 2)]
    return [(f"SELECT {a}, {b}, count(*) FROM adult{f} GROUP BY 1, 2", 60) for a, b, f in pairs[:count]]


def main() -> None:
    """Print one line a round."""
    most = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 32
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    square = np.random.default_rng(0).standard_normal((1000, 1000))
    start = time.process_time()
    _ = square @ square
    unit = time.process_time() - start
    for count in (4, 8, 16, 32):
        if count <= most:
            source = random.Random(count)
            queries = list(dict.fromkeys(drawn(source) for _ in range(count)))
            compared(f"{count} random queries", queries, unit, table=make)
    for attributes in (4, 8, ATTRIBUTES):
        pairs = itertools.combinations(range(attributes), 2)
        queries = [(f"SELECT c{a}, c{b}, count(*) FROM people GROUP BY 1, 2", 50) for a, b in pairs]
        if len(queries) <= 3 * most:
            compared(f"2-way marginals of {attributes} columns", queries, unit, table=make)
    compared("a report, eleven queries", REPORT, unit, table=adult)
    compared("the same after a history", REPORT, unit, table=adult, before=BEFORE)
    for count, seed, before in ((30, 1, []), (30, 1, BEFORE), (44, 1, [])):
        with tempfile.TemporaryDirectory() as folder:
            apart = cut(adult(Path(folder)), wide(count, seed), before)
        name = f"{count} filters{' after a history' if before else ''}, cut {apart:.5f}"
        compared(name, wide(count, seed), unit, table=adult, before=before, alone=True)
    count, seconds = 14, 0.0
    while seconds < MINUTE and count <= len(report(1000)):
        seconds = compared(f"a report, {count} queries", report(count), unit, table=adult, alone=True)
        count *= 2


if __name__ == "__main__":
    main()
