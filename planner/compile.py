"""From a SELECT to what is measured and what is post-processing.

Every SELECT that aggregates the rows of one protected table becomes a `Measured`: flat, in terms of the base
columns. In the analyst's tree it is replaced by a SELECT over the noisy relation that the measurement will
give; all the rest of the tree stays as it was written and runs in the sandbox.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, ScopeType, traverse_scope

from planner.errors import (
    AmbiguousColumn,
    Forbidden,
    NotGrouped,
    SyntaxRefusal,
    TooLarge,
    UnknownColumn,
    UnknownTable,
    Unsupported,
)
from planner.policy import Table
from planner.sandbox import function_name, span
from planner.statement import DIALECT

BASE = "__p"
"""Name of the protected table in every flattened expression."""

INTERVALS = {"dp_interval_low": "low", "dp_interval_high": "high", "dp_stddev": "sd"}

SYSTEM = "noisegate"
"""Schema of the system tables: they change from query to query, so no condition on rows can rest on them."""

RESERVED = "__"
"""Names that begin so are the gate's own."""

MAX_SETS = 256
"""Most grouping sets of one SELECT."""

AGGREGATES_HINT = "ask for an aggregate: count, sum, avg, variance, stddev, median or a quantile"


@dataclass(frozen=True)
class Catalog:
    """What names mean: protected tables, column types of every table, and the curator's views."""

    protected: Mapping[str, Table]
    types: Mapping[str, Mapping[str, str]]
    views: Mapping[str, exp.Query]


@dataclass(frozen=True)
class Aggregate:
    """One measured aggregate, its argument and condition in terms of base columns.

    kind: count, sum, avg, variance, stddev, distinct or quantile. `p` is a quantile's level; `continuous`
    says that it interpolates; `sample` that a variance divides by n - 1.
    """

    kind: str
    argument: exp.Expr | None = None
    condition: exp.Expr | None = None
    p: Fraction | None = None
    continuous: bool = False
    sample: bool = True
    interval: bool = False
    span: tuple[int, int] | None = None

    @property
    def key(self) -> tuple[object, ...]:
        texts = [node.sql("duckdb") if node is not None else None for node in (self.argument, self.condition)]
        return (self.kind, *texts, self.p, self.continuous, self.sample)


@dataclass(frozen=True)
class Measured:
    """A flat aggregate query over one protected table joined with public ones."""

    name: str
    table: Table
    joins: tuple[exp.Join, ...]
    where: tuple[exp.Expr, ...]
    keys: tuple[exp.Expr, ...]
    sets: tuple[tuple[int, ...], ...]
    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True)
class Compiled:
    """`post` runs in the sandbox once each measured relation is there. `names` are the visible columns; behind
    them, `post` has a low and a high column for each index in `intervals`."""

    post: exp.Query
    measured: tuple[Measured, ...]
    names: tuple[str, ...]
    intervals: tuple[int, ...] = ()


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
    tree = _with_views(tree, catalog)
    _check_tables(tree, catalog)
    _check_outputs(tree)
    _inline_interval_aliases(tree)
    _note_outputs(tree)
    tree = _qualified(tree, catalog)
    _check_sources(tree, catalog)
    names = tuple(_output_names(tree))
    return _Compiler(catalog).run(tree, names)


# --- names -------------------------------------------------------------------------------------------------


def _with_views(tree: exp.Query, catalog: Catalog) -> exp.Query:
    own = {cte.alias for cte in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        view = catalog.views.get(table.name) if not table.db or table.db == "public" else None
        if view is not None and table.name not in own:
            alias = table.alias or table.name
            table.replace(exp.Subquery(this=view.copy(), alias=exp.TableAlias(this=exp.to_identifier(alias))))
    return tree


def _check_tables(tree: exp.Query, catalog: Catalog) -> None:
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for alias in tree.find_all(exp.TableAlias):
        if alias.name.startswith(RESERVED):
            raise Unsupported(
                f"names that begin with {RESERVED} are reserved", hint="choose another name", span=span(alias.this)
            )
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Func):
            raise Unsupported(
                f"the table function {function_name(table.this)} is not available",
                hint="use a table of the policy",
                span=span(table),
            )
        if table.db == "public":
            table.set("db", None)
            table.set("catalog", None)
        name = _table_key(table)
        if name not in catalog.types and not (name in own and not table.db):
            raise _unknown_table(table, catalog)


