"""An aggregate SELECT, rewritten into a SELECT over the noisy relation that its measurement will give."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from sqlglot import exp

from planner.basics.errors import NotGrouped, TooLarge, Unsupported
from planner.basics.limits import MAX_SETS
from planner.basics.nodes import function_name, span
from planner.basics.numerals import whole
from planner.sql.aggregates import QUANTILE_NAMES, AggregateKind, Returns, calls, is_call, window_parts
from planner.sql.flat import Flat
from planner.sql.intervals import Intervals
from planner.sql.query import AGGREGATES_HINT, INTERVALS, Aggregate, Measured


class Rewriter:
    """Rewrites one aggregate SELECT into a SELECT over its noisy relation, collecting the aggregates."""

    def __init__(self, flat: Flat, relation: str) -> None:
        self.flat, self.relation = flat, relation
        self.aggregates: list[Aggregate] = []
        self.intervals = Intervals(relation, self.aggregates)
        self.nodes: list[exp.Expr] = []  # group keys as they are written in this scope

    def rewrite(self, select: exp.Select) -> Callable[[list[Aggregate]], Measured]:
        """Rewrite `select` in place; return the Measured, still waiting for the final list of aggregates."""
        sets = self._grouping(select)
        keys = tuple(self.flat.resolve(node) for node in self.nodes)
        select.set("expressions", [self.visit(node) for node in select.expressions])
        for part in ("having", "order", "qualify"):
            if select.args.get(part):
                select.set(part, self.visit(select.args[part]))
        having = select.args.get("having")
        select.set("where", exp.Where(this=having.this) if having else None)
        for part in ("group", "having", "joins"):
            select.set(part, None)
        select.set("from_", exp.From(this=exp.Table(this=exp.to_identifier(self.relation))))
        rows = self.flat.rows
        return lambda aggregates: Measured(
            name=self.relation,
            table=rows.table,
            joins=tuple(rows.joins),
            where=tuple(rows.where),
            keys=keys,
            sets=sets,
            aggregates=tuple(aggregates),
            pairs=tuple(sorted(self.intervals.pairs)),
            ratios=tuple(self.intervals.ratios),
        )

    # Group keys.

    def _grouping(self, select: exp.Select) -> tuple[tuple[int, ...], ...]:
        group = select.args.get("group")
        if group is None and not any(calls(node) for node in select.expressions) and select.args.get("distinct"):
            if not isinstance(select.args["distinct"], exp.Distinct) or select.args["distinct"].args.get("on"):
                raise Unsupported("DISTINCT ON can't be answered", hint="use GROUP BY", span=span(select))
            return (tuple(self._key(p.unalias()) for p in select.expressions),)
        if group is None:
            return ((),)
        parts: list[list[tuple[int, ...]]] = [
            [(self._key(self._written(node, select)),)] for node in group.expressions if not _is_sets(node)
        ]
        nested = [node for node in group.expressions if _is_sets(node)]
        for name in ("grouping_sets", "rollup", "cube"):
            nested += group.args.get(name) or []
        parts += [self._sets(node, select) for node in nested]
        _check_sets(math.prod(len(part) for part in parts))
        combined = (tuple(dict.fromkeys(itertools.chain(*choice))) for choice in itertools.product(*parts))
        return tuple(combined)

    def _sets(self, node: exp.Expr, select: exp.Select) -> list[tuple[int, ...]]:
        if isinstance(node, exp.GroupingSets):
            return [found for part in node.expressions for found in self._sets(part, select)]
        if isinstance(node, exp.Rollup | exp.Cube):
            units = [self._sets(part, select)[0] for part in node.expressions]
            _check_sets(2 ** len(units) if isinstance(node, exp.Cube) else len(units))
            if isinstance(node, exp.Rollup):
                chosen: list[tuple[tuple[int, ...], ...]] = [tuple(units[:n]) for n in range(len(units), -1, -1)]
            else:
                chosen = [c for n in range(len(units), -1, -1) for c in itertools.combinations(units, n)]
            return [tuple(itertools.chain(*choice)) for choice in chosen]
        parts = node.expressions if isinstance(node, exp.Tuple) else [node.unnest()]
        return [tuple(self._key(self._written(part, select)) for part in parts)]

    def _written(self, node: exp.Expr, select: exp.Select) -> exp.Expr:
        """Return the key that an ordinal stands for, or the node itself."""
        if isinstance(node, exp.Literal) and not node.is_string:
            position = whole(node.name) or 0
            if not 1 <= position <= len(select.expressions):
                raise NotGrouped(
                    f"GROUP BY position {node.name} is not in the select list",
                    hint="positions count from 1",
                    span=span(node),
                )
            return select.expressions[position - 1].unalias()  # type: ignore[no-any-return]
        return node

    def _key(self, node: exp.Expr) -> int:
        if calls(node):
            raise NotGrouped(
                "aggregates can't be grouped by",
                hint="group by columns or expressions of them",
                span=span(node),
            )
        if node not in self.nodes:
            self.nodes.append(node)
        return self.nodes.index(node)

    # Expressions.

    def visit(self, node: exp.Expr) -> exp.Expr:
        """Return an expression over the noisy relation instead of over rows."""
        if node in self.nodes:
            return self._column(f"k{self.nodes.index(node)}", node.type)
        if isinstance(node, exp.Query | exp.Subquery):
            return node
        if isinstance(node, exp.Grouping):
            return self._grouping_bits(node)
        if isinstance(node, exp.Anonymous) and function_name(node) in INTERVALS:
            return self._interval(self.visit(node.expressions[0]), INTERVALS[function_name(node)], wanted=True)
        if isinstance(node, exp.Window):
            return self._window(node)
        if is_call(node):
            return self._measured(node)
        if isinstance(node, exp.Column) and node.table in self.flat.names:
            raise NotGrouped(
                f"column {node.name} is neither grouped nor aggregated",
                hint=f"put {node.name} into GROUP BY or into an aggregate",
                span=span(node),
            )
        return self._children(node)

    def _children(self, node: exp.Expr) -> exp.Expr:
        for child in list(node.iter_expressions()):
            new = self.visit(child)
            if new is not child:
                child.replace(new)
        return node

    def _window(self, node: exp.Window) -> exp.Expr:
        for part in window_parts(node):
            new = self.visit(part)
            if new is not part:
                part.replace(new)
        return node

    def _column(self, name: str, type_: exp.DataType | None = None) -> exp.Column:
        column = exp.column(name, table=self.relation)
        column.type = type_
        return column

    def _grouping_bits(self, node: exp.Grouping) -> exp.Expr:
        bits = [self._column(f"g{self.nodes.index(e)}") for e in node.expressions if e in self.nodes]
        if not bits or len(bits) != len(node.expressions):
            raise NotGrouped(
                "GROUPING takes expressions of GROUP BY", hint="write them as they are grouped by", span=span(node)
            )
        total: exp.Expr = bits[0]
        for bit in bits[1:]:
            total = exp.Add(this=exp.Mul(this=exp.Paren(this=total), expression=exp.Literal.number(2)), expression=bit)
        return exp.Paren(this=total)

    def _measured(self, node: exp.Expr) -> exp.Expr:
        found = self._aggregate(node)
        keys = [aggregate.key for aggregate in self.aggregates]
        if found.key not in keys:
            self.aggregates.append(found)
            keys.append(found.key)
        value = found.argument if found.traits.returns is Returns.VALUE else None
        kind = node.type if value is None else value.type
        return self._column(f"a{keys.index(found.key)}", kind)

    def _aggregate(self, node: exp.Expr) -> Aggregate:
        inner, condition = node, None
        if isinstance(node, exp.Filter):
            inner, condition = node.this, self.flat.resolve(node.expression.this)
        kind, argument, options = _read_call(inner)
        for part in (argument, condition):
            if part is not None and calls(part):
                raise NotGrouped("aggregates can't be nested", hint="use an outer query", span=span(inner))
        resolved = self.flat.resolve(argument) if argument is not None else None
        return Aggregate(kind=kind, argument=resolved, condition=condition, span=span(node), **options)  # type: ignore[arg-type]

    # Groups that have rows.

    def keep_present(self, select: exp.Select) -> int:
        """Leave out groups that can't be told from empty; return the number of the count of rows that tells.

        A count that was not asked for is measured with the rest.
        """
        rows = Aggregate(kind=AggregateKind.COUNT)
        numbers = [i for i, aggregate in enumerate(self.aggregates) if aggregate.key == rows.key]
        if not numbers:
            self.aggregates.append(rows)
        select.where(self._column("here"), copy=False)
        return numbers[0] if numbers else len(self.aggregates) - 1

    # Errors of answers.

    def append_intervals(self, select: exp.Select) -> Iterator[int]:
        """Append a low and a high column for every numeric output that is made of aggregates; yield its index."""
        for index, projection in enumerate(list(select.expressions)):
            value = projection.unalias()
            plain = not value.find(exp.Window, exp.Query) and self.intervals.indices(value)
            if plain and value.type is not None and value.is_type(*exp.DataType.NUMERIC_TYPES):
                for end in ("low", "high"):
                    select.append("expressions", exp.alias_(self._interval(value, end), f"__{end}_{index}"))
                yield index

    def _interval(self, value: exp.Expr, end: str, *, wanted: bool = False) -> exp.Expr:
        """Return the SQL of one end of the interval around `value`, or of its standard deviation."""
        indices = self.intervals.indices(value)
        if not indices or value.find(exp.Window, exp.Query):
            raise Unsupported(
                "an interval needs a plain expression of aggregates",
                hint="for example: SELECT count(*) AS n, DP_INTERVAL_LOW(n) FROM …",
                span=span(value),
            )
        if wanted and isinstance(value.unnest(), exp.Column):
            self.aggregates[indices[0]] = replace(self.aggregates[indices[0]], interval=True)
        return self.intervals.end(value, end)


def _check_sets(count: int) -> None:
    if count > MAX_SETS:
        raise TooLarge(
            f"the query has {count:,} grouping sets, the limit is {MAX_SETS}", hint="ask for fewer sets at a time"
        )


def _is_sets(node: exp.Expr) -> bool:
    return isinstance(node, exp.GroupingSets | exp.Rollup | exp.Cube)


def _read_call(node: exp.Expr) -> tuple[AggregateKind, exp.Expr | None, dict[str, object]]:
    """Return (kind, argument, options) of an aggregate call, or refuse it."""
    match node:
        case exp.Count(this=exp.Distinct(expressions=[argument])):
            return AggregateKind.DISTINCT, argument, {}
        case exp.Count(this=exp.Star() | exp.Column(this=exp.Star()) | None):
            return AggregateKind.COUNT, None, {}
        case exp.AggFunc(this=exp.Order(this=argument)) if isinstance(node, exp.Count | exp.Sum | exp.Avg):
            plain = node.copy()
            plain.set("this", argument.copy())
            return _read_call(plain)
        case exp.Count(this=argument) if not isinstance(argument, exp.Distinct) and not node.expressions:
            return AggregateKind.COUNT, argument, {}
        case exp.Sum(this=argument) | exp.Avg(this=argument) if not isinstance(argument, exp.Distinct):
            return AggregateKind(node.key), argument, {}
        case exp.VariancePop(this=argument):
            return AggregateKind.VARIANCE, argument, {"sample": False}
        case exp.StddevPop(this=argument):
            return AggregateKind.STDDEV, argument, {"sample": False}
        case exp.Variance(this=argument):
            return AggregateKind.VARIANCE, argument, {}
        case exp.Stddev(this=argument) | exp.StddevSamp(this=argument):
            return AggregateKind.STDDEV, argument, {}
        case exp.Median(this=argument):
            return AggregateKind.QUANTILE, argument, {"p": Fraction(1, 2), "continuous": True}
        case exp.WithinGroup(
            this=exp.PercentileCont() | exp.PercentileDisc(), expression=exp.Order(expressions=[term])
        ):
            level = _level(node.this.this)
            descending = isinstance(term, exp.Ordered) and term.args.get("desc")
            options: dict[str, object] = {
                "p": 1 - level if descending else level,
                "continuous": isinstance(node.this, exp.PercentileCont),
            }
            return AggregateKind.QUANTILE, term.this if isinstance(term, exp.Ordered) else term, options
        case exp.Anonymous(expressions=[argument, level]) if function_name(node) in QUANTILE_NAMES:
            return (
                AggregateKind.QUANTILE,
                argument,
                {"p": _level(level), "continuous": QUANTILE_NAMES[function_name(node)]},
            )
        case exp.Quantile(this=argument):
            return AggregateKind.QUANTILE, argument, {"p": _level(node.args["quantile"])}
    name = function_name(node.this if isinstance(node, exp.WithinGroup) else node)
    if isinstance(node.this, exp.Distinct):
        name += "(DISTINCT …)"
    extreme = isinstance(node, exp.Min | exp.Max)
    raise Unsupported(
        f"{name} can't be answered privately" if not extreme else f"{name} depends on a single person",
        hint="use a quantile such as percentile_disc(0.05) WITHIN GROUP (ORDER BY …)" if extreme else AGGREGATES_HINT,
        span=span(node),
    )


def _level(node: exp.Expr) -> Fraction:
    while isinstance(node.unnest(), exp.Cast):
        node = node.unnest().this
    text = node.unnest().name if isinstance(node.unnest(), exp.Literal) else node.sql()
    try:
        level = Fraction(text) if 0 <= float(text) <= 1 and len(text) < 100 else Fraction(-1)  # no endless exponents
    except (ValueError, ZeroDivisionError):
        level = Fraction(-1)
    if not 0 <= level <= 1:
        raise Unsupported(
            "a quantile's level must be one number between 0 and 1",
            hint="for example: percentile_cont(0.25) WITHIN GROUP (ORDER BY …)",
            span=span(node),
        )
    return level.limit_denominator(10_000)
