"""The tables, policy and statements that the corpus tests share, and DuckDB on the restricted data as their oracle.

Nothing here is taken from the program under test: the data is restricted to the public domain row by row in
Python, and a statement is translated by sqlglot alone.
"""

import datetime as dt
import math
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify

HERE = Path(__file__).parent
ADULT = Path(__file__).parents[2] / "noisegate" / "data"

Row = tuple[Any, ...]

POLICY = """
[budget]
epsilon = 100_000.0
delta = 1e-9

[analysts.ann]
share = 1.0

[ledger]
url = "ledger.sqlite"

[tables.visits]
source = "visits.parquet"
rows = 1000
[tables.visits.columns]
temp = { type = "integer", min = -20, max = 40, nullable = true }
"education-num" = { type = "integer", min = 1, max = 16 }
"Mixed Case" = { values = ["Alpha", "beta", "GAMMA"] }
city = { values = ["Oslo", "Rome", "Lima", "Bonn"], other = "elsewhere" }
joined = { type = "date", min = "2019-01-01", max = "2020-12-31", nullable = true }
seen = { type = "timestamp", min = "2020-01-01 00:00:00", max = "2020-01-07 23:00:00", step = "1 hour" }
active = { type = "boolean", nullable = true }
vip = { type = "boolean" }
score = { type = "float", min = 0, max = 1, step = 0.01 }
price = { type = "float", min = -10, max = 10, step = 0.25, nullable = true }
lo = { type = "integer", min = 0, max = 12 }
hi = { type = "integer", min = 0, max = 12 }
grade = { values = [1, 2, 3] }
wealth = { type = "integer", min = -1_000_000, max = 20_000_000, role = "measure" }
shoe = { type = "integer", min = 20, max = 50, step = 5 }
secret = { hidden = true }

[tables.orders]
source = "orders.csv"
privacy_unit = "customer"
max_rows_per_unit = 3
population = "shop"
[tables.orders.columns]
item = { values = ["pen", "ink", "pad"] }
amount = { type = "integer", min = 1, max = 9 }

[tables.regions]
source = "regions.csv"
public = true

[tables.tags]
source = "tags.csv"
public = true

[tables.visits_synth]
source = "visits_synth.parquet"
synthetic_of = "visits"

[views.grown]
sql = "SELECT age, sex, hours FROM adult WHERE age >= 30"

[views.warm]
sql = 'SELECT city, temp, "education-num" AS edu FROM visits WHERE temp > 10'
"""

VIEWS = {
    "grown": "SELECT age, sex, hours FROM adult WHERE age >= 30",
    "warm": 'SELECT city, temp, "education-num" AS edu FROM visits WHERE temp > 10',
}

VISITS = {
    "temp": "BIGINT", "education-num": "BIGINT", "Mixed Case": "VARCHAR", "city": "VARCHAR", "joined": "DATE",
    "seen": "TIMESTAMP", "active": "BOOLEAN", "vip": "BOOLEAN", "score": "DOUBLE", "price": "DOUBLE",
    "lo": "BIGINT", "hi": "BIGINT", "grade": "BIGINT", "wealth": "BIGINT", "shoe": "BIGINT",
}  # fmt: skip
ORDERS = {"customer": "VARCHAR", "item": "VARCHAR", "amount": "BIGINT"}

REGIONS = """city,region,people,capital
Oslo,north,700,true
Rome,south,2800,true
Bonn,north,330,false
Paris,west,2100,true
"""  # no Lima, no elsewhere; Paris is nobody's city
SYNTHETIC = """SELECT CASE WHEN city IN ('Oslo', 'Rome', 'Lima', 'Bonn') THEN city ELSE 'elsewhere' END AS city,
    least(greatest(lo, 0), 12) AS lo, least(greatest(hi, 0), 12) AS hi"""  # by the domains of visits
TAGS = """city,tag,weight
Oslo,cold,1
Oslo,sea,2
Rome,warm,3
Rome,old,4
Rome,sea,5
Lima,sea,6
"""


# --- data --------------------------------------------------------------------------------------------------


def raw_visits(count: int = 900) -> list[dict[str, Any]]:
    """Return rows as a careless source has them: outside the domain, NULL, NaN and infinite here and there."""
    draw = random.Random(20)
    return [_visit(draw) for _ in range(count)]


