"""PostgreSQL's catalog functions, answered from what the catalog's own tables hold.

Each is a plain function of a `Directory` and its arguments; DuckDB calls it by the name `own_…`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from proxy.catalog.errors import TOO_LARGE
from proxy.catalog.names import (
    FIRST_OID,
    Directory,
    Routine,
    format_type,
    parse_ident,
    pg_get_userbyid,
    quote_ident,
    quote_literal,
    to_regclass,
    to_regnamespace,
    to_regproc,
    to_regrole,
    to_regtype,
)
from proxy.catalog.relations.privileges import has_privilege, pg_has_role, visible_in
from proxy.limits import MAX_CATALOG_TEXT

ENCODINGS = {6: "UTF8", 0: "SQL_ASCII", 8: "LATIN1", 24: "WIN1252"}


# --- comments and definitions -------------------------------------------------------------------------------


def obj_description(directory: Directory, oid: int, catalog: str) -> str | None:
    if not catalog:
        return next((text for (_, o, sub), text in directory.comments.items() if o == oid and sub == 0), None)
    return directory.comments.get((directory.classes.get(catalog, 0), oid, 0))


def col_description(directory: Directory, oid: int, number: int) -> str | None:
    return directory.comments.get((directory.classes["pg_class"], oid, number))


def shobj_description(directory: Directory, oid: int, catalog: str) -> str | None:
    return directory.shared_comments.get((directory.classes.get(catalog, 0), oid))


def pg_get_constraintdef(directory: Directory, oid: int, pretty: bool) -> str | None:
    return directory.definitions.get((oid, pretty))


def pg_get_viewdef(directory: Directory, what: str, pretty: bool) -> str | None:
    return directory.definitions.get((to_regclass(directory, what) or 0, pretty))


def pg_get_indexdef(directory: Directory, oid: int, column: int, pretty: bool) -> str | None:
    if column == 0:
        return directory.definitions.get((oid, pretty))
    names = directory.keys.get(oid, [])
    return names[column - 1] if 0 < column <= len(names) else "" if names else None


def pg_get_function_result(directory: Directory, oid: int) -> str | None:
    found = directory.routines.get(oid)
    if found is None or found.kind == "p":
        return None
    modes = found.modes or ()
    table = [i for i, mode in enumerate(modes) if mode == "t"]
    if table:
        return f"TABLE({', '.join(_argument(directory, found, i, mode='') for i in table)})"
    return ("SETOF " if found.returns_set else "") + (format_type(directory, found.returns, None) or "")


def pg_get_function_arguments(directory: Directory, oid: int) -> str | None:
    found = directory.routines.get(oid)
    if found is None:
        return None
    types = found.all_types or found.arguments
    modes = found.modes or ("i",) * len(types)
    words = {"i": "", "o": "OUT ", "b": "INOUT ", "v": "VARIADIC "}
    parts = [_argument(directory, found, i, mode=words[mode]) for i, mode in enumerate(modes) if mode != "t"]
    return ", ".join(parts)


def _argument(directory: Directory, routine: Routine, index: int, *, mode: str) -> str:
    types = routine.all_types or routine.arguments
    name = routine.names[index] if routine.names and index < len(routine.names) else ""
    text = format_type(directory, types[index], None)
    return f"{mode}{quote_ident(directory, name)} {text}" if name else f"{mode}{text}"


# --- the rest -----------------------------------------------------------------------------------------------


def pg_encoding_to_char(_: Directory, number: int) -> str:
    return ENCODINGS.get(number, "")


def pg_char_to_encoding(_: Directory, name: str) -> int:
    return next((number for number, known in ENCODINGS.items() if known == name.upper().replace("-", "")), -1)


def pg_size_pretty(_: Directory, size: int) -> str:
    """Return a size in the largest unit of which there are ten.

    >>> pg_size_pretty(Directory(), 0), pg_size_pretty(Directory(), 10240 * 1024)
    ('0 bytes', '10 MB')
    """
    units = ["bytes", "kB", "MB", "GB", "TB", "PB"]
    while abs(size) >= 10 * 1024 and len(units) > 1:
        size, units = round(size / 1024), units[1:]
    return f"{size} {units[0]}"


def pg_relation_is_publishable(directory: Directory, oid: int) -> bool | None:
    found = directory.relations.get(oid)
    return None if found is None else found.kind in "rp" and oid >= FIRST_OID


def default_setting(directory: Directory, name: str) -> str | None:
    return directory.settings.get(name.lower())


def nothing(*_: object) -> None:
    return None


def zero(*_: object) -> int:
    return 0


def false(*_: object) -> bool:
    return False


def empty(*_: object) -> str:
    return ""


def format_text(directory: Directory, template: str, values: list[str | None]) -> str:
    """Return PostgreSQL's format(): %s as it is, %I as a name, %L as a literal, %% as %.

    >>> format_text(Directory(), "%I = %L (%s%%)", ["A", "it's", None])
    '"A" = \\'it\\'\\'s\\' (%)'
    """
    if template.count("%") * max((len(value or "") for value in values), default=0) > MAX_CATALOG_TEXT:
        raise ValueError(TOO_LARGE)
    position = 0

    def piece(found: re.Match[str]) -> str:
        nonlocal position
        if found[2] == "%":
            return "%"
        index = int(found[1][:-1]) - 1 if found[1] else position
        position = index + 1
        value = values[index] if index < len(values) else None
        if found[2] == "L":
            return "NULL" if value is None else quote_literal(directory, value)
        return "" if value is None else quote_ident(directory, value) if found[2] == "I" else value

    return re.sub(r"%(\d+\$)?([sIL%])", piece, template)


@dataclass(frozen=True)
class Function:
    """A function of ours: kinds of its arguments, what is passed for those left out, and what it returns."""

    call: Callable[..., object]
    arguments: tuple[str, ...]
    returns: str
    defaults: tuple[object, ...] = ()
    takes_null: bool = False


def _functions() -> dict[str, Function]:
    found = {
        "format_type": Function(format_type, ("oid", "int4"), "text", takes_null=True),
        "parse_ident": Function(parse_ident, ("text",), "_text"),
        "quote_ident": Function(quote_ident, ("text",), "text"),
        "quote_literal": Function(quote_literal, ("text",), "text"),
        "pg_get_userbyid": Function(pg_get_userbyid, ("oid",), "name"),
        "obj_description": Function(obj_description, ("oid", "name"), "text", ("",)),
        "col_description": Function(col_description, ("oid", "int4"), "text"),
        "shobj_description": Function(shobj_description, ("oid", "name"), "text"),
        "pg_get_viewdef": Function(pg_get_viewdef, ("text", "bool"), "text", (False,)),
        "pg_get_indexdef": Function(pg_get_indexdef, ("oid", "int4", "bool"), "text", (0, False)),
        "pg_get_constraintdef": Function(pg_get_constraintdef, ("oid", "bool"), "text", (False,)),
        "pg_get_function_result": Function(pg_get_function_result, ("oid",), "text"),
        "pg_get_function_arguments": Function(pg_get_function_arguments, ("oid",), "text"),
        "pg_get_function_identity_arguments": Function(pg_get_function_arguments, ("oid",), "text"),
        "pg_encoding_to_char": Function(pg_encoding_to_char, ("int4",), "name"),
        "pg_char_to_encoding": Function(pg_char_to_encoding, ("name",), "int4"),
        "pg_size_pretty": Function(pg_size_pretty, ("int8",), "text"),
        "pg_relation_is_publishable": Function(pg_relation_is_publishable, ("oid",), "bool"),
        "pg_get_expr": Function(nothing, ("text", "oid", "bool"), "text", (False,)),
        "pg_get_serial_sequence": Function(nothing, ("text", "text"), "text"),
        "pg_tablespace_location": Function(empty, ("oid",), "text"),
        "pg_is_other_temp_schema": Function(false, ("oid",), "bool"),
        "pg_has_role": Function(pg_has_role, ("text", "text", "text"), "bool"),
        "to_regclass": Function(to_regclass, ("text",), "regclass"),
        "to_regtype": Function(to_regtype, ("text",), "regtype"),
        "to_regproc": Function(to_regproc, ("text",), "regproc"),
        "to_regprocedure": Function(to_regproc, ("text",), "regprocedure"),
        "to_regnamespace": Function(to_regnamespace, ("text",), "regnamespace"),
        "to_regrole": Function(to_regrole, ("text",), "regrole"),
        "default_setting": Function(default_setting, ("text",), "text"),
        "format": Function(format_text, ("text", "_text"), "text"),
    }
    found |= {name: Function(nothing, ("oid",), "text") for name in WITHOUT_DEFINITION}
    found |= {name: Function(zero, ("text",), "int8") for name in SIZES}
    for name, catalog in VISIBILITY.items():
        found[name] = Function(visible_in(catalog), ("oid",), "bool")
    for name, catalog in PRIVILEGES.items():
        found[name] = Function(has_privilege(catalog), ("text", "text", "text"), "bool")
    return found


WITHOUT_DEFINITION = (
    "pg_get_ruledef", "pg_get_triggerdef", "pg_get_functiondef", "pg_get_function_sqlbody", "pg_get_partkeydef",
    "pg_get_partition_constraintdef", "pg_get_statisticsobjdef", "pg_get_statisticsobjdef_columns",
    "pg_get_statisticsobjdef_expressions",
)  # fmt: skip
SIZES = (
    "pg_table_size", "pg_relation_size", "pg_total_relation_size", "pg_indexes_size", "pg_database_size",
    "pg_tablespace_size",
)  # fmt: skip
"""Zero for everything: how large a protected table is, is nobody's business."""

