"""From the text of a client to statements: what kind each is, with its parameters put in as values."""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from planner.basics.errors import BadValue, Forbidden, SyntaxRefusal, TooLarge, UnknownParameter, Unsupported
from planner.basics.limits import MAX_DIGITS, MAX_PARAMETERS, MAX_TOKENS
from planner.basics.nodes import CLOCKS, function_name, span
from planner.basics.numerals import whole
from planner.sql.dialect import DIALECT, Sql

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # its warnings hold what analysts wrote


class Commands(Sql):
    """PostgreSQL's tokens, with those of EXPLAIN, SHOW and RESET as well, which sqlglot keeps as one text."""

    class Tokenizer(Sql.Tokenizer):
        COMMANDS: ClassVar[set[TokenType]] = set()


Parameters = Sequence[Any] | Mapping[str, Any] | None
"""Values for placeholders, as PEP 249 passes them."""


@dataclass(frozen=True)
class Query:
    """A SELECT, plain or under WITH, UNION and the like."""

    tree: exp.Query
    sql: str
    key: str | None
    """The text with its values put in; None if the query means something else tomorrow."""


@dataclass(frozen=True)
class Explain:
    query: Query
    json: bool


@dataclass(frozen=True)
class Set:
    name: str
    value: str


@dataclass(frozen=True)
class Show:
    name: str


@dataclass(frozen=True)
class Reset:
    """Back to the default; name None is RESET ALL."""

    name: str | None


@dataclass(frozen=True)
class Transaction:
    """BEGIN, COMMIT or ROLLBACK: accepted, and without effect, since nothing can be undone or written."""

    verb: str


CLOCK_NODES = (
    exp.CurrentDate,
    exp.CurrentTime,
    exp.CurrentTimestamp,
    exp.CurrentDatetime,
    exp.Localtime,
    exp.Localtimestamp,
)

Statement = Query | Explain | Set | Show | Reset | Transaction

WRITES = (
    exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.TruncateTable, exp.Copy,
    exp.Into, exp.Grant, exp.Analyze, exp.Comment, exp.Lock,
)  # fmt: skip


VERBS = (
    "ALTER", "ANALYZE", "ATTACH", "CALL", "CHECKPOINT", "CLOSE", "CLUSTER", "COMMENT", "COPY", "CREATE",
    "DEALLOCATE", "DECLARE", "DELETE", "DESCRIBE", "DETACH", "DISCARD", "DO", "DROP", "EXECUTE", "EXPLAIN",
    "EXPORT", "FETCH", "GRANT", "IMPORT", "INSERT", "INSTALL", "LISTEN", "LOAD", "LOCK", "MERGE", "MOVE",
    "NOTIFY", "PIVOT", "PRAGMA", "PREPARE", "REASSIGN", "REFRESH", "REINDEX", "RELEASE", "REPLACE", "REVOKE",
    "SAVEPOINT", "SECURITY", "SUMMARIZE", "TRUNCATE", "UNLISTEN", "UNPIVOT", "UPDATE", "USE", "VACUUM",
)  # fmt: skip
"""First words of what PostgreSQL or DuckDB would do, and the gate never does."""


def read(sql: str, parameters: Parameters = None) -> Statement:
    """Return the one statement of `sql`, with every placeholder replaced by its value."""
    found = read_all(sql, parameters)
    if not found:
        raise SyntaxRefusal("there is no statement", hint="for example: SELECT count(*) FROM …")
    if len(found) > 1:
        raise SyntaxRefusal(
            f"one statement was expected, got {len(found)}", hint="send the statements one after the other"
        )
    return found[0]


def read_all(sql: str, parameters: Parameters = None) -> list[Statement]:
    """Return the statements of `sql`; parse all of it before anything is run."""
    pieces = list(split(tokens_of(sql)))
    return [_statement(sql, piece, parameters) for piece in pieces]


def tokens_of(sql: str) -> list[Token]:
    """Return the words, numbers and signs of a text; refuse what is no SQL at all, or too long to plan."""
    if not _is_text(sql):
        raise SyntaxRefusal("the statement is not text that can be stored as UTF-8", hint="check its characters")
    try:
        tokens = tokenized(sql, Commands)
    except SqlglotError as error:
        raise SyntaxRefusal("the text can't be read as SQL", hint="check quotes and comments") from error
    _check_numbers(tokens)
    if len(tokens) > MAX_TOKENS:
        raise TooLarge(
            f"the statement has {len(tokens):,} words and signs, the limit is {MAX_TOKENS:,}",
            hint="put long lists of values into ranges, or into a public table",
        )
    return tokens


