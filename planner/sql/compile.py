"""From a SELECT to what is measured and what is post-processing.

Every SELECT that aggregates the rows of one protected table becomes a `Measured`: flat, in terms of the base
columns. In the analyst's tree it is replaced by a SELECT over the noisy relation that the measurement will
give; all the rest of the tree stays as it was written and runs in the sandbox.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.optimizer.scope import Scope, ScopeType, traverse_scope

from planner.basics.errors import NotGrouped, RowsAsked, TooLarge, Unsupported, WindowMisplaced
from planner.duck.sandbox import function_name, span
from planner.policy.file import Table
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
from planner.sql.query import AGGREGATES_HINT, BASE, INTERVALS, SYSTEM, Catalog, Compiled, Measured
from planner.sql.rewrite import Rewriter, calls, is_aggregate
from planner.sql.size import check_size


@dataclass
class _Rows:
    """A row-level relation on the way to a Measured: how its columns read in terms of base columns."""

    table: Table
    columns: Callable[[str], exp.Expr]
    joins: list[exp.Join] = field(default_factory=list)
    where: list[exp.Expr] = field(default_factory=list)


def compile_query(tree: exp.Query, catalog: Catalog) -> Compiled:
    """Return what `tree` measures and how its answer is made from that; refuse what can't be answered."""
    try:
        return _compiled(tree, catalog)
    except RecursionError:
        raise TooLarge("the statement is nested too deeply", hint="use fewer levels of nesting") from None


def _compiled(tree: exp.Query, catalog: Catalog) -> Compiled:
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
        return _Compiler(catalog).run(tree, names)
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

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.rows: dict[int, _Rows] = {}  # by the id of a row-level SELECT
        self.measured: list[Measured] = []
        self.fresh = itertools.count()

    def run(self, tree: exp.Query, names: tuple[str, ...]) -> Compiled:
        intervals: tuple[int, ...] = ()
        for scope in traverse_scope(tree):
            alias = self._protected(scope)
            if alias is None:
                self._refuse_rows_below(scope)
                continue
            select = scope.expression
            assert isinstance(select, exp.Select)
            flat = Flat(self, scope, alias)
            if is_aggregate(select):
                rewriter = Rewriter(flat, f"__m{len(self.measured)}")
                measured = rewriter.rewrite(select)
                if select is tree and not select.args.get("distinct"):
                    intervals = tuple(rewriter.append_intervals(select))
                self.measured.append(measured(rewriter.aggregates))
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
            raise _raw_rows(scope.expression)

    def _refuse_rows_below(self, scope: Scope) -> None:
        for child in scope.subquery_scopes:
            self._refuse_rows(child)

    def _keep_rows(self, scope: Scope, flat: Flat) -> None:
        select = scope.expression
        if scope.scope_type not in (ScopeType.DERIVED_TABLE, ScopeType.CTE):
            raise _raw_rows(select)
        for part in ("limit", "offset", "qualify", "windows"):
            if select.args.get(part):
                raise Unsupported(f"{part.upper()} would pick single rows", hint=AGGREGATES_HINT, span=span(select))
        for window in select.find_all(exp.Window):
            raise Unsupported("a window over single rows can't be answered", hint=AGGREGATES_HINT, span=span(window))
        columns = {p.alias_or_name: flat.resolve(p.unalias()) for p in select.expressions}
        self.rows[id(select)] = _Rows(flat.rows.table, columns.__getitem__, flat.rows.joins, flat.rows.where)

    def _drop_row_ctes(self, tree: exp.Query) -> None:
        """Remove the WITH items that were row-level: they live on inside the measured queries."""
        for cte in list(tree.find_all(exp.CTE)):
            if id(cte.this) in self.rows:
                cte.pop()
        for with_ in list(tree.find_all(exp.With)):
            if not with_.expressions:
                with_.pop()


