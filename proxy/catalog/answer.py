"""Answers statements about the catalog, and SELECTs without a table."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Hashable, Sequence

import duckdb
from sqlglot import exp
from sqlglot.errors import SqlglotError

from planner.basics.errors import Refusal, SyntaxRefusal, TooLarge, UnknownSetting, Unsupported
from planner.basics.stopping import running, sleep
from planner.basics.watchdog import WATCHDOG
from planner.duck.bounds import UNWRITABLE, UNWRITABLE_HINT
from planner.duck.workbench import fetched
from planner.plans.result import Columns
from proxy.catalog import kinds
from proxy.catalog.declared import Declared
from proxy.catalog.errors import refusal_of
from proxy.catalog.parse import definition, is_function, parse, schema_of
from proxy.catalog.prepare import Prepared, prepare
from proxy.catalog.relations.store import store_of
from proxy.catalog.rewriting.constants import Constants
from proxy.catalog.rewriting.rewrite import DATABASE, USER
from proxy.catalog.types import Description, Table
from proxy.limits import CATALOG_SECONDS, MAX_CATALOG_ROWS
from proxy.wire.spans import Interval, Named

KEPT_ROWS = 1_000
"""Largest answer that is kept for the next time it is asked: the catalog does not change."""

GATE = "noisegate"
"""The schema whose functions and tables the gate answers itself."""


class Catalog:
    """The catalog as one session sees it; all sessions of a gate share one store."""

    def __init__(self, gate: Declared, analyst: str, *, database: str, settings: Callable[[str], str | None]) -> None:
        self._gate, self._session, self._settings = gate, {USER: analyst, DATABASE: database}, settings
        self._store = store_of(gate)

    def handles(self, sql: str) -> bool:
        """Return whether a statement is for the catalog: it names a relation of it, or no table at all.

        One that names tables of the policy as well is refused when it is described. Never raises.
        """
        return self._store.routes.get(sql, lambda: self._handles(sql))

    def _handles(self, sql: str) -> bool:
        tree = parse(sql)
        if tree is None or any(_is_gate(node) for node in tree.find_all(exp.Dot, exp.Table)):
            return False
        tables = [table for table in tree.find_all(exp.Table) if not is_function(table) and definition(table) is None]
        return not tables or any(schema_of(table, self._store.relations) is not None for table in tables)

    def describe(self, sql: str, declared: Sequence[int] = ()) -> Description:
        """Return columns and parameters, without running anything; `declared` are the types that the client gave."""
        return self._prepared(sql, declared).description

    def execute(self, sql: str, parameters: Sequence[object], declared: Sequence[int] = ()) -> Table:
        """Return the rows of a statement; the same question with the same values is not asked twice."""
        prepared = self._prepared(sql, declared)
        if len(parameters) < len(prepared.description.parameters):
            raise SyntaxRefusal(
                f"{len(prepared.description.parameters)} parameters are needed, {len(parameters)} were given",
                hint="pass as many values as the statement has placeholders",
            )
        if prepared.constants is not None:
            return Table(prepared.description.columns, [self._constant_row(prepared.constants, parameters)])
        values = self._values(prepared, parameters)
        key: Hashable = None if prepared.volatile else (prepared.sql, *values.items())
        return self._store.answers.get(key, lambda: self._run(prepared, values), keep=_is_small)

    def _prepared(self, sql: str, stated: Sequence[int]) -> Prepared:
        try:
            found: Prepared = self._store.statements.get(
                (sql, *stated), lambda: prepare(sql, stated, self._store, self._gate)
            )
            return found
        except RecursionError:
            raise TooLarge("the statement is nested too deeply", hint="use fewer levels of nesting") from None
        except SqlglotError:
            raise Unsupported(UNWRITABLE, hint=UNWRITABLE_HINT) from None

    def _values(self, prepared: Prepared, parameters: Sequence[object]) -> dict[str, object]:
        found: dict[str, object] = {f"p{i}": _bindable(parameters[i - 1]) for i in prepared.used}
        found |= {name: self._session[name] for name in sorted(prepared.session)}
        return found | {place: self._setting(name, missing_ok) for place, name, missing_ok in prepared.settings}

    def _setting(self, name: str, missing_ok: bool) -> str | None:
        try:
            value = self._settings(name)
        except Refusal:
            value = None
        value = self._store.directory.settings.get(name) if value is None else value
        if value is None and not missing_ok:
            raise UnknownSetting(f'unrecognized configuration parameter "{name}"', hint="see pg_settings")
        return value

    def _run(self, prepared: Prepared, values: dict[str, object]) -> Table:
        cursor = self._store.cursor()
        try:
            with WATCHDOG.limit(CATALOG_SECONDS, cursor.interrupt), running(cursor.interrupt):
                rows = _fetched(cursor, prepared, values)
        except duckdb.Error as error:
            raise refusal_of(error) from None
        finally:
            cursor.close()
        if len(rows) > MAX_CATALOG_ROWS:
            raise TooLarge(f"the answer has more than {MAX_CATALOG_ROWS:,} rows", hint="add a LIMIT")
        if isinstance(rows, Columns):
            return Table(prepared.description.columns, rows if len(rows) > KEPT_ROWS else list(rows))
        return Table(prepared.description.columns, prepared.shaped(rows, self._store.directory))

    def _constant_row(self, constants: Constants, parameters: Sequence[object]) -> tuple[object, ...]:
        seconds = constants.sleep(parameters)
        if seconds is not None:
            sleep(min(seconds, CATALOG_SECONDS))
        return constants.row(parameters)


COLUMNAR = {*kinds.INTEGERS, "float8", "text", "bool"}
COLUMNAR_TYPES = {kinds.duckdb_type(kind) for kind in COLUMNAR}
"""Kinds, and DuckDB's types, whose values can be fetched by columns without any change."""


def _fetched(
    cursor: duckdb.DuckDBPyConnection, prepared: Prepared, values: dict[str, object]
) -> list[tuple[object, ...]] | Columns:
    """Return at most MAX_CATALOG_ROWS + 1 rows, by columns where the types allow it."""
    if prepared.kinds and COLUMNAR.issuperset(prepared.kinds):
        limited = f"SELECT * FROM ({prepared.sql}) AS q LIMIT {MAX_CATALOG_ROWS + 1}"
        found = cursor.execute(limited, values or None)
        if all(str(column[1]) in COLUMNAR_TYPES for column in found.description or ()):  # a sum has more digits
            return Columns(tuple(found.fetchnumpy().values()))
        return fetched(found, MAX_CATALOG_ROWS + 1)
    return fetched(cursor.execute(prepared.sql, values or None), MAX_CATALOG_ROWS + 1)


def _bindable(value: object) -> object:
    """Return a value as DuckDB takes it: times with a zone and intervals as text, which the statement casts."""
    if isinstance(value, Interval):
        return f"{value.months} months {value.days} days {value.microseconds} microseconds"
    if isinstance(value, dt.datetime | dt.time) and value.tzinfo is not None:
        return value.isoformat()
    if isinstance(value, list):
        return [_bindable(item) for item in value]
    return int(value) if isinstance(value, Named) else value


def _is_gate(node: exp.Expr) -> bool:
    """Return whether a call or a table is one of the gate's own."""
    if isinstance(node, exp.Table):
        return node.db.lower() == GATE
    return isinstance(node.this, exp.Identifier) and node.this.name.lower() == GATE


def _is_small(table: Table) -> bool:
    return len(table.rows) <= KEPT_ROWS