def _check_sources(tree: exp.Query, catalog: Catalog) -> None:
    """Refuse every name that is not, where it stands, a table of the policy or an item of WITH.

    The sandbox has relations of its own, such as duckdb_tables, which an item of WITH elsewhere must not open.
    """
    for scope in traverse_scope(tree):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and _table_key(source) not in catalog.types:
                raise _unknown_table(source, catalog)


def _unknown_table(table: exp.Table, catalog: Catalog) -> UnknownTable:
    known = ", ".join(sorted(catalog.types))
    return UnknownTable(f"there is no table {_table_key(table)}", hint=f"there are: {known}", span=span(table))


def _check_outputs(tree: exp.Query) -> None:
    """Refuse an empty select list, whole rows as values, and positions that are not in the select list."""
    for select in tree.find_all(exp.Select):
        if not select.expressions:
            raise SyntaxRefusal("the select list is empty", hint=AGGREGATES_HINT, span=span(select))
        if any(projection.is_star for projection in select.expressions):
            continue  # how many columns there are is not known yet
        for part in ("group", "order"):
            for node in getattr(select.args.get(part), "expressions", ()):
                literal = node.this if isinstance(node, exp.Ordered) else node
                if literal.is_int and not 1 <= int(literal.sql()) <= len(select.expressions):
                    raise NotGrouped(
                        f"{part.upper()} BY position {literal.sql()} is not in the select list",
                        hint="positions count from 1",
                        span=span(literal),
                    )


def _table_key(table: exp.Table) -> str:
    parts = [
        part.name if part.quoted else part.name.lower() for part in table.parts if isinstance(part, exp.Identifier)
    ]
    return ".".join(parts)


def _inline_interval_aliases(tree: exp.Query) -> None:
    """Replace DP_INTERVAL_LOW(alias) by DP_INTERVAL_LOW(the expression behind the alias)."""
    for select in tree.find_all(exp.Select):
        aliases = {p.alias.lower(): p.this for p in select.expressions if isinstance(p, exp.Alias)}
        for node in list(select.find_all(exp.Anonymous)):
            if function_name(node) not in INTERVALS or node.parent_select is not select:
                continue
            if len(node.expressions) != 1:
                raise SyntaxRefusal(
                    f"{node.name} takes one output column",
                    hint="for example: SELECT count(*) AS n, DP_INTERVAL_LOW(n) FROM …",
                    span=span(node),
                )
            argument = node.expressions[0]
            if isinstance(argument, exp.Column) and not argument.table and argument.name.lower() in aliases:
                argument.replace(aliases[argument.name.lower()].copy())


def _qualified(tree: exp.Query, catalog: Catalog) -> exp.Query:
    """Return the tree with every column qualified, stars and ordinals expanded, types noted, and the integer
    division of PostgreSQL written out."""
    schema: dict[str, object] = {}
    for name, columns in catalog.types.items():
        place = schema
        *folders, last = name.split(".")
        for folder in folders or [""]:
            place = place.setdefault(folder, {})  # type: ignore[assignment]
        place[last] = dict(columns)
    for table in tree.find_all(exp.Table):
        if not table.db and _table_key(table) in catalog.types:
            table.set("db", exp.to_identifier("", quoted=True))
    try:
        tree = qualify(tree, schema=schema, dialect=DIALECT)
        tree = annotate_types(tree, schema=schema, dialect=DIALECT)
    except OptimizeError as error:
        raise _unresolved(error, tree, catalog) from None
    except SqlglotError as error:
        raise SyntaxRefusal(str(error).splitlines()[0], hint="write it as PostgreSQL would read it") from None
    for whole in tree.find_all(exp.TableColumn):
        raise Unsupported("a whole row can't be a value", hint="name its columns", span=span(whole))
    for table in tree.find_all(exp.Table):
        if not table.db:
            table.set("db", None)
    divided = tree.transform(_truncating_division)
    assert isinstance(divided, exp.Query)
    return divided


