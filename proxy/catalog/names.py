"""Names: of types, relations and functions as PostgreSQL writes them, and the objects behind them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from planner.basics.numerals import whole

CATALOG_NAMESPACE, PUBLIC_NAMESPACE = 11, 2200
VISIBLE = (CATALOG_NAMESPACE, PUBLIC_NAMESPACE)
"""Namespaces whose objects need no schema before their name."""

OWNER = "noisegate"
"""The role that owns every object."""

FIRST_OID, LAST_OID = 16384, 2**32 - 1
"""Objects of the policy are numbered from here on, as a user's are in PostgreSQL."""

VERBOSE = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "varchar": "character varying",
    "bpchar": "character",
    "varbit": "bit varying",
    "bit": "bit",
    "numeric": "numeric",
    "interval": "interval",
    "char": '"char"',
}
"""Names that SQL has for types, where they differ from pg_type's."""

TIMES = {
    "time": ("time", " without time zone"),
    "timetz": ("time", " with time zone"),
    "timestamp": ("timestamp", " without time zone"),
    "timestamptz": ("timestamp", " with time zone"),
}


@dataclass(frozen=True, kw_only=True)
class Type:
    oid: int
    name: str
    namespace: int
    element: int
    relation: int
    is_array: bool


@dataclass(frozen=True)
class Relation:
    oid: int
    name: str
    namespace: int
    kind: str
    acl: tuple[str, ...] | None


@dataclass(frozen=True)
class Routine:
    oid: int
    name: str
    namespace: int
    kind: str
    returns_set: bool
    returns: int
    arguments: tuple[int, ...]
    all_types: tuple[int, ...] | None
    modes: tuple[str, ...] | None
    names: tuple[str, ...] | None
    defaults: int
    variadic: int


@dataclass(kw_only=True)
class Directory:
    """Where catalog functions look things up; filled once from the catalog's tables."""

    types: dict[int, Type] = field(default_factory=dict)
    relations: dict[int, Relation] = field(default_factory=dict)
    routines: dict[int, Routine] = field(default_factory=dict)
    namespaces: dict[int, str] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    keywords: set[str] = field(default_factory=set)
    """Words that need quotes when they are used as names."""
    roles: dict[int, str] = field(default_factory=dict)
    columns: dict[int, dict[int, str]] = field(default_factory=dict)
    comments: dict[tuple[int, int, int], str] = field(default_factory=dict)
    shared_comments: dict[tuple[int, int], str] = field(default_factory=dict)
    places: dict[str, dict[int, int]] = field(default_factory=dict)
    """Namespace of each object, by catalog and oid."""
    acls: dict[tuple[str, int], tuple[str, ...] | None] = field(default_factory=dict)
    definitions: dict[tuple[int, bool], str] = field(default_factory=dict)
    """SQL of views, constraints and indexes, as it is and in its pretty form."""
    keys: dict[int, list[str]] = field(default_factory=dict)
    """Columns of each index."""
    settings: dict[str, str] = field(default_factory=dict)
    classes: dict[str, int] = field(default_factory=dict)
    """Oids of the catalogs by name."""

    # --- names

    def named(self, schema: int, name: str) -> str:
        """Return a name, with its schema and in quotes where these are needed."""
        bare = quote_ident(self, name)
        return bare if schema in VISIBLE else f"{quote_ident(self, self.namespaces.get(schema, '?'))}.{bare}"

    def relation_named(self, text: str) -> int | None:
        return self._find(text, {(r.namespace, r.name): r.oid for r in self.relations.values()})

    def _find(self, text: str, known: dict[tuple[int, str], int]) -> int | None:
        parts = split_name(text)
        if len(parts) == 1:
            return next((known[space, parts[0]] for space in VISIBLE if (space, parts[0]) in known), None)
        spaces = [oid for oid, name in self.namespaces.items() if name == parts[-2]]
        return known.get((spaces[0], parts[-1])) if spaces else None


def split_name(text: str) -> list[str]:
    """Return the parts of a dotted name, folded to lower case outside quotes.

    >>> split_name('Public."My Table"')
    ['public', 'My Table']
    """
    parts = re.findall(r'"((?:[^"]|"")*)"|([^".\s][^".]*)', text.strip())
    return [quoted.replace('""', '"') if quoted else bare.strip().lower() for quoted, bare in parts] or [""]


def parse_ident(_: Directory, text: str) -> list[str]:
    return split_name(text)


def find_type(directory: Directory, text: str) -> int | None:
    """Return the oid of a type by any of its names: int4, integer, character varying(3), pg_catalog.text[]."""
    bare, count = re.subn(r"(\s*\[\d*\])+$", "", text.strip())
    bare = re.sub(r"\s*\([\d,\s]*\)", "", bare)
    spelt = {verbose: name for name, verbose in VERBOSE.items()}
    spelt |= {start + end: name for name, (start, end) in TIMES.items()}
    spelt |= {"int": "int4", "decimal": "numeric", "char": "bpchar", "float": "float8", '"char"': "char"}
    parts = split_name(bare)
    name = spelt.get(bare.lower()) or parts[-1]
    known = {(t.namespace, t.name): t.oid for t in directory.types.values()}
    found = directory._find(f'"{name}"' if len(parts) == 1 else bare, known)
    return known.get((directory.types[found].namespace, f"_{name}")) if found and count else found