def _visit(draw: random.Random) -> dict[str, Any]:
    def rarely(value: Any, odd: list[Any], chance: float = 0.03) -> Any:
        return draw.choice(odd) if draw.random() < chance else value

    day = dt.date(2019, 1, 1) + dt.timedelta(days=draw.randrange(731))
    hour = dt.datetime(2020, 1, 1) + dt.timedelta(minutes=draw.randrange(7 * 24 * 60))
    return {
        "temp": rarely(round(draw.gauss(12, 9)), [None, -99, 77, None]),
        "education-num": rarely(draw.randint(1, 16), [0, 99]),
        "Mixed Case": rarely(draw.choice(["Alpha", "Alpha", "beta", "GAMMA"]), ["alpha", None], 0.02),
        "city": rarely(draw.choice(["Oslo", "Rome", "Rome", "Lima"]), ["Paris", "oslo"], 0.1),
        "joined": rarely(day, [None, dt.date(1999, 12, 31), dt.date(2030, 1, 1)], 0.08),
        "seen": rarely(hour, [dt.datetime(2019, 5, 5, 5), dt.datetime(2021, 6, 6, 6, 6)]),
        "active": draw.choice([True, True, False, None]),
        "vip": rarely(draw.random() < 0.25, [None], 0.01),
        "score": rarely(draw.random() ** 2, [math.nan, math.inf, -math.inf, 7.5]),
        "price": rarely(draw.gauss(1, 4), [math.nan, None, math.inf, -math.inf], 0.1),
        "lo": rarely(draw.randint(0, 9), [-3]),
        "hi": rarely(draw.randint(2, 12), [40]),
        "grade": rarely(draw.choice([1, 2, 2]), [4, None], 0.02),
        "wealth": rarely(int(10 ** draw.uniform(0, 7)), [-5_000_000, 10**12, -300]),
        "shoe": draw.randint(18, 52),
        "secret": f"s{draw.randrange(10**6)}",
        "note": "undeclared",
    }


def restricted(row: dict[str, Any]) -> dict[str, Any] | None:
    """Return a row of visits as the policy sees it, or None if it is dropped."""
    kept: dict[str, Any] = {
        "temp": _clipped(row["temp"], -20, 40),
        "education-num": _clipped(row["education-num"], 1, 16),
        "Mixed Case": row["Mixed Case"],
        "city": row["city"] if row["city"] in ("Oslo", "Rome", "Lima", "Bonn") else "elsewhere",
        "joined": _clipped(row["joined"], dt.date(2019, 1, 1), dt.date(2020, 12, 31)),
        "seen": _hour(_clipped(row["seen"], dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 7, 23))),
        "active": row["active"],
        "vip": row["vip"],
        "score": _on_grid(row["score"], 0, 1, 100),
        "price": _on_grid(row["price"], -10, 10, 4),
        "lo": _clipped(row["lo"], 0, 12),
        "hi": _clipped(row["hi"], 0, 12),
        "grade": row["grade"],
        "wealth": _clipped(row["wealth"], -1_000_000, 20_000_000),
        "shoe": _clipped(row["shoe"], 20, 50) // 5 * 5,
    }
    listed = kept["Mixed Case"] in ("Alpha", "beta", "GAMMA") and kept["grade"] in (1, 2, 3)
    return kept if listed and kept["vip"] is not None and kept["score"] is not None else None


def _clipped(value: Any, low: Any, high: Any) -> Any:
    return None if value is None else min(max(value, low), high)


def _on_grid(value: float | None, low: int, high: int, steps: int) -> float | None:
    """Return the nearest multiple of 1 / steps between the bounds; NaN is NULL."""
    if value is None or math.isnan(value):
        return None
    return math.floor(min(max(value, low), high) * steps + 0.5) / steps


def _hour(value: dt.datetime) -> dt.datetime:
    return value.replace(minute=0, second=0, microsecond=0)


def raw_orders() -> list[Row]:
    """Return (customer, item, amount): at most three rows a customer, some outside the domain."""
    draw = random.Random(21)
    rows: list[Row] = []
    for customer in range(120):
        for _ in range(draw.randint(1, 3)):
            item = draw.choice(["pen", "pen", "ink", "glue"])
            rows.append((f"c{customer}", item, draw.choice([-4, 1, 2, 3, 5, 8, 9, 30])))
    return rows


def write_tables(folder: Path) -> Path:
    """Return the path of the policy, beside its tables."""
    shutil.copy(ADULT / "adult.parquet", folder)
    adult = (ADULT / "adult.toml").read_text(encoding="utf-8")
    policy = folder / "noisegate.toml"
    policy.write_text(POLICY + adult[adult.index("[tables.adult]") : adult.index("[tables.adult_synth]")], encoding="utf-8")
    (folder / "regions.csv").write_text(REGIONS, encoding="utf-8")
    (folder / "tags.csv").write_text(TAGS, encoding="utf-8")
    orders = "".join(f"{customer},{item},{amount}\n" for customer, item, amount in raw_orders())
    (folder / "orders.csv").write_text("customer,item,amount\n" + orders, encoding="utf-8")
    with duckdb.connect() as connection:
        rows = raw_visits()
        _fill(connection, "visits", {**VISITS, "secret": "VARCHAR", "note": "VARCHAR"}, rows)
        connection.execute(f"COPY visits TO '{folder / 'visits.parquet'}'")
        connection.execute(f"COPY (SELECT city, lo, hi FROM visits LIMIT 50) TO '{folder / 'visits_synth.parquet'}'")
    return policy


