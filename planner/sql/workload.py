"""From aggregates to linear functionals of the data: one row of W for each thing that has to be counted or summed.

A record adds (1, u, u^2) for each measured column to its cell, u being the index of its value on the public
grid. Every functional is a combination of these features with coefficients that depend on the cell only, so
COUNT, SUM, AVG and VARIANCE are all linear on the same integer data vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp

from planner.basics.errors import TooLarge, Unsupported, WrongType
from planner.basics.limits import LARGEST_VALUE, MAX_SUM_BITS, SMALLEST_VALUE
from planner.cells.workload import Functional, Piece, Recipe, Workload
from planner.cells.workspace import Floats
from planner.duck.grid import grid_value
from planner.duck.quoting import quoted
from planner.duck.workbench import Workbench
from planner.policy.domain import Domain
from planner.policy.table import Table
from planner.sql.placement import Placer
from planner.sql.query import BASE, Aggregate

MAX_BRANCHES = 64
"""A CASE of more branches is evaluated on every cell instead of branch by branch."""


def workload(aggregates: Sequence[tuple[int, Aggregate]], placer: Placer) -> Workload:
    """Return the functionals of the given (number, aggregate) pairs."""
    return _Builder(placer).build(aggregates)


@dataclass(frozen=True)
class _Term:
    """An aggregate's argument taken apart: pieces that are affine in a column, or one weight for each cell."""

    pieces: tuple[Piece, ...] | None
    weight: exp.Expr | None


@dataclass(frozen=True, eq=False)
class _Placed:
    """A part of an argument at every place: a record there adds low + slope * u, zero where it is absent."""

    column: str | None
    present: NDArray[np.bool_]
    low: Floats
    slope: Floats

    def minus(self, centre: float) -> _Placed:
        return _Placed(self.column, self.present, self.low - centre * self.present, self.slope)


