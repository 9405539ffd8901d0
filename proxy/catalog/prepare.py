"""Prepares a statement: rewrites it for the store, and finds the columns and parameters to describe."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import duckdb
from sqlglot import exp

from planner.basics.errors import SyntaxRefusal
from planner.basics.numerals import whole
from planner.basics.stopping import running
from proxy.catalog import kinds
from proxy.catalog.declared import Declared
from proxy.catalog.errors import refusal_of
from proxy.catalog.names import NAMES_OF, Directory
from proxy.catalog.parse import parse
from proxy.catalog.relations.store import Store
from proxy.catalog.rewriting.constants import Constants, constants
from proxy.catalog.rewriting.infer import Inference
from proxy.catalog.rewriting.rewrite import SETTING, Rewriter, Rewritten
from proxy.catalog.types import Column, Description
from proxy.limits import TYPING_SECONDS
from proxy.wire import oids, values
from proxy.wire.spans import Named

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

Row = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A statement that can be run: its SQL, its columns and parameters, and which values of the session it needs."""

    description: Description
    kinds: tuple[str, ...] = ()
    sql: str = ""
    used: tuple[int, ...] = ()
    session: frozenset[str] = frozenset()
    settings: tuple[tuple[str, str, bool], ...] = ()
    """For each: the parameter that it fills, its name, and whether it may be missing."""
    volatile: bool = False
    constants: Constants | None = None

    def shaped(self, rows: Sequence[Row], directory: Directory) -> list[Row]:
        """Return the rows with the values that proxy/catalog/types.py names for each type."""
        shapes = [_shape(kind, directory) for kind in self.kinds]
        if not any(shapes):
            return list(rows)
        return [
            tuple(
                value if shape is None or value is None else shape(value)
                for value, shape in zip(row, shapes, strict=True)
            )
            for row in rows
        ]


BY_OID = {kinds.oid_of(kind): kind for kind in reversed(kinds.DUCKDB)}
BY_OID |= {oids.ARRAYS[oid]: kinds.array_of(kind) for oid, kind in BY_OID.items() if oid in oids.ARRAYS}


def prepare(sql: str, stated: Sequence[int], store: Store, gate: Declared) -> Prepared:
    """Return a statement that can be run; raise Refusal if it can't be answered."""
    tree = parse(sql)
    if tree is None:
        raise SyntaxRefusal("the statement can't be read", hint="write it as PostgreSQL would read it")
    named = {number: BY_OID[oid] for number, oid in enumerate(stated, start=1) if oid in BY_OID}
    inference = Inference(store.relations, named)
    columns = inference.outputs(tree)
    row = constants(tree, inference)
    if row is not None:
        parameters = _parameters(tree, inference)
        found = tuple(_settled(kind) for _, kind in columns)
        return Prepared(description=_description(columns, found, parameters), kinds=found, constants=row)
    rewriter = Rewriter(tree.copy(), store.directory, store.relations, named)
    return _described(rewriter.run(gate.sandbox.functions), store)


def _parameters(tree: exp.Query, inference: Inference) -> dict[int, str]:
    for node in tree.find_all(exp.Parameter):
        inference.kind(node)
    return inference.parameters


def _settled(kind: str | None) -> str:
    return "text" if kind in (None, "unknown") else str(kind)


def _description(
    columns: Sequence[tuple[str, str | None]], found: Sequence[str], parameters: dict[int, str]
) -> Description:
    shown = tuple(Column(name, kinds.oid_of(kind)) for (name, _), kind in zip(columns, found, strict=True))
    last = max(parameters, default=0)
    return Description(shown, tuple(kinds.oid_of(parameters.get(number, "text")) for number in range(1, last + 1)))


def _described(done: Rewritten, store: Store) -> Prepared:
    """Return the rewritten statement, with DuckDB's type for each column whose PostgreSQL type can't be inferred."""
    used = {node.name for node in done.tree.find_all(exp.Parameter)}
    given = dict.fromkeys(used)
    types = _types(done.tree.sql("duckdb"), given, store)
    columns = done.outputs if len(done.outputs) == len(types) else [(name, None) for name, _ in types]
    found = tuple(
        kinds.from_duckdb(duckdb_type) if kind is None else _settled(kind)
        for (_, kind), (_, duckdb_type) in zip(columns, types, strict=True)
    )
    return Prepared(
        description=_description(columns, found, done.parameters),
        kinds=found,
        sql=_readable(done.tree, found).sql("duckdb"),
        used=tuple(sorted(int(name[1:]) for name in used if name[0] == "p" and whole(name[1:]) is not None)),
        session=frozenset(done.session),
        settings=tuple((f"{SETTING}{i}", *each) for i, each in enumerate(done.settings) if f"{SETTING}{i}" in used),
        volatile=done.volatile,
    )


def _types(sql: str, given: dict[str, object], store: Store) -> list[tuple[str, str]]:
    cursor = store.cursor()
    timer = threading.Timer(TYPING_SECONDS, cursor.interrupt)  # constants are computed here already
    timer.start()
    try:
        with running(cursor.interrupt):
            return [(row[0], row[1]) for row in cursor.execute(f"DESCRIBE {sql}", given or None).fetchall()]
    except duckdb.Error as error:
        raise refusal_of(error) from None
    finally:
        timer.cancel()
        cursor.close()


CONVERTED: dict[str, Callable[[exp.Expr], exp.Expr]] = {
    "timestamptz": lambda node: exp.Anonymous(this="epoch_us", expressions=[exp.cast(node, "timestamptz")]),
    "timetz": lambda node: exp.cast(node, "text"),
    "interval": lambda node: exp.cast(node, "text"),
}
"""Types that DuckDB hands to Python only with a time-zone library, or not in full."""


def _readable(tree: exp.Query, found: Sequence[str]) -> exp.Query:
    """Wrap the tree in a SELECT that converts such values to a form that DuckDB can hand to Python."""
    if not any(kind in CONVERTED for kind in found):
        return tree
    names = [f"c{index}" for index in range(len(found))]
    columns = [(exp.column(name), CONVERTED.get(kind)) for name, kind in zip(names, found, strict=True)]
    cells = [column if convert is None else convert(column) for column, convert in columns]
    alias = exp.TableAlias(this=exp.to_identifier("q"), columns=[exp.to_identifier(name) for name in names])
    return exp.select(*cells).from_(exp.Subquery(this=tree, alias=alias))


def _shape(kind: str, directory: Directory) -> Callable[[object], object] | None:
    """Return the function that turns DuckDB's value into one of this kind; None if nothing has to change."""
    if kind in NAMES_OF:
        return lambda value: Named(int(str(value)), NAMES_OF[kind](directory, int(str(value))))
    if kind == "numeric":
        return lambda value: value if isinstance(value, Decimal) else Decimal(str(value))
    if kind == "timestamptz":
        return lambda value: EPOCH + dt.timedelta(microseconds=int(str(value)))
    if kind in ("interval", "timetz"):
        return partial(_decoded, kinds.oid_of(kind))
    if kinds.is_array(kind) and kinds.element(kind) in (*NAMES_OF, "numeric"):
        inner = _shape(kinds.element(kind), directory)
        return lambda value: [item if item is None or inner is None else inner(item) for item in value]  # type: ignore[attr-defined]
    return None


def _decoded(oid: int, value: object) -> object:
    return values.decoder(oid, values.Format.TEXT)(str(value).encode())
