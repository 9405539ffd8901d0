"""What PostgreSQL means by an expression, written so that DuckDB means it too.

Three things can be done about an expression that the two mean differently: it is rewritten here, computed by a macro
of ours, or refused. What is left stands in docs/reference/sql.md under "Differences". Types are those of PostgreSQL; a
rule that needs one is told it, so that the gate and the catalog, which find types in different ways, share the rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.dialects.postgres import Postgres

from planner.basics.errors import DivisionByZero, Unsupported
from planner.basics.nodes import span

Rule = Callable[[list[exp.Expr]], exp.Expr]


@cache
def _template(sql: str) -> exp.Expr:
    return parse_one(sql, dialect="duckdb")


def duckdb(sql: str, **parts: exp.Expr) -> exp.Expr:
    """Return a piece of DuckDB's SQL in which names stand for expressions.

    >>> duckdb("lower(hex(item))", item=exp.Literal.string("a")).sql("duckdb")
    "LOWER(HEX('a'))"
    """

    def put(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.name in parts:
            part = parts[node.name].copy()
            return part if isinstance(part, exp.Column | exp.Literal | exp.Func) else exp.Paren(this=part)
        return node

    return _template(sql).copy().transform(put)


def text_of(node: exp.Expr, what: str) -> str:
    """Return the text of a constant; refuse anything else."""
    if node.is_string:
        return node.name
    raise Unsupported(f"{what} must be a constant text", hint="write it in quotes", span=span(node))


# --- dates as text ---------------------------------------------------------------------------------------------------

STRFTIME = {
    "YYYY": "%Y", "IYYY": "%G", "YY": "%y", "MM": "%m", "DDD": "%j", "DD": "%d", "IW": "%V", "ID": "%u",
    "HH24": "%H", "HH12": "%I", "HH": "%I", "MI": "%M", "SS": "%S", "MS": "%g", "US": "%f", "AM": "%p", "PM": "%p",
    "Mon": "%b", "Dy": "%a",
}  # fmt: skip
"""Patterns of to_char that DuckDB has as well."""

UNPADDED = {"%m": "%-m", "%j": "%-j", "%d": "%-d", "%H": "%-H", "%I": "%-I", "%M": "%-M", "%S": "%-S", "%y": "%-y"}
"""The same behind FM, which takes leading zeros away."""

COMPUTED = {
    "Month": "rpad(strftime(item, '%B'), 9, ' ')", "Day": "rpad(strftime(item, '%A'), 9, ' ')",
    "FMMonth": "strftime(item, '%B')", "FMDay": "strftime(item, '%A')",
    "Q": "CAST(quarter(item) AS VARCHAR)", "D": "CAST(dayofweek(item) + 1 AS VARCHAR)",
    "WW": "lpad(CAST((dayofyear(item) + 6) // 7 AS VARCHAR), 2, '0')",
    "FMWW": "CAST((dayofyear(item) + 6) // 7 AS VARCHAR)",
    "W": "CAST((day(item) + 6) // 7 AS VARCHAR)",
    "CC": "lpad(CAST((year(item) + 99) // 100 AS VARCHAR), 2, '0')",
    "YYY": "right(strftime(item, '%Y'), 3)", "Y": "right(strftime(item, '%Y'), 1)",
    "IYY": "right(strftime(item, '%G'), 3)", "IY": "right(strftime(item, '%G'), 2)",
    "J": "CAST(CAST(julian(CAST(item AS DATE)) AS BIGINT) AS VARCHAR)",
    "SSSS": "CAST(hour(item) * 3600 + minute(item) * 60 + second(item) AS VARCHAR)",
}  # fmt: skip
"""Patterns that are worked out."""

CASED = {"Month": True, "Mon": True, "Day": True, "Dy": True, "AM": False, "PM": False}
"""Patterns whose letters say how the answer is written; True where `Mon` is a third way beside `MON` and `mon`."""

REFUSED = ("TZ", "OF", "RM", "SP", "FF", "B.C.", "A.D.", "BC", "AD", "A.M.", "P.M.")
NAMES = sorted({*STRFTIME, *COMPUTED, *CASED, *REFUSED} - {n for n in COMPUTED if n.startswith("FM")}, key=len)[::-1]
_PATTERN = re.compile(rf'(FM)?({"|".join(map(re.escape, NAMES))})(TH)?|"([^"]*)"|FX|(.)', re.IGNORECASE | re.DOTALL)


def to_char(arguments: list[exp.Expr]) -> exp.Expr:
    """Return to_char(time, format), in pieces where DuckDB has no pattern of the kind."""
    if len(arguments) != 2:
        raise Unsupported("to_char takes a time and a format", hint="for example: to_char(day, 'YYYY-MM')")
    item, form = arguments[0], text_of(arguments[1], "the format of to_char")
    pieces: list[exp.Expr] = []
    plain = ""
    for way, found in _pieces(form, arguments[1]):
        if way == "format":
            plain += found
            continue
        pieces += [_strftime(item, plain)] if plain else []
        pieces.append(duckdb(found, item=item))
        plain = ""
    pieces += [_strftime(item, plain)] if plain or not pieces else []
    joined = pieces[0]
    for piece in pieces[1:]:
        joined = exp.DPipe(this=joined, expression=piece)
    return exp.Paren(this=joined) if len(pieces) > 1 else joined


def _strftime(item: exp.Expr, form: str) -> exp.Expr:
    return exp.Anonymous(this="strftime", expressions=[item.copy(), exp.Literal.string(form)])


def _pieces(form: str, node: exp.Expr) -> Iterator[tuple[str, str]]:
    """Yield a format for strftime, or SQL, for each piece of a format of to_char."""
    for found in _PATTERN.finditer(form):
        bare, name, ordinal, quoted, letter = found.groups()
        if name is None:
            yield "format", (quoted or letter or "").replace("%", "%%")
            continue
        known = next(each for each in NAMES if each.lower() == name.lower())
        if known in REFUSED or ordinal:
            raise Unsupported(f"to_char has no {found[0]} here", hint="leave it out of the format", span=span(node))
        yield _piece(known, name, bare=bool(bare))


def _piece(known: str, name: str, *, bare: bool) -> tuple[str, str]:
    computed = COMPUTED.get(f"FM{known}" if bare else known) or COMPUTED.get(known)
    if known not in CASED or (CASED[known] and name == known) or (not CASED[known] and name.isupper()):
        plain = STRFTIME.get(known, "")
        return ("sql", computed) if computed else ("format", UNPADDED.get(plain, plain) if bare else plain)
    written = computed or f"strftime(item, '{STRFTIME[known]}')"
    return "sql", f"{'upper' if name.isupper() else 'lower'}({written})"


def _parsed_format(node: exp.Expr, what: str) -> str:
    """Return the format of DuckDB's for one by which a text is read."""
    pieces = list(_pieces(text_of(node, f"the format of {what}"), node))
    if any(way != "format" for way, _ in pieces):
        raise Unsupported(f"{what} can't read this format", hint="use YYYY, MM, DD, HH24, MI and SS", span=span(node))
    return "".join(piece for _, piece in pieces)


