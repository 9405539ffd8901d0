"""Rows of the catalog's tables for what the policy declares: tables, views, columns, analysts. Nothing of the data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from sqlglot import exp

from planner import system
from planner.duck.relations import OutputColumn
from proxy.catalog import kinds, types
from proxy.catalog.declared import Declared
from proxy.catalog.names import FIRST_OID, OWNER, PUBLIC_NAMESPACE
from proxy.wire import oids

Row = dict[str, object]

OWNER_OID = 10
HEAP = 2
CLASS, TYPE, NAMESPACE, COLLATION = 1259, 1247, 2615, 100
DATABASE_OID = FIRST_OID - 1

KINDS = {
    "protected": "protected: aggregates only, with noise",
    "public": "public: answered exactly",
    "synthetic": "synthetic: answered exactly",
}
SYSTEM = {
    "budget": "what all analysts together may spend, and have spent",
    "accounts": "what each analyst may spend, and has spent",
    "releases": "every release, with its cost",
    "queries": "every question that was paid for",
    "rounds": "queries that are to be released together, and whether they were",
    "domains": "the public domain of every column",
}
"""Comments on tables, by what they are."""


@dataclass(frozen=True)
class Column:
    """One visible column: its type number and modifier, and what the policy says of its values."""

    name: str
    oid: int
    typmod: int = -1
    not_null: bool = False
    comment: str | None = None


@dataclass(frozen=True, kw_only=True)
class Relation:
    """One table or view, with the oids of itself, its row type, and the array of that."""

    oid: int
    schema: int
    name: str
    kind: str
    columns: tuple[Column, ...]
    comment: str | None = None
    definition: str | None = None


def relations(gate: Declared) -> list[Relation]:
    """Return what the policy declares, in its order: tables, views, then the system tables."""
    numbers = count(FIRST_OID + 1, 3)
    found = [
        Relation(
            oid=next(numbers),
            schema=PUBLIC_NAMESPACE,
            name=name,
            kind="r",
            columns=_columns(gate, name),
            comment=KINDS[table.kind],
        )
        for name, table in gate.policy.tables.items()
    ]
    for name, query in gate.catalog.views.items():
        columns, sql = _view_columns(gate, query), query.sql("postgres", pretty=True)  # it can't name hidden columns
        found.append(
            Relation(
                oid=next(numbers), schema=PUBLIC_NAMESPACE, name=name, kind="v", columns=columns, definition=f" {sql};"
            )
        )
    for full, typed in system.TYPES.items():
        name = full.partition(".")[2]
        described = tuple(_described(column, kind) for column, kind in typed.items())
        found.append(
            Relation(
                oid=next(numbers), schema=FIRST_OID, name=name, kind="r", columns=described, comment=SYSTEM.get(name)
            )
        )
    return found


def _columns(gate: Declared, table: str) -> tuple[Column, ...]:
    """Return the columns that may be asked about, as answers show them; hidden ones are not there."""
    declared = gate.policy.tables[table].columns
    visible = {n: t for n, t in gate.catalog.types[table].items() if n not in declared or not declared[n].hidden}
    protected = gate.policy.tables[table].kind == "protected"
    found = []
    for name, kind in visible.items():
        domain = declared[name].domain if name in declared else None
        not_null = protected and domain is not None and not domain.nullable
        found.append(_described(name, kind, not_null=not_null, comment=domain.describe() if domain else None))
    return tuple(found)


def _described(name: str, duckdb_type: str, *, not_null: bool = False, comment: str | None = None) -> Column:
    column = types.column_of(OutputColumn(name, duckdb_type))
    return Column(name, column.oid, column.typmod, not_null, comment)


def _view_columns(gate: Declared, query: exp.Query) -> tuple[Column, ...]:
    """Return the columns of a view, by running it on empty tables with the types of the policy."""
    bench = gate.sandbox.workbench()
    empty = query.copy()
    for table in list(empty.find_all(exp.Table)):
        typed = gate.catalog.types.get(table.name)
        if typed and not table.db and table.name in gate.catalog.protected:
            nulls = [
                exp.cast(exp.null(), kind, dialect="duckdb").as_(name, quoted=True) for name, kind in typed.items()
            ]
            table.replace(exp.select(*nulls).limit(0).subquery(table.alias or table.name))
    return tuple(_described(name, kind) for name, kind in bench.types(empty.sql("duckdb")))


# --- rows ---------------------------------------------------------------------------------------------------


def rows(gate: Declared, found: list[Relation], defaults: Mapping[int, Row]) -> Iterator[tuple[str, Row]]:
    """Yield every row that the policy adds to a relation of pg_catalog; `defaults` has pg_type's row of each oid."""
    granted = [f"{OWNER}=UC/{OWNER}", f"=U/{OWNER}"]
    yield "pg_namespace", {"oid": FIRST_OID, "nspname": "noisegate", "nspowner": OWNER_OID, "nspacl": granted}
    yield "pg_description", _comment(NAMESPACE, FIRST_OID, 0, "the gate's own tables: budget, releases, domains")
    for number, analyst in enumerate(gate.policy.analysts):
        yield "pg_authid", _role(1_000_000 + number, analyst)
    yield "pg_database", _database()
    for relation in found:
        yield "pg_class", _class(relation)
        yield "pg_type", _row_type(relation)
        yield "pg_type", _array_type(relation)
        if relation.comment:
            yield "pg_description", _comment(CLASS, relation.oid, 0, relation.comment)
        for number, column in enumerate(relation.columns, start=1):
            yield "pg_attribute", _attribute(relation, number, column, defaults[column.oid])
            if column.comment:
                yield "pg_description", _comment(CLASS, relation.oid, number, column.comment)


