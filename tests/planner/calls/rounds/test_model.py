"""What a round releases: keys that tell releases apart, and what a plan costs a person."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from planner.calls.rounds.model import Joint, RoundPlan, scaled
from planner.cells.costs import Cost, constant, rho_of
from planner.plans.release import DistinctTask
from planner.plans.settings import Settings
from planner.plans.task import Payable
from planner.policy.table import Table
from planner.questions.labelled import Labelled
from planner.questions.linear import Measurement
from planner.questions.noise import Noise
from planner.sql.aggregates import AggregateKind
from planner.sql.query import Aggregate
from tests.planner.calls.rounds.questions import A, counts, table, workspace


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return table(tmp_path_factory.mktemp("model"))


def joint(found: Table, *, cost: Cost | None = None, name: str = "t") -> Joint:
    made = counts(found, {"a": A})
    return Joint(
        table=name,
        version=1,
        made=made,
        measurement=Measurement(np.array([[3]], dtype=object), 4),
        cost=cost or constant(5),
    )


def together(*tasks: Payable, releases: tuple[int, ...] = (), populations: dict[str, str] | None = None) -> RoundPlan:
    return RoundPlan(
        tasks=tasks,
        populations=populations or {"t": "p", "u": "p"},
        bound=None,
        asked=(),
        errors=(),
        savings=(),
        releases=releases,
    )


def different(found: Table) -> Labelled:
    """Return how many different values column a has."""
    cells, none = np.arange(4), np.zeros(4, dtype=np.int64)
    return Labelled(
        aggregate=Aggregate(kind=AggregateKind.DISTINCT),
        workspace=workspace(found, {"a": A}),
        cell=cells,
        group=none,
        groups=1,
        label=cells,
        size=4,
        values="values",
        units=False,
    )


def test_what_completes_another_history_or_is_paid_by_another_is_another_release(found: Table) -> None:
    one = joint(found)
    assert one.key == joint(found).key
    others = [
        replace(one, releases=(1,)),
        replace(one, payer="ann"),
        replace(one, version=2),
        replace(one, measurement=Measurement(np.array([[4]], dtype=object), 4)),
        replace(one, measurement=Measurement(np.array([[3]], dtype=object), 5)),
    ]
    assert len({one.key, *(other.key for other in others)}) == 1 + len(others)


def test_for_which_questions_it_is_released_does_not_make_it_another_release(found: Table) -> None:
    assert replace(joint(found), also=("d",)).key == joint(found).key


def test_what_will_be_released_is_evidence_that_has_told_nothing_yet(found: Table) -> None:
    evidence = replace(joint(found), also=("d", "e")).evidence
    assert evidence.also == {"d", "e"}
    assert not evidence.y.any()
    assert evidence.y.shape == (4, 1)
    assert evidence.rows.ravel().tolist() == [3 / 16]


def test_a_person_pays_the_dearest_cell_of_each_table_and_the_sum_over_tables(found: Table) -> None:
    halves = [np.array([0, 0, 1, 1])]
    first = joint(found, cost=Cost(("a",), tuple(halves), np.array([7, 1])))
    second = replace(joint(found, cost=Cost(("a",), tuple(halves), np.array([2, 4]))), releases=(9,))
    elsewhere = joint(found, cost=constant(100), name="u")
    assert together(first, second).rho == rho_of(9)  # not 7 + 4: no cell pays both
    assert together(first, second, elsewhere).rho == rho_of(109)
    assert together().rho == Fraction(0)
    assert [charge.table for charge in together(first, elsewhere).charges] == ["t", "u"]


def test_the_path_of_a_plan_is_that_of_what_shares_least(found: Table) -> None:
    assert together().path == "free"
    assert together(joint(found)).path == "direct"
    assert together(joint(found), releases=(1,)).path == "join"
    alone = DistinctTask(
        table="t",
        version=1,
        question=different(found),
        number=0,
        set=0,
        history=(),
        noise=Noise(1, 0),
        cost=constant(1),
    )
    assert together(joint(found), alone, releases=(1,)).path == "direct"


def test_a_larger_error_is_larger_for_sums_too() -> None:
    assert scaled(Settings(error=10.0, confidence=0.95, sum_error=40.0), 1.5) == Settings(
        error=15.0, confidence=0.95, sum_error=60.0
    )
    assert scaled(Settings(error=10.0, confidence=0.9), 2.0) == Settings(error=20.0, confidence=0.9)
