"""Views of pg_catalog and information_schema over the catalog's own tables, in DuckDB's SQL.

Columns that name the database are left out here; the session's is put in when it asks. Every role may do the same, so
that privileges are those of PUBLIC. Whatever says that something could be written says no.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from proxy.catalog import kinds
from proxy.catalog.errors import TOO_LARGE
from proxy.limits import MAX_CATALOG_TEXT, MAX_SERIES

_REPLACED = (
    f"CASE WHEN (CAST(length(item) AS HUGEINT) + 1) * length(new) > {MAX_CATALOG_TEXT} "
    f"THEN error('{TOO_LARGE}') ELSE new END"
)

MACROS = {
    # In the place of DuckDB's own of these names.
    "replace(item, old, new)": f"system.main.replace(item, old, {_REPLACED})",
    "regexp_replace(item, old, new)": (
        f"system.main.regexp_replace(item, old, {_REPLACED}), "
        f"(item, old, new, options) AS system.main.regexp_replace(item, old, {_REPLACED}, options)"
    ),
    "own_join(items, mark)": "CASE WHEN items IS NOT NULL THEN coalesce(array_to_string(items, mark), '') END",
    "own_join_with(items, mark, missing)": (
        "CASE WHEN items IS NOT NULL THEN coalesce(array_to_string("
        "list_transform(items, lambda item: coalesce(CAST(item AS VARCHAR), missing)), mark), '') END"
    ),
    # The check stands in the argument: a constant call is computed early, whatever CASE it stands in.
    "own_repeat(item, times)": (
        f"repeat(item, CASE WHEN length(item) * CAST(times AS BIGINT) > {MAX_CATALOG_TEXT} "
        f"THEN CAST(error('{TOO_LARGE}') AS BIGINT) ELSE CAST(times AS BIGINT) END)"
    ),
    "own_size(size)": (
        f"CASE WHEN CAST(size AS BIGINT) > {MAX_CATALOG_TEXT} THEN CAST(error('{TOO_LARGE}') AS INTEGER) "
        "ELSE CAST(size AS INTEGER) END"
    ),
    "own_series(first, last, step)": (
        f"generate_series(first, CASE WHEN abs(CAST(last AS HUGEINT) - first) / abs(step) > {MAX_SERIES} "
        f"THEN CAST(error('{TOO_LARGE}') AS BIGINT) ELSE last END, step)"
    ),
    "own_readable(relation)": (
        "(own_has_table_privilege('public', CAST(relation AS VARCHAR), 'SELECT') OR relation IN "
        "(SELECT attrelid FROM pg.pg_attribute WHERE attacl IS NOT NULL))"
    ),
}


@dataclass(frozen=True)
class View:
    """Expressions of the columns that are not NULL, and where they come from."""

    columns: Mapping[str, str]
    source: str

    def sql(self, kinds_of: Mapping[str, str]) -> str:
        """Return the SELECT with all columns, in their order and with their types."""
        picked = (
            f'CAST({self.columns.get(name, "NULL")} AS {kinds.duckdb_type(kind)}) AS "{name}"'
            for name, kind in kinds_of.items()
        )
        return f"SELECT {', '.join(picked)} FROM {self.source}"


_CLASSES = "pg.pg_class c JOIN pg.pg_namespace n ON n.oid = c.relnamespace"
_ATTRIBUTES = (
    f"pg.pg_attribute a JOIN {_CLASSES} ON c.oid = a.attrelid JOIN pg.pg_type d ON d.oid = a.atttypid "
    "LEFT JOIN pg.pg_type t ON t.oid = CASE WHEN d.typtype = 'd' THEN d.typbasetype ELSE d.oid END "
    "LEFT JOIN pg.pg_namespace tn ON tn.oid = t.typnamespace LEFT JOIN pg.pg_namespace dn ON dn.oid = d.typnamespace "
    "LEFT JOIN pg.pg_collation co ON co.oid = a.attcollation AND co.collname <> 'default' "
    "LEFT JOIN pg.pg_namespace cn ON cn.oid = co.collnamespace"
)
_TYPMOD = "CASE WHEN d.typtype = 'd' THEN d.typtypmod ELSE a.atttypmod END"
_IS_ARRAY = "(t.typelem <> 0 AND t.typlen = -1)"
_PRIVILEGED = {
    "grantor": "'noisegate'",
    "grantee": "'PUBLIC'",
    "table_schema": "n.nspname",
    "table_name": "c.relname",
    "privilege_type": "'SELECT'",
    "is_grantable": "'NO'",
    "with_hierarchy": "'YES'",
}

_ROLE = (
    "oid", "rolname", "rolsuper", "rolinherit", "rolcreaterole", "rolcreatedb", "rolcanlogin", "rolreplication",
    "rolconnlimit", "rolvaliduntil", "rolbypassrls",
)  # fmt: skip

VIEWS = {
    "pg_catalog.pg_roles": View(
        {name: name for name in _ROLE} | {"rolpassword": "'********'"},
        "pg.pg_authid",
    ),
    "pg_catalog.pg_user": View(
        {
            "usename": "rolname",
            "usesysid": "oid",
            "usecreatedb": "rolcreatedb",
            "usesuper": "rolsuper",
            "userepl": "rolreplication",
            "usebypassrls": "rolbypassrls",
            "passwd": "'********'",
            "valuntil": "rolvaliduntil",
        },
        "pg.pg_authid WHERE rolcanlogin",
    ),
    "pg_catalog.pg_group": View(
        {"groname": "rolname", "grosysid": "oid", "grolist": "[]"}, "pg.pg_authid WHERE NOT rolcanlogin"
    ),
    "pg_catalog.pg_tables": View(
        {
            "schemaname": "n.nspname",
            "tablename": "c.relname",
            "tableowner": "own_pg_get_userbyid(c.relowner)",
            "tablespace": "CASE WHEN c.reltablespace <> 0 THEN 'pg_global' END",
            "hasindexes": "c.relhasindex",
            "hasrules": "c.relhasrules",
            "hastriggers": "c.relhastriggers",
            "rowsecurity": "c.relrowsecurity",
        },
        f"{_CLASSES} WHERE c.relkind IN ('r', 'p')",
    ),
    "pg_catalog.pg_views": View(
        {
            "schemaname": "n.nspname",
            "viewname": "c.relname",
            "viewowner": "own_pg_get_userbyid(c.relowner)",
            "definition": "own_pg_get_viewdef(CAST(c.oid AS VARCHAR), false)",
        },
        f"{_CLASSES} WHERE c.relkind = 'v'",
    ),
    "pg_catalog.pg_indexes": View(
        {
            "schemaname": "n.nspname",
            "tablename": "c.relname",
            "indexname": "i.relname",
            "tablespace": "CASE WHEN i.reltablespace <> 0 THEN 'pg_global' END",
            "indexdef": "own_pg_get_indexdef(i.oid, 0, false)",
        },
        f"{_CLASSES} JOIN pg.pg_index x ON x.indrelid = c.oid JOIN pg.pg_class i ON i.oid = x.indexrelid "
        "WHERE c.relkind IN ('r', 'm', 'p') AND i.relkind IN ('i', 'I')",
    ),
    "information_schema.information_schema_catalog_name": View({}, "(SELECT 1)"),
    "information_schema.schemata": View(
        {"schema_name": "nspname", "schema_owner": "own_pg_get_userbyid(nspowner)"},
        "pg.pg_namespace WHERE own_has_schema_privilege('public', CAST(oid AS VARCHAR), 'CREATE, USAGE')",
    ),
    "information_schema.tables": View(
        {
            "table_schema": "n.nspname",
            "table_name": "c.relname",
            "table_type": "CASE WHEN c.relkind = 'v' THEN 'VIEW' ELSE 'BASE TABLE' END",
            "is_insertable_into": "'NO'",
            "is_typed": "'NO'",
        },
        f"{_CLASSES} WHERE c.relkind IN ('r', 'v', 'p') AND own_readable(c.oid)",
    ),
    "information_schema.views": View(
        {
            "table_schema": "n.nspname",
            "table_name": "c.relname",
            "check_option": "'NONE'",
            "is_updatable": "'NO'",
            "is_insertable_into": "'NO'",
            "is_trigger_updatable": "'NO'",
            "is_trigger_deletable": "'NO'",
            "is_trigger_insertable_into": "'NO'",
        },
        f"{_CLASSES} WHERE c.relkind = 'v' AND own_readable(c.oid)",
    ),
    "information_schema.table_privileges": View(
        _PRIVILEGED, f"{_CLASSES} WHERE c.relkind IN ('r', 'v', 'p') AND own_readable(c.oid)"
    ),
    "information_schema.role_table_grants": View(_PRIVILEGED, f"{_CLASSES} WHERE false"),
    "information_schema.columns": View(
        {
            "table_schema": "n.nspname",
            "table_name": "c.relname",
            "column_name": "a.attname",
            "ordinal_position": "a.attnum",
            "is_nullable": "CASE WHEN a.attnotnull OR (d.typtype = 'd' AND d.typnotnull) THEN 'NO' ELSE 'YES' END",
            "data_type": f"CASE WHEN {_IS_ARRAY} THEN 'ARRAY' WHEN tn.nspname = 'pg_catalog' "
            "THEN own_format_type(t.oid, NULL) ELSE 'USER-DEFINED' END",
            "character_maximum_length": f"CASE WHEN t.oid IN (1042, 1043) AND {_TYPMOD} <> -1 THEN {_TYPMOD} - 4 END",
            "character_octet_length": "CASE WHEN t.oid IN (25, 1042, 1043) THEN "
            f"CASE WHEN {_TYPMOD} = -1 THEN 1073741824 ELSE 4 * ({_TYPMOD} - 4) END END",
            "numeric_precision": "CASE t.oid WHEN 21 THEN 16 WHEN 23 THEN 32 WHEN 20 THEN 64 WHEN 700 THEN 24 "
            f"WHEN 701 THEN 53 WHEN 1700 THEN CASE WHEN {_TYPMOD} <> -1 THEN (({_TYPMOD} - 4) >> 16) & 65535 END END",
            "numeric_precision_radix": "CASE WHEN t.oid IN (21, 23, 20, 700, 701) THEN 2 WHEN t.oid = 1700 THEN 10 END",
            "numeric_scale": "CASE WHEN t.oid IN (21, 23, 20) THEN 0 "
            f"WHEN t.oid = 1700 AND {_TYPMOD} <> -1 THEN ({_TYPMOD} - 4) & 2047 END",
            "datetime_precision": "CASE WHEN t.oid = 1082 THEN 0 WHEN t.oid IN (1083, 1114, 1184, 1266, 1186) "
            f"THEN CASE WHEN {_TYPMOD} < 0 THEN 6 ELSE {_TYPMOD} END END",
            "collation_schema": "cn.nspname",
            "collation_name": "co.collname",
            "domain_schema": "CASE WHEN d.typtype = 'd' THEN dn.nspname END",
            "domain_name": "CASE WHEN d.typtype = 'd' THEN d.typname END",
            "udt_schema": "tn.nspname",
            "udt_name": "t.typname",
            "dtd_identifier": "a.attnum",
            "is_self_referencing": "'NO'",
            "is_identity": "'NO'",
            "identity_cycle": "'NO'",
            "is_generated": "'NEVER'",
            "is_updatable": "'NO'",
        },
        f"{_ATTRIBUTES} WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'v', 'p') "
        "AND (own_has_table_privilege('public', CAST(c.oid AS VARCHAR), 'SELECT') OR a.attacl IS NOT NULL)",
    ),
}
