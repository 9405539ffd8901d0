"""The locked-down DuckDB in which analysts' expressions run: on public domains, public tables and noisy results.

It never holds a protected row. It has no files, no network, no settings that can be changed.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import duckdb
import numpy as np
from sqlglot import exp

from planner.domain import Domain
from planner.errors import EvaluationFailed, SourceFailed, TooLarge, UnknownFunction, Unsupported
from planner.policy import Column, Policy, Table
from planner.sources.duckdb import Indexed, Reader, attach, attached_name, literal, quoted

MEMORY_LIMIT = "2GB"

TIME_LIMIT = 60.0
"""How many seconds one expression may take to evaluate; it runs on public and noisy data only."""

MOST_ROWS = 1_000_000
"""Largest answer."""

CLOCKS = (
    "today",
    "now",
    "current_date",
    "get_current_time",
    "get_current_timestamp",
    "transaction_timestamp",
)

# Nodes that sqlglot knows by name and that a private answer can't stand on: they change from call to call,
# tell about the gate instead of the data, or reach outside.
REFUSED_NODES = tuple(
    getattr(exp, name)
    for name in [
        "Rand",
        "Randn",
        "Randstr",
        "Uuid",
        "CurrentUser",
        "SessionUser",
        "CurrentDatabase",
        "CurrentSchema",
        "CurrentCatalog",
        "CurrentRole",
        "CurrentVersion",
        "ReadCSV",
        "ReadParquet",
        "NextValueFor",
        "Lateral",
        "TableSample",
        "Into",
        "Lock",
        "Parameter",
    ]
    if hasattr(exp, name)
)


BOUNDLESS_NODES = (exp.Lambda, exp.Comprehension, exp.Reduce, exp.GenerateSeries, exp.Format)
"""Nodes of which a short one makes a value of any size; BOUNDLESS has the functions that sqlglot does not know."""

OWN_FUNCTIONS = frozenset(
    {"dp_interval_low", "dp_interval_high", "dp_stddev", "quantile", "quantile_cont", "quantile_disc"}
)
"""What the gate itself answers; the sandbox never sees these."""


REFLECTIVE = {"version", "json_serialize_plan", "json_deserialize_sql", "parse_duckdb_log_message"}

BOUNDLESS = {"range", "generate_series", "list_resize", "array_resize", "bitstring", "printf", "format", "reduce"}
BOUNDLESS |= {"list_reduce", "array_reduce"}
"""Functions of which a short call makes a value of any size."""

LONGEST_TEXT = 1_000_000
"""Characters that one function may make of others."""


def _at_most(size: str, value: str, kind: str) -> str:
    """Return the SQL of an argument that is an error if a size is beyond the limit.

    The check stands in the argument: DuckDB computes calls of constants while it plans, where neither its memory limit
    nor an interrupt reaches them, and whatever CASE they stand in.
    """
    message = f"a text would have more than {LONGEST_TEXT:,} characters"
    return f"CASE WHEN {size} > {LONGEST_TEXT} THEN CAST(error('{message}') AS {kind}) ELSE {value} END"


_REPEATED = _at_most("CAST(length(item) AS HUGEINT) * CAST(times AS BIGINT)", "CAST(times AS BIGINT)", "BIGINT")
_PADDED = _at_most("CAST(size AS BIGINT)", "CAST(size AS INTEGER)", "INTEGER")
_REPLACED = _at_most("(CAST(length(item) AS HUGEINT) + 1) * length(new)", "new", "VARCHAR")

BOUNDED = {
    "repeat(item, times)": f"system.main.repeat(item, {_REPEATED})",
    "lpad(item, size, filling)": f"system.main.lpad(item, {_PADDED}, filling)",
    "rpad(item, size, filling)": f"system.main.rpad(item, {_PADDED}, filling)",
    "replace(item, old, new)": f"system.main.replace(item, old, {_REPLACED})",
    "regexp_replace(item, old, new)": (
        f"system.main.regexp_replace(item, old, {_REPLACED}), "
        f"(item, old, new, options) AS system.main.regexp_replace(item, old, {_REPLACED}, options)"
    ),
}
"""Functions in the place of DuckDB's own of the same names."""