def _unresolved(error: OptimizeError, tree: exp.Query, catalog: Catalog) -> UnknownColumn | AmbiguousColumn:
    message = str(error)
    name = message.split("'")[1].strip('"') if "'" in message else message.rpartition(": ")[2]
    places = [column for column in tree.find_all(exp.Column) if column.name.lower() == name.lower()]
    where = span(places[0]) if places else None
    if "mbiguous" in message or any(_is_ambiguous(column, catalog) for column in places):
        return AmbiguousColumn(f"column {name} is ambiguous", hint="say which table it belongs to", span=where)
    return UnknownColumn(
        f"there is no column {name}" if places else "a column can't be resolved",
        hint="the columns are in noisegate.domains",
        span=where,
    )


def _is_ambiguous(column: exp.Column, catalog: Catalog) -> bool:
    """Return whether a column without a table is in several tables of its FROM."""
    select = column.parent_select
    if select is None or column.table or not select.args.get("from_"):
        return False
    sources = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    tables = [catalog.types.get(source.name, {}) for source in sources if isinstance(source, exp.Table)]
    return sum(column.name in table for table in tables) > 1


def _truncating_division(node: exp.Expr) -> exp.Expr:
    """PostgreSQL divides integers toward zero; DuckDB's / does not."""
    if not isinstance(node, exp.Div) or not node.args.get("typed"):
        return node
    node.set("typed", False)
    if not (node.left.is_type(*exp.DataType.INTEGER_TYPES) and node.right.is_type(*exp.DataType.INTEGER_TYPES)):
        return node
    whole = exp.IntDiv(this=node.left.copy(), expression=node.right.copy())
    whole.type = exp.DataType.build("bigint")
    return whole


def _note_outputs(tree: exp.Query) -> None:
    """Note the names that PostgreSQL gives to outputs without alias; inside, where they can be used, as aliases."""
    for select in tree.find_all(exp.Select):
        unnamed = [p for p in select.expressions if not isinstance(p, exp.Alias | exp.Column) and not p.is_star]
        names = [_postgres_name(node) for node in unnamed]
        used = {column.name for column in select.find_all(exp.Column)} | {p.alias_or_name for p in select.expressions}
        for node, name in zip(unnamed, names, strict=True):
            node.meta["output"] = name
            if select.parent and name != "?column?" and names.count(name) == 1 and name not in used:
                node.replace(exp.alias_(node.copy(), name, quoted=True))
    for values in tree.find_all(exp.Values):
        alias = values.args.get("alias")
        if alias and not alias.columns:
            width = len(values.expressions[0].expressions)
            alias.set("columns", [exp.to_identifier(f"column{i + 1}") for i in range(width)])


def _output_names(tree: exp.Query) -> Iterator[str]:
    return (_output_name(projection, tree) for projection in tree.selects)


def _output_name(projection: exp.Expr, tree: exp.Query) -> str:
    name, node = projection.alias_or_name, projection.unalias()
    if "output" in node.meta:
        return str(node.meta["output"])
    if not name.startswith("_col_"):
        return name
    # A star has brought in a column that has no name: the one that it would have outside is its own.
    inner = [
        q.this for q in tree.find_all(exp.Subquery, exp.CTE) if isinstance(node, exp.Column) and q.alias == node.table
    ]
    found = [p for query in inner for p in query.selects if p.alias_or_name == node.name]
    return _output_name(found[0], inner[0]) if found else "?column?"


def _postgres_name(node: exp.Expr) -> str:
    """Return the name that PostgreSQL gives to a column without alias."""
    match node:
        case exp.Paren() | exp.Filter() | exp.Window() | exp.WithinGroup() | exp.IgnoreNulls() | exp.RespectNulls():
            return _postgres_name(node.this)
        case exp.Cast():
            inner = _postgres_name(node.this)
            kind = node.to.this.value.lower()
            return inner if inner not in ("?column?", "case", *TYPE_NAMES.values()) else TYPE_NAMES.get(kind, kind)
        case exp.Column():
            return node.name
        case exp.Case():
            default = _postgres_name(node.args["default"]) if node.args.get("default") else "?column?"
            return default if default != "?column?" else "case"
        case exp.Subquery(this=exp.Query(selects=[output])):
            return output.alias_or_name if isinstance(output, exp.Alias | exp.Column) else _postgres_name(output)
        case exp.Func() if "name" in node.meta or isinstance(node, exp.Exists):
            return function_name(node)
        case exp.GroupConcat():
            return "string_agg"
        case exp.StrPosition():
            return "position"
        case exp.Trim():
            return "btrim"
        case exp.Binary() | exp.Connector() | exp.Not() | exp.Neg() | exp.Predicate():
            return "?column?"
        case exp.Func():
            return function_name(node)
    return "?column?"


