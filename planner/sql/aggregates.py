"""The aggregates: one entry for each kind says what it reads and returns; and which calls of a SELECT are one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum

from sqlglot import exp

from planner.basics.nodes import function_name


class AggregateKind(StrEnum):
    """What is asked of the rows of a group. The values are what users see."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    VARIANCE = "variance"
    STDDEV = "stddev"
    DISTINCT = "distinct"
    QUANTILE = "quantile"


class Returns(Enum):
    """What an answer is: a whole number, one if what is summed is whole, any number, or a value of the argument."""

    WHOLE = "whole"
    SUMMED = "summed"
    NUMBER = "number"
    VALUE = "value"


@dataclass(frozen=True, kw_only=True)
class AggregateTraits:
    """What holds for all aggregates of a kind.

    powers: up to which power values are summed if it is made of counts and sums, 0 for rows alone. They are bought
        together, as one linear question. None if it is a question of its own, about which values there are.
    is_total: whether it is one count or one sum, so that its error is known before anything is measured.
    """

    powers: int | None
    is_total: bool = False
    returns: Returns = Returns.NUMBER

    @property
    def is_linear(self) -> bool:
        return self.powers is not None


AGGREGATES: Mapping[AggregateKind, AggregateTraits] = {
    AggregateKind.COUNT: AggregateTraits(powers=0, is_total=True, returns=Returns.WHOLE),
    AggregateKind.SUM: AggregateTraits(powers=1, is_total=True, returns=Returns.SUMMED),
    AggregateKind.AVG: AggregateTraits(powers=1),
    AggregateKind.VARIANCE: AggregateTraits(powers=2),
    AggregateKind.STDDEV: AggregateTraits(powers=2),
    AggregateKind.DISTINCT: AggregateTraits(powers=None, returns=Returns.WHOLE),
    AggregateKind.QUANTILE: AggregateTraits(powers=None, returns=Returns.VALUE),
}

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
