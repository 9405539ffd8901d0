"""Where a table is kept: the `source` of a policy, and which engine reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

SUFFIXES = (".parquet", ".csv", ".duckdb")
SERVERS = {"postgresql": "postgres", "postgres": "postgres", "spark": "spark"}
"""The engine of each scheme; whatever has none of them is a file, and DuckDB reads it."""

SERVED = frozenset(SERVERS.values())
ABSENT = "releases"
"""Source of a protected table that is not here: what was released about it is answered, nothing is measured."""

EXAMPLES = {"postgres": "postgresql://host/database#schema.table", "spark": "spark://host:7077#schema.table"}
SECRETS = ("password", "sslpassword")


@dataclass(frozen=True)
class Location:
    """One source, taken apart: the engine, the file or server, and the table there."""

    engine: str
    place: str
    inner: str | None = None


def located(source: str) -> Location:
    """Return where a source says that its rows are.

    >>> located("data/#1/people.duckdb#adult")
    Location(engine='duckdb', place='data/#1/people.duckdb', inner='adult')
    >>> located("postgresql://db.example/clinic#public.visits")
    Location(engine='postgres', place='postgresql://db.example/clinic', inner='public.visits')
    >>> located("spark:local[*]#parquet.`/data/visits`")
    Location(engine='spark', place='local[*]', inner='parquet.`/data/visits`')
    >>> located("releases").engine
    'absent'
    """
    if source == ABSENT:
        return Location("absent", source)
    scheme = re.match(r"([a-z]+):", source)
    engine = SERVERS.get(scheme[1], "duckdb") if scheme else "duckdb"
    if engine == "duckdb":
        name, _, inner = source.rpartition("#")
        return Location(engine, name, inner) if name.endswith(".duckdb") else Location(engine, source)
    place, _, inner = source.partition("#")
    if engine == "spark" and not place.startswith("spark://"):
        place = place.removeprefix("spark:")
    return Location(engine, place, inner)


def holds_secret(url: str) -> bool:
    """Return whether a URL has a password in it, or can't be read."""
    try:
        parts = urlsplit(url)
        return parts.password is not None or any(key in parse_qs(parts.query) for key in SECRETS)
    except ValueError:
        return True


def table_name(found: Location) -> exp.Table | None:
    """Return the table after the `#` as that engine's SQL reads it, or None if it is not the name of one."""
    try:
        table = parse_one(found.inner or "", into=exp.Table, dialect=found.engine)
    except SqlglotError:
        return None
    plain = all(key in ("this", "db", "catalog") for key, value in table.args.items() if value)
    return table if plain and all(isinstance(part, exp.Identifier) for part in table.parts) else None