TYPE_NAMES = {
    "smallint": "int2",
    "int": "int4",
    "bigint": "int8",
    "float": "float4",
    "double": "float8",
    "decimal": "numeric",
    "boolean": "bool",
    "text": "text",
    "varchar": "varchar",
    "date": "date",
    "timestamp": "timestamp",
}
"""What PostgreSQL calls a column that is a bare cast to a type."""


# --- structure ---------------------------------------------------------------------------------------------


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
            flat = _Flat(self, scope, alias)
            if _is_aggregate(select):
                rewriter = _Rewriter(flat, f"__m{len(self.measured)}")
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
        return isinstance(source, exp.Table) and _table_key(source) in self.catalog.protected

    def _refuse_rows(self, scope: Scope) -> None:
        if id(scope.expression) in self.rows:
            raise _raw_rows(scope.expression)

    def _refuse_rows_below(self, scope: Scope) -> None:
        for child in scope.subquery_scopes:
            self._refuse_rows(child)

    def _keep_rows(self, scope: Scope, flat: _Flat) -> None:
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


class _Flat:
    """One scope over protected rows, flattened: base table, public joins and conditions in base terms."""

    def __init__(self, compiler: _Compiler, scope: Scope, alias: str) -> None:
        self.compiler, self.scope = compiler, scope
        select, source = scope.expression, scope.selected_sources[alias][1]
        if isinstance(source, Scope):
            inner = compiler.rows[id(source.expression)]
            self.rows = _Rows(inner.table, inner.columns, list(inner.joins), list(inner.where))
        else:
            self.rows = _Rows(compiler.catalog.protected[_table_key(source)], _base_column)
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
        if _calls(node):
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
        catalog, key = self.compiler.catalog, _table_key(table)
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


def _raw_rows(node: exp.Expr) -> Forbidden:
    source = node.args.get("from_") if isinstance(node, exp.Select) else None
    return Forbidden("single rows are never shown", hint=AGGREGATES_HINT, span=span(source or node))


# --- aggregates --------------------------------------------------------------------------------------------

WINDOW_ONLY = (
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag, exp.Lead,
    exp.FirstValue, exp.LastValue, exp.NthValue,
)  # fmt: skip
QUANTILE_NAMES = {"quantile_cont": True, "quantile_disc": False, "quantile": False}


def _is_aggregate(select: exp.Select) -> bool:
    parts = [*select.expressions, *(select.args.get(a) for a in ("having", "order", "qualify"))]
    return bool(
        select.args.get("group")
        or select.args.get("distinct")
        or any(_calls(part) for part in parts if part is not None)
    )


def _calls(node: exp.Expr) -> bool:
    """Return whether an aggregate that is not a window function stands in `node`, subqueries left aside."""
    if isinstance(node, exp.Query | exp.Subquery):
        return False
    if isinstance(node, exp.Window):
        return any(_calls(part) for part in _window_parts(node))
    return _is_call(node) or any(_calls(child) for child in node.iter_expressions())