class _Builder:
    def __init__(self, placer: Placer) -> None:
        self.placer, self.bench = placer, placer.bench
        self.table: Table = placer.measured.table
        self.slots: dict[str, exp.Expr] = {}

    def build(self, aggregates: Sequence[tuple[int, Aggregate]]) -> Workload:
        terms = [self._term(aggregate) for _, aggregate in aggregates]
        wanted: dict[str, int] = {}
        for (_, aggregate), term in zip(aggregates, terms, strict=True):
            self._ask(aggregate, term)
            power = aggregate.traits.powers or 0
            for piece in term.pieces or ():
                if piece.column is not None:
                    wanted[piece.column] = max(power, wanted.get(piece.column, 0))
        for column, power in wanted.items():
            if self._domain(column).size.bit_length() * power > MAX_SUM_BITS:
                raise TooLarge(
                    f"column {column} has too many values to sum its {'squares' if power == 2 else 'values'} exactly",
                    hint="a coarser step in the policy makes it smaller",
                )
        self.features = tuple((column, p) for column, top in sorted(wanted.items()) for p in range(1, top + 1))
        self.placement = self.placer.place(list(self.slots.values()))
        self.order = {text: i for i, text in enumerate(self.slots)}
        self.low, self.high = self.placement.workspace.ranges(self.features, self.placement.cell)
        functionals: list[Functional] = []
        recipes = [
            self._recipe(number, aggregate, term, functionals)
            for (number, aggregate), term in zip(aggregates, terms, strict=True)
        ]
        return Workload(
            placement=self.placement,
            features=self.features,
            functionals=tuple(functionals),
            recipes=tuple(recipes),
            low=self.low,
            high=self.high,
        )

    # Arguments.

    def _term(self, aggregate: Aggregate) -> _Term:
        if not aggregate.traits.powers:
            return _Term(None, None)
        argument = aggregate.argument
        assert argument is not None
        if not (argument.is_type(*exp.DataType.NUMERIC_TYPES) or argument.is_type("unknown") or argument.type is None):
            raise WrongType(
                f"{aggregate.kind} needs a number",
                hint="cast it, or use CASE to make it one",
                span=aggregate.span,
            )
        pieces = self._pieces(argument)
        if pieces is not None and any(piece.column for piece in pieces):
            return _Term(tuple(pieces), None)
        return _Term(None, exp.cast(exp.Paren(this=argument.copy()), exp.DataType.Type.DOUBLE))

    def _pieces(self, argument: exp.Expr) -> list[Piece] | None:
        """Return the argument as a CASE of affine functions of one column each, or None if it is not one."""
        bare = argument.unnest()
        if not isinstance(bare, exp.Case):
            piece = self._affine(bare, None)
            return None if piece is None else [piece]
        values = [branch.args["true"] for branch in bare.args["ifs"]] + [bare.args.get("default") or exp.null()]
        if len(values) > MAX_BRANCHES or not any(value.find(exp.Column) for value in values):
            return None
        whens = [self._when(bare, branch) for branch in bare.args["ifs"]]
        choice = exp.Case(
            ifs=[exp.If(this=when, true=exp.Literal.number(i)) for i, when in enumerate(whens)],
            default=exp.Literal.number(len(whens)),
        )
        pieces = []
        for i, value in enumerate(values):
            taken = exp.EQ(this=exp.Paren(this=choice.copy()), expression=exp.Literal.number(i))
            if isinstance(value.unnest(), exp.Null):
                continue
            piece = self._affine(value.unnest(), taken)
            if piece is None:
                return None
            pieces.append(piece)
        return pieces

    def _when(self, case: exp.Case, branch: exp.If) -> exp.Expr:
        if case.this is None:
            return branch.this.copy()  # type: ignore[no-any-return]
        return exp.EQ(this=exp.Paren(this=case.this.copy()), expression=exp.Paren(this=branch.this.copy()))

    def _affine(self, node: exp.Expr, condition: exp.Expr | None) -> Piece | None:
        if _degree(node, self.table) is None:
            return None
        name = next((column.name for column in node.find_all(exp.Column)), None)
        domain = self.table.columns[name].domain if name is not None else None
        ends = _at_ends(node, name, domain, self.bench)
        if ends is None:
            return None
        if name is not None and domain is not None and domain.nullable:
            present = exp.Not(this=exp.Is(this=exp.column(name, table=BASE, quoted=True), expression=exp.null()))
            condition = present if condition is None else exp.And(this=condition, expression=present)
        if name is None or domain is None or domain.size == 1:
            return Piece(condition, None, ends[0], 0.0)
        return Piece(condition, name, ends[0], (ends[1] - ends[0]) / (domain.size - 1))

    # Slots: the expressions whose value has to be known at every place.

    def _ask(self, aggregate: Aggregate, term: _Term) -> None:
        for node in (
            aggregate.condition,
            self._present(aggregate),
            term.weight,
            *(p.condition for p in term.pieces or ()),
        ):
            if node is not None:
                self.slots.setdefault(node.sql("duckdb"), node)

    def _present(self, aggregate: Aggregate) -> exp.Expr | None:
        if aggregate.traits.powers or aggregate.argument is None:
            return None
        return exp.Not(this=exp.Is(this=exp.Paren(this=aggregate.argument.copy()), expression=exp.null()))

    def _value(self, node: exp.Expr) -> NDArray[Any]:
        return self.placement.values[self.order[node.sql("duckdb")]]

    def _holds(self, node: exp.Expr | None) -> NDArray[np.bool_]:
        if node is None:
            return np.ones(len(self.placement.cell), dtype=bool)
        return np.ma.filled(np.ma.asarray(self._value(node)), False).astype(bool)

    def _domain(self, column: str) -> Domain:
        domain = self.table.columns[column].domain
        assert domain is not None
        return domain

    # Functionals.

    def _recipe(self, number: int, aggregate: Aggregate, term: _Term, functionals: list[Functional]) -> Recipe:
        holds = self._holds(aggregate.condition) & self._holds(self._present(aggregate))
        if not aggregate.traits.powers:
            return Recipe(number, (self._add(functionals, "count", self._count(holds)),))
        parts = self._placed(aggregate, term, holds)
        if aggregate.traits.is_total:
            return Recipe(number, (self._add(functionals, "sum", self._sum(parts)),))
        least, most = self._range(parts)
        inside = np.isfinite(least)
        centre = float(least[inside].min() + most[inside].max()) / 2 if inside.any() else 0.0
        present = np.any([part.present for part in parts], axis=0)
        centred = [part.minus(centre) for part in parts]
        numbers = [
            self._add(functionals, "count", self._count(present)),
            self._add(functionals, "centred", self._sum(centred)),
        ]
        if aggregate.traits.powers == 2:
            numbers.append(self._add(functionals, "square", self._square(centred)))
        return Recipe(number, tuple(numbers), centre, tuple(self._bounds(least, most)))

    def _placed(self, aggregate: Aggregate, term: _Term, holds: NDArray[np.bool_]) -> list[_Placed]:
        if term.weight is None:
            conditions = [(piece, holds & self._holds(piece.condition)) for piece in term.pieces or ()]
            return [
                _Placed(p.column, here, np.where(here, p.low, 0.0), np.where(here, p.slope, 0.0))
                for p, here in conditions
            ]
        weight = np.ma.asarray(self._value(term.weight)).astype(float)
        here = holds & ~np.ma.getmaskarray(weight)
        values = np.where(here, np.ma.filled(weight, 0.0), 0.0)
        if not np.isfinite(values).all():
            raise Unsupported(
                "the expression is not bounded on the public domain",
                hint="clip it with LEAST and GREATEST",
                span=aggregate.span,
            )
        return [_Placed(None, here, values, np.zeros(len(values)))]

    def _feature(self, column: str, power: int) -> int:
        return 1 + self.features.index((column, power))

    def _zeros(self) -> Floats:
        return np.zeros((len(self.placement.cell), 1 + len(self.features)))

    def _count(self, present: NDArray[np.bool_]) -> Floats:
        coefficients = self._zeros()
        coefficients[:, 0] = present
        return coefficients

    def _sum(self, parts: Sequence[_Placed]) -> Floats:
        coefficients = self._zeros()
        for part in parts:
            coefficients[:, 0] += part.low
            if part.column is not None:
                coefficients[:, self._feature(part.column, 1)] += part.slope
        return coefficients

    def _square(self, parts: Sequence[_Placed]) -> Floats:
        """(low + slope u)^2 = low^2 + 2 low slope u + slope^2 u^2; at each place one part is present."""
        coefficients = self._zeros()
        for part in parts:
            coefficients[:, 0] += part.low**2
            if part.column is not None:
                coefficients[:, self._feature(part.column, 1)] += 2 * part.low * part.slope
                coefficients[:, self._feature(part.column, 2)] += part.slope**2
        return coefficients

    def _range(self, parts: Sequence[_Placed]) -> tuple[Floats, Floats]:
        """Return the least and the most that the argument can be at every place; inf, -inf where it is absent."""
        least, most = np.full(len(self.placement.cell), np.inf), np.full(len(self.placement.cell), -np.inf)
        for part in parts:
            for bounds in (self.low, self.high):
                u = bounds[:, self._feature(part.column, 1) - 1] if part.column is not None else 0
                end = part.low + part.slope * u
                least = np.where(part.present, np.minimum(least, end), least)
                most = np.where(part.present, np.maximum(most, end), most)
        return least, most

    def _bounds(self, least: Floats, most: Floats) -> Iterator[tuple[Floats, Floats]]:
        """Yield for each grouping set what the argument is between in every group."""
        for group, groups in zip(self.placement.groups, self.placement.group_counts, strict=True):
            bottom, top = np.full(groups, np.inf), np.full(groups, -np.inf)
            np.minimum.at(bottom, group, least)
            np.maximum.at(top, group, most)
            yield bottom, top

    @staticmethod
    def _add(functionals: list[Functional], role: str, coefficients: Floats) -> int:
        for i, known in enumerate(functionals):
            if known.role == role and np.array_equal(known.coefficients, coefficients):
                return i
        size = np.abs(coefficients[coefficients != 0])
        if len(size) and not (size.min() > SMALLEST_VALUE and size.max() < LARGEST_VALUE):
            raise Unsupported("the expression is too large or too small to be summed", hint="scale it by a constant")
        functionals.append(Functional(role, coefficients))
        return len(functionals) - 1


