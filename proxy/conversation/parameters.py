"""The types of $1, $2, … where a client leaves them open: from what each one stands beside in the statement.

Known types of columns come from the policy, by way of the gate's catalog. What can't be known is text, as in
PostgreSQL. A wrong guess costs a client a clear error, never an answer to another question.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Mapping, Sequence
from decimal import Decimal

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from planner.basics.numerals import whole
from planner.sql.statement import parsed, tokens_of
from proxy.catalog.types import oid_of
from proxy.wire import oids

Types = Mapping[str, Mapping[str, str]]
"""DuckDB's type of every column, by table."""

MOST = 65_535
"""As many parameters as one statement can have."""

NAMED: dict[str, int] = {
    "BOOLEAN": oids.BOOL,
    "TINYINT": oids.INT2,
    "SMALLINT": oids.INT2,
    "INT": oids.INT4,
    "BIGINT": oids.INT8,
    "FLOAT": oids.FLOAT4,
    "DOUBLE": oids.FLOAT8,
    "DECIMAL": oids.NUMERIC,
    "DATE": oids.DATE,
    "TIME": oids.TIME,
    "TIMETZ": oids.TIMETZ,
    "TIMESTAMP": oids.TIMESTAMP,
    "TIMESTAMPNTZ": oids.TIMESTAMP,
    "TIMESTAMPTZ": oids.TIMESTAMPTZ,
    "INTERVAL": oids.INTERVAL,
    "JSON": oids.JSON,
    "JSONB": oids.JSONB,
    "UUID": oids.UUID,
    "VARBINARY": oids.BYTEA,
    "VARCHAR": oids.VARCHAR,
    "TEXT": oids.TEXT,
    "NAME": oids.NAME,
}
"""Type numbers by sqlglot's names of types."""

SAMPLES: dict[int, object] = {
    oids.BOOL: True,
    oids.INT2: 1,
    oids.INT4: 1,
    oids.INT8: 1,
    oids.OID: 1,
    oids.FLOAT4: 0.5,
    oids.FLOAT8: 0.5,
    oids.NUMERIC: Decimal("0.5"),
    oids.DATE: dt.date(2000, 1, 1),
    oids.TIMESTAMP: dt.datetime(2000, 1, 1),
    oids.TIMESTAMPTZ: dt.datetime(2000, 1, 1, tzinfo=dt.UTC),
}
"""A value of each type, to find out the columns of a statement before its parameters are known."""


def sample(oid: int) -> object:
    """Return some value of a type; text for types that have none here."""
    if oid in oids.ELEMENTS:
        return [sample(oids.ELEMENTS[oid])]
    return SAMPLES.get(oid, "")


def parameter_types(sql: str, stated: Sequence[int], types: Types) -> tuple[int, ...]:
    """Return the type of each parameter: as stated, or for 0 as the statement suggests."""
    count = max(_numbers(tokens_of(sql)), default=0)
    found = [stated[i] if i < len(stated) else 0 for i in range(max(count, len(stated)))]
    if 0 in found:
        guesses = _guesses(sql, types)
        found = [oid or guesses.get(number, oids.TEXT) for number, oid in enumerate(found, start=1)]
    return tuple(found)


def _numbers(tokens: Sequence[Token]) -> list[int]:
    """Return the n of every $n."""
    pairs = itertools.pairwise(tokens)
    found = [second.text for first, second in pairs if first.token_type == TokenType.PARAMETER]
    return [number for text in found if (number := whole(text, most=MOST))]


def _guesses(sql: str, types: Types) -> dict[int, int]:
    try:
        tree = parsed(sql)[0]
    except (SqlglotError, RecursionError):
        return {}  # whoever runs the statement says what is wrong with it
    columns = _columns(tree, types)
    found: dict[int, int] = {}
    for node in tree.find_all(exp.Parameter):
        guess = _expected(node, columns)
        if (number := whole(node.name)) is not None and guess is not None:
            found.setdefault(number, guess)
    return found