def quote_ident(directory: Directory, name: str) -> str:
    """Return a name in quotes if it needs them.

    >>> [quote_ident(Directory(keywords={"table"}), name) for name in ("age", "Age", "table")]
    ['age', '"Age"', '"table"']
    """
    plain = re.fullmatch(r"[a-z_][a-z0-9_$]*", name) and name not in directory.keywords
    return name if plain else '"' + name.replace('"', '""') + '"'


def quote_literal(_: Directory, text: str) -> str:
    body = "'" + text.replace("'", "''").replace("\\", "\\\\") + "'"
    return f"E{body}" if "\\" in text else body


def format_type(directory: Directory, oid: int | None, typmod: int | None) -> str | None:
    """Return the SQL name of a type with its length or precision."""
    if oid is None:
        return None
    found = directory.types.get(oid)
    if found is None:
        return "-" if oid == 0 else "???"
    if found.is_array and found.element:
        return f"{format_type(directory, found.element, typmod)}[]"
    limit = "" if typmod is None or typmod < 0 else _limit(found.name, typmod)
    if found.namespace == CATALOG_NAMESPACE and found.name in TIMES:
        start, end = TIMES[found.name]
        return f"{start}{limit}{end}"
    if found.namespace == CATALOG_NAMESPACE and found.name in VERBOSE:
        if found.name == "bpchar" and typmod == -1:
            return "bpchar"
        return f"{VERBOSE[found.name]}{limit}"
    return f"{directory.named(found.namespace, found.name)}{limit}"


def _limit(name: str, typmod: int) -> str:
    if name in ("varchar", "bpchar"):
        return f"({typmod - 4})"
    if name == "numeric":
        return f"({(typmod - 4) >> 16},{(typmod - 4) & 0x7FF})"
    return f"({typmod})" if name in (*TIMES, "interval", "bit", "varbit") and typmod < 7 else ""


# --- oids as names and back ---------------------------------------------------------------------------------


def regclass_name(directory: Directory, oid: int) -> str:
    found = directory.relations.get(oid)
    return directory.named(found.namespace, found.name) if found else "-" if oid == 0 else str(oid)


def regtype_name(directory: Directory, oid: int) -> str:
    return "-" if oid == 0 else format_type(directory, oid, None) or "" if oid in directory.types else str(oid)


def regproc_name(directory: Directory, oid: int) -> str:
    found = directory.routines.get(oid)
    return directory.named(found.namespace, found.name) if found else "-" if oid == 0 else str(oid)


def regprocedure_name(directory: Directory, oid: int) -> str:
    found = directory.routines.get(oid)
    if found is None:
        return "-" if oid == 0 else str(oid)
    types = ",".join(regtype_name(directory, argument) for argument in found.arguments)
    return f"{regproc_name(directory, oid)}({types})"


def regnamespace_name(directory: Directory, oid: int) -> str:
    return quote_ident(directory, directory.namespaces[oid]) if oid in directory.namespaces else _unnamed(oid)


def regrole_name(directory: Directory, oid: int) -> str:
    return quote_ident(directory, directory.roles[oid]) if oid in directory.roles else _unnamed(oid)


def oid_name(_: Directory, oid: int) -> str:
    return _unnamed(oid)


def _unnamed(oid: int) -> str:
    return "-" if oid == 0 else str(oid)


def to_regclass(directory: Directory, text: str) -> int | None:
    number = whole(text, most=LAST_OID)
    return directory.relation_named(text) if number is None else number


def to_regtype(directory: Directory, text: str) -> int | None:
    number = whole(text, most=LAST_OID)
    return find_type(directory, text) if number is None else number


def to_regproc(directory: Directory, text: str) -> int | None:
    if (number := whole(text, most=LAST_OID)) is not None:
        return number
    return directory._find(text.partition("(")[0], {(r.namespace, r.name): r.oid for r in directory.routines.values()})


def to_regnamespace(directory: Directory, text: str) -> int | None:
    return _by_name(directory.namespaces, text)


def to_regrole(directory: Directory, text: str) -> int | None:
    return _by_name(directory.roles, text)


def _by_name(known: dict[int, str], text: str) -> int | None:
    if (number := whole(text, most=LAST_OID)) is not None:
        return number
    return next((oid for oid, name in known.items() if name == split_name(text)[-1]), None)


NAMES_OF: dict[str, Callable[[Directory, int], str]] = {
    "regclass": regclass_name,
    "regtype": regtype_name,
    "regproc": regproc_name,
    "regprocedure": regprocedure_name,
    "regnamespace": regnamespace_name,
    "regrole": regrole_name,
    "regoper": oid_name,
    "regoperator": oid_name,
}


def pg_get_userbyid(directory: Directory, oid: int) -> str:
    return directory.roles.get(oid, f"unknown (OID={oid})")
