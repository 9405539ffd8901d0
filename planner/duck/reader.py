"""Files as relations of a DuckDB connection, and the rows of one counted by the domains of a table."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Self

import duckdb
import numpy as np

from planner.basics.errors import SourceFailed
from planner.basics.stopping import running
from planner.cells.workspace import Axis, Ints
from planner.counting.sql import FEW_RUNS, SEED, SMALL_DOMAIN, Code, Fetched, SqlSource
from planner.duck.quoting import literal, quoted
from planner.policy.domain import Domain
from planner.policy.table import Table

PLAIN_INTEGERS = re.compile(r"(TINY|SMALL|BIG)?INT(EGER)?$")
INTEGER_TYPES = re.compile(r"(HUGEINT|U?(TINY|SMALL|BIG)?INT(EGER)?)$")

FAR = 10**30
"""Stands for whatever number is too large for 128 bits: beyond every bound that a policy can state."""

DELIMITERS = ",;\t|"

UNSIGNED = {8: "UTINYINT", 16: "USMALLINT", 32: "UINTEGER", 64: "UBIGINT", 128: "HUGEINT"}
"""Types of indices on a domain, by their bits."""


def attach(connection: duckdb.DuckDBPyConnection, table: Table, *, text: bool = False) -> str:
    """Return the FROM item that reads a table's file, attaching a database file first.

    Args:
        text: read CSV fields as text, so that no value can make a read fail.
    """
    path = re.sub(r"[*?\[]", lambda found: f"[{found[0]}]", str(table.file))
    if path.endswith(".parquet"):
        return f"read_parquet({literal(path)})"
    if path.endswith(".csv"):
        return f"read_csv({literal(path)}, {_text_options(table) if text else 'header=true'})"
    name = quoted(attached_name(table))
    connection.execute(f"ATTACH {literal(str(table.file))} AS {name} (READ_ONLY)")
    return ".".join([name, *map(quoted, (table.inner or "").split("."))])


def _unsigned(largest: int) -> str:
    """Return the smallest type that holds the integers from 0 to the largest."""
    return next(name for bits, name in UNSIGNED.items() if largest >> bits == 0)


def attached_name(table: Table) -> str:
    """Return the name under which a table's database file is attached."""
    return f"__file_{table.name}"


def _text_options(table: Table) -> str:
    """Return options of read_csv that leave nothing to be guessed from the rows: one row could change the guess.

    The header is public, and says which delimiter the file has.
    """
    with table.file.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        header = file.readline()
    headers = {mark: next(csv.reader([header], delimiter=mark), []) for mark in DELIMITERS}
    mark = max(DELIMITERS, key=lambda mark: len({*table.columns} & {*headers[mark]}))  # a copy may lack some columns
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in headers[mark])
    return (
        f"columns={{{columns}}}, delim={literal(mark)}, quote='\"', escape='\"', header=true, "
        "auto_detect=false, strict_mode=false, ignore_errors=true"
    )