def _window_parts(window: exp.Window) -> list[exp.Expr]:
    """Return what a window function computes from: its arguments, not the function itself."""
    function = window.this
    while isinstance(function, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        function = function.this
    return [
        *function.iter_expressions(),
        *(part for part in window.iter_expressions() if part is not window.this),
    ]


def _is_call(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return function_name(node) in QUANTILE_NAMES
    return isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup) and not isinstance(node, WINDOW_ONLY)


class _Rewriter:
    """Rewrites one aggregate SELECT into a SELECT over its noisy relation, collecting the aggregates."""

    def __init__(self, flat: _Flat, relation: str) -> None:
        self.flat, self.relation = flat, relation
        self.aggregates: list[Aggregate] = []
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
            self.relation, rows.table, tuple(rows.joins), tuple(rows.where), keys, sets, tuple(aggregates)
        )

    # Group keys.

    def _grouping(self, select: exp.Select) -> tuple[tuple[int, ...], ...]:
        group = select.args.get("group")
        if group is None and not any(_calls(node) for node in select.expressions) and select.args.get("distinct"):
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
            position = int(node.name) if node.name.isdigit() else 0
            if not 1 <= position <= len(select.expressions):
                raise NotGrouped(
                    f"GROUP BY position {node.name} is not in the select list",
                    hint="positions count from 1",
                    span=span(node),
                )
            return select.expressions[position - 1].unalias()  # type: ignore[no-any-return]
        return node

    def _key(self, node: exp.Expr) -> int:
        if _calls(node):
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
        if _is_call(node):
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
        for part in _window_parts(node):
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
        kind = found.argument.type if found.kind == "quantile" and found.argument is not None else node.type
        return self._column(f"a{keys.index(found.key)}", kind)

    def _aggregate(self, node: exp.Expr) -> Aggregate:
        inner, condition = node, None
        if isinstance(node, exp.Filter):
            inner, condition = node.this, self.flat.resolve(node.expression.this)
        kind, argument, options = _read_call(inner)
        for part in (argument, condition):
            if part is not None and _calls(part):
                raise NotGrouped("aggregates can't be nested", hint="use an outer query", span=span(inner))
        resolved = self.flat.resolve(argument) if argument is not None else None
        return Aggregate(kind, resolved, condition, span=span(node), **options)  # type: ignore[arg-type]

    # Errors of answers.

    def append_intervals(self, select: exp.Select) -> Iterator[int]:
        """Append a low and a high column for every numeric output that is made of aggregates; yield its index."""
        for index, projection in enumerate(list(select.expressions)):
            value = projection.unalias()
            plain = not value.find(exp.Window, exp.Query) and self._indices(value)
            if plain and value.type is not None and value.is_type(*exp.DataType.NUMERIC_TYPES):
                for end in ("low", "high"):
                    select.append("expressions", exp.alias_(self._interval(value, end), f"__{end}_{index}"))
                yield index

    def _indices(self, value: exp.Expr) -> list[int]:
        names = {c.name for c in value.find_all(exp.Column) if c.table == self.relation}
        return sorted(int(name[1:]) for name in names if name[0] == "a")

    def _interval(self, value: exp.Expr, end: str, *, wanted: bool = False) -> exp.Expr:
        """Return the SQL of one end of the interval around `value`, or of its standard deviation."""
        indices = self._indices(value)
        if not indices or value.find(exp.Window, exp.Query):
            raise Unsupported(
                "an interval needs a plain expression of aggregates",
                hint="for example: SELECT count(*) AS n, DP_INTERVAL_LOW(n) FROM …",
                span=span(value),
            )
        bare = value.unnest()
        if isinstance(bare, exp.Column):
            if wanted:
                self.aggregates[indices[0]] = replace(self.aggregates[indices[0]], interval=True)
            return self._column(f"{end}{indices[0]}")
        deviation = self._deviation(value, indices)
        if end == "sd":
            return deviation
        operator = exp.Sub if end == "low" else exp.Add
        reach = exp.Mul(this=self._column("z"), expression=deviation)
        return operator(this=exp.Paren(this=value.copy()), expression=reach)

    def _deviation(self, value: exp.Expr, indices: list[int]) -> exp.Expr:
        """Return sqrt(sum_ij r_ij d_i d_j), d_i = (f(a_i + s_i) - f(a_i - s_i)) / 2: the delta method, in SQL."""
        halves = {
            i: exp.Paren(this=_half_difference(value, self._column(f"a{i}"), self._column(f"sd{i}"))) for i in indices
        }
        terms: list[exp.Expr] = []
        for i, j in itertools.combinations_with_replacement(indices, 2):
            product = exp.Mul(this=halves[i].copy(), expression=halves[j].copy())
            weight = (
                exp.Literal.number(1)
                if i == j
                else exp.Mul(this=exp.Literal.number(2), expression=self._column(f"r{i}_{j}"))
            )
            terms.append(exp.Mul(this=weight, expression=product))
        total = terms[0]
        for term in terms[1:]:
            total = exp.Add(this=total, expression=term)
        return exp.Sqrt(this=exp.Abs(this=total))


