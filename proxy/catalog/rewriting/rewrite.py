"""From a PostgreSQL tree over its catalog to a DuckDB tree over ours.

Each rule takes a node whose children are done already and returns what stands in its place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from sqlglot import exp

from planner.basics.errors import SyntaxRefusal, UnknownFunction, UnknownTable, Unsupported
from planner.basics.nodes import function_name, span
from planner.duck.sandbox import REFUSED_NODES
from planner.sql import meaning
from proxy.catalog import kinds
from proxy.catalog.names import Directory
from proxy.catalog.parse import CATALOG, INFORMATION, Relations, definition, is_function, schema_of
from proxy.catalog.relations.functions import FUNCTIONS, PRIVILEGES, TABLES
from proxy.catalog.relations.store import SCHEMAS
from proxy.catalog.rewriting.calls import CONSTANTS, LEAST_ARGUMENTS, PLAIN, RENAMED, series
from proxy.catalog.rewriting.infer import Inference, number_of, output_name
from proxy.catalog.rewriting.trees import as_text, cast, character, limited, own_call, read
from proxy.catalog.variables import SERVER_VERSION

USER, DATABASE = "s_user", "s_database"
"""Parameters that the session fills in."""

SETTING = "c_"
"""Begins the name of a parameter that is the value of a setting."""

IN_DATABASE = frozenset(
    {"table_catalog", "catalog_name", "udt_catalog", "constraint_catalog", "view_catalog", "specific_catalog"}
    | {"routine_catalog", "domain_catalog", "sequence_catalog", "trigger_catalog", "event_object_catalog"}
)
"""Columns of information_schema that name the database."""

ALLOWED_NODES = tuple(
    getattr(exp, name) for name in ("Rand", "Uuid", "Lateral", "Parameter", "CurrentCatalog") if hasattr(exp, name)
)

AGGREGATES = frozenset(
    {"all", "any", "any_value", "array_agg", "avg", "bit_and", "bit_or", "bool_and", "bool_or", "count", "every"}
    | {"json_agg", "max", "min", "mode", "percentile_cont", "percentile_disc", "stddev", "stddev_pop", "stddev_samp"}
    | {"string_agg", "sum", "unnest", "var_pop", "var_samp", "variance"}
)

OPERATORS: dict[str, Callable[[exp.Expr, exp.Expr], exp.Expr]] = {
    "~": lambda a, b: exp.RegexpLike(this=a, expression=b),
    "~*": lambda a, b: exp.RegexpILike(this=a, expression=b),
    "!~": lambda a, b: exp.Not(this=exp.RegexpLike(this=a, expression=b)),
    "!~*": lambda a, b: exp.Not(this=exp.RegexpILike(this=a, expression=b)),
    "~~": lambda a, b: meaning.like(exp.Like(this=a, expression=b)),
    "!~~": lambda a, b: exp.Not(this=meaning.like(exp.Like(this=a, expression=b))),
    "=": lambda a, b: exp.EQ(this=a, expression=b),
    "<>": lambda a, b: exp.NEQ(this=a, expression=b),
    "<": lambda a, b: exp.LT(this=a, expression=b),
    ">": lambda a, b: exp.GT(this=a, expression=b),
    "<=": lambda a, b: exp.LTE(this=a, expression=b),
    ">=": lambda a, b: exp.GTE(this=a, expression=b),
    "+": lambda a, b: exp.Add(this=a, expression=b),
    "-": lambda a, b: exp.Sub(this=a, expression=b),
    "||": lambda a, b: exp.DPipe(this=a, expression=b),
}


@dataclass(kw_only=True)
class Rewritten:
    """A statement for DuckDB: its tree, what PostgreSQL would call its columns, and what it must be given."""

    tree: exp.Query
    outputs: list[tuple[str, str | None]]
    parameters: dict[int, str]
    session: set[str] = field(default_factory=set)
    settings: list[tuple[str, bool]] = field(default_factory=list)
    volatile: bool = False


class Rewriter:
    """Rewrites one tree, which it may change."""

    def __init__(self, tree: exp.Query, directory: Directory, relations: Relations, stated: Mapping[int, str]) -> None:
        self._tree, self._directory, self._relations = tree, directory, relations
        self._inference = Inference(relations, stated)

    def run(self, functions: frozenset[str]) -> Rewritten:
        """Return the tree for DuckDB; `functions` are those that it may call beside ours."""
        inference = self._inference
        outputs = inference.outputs(self._tree)
        for node in self._tree.walk():
            node.meta["kind"] = inference.kind(node) if isinstance(node, exp.Condition | exp.Subquery) else None
        self._result = Rewritten(tree=self._tree, outputs=outputs, parameters=inference.parameters)
        for select in list(self._tree.find_all(exp.Select)):
            _name_outputs(select)
        self._check_names()
        for node in reversed(list(self._tree.walk(bfs=False))):
            self._apply(node)
        self._result.tree = self._tree
        _check(self._tree, functions)
        return self._result

    def _check_names(self) -> None:
        """Raise if a function is called that PostgreSQL does not have: what is only DuckDB's is nobody's business."""
        for node in self._tree.find_all(exp.Func):
            name = node.name.lower() if isinstance(node, exp.Anonymous) else node.meta.get("name")
            if name is not None and name not in self._directory.functions and name not in SYNTAX:
                raise UnknownFunction(f"there is no function {name}", hint="see pg_proc", span=span(node))

    def _apply(self, node: exp.Expr) -> None:
        rule = RULES.get(type(node))
        if rule is None:
            return
        kind, parent, key, index = node.meta.get("kind"), node.parent, node.arg_key, node.index
        new = rule(self, node)
        if new is not node:
            new.meta["kind"] = kind
            if parent is not None and key is not None:  # the rule may have put the node below the new one
                parent.set(key, new, index=index)

    # --- relations

    def table(self, node: exp.Table) -> exp.Expr:
        if is_function(node):
            return self._table_function(node)
        schema = schema_of(node, self._relations)
        if not node.db and definition(node) is not None:
            return node
        if schema is None:
            raise Unsupported(
                "tables of the catalog and of the policy can't be combined",
                hint="ask about one of them at a time",
                span=span(node),
            )
        name = node.name.lower()
        columns = self._relations[schema].get(name)
        if columns is None:
            raise UnknownTable(f'relation "{schema}.{name}" does not exist', hint="see pg_class", span=span(node))
        names = IN_DATABASE if schema == INFORMATION else {"datname"} if name == "pg_database" else set()
        filled = [column for column in columns if column in names]
        table = exp.table_(name, db=SCHEMAS[schema], quoted=True)
        alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(name, quoted=True))
        source: exp.Expr = table
        if filled:
            star = exp.Star(replace=[exp.alias_(self._session(DATABASE), c, quoted=True) for c in filled])
            source = exp.Subquery(this=exp.select(star).from_(table))
        source.set("alias", alias)
        for part in ("joins", "laterals"):
            if node.args.get(part):
                source.set(part, node.args[part])
        return source

    def _table_function(self, node: exp.Table) -> exp.Expr:
        call, alias = node.this, node.args.get("alias")
        name = function_name(call)
        if name in TABLES:
            columns = TABLES[name].columns
            if name in STORED:
                source: exp.Expr = exp.table_(name, db="pg", quoted=True)
            else:
                empty = exp.select(*(exp.alias_(cast(exp.null(), kind), c) for c, kind in columns.items()))
                source = exp.Subquery(this=empty.where(exp.false()))
            source.set("alias", alias or exp.TableAlias(this=exp.to_identifier(name)))
            return source
        if alias is None:
            alias = exp.TableAlias(this=exp.to_identifier(name))
        if not alias.columns:
            alias.set("columns", [alias.this.copy()])
        if not isinstance(call, exp.Explode | exp.Unnest):
            return exp.Subquery(this=exp.select(call), alias=alias)  # a plain function gives one row
        items = call.this if isinstance(call, exp.Explode) else call
        return exp.Table(this=exp.Anonymous(this="unnest", expressions=[items]), alias=alias)

    def lateral(self, node: exp.Lateral) -> exp.Expr:
        """Return a function as DuckDB wants it: it may always refer to what stands before it."""
        if isinstance(node.this, exp.Subquery):
            return node
        return self._table_function(exp.Table(this=node.this, alias=node.args.get("alias")))

    def unnest(self, node: exp.Unnest) -> exp.Expr:
        alias = node.args.get("alias")
        if alias is not None and not alias.columns:
            alias.set("columns", [alias.this.copy()])
        return node

    def column(self, node: exp.Column) -> exp.Expr:
        name, bare = node.name.lower(), not node.table and not node.this.args.get("quoted")
        if bare and name in ("user", "current_role") and not isinstance(node.this, exp.Star):
            return self._session(USER)
        if name == "tableoid":
            return self._tableoid(node)
        if name in ("xmin", "xmax", "cmin", "cmax") and node.meta.get("kind") == "xid":
            return cast(exp.Literal.number(1 if name == "xmin" else 0), "xid")
        if node.args.get("db"):
            node.set("db", None)
            node.set("catalog", None)
        return node

    def _tableoid(self, node: exp.Column) -> exp.Expr:
        select = node.find_ancestor(exp.Select)
        for table in select.find_all(exp.Table, exp.Subquery) if select is not None else []:
            known = table.find(exp.Table)
            if node.table.lower() in ("", table.alias_or_name.lower()) and known is not None:
                return cast(exp.Literal.number(self._directory.classes.get(known.name.lower(), 0)), "oid")
        return node

    # --- values

    def parameter(self, node: exp.Parameter) -> exp.Expr:
        number = number_of(node)
        if not number:
            raise SyntaxRefusal("parameters are numbered: $1, $2, …", hint="use $1", span=span(node))
        kind = self._inference.parameters[number]
        value = exp.Parameter(this=exp.Var(this=f"p{number}"))
        return value if kind == "numeric" else cast(value, kind)

    def text(self, node: exp.Expr) -> exp.Expr:
        return exp.Literal.string(node.name)

    def unicode(self, node: exp.UnicodeString) -> exp.Expr:
        """Return U&'d\\0061t' as the text that it stands for."""
        return exp.Literal.string(re.sub(r"\\(?:\+([0-9a-fA-F]{6})|([0-9a-fA-F]{4}))", character, node.name))

    def literal(self, node: exp.Literal) -> exp.Expr:
        if node.is_string or "e" not in node.name.lower():
            return node
        return exp.Literal.number(format(Decimal(node.name), "f"))  # a number with an exponent is exact

    def cast(self, node: exp.Cast) -> exp.Expr:
        kind, inner = kinds.of_type(node.to), node.this
        source = inner.meta.get("kind")
        if not kinds.is_known(kind):
            raise Unsupported(f"type {kind} is not known here", hint="see pg_type", span=span(node))
        if kind in kinds.REGISTERED:
            return self._registered(inner, kind, source)
        if inner.is_string and kind not in kinds.TEXTS:
            return read(inner.name, kind, node)
        if kind in kinds.TEXTS:
            return limited(as_text(inner, source), node.to)
        if kind == "numeric" and source in (*kinds.INTEGERS, "numeric"):
            return node if node.to.expressions else inner  # exact already, with as many digits as it has
        return cast(inner, kind)

    def _registered(self, inner: exp.Expr, kind: str, source: str | None) -> exp.Expr:
        if inner.is_string:
            found = FUNCTIONS[f"to_{kind}"].call(self._directory, inner.name) if f"to_{kind}" in FUNCTIONS else None
            if found is None and inner.name != "-":
                raise UnknownTable(f'{WHAT.get(kind, kind)} "{inner.name}" does not exist', hint="check its name")
            return cast(exp.Literal.number(found or 0), kind)
        if source in kinds.TEXTS or (isinstance(inner, exp.Cast) and kinds.of_type(inner.to) in kinds.TEXTS):
            return own_call(f"to_{kind}", [inner]) if f"to_{kind}" in FUNCTIONS else cast(inner, kind)
        return cast(inner, kind)

    def bracket(self, node: exp.Bracket) -> exp.Expr:
        if len(node.expressions) != 1 or isinstance(node.expressions[0], exp.Slice):
            return node
        [index] = node.expressions
        shift = 1 + (node.this.meta.get("kind") in kinds.VECTORS)
        if isinstance(index, exp.Literal | exp.Neg) and index.is_int:  # sqlglot counts these from 0
            place: exp.Expr = exp.Literal.number(int(index.to_py()) + shift)
        else:
            place = index if shift == 1 else exp.Add(this=exp.Paren(this=index), expression=exp.Literal.number(1))
        return exp.Anonymous(this="list_extract", expressions=[node.this, place])

    # --- operators

    def operator(self, node: exp.Operator) -> exp.Expr:
        symbol = str(node.args["operator"]).rpartition(".")[2]
        if symbol not in OPERATORS:
            raise Unsupported(f"operator {symbol} is not known here", hint="see pg_operator", span=span(node))
        return OPERATORS[symbol](node.this, node.expression)

    def collate(self, node: exp.Collate) -> exp.Expr:
        inner: exp.Expr = node.this
        return inner

    def round(self, node: exp.Round) -> exp.Expr:
        return meaning.rounded(node) if node.this.meta.get("kind") in ("float4", "float8") else node

    def divide(self, node: exp.Div) -> exp.Expr:
        both = (node.left.meta.get("kind"), node.right.meta.get("kind"))
        whole = all(kind in kinds.INTEGERS for kind in both)
        return exp.IntDiv(this=node.this, expression=node.expression) if whole else node

    def concat(self, node: exp.DPipe) -> exp.Expr:
        both = (node.left.meta.get("kind"), node.right.meta.get("kind"))
        if all(kinds.is_array(kind) for kind in both):
            return exp.Anonymous(this="list_concat", expressions=[node.left, node.right])
        return node

    def any_of(self, node: exp.Any) -> exp.Expr:
        inner = node.this.this if isinstance(node.this, exp.Paren) else node.this
        if inner.is_string:
            other = node.parent.this.meta.get("kind") if isinstance(node.parent, exp.Binary) else None
            node.set("this", exp.Paren(this=read(inner.name, kinds.array_of(other or "text"), node)))
        return node

    def dot(self, node: exp.Dot) -> exp.Expr:
        schema = node.this.name.lower() if isinstance(node.this, exp.Identifier) else ""
        return node.expression if schema in (CATALOG, INFORMATION) else node

    # --- functions

    def anonymous(self, node: exp.Anonymous) -> exp.Expr:
        name, arguments = node.name.lower(), list(node.expressions)
        if len(arguments) < LEAST_ARGUMENTS.get(name, 0):
            raise UnknownFunction(f"function {name} takes {LEAST_ARGUMENTS[name]} arguments", hint="see pg_proc")
        if name in PRIVILEGES and len(arguments) == 2:
            arguments = [self._session(USER), *arguments]
        if name == "pg_has_role" and len(arguments) == 2:
            arguments = [self._session(USER), *arguments]
        if name == "has_column_privilege":
            return self._column_privilege(arguments)
        if name in FUNCTIONS:
            return own_call(name, arguments)
        if name in CONSTANTS:
            return exp.convert(CONSTANTS[name])
        if name in TABLES and isinstance(node.parent, exp.Table | exp.Lateral):
            return node
        if name in TABLES:  # in a select list
            kind = next(iter(TABLES[name].columns.values()))
            return exp.Explode(this=cast(exp.Array(expressions=[]), kinds.array_of(kind)))
        if name in PLAIN:
            return PLAIN[name](arguments)
        if name in SPECIAL:
            return SPECIAL[name](self, arguments)
        node.set("this", RENAMED.get(name, name))
        if isinstance(node.parent, exp.Dot):  # pg_catalog.upper: sqlglot knows it without its schema
            return exp.func(node.name, *arguments, dialect="postgres")
        return node

    def series(self, node: exp.ExplodingGenerateSeries) -> exp.Expr:
        return exp.Explode(this=series(node.args["start"], node.args["end"], node.args.get("step")))

    def repeat(self, node: exp.Repeat) -> exp.Expr:
        return exp.Anonymous(this="own_repeat", expressions=[node.this, node.args["times"]])

    def pad(self, node: exp.Pad) -> exp.Expr:
        size = exp.Anonymous(this="own_size", expressions=[node.expression])
        filling = node.args.get("fill_pattern") or exp.Literal.string(" ")
        name = "lpad" if node.args.get("is_left") else "rpad"
        return exp.Anonymous(this=name, expressions=[node.this, size, filling])

    def format(self, node: exp.Format) -> exp.Expr:
        texts = [as_text(argument, argument.meta.get("kind")) for argument in node.expressions]
        return own_call("format", [node.this, exp.Array(expressions=texts)])

    def _column_privilege(self, arguments: list[exp.Expr]) -> exp.Expr:
        user = [self._session(USER)] if len(arguments) == 3 else arguments[:1]
        table, _, privilege = arguments[-3:]
        return own_call("has_table_privilege", [*user, table, privilege])

    def _session(self, name: str) -> exp.Expr:
        self._result.session.add(name)
        return cast(exp.Parameter(this=exp.Var(this=name)), "name")

    def user(self, _: object) -> exp.Expr:
        return self._session(USER)

    def database(self, _: object) -> exp.Expr:
        return self._session(DATABASE)

    def schema(self, _: object) -> exp.Expr:
        return exp.Literal.string("public")

    def schemas(self, node: exp.CurrentSchemas) -> exp.Expr:
        return self.schemas_of([node.this])

    def schemas_of(self, arguments: list[exp.Expr]) -> exp.Expr:
        implicit = bool(arguments) and isinstance(arguments[0], exp.Boolean) and arguments[0].this
        return exp.Array(expressions=[exp.Literal.string(name) for name in [CATALOG] * implicit + ["public"]])

    def version(self, _: object) -> exp.Expr:
        return exp.Literal.string(VERSION)

    def setting(self, arguments: list[exp.Expr]) -> exp.Expr:
        if arguments and not arguments[0].is_string:
            return own_call("default_setting", arguments[:1])
        missing_ok = len(arguments) > 1 and isinstance(arguments[1], exp.Boolean) and bool(arguments[1].this)
        self._result.settings.append((arguments[0].name.lower(), missing_ok))
        return cast(exp.Parameter(this=exp.Var(this=f"{SETTING}{len(self._result.settings) - 1}")), "text")

    def clock(self, node: exp.Expr) -> exp.Expr:
        self._result.volatile = True
        return node

    def typeof(self, arguments: list[exp.Expr]) -> exp.Expr:
        kind = arguments[0].meta.get("kind") or "unknown"
        return cast(exp.Literal.number(kinds.oid_of(kind)), "regtype")


def _name_outputs(select: exp.Select) -> None:
    """Give every output column the name that PostgreSQL would, unless it is a star."""
    named = []
    for item in select.expressions:
        if isinstance(item, exp.Alias):
            item.set("alias", exp.to_identifier(output_name(item), quoted=True))
        elif not item.is_star:
            name = output_name(item)
            kind = item.meta.get("kind")
            item = exp.Alias(this=item, alias=exp.to_identifier(name, quoted=True))
            item.meta["kind"] = kind
        named.append(item)
    select.set("expressions", named)


WHAT = {"regclass": "relation", "regtype": "type", "regproc": "function", "regrole": "role", "regnamespace": "schema"}
"""What a cast to such a type names, for people."""

STORED = ("pg_get_keywords",)
SPECIAL: dict[str, Callable[[Rewriter, list[exp.Expr]], exp.Expr]] = {
    "current_setting": Rewriter.setting,
    "pg_typeof": Rewriter.typeof,
    "version": Rewriter.version,
    "current_database": Rewriter.database,
    "current_schemas": Rewriter.schemas_of,
    "current_user": Rewriter.user,
    "session_user": Rewriter.user,
    "pg_backend_pid": lambda self, _: cast(self.setting([exp.Literal.string("pg_backend_pid")]), "int4"),
    "pg_postmaster_start_time": lambda self, _: self.clock(exp.CurrentTimestamp()),
    "pg_conf_load_time": lambda self, _: self.clock(exp.CurrentTimestamp()),
}
"""Functions that depend on the session or on types."""

SYNTAX = frozenset(
    {"all", "any", "array", "case", "cast", "coalesce", "current_catalog", "current_date", "current_role", "exists"}
    | {
        "current_schema",
        "current_time",
        "current_timestamp",
        "current_user",
        "extract",
        "greatest",
        "interval",
        "least",
    }
    | {"localtime", "localtimestamp", "nullif", "session_user", "some", "trim", "user", "_pg_expandarray", "if"}
)
"""What looks like a function and is not in pg_proc."""

REFUSED = ("current_query", "getvariable", "row", "struct_pack")
"""Functions of DuckDB's that tell about it, or give what PostgreSQL writes in another way."""