def _check_numbers(tokens: Sequence[Token]) -> None:
    """Refuse numbers that nobody means: whoever counts up to one, or reads all its digits, comes to no end."""
    is_parameter = False
    for token in tokens:
        place, after_dollar = (token.start, token.end), is_parameter
        is_parameter = token.token_type == TokenType.PARAMETER
        if after_dollar and token.text[:1].isdigit():
            if not whole(token.text, most=MAX_PARAMETERS):
                raise UnknownParameter(
                    f"there is no parameter ${token.text[:20]}",
                    hint=f"they go from $1 to ${MAX_PARAMETERS}",
                    span=place,
                )
        elif token.token_type == TokenType.NUMBER and len(token.text) > MAX_DIGITS:
            raise TooLarge(
                f"a number has {len(token.text):,} digits, the limit is {MAX_DIGITS:,}",
                hint="write it shorter, as in 1e300",
                span=place,
            )


def tokenized(sql: str, dialect: type[Postgres]) -> list[Token]:
    """Return the tokens of a text with their places in it; SqlglotError if it has none."""
    text, blanks = spaced(sql)
    tokens = dialect().tokenize(text)
    for token in tokens:
        token.start -= bisect.bisect_left(blanks, token.start)
        token.end -= bisect.bisect_left(blanks, token.end)
        # As if all were one line: sqlglot 30.30 miscounts lines and columns behind a $n.
        token.line, token.col = 1, token.end + 1
    return tokens


def parsed(sql: str, dialect: type[Postgres] = Sql) -> list[exp.Expr]:
    """Return the trees of a text, whose places are those in it; SqlglotError if it can't be read."""
    return [tree for tree in dialect().parser().parse(tokenized(sql, dialect), sql) if tree is not None]


_LEXEME = re.compile(
    r"(?<!\w)[eE]'(?:[^'\\]|\\.|'')*+(?:'|\\?\Z)"  # strings with escapes
    r"|'[^']*(?:'|\Z)|\"[^\"]*(?:\"|\Z)|--[^\n]*|/\*.*?(?:\*/|\Z)"  # strings, names, comments
    r"|\$(?P<tag>[^\W\d]\w*|)\$.*?(?:\$(?P=tag)\$|\Z)"  # strings between dollars
    r"|[^\W\d][\w$]*"  # words, in which a dollar is a letter
    r"|(?P<parameter>\$\d+)",
    re.DOTALL,
)
_MISREAD = re.compile(r"[^\s$]++\$")


def spaced(sql: str) -> tuple[str, tuple[int, ...]]:
    """Return the text with a blank after each $n that would not be read as one otherwise, and where the blanks are.

    sqlglot 30.30 takes the `$1,$` of `($1,$2)` for the start of a string between dollars.

    >>> spaced("SELECT $1,$2, '$3,$4'")
    ("SELECT $1 ,$2, '$3,$4'", (9,))
    """
    if not re.search(r"\$\d++[^\s$]++\$", sql):
        return sql, ()
    ends = [match.end() for match in _LEXEME.finditer(sql) if match["parameter"]]
    places = [end for end in ends if _MISREAD.match(sql, end)]
    pieces = [sql[start:end] for start, end in itertools.pairwise([0, *places, len(sql)])]
    return " ".join(pieces), tuple(place + number for number, place in enumerate(places))


def _is_text(text: str) -> bool:
    """Return whether PostgreSQL could hold the text: no NUL, no half of a surrogate pair."""
    return "\0" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


