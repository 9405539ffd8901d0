"""The SQL of the ends of an interval around an expression of noisy aggregates.

Where it can be, the interval holds at its rate however small a group is: an aggregate has its own, what only grows or
only falls with it has its ends there, and a ratio of combinations of counts and sums has Fieller's. Everything else has
the delta method's, which is good where errors are small beside the numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from planner.sql.query import Aggregate, Combination

Build = Callable[[exp.Expr], exp.Expr]

STEADY = (exp.Round, exp.Floor, exp.Ceil, exp.Sqrt, exp.Ln, exp.Exp, exp.Cbrt)
"""Functions that never fall while their first argument grows."""


@dataclass
class Intervals:
    """Writes intervals over one noisy relation, and notes what of it they need."""

    relation: str
    aggregates: list[Aggregate]
    pairs: set[tuple[int, int]] = field(default_factory=set)
    ratios: list[tuple[Combination, Combination]] = field(default_factory=list)

    def indices(self, value: exp.Expr) -> list[int]:
        """Return the numbers of the aggregates in an expression."""
        names = {c.name for c in value.find_all(exp.Column) if c.table == self.relation}
        return sorted(int(name[1:]) for name in names if name[0] == "a")

    def end(self, value: exp.Expr, end: str) -> exp.Expr:
        """Return one end of the interval around `value` (low, high), or the deviation of its error (sd)."""
        ends = self._ends(value)
        if end != "sd" and ends is not None:
            return ends[end == "high"]
        if ends is not None:
            column = value.unnest()
            if isinstance(column, exp.Column):
                return self._column(f"sd{self.indices(column)[0]}")
            width = exp.Sub(this=exp.Paren(this=ends[1]), expression=exp.Paren(this=ends[0]))
            twice = exp.Mul(this=exp.Literal.number(2), expression=self._column("z"))
            return exp.Div(this=exp.Paren(this=width), expression=exp.Paren(this=twice))
        deviation = self._deviation(value, self.indices(value))
        if end == "sd":
            return deviation
        operator = exp.Sub if end == "low" else exp.Add
        reach = exp.Mul(this=self._column("z"), expression=deviation)
        return operator(this=_double(_forgiving(value)), expression=reach)

    def _column(self, name: str) -> exp.Column:
        return exp.column(name, table=self.relation)

    # What holds at any size.

    def _ends(self, value: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
        """Return both ends if they hold however small a group is, else None."""
        bare = value.unnest()
        if isinstance(bare, exp.Column):
            index = self.indices(bare)
            return (self._column(f"low{index[0]}"), self._column(f"high{index[0]}")) if index else None
        if isinstance(bare, exp.Div | exp.IntDiv):
            ratio = self._ratio(bare)
            if ratio is not None:
                return ratio
        found = self._inner(bare)
        inner = None if found is None else self._ends(found[0])
        if found is None or inner is None:
            return None
        first, second = (found[1](exp.Paren(this=end)) for end in inner)
        return exp.func("least", first, second), exp.func("greatest", first.copy(), second.copy())

    def _inner(self, bare: exp.Expr) -> tuple[exp.Expr, Build] | None:
        """Return the only part with aggregates of an expression that never turns while it grows, and the rest of it."""
        match bare:
            case exp.Neg():
                return bare.this, lambda end: exp.Neg(this=end)
            case exp.Cast():
                return bare.this, lambda end: _as_cast(bare, end)
            case exp.Coalesce() if not self.indices(exp.Tuple(expressions=bare.copy().expressions)):
                return bare.this, lambda end: end
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.IntDiv():
                left, right = (bool(self.indices(side)) for side in (bare.left, bare.right))
                if left and not right:
                    return bare.left, lambda end: _operation(bare, end, bare.right)
                if right and not left and not isinstance(bare, exp.Div | exp.IntDiv):
                    return bare.right, lambda end: _operation(bare, bare.left, end)
        if isinstance(bare, STEADY) and self.indices(bare.this) and len(self._arguments(bare)) == 1:
            return bare.this, lambda end: _with_argument(bare, end)
        return None

    def _arguments(self, call: exp.Expr) -> list[exp.Expr]:
        return [part for part in call.iter_expressions() if self.indices(part)]

    def _ratio(self, bare: exp.Div | exp.IntDiv) -> tuple[exp.Expr, exp.Expr] | None:
        """Return Fieller's ends, which the noisy relation will have."""
        above, below = (self._combination(side) for side in (bare.left, bare.right))
        if not above or not below:
            return None
        if (above, below) not in self.ratios:
            self.ratios.append((above, below))
        k = self.ratios.index((above, below))
        ends = (self._column(f"ratio_low{k}"), self._column(f"ratio_high{k}"))
        if isinstance(bare, exp.IntDiv):
            return exp.func("trunc", ends[0]), exp.func("trunc", ends[1])
        return ends

    def _combination(self, node: exp.Expr) -> dict[int, float] | None:
        """Return an expression as a combination of counts and sums, or None if it is not one."""
        bare = node.unnest()
        match bare:
            case exp.Column():
                index = self.indices(bare)
                linear = index and self.aggregates[index[0]].traits.is_total
                return {index[0]: 1.0} if linear else None
            case exp.Cast() if bare.to.is_type("double", "float", "decimal", "bigint", "int128"):
                return self._combination(bare.this)
            case exp.Nullif() if not self.indices(bare.expression):  # what keeps others from dividing by zero
                return self._combination(bare.this)
            case exp.Neg():
                return _scaled(self._combination(bare.this), -1.0)
            case exp.Add() | exp.Sub():
                left, right = self._combination(bare.left), self._combination(bare.right)
                return _added(left, _scaled(right, -1.0 if isinstance(bare, exp.Sub) else 1.0))
            case exp.Mul():
                factor, other = _number(bare.left), bare.right
                if factor is None:
                    factor, other = _number(bare.right), bare.left
                return None if factor is None else _scaled(self._combination(other), factor)
        return None

    # The delta method.

    def _deviation(self, value: exp.Expr, indices: list[int]) -> exp.Expr:
        """Return sqrt(sum_ij r_ij d_i d_j), d_i = (f(a_i + s_i) - f(a_i - s_i)) / 2: the delta method, in SQL."""
        halves = {
            i: exp.Paren(this=_half_difference(value, self._column(f"a{i}"), self._column(f"sd{i}"))) for i in indices
        }
        terms: list[exp.Expr] = []
        for i, j in itertools.combinations_with_replacement(indices, 2):
            product = exp.Mul(this=halves[i].copy(), expression=halves[j].copy())
            weight: exp.Expr = exp.Literal.number(1)
            if i != j:
                self.pairs.add((i, j))
                weight = exp.Mul(this=exp.Literal.number(2), expression=self._column(f"r{i}_{j}"))
            terms.append(exp.Mul(this=weight, expression=product))
        total = terms[0]
        for term in terms[1:]:
            total = exp.Add(this=total, expression=term)
        return exp.Sqrt(this=exp.Abs(this=total))