class Reader(SqlSource):
    """Counts and sums the rows of one relation of a connection, by the domains of a table.

    Args:
        conformed: all rows of the relation are known to be inside the domains, so that none is looked at for that.
    """

    dialect = "duckdb"
    huge = "HUGEINT"
    headroom = 0
    _conformed = False

    def __init__(
        self, table: Table, connection: duckdb.DuckDBPyConnection, relation: str, *, conformed: bool = False
    ) -> None:
        super().__init__(table)
        self._connection, self._from, self._conformed = connection, relation, conformed
        described = connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
        self._types = {row[0]: row[1] for row in described}

    def on(self, connection: duckdb.DuckDBPyConnection) -> Self:
        """Return the same on another connection to the same database, for another thread."""
        return type(self)(self.table, connection, self._from, conformed=self._conformed)

    def indices(self) -> str:
        """Return the SELECT of the rows that count, each column as its index on its domain: for `Indexed`."""
        columns = [
            f"CAST({self.index(column, domain)} AS {_unsigned(domain.size)}) AS {self.quoted(column)}"
            for column, domain in self._declared()
        ]
        return f"SELECT {', '.join(columns) or '1'} FROM {self._rows(self.table.columns)}"

    def current(self) -> AbstractContextManager[None]:
        return nullcontext()

    def fetch(self, query: str, *, exact: bool = False) -> Fetched:
        try:
            with running(self._connection.interrupt):
                result = self._connection.execute(query)
                if not exact:
                    return {name: np.ma.getdata(values) for name, values in result.fetchnumpy().items()}
                names = [entry[0] for entry in result.description or ()]
                rows = result.fetchall()
        except duckdb.Error:
            # The engine's text may hold protected values: it stays here.
            raise SourceFailed(f"the source of table {self.table.name} can't be read") from None
        table = np.empty((len(rows), len(names)), dtype=object)
        table[:] = rows if rows else table
        return {name: table[:, i] for i, name in enumerate(names)}

    def relation(self, name: str, columns: Mapping[str, Ints]) -> str:
        self._connection.register(name, dict(columns))
        return name

    def value(self, column: str, domain: Domain) -> str:
        name, found = self.quoted(column), self._types[column]
        match domain.type:
            case "integer" if INTEGER_TYPES.match(found):
                return name
            case "integer":
                number, far = f"TRY_CAST({name} AS DOUBLE)", f"THEN {FAR}::HUGEINT"
                beyond = f"CASE WHEN isnan({number}) THEN NULL WHEN {number} > 0 {far} WHEN {number} < 0 {far} * -1 END"
                return f"COALESCE(TRY_CAST({name} AS HUGEINT), {beyond})"
            case "float":
                number = name if found == "DOUBLE" else f"TRY_CAST({name} AS DOUBLE)"
                return f"CASE WHEN isnan({number}) THEN NULL ELSE {number} END"
            case "timestamp" if found == "TIMESTAMP WITH TIME ZONE":
                return f"timezone('UTC', {name})"
            case "text" if found == "VARCHAR":
                return self._bytewise(name)
        return name if found == domain.duckdb_type else f"TRY_CAST({name} AS {domain.duckdb_type})"

    def _bytewise(self, name: str) -> str:
        """Return a text compared by its bytes: a column of a database file may have another collation."""
        return f"({name} COLLATE C)" if self.table.inner else name

    def is_integer(self, column: str) -> bool:
        return PLAIN_INTEGERS.match(self._types[column]) is not None

    def key(self, column: str) -> str:
        name = self.quoted(column)
        return self._bytewise(name) if self._types[column] == "VARCHAR" else name

    def digest(self, parts: Sequence[str]) -> str:
        return f"md5(concat_ws('|', {', '.join(f'CAST({part} AS VARCHAR)' for part in parts)}))"

    def quotient(self, number: str, by: object, *, huge: bool = False) -> str:  # noqa: ARG002 - one sign for all
        return f"(({number}) // {by})"

    def days(self, found: str, first: str) -> str:
        return f"{found} - {first}"

    def microseconds(self, found: str, first: str) -> str:
        return f"epoch_us({found}) - epoch_us({first})"

    def index(self, column: str, domain: Domain) -> str:
        if domain.ordered or domain.duckdb_type != "VARCHAR":
            return super().index(column, domain)
        found = self.value(column, domain)
        number = f"enum_code({self._label(found, domain)})"
        if domain.other is not None:
            number = f"COALESCE({number}, CASE WHEN {found} IS NOT NULL THEN {len(domain.values or ())} END)"
        return f"CASE WHEN {found} IS NULL THEN {domain.size} ELSE {number} END" if domain.nullable else number

    def inside(self, column: str, domain: Domain) -> str | None:
        if domain.ordered or domain.other is not None or domain.duckdb_type != "VARCHAR":
            return super().inside(column, domain)
        found = self.value(column, domain)
        absent = f"{self._label(found, domain)} IS NULL"
        return f"({absent}) = ({found} IS NULL)" if domain.nullable else f"NOT ({absent})"

    def _label(self, found: str, domain: Domain) -> str:
        """Return the SQL of a text as one of the labels of a domain; NULL if it is none.

        A cast looks up each entry of a Parquet dictionary once, where CASE and IN compare every row: 4 to 14 times as
        fast.
        """
        return f"TRY_CAST({found} AS ENUM({', '.join(map(literal, domain.values or ()))}))"

    def _code(self, axis: Axis, *, fine: bool = True) -> Code:
        """Group texts by their label: by themselves, undeclared ones would take as much room as there are."""
        column, domain = axis.column, axis.domain
        if domain.ordered or domain.duckdb_type != "VARCHAR":
            return super()._code(axis, fine=fine)
        cells = np.arange(domain.cells)
        if domain.nullable or domain.other is not None:  # NULL is no label, but not every text that is none is NULL
            return Code(self.index(column, domain), cells)
        return Code(self._label(self.value(column, domain), domain), cells, number="enum_code({})")

    def _by_value(self, column: str, domain: Domain) -> Code:
        """Clip by LEAST and GREATEST: DuckDB groups by them sooner than by CASE. They lose NULL, so it is filtered."""
        clipped = f"least(greatest({self.quoted(column)}, {domain.low}), {domain.high})"
        return replace(super()._by_value(column, domain), sql=clipped, filtered=True)

    def _with_outside(self) -> frozenset[str]:
        return frozenset() if self._conformed else super()._with_outside()

    def _placed(self) -> str:
        """Return the FROM item of the rows, each with its place among them, `__place`."""
        # A synthetic copy may be a view, which has no rowid; its rows come in the same order.
        place = "rowid" if self.table.inner and self.table.kind == "protected" else "row_number() OVER ()"
        return f"(SELECT *, {place} AS __place FROM {self._from}) AS p"

    def _keyed(self) -> str:
        return self._from if self.table.row_key else self._placed()

    def _numbered(self, tests: Sequence[str], rows: str, columns: str) -> str:
        """Without a row key, the place of a row among its unit's rows in the file stands for it."""
        if self.table.row_key:
            return super()._numbered(tests, rows, columns)
        unit = self.key(self.table.unit or "")
        placed = f"SELECT *, row_number() OVER (PARTITION BY {unit} ORDER BY __place) AS __ordinal FROM {rows}"
        order = f"{self.digest([literal(SEED), unit, '__ordinal'])}, __place"
        number = f"row_number() OVER (PARTITION BY {unit} ORDER BY {order})"
        return f"SELECT {columns}, {number} AS __n FROM ({placed}) AS h WHERE {' AND '.join(tests)}"


class Indexed(Reader):
    """The same for a relation whose columns already hold indices on the domains, and nothing outside."""

    def _code(self, axis: Axis, *, fine: bool = True) -> Code:
        name, domain = quoted(axis.column), axis.domain
        if axis.presence:
            return Code(f"CAST({name} = {domain.size} AS INTEGER)", axis.atoms)
        starts = np.flatnonzero(np.diff(axis.atoms, prepend=-1))
        if (fine and domain.cells <= SMALL_DOMAIN) or len(starts) > FEW_RUNS:
            return Code(name, np.arange(domain.cells))
        atoms = axis.atoms[starts]
        steps = "".join(f" WHEN {name} < {end} THEN {atom}" for end, atom in zip(starts[1:], atoms, strict=False))
        return Code(f"CASE{steps} ELSE {atoms[-1]} END" if steps else f"{atoms[-1]}", axis.atoms)

    def _summand(self, column: str, domain: Domain) -> str:  # noqa: ARG002 - it is the index already
        return quoted(column)