def _degree(node: exp.Expr, table: Table) -> int | None:
    """Return 0 or 1 if `node` is surely affine in one numeric grid column, None if that can't be seen."""
    names = {column.name for column in node.find_all(exp.Column)}
    if len(names) > 1 or any(column.table != BASE for column in node.find_all(exp.Column)):
        return None
    degree = _polynomial_degree(node, table)
    return degree if degree is not None and degree <= 1 else None


def _polynomial_degree(node: exp.Expr, table: Table) -> int | None:
    def degree(part: exp.Expr) -> int | None:
        return _polynomial_degree(part, table)

    match node:
        case exp.Column():
            domain = table.columns[node.name].domain
            return 1 if domain is not None and domain.numeric and domain.ordered else None
        case exp.Literal():
            return None if node.is_string else 0
        case exp.Paren() | exp.Neg():
            return degree(node.this)
        case exp.Cast():
            floating = node.to.is_type("double", "float")
            widening = node.to.is_type("bigint", "decimal") and node.this.is_type(*exp.DataType.INTEGER_TYPES)
            return degree(node.this) if floating or widening else None
        case exp.Add() | exp.Sub() | exp.Mul():
            left, right = degree(node.left), degree(node.right)
            if left is None or right is None:
                return None
            return left + right if isinstance(node, exp.Mul) else max(left, right)
        case exp.Div():
            return degree(node.left) if degree(node.right) == 0 else None
    return None


def _at_ends(node: exp.Expr, name: str | None, domain: Domain | None, bench: Workbench) -> tuple[float, float] | None:
    """Return an affine expression at the two ends of its column's grid, evaluated by DuckDB."""
    text = exp.cast(exp.Paren(this=node.copy()), exp.DataType.Type.DOUBLE).sql("duckdb")
    source = ""
    if name is not None and domain is not None:
        value = f"SELECT i, {grid_value(domain)} AS {quoted(name)} FROM (VALUES (0), ({domain.size - 1})) AS r(i)"
        source = f" FROM ({value}) AS {quoted(BASE)} ORDER BY i"
    rows = bench.rows(f"SELECT {text}{source}")
    ends = [row[0] for row in rows] * (1 if name is not None else 2)
    if any(end is None or not np.isfinite(end) for end in ends):
        return None
    return ends[0], ends[-1]