def _half_difference(value: exp.Expr, column: exp.Column, deviation: exp.Column) -> exp.Expr:
    def moved(sign: type[exp.Binary]) -> exp.Expr:
        def shift(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and node.name == column.name and node.table == column.table:
                return exp.Paren(this=sign(this=_double(column.copy()), expression=deviation.copy()))
            return node

        return _double(_forgiving(_undivided(exp.Paren(this=value.copy())).transform(shift)))

    difference = exp.Sub(this=moved(exp.Add), expression=moved(exp.Sub))
    return exp.Div(this=exp.Paren(this=difference), expression=exp.Literal.number("2.0"))


def _undivided(value: exp.Expr) -> exp.Expr:
    """Return an expression with plain divisions: the slope of one that truncates is that of one that does not."""
    for node in list(value.find_all(exp.IntDiv)):
        node.replace(exp.Div(this=node.left, expression=node.right))
    return value


def _double(node: exp.Expr) -> exp.Expr:
    return exp.TryCast(this=exp.Paren(this=node), to=exp.DataType.build("double"))


def _forgiving(value: exp.Expr) -> exp.Expr:
    """Return an expression whose casts give NULL where they can't be done: there is no interval then."""

    def forgive(node: exp.Expr) -> exp.Expr:
        return exp.TryCast(**node.args) if type(node) is exp.Cast else node

    return value.copy().transform(forgive)


def _as_cast(cast: exp.Cast, end: exp.Expr) -> exp.Expr:
    """Return an end rounded as a cast of the value rounds, but never too large for it."""
    if cast.to.is_type(*exp.DataType.INTEGER_TYPES):
        return exp.func("round", end)
    if cast.to.is_type("decimal"):
        scale = [part.name for part in cast.to.expressions][1:2]
        return exp.func("round", end, exp.Literal.number(scale[0] if scale else 3 if not cast.to.expressions else 0))
    return _double(end)


def _operation(node: exp.Binary, left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Return an operation on an end; what truncates is truncated afterwards."""
    kind = exp.Div if isinstance(node, exp.IntDiv) else type(node)
    found: exp.Expr = kind(this=_double(left.copy()), expression=_double(right.copy()))
    return exp.func("trunc", found) if isinstance(node, exp.IntDiv) else found


def _with_argument(call: exp.Expr, argument: exp.Expr) -> exp.Expr:
    found = call.copy()
    possible = (
        exp.func("greatest", argument, exp.Literal.number(0)) if isinstance(call, exp.Sqrt | exp.Ln) else argument
    )
    found.set("this", possible)
    return found


def _number(node: exp.Expr) -> float | None:
    """Return the value of a constant that is written as a number."""
    bare = node.unnest()
    if isinstance(bare, exp.Neg):
        inner = _number(bare.this)
        return None if inner is None else -inner
    if isinstance(bare, exp.Cast):
        return _number(bare.this) if bare.to.is_type("double", "float") else None
    return float(bare.name) if isinstance(bare, exp.Literal) and not bare.is_string else None


def _scaled(found: Combination | None, factor: float) -> dict[int, float] | None:
    return None if found is None else {index: factor * part for index, part in found.items()}


def _added(left: Combination | None, right: Combination | None) -> dict[int, float] | None:
    if left is None or right is None:
        return None
    return {index: left.get(index, 0.0) + right.get(index, 0.0) for index in {**left, **right}}
