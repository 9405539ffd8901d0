"""A SELECT over protected rows, flattened: one base table, public joins, and conditions in terms of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.optimizer.scope import Scope

from planner.basics.errors import NotGrouped, RowsAsked, Unsupported, WindowMisplaced
from planner.basics.nodes import span
from planner.policy.table import Table
from planner.sql.aggregates import calls
from planner.sql.names import table_key
from planner.sql.query import AGGREGATES_HINT, BASE, SYSTEM, Catalog


@dataclass
class Rows:
    """A row-level relation on the way to a Measured: how its columns read in terms of base columns."""

    table: Table
    columns: Callable[[str], exp.Expr]
    joins: list[exp.Join] = field(default_factory=list)
    where: list[exp.Expr] = field(default_factory=list)


class Flat:
    """One scope over protected rows, flattened: base table, public joins and conditions in base terms."""

    def __init__(
        self, catalog: Catalog, below: Mapping[int, Rows], fresh: Iterator[int], scope: Scope, alias: str
    ) -> None:
        """Flatten a scope that reads protected rows under `alias`, given those below it by the ids of their SELECT."""
        self.catalog, self.below, self.fresh, self.scope = catalog, below, fresh, scope
        select, source = scope.expression, scope.selected_sources[alias][1]
        if isinstance(source, Scope):
            inner = below[id(source.expression)]
            self.rows = Rows(inner.table, inner.columns, list(inner.joins), list(inner.where))
        else:
            self.rows = Rows(catalog.protected[table_key(source)], _base_column)
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
        name = f"__j{next(self.fresh)}"
        copy = exp.Subquery(this=query.copy()) if isinstance(found, Scope) else query.copy()
        copy.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
        self.names[source.alias_or_name] = lambda column: exp.column(column, table=name, quoted=True)
        return copy

    def _is_public(self, table: exp.Table) -> bool:
        catalog, key = self.catalog, table_key(table)
        return key in catalog.types and key not in catalog.protected and table.db != SYSTEM

    def resolve(self, node: exp.Expr) -> exp.Expr:
        """Return an expression of this scope in terms of the base table and the public joins."""
        for query in node.find_all(exp.Query):
            if id(query) in self.below:
                raise raw_rows(query)
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


def raw_rows(node: exp.Expr) -> RowsAsked:
    source = node.args.get("from_") if isinstance(node, exp.Select) else None
    return RowsAsked("single rows are never shown", hint=AGGREGATES_HINT, span=span(source or node))