def to_date(arguments: list[exp.Expr]) -> exp.Expr:
    form = exp.Literal.string(_parsed_format(arguments[1], "to_date"))
    return duckdb("CAST(strptime(item, form) AS DATE)", item=arguments[0], form=form)


def to_timestamp(arguments: list[exp.Expr]) -> exp.Expr:
    if len(arguments) == 1:
        return duckdb("to_timestamp(item)", item=arguments[0])
    form = exp.Literal.string(_parsed_format(arguments[1], "to_timestamp"))
    return duckdb("CAST(strptime(item, form) AS TIMESTAMPTZ)", item=arguments[0], form=form)


# --- texts -----------------------------------------------------------------------------------------------------------

SIMILAR = {"%": ".*", "_": "."}
KEPT = set("|*+?{}()[]-,0123456789")


def similar(node: exp.SimilarTo) -> exp.Expr:
    """Return SIMILAR TO as a regular expression that has to match all of the text."""
    pattern = text_of(node.expression, "the pattern of SIMILAR TO")
    regex, letters = "", iter(pattern)
    for letter in letters:
        if letter == "\\":
            regex += re.escape(next(letters, "\\"))
        else:
            regex += SIMILAR.get(letter) or (letter if letter in KEPT else re.escape(letter))
    matched = duckdb("regexp_full_match(item, form, 's')", item=node.this, form=exp.Literal.string(regex))
    return exp.Not(this=matched) if node.args.get("negate") else matched


