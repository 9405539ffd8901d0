"""The catalog's own tables: PostgreSQL's and what the policy declares, in a DuckDB that reaches nothing else."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import duckdb
from duckdb.func import FunctionNullHandling

from proxy.catalog import kinds
from proxy.catalog.declared import Declared
from proxy.catalog.names import NAMES_OF, Directory, Relation, Routine, Type
from proxy.catalog.parse import CATALOG, INFORMATION
from proxy.catalog.relations import information, policy
from proxy.catalog.relations.functions import FUNCTIONS
from proxy.catalog.relations.memo import Memo
from proxy.catalog.types import Table
from proxy.limits import CATALOG_MEMORY

POSTGRES = Path(__file__).parents[1] / "postgres"
"""What every PostgreSQL has in its catalog; tests/proxy/snapshot.py wrote it down."""

SCHEMAS = {CATALOG: "pg", INFORMATION: "info"}
"""Where a schema of PostgreSQL's stands in DuckDB, which has its own under the same names."""


class Store:
    """One catalog for all sessions of a gate. Threads may share it: each statement has a cursor of its own."""

    def __init__(self, gate: Declared) -> None:
        self._root = duckdb.connect(config={"python_enable_replacements": False})
        self._lock = threading.Lock()
        self.routes, self.statements, self.answers = Memo[bool](4096), Memo[Any](512), Memo[Table](512)
        for schema in SCHEMAS.values():
            self._root.execute(f"CREATE SCHEMA {schema}")
        for file in sorted(POSTGRES.glob("*.parquet")):
            self._root.execute(f"CREATE TABLE pg.{file.stem} AS SELECT * FROM read_parquet('{file}')")
        self.relations = self._read_relations()
        self._make_empty()
        self._add(gate)
        self.directory = self._directory()
        self._register()
        for name, view in information.VIEWS.items():
            schema, _, relation = name.partition(".")
            own = f"{SCHEMAS[schema]}.{relation}"
            self._root.execute(f"DROP TABLE {own}")
            self._root.execute(f"CREATE VIEW {own} AS {view.sql(self.relations[schema][relation])}")
        self._lock_down()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            return self._root.cursor()

    def close(self) -> None:
        self._root.close()

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:  # Any: rows of the catalog
        return self._root.execute(sql).fetchall()

    def _read_relations(self) -> dict[str, dict[str, dict[str, str]]]:
        """Return the kinds of the columns of every relation of pg_catalog and information_schema."""
        found: dict[str, dict[str, dict[str, str]]] = {schema: {} for schema in SCHEMAS}
        rows = self._rows(
            "SELECT nspname, relname, attname, typname FROM pg.pg_attribute JOIN pg.pg_class c ON c.oid = attrelid "
            "JOIN pg.pg_namespace n ON n.oid = relnamespace JOIN pg.pg_type t ON t.oid = atttypid "
            "WHERE attnum > 0 AND relkind IN ('r', 'v') ORDER BY attrelid, attnum"
        )
        for schema, relation, column, kind in rows:
            if schema in found:
                found[schema].setdefault(relation, {})[column] = kinds.DOMAINS.get(kind, kind)
        return found

    def _make_empty(self) -> None:
        """Create the relations that have no rows, so that asking them gives none."""
        there = {name for (name,) in self._rows("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'pg'")}
        for schema, relations in self.relations.items():
            for relation, columns in relations.items():
                if schema == CATALOG and relation in there:
                    continue
                typed = ", ".join(f'"{name}" {kinds.duckdb_type(kind)}' for name, kind in columns.items())
                self._root.execute(f'CREATE TABLE {SCHEMAS[schema]}."{relation}" ({typed})')

    def _add(self, gate: Declared) -> None:
        """Insert what the policy declares."""
        columns = "oid, typlen, typbyval, typalign, typstorage, typcollation"
        names = columns.split(", ")
        defaults = {
            row[0]: dict(zip(names, row, strict=True)) for row in self._rows(f"SELECT {columns} FROM pg.pg_type")
        }
        self.declared = policy.relations(gate)
        grouped: dict[str, list[policy.Row]] = defaultdict(list)
        for relation, row in policy.rows(gate, self.declared, defaults):
            grouped[relation].append(row)
        for relation, rows in grouped.items():
            self._insert(relation, rows)

    def _insert(self, relation: str, rows: list[policy.Row]) -> None:
        columns = self.relations[CATALOG][relation]
        picked = ", ".join(f"CAST(unnest(${name}) AS {kinds.duckdb_type(kind)})" for name, kind in columns.items())
        values = {name: [row.get(name, policy.zero_of(kind)) for row in rows] for name, kind in columns.items()}
        self._root.execute(f"INSERT INTO pg.{relation} SELECT {picked}", values)

    def _directory(self) -> Directory:
        found = Directory()
        for oid, name, space, item, relation, subscript, storage in self._rows(
            "SELECT oid, typname, typnamespace, typelem, typrelid, typsubscript, typstorage FROM pg.pg_type"
        ):
            found.types[oid] = Type(
                oid=oid,
                name=name,
                namespace=space,
                element=item,
                relation=relation,
                is_array=subscript == ARRAY_SUBSCRIPT and storage != "p",
            )
        for oid, name, space, kind, acl in self._rows(
            "SELECT oid, relname, relnamespace, relkind, relacl FROM pg.pg_class"
        ):
            found.relations[oid] = Relation(oid, name, space, kind, _tuple(acl))
        for row in self._rows(
            "SELECT oid, proname, pronamespace, prokind, proretset, prorettype, proargtypes, proallargtypes, "
            "proargmodes, proargnames, pronargdefaults, provariadic FROM pg.pg_proc"
        ):
            found.routines[row[0]] = Routine(*row[:6], *map(_tuple, row[6:10]), *row[10:])
        self._read_texts(found)
        return found

    def _read_texts(self, found: Directory) -> None:
        """Note names, comments, privileges and definitions."""
        found.functions = {routine.name for routine in found.routines.values()}
        found.settings = dict(self._rows("SELECT lower(name), setting FROM pg.pg_settings"))
        found.keywords = {word for (word,) in self._rows("SELECT word FROM pg.pg_get_keywords WHERE catcode <> 'U'")}
        found.namespaces = dict(self._rows("SELECT oid, nspname FROM pg.pg_namespace"))
        found.roles = dict(self._rows("SELECT oid, rolname FROM pg.pg_authid"))
        found.classes = dict(self._rows("SELECT relname, oid FROM pg.pg_class WHERE relnamespace = 11"))
        for relation, number, name in self._rows("SELECT attrelid, attnum, attname FROM pg.pg_attribute"):
            found.columns.setdefault(relation, {})[number] = name
        for catalog, oid, number, text in self._rows(
            "SELECT classoid, objoid, objsubid, description FROM pg.pg_description"
        ):
            found.comments[catalog, oid, number] = text
        for catalog, oid, text in self._rows("SELECT classoid, objoid, description FROM pg.pg_shdescription"):
            found.shared_comments[catalog, oid] = text
        for catalog, column in PLACES.items():
            found.places[catalog] = dict(self._rows(f"SELECT oid, {column} FROM pg.{catalog}"))
        for catalog, column in ACLS.items():
            for oid, acl in self._rows(f"SELECT oid, {column} FROM pg.{catalog}"):
                found.acls[catalog, oid] = _tuple(acl)
        for relation in self.declared:
            if relation.definition:
                found.definitions |= {(relation.oid, pretty): relation.definition for pretty in (False, True)}
        for oid, pretty, text in self._rows("SELECT oid, pretty, definition FROM pg.definitions"):
            found.definitions[oid, pretty] = text
        for oid, relation, key in self._rows("SELECT indexrelid, indrelid, indkey FROM pg.pg_index"):
            found.keys[oid] = [found.columns.get(relation, {}).get(number, "") for number in key]

    def _register(self) -> None:
        functions = {name: (own.call, own.arguments, own.returns, own.takes_null) for name, own in FUNCTIONS.items()}
        functions |= {f"name_{kind}": (call, (kind,), "text", False) for kind, call in NAMES_OF.items()}
        for name, (call, arguments, returns, takes_null) in functions.items():
            self._root.create_function(
                f"own_{name}",
                _with(self.directory, call, len(arguments), takes_null=takes_null),
                [kinds.duckdb_type(kind) for kind in arguments],
                kinds.duckdb_type(returns),
                null_handling=FunctionNullHandling.SPECIAL,
            )
        for name, sql in information.MACROS.items():
            self._root.execute(f"CREATE MACRO {name} AS {sql}")

    def _lock_down(self) -> None:
        for setting in (
            "autoinstall_known_extensions=false",
            "autoload_known_extensions=false",
            "error_on_division_by_zero=true",
            f"memory_limit='{CATALOG_MEMORY}'",
            "threads=1",
            "temp_directory=''",
            "TimeZone='UTC'",
            "enable_external_access=false",
            "lock_configuration=true",
        ):
            self._root.execute(f"SET GLOBAL {setting}")


