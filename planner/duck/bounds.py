"""Limits that keep an analyst's expression small and quick where DuckDB has none.

DuckDB looks for an interrupt between two pieces of 2,048 rows, and counts no text that a function makes in its limit of
memory; calls of constants it computes while it plans. So within one piece each call must be quick and small by itself:
texts that functions make are bounded, what is more than linear takes short texts only, and what makes lists is refused
where it could go on growing.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from planner.basics.errors import TooLarge, Unsupported
from planner.basics.limits import MAX_COMPARED, MAX_JOINED, MAX_MADE, MAX_PATTERN, MAX_TEXT

UNWRITABLE = "the expression can't be written for the engine that evaluates it"
UNWRITABLE_HINT = "call no function on its own result, as initcap on initcap"

TOO_LONG = f"a text would have more than {MAX_TEXT:,} characters"
TOO_LONG_TO_COMPARE = f"texts of more than {MAX_COMPARED} characters are too long to be compared"
MESSAGES = (TOO_LONG, TOO_LONG_TO_COMPARE)


def _error(message: str, kind: str = "VARCHAR") -> str:
    """Return the SQL of an error: a cast that fails can be tried by TRY, error() can't."""
    return f"CAST(CAST('{message}' AS BIGINT) AS {kind})"


def _once(arguments: str, body: str) -> str:
    """Return the SQL of a body that names each of the arguments v.…; they are evaluated once however often it does.

    A macro writes an argument wherever its name stands: nested calls would double at each level.
    """
    packed = ", ".join(f"{name} := {name}" for name in arguments.split(", "))
    one = f"system.main.list_value(system.main.struct_pack({packed}))"
    return f"system.main.list_extract(system.main.list_transform({one}, lambda v: {body}), 1)"


def _short(made: str) -> str:
    """Return the SQL of a text or list that is an error if it is too long; for what at most adds its arguments up."""
    checked = f"CASE WHEN length(v) > {MAX_TEXT} THEN {_error(TOO_LONG)} ELSE v END"
    return (
        f"system.main.list_extract(system.main.list_transform(system.main.list_value({made}), lambda v: {checked}), 1)"
    )


def _at_most(size: str, value: str, kind: str) -> str:
    """Return the SQL of an argument that is an error if a size is beyond the limit: then the call is never made."""
    return f"CASE WHEN {size} > {MAX_TEXT} THEN {_error(TOO_LONG, kind)} ELSE {value} END"


def _compared(name: str, *, more: str = "") -> str:
    """Return the macro of a distance between short texts; `more` are further arguments."""
    tests = " OR ".join(f"length(v.{side}) > {MAX_COMPARED}" for side in ("a", "b"))
    checked = f"CASE WHEN {tests} THEN {_error(TOO_LONG_TO_COMPARE)} ELSE v.a END"
    rest = f", v.{more}" if more else ""
    arguments = f"a, b, {more}" if more else "a, b"
    return f"({arguments}) AS {_once(arguments, f'system.main.{name}({checked}, v.b{rest})')}"


_TIMES = "CAST(v.times AS BIGINT)"
_REPEATED = _at_most(f"CAST(length(v.item) AS HUGEINT) * {_TIMES}", _TIMES, "BIGINT")
_PADDED = _at_most("CAST(v.size AS BIGINT)", "CAST(v.size AS INTEGER)", "INTEGER")
_REPLACED = _at_most("(CAST(length(v.item) AS HUGEINT) + 1) * length(v.new)", "v.new", "VARCHAR")


def _joined(name: str, first: str = "") -> str:
    """Return the overloads of a function that puts any number of values together."""
    heads = [[first] * bool(first) + [f"a{i}" for i in range(count)] for count in range(1, MAX_JOINED + 1)]
    return ", ".join(_grown(name, ", ".join(head)) for head in heads)


def _grown(name: str, arguments: str) -> str:
    """Return the macro of a function whose result is a few times as long as its arguments at most."""
    made = _short(f"system.main.{name}({arguments})")
    return f"({arguments}) AS {made}"


