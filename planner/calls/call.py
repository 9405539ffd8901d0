"""Functions of the schema noisegate in FROM: their arguments, the relation of their result, and what they may charge.

A call is taken out of the tree before the rest is compiled; in its place stands a table with the columns that the
function gives. A function is planned from public things, so that EXPLAIN can tell its price, and run only when the
statement is executed. Describe does neither.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any, Protocol

from sqlglot import exp

from planner.basics.cache import array_bytes
from planner.basics.errors import BadValue, Span, SyntaxRefusal, UnknownFunction, Unsupported, WrongType
from planner.basics.nodes import span
from planner.duck.relations import SCHEMA, OutputColumn, create
from planner.duck.sandbox import Sandbox
from planner.duck.workbench import Workbench
from planner.ledger.accounts import Caps, Charge, Release
from planner.ledger.stores import Connection
from planner.plans.moment import Moment
from planner.plans.plan import Planner
from planner.plans.prepared import Prepared
from planner.plans.settings import Settings
from planner.plans.task import Payable
from planner.policy.file import Policy
from planner.sql import statement
from planner.sql.query import Catalog, Compiled

READY = 1_000_000
"""About how many bytes a small prepared query takes, with its connection to the sandbox."""

RESULT = "__call"
"""Name of the table that stands for the result of a call, in the schema noisegate."""

Row = tuple[Any, ...]
Step = Callable[[str], None]


@dataclass(frozen=True)
class Parameter:
    """One argument of a function, of one of the KINDS; left out, it is None unless it is required."""

    name: str
    kind: str
    required: bool = False


@dataclass(frozen=True)
class Constant:
    """An argument as it was written: text, a number, None, or a tuple of constants; and where it stands."""

    value: Any
    span: Span | None = None
    opening: int | None = None
    """How many characters its opening quote has, if what follows is the text letter by letter."""

    def place(self, inner: Span | None) -> Span | None:
        """Return where a piece of this text stands in the statement; all of the text if that can't be told."""
        if inner is None or self.span is None or self.opening is None:
            return self.span
        start = self.span[0] + self.opening
        return start + inner[0], start + inner[1]


Arguments = Mapping[str, Constant]
"""The argument for each parameter of a function; Constant(None) where it was left out."""


@dataclass(frozen=True)
class CallResult:
    """What a call gives back, and the rho that it was charged on the dearest cell."""

    rows: Sequence[Row]
    cost: Fraction


@dataclass(frozen=True, eq=False, kw_only=True)
class PlannedCall:
    """What a call would do, decided from public things.

    `alternatives` are the charges that it may make: one of them, whichever the releases decide.
    `run` alone reads protected data and charges; it is given the statement's text and is told of each step.
    """

    alternatives: Sequence[Sequence[Charge]]
    populations: Sequence[str]
    path: str
    lines: tuple[str, ...]
    releases: tuple[int, ...]
    run: Callable[[str, Step], CallResult]
    keeps: bool = False  # whether it stores something for whoever calls it: then the same call is never answered for it
    details: Mapping[str, Any] = field(default_factory=dict)  # what EXPLAIN (FORMAT JSON) tells besides


