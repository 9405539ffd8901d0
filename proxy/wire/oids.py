"""The numbers by which PostgreSQL and its clients know types (pg_type.dat)."""

from __future__ import annotations

BOOL = 16
BYTEA = 17
CHAR = 18  # "char", one byte, as in pg_class.relkind
NAME = 19
INT8 = 20
INT2 = 21
INT2VECTOR = 22
INT4 = 23
REGPROC = 24
TEXT = 25
OID = 26
TID = 27
XID = 28
OIDVECTOR = 30
JSON = 114
PG_NODE_TREE = 194
FLOAT4 = 700
FLOAT8 = 701
UNKNOWN = 705
INET = 869
ACLITEM = 1033
BPCHAR = 1042
VARCHAR = 1043
DATE = 1082
TIME = 1083
TIMESTAMP = 1114
TIMESTAMPTZ = 1184
INTERVAL = 1186
TIMETZ = 1266
NUMERIC = 1700
REGPROCEDURE = 2202
REGOPER = 2203
REGOPERATOR = 2204
REGCLASS = 2205
REGTYPE = 2206
RECORD = 2249
VOID = 2278
UUID = 2950
JSONB = 3802
REGNAMESPACE = 4089
REGROLE = 4096

ARRAYS = {
    BOOL: 1000,
    BYTEA: 1001,
    CHAR: 1002,
    NAME: 1003,
    INT2: 1005,
    INT4: 1007,
    REGPROC: 1008,
    TEXT: 1009,
    OID: 1028,
    BPCHAR: 1014,
    VARCHAR: 1015,
    INT8: 1016,
    FLOAT4: 1021,
    FLOAT8: 1022,
    ACLITEM: 1034,
    TIMESTAMP: 1115,
    DATE: 1182,
    TIME: 1183,
    TIMESTAMPTZ: 1185,
    INTERVAL: 1187,
    NUMERIC: 1231,
    JSON: 199,
    JSONB: 3807,
    UUID: 2951,
    REGCLASS: 2210,
    REGTYPE: 2211,
}
"""The array type of each element type."""

ELEMENTS = {array: element for element, array in ARRAYS.items()}
"""The element type of each array type."""

LENGTHS = {
    BOOL: 1,
    CHAR: 1,
    NAME: 64,
    INT8: 8,
    INT2: 2,
    INT4: 4,
    REGPROC: 4,
    OID: 4,
    TID: 6,
    XID: 4,
    FLOAT4: 4,
    FLOAT8: 8,
    UNKNOWN: -2,
    ACLITEM: 16,
    DATE: 4,
    TIME: 8,
    TIMESTAMP: 8,
    TIMESTAMPTZ: 8,
    INTERVAL: 16,
    TIMETZ: 12,
    REGPROCEDURE: 4,
    REGOPER: 4,
    REGOPERATOR: 4,
    REGCLASS: 4,
    REGTYPE: 4,
    VOID: 4,
    UUID: 16,
    REGNAMESPACE: 4,
    REGROLE: 4,
}
"""Bytes of a value, as pg_type.typlen has it; types that are not here vary, and have -1."""

REGISTERED = frozenset({REGPROC, REGPROCEDURE, REGOPER, REGOPERATOR, REGCLASS, REGTYPE, REGNAMESPACE, REGROLE})
"""Types that are an oid in binary and a name in text."""


def length(oid: int) -> int:
    """Return pg_type.typlen of a type: its bytes, or -1 if they vary."""
    return LENGTHS.get(oid, -1)
