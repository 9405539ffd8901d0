"""The `source` of a table in the policy, read and checked."""

from __future__ import annotations

from pathlib import Path

from planner.policy.location import EXAMPLES, SERVED, SERVERS, SUFFIXES, Location, holds_secret, located, table_name
from planner.policy.toml import Section, basic_string


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


def _check_file(section: Section, found: Location, *, file: Path) -> None:
    name, suffix = found.place, file.suffix
    if suffix not in SUFFIXES:
        section.wrong(f"source must end in {', '.join(SUFFIXES)}, got {basic_string(name)}", "source")
    elif suffix == ".duckdb" and not found.inner:
        section.wrong(f'source must name the table in the file, as in "{name}#people"', "source")
    elif not file.is_file():
        section.wrong(f"source is not a file: {file}", "source")