UNSIGNED = {8: "UTINYINT", 16: "USMALLINT", 32: "UINTEGER", 64: "UBIGINT", 128: "HUGEINT"}
"""Types of indices on a domain, by their bits."""


class Sandbox:
    """One in-memory DuckDB with the public tables of a policy, locked after loading."""

    def __init__(self, policy: Policy) -> None:
        self._root = duckdb.connect(config={"python_enable_replacements": False})
        self._lock = threading.Lock()
        self._domains: dict[tuple[str, Domain, bool], str] = {}
        self._readers: dict[str, Reader] = {}
        for table in policy.tables.values():
            if table.kind == "public":
                self._load(table)
            elif table.synthetic_of is not None:
                self._load_synthetic(table, policy.tables[table.synthetic_of])
        self._root.execute("CREATE SCHEMA noisegate")
        for head, body in BOUNDED.items():
            self._root.execute(f"CREATE MACRO {head} AS {body}")
        for setting in (
            "autoinstall_known_extensions=false",
            "autoload_known_extensions=false",
            "error_on_division_by_zero=false",
            f"memory_limit='{MEMORY_LIMIT}'",
            "temp_directory=''",
            "TimeZone='UTC'",
            "enable_external_access=false",
            "lock_configuration=true",
        ):
            self._root.execute(f"SET GLOBAL {setting}")

    def _load(self, table: Table) -> None:
        hidden = ", ".join(quoted(column.name) for column in table.columns.values() if column.hidden)
        shown = f"* EXCLUDE ({hidden})" if hidden else "*"  # what is hidden is not even here
        self._fill(table, lambda source: f"SELECT {shown} FROM {source}")

    def _load_synthetic(self, table: Table, original: Table) -> None:
        """Load a synthetic table as its original is read: its columns, clipped or dropped by the same domains.

        So an exact answer on the one is about the same thing as a private answer on the other.
        """
        columns = {name: column for name, column in original.columns.items() if not column.hidden}
        self._fill(table, lambda source: self._conformed(table, source, columns))
        kept = {name: column for name, column in columns.items() if name in self.schema(table.name)}
        read = replace(original, name=table.name, unit=None, max_rows_per_unit=1, row_key=None, columns=kept)
        # Its values once more, as indices: a tally is then several times as fast, as often as it is asked for.
        plain, name = Reader(read, self._root, quoted(table.name)), quoted(f"__index_{table.name}")
        indices = [
            f"CAST({plain.index(c.name, c.domain)} AS {_unsigned(c.domain.size)}) AS {quoted(c.name)}"
            for c in kept.values()
            if c.domain is not None
        ]
        self._root.execute(f"CREATE TABLE {name} AS SELECT {', '.join(indices) or '1'} FROM {quoted(table.name)}")
        self._readers[table.name] = Indexed(read, self._root, name, conformed=True)

    def _conformed(self, table: Table, source: str, columns: dict[str, Column]) -> str:
        """Return the SELECT of a source's columns, as the domains of those columns have them."""
        reader = Reader(replace(table, columns=columns), self._root, source)
        inner, outer, tests = [], [], []
        for i, column in enumerate(c for c in columns.values() if c.name in reader.columns()):
            domain = column.domain
            if domain is None:
                inner.append(f"{quoted(column.name)} AS x{i}")
                outer.append(f"x{i} AS {quoted(column.name)}")
                continue
            read = reader.index if domain.ordered else reader.value
            inner.append(f"{read(column.name, domain)} AS x{i}")
            outer.append(f"{_domain_value(domain, f'x{i}')} AS {quoted(column.name)}")
            tests.append(reader.inside(column.name, domain) or "true")
        if not inner:
            raise duckdb.BinderException("Binder Error: it has no column of the table that it is a copy of")
        where = f" WHERE {' AND '.join(tests)}" if tests else ""
        return f"SELECT {', '.join(outer)} FROM (SELECT {', '.join(inner)} FROM {source}{where})"

    def reader(self, table: str) -> Reader:
        """Return what counts and sums the rows of a synthetic table."""
        with self._lock:
            return self._readers[table].on(self._root.cursor())

    def _fill(self, table: Table, select: Callable[[str], str]) -> None:
        try:
            source = attach(self._root, table, text=table.kind == "synthetic")
            self._root.execute(f"CREATE TABLE {quoted(table.name)} AS {select(source)}")
            # A file may hold protected tables as well: nothing of it stays in reach.
            if table.inner is not None:
                self._root.execute(f"DETACH {quoted(attached_name(table))}")
        except duckdb.Error as error:
            raise SourceFailed(
                f"the source of {table.kind} table {table.name} can't be read: {first_line(error)}"
            ) from error

    @functools.cached_property
    def functions(self) -> frozenset[str]:
        """Names of the scalar functions that give the same value every time."""
        rows = self._root.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('scalar', 'macro') "
            "AND (stability = 'CONSISTENT' OR stability IS NULL) AND NOT starts_with(function_name, '__')"
        ).fetchall()
        return frozenset({name.lower() for (name,) in rows} - REFLECTIVE - BOUNDLESS) | frozenset(CLOCKS)

    def schema(self, table: str) -> dict[str, str]:
        """Return the column types of a loaded table."""
        rows = self._root.cursor().execute(f"DESCRIBE {quoted(table)}").fetchall()
        return {row[0]: row[1] for row in rows}

    def domain(self, domain: Domain, *, name: str, presence: bool = False) -> str:
        """Return the name of a table (i, v) with every cell of a public domain, made on first use.

        With `presence` it has one cell for all values (shown as the first of them) and one for NULL.
        """
        key = (name, domain, presence)
        with self._lock:
            if key not in self._domains:
                table = f"__domain_{len(self._domains)}"
                self._fill_domain(table, domain, size=1 if presence else domain.size)
                self._domains[key] = table
            return self._domains[key]

    def _fill_domain(self, table: str, domain: Domain, *, size: int) -> None:
        if domain.ordered:
            rows = f"SELECT i, {grid_value(domain)} AS v FROM range({size}) AS r(i)"
        else:
            labels = list(domain.values or ()) + ([domain.other] if domain.other is not None else [])
            values = ", ".join(f"({i}, {literal(label)})" for i, label in enumerate(labels))
            rows = f"SELECT i, CAST(v AS {domain.duckdb_type}) AS v FROM (VALUES {values}) AS t(i, v)"
        null = f" UNION ALL SELECT {size}, NULL" if domain.nullable else ""
        self._root.execute(f"CREATE TABLE {table} AS {rows}{null}")

    def workbench(self) -> Workbench:
        """Return a connection of its own, whose temporary tables end with it."""
        with self._lock:
            return Workbench(self._root.cursor())

    def check_functions(self, tree: exp.Expr) -> None:
        """Raise if `tree` calls something that is not a plain, repeatable function of its arguments."""
        refused = (*REFUSED_NODES, *BOUNDLESS_NODES)
        for node in tree.find_all(exp.Func, *refused):
            name = function_name(node)
            if isinstance(node, exp.Anonymous) and name not in self.functions | OWN_FUNCTIONS:
                known = self._root.cursor().execute(
                    "SELECT 1 FROM duckdb_functions() WHERE lower(function_name) = ? LIMIT 1", [name]
                )
                if known.fetchone() is None:
                    raise UnknownFunction(f"there is no function {name}", hint="check its name", span=span(node))
                raise _refused(name, node)
            if isinstance(node, refused) and not _is_source(node):
                raise _refused(name, node)


