"""Names in a query: tables that there are, columns that are unique, and what the outputs are called."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from planner.basics.errors import AmbiguousColumn, NotGrouped, SyntaxRefusal, UnknownColumn, UnknownTable, Unsupported
from planner.basics.nodes import function_name, span
from planner.sql.dialect import DIALECT
from planner.sql.meaning import TYPES, in_duckdb
from planner.sql.query import AGGREGATES_HINT, INTERVALS, RESERVED, Catalog


def with_views(tree: exp.Query, catalog: Catalog) -> exp.Query:
    own = {cte.alias for cte in tree.find_all(exp.CTE)}
    for table in list(tree.find_all(exp.Table)):
        view = catalog.views.get(table.name) if not table.db or table.db == "public" else None
        if view is not None and table.name not in own:
            alias = table.alias or table.name
            table.replace(exp.Subquery(this=view.copy(), alias=exp.TableAlias(this=exp.to_identifier(alias))))
    return tree


def check_tables(tree: exp.Query, catalog: Catalog) -> None:
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
        name = table_key(table)
        if name not in catalog.types and not (name in own and not table.db):
            raise _unknown_table(table, catalog)


def open_parentheses(tree: exp.Query) -> None:
    """Take FROM (a JOIN b ON …) and FROM (a) out of their parentheses, which mean nothing there."""
    for select in tree.find_all(exp.Select):
        from_ = select.args.get("from_")
        while from_ is not None and _is_parenthesised(from_.this):
            inner = from_.this.this
            joins = [*(inner.args.get("joins") or ()), *(from_.this.args.get("joins") or ())]
            inner.set("joins", None)
            from_.set("this", inner)
            select.set("joins", [*joins, *(select.args.get("joins") or ())])


def _is_parenthesised(source: exp.Expr) -> bool:
    inner = source.this if isinstance(source, exp.Paren | exp.Subquery) else None
    return isinstance(inner, exp.Table | exp.Subquery) and not source.alias


def spell_columns(tree: exp.Query, catalog: Catalog) -> None:
    """Spell names as the policy does where only one column can be meant: PostgreSQL would fold them to small letters.

    A name in quotes is taken as it stands if there is such a column.
    """
    known = {name for columns in catalog.types.values() for name in columns}
    spellings: dict[str, set[str]] = {}
    for name in known:
        spellings.setdefault(name.lower(), set()).add(name)
    for node in tree.find_all(exp.Identifier):
        name = node.name if node.quoted else node.name.lower()
        if name not in known and len(meant := spellings.get(name.lower(), set())) == 1 and _names_column(node):
            node.meta["written"] = name
            node.set("this", next(iter(meant)))
            node.set("quoted", True)
        elif name != name.lower() and name in known:
            node.set("quoted", True)


def _names_column(node: exp.Identifier) -> bool:
    """Return whether a name is that of a column or of an output, not of a table."""
    above = node.parent
    is_output = isinstance(above, exp.Alias | exp.TableAlias) and node.arg_key != "this"
    return (isinstance(above, exp.Column) and node.arg_key == "this") or is_output


def check_sources(tree: exp.Query, catalog: Catalog) -> None:
    """Refuse every name that is not, where it stands, a table of the policy or an item of WITH.

    The sandbox has relations of its own, such as duckdb_tables, which an item of WITH elsewhere must not open.
    """
    for scope in traverse_scope(tree):
        for source in scope.sources.values():
            if isinstance(source, exp.Table) and table_key(source) not in catalog.types:
                raise _unknown_table(source, catalog)


def _unknown_table(table: exp.Table, catalog: Catalog) -> UnknownTable:
    known = ", ".join(sorted(catalog.types))
    return UnknownTable(f"there is no table {table_key(table)}", hint=f"there are: {known}", span=span(table))


def check_outputs(tree: exp.Query) -> None:
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


def table_key(table: exp.Table) -> str:
    parts = [
        part.name if part.quoted else part.name.lower() for part in table.parts if isinstance(part, exp.Identifier)
    ]
    return ".".join(parts)


def inline_interval_aliases(tree: exp.Query) -> None:
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


def qualified(tree: exp.Query, catalog: Catalog) -> exp.Query:
    """Return the tree with every column qualified, stars and ordinals expanded, and written as DuckDB means it."""
    for table in tree.find_all(exp.Table):
        if not table.db and table_key(table) in catalog.types:
            table.set("db", exp.to_identifier("", quoted=True))
    try:
        tree = qualify(tree, schema=catalog.schema, dialect=DIALECT)
        tree = annotate_types(tree, schema=catalog.schema, dialect=DIALECT, expression_metadata=TYPES)
    except OptimizeError as error:
        raise _unresolved(error, tree, catalog) from None
    except SqlglotError as error:
        raise SyntaxRefusal(str(error).splitlines()[0], hint="write it as PostgreSQL would read it") from None
    for whole in tree.find_all(exp.TableColumn):
        raise Unsupported("a whole row can't be a value", hint="name its columns", span=span(whole))
    for table in tree.find_all(exp.Table):
        if not table.db:
            table.set("db", None)
    return in_duckdb(tree.copy())


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


def note_outputs(tree: exp.Query) -> None:
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


def output_names(tree: exp.Query) -> Iterator[str]:
    return (_output_name(projection, tree) for projection in tree.selects)


def _output_name(projection: exp.Expr, tree: exp.Query) -> str:
    name, node = projection.alias_or_name, projection.unalias()
    if isinstance(projection, exp.Alias) and "written" in projection.args["alias"].meta:
        return str(projection.args["alias"].meta["written"])
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
