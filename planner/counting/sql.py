"""The SQL that every engine runs: columns as indices on their public domain, counted and summed; nothing else.

Nothing that an analyst wrote is in these queries. What is common to all engines is written here once, in SQL that
all of them read alike; an engine says how it reads a column, divides, and counts days. sqlglot writes names and
constants. Each piece is arithmetic on integers or IEEE doubles in a stated order, so all engines return the same.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlglot import exp

from planner.basics.errors import WrongColumns
from planner.basics.limits import ROW_BITS
from planner.cells.workspace import Axis, Feature, Ints, Workspace
from planner.counting.edges import edge
from planner.counting.tally import Cut, Tally
from planner.policy.domain import Domain
from planner.policy.table import Table

SMALL_DOMAIN = 128
"""Columns with at most so many values are grouped by value, whatever the query, so that the vector serves again."""

FEW_RUNS = 32
"""Larger columns are cut into atoms inside the engine when the atoms make at most so many ranges."""

FEW_LABELS = 64
"""Groups by at most so many labels are numbered by comparing; by more, in a join."""

SEED = "noisegate"
"""Seed of the order in which a unit's rows are kept; public, and the same everywhere."""

READABLE = {
    "integer": ("integer", "decimal", "double"),
    "float": ("integer", "decimal", "double"),
    "text": ("text", "integer"),
    "boolean": ("boolean",),
    "date": ("date", "timestamp", "timestamptz"),
    "timestamp": ("date", "timestamp", "timestamptz"),
}
"""The kinds of columns on a server that can be read as each type of a policy, with the same meaning everywhere."""

KEY_KINDS = ("integer", "text", "boolean", "date")
"""The kinds whose text is the same on every engine, so that the same rows of a unit are kept."""

Fetched = Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, eq=False)
class Code:
    """How one axis is grouped: by SQL whose value tells a code, or (labels given) is the value itself."""

    sql: str
    partition: Ints
    labels: tuple[object, ...] | None = None
    filtered: bool = False
    """Its SQL is right for rows inside the domain only: the others are filtered out before."""

    number: str = "{}"
    """The SQL of the code, of what the axis is grouped by: once for each group instead of once for each row."""

    def narrowed(self, axis: Axis, atoms: Ints) -> str | None:
        """Return the test that drops rows outside some atoms; None if none need be dropped."""
        codes = np.unique(self.partition[np.isin(axis.atoms, atoms)])
        if self.labels is not None or len(codes) == len(np.unique(self.partition)):
            return None
        return f"{self.number.format(self.sql)} IN ({', '.join(map(str, codes.tolist())) or 'NULL'})"


