"""Where a table is kept: the `source` of a policy, and which engine reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from planner.policy.toml import Section, basic_string

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


def read_source(section: Section, base: Path, *, protected: bool) -> str:
    """Return the source with its path made absolute; a DuckDB file keeps its `#table`."""
    source = section.text("source")
    if source is None:
        if "source" not in section:
            section.wrong('source is missing, for instance source = "people.parquet"')
        return ""
    found = located(source)
    if found.engine == "absent" and protected:
        return source
    if found.engine in SERVED:
        _check_server(section, found, protected=protected)
        return source
    if "://" in source:
        served = ", ".join(f"{scheme}:" for scheme in SERVERS)
        section.wrong(f"source must be a file or start with {served}, got {source.partition('://')[0]}://", "source")
        return source
    _check_file(section, found, file=base / found.place)
    return str(base / found.place) if found.inner is None else f"{base / found.place}#{found.inner}"


def _check_server(section: Section, found: Location, *, protected: bool) -> None:
    """Note what is wrong; the source itself is never repeated, since it may hold a password."""
    if not protected:
        section.wrong("source must be a file: public and synthetic tables are read whole", "source")
    if found.engine == "postgres" and holds_secret(found.place):
        where = "a passfile, a service file or PGPASSWORD"
        section.wrong(f"source must not hold a password; libpq takes it from {where}", "source")
    elif table_name(found) is None:
        section.wrong(f'source must name a table after its #, as in "{EXAMPLES[found.engine]}"', "source")


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


def _check_file(section: Section, found: Location, *, file: Path) -> None:
    name, suffix = found.place, file.suffix
    if suffix not in SUFFIXES:
        section.wrong(f"source must end in {', '.join(SUFFIXES)}, got {basic_string(name)}", "source")
    elif suffix == ".duckdb" and not found.inner:
        section.wrong(f'source must name the table in the file, as in "{name}#people"', "source")
    elif not file.is_file():
        section.wrong(f"source is not a file: {file}", "source")
