"""What a result is to a PostgreSQL client: columns with type numbers, and rows of Python values.

Values by type: bool; int for the integers and oid (`Named` of proxy/wire/spans.py for regclass and its like);
float; Decimal for numeric; str for text, varchar, name, "char", json and unknown; bytes for bytea; datetime's
classes for dates and times (for interval timedelta, or `Interval` of proxy/wire/spans.py); uuid.UUID; list for
arrays and vectors; None for NULL everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from planner.duck.relations import OutputColumn
from proxy.wire import oids


@dataclass(frozen=True)
class Column:
    """One column as a RowDescription has it; `typmod` is -1 where the type has no length or precision."""

    name: str
    oid: int
    typmod: int = -1

    @property
    def typlen(self) -> int:
        return oids.length(self.oid)


@dataclass(frozen=True)
class Description:
    """What a statement takes and gives, known without running it: the types of $1, $2, …, and the columns."""

    columns: tuple[Column, ...] = ()
    parameters: tuple[int, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows with their columns."""

    columns: tuple[Column, ...] = ()
    rows: Sequence[tuple[object, ...]] = field(default_factory=list)


SCALARS = {
    "BOOLEAN": oids.BOOL,
    "TINYINT": oids.INT2,
    "SMALLINT": oids.INT2,
    "INTEGER": oids.INT4,
    "BIGINT": oids.INT8,
    "HUGEINT": oids.NUMERIC,
    "UTINYINT": oids.INT2,
    "USMALLINT": oids.INT4,
    "UINTEGER": oids.INT8,
    "UBIGINT": oids.NUMERIC,
    "UHUGEINT": oids.NUMERIC,
    "BIGNUM": oids.NUMERIC,
    "FLOAT": oids.FLOAT4,
    "DOUBLE": oids.FLOAT8,
    "DECIMAL": oids.NUMERIC,
    "VARCHAR": oids.TEXT,
    "BLOB": oids.BYTEA,
    "DATE": oids.DATE,
    "TIME": oids.TIME,
    "TIME WITH TIME ZONE": oids.TIMETZ,
    "TIMESTAMP": oids.TIMESTAMP,
    "TIMESTAMP_S": oids.TIMESTAMP,
    "TIMESTAMP_MS": oids.TIMESTAMP,
    "TIMESTAMP_NS": oids.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": oids.TIMESTAMPTZ,
    "INTERVAL": oids.INTERVAL,
    "JSON": oids.JSON,
    "UUID": oids.UUID,
}
"""PostgreSQL's type for each of DuckDB's; what is not here is shown as text."""


def column_of(column: OutputColumn) -> Column:
    """Return a column of the gate's as PostgreSQL would describe it.

    >>> column_of(OutputColumn("n", "BIGINT")), column_of(OutputColumn("x", "DECIMAL(18,3)[]"))
    (Column(name='n', oid=20, typmod=-1), Column(name='x', oid=1231, typmod=-1))
    """
    return Column(column.name, oid_of(column.type), _typmod(column.type))


def oid_of(duckdb_type: str) -> int:
    """Return the type number for a DuckDB type name; text for structs, maps and whatever else there is."""
    if duckdb_type.endswith("]"):
        element = re.sub(r"\[\d*\]$", "", duckdb_type)
        return oids.ARRAYS.get(oid_of(element), oids.TEXT) if not element.endswith("]") else oids.TEXT
    return SCALARS.get(re.sub(r"\(.*", "", duckdb_type), oids.TEXT)


def _typmod(duckdb_type: str) -> int:
    """Return the precision and scale of a DECIMAL as numeric's typmod packs them, -1 for other types."""
    found = re.fullmatch(r"DECIMAL\((\d+),\s*(\d+)\)", duckdb_type)
    return ((int(found[1]) << 16) | int(found[2])) + 4 if found else -1
