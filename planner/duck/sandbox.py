"""The locked-down DuckDB in which analysts' expressions run: on public domains, public tables and noisy results.

It never holds a protected row. It has no files, no network, no settings that can be changed.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import duckdb
from sqlglot import exp

from planner.basics.errors import SourceFailed, UnknownFunction, Unsupported
from planner.basics.limits import SANDBOX_MEMORY
from planner.basics.nodes import CLOCKS, function_name, span
from planner.duck import bounds
from planner.duck.grid import grid_value
from planner.duck.quoting import literal, quoted
from planner.duck.reader import Indexed, Reader, attach, attached_name
from planner.duck.workbench import Workbench, first_line
from planner.policy.domain import Domain
from planner.policy.table import Column, Table

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
    | {"to_char", "to_date", "to_timestamp", "encode", "decode", "to_hex", "date_bin"}  # planner.sql.meaning
)
"""What the gate itself answers; the sandbox never sees these."""


REFLECTIVE = {"version", "json_serialize_plan", "json_deserialize_sql", "parse_duckdb_log_message"}

BOUNDLESS = {"range", "generate_series", "list_resize", "array_resize", "bitstring", "printf", "format", "reduce"}
BOUNDLESS |= {"list_reduce", "array_reduce"}
"""Functions of which a short call makes a value of any size."""

UNSIGNED = {8: "UTINYINT", 16: "USMALLINT", 32: "UINTEGER", 64: "UBIGINT", 128: "HUGEINT"}
"""Types of indices on a domain, by their bits."""


class Sandbox:
    """One in-memory DuckDB with the public tables of a policy, locked after loading."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self._root = duckdb.connect(config={"python_enable_replacements": False})
        self._lock = threading.Lock()
        self._domains: dict[tuple[str, Domain, bool], str] = {}
        self._readers: dict[str, Reader] = {}
        self._limited: dict[str, bool] = {}
        self._root.execute("SET TimeZone='UTC'")  # before copies are read, as where their originals are
        for table in tables.values():
            if table.kind == "public":
                self._load(table)
            elif table.synthetic_of is not None:
                self._load_synthetic(table, tables[table.synthetic_of])
        self._root.execute("CREATE SCHEMA noisegate")
        for name, overloads in bounds.MACROS.items():
            self._root.execute(f"CREATE MACRO {name} {overloads}")
        for setting in (
            "autoinstall_known_extensions=false",
            "autoload_known_extensions=false",
            "error_on_division_by_zero=false",
            # DuckDB 2.0 takes what is written twice out of a TRY, where it fails after all.
            "disabled_optimizers='common_subexpressions'",
            f"memory_limit='{SANDBOX_MEMORY}'",
            "temp_directory=''",
            "TimeZone='UTC'",
            "enable_external_access=false",
            "lock_configuration=true",
        ):
            self._root.execute(f"SET GLOBAL {setting}")
        self.functions, self._nested, self._known = self._found_functions()

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """Return a connection for one thread: the root is no thread's own, and used under the lock alone."""
        with self._lock:
            return self._root.cursor()

    def _load(self, table: Table) -> None:
        hidden = ", ".join(quoted(column.name) for column in table.columns.values() if column.hidden)
        shown = f"* EXCLUDE ({hidden})" if hidden else "*"  # what is hidden is not even here
        with self._attached(table) as source:
            self._root.execute(f"CREATE TABLE {quoted(table.name)} AS SELECT {shown} FROM {source}")

    def _load_synthetic(self, table: Table, original: Table) -> None:
        """Load a synthetic table as its original is read: its columns, clipped or dropped by the same domains.

        So an exact answer on the one is about the same thing as a private answer on the other. The rows that are
        compared with the original's are there once more, as indices, which are tallied several times as fast: of a
        privacy unit no more than count in the original, and the same ones.
        """
        columns = {name: column for name, column in original.columns.items() if not column.hidden}
        with self._attached(replace(table, columns=columns)) as source:
            there = Reader(table, self._root, source).columns()
            reader = Reader(_read_like(table, original, columns, there), self._root, source)
            name = quoted(f"__index_{table.name}")
            self._root.execute(f"CREATE TABLE {quoted(table.name)} AS {_conformed(reader, source)}")
            self._root.execute(f"CREATE TABLE {name} AS {reader.indices()}")
        whole = replace(reader.table, unit=None, max_rows_per_unit=1, row_key=None)
        self._readers[table.name] = Indexed(whole, self._root, name, conformed=True)
        self._limited[table.name] = reader.table.unit is not None

    def reader(self, table: str) -> Reader:
        """Return what counts and sums the rows of a synthetic table that are compared with its original's."""
        return self._readers[table].on(self._cursor())

    def is_limited(self, table: str) -> bool:
        """Return whether of a synthetic table no more rows of a privacy unit are compared than its original has."""
        return self._limited[table]

    @contextmanager
    def _attached(self, table: Table) -> Iterator[str]:
        """Yield the FROM item of a table's file, which is out of reach afterwards; say clearly what fails."""
        try:
            yield attach(self._root, table, text=table.kind == "synthetic")
            # A file may hold protected tables as well: nothing of it stays in reach.
            if table.inner is not None:
                self._root.execute(f"DETACH {quoted(attached_name(table))}")
        except duckdb.Error as error:
            raise SourceFailed(
                f"the source of {table.kind} table {table.name} can't be read: {first_line(error)}"
            ) from error

    def _found_functions(self) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        """Return the names of repeatable scalar functions, of functions that make lists, and of all functions."""
        repeatable = (
            "function_type IN ('scalar', 'macro') AND (stability = 'CONSISTENT' OR stability IS NULL) "
            "AND NOT starts_with(function_name, '__')"
        )
        rows = self._root.execute(
            f"SELECT lower(function_name), bool_or({repeatable}), list(return_type) FROM duckdb_functions() GROUP BY 1"
        ).fetchall()
        scalar = {name for name, fits, _ in rows if fits} - REFLECTIVE - BOUNDLESS
        nested = {name for name, _, types in rows if None not in types and bounds.makes_nested(types)}
        return frozenset(scalar | set(CLOCKS)), frozenset(nested), frozenset(name for name, *_ in rows)

    def schema(self, table: str) -> dict[str, str]:
        """Return the column types of a loaded table."""
        rows = self._cursor().execute(f"DESCRIBE {quoted(table)}").fetchall()
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
        return Workbench(self._cursor())

    def check_functions(self, tree: exp.Expr) -> None:
        """Raise if `tree` calls something that is not a plain, repeatable function of its arguments."""
        refused = (*REFUSED_NODES, *BOUNDLESS_NODES)
        for node in tree.find_all(exp.Func, *refused):
            name = function_name(node)
            if isinstance(node, exp.Anonymous) and name not in self.functions | OWN_FUNCTIONS:
                if name not in self._known:
                    raise UnknownFunction(f"there is no function {name}", hint="check its name", span=span(node))
                raise _refused(name, node)
            if isinstance(node, refused) and not _is_source(node):
                raise _refused(name, node)

    def check_bounds(self, tree: exp.Expr) -> None:
        """Raise if `tree` could make values that no limit of DuckDB's reaches."""
        bounds.check_bounds(tree)
        made = sum(isinstance(node, exp.DPipe) or function_name(node) in bounds.MACROS for node in _calls(tree))
        bounds.check_made(made)
        for node in tree.find_all(exp.Anonymous):
            if node.name.lower() in self._nested - OWN_FUNCTIONS:  # of ours, what stands in their place is looked at
                raise _refused(node.name.lower(), node)