MACROS = {
    "repeat": f"(item, times) AS {_once('item, times', f'system.main.repeat(v.item, {_REPEATED})')}",
    "lpad": f"(item, size, fill) AS {_once('item, size, fill', f'system.main.lpad(v.item, {_PADDED}, v.fill)')}",
    "rpad": f"(item, size, fill) AS {_once('item, size, fill', f'system.main.rpad(v.item, {_PADDED}, v.fill)')}",
    "replace": f"(item, old, new) AS {_once('item, old, new', f'system.main.replace(v.item, v.old, {_REPLACED})')}",
    "regexp_replace": (
        f"(item, old, new) AS {_once('item, new', f'system.main.regexp_replace(v.item, old, {_REPLACED})')}, "
        f"(item, old, new, options) AS "
        f"{_once('item, new', f'system.main.regexp_replace(v.item, old, {_REPLACED}, options)')}"
    ),
    '"||"': _grown('"||"', "a, b"),
    "concat": _joined("concat"),
    "concat_ws": _joined("concat_ws", "mark"),
    "overlay": f"{_grown('overlay', 'a, b, c')}, {_grown('overlay', 'a, b, c, d')}",
    "strftime": _grown("strftime", "a, b"),
    **{name: _grown(name, "a") for name in ("hex", "to_hex", "bin", "to_binary", "base64", "to_base64", "url_encode")},
    "regexp_escape": _grown("regexp_escape", "a"),
    **{name: _compared(name) for name in ("levenshtein", "editdist3", "damerau_levenshtein", "jaccard")},
    **{
        name: f"{_compared(name)}, {_compared(name, more='c')}"
        for name in ("jaro_similarity", "jaro_winkler_similarity")
    },
}
"""What stands in the place of DuckDB's own functions of the same names."""

NESTED = ("[", "MAP", "STRUCT", "TUPLE", "UNION", "VARIANT", "LIST", "ARRAY", "JSON", "BLOB", "BIT", "BIGNUM", "LAMBDA")
"""How types begin or end that hold any number of values, or one of any size."""


def makes_nested(types: list[str]) -> bool:
    """Return whether a function gives nothing else than values that hold any number of others; `types` are its results.

    >>> makes_nested(["VARCHAR[]"]), makes_nested(["T[]", "VARCHAR"]), makes_nested(["BIGINT"])
    (True, False, False)
    """
    return all("[]" in kind or kind.startswith(NESTED) for kind in types)


COLLECTING = (exp.GroupConcat, exp.ArrayAgg, exp.List, exp.JSONArrayAgg, exp.JSONObjectAgg, exp.ApproxTopK)
"""Aggregates whose result is as long as there are rows."""

UNBOUNDED_TYPES = ("BIGNUM", "VARINT", "JSON", "BIT", "VARIANT")


def check_bounds(tree: exp.Expr) -> None:
    """Raise if an expression could make what no limit of DuckDB's reaches."""
    for node in tree.walk():
        if isinstance(node, exp.Literal) and len(node.name) > MAX_TEXT:
            raise TooLarge(f"a constant has more than {MAX_TEXT:,} characters", hint="use a shorter one")
        if isinstance(node, exp.Array | exp.Struct | exp.Map) and not _is_constant(node):
            raise Unsupported("a list of anything but constants can't be used here", hint="list constants only")
        if isinstance(node, COLLECTING) and not _is_output(node, tree):
            raise Unsupported(
                f"{node.key} can only be a column of the answer", hint="put it into the outermost SELECT, by itself"
            )
        if isinstance(node, exp.Cast) and node.to.sql("duckdb").upper().startswith(UNBOUNDED_TYPES):
            raise Unsupported(f"nothing can be cast to {node.to.sql('duckdb')} here", hint="use text or a number")
        for pattern in _patterns(node):
            _check_pattern(pattern)


def check_made(count: int) -> None:
    """Raise if so many calls of one statement make texts that these would be too much together."""
    if count > MAX_MADE:
        raise TooLarge(
            f"the statement makes texts in {count:,} places, the limit is {MAX_MADE}",
            hint="use fewer calls of functions that make texts, such as || and replace",
        )


def _is_constant(node: exp.Expr) -> bool:
    """Return whether a list holds nothing but constants, and lists of these."""
    plain = (exp.Literal, exp.Null, exp.Boolean, exp.Neg, exp.Paren, exp.Cast, exp.DataType, exp.Array)
    return all(isinstance(part, plain) for part in node.walk())


def _is_output(node: exp.Expr, tree: exp.Expr) -> bool:
    """Return whether an aggregate is, with nothing around it but its own clauses, a column of the outermost SELECT."""
    around = node.parent
    while isinstance(around, exp.Alias | exp.Filter | exp.Window | exp.WithinGroup | exp.Paren):
        around = around.parent
    return around is tree


def _patterns(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the regular expressions that a node matches with."""
    if isinstance(node, exp.Anonymous) and node.name.lower().startswith("regexp_"):
        yield from node.expressions[1:2]
    elif isinstance(node, exp.SimilarTo | exp.RegexpLike | exp.RegexpILike) or node.key.startswith("regexp"):
        yield from (found for found in [node.args.get("expression")] if found is not None)


def _check_pattern(pattern: exp.Expr) -> None:
    if not (isinstance(pattern, exp.Literal) and len(pattern.name) <= MAX_PATTERN):
        raise Unsupported(
            f"a regular expression must be a constant of at most {MAX_PATTERN:,} characters",
            hint="write it into the statement",
        )
