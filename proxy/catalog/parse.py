"""From text to trees, in PostgreSQL's dialect as its clients use it on the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import ClassVar

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import TokenType

from planner.basics.errors import Refusal
from planner.sql.dialect import Sql
from planner.sql.statement import WRITES, parsed, tokens_of

CATALOG, INFORMATION = "pg_catalog", "information_schema"

Relations = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Kinds by schema, relation and column."""

NOT_TYPES = (TokenType.OBJECT_IDENTIFIER, TokenType.PSEUDO_TYPE, TokenType.NAME)


class Dialect(Sql):
    """PostgreSQL, with oid, regclass, name and their like as ordinary names of types, so that arrays of them parse."""

    class Tokenizer(Sql.Tokenizer):
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: token for word, token in Sql.Tokenizer.KEYWORDS.items() if token not in NOT_TYPES
        }


@lru_cache(maxsize=1024)
def parse(sql: str) -> exp.Query | None:
    """Return the tree of a query that only reads, or None; not to be changed by whoever gets it."""
    try:
        tokens_of(sql)  # not longer than the gate allows
        found = parsed(sql, Dialect)
    except (SqlglotError, Refusal, RecursionError):
        return None
    tree = found[0] if len(found) == 1 else None
    while isinstance(tree, exp.Subquery) and not tree.args.get("alias"):
        tree = tree.this
    if isinstance(tree, exp.Values):
        tree = exp.select("*").from_(exp.alias_(tree, "values", table=True))
    if not isinstance(tree, exp.Query) or isinstance(tree, exp.Table) or tree.find(*WRITES):
        return None
    _note_names(tree, sql)
    return tree


def _note_names(tree: exp.Query, sql: str) -> None:
    """Note the name under which each function was called: sqlglot has one node for several names."""
    for node in tree.find_all(exp.Func):
        if "start" in node.meta:
            node.meta["name"] = sql[node.meta["start"] : node.meta["end"] + 1].lower().strip('"')


def definition(table: exp.Table) -> exp.CTE | None:
    """Return what WITH says a name means, from the innermost clause outwards."""
    node: exp.Expr | None = table
    while node is not None:
        clause = node.args.get("with_")
        for cte in clause.expressions if clause is not None else []:
            if cte.alias.lower() == table.name.lower():
                return cte  # type: ignore[no-any-return]
        node = node.parent
    return None


def schema_of(table: exp.Table, relations: Relations) -> str | None:
    """Return the catalog schema that a table stands in; None if it is a user's."""
    schema, name = table.db.lower(), table.name.lower()
    if schema in (CATALOG, INFORMATION):
        return schema
    return CATALOG if not schema and name in relations[CATALOG] else None


def is_function(table: exp.Table) -> bool:
    """Return whether a table is a call, as in FROM generate_series(1, 3)."""
    return not isinstance(table.this, exp.Identifier)