def split(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each statement; empty ones are left out."""
    piece: list[Token] = []
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            if piece:
                yield piece
            piece = []
        else:
            piece.append(token)
    if piece:
        yield piece


def _statement(sql: str, tokens: list[Token], parameters: Parameters) -> Statement:
    first = tokens[0].text.upper()
    if first == "EXPLAIN":
        return _explain(sql, tokens[1:], parameters)
    if first == "SHOW":
        return Show(_words(tokens[1:]).lower())
    if first == "RESET":
        name = _words(tokens[1:]).lower()
        return Reset(None if name == "all" else name)
    if first == "SET":
        return _set(tokens[1:])
    if first in ("BEGIN", "START", "COMMIT", "END", "ROLLBACK", "ABORT"):
        return Transaction({"START": "BEGIN", "END": "COMMIT", "ABORT": "ROLLBACK"}.get(first, first))
    return _query(sql, tokens, parameters)


def _words(tokens: list[Token]) -> str:
    text = "".join(token.text for token in tokens)
    if not text:
        raise SyntaxRefusal("a setting is missing", hint="for example: SHOW noisegate.error")
    return text


def _set(tokens: list[Token]) -> Set:
    """Read [SESSION | LOCAL] name { = | TO } value."""
    if tokens and tokens[0].text.upper() in ("SESSION", "LOCAL"):
        tokens = tokens[1:]
    marks = [i for i, token in enumerate(tokens) if token.text.upper() in ("=", "TO")]
    if not marks or not tokens[: marks[0]] or not tokens[marks[0] + 1 :]:
        raise SyntaxRefusal("SET needs a name and a value", hint="for example: SET noisegate.error = 25")
    return Set(_words(tokens[: marks[0]]).lower(), _words(tokens[marks[0] + 1 :]))


QUERY_STARTS = ("SELECT", "WITH", "VALUES", "TABLE", "FROM", "(")


def _explain(sql: str, tokens: list[Token], parameters: Parameters) -> Explain:
    options: list[str] = []
    if len(tokens) > 1 and tokens[0].token_type == TokenType.L_PAREN and tokens[1].text.upper() not in QUERY_STARTS:
        end = next((i for i, t in enumerate(tokens) if t.token_type == TokenType.R_PAREN), len(tokens) - 1)
        options, tokens = [token.text.upper() for token in tokens[1:end]], tokens[end + 1 :]
    while tokens and tokens[0].text.upper() in ("ANALYZE", "VERBOSE"):
        options.append(tokens.pop(0).text.upper())
    if "ANALYZE" in options:
        raise Unsupported(
            "EXPLAIN ANALYZE would run the query and spend budget", hint="use EXPLAIN, which spends nothing"
        )
    if not tokens:
        raise SyntaxRefusal("EXPLAIN needs a query", hint="for example: EXPLAIN SELECT count(*) FROM …")
    if "FORMAT" in options and not {"TEXT", "JSON"} & set(options):
        raise BadValue("EXPLAIN knows the formats TEXT and JSON", hint="for example: EXPLAIN (FORMAT JSON) SELECT …")
    return Explain(_query(sql, tokens, parameters), json="JSON" in options)


def _query(sql: str, tokens: list[Token], parameters: Parameters) -> Query:
    """Read a query; nothing but a query is ever parsed further than its first word."""
    first = tokens[0].text.upper()
    if first in VERBS:
        raise Forbidden(
            f"{first} is not allowed: the gate only reads",
            hint="the gate answers SELECT, EXPLAIN, SET and SHOW",
            span=(tokens[0].start, tokens[0].end),
        )
    if first not in QUERY_STARTS:
        word = sql[tokens[0].start : tokens[0].end + 1]
        raise SyntaxRefusal(
            f"syntax error at or near {word!r}",
            hint="write it as PostgreSQL would read it",
            span=(tokens[0].start, tokens[0].end),
        )
    try:
        return _parsed_query(sql, tokens, parameters)
    except RecursionError:
        raise TooLarge("the statement is nested too deeply", hint="use fewer levels of nesting") from None


def _parsed_query(sql: str, tokens: list[Token], parameters: Parameters) -> Query:
    # What stands before the statement becomes blanks, so that places in the tree are places in the text.
    text = " " * tokens[0].start + sql[tokens[0].start : tokens[-1].end + 1]
    tree = _parse(text)
    for node in tree.find_all(*WRITES):
        raise Forbidden(
            "the gate only reads: nothing can be written, locked or copied",
            hint="ask with SELECT",
            span=span(node),
        )
    if isinstance(tree, exp.Values):
        tree = exp.select("*").from_(exp.alias_(tree, "values", table=True))
    if not isinstance(tree, exp.Query) or isinstance(tree, exp.Table):
        raise Forbidden("only queries are answered", hint="the gate answers SELECT, EXPLAIN, SET and SHOW")
    _note_names(tree, text)
    bound = _bound(tree, parameters)
    return Query(bound, text.strip(), None if _tells_time(bound) else f"{text.strip()}\0{bound.sql(DIALECT)}")


def _note_names(tree: exp.Query, text: str) -> None:
    """Note the name under which each function was called: sqlglot has one node for several names."""
    for node in tree.find_all(exp.Func):
        if "start" in node.meta and not isinstance(node, exp.Anonymous):
            node.meta["name"] = text[node.meta["start"] : node.meta["end"] + 1].lower()


def _tells_time(tree: exp.Query) -> bool:
    return any(function_name(node) in CLOCKS or isinstance(node, CLOCK_NODES) for node in tree.find_all(exp.Func))


def _parse(text: str) -> exp.Expr:
    try:
        found = parsed(text)
    except SqlglotError as error:
        raise _syntax(error) from None
    if len(found) != 1:
        raise SyntaxRefusal("syntax error", hint="write it as PostgreSQL would read it")
    return found[0]


def _syntax(error: SqlglotError) -> SyntaxRefusal:
    details = (getattr(error, "errors", None) or [{}])[0]
    word, hint = details.get("highlight"), "write it as PostgreSQL would read it"
    if not word:
        return SyntaxRefusal("syntax error", hint=hint)
    end = details["col"] - 1
    return SyntaxRefusal(f"syntax error at or near {word!r}", hint=hint, span=(end - len(word) + 1, end))


def _bound(tree: exp.Query, parameters: Parameters) -> exp.Query:
    """Return the tree with placeholders replaced by literals: values, never text."""
    named = parameters if isinstance(parameters, Mapping) else {}
    rest = [] if parameters is None or isinstance(parameters, Mapping) else list(parameters)
    given, used = len(rest), set[int]()
    position = 0
    for node in list(tree.find_all(exp.Placeholder, exp.Parameter, bfs=False)):
        if isinstance(node, exp.Parameter):
            number = whole(node.name, most=MAX_PARAMETERS)
            key: int | str = node.name if number is None else number - 1
        elif node.this:
            key = node.name
        else:
            key, position = position, position + 1
        if isinstance(key, int):
            used.add(key)
        found = (rest[key] if 0 <= key < given else _MISSING) if isinstance(key, int) else named.get(key, _MISSING)
        if found is _MISSING:
            raise BadValue(
                f"no value was given for parameter {_called(key)}",
                hint="pass as many values as the statement has placeholders",
                span=span(node),
            )
        node.replace(_array(found) if _is_any(node) else _literal(found))
    if len(used) < given:
        raise BadValue(
            f"{given} values were given for {len(used)} parameters",
            hint="pass as many values as the statement has placeholders",
        )
    return tree


_MISSING = object()


def _is_any(node: exp.Expr) -> bool:
    """Return whether a placeholder is the array of `= ANY ($1)`."""
    above = node.parent.parent if isinstance(node.parent, exp.Paren) else node.parent
    return isinstance(above, exp.Any)


def _array(value: Any) -> exp.Expr:
    if isinstance(value, list | tuple):
        return exp.Array(expressions=[_literal(item) for item in value])
    return _literal(value)


def _called(key: int | str) -> str:
    return f"{key + 1}" if isinstance(key, int) else key


def _literal(value: Any) -> exp.Expr:
    """Return a value as a tree; a negative number in parentheses, so that no operator binds into it."""
    if hasattr(value, "item") and not isinstance(value, bytes):  # numpy scalars
        value = value.item()
    if isinstance(value, str) and not _is_text(value):
        raise BadValue("a parameter is not text that can be stored as UTF-8", hint="check its characters")
    if isinstance(value, float):
        return exp.cast(exp.Literal.string(repr(value)), "double")
    if isinstance(value, bool | int | str | Decimal | dt.datetime | dt.date | None):
        node = exp.convert(value)
        return exp.Paren(this=node) if isinstance(node, exp.Neg) else node
    if isinstance(value, list | tuple):
        return exp.Tuple(expressions=[_literal(item) for item in value])
    raise BadValue(f"a parameter of type {type(value).__name__} can't be used", hint="use numbers, text, dates or NULL")
