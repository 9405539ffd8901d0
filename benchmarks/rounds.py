"""What a released round costs, beside asking its queries one by one and the least possible; and how long it is planned.

    python -m benchmarks.rounds [largest number of queries, 32]

Random group-by and filter counts, with errors from ± 20 to ± 100, of a generated table. Each round is released by the
gate, and in the same run its queries are asked one after the other at another gate with a ledger of its own. Costs are
rho on the dearest cell: `apart` is one charge a query, as if nothing were shared; `in turn` asks one after the other,
each joined to all before; `round` is the release; `least` is the certified bound, below which nobody gets who knows all
targets beforehand. The last lines are rounds of whole marginals. Times are CPU seconds of EXPLAIN, beside a product of
two 1,000 x 1,000 matrices.
"""

from __future__ import annotations

import itertools
import platform
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np

from planner import enlisted, rounds
from planner.costs import rho_of
from planner.gate import Gate
from planner.rounds import Terms

COLUMNS = {"region": 6, "sex": 2, "status": 4}
ATTRIBUTES = 12
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


def in_turn(policy: Path, queries: Sequence[Asked]) -> float:
    """Return what the queries cost when they are asked one after the other."""
    with closing(Gate.open(policy)) as gate:
        session = gate.session()
        for sql, error in queries:
            session.execute(f"SET noisegate.error = {error}")
            session.execute(sql)
        return float(rho_of(gate.ledger.spent("default")))


def released(policy: Path, queries: Sequence[Asked]) -> tuple[float, float, float | None, float]:
    """Return what the queries cost apart, what the round costs, the bound for it, and how long it is planned."""
    with closing(Gate.open(policy)) as gate:
        session = gate.session()
        for sql, error in queries:
            session.execute(f"SELECT noisegate.enlist('round', $${sql}$$, error => {error})")
        entries = enlisted.entries(gate.ledger, "round")
        asked = [rounds.asked(gate, entry) for entry in entries]
        start = time.process_time()
        plan = rounds.settle(gate, "round", asked, Terms(), releaser=session.analyst)
        seconds = time.process_time() - start
        cost = session.execute("SELECT * FROM noisegate.release('round')").cost
        assert cost == plan.together.rho
        return sum(plan.alone_rho), float(cost), plan.together.bound, seconds


def compared(name: str, queries: Sequence[Asked], unit: float) -> None:
    """Print one line on a round."""
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        turn = in_turn(make(Path(one)), queries)
        apart, cost, bound, seconds = released(make(Path(other)), queries)
    least = f"{bound:.5f}, {cost / bound - 1:.1%} above" if bound else "not shown"
    print(
        f"  {name:32s} apart {apart:.5f}  in turn {turn:.5f}  round {cost:.5f}  least {least}; "
        f"apart / round {apart / cost:.2f}, in turn / round {turn / cost:.2f}; planned in {seconds:.2f} s "
        f"({seconds / unit:.0f} products)",
        flush=True,
    )


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
            compared(f"{count} random queries", list(dict.fromkeys(drawn(source) for _ in range(count))), unit)
    for attributes in (4, 8, ATTRIBUTES):
        pairs = itertools.combinations(range(attributes), 2)
        queries = [(f"SELECT c{a}, c{b}, count(*) FROM people GROUP BY 1, 2", 50) for a, b in pairs]
        if len(queries) <= 3 * most:
            compared(f"2-way marginals of {attributes} columns", queries, unit)


if __name__ == "__main__":
    main()
