"""Pieces of DuckDB trees: casts, literals, and values as the text that PostgreSQL would write."""

from __future__ import annotations

import re

from sqlglot import exp

from planner.basics.errors import UnknownFunction
from planner.basics.nodes import span
from proxy.catalog import kinds
from proxy.catalog.errors import InvalidText
from proxy.catalog.relations.functions import FUNCTIONS
from proxy.wire import values


def character(found: re.Match[str]) -> str:
    return chr(int(found[1] or found[2], 16))


def cast(node: exp.Expr, kind: str) -> exp.Expr:
    return exp.Cast(this=node, to=exp.DataType.build(kinds.duckdb_type(kind), dialect="duckdb"))


def read(text: str, kind: str, node: exp.Expr) -> exp.Expr:
    """Return a literal of a type, read as PostgreSQL reads it."""
    try:
        value = values.decoder(kinds.oid_of(kind), values.Format.TEXT)(text.encode())
    except (ValueError, ArithmeticError):
        raise InvalidText(
            f'invalid input syntax for type {kind}: "{text}"', hint="check the value", span=span(node)
        ) from None
    if kinds.is_array(kind) or kind in ("bool", "bytea", "numeric"):
        return literal(value, kind)
    return cast(exp.Literal.string(text.strip() if kind not in kinds.TEXTS else text), kind)


def literal(value: object, kind: str) -> exp.Expr:
    if isinstance(value, list):
        return cast(exp.Array(expressions=[literal(item, kinds.element(kind)) for item in value]), kind)
    if isinstance(value, bytes):
        return exp.Anonymous(this="from_hex", expressions=[exp.Literal.string(value.hex())])
    if value is None or isinstance(value, bool | int):
        return exp.convert(value)
    if kind == "numeric":
        return exp.Literal.number(format(value, "f"))
    return cast(exp.Literal.string(str(value)), kind)


def as_text(node: exp.Expr, source: str | None) -> exp.Expr:
    """Return a value as PostgreSQL writes it."""
    if source in kinds.REGISTERED:
        return exp.Anonymous(this=f"own_name_{source}", expressions=[cast(node, source)])
    if source in kinds.VECTORS:
        return exp.Anonymous(this="own_join", expressions=[node, exp.Literal.string(" ")])
    if kinds.is_array(source):
        joined = exp.Anonymous(this="own_join", expressions=[node, exp.Literal.string(",")])
        return exp.Paren(
            this=exp.DPipe(
                this=exp.DPipe(this=exp.Literal.string("{"), expression=joined), expression=exp.Literal.string("}")
            )
        )
    return cast(node, "text")


def limited(node: exp.Expr, to: exp.Expr) -> exp.Expr:
    typmod, kind = kinds.typmod_of(to), kinds.of_type(to)
    length = 1 if kind == "char" else typmod - 4 if typmod > 0 else None
    return node if length is None else exp.Left(this=node, expression=exp.Literal.number(length))


def own_call(name: str, arguments: list[exp.Expr]) -> exp.Expr:
    own = FUNCTIONS[name]
    missing = len(own.arguments) - len(arguments)
    rest = list(own.defaults[len(own.defaults) - missing :]) if 0 < missing <= len(own.defaults) else []
    given = [*arguments[: len(own.arguments)], *map(exp.convert, rest)]
    if len(given) < len(own.arguments):
        raise UnknownFunction(f"function {name} takes {len(own.arguments)} arguments", hint="see pg_proc")
    typed = [cast(argument, kind) for argument, kind in zip(given, own.arguments, strict=True)]
    return exp.Anonymous(this=f"own_{name}", expressions=typed)