ARRAY_SUBSCRIPT = 6179
"""The subscripting function that makes a type a true array."""

PLACES = {
    "pg_class": "relnamespace",
    "pg_type": "typnamespace",
    "pg_proc": "pronamespace",
    "pg_operator": "oprnamespace",
    "pg_opclass": "opcnamespace",
    "pg_opfamily": "opfnamespace",
    "pg_collation": "collnamespace",
    "pg_conversion": "connamespace",
    "pg_ts_config": "cfgnamespace",
    "pg_ts_dict": "dictnamespace",
    "pg_ts_parser": "prsnamespace",
    "pg_ts_template": "tmplnamespace",
}
ACLS = {
    "pg_class": "relacl",
    "pg_namespace": "nspacl",
    "pg_database": "datacl",
    "pg_proc": "proacl",
    "pg_type": "typacl",
    "pg_language": "lanacl",
    "pg_tablespace": "spcacl",
}


def _tuple(items: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return None if items is None else tuple(items)


def _with(
    directory: Directory, call: Callable[..., Any], arguments: int, *, takes_null: bool
) -> Callable[..., Any]:  # Any: DuckDB checks what a function returns
    """Return a function with the directory bound and a fixed number of arguments, which DuckDB counts."""

    def run(*values: object) -> Any:
        return None if None in values and not takes_null else call(directory, *values)

    if arguments == 1:
        return lambda a: run(a)
    if arguments == 2:
        return lambda a, b: run(a, b)
    return lambda a, b, c: run(a, b, c)


_stores: weakref.WeakKeyDictionary[Declared, Store] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def store_of(gate: Declared) -> Store:
    """Return the store of a gate, made when it is first needed and closed with it."""
    with _making:
        if gate not in _stores:
            _stores[gate] = Store(gate)
            weakref.finalize(gate, _stores[gate].close)
        return _stores[gate]