@dataclass(frozen=True)
class Function:
    """A function of the schema noisegate: parameters, the columns of its result, and how a call is planned."""

    name: str
    parameters: tuple[Parameter, ...]
    columns: Mapping[str, str] | Callable[[Preparing, Arguments], Mapping[str, str]]
    plan: Callable[[Caller, Arguments], PlannedCall]

    @property
    def hint(self) -> str:
        shown = (p.name if p.required and i == 0 else f"{p.name} => …" for i, p in enumerate(self.parameters))
        return f"for example: SELECT * FROM {SCHEMA}.{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class Call:
    """A function with its arguments, read from a statement."""

    function: Function
    arguments: Arguments
    span: Span | None
    columns: Mapping[str, str] = field(default_factory=dict)  # of its result, once it is typed

    def typed(self, gate: Preparing) -> Call:
        """Return the call with the columns of its result."""
        found = self.function.columns
        return replace(self, columns=found(gate, self.arguments) if callable(found) else found)

    def catalog(self, catalog: Catalog) -> Catalog:
        """Return the catalog with the table of the result."""
        return replace(catalog, types={**catalog.types, f"{SCHEMA}.{RESULT}": self.columns})

    def check(self, compiled: Compiled) -> None:
        """Refuse a statement that measures protected tables as well: what it costs would depend on what is told."""
        if compiled.measured:
            raise Unsupported(
                f"a query that calls {SCHEMA}.{self.function.name} can't read protected tables as well",
                hint="ask one after the other",
                span=self.span,
            )

    def planned(self, caller: Caller) -> PlannedCall:
        """Return what the call would do; refuse what it can't."""
        return self.function.plan(caller, self.arguments)

    def make(self, name: str, rows: Sequence[Row], bench: Workbench) -> None:
        """Create the relation of the result in a workbench."""
        create(name, rows, self.columns, bench)


@dataclass(frozen=True, eq=False)
class Ready:
    """A query compiled and placed in a workbench of its own; nothing in it depends on settings or history."""

    compiled: Compiled
    parts: tuple[Prepared, ...]
    bench: Workbench
    call: Call | None = None
    columns: dict[str, tuple[OutputColumn, ...]] = field(default_factory=dict)
    """Those of the answer, once they were worked out, by the types of what is measured."""

    @property
    def reads_ledger(self) -> bool:
        """Return whether the answer has to do with what is in the ledger beside releases, or with a call."""
        return any(table.db == SCHEMA for table in self.compiled.post.find_all(exp.Table))

    @cached_property
    def size(self) -> int:
        """About how many bytes it takes; what is in the sandbox is about as large as what is beside it."""
        return READY + 2 * array_bytes(self.parts)


class Preparing(Protocol):
    """What a function may ask to say which columns its result has: names, and queries made ready."""

    @property
    def policy(self) -> Policy: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def sandbox(self) -> Sandbox: ...
    def prepared(self, query: statement.Query, *, groups: str = ...) -> AbstractContextManager[Ready]: ...


class Caller(Preparing, Protocol):
    """What a function may ask while it is planned and run: of the session that calls it, and of nobody else."""

    @property
    def analyst(self) -> str: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def moment(self) -> Moment:
        """What was true when the statement began."""

    @property
    def planning_round(self) -> threading.Lock:
        """Held while a round is planned: the largest take a core and 1 or 2 GB."""

    def planner(self, settings: Settings) -> Planner: ...
    def caps(self, analyst: str) -> Caps: ...
    def beside(self, *, write: bool) -> AbstractContextManager[Connection]:
        """Return a transaction for what is kept beside the releases."""

    def release(
        self,
        tasks: Sequence[Payable],
        sql: str,
        step: Step,
        *,
        payers: Mapping[str, str] = ...,
        once: Callable[[Connection], None] | None = None,
    ) -> tuple[list[Release], Fraction]:
        """Return what is newly released, durable, and what it cost."""


# --- reading a call ----------------------------------------------------------------------------------------


def extract_call(tree: exp.Query, functions: Mapping[str, Function]) -> tuple[exp.Query, Call | None]:
    """Return the tree with the call in its FROM replaced by a table, and the call; None if there is none.

    SELECT noisegate.name(…), with nothing else, is SELECT * FROM noisegate.name(…).
    """
    tree = _in_from(tree)
    for dot in tree.find_all(exp.Dot):
        if isinstance(dot.expression, exp.Func) and dot.this.name.lower() == SCHEMA:
            name = _name(dot.expression)
            raise Unsupported(
                f"{SCHEMA}.{name} gives rows: it stands in FROM",
                hint=f"for example: SELECT * FROM {SCHEMA}.{name}(…)",
                span=span(dot),
            )
    if not any(True for _ in _calls(tree)):
        return tree, None
    tree = tree.copy()
    first, *more = _calls(tree)
    if more:
        raise Unsupported(
            f"one function of {SCHEMA} can be called in a statement", hint="ask one after the other", span=span(more[0])
        )
    if first.args.get("ordinality"):
        raise Unsupported("WITH ORDINALITY can't be answered", hint="use row_number()", span=span(first))
    call = _call(first, functions)
    alias = first.args.get("alias")
    if alias is None or not alias.this:
        columns = alias.args.get("columns") if alias is not None else None
        first.set("alias", exp.TableAlias(this=exp.to_identifier(call.function.name), columns=columns))
    first.set("this", exp.to_identifier(RESULT))
    return tree, call


