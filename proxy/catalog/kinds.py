"""PostgreSQL's types by their names in pg_type, and the types of DuckDB that stand for them.

A kind is such a name: `int4`, `name`, `_text` for an array of text. UINTEGER is DuckDB's type for oid and for nothing
else, so that it survives as such where DuckDB infers a type.
"""

from __future__ import annotations

from sqlglot import exp

from planner.basics.numerals import whole
from proxy.wire import oids

DUCKDB = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "numeric": "DECIMAL(38,10)",
    "text": "VARCHAR",
    "varchar": "VARCHAR",
    "bpchar": "VARCHAR",
    "name": "VARCHAR",
    "char": "VARCHAR",
    "unknown": "VARCHAR",
    "cstring": "VARCHAR",
    "aclitem": "VARCHAR",
    "pg_node_tree": "VARCHAR",
    "json": "JSON",
    "jsonb": "JSON",
    "bytea": "BLOB",
    "uuid": "UUID",
    "date": "DATE",
    "time": "TIME",
    "timetz": "TIME WITH TIME ZONE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "interval": "INTERVAL",
    "oid": "UINTEGER",
    "xid": "UINTEGER",
    "regproc": "UINTEGER",
    "regprocedure": "UINTEGER",
    "regoper": "UINTEGER",
    "regoperator": "UINTEGER",
    "regclass": "UINTEGER",
    "regtype": "UINTEGER",
    "regnamespace": "UINTEGER",
    "regrole": "UINTEGER",
    "int2vector": "SMALLINT[]",
    "oidvector": "UINTEGER[]",
    "void": "VARCHAR",
}
"""The types that can be computed with; columns of other types are kept as text."""

OIDS = {
    name.lower(): number
    for name, number in vars(oids).items()
    if isinstance(number, int) and not name.startswith("_")
} | {"anyarray": 2277, "cstring": 2275}  # fmt: skip

REGISTERED = ("regproc", "regprocedure", "regoper", "regoperator", "regclass", "regtype", "regnamespace", "regrole")
VECTORS = {"int2vector": "int2", "oidvector": "oid"}
TEXTS = ("text", "varchar", "bpchar", "name", "char", "unknown")
INTEGERS = ("int2", "int4", "int8")
NUMBERS = (*INTEGERS, "numeric", "float4", "float8")
"""Types of numbers, each wide enough for the values of those before it."""

NAMES = {
    "INT": "int4",
    "BIGINT": "int8",
    "SMALLINT": "int2",
    "TINYINT": "int2",
    "TEXT": "text",
    "VARCHAR": "varchar",
    "CHAR": "bpchar",
    "BPCHAR": "bpchar",
    "NAME": "name",
    "BOOLEAN": "bool",
    "FLOAT": "float4",
    "DOUBLE": "float8",
    "DECIMAL": "numeric",
    "VARBINARY": "bytea",
    "JSON": "json",
    "JSONB": "jsonb",
    "UUID": "uuid",
    "DATE": "date",
    "TIME": "time",
    "TIMETZ": "timetz",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPNTZ": "timestamp",
    "TIMESTAMPTZ": "timestamptz",
    "INTERVAL": "interval",
}
"""Kinds by the names of sqlglot's own types."""

DOMAINS = {
    "sql_identifier": "name",
    "cardinal_number": "int4",
    "character_data": "varchar",
    "yes_or_no": "varchar",
    "time_stamp": "timestamptz",
}
"""Domains of information_schema: a client sees the type below."""

ALIASES = {"int": "int4", "integer": "int4", "bigint": "int8", "smallint": "int2", "boolean": "bool", "real": "float4"}

FROM_DUCKDB = {duckdb: kind for kind, duckdb in reversed(DUCKDB.items())} | {
    "DECIMAL": "numeric",
    "HUGEINT": "numeric",
    "UHUGEINT": "numeric",
    "UBIGINT": "numeric",
    "BIGNUM": "numeric",
    "TINYINT": "int2",
    "UTINYINT": "int2",
    "USMALLINT": "int4",
    "UINTEGER": "oid",
    "VARCHAR": "text",
    "JSON": "json",
    "TIMESTAMP_S": "timestamp",
    "TIMESTAMP_MS": "timestamp",
    "TIMESTAMP_NS": "timestamp",
}


def is_array(kind: str | None) -> bool:
    return kind is not None and kind.startswith("_")


def is_known(kind: str) -> bool:
    """Return whether values of a kind can be computed with."""
    return (element(kind) if is_array(kind) else kind) in DUCKDB


def element(kind: str) -> str:
    """Return the kind of the items of an array or a vector."""
    return VECTORS.get(kind) or kind[1:]


def array_of(kind: str) -> str:
    return f"_{kind}"


def oid_of(kind: str) -> int:
    """Return the type number of a kind; that of text where clients know no such type.

    >>> oid_of("name"), oid_of("_int4"), oid_of("circle")
    (19, 1007, 25)
    """
    if is_array(kind):
        return oids.ARRAYS.get(oid_of(element(kind)), oids.TEXT)
    return OIDS.get(kind, oids.TEXT)


def duckdb_type(kind: str) -> str:
    """Return DuckDB's type for a kind; VARCHAR for those that are only shown."""
    return f"{duckdb_type(element(kind))}[]" if is_array(kind) else DUCKDB.get(kind, "VARCHAR")


def from_duckdb(name: str) -> str:
    """Return the kind of a type that DuckDB inferred.

    >>> [from_duckdb(name) for name in ("UINTEGER", "DECIMAL(18,3)", "VARCHAR[]", "STRUCT(a INTEGER)")]
    ['oid', 'numeric', '_text', 'text']
    """
    if name.endswith("]"):
        inner = from_duckdb(name[: name.rindex("[")])
        return inner if is_array(inner) else array_of(inner)
    return FROM_DUCKDB.get(name.split("(")[0], "text")


def of_type(to: exp.Expr) -> str:
    """Return the kind that a cast names.

    >>> import sqlglot
    >>> of_type(sqlglot.parse_one("CAST(x AS pg_catalog.int4[])", read="postgres").to)
    '_int4'
    """
    if not isinstance(to, exp.DataType):
        return _named(to.name)
    if to.this == exp.DType.ARRAY:
        inner = of_type(to.expressions[0]) if to.expressions else "text"
        return inner if is_array(inner) else array_of(inner)
    if to.this == exp.DType.USERDEFINED:
        kind = to.args["kind"]
        return _named(kind.expression.name if isinstance(kind, exp.Dot) else getattr(kind, "name", str(kind)))
    name = str(to.this.name)
    return NAMES.get(name, name.lower())


def _named(name: str) -> str:
    lowered = name.lower()
    return DOMAINS.get(lowered) or ALIASES.get(lowered) or lowered


MOST_TYPMOD = 10_485_760
"""The longest varchar(n) of PostgreSQL."""


def typmod_of(to: exp.Expr) -> int:
    """Return the length or the precision that a cast names, as pg_attribute.atttypmod has it; -1 without one."""
    written = [whole(p.name, most=MOST_TYPMOD) for p in to.expressions if isinstance(p, exp.DataTypeParam)]
    sizes = [size for size in written if size is not None]
    kind = of_type(to)
    if not sizes or is_array(kind):
        return -1
    if kind in ("varchar", "bpchar"):
        return sizes[0] + 4
    if kind == "numeric":
        return ((sizes[0] << 16) | (sizes[1] if len(sizes) > 1 else 0)) + 4
    return sizes[0] if kind in ("time", "timetz", "timestamp", "timestamptz") else -1