RULES: dict[type[exp.Expr], Callable[..., exp.Expr]] = {
    exp.Table: Rewriter.table,
    exp.Unnest: Rewriter.unnest,
    exp.Lateral: Rewriter.lateral,
    exp.Column: Rewriter.column,
    exp.Parameter: Rewriter.parameter,
    exp.ByteString: Rewriter.text,
    exp.RawString: Rewriter.text,
    exp.UnicodeString: Rewriter.unicode,
    exp.Cast: Rewriter.cast,
    exp.Bracket: Rewriter.bracket,
    exp.Operator: Rewriter.operator,
    exp.Collate: Rewriter.collate,
    exp.Like: lambda _, node: meaning.like(node),
    exp.ILike: lambda _, node: meaning.like(node),
    exp.Div: Rewriter.divide,
    exp.Any: Rewriter.any_of,
    exp.DPipe: Rewriter.concat,
    exp.Dot: Rewriter.dot,
    exp.Anonymous: Rewriter.anonymous,
    exp.Format: Rewriter.format,
    exp.ExplodingGenerateSeries: Rewriter.series,
    exp.Repeat: Rewriter.repeat,
    exp.Pad: Rewriter.pad,
    exp.Literal: Rewriter.literal,
    exp.Extract: lambda _, node: meaning.extract(node),
    exp.Round: Rewriter.round,
    exp.SimilarTo: lambda _, node: meaning.similar(node),
    exp.Substring: lambda _, node: meaning.substring(node),
    exp.WidthBucket: lambda _, node: meaning.width_bucket(node),
    exp.CurrentUser: Rewriter.user,
    exp.SessionUser: Rewriter.user,
    exp.CurrentDatabase: Rewriter.database,
    exp.CurrentCatalog: Rewriter.database,
    exp.CurrentSchema: Rewriter.schema,
    exp.CurrentSchemas: Rewriter.schemas,
    exp.CurrentVersion: Rewriter.version,
    exp.CurrentTimestamp: Rewriter.clock,
    exp.CurrentDate: Rewriter.clock,
    exp.CurrentTime: Rewriter.clock,
    exp.Localtimestamp: Rewriter.clock,
    exp.Localtime: Rewriter.clock,
    exp.Rand: Rewriter.clock,
    exp.Uuid: Rewriter.clock,
}

VERSION = f"PostgreSQL {SERVER_VERSION} (Noisegate)"


def _check(tree: exp.Query, functions: frozenset[str]) -> None:
    """Raise if the tree calls what it may not."""
    for node in tree.find_all(exp.Func, *REFUSED_NODES):
        name = function_name(node)
        if isinstance(node, exp.Anonymous):
            if not name.startswith("own_") and (name in REFUSED or name not in functions | AGGREGATES):
                raise UnknownFunction(f"there is no function {name}", hint="see pg_proc", span=span(node))
        elif isinstance(node, REFUSED_NODES) and not isinstance(node, ALLOWED_NODES):
            raise Unsupported(f"{name} can't be used here", hint="leave it out", span=span(node))