def _in_from(tree: exp.Query) -> exp.Query:
    """Return a SELECT of nothing but a call with the call in its FROM; any other tree as it is."""
    others = {name for name, value in tree.args.items() if value} - {"kind", "expressions"}
    if not isinstance(tree, exp.Select) or others or len(tree.selects) != 1:
        return tree
    (only,) = tree.selects
    dot = only.unalias()
    if not (isinstance(dot, exp.Dot) and isinstance(dot.expression, exp.Func) and dot.this.name.lower() == SCHEMA):
        return tree
    table = exp.Table(this=dot.expression.copy(), db=exp.to_identifier(SCHEMA))
    table.meta.update(dot.this.meta)
    if only is not dot:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(only.alias)))
    return exp.select("*").from_(table)


def _calls(tree: exp.Query) -> Iterator[exp.Table]:
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Func) and table.db.lower() == SCHEMA and not table.catalog:
            yield table


def _name(node: exp.Func) -> str:
    name = node.this if isinstance(node, exp.Anonymous) else node.sql_name()
    return name.name if isinstance(name, exp.Identifier) else str(name).lower()


def _call(table: exp.Table, functions: Mapping[str, Function]) -> Call:
    node = table.this
    function = functions.get(_name(node))
    if function is None:
        known = ", ".join(f"{SCHEMA}.{name}" for name in sorted(functions))
        raise UnknownFunction(
            f"there is no function {SCHEMA}.{_name(node)}", hint=f"there are: {known}", span=span(table)
        )
    given = _given(function, node.expressions)
    arguments = {p.name: _checked(function, p, given.get(p.name), span(table)) for p in function.parameters}
    return Call(function, arguments, span(table))


def _given(function: Function, nodes: Sequence[exp.Expr]) -> dict[str, exp.Expr]:
    """Return the argument for each name: first those without a name, in order, then `name => value`."""
    found: dict[str, exp.Expr] = {}
    names = [parameter.name for parameter in function.parameters]
    named = False
    for position, node in enumerate(nodes):
        if isinstance(node, exp.Kwarg | exp.PropertyEQ):
            name, value, named = node.this.name.lower(), node.expression, True
        elif named:
            raise SyntaxRefusal(
                "an argument without a name follows one with a name", hint=function.hint, span=span(node)
            )
        else:
            name, value = names[position] if position < len(names) else "", node
        if name not in names:
            what = f"no argument {name}" if name else f"only {len(names)} arguments"
            raise UnknownFunction(
                f"{SCHEMA}.{function.name} has {what}", hint=f"it takes: {', '.join(names)}", span=span(node)
            )
        if name in found:
            raise SyntaxRefusal(f"argument {name} is given twice", hint=function.hint, span=span(node))
        found[name] = value
    return found


def _checked(function: Function, parameter: Parameter, node: exp.Expr | None, place: Span | None) -> Constant:
    """Return the argument as a constant of the parameter's kind."""
    if node is None and parameter.required:
        raise UnknownFunction(
            f"{SCHEMA}.{function.name} needs the argument {parameter.name}", hint=function.hint, span=place
        )
    if node is None:
        return Constant(None)
    found = _constant(node)
    if not _fits(found.value, parameter.kind) and not (found.value is None and not parameter.required):
        raise WrongType(
            f"argument {parameter.name} must be a {KINDS[parameter.kind]}", hint=function.hint, span=found.span
        )
    return found


