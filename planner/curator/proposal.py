"""A first policy for a source: its column names and types, and nothing that would have to be read off its rows.

Guarantee: the text depends on the names and types of the columns only. The types of a CSV file are a guess
that DuckDB makes from its rows, and its first line is taken for its names: the curator decides about both.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import duckdb

from planner.basics.errors import SourceFailed
from planner.policy.location import EXAMPLES, Location, holds_secret, located, table_name
from planner.policy.table import Table
from planner.policy.toml import basic_string, quoted
from planner.sources.source import open_source

INTEGERS = "TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT"
TYPES = {
    **dict.fromkeys(INTEGERS.split(), "integer"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "float"),
    **dict.fromkeys(("VARCHAR", "ENUM"), "text"),
    "BOOLEAN": "boolean",
    "DATE": "date",
    **{kind: kind for kind in ("integer", "text", "boolean", "date", "timestamp")},  # columns on servers
    **dict.fromkeys(("decimal", "double"), "float"),
    "timestamptz": "timestamp",
}
PLACEHOLDERS = {
    "boolean": "",
    "integer": "min = ?, max = ?",
    "float": "min = ?, max = ?, step = ?",
    "text": 'values = ["?", "?"]',
    "date": 'min = "?", max = "?"',
    "timestamp": 'min = "?", max = "?", step = "1 hour"',
}

HEADER = """\
# A first policy for {file}, written by `noisegate init`.
# The names and types of the columns come from the file's schema (the types of a CSV file are a guess);
# never a value. `noisegate check` lists what is still missing, line by line.

[budget]                  # for the whole deployment, over all analysts together
epsilon = 1.0
delta = 1e-9

[defaults]
error = 50                # 95 % half-width of a count, unless the analyst says otherwise

[analysts.analyst]        # one section for each analyst; the shares add up to at most 1
share = 1.0
# password = "…"          # made by `noisegate passwd`
"""

TABLE = """
[tables.{name}]
source = {source}
privacy_unit = "row"      # if a person can have several rows: their column here, and max_rows_per_unit = ?

# The bounds and lists of values are left for you: a bound must be public knowledge, not read off the data,
# because the largest value, or the list of those that occur, would tell about the people who have them.
# Write what anyone could know without the data. What lies outside is clipped (numbers, dates) or dropped
# (lists; other = "Other" gives it a cell). Add nullable = true where NULL should count, and write
# hidden = true for a column that nobody should see.
[tables.{name}.columns]
"""


@dataclass(frozen=True)
class _Field:
    """One column of the source: its name, and DuckDB's name of its type or a server's kind."""

    name: str
    type: str


def propose(source: Path | str) -> str:
    """Return the text of a first policy for a file, one `file.duckdb#table`, or a table on a server.

    The text is TOML; checking it as a policy finds the missing bounds and nothing else.
    """
    found = located(str(source))
    file, inner = found.place, found.inner
    tables = _read_schema(Path(file), inner) if found.engine == "duckdb" else _read_server(found, str(source))
    if not tables:
        raise SourceFailed(f"no table to declare in {source}")
    names = _plain_names(tables)
    parts = [HEADER.format(file=_one_line(Path(file).name if found.engine == "duckdb" else inner or ""))]
    for table, fields in tables.items():
        whole = f"{file}#{table}" if Path(file).suffix == ".duckdb" else str(source)
        parts.append(TABLE.format(name=names[table], source=basic_string(whole)) + _columns(fields))
    return "".join(parts)


def _read_server(found: Location, source: str) -> dict[str, list[_Field]]:
    """Return the columns of a table on a server."""
    name = table_name(found)
    if name is None:
        raise SourceFailed(f"name a table after a #, as in {EXAMPLES[found.engine]}")
    if found.engine == "postgres" and holds_secret(found.place):
        raise SourceFailed("a source must not hold a password; put it into a passfile or a service file")
    last = Path(name.name).stem
    with closing(open_source(Table(name=last, source=source))) as opened:
        return {last: [_Field(column, kind) for column, kind in opened.columns().items()]}


def _read_schema(file: Path, inner: str | None) -> dict[str, list[_Field]]:
    """Return the columns of each table; DuckDB's own error texts may quote rows, so they stop here."""
    readers = {".parquet": "read_parquet(?)", ".csv": "read_csv(?, header = true)"}
    if file.suffix not in (*readers, ".duckdb"):
        raise SourceFailed(f"a source must end in .parquet, .csv or .duckdb, got {file}")
    if not file.is_file():
        raise SourceFailed(f"not a file: {file}")
    try:
        if file.suffix == ".duckdb":
            return _read_database(file, inner)
        with duckdb.connect() as connection:
            rows = connection.execute(f"DESCRIBE SELECT * FROM {readers[file.suffix]}", [str(file)]).fetchall()
    except duckdb.Error:
        raise SourceFailed(f"{file} can't be read as {file.suffix}") from None
    return {file.stem: [_Field(name, kind) for name, kind, *_ in rows]}


