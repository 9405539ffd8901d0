"""Functions of PostgreSQL's that DuckDB has in another form: each takes its arguments and returns the tree for it."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from planner.basics.errors import Unsupported
from planner.plans.settings import PREFIX
from planner.sql import meaning
from proxy.catalog import kinds
from proxy.catalog.rewriting.trees import cast, own_call


def series(first: exp.Expr, last: exp.Expr, step: exp.Expr | None) -> exp.Expr:
    """Return the list of a series: of numbers, with a bound; of times, as DuckDB has it."""
    if any(node.meta.get("kind") in ("date", "timestamp", "timestamptz") for node in (first, last)):
        return exp.Anonymous(this="generate_series", expressions=[first, last, step])
    return exp.Anonymous(this="own_series", expressions=[first, last, step or exp.Literal.number(1)])


def written_series(arguments: list[exp.Expr]) -> exp.Expr:
    first, last, *step = arguments
    return exp.Explode(this=series(first, last, step[0] if step else None))


def subscripts(arguments: list[exp.Expr]) -> exp.Expr:
    vector = arguments[0].meta.get("kind") in kinds.VECTORS
    start, length = exp.Literal.number(int(not vector)), exp.Anonymous(this="len", expressions=[arguments[0]])
    end = exp.Sub(this=length, expression=exp.Literal.number(1)) if vector else length
    return exp.Explode(this=series(start, end, None))


def upper(arguments: list[exp.Expr]) -> exp.Expr:
    length = exp.Anonymous(this="len", expressions=[arguments[0]])
    last = (
        exp.Sub(this=length, expression=exp.Literal.number(1))
        if arguments[0].meta.get("kind") in kinds.VECTORS
        else length
    )
    return (
        exp.Anonymous(this="nullif", expressions=[last, exp.Literal.number(0)])
        if last is length
        else exp.Paren(this=last)
    )


def length(arguments: list[exp.Expr]) -> exp.Expr:
    length = exp.Anonymous(this="len", expressions=[arguments[0]])
    return exp.Anonymous(this="nullif", expressions=[length, exp.Literal.number(0)])


def remove(arguments: list[exp.Expr]) -> exp.Expr:
    item = exp.to_identifier("item")
    different = exp.NullSafeNEQ(this=exp.column(item), expression=arguments[1])
    return exp.Anonymous(this="list_filter", expressions=[arguments[0], exp.Lambda(this=different, expressions=[item])])


def expand(arguments: list[exp.Expr]) -> exp.Expr:
    """Return (x, n) for each item x of an array and its number n."""
    parts = exp.Struct(expressions=[
        exp.PropertyEQ(this=exp.to_identifier(name), expression=exp.column(name)) for name in ("x", "n")
    ])  # fmt: skip
    names = [exp.to_identifier("x"), exp.to_identifier("n")]
    pairs = exp.Anonymous(this="list_transform", expressions=[arguments[0], exp.Lambda(this=parts, expressions=names)])
    return exp.Explode(this=pairs)


def join(arguments: list[exp.Expr]) -> exp.Expr:
    array, kind = arguments[0], arguments[0].meta.get("kind")
    if kinds.is_array(kind) and kinds.element(kind or "") in kinds.REGISTERED:
        array = cast(array, "_text")
    return exp.Anonymous(this="own_join_with" if arguments[2:] else "own_join", expressions=[array, *arguments[1:]])


def json(arguments: list[exp.Expr]) -> exp.Expr:
    """Return the text of a JSON object, spaced as PostgreSQL does."""
    found: exp.Expr = exp.Literal.string("{")
    for index, argument in enumerate(arguments):
        mark = "" if index == 0 else " : " if index % 2 else ", "
        text = cast(exp.Anonymous(this="to_json", expressions=[argument]), "text")
        known = exp.Coalesce(this=text, expressions=[exp.Literal.string("null")])
        found = exp.DPipe(this=exp.DPipe(this=found, expression=exp.Literal.string(mark)), expression=known)
    return cast(exp.Paren(this=exp.DPipe(this=found, expression=exp.Literal.string("}"))), "json")


def nullable(arguments: list[exp.Expr]) -> exp.Expr:
    return exp.Coalesce(this=own_call("quote_literal", arguments), expressions=[exp.Literal.string("NULL")])


OBEYED = ("statement_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout")


def set_config(arguments: list[exp.Expr]) -> exp.Expr:
    """Return the value, as if it had been set: but not for settings that mean something here, which SET sets."""
    name = arguments[0].name.lower() if arguments[0].is_string else ""
    if not name or name in OBEYED or name.startswith(PREFIX):
        raise Unsupported(
            f"set_config can't set {name or 'what is not named in it'} here", hint="write SET name = value"
        )
    return arguments[1]


PLAIN: dict[str, Callable[[list[exp.Expr]], exp.Expr]] = {
    **meaning.CALLS,
    "generate_subscripts": subscripts,
    "array_upper": upper,
    "array_length": length,
    "array_lower": lambda _: exp.Literal.number(1),
    "array_remove": remove,
    "_pg_expandarray": expand,
    "array_to_string": join,
    "quote_nullable": nullable,
    "json_build_object": json,
    "jsonb_build_object": json,
    "set_config": set_config,
    "inet_server_addr": lambda _: exp.null(),
    "inet_client_addr": lambda _: exp.null(),
    "current_schema": lambda _: exp.Literal.string("public"),
    "generate_series": written_series,
}
"""Functions that need to know nothing but their arguments."""

LEAST_ARGUMENTS = {
    "generate_subscripts": 2,
    "array_upper": 2,
    "array_length": 2,
    "array_lower": 2,
    "array_remove": 2,
    "_pg_expandarray": 1,
    "array_to_string": 2,
    "set_config": 3,
    "generate_series": 2,
    "current_setting": 1,
    "pg_typeof": 1,
    "has_column_privilege": 3,
}
"""Those that look at their arguments, and how many they need."""

RENAMED = {
    "array_cat": "list_concat",
    "cardinality": "len",
    "json_agg": "json_group_array",
    "array_position": "list_position",
    "array_append": "list_append",
    "btrim": "trim",
    "char_length": "length",
    "every": "bool_and",
    "clock_timestamp": "now",
    "statement_timestamp": "now",
    "transaction_timestamp": "now",
}

CONSTANTS: dict[str, str | int | bool] = {
    "getdatabaseencoding": "UTF8",
    "pg_client_encoding": "UTF8",
    "pg_my_temp_schema": 0,
    "pg_is_in_recovery": False,
    "txid_current": 1,
    "pg_jit_available": False,
    "pg_advisory_unlock_all": "",
    "icu_unicode_version": "",
}
