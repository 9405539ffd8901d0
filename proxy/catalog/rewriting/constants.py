"""Rows that need no engine: SELECT with nothing but literals and parameters, read as PostgreSQL reads them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

from planner.basics.nodes import span
from proxy.catalog import kinds
from proxy.catalog.errors import InvalidText
from proxy.catalog.rewriting.infer import Inference, number_of
from proxy.wire import values

Cell = Callable[[Sequence[object]], object]
"""Takes the parameters and returns the value of a column."""

CLAUSES = ("from_", "where", "group", "having", "distinct", "order", "limit", "offset", "joins", "with_", "windows")


@dataclass(frozen=True)
class Constants:
    """One row: a function of the parameters for each column, and how long to wait before it is given."""

    cells: tuple[Cell, ...]
    pauses: tuple[Cell, ...] = ()

    def row(self, parameters: Sequence[object]) -> tuple[object, ...]:
        return tuple(cell(parameters) for cell in self.cells)

    def sleep(self, parameters: Sequence[object]) -> float | None:
        """Return the seconds of pg_sleep, or None if there is none."""
        return sum(float(str(pause(parameters) or 0)) for pause in self.pauses) if self.pauses else None


def constants(tree: exp.Query, inference: Inference) -> Constants | None:
    """Return the row of a SELECT if it is made of literals and parameters only."""
    if not isinstance(tree, exp.Select) or any(tree.args.get(clause) for clause in CLAUSES):
        return None
    cells, pauses = [], []
    for item in tree.expressions:
        node = item.this if isinstance(item, exp.Alias) else item
        call = node.expression if isinstance(node, exp.Dot) else node
        if isinstance(call, exp.Anonymous) and call.name.lower() == "pg_sleep" and len(call.expressions) == 1:
            pause = _cell(call.expressions[0], inference)
            if pause is None:
                return None
            pauses.append(pause)
            cells.append(_always(""))
            continue
        cell = _cell(node, inference)
        if cell is None:
            return None
        cells.append(cell)
    return Constants(tuple(cells), tuple(pauses)) if cells else None


def _always(value: object) -> Cell:
    return lambda _: value


def _cell(node: exp.Expr, inference: Inference) -> Cell | None:
    match node:
        case exp.Parameter() if number_of(node):
            index = number_of(node) - 1
            return lambda parameters: parameters[index]
        case exp.Null():
            return _always(None)
        case exp.Boolean():
            return _always(bool(node.this))
        case exp.Literal():
            return _always(node.name if node.is_string else _number(node.name))
        case exp.RawString():
            return _always(node.name)
        case exp.Cast():
            return _cast(node, inference)
        case _:
            return None


def _number(digits: str) -> int | Decimal:
    return int(digits) if digits.isdigit() else Decimal(digits)


def _is_within(kind: str | None, other: str) -> bool:
    """Return whether every value of a kind is one of another kind as it stands."""
    if kind == other:
        return True
    if kinds.is_array(kind) and kinds.is_array(other):
        return _is_within(kinds.element(str(kind)), kinds.element(other))
    return kind in kinds.INTEGERS and other in kinds.INTEGERS[kinds.INTEGERS.index(kind) :]


def _cast(node: exp.Cast, inference: Inference) -> Cell | None:
    """Return a literal as its type's own reader reads it, or a parameter that has the type already."""
    kind, inner = kinds.of_type(node.to), node.this
    if kinds.typmod_of(node.to) != -1 or kind in kinds.REGISTERED or not kinds.is_known(kind):
        return None
    if isinstance(inner, exp.Null):
        return _always(None)
    if isinstance(inner, exp.Parameter) and _is_within(inference.kind(inner), kind):
        return _cell(inner, inference)
    if not inner.is_string or kind in ("json", "jsonb"):  # DuckDB checks JSON
        return None
    try:
        return _always(values.decoder(kinds.oid_of(kind), values.Format.TEXT)(inner.name.encode()))
    except (ValueError, ArithmeticError):
        raise InvalidText(
            f'invalid input syntax for type {kind}: "{inner.name}"', hint="check the value", span=span(node)
        ) from None