def _read_database(file: Path, inner: str | None) -> dict[str, list[_Field]]:
    with duckdb.connect(str(file), read_only=True) as connection:
        rows = connection.execute(
            "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
            "AND database_name = current_database() ORDER BY schema_name, table_name, column_index"
        ).fetchall()
    tables: dict[str, list[_Field]] = {}
    for schema, table, column, kind in rows:
        name = table if schema == "main" else f"{schema}.{table}"
        tables.setdefault(name, []).append(_Field(column, kind))
    return {name: fields for name, fields in tables.items() if inner is None or name == inner}


def _plain_names(tables: dict[str, list[_Field]]) -> dict[str, str]:
    """Return for each table a name that a policy accepts, each once."""
    names: dict[str, str] = {}
    for table in tables:
        plain = re.sub(r"[^a-z0-9_]+", "_", table.lower()).strip("_") or "people"
        plain = f"t_{plain}" if plain[0].isdigit() or plain == "noisegate" else plain
        number = 2
        name = plain
        while name in names.values():
            name, number = f"{plain}_{number}", number + 1
        names[table] = name
    return names


def _columns(fields: list[_Field]) -> str:
    """Return one line a column, with keys and comments below each other."""
    lines = [_column(field) for field in fields]
    keys, declared = (max(len(line[i]) for line in lines) for i in (0, 1))
    return "".join(
        f"{key.ljust(keys)} = {{ {entry} }}{' ' * (declared - len(entry))}  {comment}".rstrip() + "\n"
        if entry
        else f"{comment}\n"
        for key, entry, comment in lines
    )


def _column(field: _Field) -> tuple[str, str, str]:
    """Return (key, what the schema tells, what the curator has to add as a comment)."""
    key = quoted(field.name)
    if field.name.startswith("__") or not field.name:
        return "", "", f"# {key} can't be declared: a name must not be empty or start with __"
    kind, step = _declared_type(field.type)
    if kind is None:
        return key, "hidden = true", f"# {_base(field.type)} can't be asked about"
    placeholder = PLACEHOLDERS[kind].partition(", step")[0] if step else PLACEHOLDERS[kind]
    return key, f'type = "{kind}"{step}', f"# add {placeholder}" if placeholder else ""


def _declared_type(engine_type: str) -> tuple[str | None, str]:
    """Return the policy's type for DuckDB's, or None, and the step of a decimal type."""
    base = _base(engine_type)
    if base == "DECIMAL":
        scale = int(engine_type.rpartition(",")[2].rstrip(")"))
        return ("float", f", step = {_unit(scale)}") if scale else ("integer", "")
    if base.startswith("TIMESTAMP"):
        return "timestamp", ""
    return TYPES.get(base), ""


def _unit(scale: int) -> str:
    return f"0.{'1'.rjust(scale, '0')}"


def _base(engine_type: str) -> str:
    """Return a type without its parameters, which for an ENUM are its values."""
    return "nested" if engine_type.endswith("]") else engine_type.partition("(")[0].strip()


def _one_line(text: str) -> str:
    return re.sub(r"[\x00-\x1f\x7f]", "?", text)