def _comment(catalog: int, oid: int, number: int, text: str) -> Row:
    return {"objoid": oid, "classoid": catalog, "objsubid": number, "description": text}


def _role(oid: int, name: str) -> Row:
    rights = dict.fromkeys(("rolsuper", "rolcreaterole", "rolcreatedb", "rolreplication", "rolbypassrls"), False)
    return {"oid": oid, "rolname": name, "rolinherit": True, "rolcanlogin": True, "rolconnlimit": -1, **rights}


def _database() -> Row:
    return {
        "oid": DATABASE_OID,
        "datname": "",  # the name under which the session came is put in when it asks
        "datdba": OWNER_OID,
        "encoding": 6,
        "datlocprovider": "c",
        "datistemplate": False,
        "datallowconn": True,
        "datconnlimit": -1,
        "datfrozenxid": 722,
        "datminmxid": 1,
        "dattablespace": 1663,
        "datcollate": "C.UTF-8",
        "datctype": "C.UTF-8",
    }


def _class(relation: Relation) -> Row:
    table = relation.kind == "r"
    return {
        "oid": relation.oid,
        "relname": relation.name,
        "relnamespace": relation.schema,
        "reltype": relation.oid + 1,
        "relowner": OWNER_OID,
        "relam": HEAP if table else 0,
        "relfilenode": relation.oid if table else 0,
        "reltuples": -1.0,
        "relhasindex": False,
        "relisshared": False,
        "relpersistence": "p",
        "relkind": relation.kind,
        "relnatts": len(relation.columns),
        "relhasrules": not table,
        "relispopulated": True,
        "relreplident": "d" if table else "n",
        "relacl": [f"{OWNER}=arwdDxt/{OWNER}", f"=r/{OWNER}"],
        "relfrozenxid": 722 if table else 0,
        "relminmxid": 1 if table else 0,
    }


def _row_type(relation: Relation) -> Row:
    functions = {"typinput": 2290, "typoutput": 2291, "typreceive": 2402, "typsend": 2403}
    return {
        **_type(relation, relation.oid + 1, relation.name),
        **functions,
        "typtype": "c",
        "typcategory": "C",
        "typrelid": relation.oid,
        "typarray": relation.oid + 2,
    }


def _array_type(relation: Relation) -> Row:
    functions = {"typinput": 750, "typoutput": 751, "typreceive": 2400, "typsend": 2401}
    return {
        **_type(relation, relation.oid + 2, f"_{relation.name}"),
        **functions,
        "typtype": "b",
        "typcategory": "A",
        "typelem": relation.oid + 1,
        "typsubscript": 6179,
        "typanalyze": 3816,
    }


def _type(relation: Relation, oid: int, name: str) -> Row:
    return {
        "oid": oid,
        "typname": name,
        "typnamespace": relation.schema,
        "typowner": OWNER_OID,
        "typlen": -1,
        "typisdefined": True,
        "typdelim": ",",
        "typalign": "d",
        "typstorage": "x",
        "typtypmod": -1,
    }


def _attribute(relation: Relation, number: int, column: Column, default: Row) -> Row:
    return {
        "attrelid": relation.oid,
        "attname": column.name,
        "atttypid": column.oid,
        "attlen": default["typlen"],
        "attnum": number,
        "attcacheoff": -1,
        "atttypmod": column.typmod,
        "attbyval": default["typbyval"],
        "attalign": default["typalign"],
        "attstorage": default["typstorage"],
        "attcompression": "",
        "attnotnull": column.not_null,
        "attidentity": "",
        "attgenerated": "",
        "attislocal": True,
        "attstattarget": -1,
        "attndims": int(column.oid in oids.ELEMENTS),
        "attcollation": COLLATION if default["typcollation"] else 0,
    }


def zero_of(kind: str) -> object:
    """Return the value of a catalog column that a row does not set."""
    if kinds.is_array(kind) or kind in ("pg_node_tree", "text", "timestamptz", "anyarray"):
        return None
    if kind == "bool":
        return False
    return "" if kinds.duckdb_type(kind) == "VARCHAR" else 0
