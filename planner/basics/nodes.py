"""Nodes of a syntax tree: what an analyst called them, and where they stand in the text."""

from __future__ import annotations

from sqlglot import exp

CLOCKS = (
    "today",
    "now",
    "current_date",
    "get_current_time",
    "get_current_timestamp",
    "transaction_timestamp",
)

"""Functions that tell another time every time."""


def function_name(node: exp.Expr) -> str:
    """Return the name that the analyst wrote, as well as it can be known."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    if "name" in node.meta:
        return str(node.meta["name"])
    name = node.sql_name().lower() if isinstance(node, exp.Func) else node.key
    return {"group_concat": "string_agg", "j_s_o_n_array_agg": "json_agg", "rand": "random"}.get(name, name)


def span(node: exp.Expr) -> tuple[int, int] | None:
    """Return where a node stands in the SQL text: the extent of all its parts that know their place."""
    places = [n.meta for n in node.walk() if "start" in n.meta]
    return (min(m["start"] for m in places), max(m["end"] for m in places)) if places else None
