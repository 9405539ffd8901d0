"""What PostgreSQL would call each output column of a query, and which type it and each parameter would have.

The answer may be None for the type of an expression: then DuckDB's own inference decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlglot import exp

from planner.basics.nodes import function_name
from planner.basics.numerals import whole
from proxy.catalog import kinds
from proxy.catalog.parse import Relations, definition, is_function, schema_of
from proxy.catalog.relations.functions import FUNCTIONS, TABLES

Columns = list[tuple[str, str | None]]
"""Output columns: name and kind."""

UNNAMED = "?column?"

COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Like, exp.ILike,
    exp.RegexpLike, exp.RegexpILike, exp.SimilarTo, exp.In, exp.Between, exp.And, exp.Or, exp.Not, exp.Is, exp.Exists,
    exp.Boolean, exp.LogicalAnd, exp.LogicalOr, exp.Operator, exp.ArrayContainsAll, exp.ArrayOverlaps,
)  # fmt: skip

RETURNS = {
    exp.Count: "int8",
    exp.RowNumber: "int8",
    exp.Length: "int4",
    exp.StrPosition: "int4",
    exp.ArraySize: "int4",
    exp.CurrentUser: "name",
    exp.SessionUser: "name",
    exp.CurrentDatabase: "name",
    exp.CurrentCatalog: "name",
    exp.CurrentSchema: "name",
    exp.CurrentSchemas: "_name",
    exp.CurrentVersion: "text",
    exp.CurrentTimestamp: "timestamptz",
    exp.CurrentDate: "date",
    exp.Localtimestamp: "timestamp",
    exp.Localtime: "time",
    exp.GroupConcat: "text",
    exp.Format: "text",
    exp.Concat: "text",
    exp.ConcatWs: "text",
    exp.Upper: "text",
    exp.Lower: "text",
    exp.Trim: "text",
    exp.Substring: "text",
    exp.Replace: "text",
    exp.ByteString: "text",
    exp.RawString: "text",
    exp.UnicodeString: "text",
    exp.Interval: "interval",
}
SAME = (exp.Paren, exp.Alias, exp.Neg, exp.Collate, exp.Distinct, exp.Window, exp.Filter, exp.Order)
NAMED_NODES = {
    exp.Coalesce: "coalesce",
    exp.Nullif: "nullif",
    exp.Exists: "exists",
    exp.Array: "array",
    exp.CurrentTimestamp: "now",
    exp.CurrentUser: "current_user",
    exp.GroupConcat: "string_agg",
    exp.Explode: "unnest",
    exp.ExplodingGenerateSeries: "generate_series",
    exp.LogicalAnd: "bool_and",
    exp.LogicalOr: "bool_or",
    exp.StrPosition: "position",
    exp.CurrentVersion: "version",
    exp.Tuple: "row",
    exp.Interval: "interval",
    exp.Greatest: "greatest",
    exp.Least: "least",
}


def output_name(node: exp.Expr) -> str:
    """Return the name that PostgreSQL gives an output column that has no alias."""
    return _figure(node)[0] or UNNAMED


def _figure(node: exp.Expr) -> tuple[str | None, bool]:
    """Return the name of an expression, and whether it is better than the one of a cast or a CASE around it."""
    match node:
        case exp.Alias():
            return folded(node.args["alias"]), True
        case exp.Column():
            return folded(node.this), True
        case exp.Cast():
            name, good = _figure(node.this)
            return (name, True) if good else (_type_name(node), False)
        case exp.Paren() | exp.Collate() | exp.Bracket() | exp.Window() | exp.Filter():
            return _figure(node.this)
        case exp.Subquery():
            inner = node.this
            first = inner.selects[0] if isinstance(inner, exp.Query) and inner.selects else None
            return (output_name(first), True) if first is not None else (None, False)
        case exp.Dot():
            return (
                _figure(node.expression) if isinstance(node.expression, exp.Func) else (folded(node.expression), True)
            )
        case exp.Case():
            name, good = _figure(node.args["default"]) if node.args.get("default") else (None, False)
            return (name, True) if good else ("case", False)
        case exp.Pow() if "name" not in node.meta:
            return None, False
        case exp.Trim():
            return TRIMS.get(str(node.args.get("position") or ""), "btrim"), True
        case exp.Cast() | exp.And() | exp.Or() | exp.JSONExtract() | exp.JSONExtractScalar():
            return None, False
        case exp.RegexpLike() | exp.RegexpILike():
            return None, False
        case exp.Func() | exp.Tuple():
            return str(node.meta.get("name") or NAMED_NODES.get(type(node)) or function_name(node)), True
        case _:
            return None, False


TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}


def folded(name: exp.Expr) -> str:
    """Return an identifier as PostgreSQL reads it: in lower case unless it is in quotes."""
    return name.name if name.args.get("quoted") else name.name.lower()


def _type_name(node: exp.Cast) -> str:
    kind = kinds.of_type(node.to)
    return kinds.element(kind) if kinds.is_array(kind) else kind


class Inference:
    """Kinds of the nodes of one tree, which does not change meanwhile."""

    def __init__(self, relations: Relations, declared: Mapping[int, str]) -> None:
        self._relations, self.parameters = relations, dict(declared)
        self._sources: dict[int, list[tuple[str, Columns]]] = {}
        self._kinds: dict[int, str | None] = {}

    # --- relations

    def outputs(self, query: exp.Expr) -> Columns:
        """Return the output columns of a query; a star stands for the columns of its sources."""
        if isinstance(query, exp.Subquery):
            return self.outputs(query.this)
        if isinstance(query, exp.SetOperation):
            left, right = self.outputs(query.left), [] if _recursive(query) else self.outputs(query.right)
            return [(name, self._common(kind, right, i)) for i, (name, kind) in enumerate(left)]
        if isinstance(query, exp.Values):
            row = query.expressions[0].expressions if query.expressions else []
            return [(f"column{i + 1}", self.kind(value)) for i, value in enumerate(row)]
        found: Columns = []
        for item in query.expressions if isinstance(query, exp.Select) else []:
            if isinstance(item, exp.Star):
                found += [column for _, columns in self.sources(query) for column in columns]
            elif isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
                found += [
                    column for name, columns in self.sources(query) if name == item.table.lower() for column in columns
                ]
            else:
                found.append((output_name(item), self.kind(item)))
        return found

    @staticmethod
    def _common(kind: str | None, other: Columns, index: int) -> str | None:
        alternative = other[index][1] if index < len(other) else None
        return alternative if kind in (None, "unknown", "text") and alternative else kind

    def sources(self, select: exp.Expr) -> list[tuple[str, Columns]]:
        """Return what FROM and JOIN bring, by name."""
        if id(select) not in self._sources:
            self._sources[id(select)] = []
            clause = select.args.get("from_")
            items = [clause.this] if clause else []
            for item in [*items, *(join.this for join in select.args.get("joins") or [])]:
                self._sources[id(select)] += self._source(item)
        return self._sources[id(select)]

    def _source(self, item: exp.Expr) -> Iterator[tuple[str, Columns]]:
        if isinstance(item, exp.Subquery) and isinstance(item.this, exp.Table | exp.Subquery):  # a join in parentheses
            yield from self._source(item.this)
            for join in item.args.get("joins") or []:
                yield from self._source(join.this)
            return
        alias = item.args.get("alias")
        name = (item.alias or (item.name if isinstance(item, exp.Table) else "")).lower()
        columns = self._columns_of(item)
        renamed = [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []
        if not renamed and len(columns) == 1 and name and _is_call(item):
            renamed = [name]
        offset = item.args.get("offset")
        if isinstance(offset, exp.Identifier):
            renamed.append(offset.name)
        yield name, [(renamed[i] if i < len(renamed) else c, kind) for i, (c, kind) in enumerate(columns)]
        for join in item.args.get("joins") or []:
            yield from self._source(join.this)

    def _columns_of(self, item: exp.Expr) -> Columns:
        if isinstance(item, exp.Lateral):
            return self._columns_of(item.this)
        if isinstance(item, exp.Subquery | exp.Values):
            return self.outputs(item.this if isinstance(item, exp.Subquery) else item)
        if isinstance(item, exp.Unnest):
            found = [("unnest", self._element(argument)) for argument in item.expressions]
            return [*found, ("ordinality", "int8")] if item.args.get("offset") else found
        if isinstance(item, exp.Table) and not is_function(item):
            return self._table(item)
        call = item.this if isinstance(item, exp.Table) else item
        name = function_name(call)
        if name in TABLES:
            return list(TABLES[name].columns.items())
        return [(output_name(call), self.kind(call))]

    def _table(self, table: exp.Table) -> Columns:
        cte = None if table.db else definition(table)
        if cte is not None:
            columns = self.outputs(cte.this)
            names = [column.name for column in cte.args["alias"].columns]
            return [(names[i] if i < len(names) else c, kind) for i, (c, kind) in enumerate(columns)]
        schema = schema_of(table, self._relations)
        return list(self._relations[schema].get(table.name.lower(), {}).items()) if schema else []

    # --- expressions

    def kind(self, node: exp.Expr | None) -> str | None:
        if node is None:
            return None
        if id(node) not in self._kinds:
            self._kinds[id(node)] = None  # a recursive query ends here
            self._kinds[id(node)] = self._kind(node)
        return self._kinds[id(node)]

    def _kind(self, node: exp.Expr) -> str | None:
        match node:
            case exp.Column():
                return self._column(node)
            case exp.Parameter():
                return self.parameter(node)
            case exp.Cast():
                return kinds.of_type(node.to)
            case exp.Literal():
                return "unknown" if node.is_string else _number(node.name)
            case exp.Null():
                return "unknown"
            case exp.Subquery():
                columns = self.outputs(node.this)
                return columns[0][1] if columns else None
            case exp.Dot():
                return self._field(node)
            case exp.Anonymous():
                return self._call(node)
            case exp.Add() | exp.Sub() | exp.Mul() | exp.Div() | exp.Mod():
                return self._arithmetic(node)
            case _ if isinstance(node, SAME):
                return self.kind(node.this)
            case _ if isinstance(node, COMPARISONS):
                return "bool"
            case _:
                return RETURNS.get(type(node)) or self._derived(node)

    def _derived(self, node: exp.Expr) -> str | None:
        """Return the kind of what takes it from its parts: choices, arrays and their items, aggregates."""
        match node:
            case exp.DPipe():
                both = [self.kind(node.left), self.kind(node.right)]
                return next((kind for kind in both if kinds.is_array(kind)), "text")
            case exp.Case():
                values = [branch.args.get("true") for branch in node.args["ifs"]] + [node.args.get("default")]
                return self._first(values)
            case exp.Coalesce() | exp.Nullif() | exp.Greatest() | exp.Least():
                return self._first([node.this, *node.expressions])
            case exp.ArrayAgg():
                return self._array(self.kind(node.this))
            case exp.Array():
                return self._array(self._items(node))
            case exp.Explode() | exp.Any() | exp.Bracket():
                return self._element(node.this)
            case exp.ExplodingGenerateSeries():
                return self.kind(node.args["start"])
            case exp.Max() | exp.Min():
                kind = self.kind(node.this)
                return "text" if kind == "name" else kind
            case exp.Extract():
                return "float8" if node.meta.get("name") == "date_part" else "numeric"
            case exp.Sum():
                return {"int2": "int8", "int4": "int8", "int8": "numeric"}.get(self.kind(node.this) or "")
            case _:
                return None

    def _first(self, nodes: list[exp.Expr | None]) -> str | None:
        """Return the kind of alternatives: the widest number, else the first that is no untyped literal."""
        found = [self.kind(node) for node in nodes if node is not None]
        known = [kind for kind in found if kind not in (None, "unknown")]
        if known and all(kind in kinds.NUMBERS for kind in known):
            return max(known, key=lambda kind: kinds.NUMBERS.index(str(kind)))
        return known[0] if known else "unknown" if "unknown" in found else None

    def _array(self, item: str | None) -> str | None:
        return kinds.array_of("text" if item == "unknown" else item) if item and not kinds.is_array(item) else item

    def _items(self, node: exp.Array) -> str | None:
        first = node.expressions[0] if node.expressions else None
        if isinstance(first, exp.Query):
            columns = self.outputs(first)
            return columns[0][1] if columns else None
        return self._first(list(node.expressions))

    def _element(self, node: exp.Expr | None) -> str | None:
        kind = self.kind(node.this if isinstance(node, exp.Paren) else node)
        return kinds.element(kind) if kind and (kinds.is_array(kind) or kind in kinds.VECTORS) else None

    def _arithmetic(self, node: exp.Binary) -> str | None:
        both = [kind for kind in (self.kind(node.left), self.kind(node.right)) if kind not in (None, "unknown")]
        if len(both) == 2 and all(kind in kinds.INTEGERS for kind in both):
            return max(both, key=kinds.INTEGERS.index)
        if both == ["date", "date"] and isinstance(node, exp.Sub):
            return "int4"
        return None

    def _field(self, node: exp.Dot) -> str | None:
        if isinstance(node.expression, exp.Func):
            return self.kind(node.expression)
        return {"n": "int4", "x": "int2"}.get(node.expression.name)

    def _call(self, node: exp.Anonymous) -> str | None:
        name = node.name.lower()
        if name in FUNCTIONS:
            return FUNCTIONS[name].returns
        if name in TABLES:
            return next(iter(TABLES[name].columns.values()))
        first = self.kind(node.expressions[0]) if node.expressions else None
        return {
            "array_agg": self._array(first),
            "unnest": self._element(node.expressions[0]) if node.expressions else None,
            "generate_subscripts": "int4",
            "generate_series": first,
            "count": "int8",
            "min": "text" if first == "name" else first,
            "max": "text" if first == "name" else first,
            "array_remove": first,
            "array_append": first,
            "array_cat": first,
            "array_length": "int4",
            "array_upper": "int4",
            "array_lower": "int4",
            "cardinality": "int4",
            "array_position": "int4",
            "all": self._element(node.expressions[0]) if node.expressions else None,
            "json_build_object": "json",
            "user": "name",
            "pg_typeof": "regtype",
            "pg_sleep": "void",
        }.get(name)

    def _column(self, column: exp.Column) -> str | None:
        name, table = column.name.lower(), column.table.lower()
        if not table and name in ("user", "current_role"):
            return "name"
        node: exp.Expr | None = column.parent
        while node is not None:
            if isinstance(node, exp.Select):
                for source, columns in self.sources(node):
                    found = [kind for c, kind in columns if c.lower() == name and table in ("", source)]
                    if found:
                        return found[0]
            elif isinstance(node, exp.SetOperation) and not table:
                found = [kind for c, kind in self.outputs(node) if c.lower() == name]
                if found:
                    return found[0]
            node = node.parent
        return {"tableoid": "oid", "xmin": "xid", "xmax": "xid"}.get(name)

    # --- parameters

    def parameter(self, node: exp.Parameter) -> str:
        """Return the kind of a parameter: as declared, or from where it stands; text if nothing tells."""
        number = number_of(node)
        if number not in self.parameters:
            self.parameters[number] = "text"  # while its surroundings are asked
            self.parameters[number] = self._context(node)
        return self.parameters[number]

    def _context(self, node: exp.Expr) -> str:
        parent = node.parent
        while isinstance(parent, exp.Paren):
            node, parent = parent, parent.parent
        found: str | None = None
        match parent:
            case exp.Cast():
                found = kinds.of_type(parent.to)
                found = "text" if found in kinds.REGISTERED else found
            case exp.Any():
                other = parent.parent
                item = self.kind(other.this) if isinstance(other, exp.Binary) else None
                found = kinds.array_of(item if item and item not in kinds.REGISTERED else "text")
            case exp.Limit() | exp.Offset():
                found = "int8"
            case exp.Like() | exp.ILike() | exp.RegexpLike() | exp.RegexpILike() | exp.DPipe() | exp.Operator():
                found = "text"
            case exp.In() | exp.Between():
                found = self.kind(parent.this) if parent.this is not node else None
            case exp.Binary():
                found = self.kind(parent.right if parent.left is node else parent.left)
            case exp.Neg():
                return self._context(parent)
            case exp.Anonymous() if parent.name.lower() in FUNCTIONS:
                arguments = FUNCTIONS[parent.name.lower()].arguments
                index = next(i for i, argument in enumerate(parent.expressions) if argument is node)
                found = arguments[index] if index < len(arguments) else None
            case exp.Coalesce() | exp.Nullif():
                found = self._first([n for n in [parent.this, *parent.expressions] if n is not node])
        return found if found and found not in ("unknown", *kinds.REGISTERED) else "text"


def number_of(node: exp.Parameter) -> int:
    return whole(node.name) or 0


def _number(digits: str) -> str:
    if not digits.isdigit():
        return "numeric"
    return "int4" if int(digits) < 2**31 else "int8" if int(digits) < 2**63 else "numeric"


def _is_call(item: exp.Expr) -> bool:
    return isinstance(item, exp.Unnest | exp.Lateral) or (isinstance(item, exp.Table) and is_function(item))


def _recursive(query: exp.SetOperation) -> bool:
    return isinstance(query.parent, exp.CTE)
