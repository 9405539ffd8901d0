"""From a SELECT to what is measured and what is post-processing.

Every SELECT that aggregates the rows of one protected table becomes a `Measured`: flat, in terms of the base
columns. In the analyst's tree it is replaced by a SELECT over the noisy relation that the measurement will
give; all the rest of the tree stays as it was written and runs in the sandbox.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, ScopeType, traverse_scope

from planner.basics.errors import RowsAsked, TooLarge, Unsupported
from planner.basics.nodes import function_name, span
from planner.basics.numerals import whole
from planner.sql.aggregates import calls, is_aggregate
from planner.sql.flat import Flat, Rows, raw_rows
from planner.sql.names import (
    check_outputs,
    check_sources,
    check_tables,
    inline_interval_aliases,
    note_outputs,
    open_parentheses,
    output_names,
    qualified,
    spell_columns,
    table_key,
    with_views,
)
from planner.sql.query import AGGREGATES_HINT, ALL, AUTO, BASE, INTERVALS, Catalog, Compiled, Measured
from planner.sql.rewrite import Rewriter
from planner.sql.size import check_size


def compile_query(tree: exp.Query, catalog: Catalog, *, groups: str = AUTO) -> Compiled:
    """Return what `tree` measures and how its answer is made from that; refuse what can't be answered.

    Args:
        groups: which groups of the domain count, one of GROUPS.
    """
    try:
        return _compiled(tree, catalog, groups)
    except RecursionError:
        raise TooLarge("the statement is nested too deeply", hint="use fewer levels of nesting") from None


def _compiled(tree: exp.Query, catalog: Catalog, groups: str) -> Compiled:
    tree = with_views(tree, catalog)
    check_size(tree)
    open_parentheses(tree)
    check_tables(tree, catalog)
    check_outputs(tree)
    inline_interval_aliases(tree)
    spell_columns(tree, catalog)
    note_outputs(tree)
    tree = qualified(tree, catalog)
    check_sources(tree, catalog)
    names, empty = tuple(output_names(tree)), _without_rows(tree)
    try:
        return _Compiler(catalog, groups).run(tree, names)
    except RowsAsked:
        if empty is None:
            raise
        return Compiled(empty, (), names, ())


def _without_rows(tree: exp.Query) -> exp.Query | None:
    """Return a query with the same columns and no rows, if `tree` can have none: tools ask so for the columns."""
    if not isinstance(tree, exp.Select) or not _is_empty(tree):
        return None
    kinds = [item.type if item.type and not item.is_type("unknown") else "text" for item in tree.selects]
    columns = [exp.cast(exp.null(), kind).as_(f"c{i}") for i, kind in enumerate(kinds)]
    return exp.select(*columns).where(exp.false())


def _is_empty(select: exp.Select) -> bool:
    """Return whether a SELECT says that it wants no row: LIMIT 0, WHERE false, WHERE 1 = 0."""
    limit, where = select.args.get("limit"), select.args.get("where")
    no_limit = isinstance(limit, exp.Limit) and limit.expression.is_int and limit.expression.name == "0"
    condition = where.this.unnest() if where is not None else None
    parts = condition.flatten() if isinstance(condition, exp.And) else [condition]
    return no_limit or any(_is_false(part) for part in parts if part is not None)


def _is_false(node: exp.Expr) -> bool:
    node = node.unnest()
    if isinstance(node, exp.EQ) and isinstance(node.left, exp.Literal) and isinstance(node.right, exp.Literal):
        return node.left.is_string == node.right.is_string and node.left.name != node.right.name
    return isinstance(node, exp.Boolean) and not node.this


class _Compiler:
    """Walks the scopes of one qualified tree from the inside out, collecting what is measured."""

    def __init__(self, catalog: Catalog, groups: str) -> None:
        self.catalog, self.groups = catalog, groups
        self.rows: dict[int, Rows] = {}  # by the id of a row-level SELECT
        self.measured: list[Measured] = []
        self.fresh = itertools.count()

    def run(self, tree: exp.Query, names: tuple[str, ...]) -> Compiled:
        intervals: tuple[int, ...] = ()
        scopes = traverse_scope(tree)
        listing, limit = _listing(scopes[-1]) if scopes else (None, 0)
        for scope in scopes:
            alias = self._protected(scope)
            if alias is None:
                self._refuse_rows_below(scope)
                continue
            select = scope.expression
            assert isinstance(select, exp.Select)
            flat = Flat(self.catalog, self.rows, self.fresh, scope, alias)
            if is_aggregate(select):
                rewriter = Rewriter(flat, f"__m{len(self.measured)}")
                measured = rewriter.rewrite(select)
                if select is tree and not select.args.get("distinct"):
                    intervals = tuple(rewriter.append_intervals(select))
                found = measured(rewriter.aggregates)
                if found.keys and not self._counts_all(found, limit=limit if select is listing else None):
                    found = replace(found, present=rewriter.keep_present(select), aggregates=tuple(rewriter.aggregates))
                self.measured.append(found)
            else:
                self._keep_rows(scope, flat)
        self._drop_row_ctes(tree)
        for node in tree.find_all(exp.Anonymous):
            if function_name(node) in INTERVALS:
                raise Unsupported(
                    f"{node.name} needs an aggregate of the same SELECT",
                    hint="write it where the aggregate is: SELECT count(*) AS n, DP_INTERVAL_LOW(n) FROM …",
                    span=span(node),
                )
        return Compiled(tree, tuple(self.measured), names, intervals)

    def _counts_all(self, measured: Measured, *, limit: float | None) -> bool:
        """Return whether every group of the domain counts: asked for, or listed with a LIMIT that leaves out none."""
        return self.groups == ALL or (self.groups == AUTO and limit is not None and _most_groups(measured) <= limit)

    def _protected(self, scope: Scope) -> str | None:
        """Return the alias of the protected relation that a scope reads row by row, if there is one."""
        if not isinstance(scope.expression, exp.Select):
            return None
        found = [alias for alias, (_, source) in scope.selected_sources.items() if self._is_protected(source)]
        if len(found) > 1:
            raise Unsupported(
                "two protected relations are joined",
                hint="join a protected table with public tables only, or ask two questions",
                span=span(scope.expression.args["from_"]),
            )
        return found[0] if found else None

    def _is_protected(self, source: exp.Expr | Scope) -> bool:
        if isinstance(source, Scope):
            return id(source.expression) in self.rows
        return isinstance(source, exp.Table) and table_key(source) in self.catalog.protected

    def _refuse_rows(self, scope: Scope) -> None:
        if id(scope.expression) in self.rows:
            raise raw_rows(scope.expression)

    def _refuse_rows_below(self, scope: Scope) -> None:
        for child in scope.subquery_scopes:
            self._refuse_rows(child)

    def _keep_rows(self, scope: Scope, flat: Flat) -> None:
        select = scope.expression
        if scope.scope_type not in (ScopeType.DERIVED_TABLE, ScopeType.CTE):
            raise raw_rows(select)
        for part in ("limit", "offset", "qualify", "windows"):
            if select.args.get(part):
                raise Unsupported(f"{part.upper()} would pick single rows", hint=AGGREGATES_HINT, span=span(select))
        for window in select.find_all(exp.Window):
            raise Unsupported("a window over single rows can't be answered", hint=AGGREGATES_HINT, span=span(window))
        columns = {p.alias_or_name: flat.resolve(p.unalias()) for p in select.expressions}
        self.rows[id(select)] = Rows(flat.rows.table, columns.__getitem__, flat.rows.joins, flat.rows.where)

    def _drop_row_ctes(self, tree: exp.Query) -> None:
        """Remove the WITH items that were row-level: they live on inside the measured queries."""
        for cte in list(tree.find_all(exp.CTE)):
            if id(cte.this) in self.rows:
                cte.pop()
        for with_ in list(tree.find_all(exp.With)):
            if not with_.expressions:
                with_.pop()


def _listing(scope: Scope) -> tuple[exp.Select | None, float]:
    """Return the SELECT whose groups are shown one by one, as they are, if there is one, and how many at most.

    It is the outermost one, or stands below SELECTs that only choose, rename and order its columns.
    """
    limit = math.inf
    while isinstance(select := scope.expression, exp.Select):
        limit = min(limit, _limit(select))
        if _picks(select):
            break
        if is_aggregate(select):
            return select, limit
        below = [source for _, source in scope.selected_sources.values()]
        if len(below) != 1 or not isinstance(below[0], Scope) or select.args.get("where"):
            break
        scope = below[0]
    return None, limit


def _picks(select: exp.Select) -> bool:
    """Return whether a SELECT computes something across groups, or shows some of them only, beside a LIMIT."""
    grouped = select.args.get("group") or any(calls(item) for item in select.expressions)
    parts = [*select.expressions, *(select.args[name] for name in ("order",) if select.args.get(name))]
    return bool(
        any(select.args.get(name) for name in ("having", "qualify", "offset"))
        or (select.args.get("distinct") and grouped)
        or any(part.find(exp.Window, exp.Query) for part in parts)
    )


def _limit(select: exp.Select) -> float:
    """Return how many rows a SELECT shows at most."""
    limit = select.args.get("limit")
    if limit is None:
        return math.inf
    return (whole(limit.expression.name) or 0) if isinstance(limit, exp.Limit) and limit.expression.is_int else 0


def _most_groups(measured: Measured) -> float:
    """Return a number of groups that a query can't pass, from the domains of the columns that it groups by."""
    return sum(math.prod(_most_values(measured, measured.keys[key]) for key in keys) for keys in measured.sets)


def _most_values(measured: Measured, key: exp.Expr) -> float:
    columns = list(key.find_all(exp.Column))
    domains = [measured.table.columns[column.name].domain for column in columns if column.table == BASE]
    if len(domains) < len(columns) or key.find(exp.Query):
        return math.inf
    return math.prod({c.name: d.cells if d else math.inf for c, d in zip(columns, domains, strict=True)}.values())