def _is_source(node: exp.Expr) -> bool:
    """Return whether a series stands in FROM, where the compiler says what can."""
    return isinstance(node, exp.GenerateSeries) and isinstance(node.parent, exp.Table)


def _refused(name: str, node: exp.Expr) -> Unsupported:
    hint = "use functions that give the same value for the same arguments every time"
    hints = {"lateral": "use a subquery and a join", "tablesample": "ask about the whole table"}
    return Unsupported(f"{name} can't be used here", hint=hints.get(name, hint), span=span(node))


class Workbench:
    """One connection to the sandbox: registers arrays, runs SELECTs, says clearly what fails."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def register(self, name: str, columns: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._cursor.register(name, dict(columns))

    def run(self, sql: str) -> duckdb.DuckDBPyConnection:
        """Run one statement of ours or one that was rewritten from the analyst's tree."""
        with self._limited():
            return self._cursor.execute(sql)

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Stop what takes too long; DuckDB computes most of a large result only while it is fetched."""
        timer = threading.Timer(TIME_LIMIT, self._cursor.interrupt)
        timer.start()
        try:
            yield
        except duckdb.InterruptException:
            raise TooLarge(
                f"the query takes longer than {TIME_LIMIT:g} seconds to evaluate", hint="ask about less at a time"
            ) from None
        except duckdb.Error as error:
            raise EvaluationFailed(
                f"the expression can't be evaluated: {first_line(error)}",
                hint="check the types and functions; the public domain of each column is in noisegate.domains",
            ) from None
        finally:
            timer.cancel()

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Return all rows of a statement; refuse more than an answer may have."""
        with self._limited():
            found = self._cursor.execute(sql).fetchmany(MOST_ROWS + 1)
        if len(found) > MOST_ROWS:
            raise TooLarge(f"the answer has more than {MOST_ROWS:,} rows", hint="add a LIMIT")
        return found

    def rehearse(self, sql: str) -> None:
        """Run a statement for its shape: raise if a subquery has more than one row where one value is expected."""
        try:
            self.rows(sql)
        except EvaluationFailed as failure:
            if "More than one row" in failure.message:
                raise

    def arrays(self, sql: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the result column by column; an integer or float column has NULL as a masked value."""
        with self._limited():
            return self._cursor.execute(sql).fetchnumpy()

    def types(self, sql: str) -> list[tuple[str, str]]:
        """Return (name, type) of every output column, without running anything."""
        return [(row[0], row[1]) for row in self.run(f"DESCRIBE {sql}").fetchall()]


def _domain_value(domain: Domain, found: str) -> str:
    """Return the SQL of a value of a domain: of its index if it is ordered, else of what was found, if it is inside."""
    if domain.ordered:
        return f"CASE WHEN {found} < {domain.size} THEN {grid_value(domain, found)} END"
    if domain.other is None:
        return found
    labels = ", ".join(literal(label) for label in domain.values or ())
    other = literal(domain.other)
    return f"CASE WHEN {found} IS NULL OR {found} IN ({labels}) THEN {found} ELSE {other} END"


def _unsigned(largest: int) -> str:
    """Return the smallest type that holds the integers from 0 to the largest."""
    return next(name for bits, name in UNSIGNED.items() if largest >> bits == 0)


def grid_value(domain: Domain, i: str = "i") -> str:
    """Return the SQL of the i-th value of a grid domain."""
    low, step = domain.low, domain.step
    match domain.type:
        case "integer":
            return f"CAST({low} + {i} * {step} AS BIGINT)"
        case "float":
            # One division of exact integers, so that the grid is the same double everywhere.
            scale = 10 ** max(_decimals(low), _decimals(step))
            return f"CAST({int(low * scale)} + {i} * {int(step * scale)} AS DOUBLE) / {scale}.0"
        case "date":
            return f"CAST(DATE '{low}' + CAST({i} * {step} AS INTEGER) AS DATE)"
        case _:
            microseconds = int(step.total_seconds() * 1_000_000)  # type: ignore[union-attr]
            return f"TIMESTAMP '{low}' + to_microseconds({i} * {microseconds})"


def _decimals(number: Any) -> int:  # Any: a Decimal here, Domain's type is wider
    return max(0, -int(number.as_tuple().exponent))


def function_name(node: exp.Expr) -> str:
    """Return the name that the analyst wrote, as well as it can be known."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    if "name" in node.meta:
        return str(node.meta["name"])
    name = node.sql_name().lower() if isinstance(node, exp.Func) else node.key
    return {"group_concat": "string_agg", "j_s_o_n_array_agg": "json_agg", "rand": "random"}.get(name, name)


def span(node: exp.Expr) -> tuple[int, int] | None:
    """Return where a node stands in the SQL text: the extent of all its parts that know their place."""
    places = [n.meta for n in node.walk() if "start" in n.meta]
    return (min(m["start"] for m in places), max(m["end"] for m in places)) if places else None


def first_line(error: Exception) -> str:
    """Return the first line of an engine's message, without its class name and full stop."""
    line = str(error).splitlines()[0]
    return line.split("Error: ", 1)[-1].rstrip(".")
