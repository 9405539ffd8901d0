"""Which calls of a SELECT are aggregates, and not windows over rows."""

from __future__ import annotations

from sqlglot import exp

from planner.basics.nodes import function_name

WINDOW_ONLY = (
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.PercentRank, exp.CumeDist, exp.Ntile, exp.Lag, exp.Lead,
    exp.FirstValue, exp.LastValue, exp.NthValue,
)  # fmt: skip
QUANTILE_NAMES = {"quantile_cont": True, "quantile_disc": False, "quantile": False}


def is_aggregate(select: exp.Select) -> bool:
    parts = [*select.expressions, *(select.args.get(a) for a in ("having", "order", "qualify"))]
    return bool(
        select.args.get("group")
        or select.args.get("distinct")
        or any(calls(part) for part in parts if part is not None)
    )


def calls(node: exp.Expr) -> bool:
    """Return whether an aggregate that is not a window function stands in `node`, subqueries left aside."""
    if isinstance(node, exp.Query | exp.Subquery):
        return False
    if isinstance(node, exp.Window):
        return any(calls(part) for part in window_parts(node))
    return is_call(node) or any(calls(child) for child in node.iter_expressions())


def window_parts(window: exp.Window) -> list[exp.Expr]:
    """Return what a window function computes from: its arguments, not the function itself."""
    function = window.this
    while isinstance(function, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        function = function.this
    return [
        *function.iter_expressions(),
        *(part for part in window.iter_expressions() if part is not window.this),
    ]


def is_call(node: exp.Expr) -> bool:
    if isinstance(node, exp.Anonymous):
        return function_name(node) in QUANTILE_NAMES
    return isinstance(node, exp.AggFunc | exp.Filter | exp.WithinGroup) and not isinstance(node, WINDOW_ONLY)
