"""Batches: which questions are one problem, within the limits of one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.basics.limits import MAX_POINTS
from planner.calls.rounds import batches
from planner.calls.rounds.batches import Linear, Whole, by_cuts, into_batches, merge, points, rows_and_marginals
from planner.policy.table import Table
from tests.planner.calls.rounds.questions import A, B, C, asked, counts, sums, table, whole


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return table(tmp_path_factory.mktemp("batches"))


def test_questions_together_tell_apart_the_product_of_what_each_does(found: Table) -> None:
    halves, ends = [0, 0, 1, 1], [0, 1, 1, 1]
    assert points([counts(found, {"a": halves}), counts(found, {"a": ends})]) == 3  # {0}, {1}, {2, 3}
    assert points([counts(found, {"a": halves}), counts(found, {"b": B})]) == 2 * 3
    assert points([]) == 0


def test_questions_that_together_are_beyond_a_chart_have_more_points_than_that(found: Table) -> None:
    assert points([counts(found, {"c": C, "a": A}), counts(found, {"b": B, "c": C})]) <= MAX_POINTS
    large = [counts(found, {"c": C, "a": A}), sums(found, {"b": B})]
    assert points(large) > MAX_POINTS


cuts = st.dictionaries(st.sampled_from("abc"), st.sampled_from([2, 3, 5]), min_size=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(cuts, max_size=7))
def test_batches_keep_within_the_limits_and_open_a_new_one_only_if_none_has_room(
    found: Table, drawn: list[dict[str, int]]
) -> None:
    sizes = {"a": 4, "b": 3, "c": 200}
    questions = [
        asked(counts(found, {name: [i % parts for i in range(sizes[name])] for name, parts in each.items()}), 1.0)
        for each in drawn
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "MAX_ROUND_ROWS", 20)
        patch.setattr(batches, "MAX_POINTS", 24)
        groups = into_batches(questions)
    assert sorted(id(one) for group in groups for one in group) == sorted(map(id, questions))
    for group in groups:
        assert len(group) == 1 or _fits(group)
    order = sorted(questions, key=lambda one: -one.question.workspace.cells)
    for number, group in enumerate(groups):
        at = order.index(group[0])
        for earlier in groups[:number]:
            before = [one for one in earlier if order.index(one) < at]
            assert not _fits([*before, group[0]])


def _fits(group: list[Linear]) -> bool:
    return sum(len(one.targets) for one in group) <= 20 and points([one.question for one in group]) <= 24


def test_few_questions_are_planned_as_rows_even_if_they_are_whole_marginals(found: Table) -> None:
    one = asked(counts(found, {"a": A}), 2.0, marginal=whole(found, {"a": A}))
    assert rows_and_marginals([one], []) == ([one], [])


def test_beside_a_large_marginal_all_whole_marginals_are_planned_as_such(found: Table) -> None:
    one = asked(counts(found, {"a": A}), 2.0, query=3, marginal=whole(found, {"a": A}))
    other = asked(counts(found, {"b": [0, 0, 1]}), 2.0)
    large = Whole(1, whole(found, {"b": B, "c": C}), 4.0)
    rows, wholes = rows_and_marginals([one, other], [large])
    assert rows == [other]
    assert [(each.query, each.target) for each in wholes] == [(1, 4.0), (3, 2.0)]
    assert wholes[1].question is one.whole


@pytest.mark.parametrize(("name", "limit"), [("MAX_ROUND_ROWS", 3), ("MAX_DENSE", 3)])
def test_what_is_too_much_for_rows_is_planned_as_whole_marginals(
    found: Table, monkeypatch: pytest.MonkeyPatch, name: str, limit: int
) -> None:
    one = asked(counts(found, {"a": A}), 2.0, marginal=whole(found, {"a": A}))
    monkeypatch.setattr(batches, name, limit)
    rows, wholes = rows_and_marginals([one], [])
    assert not rows
    assert [each.question for each in wholes] == [one.whole]


def test_marginals_that_cut_a_column_otherwise_are_problems_apart(found: Table) -> None:
    fine, coarse = Whole(0, whole(found, {"a": A, "b": B}), 1.0), Whole(1, whole(found, {"a": [0, 0, 1, 1]}), 1.0)
    beside, alone = Whole(2, whole(found, {"b": B, "c": C}), 1.0), Whole(3, whole(found, {"b": [0, 1, 1]}), 1.0)
    groups = [{one.query for one in group} for group in by_cuts([fine, coarse, beside, alone])]
    assert {frozenset(group) for group in groups} == {frozenset({0, 2}), frozenset({1, 3})}


def test_of_the_same_marginal_twice_the_least_target_counts(found: Table) -> None:
    group = [
        Whole(0, whole(found, {"b": B, "c": C}), 3.0),
        Whole(1, whole(found, {"a": A, "b": B}), 2.0),
        Whole(2, whole(found, {"b": B, "c": C}), 1.0),
    ]
    question, targets = merge(group)
    assert [axis.column for axis in question.workspace.axes] == ["a", "b", "c"]
    assert targets == {(1, 2): 1.0, (0, 1): 2.0}
    assert question.sets == tuple(targets)
    for A_, cells in zip(question.sets, question.cells, strict=True):
        assert np.array_equal(cells, np.arange(np.prod([question.workspace.shape[i] for i in A_])))