VISIBILITY = {
    "pg_table_is_visible": "pg_class",
    "pg_type_is_visible": "pg_type",
    "pg_function_is_visible": "pg_proc",
    "pg_operator_is_visible": "pg_operator",
    "pg_opclass_is_visible": "pg_opclass",
    "pg_opfamily_is_visible": "pg_opfamily",
    "pg_collation_is_visible": "pg_collation",
    "pg_conversion_is_visible": "pg_conversion",
    "pg_statistics_obj_is_visible": "pg_statistic_ext",
    "pg_ts_config_is_visible": "pg_ts_config",
    "pg_ts_dict_is_visible": "pg_ts_dict",
    "pg_ts_parser_is_visible": "pg_ts_parser",
    "pg_ts_template_is_visible": "pg_ts_template",
}
PRIVILEGES = {
    "has_table_privilege": "pg_class",
    "has_any_column_privilege": "pg_class",
    "has_sequence_privilege": "pg_class",
    "has_schema_privilege": "pg_namespace",
    "has_database_privilege": "pg_database",
    "has_function_privilege": "pg_proc",
    "has_type_privilege": "pg_type",
    "has_language_privilege": "pg_language",
    "has_tablespace_privilege": "pg_tablespace",
}
"""With two arguments they ask about the session's user."""

FUNCTIONS = _functions()


@dataclass(frozen=True)
class TableFunction:
    """A function that gives rows: from a stored relation of the same name, or none at all."""

    columns: dict[str, str]


TABLES = {
    "pg_get_keywords": TableFunction(
        {"word": "text", "catcode": "char", "barelabel": "bool", "catdesc": "text", "baredesc": "text"}
    ),
    "pg_available_extensions": TableFunction({"name": "name", "default_version": "text", "comment": "text"}),
    "pg_partition_ancestors": TableFunction({"relid": "regclass"}),
    "pg_options_to_table": TableFunction({"option_name": "text", "option_value": "text"}),
    "pg_listening_channels": TableFunction({"pg_listening_channels": "text"}),
    "pg_timezone_names": TableFunction({"name": "text", "abbrev": "text", "utc_offset": "interval", "is_dst": "bool"}),
}
