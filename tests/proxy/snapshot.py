"""Write down what every PostgreSQL has in its catalog before anybody made a table.

`python -m tests.proxy.snapshot` starts the PostgreSQL that the tests compare with and writes each relation of its
catalog as Parquet into proxy/catalog/postgres. It is run by hand, when the gate presents itself as a newer version.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import psycopg

from proxy.catalog import kinds
from proxy.catalog.relations.store import POSTGRES
from tests.proxy.postgres import OWNER, running

RELATIONS = (
    "pg_aggregate", "pg_am", "pg_attribute", "pg_cast", "pg_class", "pg_collation", "pg_constraint", "pg_conversion",
    "pg_description", "pg_index", "pg_language", "pg_namespace", "pg_opclass", "pg_operator", "pg_opfamily", "pg_proc",
    "pg_range", "pg_tablespace", "pg_ts_config", "pg_ts_dict", "pg_ts_parser", "pg_ts_template", "pg_type", "pg_authid",
    "pg_auth_members", "pg_shdescription", "pg_attrdef", "pg_foreign_data_wrapper", "pg_extension", "pg_settings",
    "pg_get_keywords",
)  # fmt: skip

LEFT_OUT = {
    "pg_collation": "WHERE oid < 10000",  # the others are the operating system's
    "pg_extension": "WHERE false",
    "pg_authid": "WHERE oid < 16384",
    "pg_settings": "WHERE category NOT LIKE 'File%'",
}

READ_AS = {
    **dict.fromkeys(("bool", "int2", "int4", "int8", "float4", "float8", "oid", "timestamptz"), ""),
    **dict.fromkeys(("_int2", "_oid", "_text", "_float4"), ""),
    "regproc": "::oid",
    "xid": "::text::bigint",
    "int2vector": "::int2[]",
    "oidvector": "::oid[]",
    "_aclitem": "::text[]",
    "_char": "::text[]",
}
"""Casts to what psycopg reads as a number, a text or a list; the rest is read as text."""

DEFINITIONS = """
    SELECT oid, pretty, pg_get_constraintdef(oid, pretty) FROM pg_constraint, (VALUES (false), (true)) AS p(pretty)
    UNION ALL SELECT indexrelid, pretty, pg_get_indexdef(indexrelid, 0, pretty)
        FROM pg_index, (VALUES (false), (true)) AS p(pretty) ORDER BY 1, 2
"""
"""SQL of constraints and indexes, which PostgreSQL keeps as trees."""

KEEPS = "source = 'default' OR name ~ '^(DateStyle|lc_|server_|client_enc|TimeZone|max_)'"
VIEWS = {
    "pg_get_keywords": "SELECT * FROM pg_catalog.pg_get_keywords()",
    "pg_settings": f"""
        SELECT name, CASE WHEN {KEEPS} THEN setting ELSE boot_val END AS setting, unit, category, short_desc,
            extra_desc, context, vartype, 'default' AS source, min_val, max_val, enumvals, boot_val,
            CASE WHEN {KEEPS} THEN reset_val ELSE boot_val END AS reset_val, NULL AS sourcefile,
            NULL::integer AS sourceline, false AS pending_restart
        FROM pg_catalog.pg_settings""",
}
"""Read in place of PostgreSQL's own: a function, and settings without what is this machine's."""

Connection = psycopg.Connection[Any]


def columns(connection: Connection, relation: str) -> dict[str, str]:
    query = (
        "SELECT attname, typname FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid "
        "WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum"
    )
    return dict(connection.execute(query, [relation]).fetchall())


def write(name: str, types: dict[str, str], rows: Sequence[tuple[object, ...]]) -> None:
    with duckdb.connect() as memory:
        memory.execute(f"CREATE TABLE found ({', '.join(f'{column} {kind}' for column, kind in types.items())})")
        if rows:
            memory.executemany(f"INSERT INTO found VALUES ({', '.join('?' * len(types))})", rows)
        memory.execute(f"COPY found TO '{POSTGRES / name}.parquet' (FORMAT parquet, COMPRESSION zstd)")


def write_relation(connection: Connection, relation: str) -> None:
    found = columns(connection, relation)
    picked = ", ".join(f'"{name}"{READ_AS.get(kind, "::text")}' for name, kind in found.items())
    order = "" if relation in VIEWS else " ORDER BY 1, 2"
    query: Any = f"SELECT {picked} FROM {relation} {LEFT_OUT.get(relation, '')}{order}"
    types = {f'"{name}"': kinds.duckdb_type(kind) for name, kind in found.items()}
    write(relation, types, connection.execute(query).fetchall())


def main() -> None:
    with running() as postgres, psycopg.connect(postgres.dsn, user=OWNER) as connection:
        types = {"oid": "UINTEGER", "pretty": "BOOLEAN", "definition": "VARCHAR"}
        write("definitions", types, connection.execute(DEFINITIONS).fetchall())
        for relation in (name for name in RELATIONS if name not in VIEWS):
            write_relation(connection, relation)
        connection.execute("SET search_path = pg_temp, pg_catalog")
        for relation, sql in VIEWS.items():  # last, so that they are not in what was written
            view: Any = f"CREATE TEMP VIEW {relation} AS {sql}"
            connection.execute(view)
            write_relation(connection, relation)


if __name__ == "__main__":
    main()