class SqlSource(ABC):
    """One protected table, read by an engine that speaks SQL."""

    dialect: str
    """The engine's name for sqlglot."""

    huge: str
    """The engine's type of integers that hold every sum."""

    headroom: int
    """Bits that rows may add to a number before its sum passes 64 bits; 0 where the engine sums into wider ones."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._from = ""
        self._types: dict[str, str] = {}
        self._rows_held: object = None  # what the rows are that are held now, if they can be known again
        self._outside: tuple[object, frozenset[str]] | None = None  # for such rows, columns that some are outside of

    # What an engine says.

    @abstractmethod
    def current(self) -> AbstractContextManager[None]:
        """Return the context of one question: the engine is reached, no other thread uses it, one snapshot."""

    @abstractmethod
    def fetch(self, query: str, *, exact: bool = False) -> Fetched:
        """Return the result as arrays of integers; `exact` keeps sums as Python integers, which may pass 64 bits."""

    @abstractmethod
    def relation(self, name: str, columns: Mapping[str, Ints]) -> str:
        """Return the FROM item of a public table of integers."""

    @abstractmethod
    def value(self, column: str, domain: Domain) -> str:
        """Return a column in the type of its domain: NULL where it can't be read as that, never an error."""

    @abstractmethod
    def is_integer(self, column: str) -> bool:
        """Return whether the column's own type is integers of at most 64 bits."""

    @abstractmethod
    def key(self, column: str) -> str:
        """Return a privacy unit or row key: equal where its text is, byte by byte."""

    @abstractmethod
    def digest(self, parts: Sequence[str]) -> str:
        """Return the MD5 in hex of the parts' texts in UTF-8 with | between them, in the order of their bytes."""

    @abstractmethod
    def quotient(self, number: str, by: object, *, huge: bool = False) -> str:
        """Return the whole part of an integer that is not negative, divided by a constant."""

    @abstractmethod
    def days(self, found: str, first: str) -> str: ...

    @abstractmethod
    def microseconds(self, found: str, first: str) -> str: ...

    # What all do.

    def columns(self) -> dict[str, str]:
        return dict(self._types)

    @contextmanager
    def holding(self, rows: object) -> Iterator[None]:
        """Keep what is found out about the rows meanwhile, for when the same rows are held again.

        Guarantee: it decides how the same integers are counted, and nothing else.
        """
        self._rows_held = rows
        try:
            yield
        finally:
            self._rows_held = None

    def _forget(self) -> None:
        """Forget what was found out about rows."""
        self._outside = None

    def quoted(self, name: str) -> str:
        return exp.to_identifier(name, quoted=True).sql(self.dialect)

    def literal(self, value: object) -> str:
        if isinstance(value, dt.datetime):
            return f"TIMESTAMP '{value}'"
        if isinstance(value, dt.date):
            return f"DATE '{value}'"  # sqlglot 30 writes the year 1 as 1, which PostgreSQL reads as 2001
        return exp.convert(value).sql(self.dialect)

    def double(self, number: object) -> str:
        """Return a constant as the nearest double: read from text, since engines round decimals differently."""
        return exp.cast(exp.Literal.string(str(number)), "double").sql(self.dialect)

    def tally(
        self,
        axes: Sequence[Axis],
        features: Sequence[Feature],
        cut: Cut | None = None,
        wanted: Sequence[Ints] | None = None,
    ) -> Tally:
        with self.current():
            codes = [self._code(axis, fine=cut is None) for axis in axes]
            narrowed = [
                code.narrowed(axis, atoms) for axis, code, atoms in zip(axes, codes, wanted or (), strict=False)
            ]
            tests = [test for test in narrowed if test is not None]
            fetched = self.fetch(self._tally(axes, codes, features, cut, tests), exact=bool(features))
        n = len(fetched["n"])
        matrix = np.stack([fetched[f"i{j}"] for j in range(len(axes))], axis=1) if axes else np.zeros((n, 0))
        return Tally(
            columns=tuple(axis.column for axis in axes),
            partitions=tuple(code.partition for code in codes),
            features=tuple(features),
            codes=matrix.astype(np.int64),
            sums=np.stack([fetched["n"], *(fetched[f"s{i}"] for i in range(len(features)))], axis=1),
            ranges=None if cut is None else fetched["r"].astype(np.int64),
        )

    def _tally(
        self,
        axes: Sequence[Axis],
        codes: Sequence[Code],
        features: Sequence[Feature],
        cut: Cut | None,
        tests: Sequence[str],
    ) -> str:
        columns = list(dict.fromkeys(column for column, _ in features))
        touched = {axis.column for axis, code in zip(axes, codes, strict=True) if not code.filtered}
        used = {*columns, *(axis.column for axis in axes)}
        grouped = [f"{code.sql} AS c{j}" for j, code in enumerate(codes)]
        summed = [f"{self._summand(column, self._domain(column))} AS u{i}" for i, column in enumerate(columns)]
        inner = f"SELECT {', '.join([*grouped, *summed]) or '1 AS one'} FROM {self._rows(used, touched, tests)}"
        if cut is not None:
            inner = f"SELECT w.*, {cut.sql(f'u{columns.index(cut.column)}')} AS r FROM ({inner}) AS w"
        ranges = ["r"] if cut is not None else []
        keys = "".join(f", {name}" for name in [*(f"c{j}" for j in range(len(axes))), *ranges])
        totals = "".join(
            f", COALESCE(sum({self._power(f'u{columns.index(column)}', column, power)}), 0) AS s{i}"
            for i, (column, power) in enumerate(features)
        )
        grouping = f" GROUP BY {keys[2:]}" if keys else ""
        counted = f"SELECT count(*) AS n{totals}{keys} FROM ({inner}) AS q{grouping}"
        return self._translated(counted, axes, codes, [f"s{i}" for i in range(len(features))], ranges)

    def units(self, workspace: Workspace, *, cell: Ints, group: Ints, groups: int) -> Ints:
        pairs = np.unique(np.stack([cell, group], axis=1), axis=0)
        counts = np.zeros(groups, dtype=np.int64)
        with self.current():
            fetched = self.fetch(self._units(workspace, pairs))
        counts[fetched["g"].astype(np.int64)] = fetched["n"].astype(np.int64)
        return counts

    def _units(self, workspace: Workspace, pairs: Ints) -> str:
        parts, joins, number = [f"{self.key(self.table.unit or '')} AS u"], [], ["0"]
        for j, (axis, stride) in enumerate(zip(workspace.axes, workspace.strides, strict=True)):
            place = self._code(axis).sql if axis.presence else self.index(axis.column, axis.domain)
            parts.append(f"{place} AS i{j}")
            atoms = self.relation(f"atoms{j}", {"i": np.arange(len(axis.atoms)), "a": axis.atoms})
            joins.append(f" JOIN {atoms} ON r.i{j} = atoms{j}.i")
            number.append(f"atoms{j}.a * {stride}")
        used = {self.table.unit or "", *(axis.column for axis in workspace.axes)}
        rows = f"(SELECT {', '.join(parts)} FROM {self._rows(used)}) AS r{''.join(joins)}"
        places = self.relation("places", {"cell": pairs[:, 0], "g": pairs[:, 1]})
        return (
            f"SELECT g, count(DISTINCT u) AS n FROM (SELECT u, {' + '.join(number)} AS cell FROM {rows}) AS t "
            f"JOIN {places} ON t.cell = places.cell GROUP BY g"
        )

    def _domain(self, column: str) -> Domain:
        domain = self.table.columns[column].domain
        assert domain is not None
        return domain

    def _declared(self) -> Iterator[tuple[str, Domain]]:
        return ((c.name, c.domain) for c in self.table.columns.values() if c.domain is not None)

    def _rows(self, used: Collection[str], touched: Collection[str] = (), wanted: Sequence[str] = ()) -> str:
        """Return the FROM item of the rows that count: inside the domain, at most k a unit, and then those wanted.

        Args:
            used: the columns that are selected.
            touched: columns that are left out of the filter: their outside rows are dropped when codes are matched.
            wanted: tests of used columns.
        """
        if self.table.unit is None:
            tests = self._tests(self._with_outside().difference(touched))
            return f"(SELECT {self._listed(used)} FROM {self._from}{where([*wanted, *tests])}) AS k"
        numbered = self._numbered(self._unit_tests(), self._keyed(), self._listed({*used, self.table.unit}))
        kept = [f"__n <= {self.table.max_rows_per_unit}", *wanted]
        return f"(SELECT * FROM ({numbered}) AS o{where(kept)}) AS k"

    def _tests(self, columns: Collection[str]) -> list[str]:
        """Return the tests that a row is inside the domains of columns."""
        found = [self.inside(column, self._domain(column)) for column in self.table.columns if column in columns]
        return [test for test in found if test is not None]

    def _unit_tests(self) -> list[str]:
        """Return the tests of rows that have a unit and are inside all domains: of these, k of each unit count."""
        return [*self._tests(self._with_outside()), f"{self.quoted(self.table.unit or '')} IS NOT NULL"]

    def _with_outside(self) -> frozenset[str]:
        """Return the columns that rows may be outside of: where the rows are known, found out once for all questions.

        Most columns have no such row, and need no test in any scan but this one.
        """
        if self._outside is not None and self._rows_held is not None and self._outside[0] == self._rows_held:
            return self._outside[1]
        declared = {column: test for column, domain in self._declared() if (test := self.inside(column, domain))}
        if self._rows_held is None or not declared:
            return frozenset(declared)
        found = [f"max(CASE WHEN {test} THEN 0 ELSE 1 END)" for test in declared.values()]
        named = ", ".join(f"COALESCE({number}, 0) AS o{i}" for i, number in enumerate(found))
        fetched = self.fetch(f"SELECT {named} FROM {self._from}")
        outside = frozenset(column for i, column in enumerate(declared) if fetched[f"o{i}"][0])
        self._outside = self._rows_held, outside
        return outside

    def _keyed(self) -> str:
        """Return the FROM item of rows with what they are numbered by."""
        return self._from

    def _numbered(self, tests: Sequence[str], rows: str, columns: str) -> str:
        """Return the SELECT that numbers each unit's rows, `__n`, in the order of a hash of unit and row key.

        Rows with equal keys follow in the order of their values on the domain; rows that are equal in those, too,
        are the same to every question. So the same rows are kept every time, on every engine.

        Args:
            tests: which rows are numbered.
            rows: the FROM item.
            columns: what is selected beside the number, the unit among it.
        """
        unit, key = self.key(self.table.unit or ""), self.key(self.table.row_key or "")
        values = [
            self.index(column, domain) if domain.ordered else self.value(column, domain)
            for column, domain in self._declared()
        ]
        # As columns, since Spark would compute them in every comparison of its sort.
        keys = [self.digest([self.literal(SEED), unit, key]), *values]
        named = ", ".join(f"{found} AS __k{i}" for i, found in enumerate(keys))
        keyed = f"SELECT {columns}, {named} FROM {rows}{where(tests)}"
        order = ", ".join(f"__k{i} NULLS LAST" for i in range(len(keys)))
        number = f"row_number() OVER (PARTITION BY {unit} ORDER BY {order})"
        return f"SELECT {columns}, {number} AS __n FROM ({keyed}) AS h"

    def _listed(self, columns: Collection[str]) -> str:
        """Return what is selected to have some columns: no others are read, and the gate may have no right to."""
        return ", ".join(self.quoted(name) for name in self._readable() if name in columns) or "1 AS __one"

    def _readable(self) -> list[str]:
        """Return the columns that the gate may have to read."""
        keys = [name for name in (self.table.unit, self.table.row_key) if name]
        return list(dict.fromkeys([*(name for name, _ in self._declared()), *keys]))

    def _translated(
        self, counted: str, axes: Sequence[Axis], codes: Sequence[Code], sums: Sequence[str], ranges: Sequence[str]
    ) -> str:
        """Return the query that turns codes that are values into indices, and drops what is outside."""
        columns, joins = [], []
        names = [f"i{j}" for j in range(len(axes))]
        for j, (axis, code) in enumerate(zip(axes, codes, strict=True)):
            found = code.number.format(f"c{j}")
            if code.labels is not None:
                found, join = self._number(j, code.labels)
                joins.append(join)
                if axis.domain.other is not None:
                    found = f"COALESCE({found}, CASE WHEN c{j} IS NOT NULL THEN {len(code.labels)} END)"
                if axis.domain.nullable:
                    found = f"CASE WHEN c{j} IS NULL THEN {axis.domain.size} ELSE {found} END"
            columns.append(f"{found} AS i{j}")
        translated = f"SELECT {', '.join(['n', *sums, *ranges, *columns])} FROM ({counted}) AS t{''.join(joins)}"
        # Engines would test each row for a number that is not NULL, below the grouping, and so find it twice: n, that
        # is known after it only, stops them.
        tests = [
            f"CASE WHEN n > 0 THEN {name} END IS NOT NULL"
            for name, code in zip(names, codes, strict=True)
            if not code.filtered
        ]
        inside = f"FROM ({translated}) AS m{where(tests)}"
        if all(axis.domain.other is None for axis in axes):
            return f"SELECT * {inside}"
        # Undeclared values are one cell, and must not even be told apart by their number.
        totals = ["CAST(sum(n) AS BIGINT) AS n", *(f"sum({name}) AS {name}" for name in sums)]
        keys = [*ranges, *names]
        return f"SELECT {', '.join([*totals, *keys])} {inside} GROUP BY {', '.join(keys)}"

    def _number(self, j: int, labels: Sequence[object]) -> tuple[str, str]:
        """Return the SQL of the number of a group's label, NULL if it is none, and the join that it takes."""
        if len(labels) <= FEW_LABELS:
            cases = "".join(f" WHEN {self.literal(label)} THEN {i}" for i, label in enumerate(labels))
            return f"CASE c{j}{cases} END", ""
        values = ", ".join(f"({self.literal(label)}, {i})" for i, label in enumerate(labels))
        return f"d{j}.i", f" LEFT JOIN (VALUES {values}) AS d{j}(v, i) ON t.c{j} = d{j}.v"

    def _code(self, axis: Axis, *, fine: bool = True) -> Code:
        """Return how an axis is grouped; with `fine`, by single values where they are few, to serve others."""
        domain = axis.domain
        if not domain.ordered:
            return Code(self.value(axis.column, domain), np.arange(domain.cells), domain.values)
        if axis.presence:
            null = "1" if domain.nullable else "NULL"
            present = self.value(axis.column, domain)
            return Code(f"CASE WHEN {present} IS NULL THEN {null} ELSE 0 END", axis.atoms)
        starts = np.flatnonzero(np.diff(axis.atoms[: domain.size], prepend=-1))
        if (fine and domain.cells <= SMALL_DOMAIN) or len(starts) > FEW_RUNS:
            if self._is_plain(axis.column, domain):
                if domain.step == 1:
                    return self._by_value(axis.column, domain)
                return Code(self._summand(axis.column, domain), np.arange(domain.cells))
            return Code(self.index(axis.column, domain), np.arange(domain.cells))
        found, atoms = self.value(axis.column, domain), axis.atoms[starts]
        null = axis.atoms[-1] if domain.nullable else "NULL"
        steps = [(self._before(found, domain, int(end)), atom) for end, atom in zip(starts[1:], atoms, strict=False)]
        cases = "".join(f" WHEN {test} THEN {atom}" for test, atom in steps)
        return Code(f"CASE WHEN {found} IS NULL THEN {null}{cases} ELSE {atoms[-1]} END", axis.atoms)

    def _by_value(self, column: str, domain: Domain) -> Code:
        """Return how a column of plain integers is grouped: clipped, and counted from the lowest afterwards."""
        clipped = _clipped(self.quoted(column), f"{domain.low}", f"{domain.high}")
        return Code(clipped, np.arange(domain.cells), number=f"CAST({{}} AS BIGINT) - {domain.low}")

    def _before(self, found: str, domain: Domain, index: int) -> str:
        """Return the test that a value that is not NULL lies in a cell before this one."""
        first = edge(domain, index)
        if first is None:
            return f"{found} IS NOT NULL"
        return f"{found} < {self.double(first) if domain.type == 'float' else self.literal(first)}"

    def _is_plain(self, column: str, domain: Domain) -> bool:
        """Return whether a column holds integers that 64 bits can clip and count from the lowest, NULL apart."""
        return not domain.nullable and _span(domain) < 2**62 and self.is_integer(column)

    def _summand(self, column: str, domain: Domain) -> str:
        """Return the SQL of a column's index, right for rows inside its domain; no others are in any kept group."""
        if not self._is_plain(column, domain):
            return self.index(column, domain)
        kind = "INTEGER" if _narrow(domain) else "BIGINT"
        clipped = _clipped(self.quoted(column), f"{domain.low}", f"{domain.high}")
        offset = f"CAST({clipped} AS {kind})" + (f" - {domain.low}" if domain.low else "")
        return offset if domain.step == 1 else self.quotient(offset, domain.step)

    def index(self, column: str, domain: Domain) -> str:
        """Return the SQL of a column's index on its domain: clipped (ranges) or matched (lists); NULL has the last."""
        found = self.value(column, domain)
        if domain.ordered:
            # least passes over NULL, so it is kept apart.
            number = f"CASE WHEN {found} IS NOT NULL THEN {self._grid_index(found, domain)} END"
            return f"COALESCE({number}, {domain.size})" if domain.nullable else number
        labels = domain.values or ()
        cases = "".join(f" WHEN {self.literal(label)} THEN {i}" for i, label in enumerate(labels))
        other = "NULL" if domain.other is None else f"CASE WHEN {found} IS NOT NULL THEN {len(labels)} END"
        number = f"CASE {found}{cases} ELSE {other} END"
        return f"CASE WHEN {found} IS NULL THEN {domain.size} ELSE {number} END" if domain.nullable else number

    def _grid_index(self, found: str, domain: Domain) -> str:
        """Return the SQL of the index of the nearest grid value, from 0 to size - 1, of a value that is not NULL."""
        low, high, step = domain.low, domain.high, domain.step
        match domain.type:
            case "integer":
                huge = _span(domain) >= 2**62
                clipped = _clipped(found, f"{low}", f"{high}")
                offset = f"CAST({clipped} AS {self.huge if huge else 'BIGINT'}) - {low}"
                return f"({offset})" if step == 1 else self.quotient(offset, step, huge=huge)
            case "float":
                first = self.double(low)
                steps = f"({_clipped(found, first, self.double(high))} - {first}) / {self.double(step)}"
                return f"least(CAST(floor({steps} + {self.double('0.5')}) AS BIGINT), {domain.size - 1})"
            case "date":
                first, last = f"DATE '{low}'", f"DATE '{high}'"
                days = self.days(_clipped(found, first, last), first)
                return f"({days})" if step == 1 else self.quotient(days, step)
        assert isinstance(step, dt.timedelta)
        first, last = f"TIMESTAMP '{low}'", f"TIMESTAMP '{high}'"
        elapsed = self.microseconds(_clipped(found, first, last), first)
        return self.quotient(elapsed, step // dt.timedelta(microseconds=1))

    def inside(self, column: str, domain: Domain) -> str | None:
        """Return the test that a row is inside this column's domain, or None if every row is."""
        found = self.value(column, domain)
        if domain.ordered or domain.other is not None:
            return None if domain.nullable else f"{found} IS NOT NULL"
        listed = f"{found} IN ({', '.join(self.literal(label) for label in domain.values or ())})"
        return f"({found} IS NULL OR {listed})" if domain.nullable else listed

    def _power(self, name: str, column: str, power: int) -> str:
        """Return a power of an index, in the narrowest type in which it is summed safely: engines sum those faster."""
        bits = power * self._domain(column).cells.bit_length()
        wide = "BIGINT" if bits + self.headroom < 63 else self.huge
        kind = "INTEGER" if bits + ROW_BITS < 63 else wide
        number = f"CAST({name} AS {kind})"
        return number if power == 1 else f"{number} * {number}"

    def _check_present(self) -> None:
        """Raise if the source lacks a column."""
        needed = [*self.table.columns, *([self.table.row_key] if self.table.row_key else [])]
        missing = [name for name in needed if name not in self._types]
        if missing:
            raise WrongColumns(
                f"the source of table {self.table.name} has no column {', '.join(missing)}",
                columns=dict.fromkeys(missing, "the source has no such column"),
                hint="correct the column names in the policy",
            )

    def _check_kinds(self) -> None:
        """Raise if a column of a server is of a kind that can't be read as declared, `_types` being kinds."""
        wrong = {
            column: f"is {self._types[column]} in the source, which can't be read as {domain.type}"
            for column, domain in self._declared()
            if self._types[column] not in READABLE[domain.type]
        }
        for role, key in (("privacy unit", self.table.unit), ("row key", self.table.row_key)):
            if key is not None and self._types[key] not in KEY_KINDS:
                wrong[key] = f"is {self._types[key]} in the source; a {role} must be one of {', '.join(KEY_KINDS)}"
        if wrong:
            told = "; ".join(f"column {column} {text}" for column, text in wrong.items())
            raise WrongColumns(f"in the source of table {self.table.name}, {told}", columns=wrong)


def meaning(table: Table) -> str:
    """Return 16 hex digits that change when the policy changes which rows count, and as what."""
    domains = [(c.name, c.domain.fingerprint) for c in table.columns.values() if c.domain is not None]
    # A server's table has marks of its own; all tables of one database file share those of the file.
    inner = (table.inner,) if table.location.engine == "duckdb" and table.inner else ()
    parts = (sorted(domains), table.unit, table.max_rows_per_unit, table.row_key, *inner)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def _span(domain: Domain) -> int:
    """Return how far the bounds of an integer grid are apart; more than any number for other domains."""
    if isinstance(domain.low, int) and isinstance(domain.high, int):
        return domain.high - domain.low
    return 2**64


def _narrow(domain: Domain) -> bool:
    """Return whether 32 bits hold the bounds of an integer grid, and how far they are apart."""
    ends = (domain.low, domain.high, _span(domain))
    return all(isinstance(end, int) and abs(end) < 2**31 for end in ends)


def _clipped(found: str, low: str, high: str) -> str:
    """Return the SQL of a value moved into its bounds. NULL stays NULL: LEAST and GREATEST would lose it."""
    return f"CASE WHEN {found} < {low} THEN {low} WHEN {found} > {high} THEN {high} ELSE {found} END"


def where(tests: Sequence[str]) -> str:
    """Return the WHERE of tests, all of which a row must pass."""
    return f" WHERE {' AND '.join(tests)}" if tests else ""