def _calls(tree: exp.Expr) -> Iterator[exp.Expr]:
    return tree.find_all(exp.Func, exp.DPipe)


def _is_source(node: exp.Expr) -> bool:
    """Return whether a series stands in FROM, where the compiler says what can."""
    return isinstance(node, exp.GenerateSeries) and isinstance(node.parent, exp.Table)


def _refused(name: str, node: exp.Expr) -> Unsupported:
    hint = "use functions that give the same value for the same arguments every time"
    hints = {"lateral": "use a subquery and a join", "tablesample": "ask about the whole table"}
    return Unsupported(f"{name} can't be used here", hint=hints.get(name, hint), span=span(node))


def _read_like(table: Table, original: Table, columns: Mapping[str, Column], there: Collection[str]) -> Table:
    """Return a synthetic table with what it has of its original's columns, privacy unit and row key.

    Without the row key, rows of a unit are told apart by their place in the file, as in an original without one.
    """
    unit = original.unit if original.unit in there else None
    return replace(
        table,
        columns={name: column for name, column in columns.items() if name in there},
        unit=unit,
        max_rows_per_unit=original.max_rows_per_unit if unit else 1,
        row_key=original.row_key if unit and original.row_key in there else None,
    )


def _conformed(reader: Reader, source: str) -> str:
    """Return the SELECT of a source's columns, as the domains of those columns have them."""
    inner, outer, tests = [], [], []
    for i, column in enumerate(reader.table.columns.values()):
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


def _domain_value(domain: Domain, found: str) -> str:
    """Return the SQL of a value of a domain: of its index if it is ordered, else of what was found, if it is inside."""
    if domain.ordered:
        return f"CASE WHEN {found} < {domain.size} THEN {grid_value(domain, found)} END"
    if domain.other is None:
        return found
    labels = ", ".join(literal(label) for label in domain.values or ())
    other = literal(domain.other)
    return f"CASE WHEN {found} IS NULL OR {found} IN ({labels}) THEN {found} ELSE {other} END"