def _half_difference(value: exp.Expr, column: exp.Column, deviation: exp.Column) -> exp.Expr:
    def moved(sign: type[exp.Binary]) -> exp.Expr:
        def shift(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and node.name == column.name and node.table == column.table:
                center = exp.cast(column.copy(), exp.DataType.Type.DOUBLE)
                return exp.Paren(this=sign(this=center, expression=deviation.copy()))
            if isinstance(node, exp.IntDiv):  # the slope of a division that truncates is that of one that does not
                return exp.Div(this=node.left, expression=node.right)
            return node

        return exp.Paren(this=exp.Paren(this=value.copy()).transform(shift))

    difference = exp.Sub(this=moved(exp.Add), expression=moved(exp.Sub))
    return exp.Div(this=exp.Paren(this=difference), expression=exp.Literal.number("2.0"))


def _check_sets(count: int) -> None:
    if count > MAX_SETS:
        raise TooLarge(
            f"the query has {count:,} grouping sets, the limit is {MAX_SETS}", hint="ask for fewer sets at a time"
        )


def _is_sets(node: exp.Expr) -> bool:
    return isinstance(node, exp.GroupingSets | exp.Rollup | exp.Cube)


def _read_call(node: exp.Expr) -> tuple[str, exp.Expr | None, dict[str, object]]:
    """Return (kind, argument, options) of an aggregate call, or refuse it."""
    match node:
        case exp.Count(this=exp.Distinct(expressions=[argument])):
            return "distinct", argument, {}
        case exp.Count(this=exp.Star() | exp.Column(this=exp.Star()) | None):
            return "count", None, {}
        case exp.AggFunc(this=exp.Order(this=argument)) if isinstance(node, exp.Count | exp.Sum | exp.Avg):
            plain = node.copy()
            plain.set("this", argument.copy())
            return _read_call(plain)
        case exp.Count(this=argument) if not isinstance(argument, exp.Distinct) and not node.expressions:
            return "count", argument, {}
        case exp.Sum(this=argument) | exp.Avg(this=argument) if not isinstance(argument, exp.Distinct):
            return node.key, argument, {}
        case exp.VariancePop(this=argument):
            return "variance", argument, {"sample": False}
        case exp.StddevPop(this=argument):
            return "stddev", argument, {"sample": False}
        case exp.Variance(this=argument):
            return "variance", argument, {}
        case exp.Stddev(this=argument) | exp.StddevSamp(this=argument):
            return "stddev", argument, {}
        case exp.Median(this=argument):
            return "quantile", argument, {"p": Fraction(1, 2), "continuous": True}
        case exp.WithinGroup(
            this=exp.PercentileCont() | exp.PercentileDisc(), expression=exp.Order(expressions=[term])
        ):
            level = _level(node.this.this)
            descending = isinstance(term, exp.Ordered) and term.args.get("desc")
            options: dict[str, object] = {
                "p": 1 - level if descending else level,
                "continuous": isinstance(node.this, exp.PercentileCont),
            }
            return "quantile", term.this if isinstance(term, exp.Ordered) else term, options
        case exp.Anonymous(expressions=[argument, level]) if function_name(node) in QUANTILE_NAMES:
            return (
                "quantile",
                argument,
                {"p": _level(level), "continuous": QUANTILE_NAMES[function_name(node)]},
            )
        case exp.Quantile(this=argument):
            return "quantile", argument, {"p": _level(node.args["quantile"])}
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
    try:
        level = Fraction(node.unnest().name) if isinstance(node.unnest(), exp.Literal) else Fraction(node.sql())
    except (ValueError, ZeroDivisionError):
        level = Fraction(-1)
    if not 0 <= level <= 1:
        raise Unsupported(
            "a quantile's level must be one number between 0 and 1",
            hint="for example: percentile_cont(0.25) WITHIN GROUP (ORDER BY …)",
            span=span(node),
        )
    return level.limit_denominator(10_000)