def _columns(tree: exp.Expr, types: Types) -> dict[str, str]:
    """Return the type of every column by its name; those of tables that the statement names win."""
    named = {f"{table.db}.{table.name}" if table.db else table.name for table in tree.find_all(exp.Table)}
    order = sorted(types, key=lambda table: table.lower() in named)
    return {column: kind for table in order for column, kind in types[table].items()}


def _expected(node: exp.Expr, columns: Mapping[str, str]) -> int | None:
    """Return the type that the place of a node asks for."""
    child, parent = node, node.parent
    while isinstance(parent, exp.Paren | exp.Neg | exp.Distinct | exp.Ordered):
        child, parent = parent, parent.parent
    match parent:
        case exp.Cast():
            return _named(parent.to)
        case exp.Limit() | exp.Offset() | exp.Fetch():
            return oids.INT8
        case exp.Any():
            above = parent.parent
            beside = _type(above.left, columns) if isinstance(above, exp.Binary) else None
            return oids.ARRAYS.get(beside or oids.TEXT)
        case exp.Like() | exp.ILike() | exp.SimilarTo() | exp.RegexpLike() | exp.RegexpILike() | exp.DPipe():
            return oids.TEXT
        case exp.Not() | exp.And() | exp.Or() | exp.Where() | exp.Having():
            return oids.BOOL
        case exp.Round() if child is parent.args.get("decimals"):
            return oids.INT4
        case exp.PercentileCont() | exp.PercentileDisc() | exp.Quantile():
            return oids.FLOAT8
        case exp.Binary() | exp.Between() | exp.In() | exp.Coalesce() | exp.Nullif() | exp.Greatest() | exp.Least():
            return _beside(child, parent, columns)
        case exp.Case() | exp.If():
            return _beside(child, parent, columns)
        case _:
            return None


def _beside(child: exp.Expr, parent: exp.Expr, columns: Mapping[str, str]) -> int | None:
    """Return the type of the first other part of an expression whose type is known."""
    others = [part for part in parent.iter_expressions() if part is not child]
    return next((oid for part in others if (oid := _type(part, columns)) is not None), None)


def _named(kind: exp.DataType) -> int | None:
    if kind.this == exp.DType.ARRAY:
        element = _named(kind.expressions[0]) if kind.expressions else None
        return oids.ARRAYS.get(element or oids.TEXT)
    return NAMED.get(kind.this.name if isinstance(kind.this, exp.DType) else str(kind.this).upper())


def _type(node: exp.Expr, columns: Mapping[str, str]) -> int | None:
    """Return the type of an expression, or None where it is not plain."""
    match node:
        case exp.Column():
            kind = columns.get(node.name) or columns.get(node.name.lower())
            return None if kind is None else oid_of(kind)
        case exp.Cast():
            return _named(node.to)
        case exp.Boolean():
            return oids.BOOL
        case exp.Literal():
            return _literal(node)
        case exp.Count() | exp.Sum() | exp.Extract():
            return oids.INT8
        case exp.Avg() | exp.Stddev() | exp.Variance():
            return oids.FLOAT8
        case exp.Lower() | exp.Upper() | exp.Substring() | exp.DPipe() | exp.Trim():
            return oids.TEXT
        case exp.Length():
            return oids.INT4
        case exp.TimestampTrunc() | exp.DateTrunc():
            return oids.TIMESTAMP
        case exp.Paren() | exp.Neg() | exp.Binary() | exp.Filter() | exp.Window() | exp.Coalesce():
            return next((oid for part in node.iter_expressions() if (oid := _type(part, columns)) is not None), None)
        case _:
            return None


def _literal(node: exp.Literal) -> int:
    if node.is_string:
        return oids.TEXT
    if not node.name.isdigit():
        return oids.NUMERIC
    return oids.INT4 if int(node.name[:12]) < 2**31 else oids.INT8
