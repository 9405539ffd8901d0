"""Every kind of aggregate has one entry, from which the rest of the planner knows it."""

from __future__ import annotations

import pytest
from sqlglot import exp

from planner.plans.estimates import ESTIMATORS
from planner.plans.plan import MAKERS
from planner.sql.aggregates import AGGREGATES, AggregateKind
from planner.sql.query import Aggregate


@pytest.mark.parametrize("kind", AggregateKind)
def test_a_kind_is_a_total_or_has_one_function_that_makes_its_answer(kind: AggregateKind) -> None:
    traits = AGGREGATES[kind]
    assert [traits.is_total, kind in ESTIMATORS, kind in MAKERS].count(True) == 1
    assert traits.is_linear == (kind not in MAKERS)


@pytest.mark.parametrize(
    ("kind", "type_", "is_whole"),
    [
        (AggregateKind.COUNT, "double", True),
        (AggregateKind.DISTINCT, "text", True),
        (AggregateKind.SUM, "bigint", True),
        (AggregateKind.SUM, "double", False),
        (AggregateKind.AVG, "bigint", False),
        (AggregateKind.QUANTILE, "bigint", False),
    ],
)
def test_counts_and_sums_of_integers_are_whole(kind: AggregateKind, type_: str, is_whole: bool) -> None:
    argument = exp.column("x")
    argument.type = exp.DataType.build(type_)
    assert Aggregate(kind=kind, argument=argument).is_whole is is_whole