class Flat:
    """One scope over protected rows, flattened: base table, public joins and conditions in base terms."""

    def __init__(self, compiler: _Compiler, scope: Scope, alias: str) -> None:
        self.compiler, self.scope = compiler, scope
        select, source = scope.expression, scope.selected_sources[alias][1]
        if isinstance(source, Scope):
            inner = compiler.rows[id(source.expression)]
            self.rows = _Rows(inner.table, inner.columns, list(inner.joins), list(inner.where))
        else:
            self.rows = _Rows(compiler.catalog.protected[table_key(source)], _base_column)
        self.names: dict[str, Callable[[str], exp.Expr]] = {alias: self.rows.columns}
        if select.args.get("laterals") or (select.args["from_"].this.args.get("sample")):
            raise Unsupported("LATERAL and TABLESAMPLE can't be answered", hint=AGGREGATES_HINT, span=span(select))
        first = select.args["from_"].this
        if first.alias_or_name != alias:
            self.rows.joins.append(exp.Join(this=self._public(first), kind="CROSS"))
        for join in select.args.get("joins") or []:
            self._join(join, is_base=join.alias_or_name == alias)
        if select.args.get("where"):
            self.rows.where.append(self._condition(select.args["where"].this))

    def _join(self, join: exp.Join, *, is_base: bool) -> None:
        side = (join.side or "").upper()
        left = side == "LEFT" and not is_base
        if join.args.get("using") or join.method or join.kind in ("SEMI", "ANTI") or (side and not left):
            raise Unsupported(
                "this kind of join can't be answered",
                hint="use JOIN … ON, or LEFT JOIN … ON with the protected table on the left",
                span=span(join),
            )
        target = None if is_base else self._public(join.this)
        on = self._condition(join.args["on"]) if join.args.get("on") else None
        if left:
            self.rows.joins.append(exp.Join(this=target, side="LEFT", on=on))
            return
        if target is not None:
            self.rows.joins.append(exp.Join(this=target, kind="CROSS"))
        if on is not None:
            self.rows.where.append(on)

    def _condition(self, node: exp.Expr) -> exp.Expr:
        if calls(node):
            raise NotGrouped("aggregates can't stand in WHERE or ON", hint="use HAVING", span=span(node))
        return self.resolve(node)

    def _public(self, source: exp.Expr) -> exp.Expr:
        """Return a copy of a public relation under a fresh alias, and note what its columns are called now."""
        found = self.scope.selected_sources[source.alias_or_name][1]
        query = found.expression if isinstance(found, Scope) else found
        if any(not self._is_public(table) for table in query.find_all(exp.Table)):
            raise Unsupported(
                "a protected table can only be joined with public tables",
                hint="aggregate first, then join the results in an outer query",
                span=span(source),
            )
        name = f"__j{next(self.compiler.fresh)}"
        copy = exp.Subquery(this=query.copy()) if isinstance(found, Scope) else query.copy()
        copy.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
        self.names[source.alias_or_name] = lambda column: exp.column(column, table=name, quoted=True)
        return copy

    def _is_public(self, table: exp.Table) -> bool:
        catalog, key = self.compiler.catalog, table_key(table)
        return key in catalog.types and key not in catalog.protected and table.db != SYSTEM

    def resolve(self, node: exp.Expr) -> exp.Expr:
        """Return an expression of this scope in terms of the base table and the public joins."""
        for query in node.find_all(exp.Query):
            if id(query) in self.compiler.rows:
                raise _raw_rows(query)
            if any(not self._is_public(table) for table in query.find_all(exp.Table)):
                raise Unsupported(
                    "a condition on rows can't hold a query about protected rows",
                    hint="ask for the inner value first and put it in as a number",
                    span=span(query) or span(node),
                )
        for part in node.walk(prune=lambda part: isinstance(part, exp.Query)):
            if isinstance(part, exp.Window):
                raise WindowMisplaced(
                    "a window over single rows can't be answered", hint=AGGREGATES_HINT, span=span(part)
                )
        # A public subquery has columns of its own: only names of this scope are replaced.
        return exp.Paren(this=node.copy()).transform(self._replace).this  # type: ignore[no-any-return]

    def _replace(self, part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column) or not part.table:
            return part
        if part.table not in self.names or _is_inner(part):
            if part.find_ancestor(exp.Query):
                return part
            raise Unsupported(
                "a query about protected rows can't refer to an outer query",
                hint="aggregate first, then combine the results in an outer query",
                span=span(part),
            )
        found = self.names[part.table](part.name).copy()
        if not isinstance(found, exp.Column):
            return exp.Paren(this=found)
        found.type = part.type
        found.this.meta.update(part.this.meta)
        return found


def _is_inner(column: exp.Column) -> bool:
    """Return whether a column of a public subquery belongs to that subquery's own FROM."""
    select = column.parent_select
    while select is not None:
        from_ = select.args.get("from_")
        sources = [*([from_.this] if from_ else []), *(join.this for join in select.args.get("joins") or ())]
        if any(source.alias_or_name == column.table for source in sources):
            return True
        select = select.parent_select
    return False


def _base_column(name: str) -> exp.Expr:
    return exp.column(name, table=BASE, quoted=True)


def _raw_rows(node: exp.Expr) -> RowsAsked:
    source = node.args.get("from_") if isinstance(node, exp.Select) else None
    return RowsAsked("single rows are never shown", hint=AGGREGATES_HINT, span=span(source or node))