def _fill(connection: duckdb.DuckDBPyConnection, name: str, types: dict[str, str], rows: list[dict[str, Any]]) -> None:
    """Make a table of exactly these columns and types."""
    columns = [pa.array([row[column] for row in rows]) for column in types]
    connection.register("__rows", pa.table(columns, names=list(types)))
    casts = ", ".join(f'CAST("{column}" AS {kind}) AS "{column}"' for column, kind in types.items())
    connection.execute(f"CREATE TABLE {name} AS SELECT {casts} FROM __rows")


# --- statements --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One statement of the corpus, with what its comments say of it.

    `-- exact`: all rows equal (in order, if it has an ORDER BY), groups without rows are not left over;
    `-- levels: …`: the quantile columns' levels; `-- runs`: there is no oracle; `-- plain: …`: what the oracle runs
    instead; `-- values: …`: for placeholders; `-- names: …`, `-- types: …`, `-- rows: …`: what the answer has.
    """

    file: str
    number: int
    sql: str
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.file}-{self.number}"

    @property
    def values(self) -> Any:
        return eval(self.notes["values"], {"dt": dt}) if "values" in self.notes else None

    def listed(self, note: str) -> list[str] | None:
        return [part.strip() for part in self.notes[note].split(";")] if note in self.notes else None


def cases(*, folder: str = "sql") -> list[Case]:
    """Return every statement of tests/planner/sql, in order."""
    return [case for path in sorted((HERE / folder).glob("*.sql")) for case in _read(path)]


def _read(path: Path) -> Iterator[Case]:
    blocks = [block for block in path.read_text(encoding="utf-8").split("\n\n") if block.strip()]
    number = 0
    for block in blocks:
        lines = block.strip().splitlines()
        notes = dict(_note(line) for line in lines if line.startswith("-- "))
        sql = "\n".join(line for line in lines if not line.startswith("-- "))
        if sql:
            number += 1
            yield Case(path.stem, number, sql, notes)


def _note(line: str) -> tuple[str, str]:
    name, _, value = line.removeprefix("-- ").partition(":")
    return name.strip(), value.strip()


# --- the oracle --------------------------------------------------------------------------------------------


class Oracle:
    """DuckDB with the tables restricted to their domains."""

    def __init__(self, folder: Path) -> None:
        self.connection = duckdb.connect()
        self.connection.execute("SET error_on_division_by_zero = false")
        kept = [row for row in map(restricted, raw_visits()) if row is not None]
        _fill(self.connection, "visits", VISITS, kept)
        orders = [
            {"customer": customer, "item": item, "amount": min(max(amount, 1), 9)}
            for customer, item, amount in raw_orders()
            if item in ("pen", "ink", "pad")
        ]
        _fill(self.connection, "orders", ORDERS, orders)
        for name in ("regions", "tags"):
            self.connection.execute(f"CREATE TABLE {name} AS FROM read_csv('{folder / name}.csv')")
        self.connection.execute(f"CREATE TABLE visits_synth AS {SYNTHETIC} FROM '{folder / 'visits_synth.parquet'}'")
        self.connection.execute(f"CREATE TABLE adult AS {_adult(folder)}")
        for name, sql in VIEWS.items():
            self.connection.execute(f"CREATE VIEW {name} AS {sql}")
        self.schema = {name: self._columns(name) for name in self._tables()}

    def _tables(self) -> list[str]:
        return [name for (name,) in self.connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()] + [
            *VIEWS
        ]

    def _columns(self, table: str) -> dict[str, str]:
        return {row[0]: row[1] for row in self.connection.execute(f"DESCRIBE {table}").fetchall()}

    def run(self, tree: exp.Expr, values: Any = None) -> list[Row]:
        return self.connection.execute(tree.sql("duckdb"), values).fetchall()

    def read(self, sql: str, change: Callable[[exp.Expr], exp.Expr] = lambda tree: tree) -> exp.Expr:
        """Return a PostgreSQL statement as a tree for DuckDB, with integers divided as PostgreSQL does."""
        tree = change(sqlglot.parse_one(sql, read="postgres"))
        tree = qualify(tree, schema=self.schema, dialect="postgres")
        tree = annotate_types(tree, schema=self.schema, dialect="postgres")
        return tree.transform(_divided)


def _divided(node: exp.Expr) -> exp.Expr:
    """DuckDB's // truncates like PostgreSQL's / when both sides are integers."""
    if isinstance(node, exp.Div) and all(side.is_type(*exp.DataType.INTEGER_TYPES) for side in (node.left, node.right)):
        return exp.IntDiv(this=node.left, expression=node.right)
    return node


def _adult(folder: Path) -> str:
    """All of Adult lies in its domain: what it has to say about that is in noisegate/data/README.md."""
    return f"SELECT * EXCLUDE (fnlwgt) FROM '{folder / 'adult.parquet'}'"