KINDS = {
    "text": "text",
    "number": "number",
    "boolean": "boolean, true or false",
    "amount": "number, or a text such as '5%'",
    "text[]": "list of texts, ARRAY['…', '…']",
    "number[]": "list of numbers, ARRAY[1, 2]",
}
TYPES: Mapping[str, type | tuple[type, ...]] = {"text": str, "number": float, "boolean": bool, "amount": (float, str)}


def _fits(value: Any, kind: str) -> bool:
    if kind.endswith("[]"):
        return isinstance(value, tuple) and all(_fits(item.value, kind.removesuffix("[]")) for item in value)
    return isinstance(value, TYPES[kind])


def _constant(node: exp.Expr) -> Constant:
    """Return the value of a literal, plain, negative, cast or in a list; refuse anything that must be computed."""
    place = span(node)
    match node:
        case exp.Paren():
            return _constant(node.this)
        case exp.Null():
            return Constant(None, place)
        case exp.Boolean():
            return Constant(bool(node.this), place)
        case exp.Array() | exp.Tuple():
            return Constant(tuple(_constant(item) for item in node.expressions), place)
        case exp.RawString():
            return Constant(node.name, place, _quotes(node.name, place) // 2)
        case exp.Literal() if node.is_string:
            return Constant(node.name, place, 1 if _quotes(node.name, place) == 2 else None)
        case exp.Literal():
            return Constant(float(node.name), place)
        case exp.Neg() if isinstance(inner := _constant(node.this).value, float):
            return Constant(-inner, place)
        case exp.Cast():
            return Constant(_cast(_constant(node.this).value, node.to, place), place)
    raise Unsupported("an argument must be a constant", hint="write its value, or pass it as a parameter", span=place)


def _quotes(value: str, place: Span | None) -> int:
    """Return how many characters more than the text itself were written: quotes, and what had to be doubled."""
    return place[1] - place[0] + 1 - len(value) if place is not None else 0


def _cast(value: Any, to: exp.DataType, place: Span | None) -> Any:
    if not isinstance(value, str) or not to.is_type(*exp.DataType.NUMERIC_TYPES):
        return value
    try:
        return float(value)
    except ValueError:
        raise BadValue("this text is not a number", hint="write it as a number", span=place) from None


def number(arguments: Arguments, name: str, *, low: float, high: float, example: str) -> float | None:
    """Return a number argument; None if it was left out."""
    found = arguments[name]
    if found.value is None or low <= found.value <= high:
        return None if found.value is None else float(found.value)
    raise BadValue(
        f"{name} must be a number from {low:g} to {high:g}, got {found.value:g}",
        hint=f"for example: {name} => {example}",
        span=found.span,
    )


def written(name: str, *positional: object, **named: object) -> str:
    """Return the SELECT that calls a function with Python values; one that is None is left out.

    >>> written("choose", ["SELECT 1", "it's"], snr=20, rule=None)
    "SELECT * FROM noisegate.choose(ARRAY['SELECT 1', 'it''s'], snr => 20.0)"
    """
    shown = [_literal("an argument", value) for value in positional]
    shown += [f"{key} => {_literal(key, value)}" for key, value in named.items() if value is not None]
    return f"SELECT * FROM {SCHEMA}.{name}({', '.join(shown)})"


def _literal(name: str, value: object) -> str:
    """Return the SQL of a value; a text with quotes letter by letter, so that places in it are places in the SQL."""
    match value:
        case str() if "'" in value and "$" not in value:
            return f"$${value}$$"
        case str() | bool():
            return exp.convert(value).sql("postgres")
        case Real() | Decimal() if math.isfinite(value):
            return repr(float(value))
        case list() | tuple() if all(isinstance(item, str) for item in value):
            return exp.convert(list(value)).sql("postgres")
        case list() | tuple() if all(isinstance(item, Real | Decimal) for item in value):
            return f"ARRAY[{', '.join(_literal(name, item) for item in value)}]"
    raise WrongType(f"{name} can't be {value!r:.60}", hint="use a text, a finite number, or true or false")