def like(node: exp.Expr) -> exp.Expr:
    """Return a LIKE in which the backslash escapes, as it does in PostgreSQL without being told."""
    pattern = node.args["expression"]
    if isinstance(node.parent, exp.Escape) or (pattern.is_string and "\\" not in pattern.name):
        return node
    if node.args.get("negate"):
        node.set("negate", None)
        return exp.Not(this=exp.Paren(this=_escaped(node)))
    return exp.Paren(this=_escaped(node))


def _escaped(node: exp.Expr) -> exp.Expr:
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def substring(node: exp.Substring) -> exp.Expr:
    """Return a part of a text: places before the first one count, and a pattern picks what it matches."""
    item, start, length = node.this, node.args.get("start"), node.args.get("length")
    if start is None:
        start = exp.Literal.number(1)
    if start.is_string:
        return _matched(item, start, length)
    if _is_positive(start):
        return node
    if length is None:
        return duckdb("substring(item, greatest(start, 1))", item=item, start=start)
    return duckdb(
        "substring(item, greatest(start, 1), greatest(start + size - greatest(start, 1), 0))",
        item=item,
        start=start,
        size=length,
    )


def _is_positive(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_int and int(node.name) > 0


def _matched(item: exp.Expr, pattern: exp.Expr, length: exp.Expr | None) -> exp.Expr:
    if length is not None:
        raise Unsupported("SUBSTRING … FROM … FOR needs numbers here", hint="use a pattern alone", span=span(pattern))
    group = exp.Literal.number(int(bool(re.search(r"(?<!\\)\((?!\?)", pattern.name))))
    return duckdb(
        "CASE WHEN regexp_matches(item, form) THEN regexp_extract(item, form, part) END",
        item=item,
        form=pattern,
        part=group,
    )


def encode(arguments: list[exp.Expr]) -> exp.Expr:
    forms = {"hex": "lower(hex(item))", "base64": "base64(CAST(item AS BLOB))"}
    return _by_name(arguments, forms, "encode")


def decode(arguments: list[exp.Expr]) -> exp.Expr:
    return _by_name(arguments, {"hex": "unhex(item)", "base64": "from_base64(item)"}, "decode")


def _by_name(arguments: list[exp.Expr], forms: dict[str, str], what: str) -> exp.Expr:
    if len(arguments) == 2 and arguments[1].is_string and arguments[1].name.lower() in forms:
        return duckdb(forms[arguments[1].name.lower()], item=arguments[0])
    raise Unsupported(f"{what} takes a value and one of: {', '.join(forms)}", hint=f"for example: {what}(…, 'hex')")


# --- numbers and times -----------------------------------------------------------------------------------------------


def width_bucket(node: exp.WidthBucket) -> exp.Expr:
    """Return the number of the equal bucket in which a number lies, from 0 to one more than there are."""
    names = {"item": "this", "low": "min_value", "high": "max_value", "size": "num_buckets"}
    parts = {name: part for name, key in names.items() if (part := node.args.get(key)) is not None}
    if len(parts) < len(names):
        raise Unsupported("width_bucket takes four numbers", hint="for example: width_bucket(age, 0, 100, 10)")
    place = "floor((item - low) * CAST(1 AS DOUBLE) / (high - low) * size) + 1"  # low may be the larger of the two
    return duckdb(f"CAST(greatest(0, least(size + 1, {place})) AS INTEGER)", **parts)


def date_bin(arguments: list[exp.Expr]) -> exp.Expr:
    if len(arguments) != 3:
        raise Unsupported(
            "date_bin takes a step, a time and an origin", hint="for example: date_bin('1 hour', t, '2024-01-01')"
        )
    step, item, origin = arguments
    if step.is_string:
        step = exp.Cast(this=step.copy(), to=exp.DataType.build("interval"))
    return duckdb(
        "time_bucket(step, CAST(item AS TIMESTAMP), CAST(origin AS TIMESTAMP))", step=step, item=item, origin=origin
    )


FRACTIONS = {"SECOND": 6, "SECONDS": 6, "MILLISECOND": 3, "MILLISECONDS": 3}


def extract(node: exp.Extract) -> exp.Expr:
    """Return a field of a time, which is a numeric; seconds have a fraction."""
    field, digits = node.name.upper(), FRACTIONS.get(node.name.upper(), 0)
    if digits:
        value = duckdb(f"extract(microseconds FROM item) / 1e{digits}", item=node.expression)
    else:
        value, digits = node.copy(), 6 if field == "EPOCH" else 0
    return exp.cast(value, f"DECIMAL(18, {digits})", dialect="duckdb")


def date_part(arguments: list[exp.Expr]) -> exp.Expr:
    if len(arguments) != 2:
        raise Unsupported("date_part takes a field and a time", hint="for example: date_part('month', day)")
    field = exp.Var(this=text_of(arguments[0], "the field of date_part").upper())
    return exp.cast(extract(exp.Extract(this=field, expression=arguments[1].copy())), "DOUBLE", dialect="duckdb")


def whole(node: exp.Expr) -> exp.Expr:
    """Return a function's count of something as an integer, which DuckDB gives as a bigint."""
    return exp.cast(node.copy(), "INTEGER", dialect="duckdb")


def rounded(node: exp.Round) -> exp.Expr:
    """Return the rounding of a double: a half goes to the even number."""
    if node.args.get("decimals") is not None:
        return node
    return duckdb("round_even(item, 0)", item=node.this)


def limited(node: exp.Cast) -> exp.Expr:
    """Return a cast to varchar(n), which cuts the text."""
    if not node.to.is_type("varchar", "char", "nchar", "bpchar") or not node.to.expressions:
        return node
    if not node.to.is_type("varchar"):
        raise Unsupported(
            "char(n) fills texts up with blanks, which is not done here", hint="use varchar(n)", span=span(node)
        )
    return duckdb("left(CAST(item AS VARCHAR), size)", item=node.this, size=node.to.expressions[0].this)


CALLS: dict[str, Rule] = {
    "date_part": date_part,
    "to_char": to_char,
    "to_date": to_date,
    "to_timestamp": to_timestamp,
    "encode": encode,
    "decode": decode,
    "to_hex": lambda arguments: duckdb("lower(hex(item))", item=arguments[0]),
    "date_bin": date_bin,
}
"""Functions that need to know nothing but their arguments."""


# --- types -----------------------------------------------------------------------------------------------------------

RETURNS = {
    "date_part": exp.DType.DOUBLE,
    "to_char": exp.DType.TEXT,
    "to_date": exp.DType.DATE,
    "to_timestamp": exp.DType.TIMESTAMPTZ,
    "to_hex": exp.DType.TEXT,
    "encode": exp.DType.TEXT,
    "date_bin": exp.DType.TIMESTAMP,
}
"""Types of the calls above."""


def _typed_sum(annotator: Any, node: exp.Expr) -> exp.Expr:
    """PostgreSQL sums integers as bigint, and bigints as numeric: dividing by such a sum leaves a fraction."""
    if node.this.is_type(*exp.DataType.INTEGER_TYPES):
        kind = exp.DType.DECIMAL if node.this.is_type(exp.DType.BIGINT) else exp.DType.BIGINT
        return annotator._set_type(node, kind)  # type: ignore[no-any-return]
    return DEFAULTS[exp.Sum]["annotator"](annotator, node)  # type: ignore[no-any-return]


def _typed_difference(annotator: Any, node: exp.Sub) -> exp.Expr:
    """The difference of two dates is a whole number of days."""
    if node.left.is_type(exp.DType.DATE) and node.right.is_type(exp.DType.DATE):
        return annotator._set_type(node, exp.DType.INT)  # type: ignore[no-any-return]
    return DEFAULTS[exp.Sub]["annotator"](annotator, node)  # type: ignore[no-any-return]


def _typed_average(annotator: Any, node: exp.Expr) -> exp.Expr:
    is_double = node.this.is_type(exp.DType.DOUBLE, exp.DType.FLOAT)
    return annotator._set_type(node, exp.DType.DOUBLE if is_double else exp.DType.DECIMAL)  # type: ignore[no-any-return]


def _typed_rounding(annotator: Any, node: exp.Expr) -> exp.Expr:
    return annotator._set_type(node, node.this.type)  # type: ignore[no-any-return]


def _typed_call(annotator: Any, node: exp.Expr) -> exp.Expr:
    if (kind := RETURNS.get(node.name.lower())) is not None:
        return annotator._set_type(node, kind)  # type: ignore[no-any-return]
    return DEFAULTS[exp.Anonymous]["annotator"](annotator, node)  # type: ignore[no-any-return]


def _typed_literal(annotator: Any, node: exp.Expr) -> exp.Expr:
    """A number with a fraction is a numeric, not a double."""
    if not node.is_string and not node.is_int:
        return annotator._set_type(node, exp.DType.DECIMAL)  # type: ignore[no-any-return]
    return DEFAULTS[exp.Literal]["annotator"](annotator, node)  # type: ignore[no-any-return]


DEFAULTS: Mapping[Any, Any] = Postgres.EXPRESSION_METADATA
TYPES: dict[Any, Any] = {
    **DEFAULTS,
    exp.Sum: {"annotator": _typed_sum},
    exp.Avg: {"annotator": _typed_average},
    exp.Sub: {"annotator": _typed_difference},
    exp.Round: {"annotator": _typed_rounding},
    exp.Extract: {"returns": exp.DType.DECIMAL},
    exp.Anonymous: {"annotator": _typed_call},
    exp.Literal: {"annotator": _typed_literal},
}
"""How sqlglot finds types, with those corrected that are PostgreSQL's and that a meaning depends on."""


# --- the pass --------------------------------------------------------------------------------------------------------


def _divided(node: exp.Div) -> exp.Expr:
    """PostgreSQL divides integers toward zero; DuckDB's / does not."""
    node.set("typed", False)
    divisor = node.right.unnest()
    if isinstance(divisor, exp.Literal) and not divisor.is_string and not float(divisor.name):
        raise DivisionByZero("division by zero", hint="divide by something else", span=span(node))
    if not (node.left.is_type(*exp.DataType.INTEGER_TYPES) and node.right.is_type(*exp.DataType.INTEGER_TYPES)):
        return node
    return exp.IntDiv(this=node.left.copy(), expression=node.right.copy())


def _difference(node: exp.Sub) -> exp.Expr:
    return whole(node) if node.left.is_type("date") and node.right.is_type("date") else node


def _rounded(node: exp.Round) -> exp.Expr:
    return rounded(node) if node.this.is_type(exp.DType.DOUBLE, exp.DType.FLOAT) else node


def _called(node: exp.Anonymous) -> exp.Expr:
    rule = CALLS.get(node.name.lower())
    if rule is None:
        return node
    first = node.expressions[0] if node.expressions else node
    if node.name.lower() == "to_char" and first.is_type(*exp.DataType.NUMERIC_TYPES, exp.DType.INTERVAL):
        raise Unsupported(
            "to_char can't write numbers or intervals here", hint="use round(…), or a cast to text", span=span(node)
        )
    return rule(node.expressions)


RULES: dict[type[exp.Expr], Callable[[Any], exp.Expr]] = {
    exp.Anonymous: _called,
    exp.Cast: limited,
    exp.Div: _divided,
    exp.Extract: extract,
    exp.ILike: like,
    exp.Length: whole,
    exp.StrPosition: whole,
    exp.Sub: _difference,
    exp.Like: like,
    exp.Round: _rounded,
    exp.SimilarTo: similar,
    exp.Substring: substring,
    exp.WidthBucket: width_bucket,
}


def in_duckdb(tree: exp.Query) -> exp.Query:
    """Return a typed tree of PostgreSQL's, which it may change, as DuckDB means the same."""
    for node in reversed(list(tree.walk(bfs=False))):
        rule = RULES.get(type(node))
        parent, key, index = node.parent, node.arg_key, node.index
        new = node if rule is None else rule(node)
        if new is not node and parent is not None and key is not None:
            new.type = node.type
            new.meta.update(node.meta)
            parent.set(key, new, index=index)
    return tree
