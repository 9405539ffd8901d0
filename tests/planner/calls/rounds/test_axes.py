"""Axes: what is asked and known becomes arrays that say the same, and a plan on them is the least there is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.calls.rounds import axes
from planner.calls.rounds.axes import LEAST_LIMIT, RoundProblem, common_problem, owners
from planner.calls.rounds.batches import Linear
from planner.cells.costs import Cost, rho_of
from planner.cells.workspace import Floats
from planner.history.chart import Chart, Evidence, chart_size
from planner.history.recall import History, Releases
from planner.ledger.ledger import Ledger
from planner.policy.table import Table
from planner.questions.linear import Question
from tests.planner.calls.rounds.questions import (
    A,
    B,
    C,
    asked,
    counts,
    least_cost,
    one_count,
    released,
    rows_on,
    sums,
    table,
    workspace,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("axes")


@pytest.fixture(scope="module")
def found(place: Path) -> Table:
    return table(place)


@pytest.fixture(scope="module")
def nothing(found: Table, place: Path) -> Iterator[History]:
    with Ledger.open(place / "ledger.sqlite") as ledger:
        yield History(found, ledger.content)


def meeting(nothing: History, group: Sequence[Linear], told: Sequence[Evidence] = ()) -> RoundProblem:
    where = common_problem(group, nothing, Releases().plus(told))
    assert where is not None
    return where


def everywhere(found: Table, *, summed: bool = False) -> Chart:
    """Return the chart of all cells of a and b, on which everything here can be written out."""
    return Chart(workspace(found, {"a": A, "b": B}), (("m", 1),) if summed else ())


def dense(where: RoundProblem, chart: Chart, margin: float = 1.0) -> Floats:
    """Return the rows that the plan of a problem releases, written out on all points of a chart."""
    pieces = where.problem.pieces(where.problem.solved(tighter=margin, gap=1e-4), where.partners)
    placed = [where.placed(piece) for _, piece in pieces]
    return np.vstack([_carried(chart, own, rows) for own, rows in placed])


def _carried(chart: Chart, own: Chart, rows: Floats) -> Floats:
    """Return rows on a larger chart; what has no sums is the same at both ends there."""
    if own.features == chart.features:
        return chart.carry(rows, own)
    _, cells = chart.points
    plain = Chart(chart.workspace, ())
    return plain.carry(rows, own)[:, cells]


cuts_of_a = st.lists(st.integers(0, 3), min_size=4, max_size=4)
cuts_of_b = st.lists(st.integers(0, 2), min_size=3, max_size=3)
random_cuts = st.fixed_dictionaries({}, optional={"a": cuts_of_a, "b": cuts_of_b})


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(st.tuples(random_cuts, st.booleans()), min_size=1, max_size=4), seed=st.integers(0, 2**32))
def test_rows_on_the_axes_count_and_sum_what_the_questions_do(
    found: Table, nothing: History, drawn: list[tuple[dict[str, list[int]], bool]], seed: int
) -> None:
    """The arrays times any table of counts are the answers that each question has on that table."""
    questions = [(sums if summed else counts)(found, cuts) for cuts, summed in drawn]
    where = meeting(nothing, [asked(question, 1.0) for question in questions])
    sizes = [2] * len(where.ends) + [where.axes[name].size for name in sorted(where.axes)]
    x = np.random.default_rng(seed).integers(0, 9, sizes).astype(float)
    columns = sorted(where.axes)
    for question, one in zip(questions, where.asked, strict=True):
        others = tuple(i for i in range(len(sizes)) if i not in one.axes)
        answers = one.W.reshape(len(one.W), -1) @ x.sum(axis=others).ravel()
        assert answers == pytest.approx(_answers(question, x, columns, len(where.ends), where))


def _answers(question: Question, x: Floats, columns: list[str], ends: int, where: RoundProblem) -> Floats:
    """Return the answers by going through all cells one by one; the second end of m is 5, the first 0."""
    answers = np.zeros(question.groups)
    for place in np.ndindex(x.shape):
        value = 5 * place[0] if ends and question.features else 1
        if question.features and not ends:
            value = 0
        cell = 0
        for axis in question.workspace.axes:
            atom_here = place[ends + columns.index(axis.column)]
            cell = cell * axis.size + int(axis.atoms[where.axes[axis.column].first[atom_here]])
        at = np.flatnonzero(question.cell == cell)
        for i in at:
            answers[question.group[i]] += value * x[place]
    return answers


def test_a_plan_on_the_axes_meets_its_targets_at_the_cost_that_a_semidefinite_solver_finds_on_all_cells(
    found: Table, nothing: History
) -> None:
    first = asked(counts(found, {"a": A}), 2.0)
    second = asked(counts(found, {"a": [0, 0, 1, 1], "b": B}), 1.0)
    third = asked(one_count(found, {"a": A, "b": B}, [0, 4, 8]), 0.5)
    told = released(counts(found, {"b": B}), [[3]], bits=2)
    where, chart = meeting(nothing, [first, second, third], [told]), everywhere(found)
    W = np.vstack([rows_on(chart, one.question) for one in (first, second, third)])
    c = np.concatenate([one.targets for one in (first, second, third)])
    known, rows = chart.place(told, told.rows), dense(where, chart)
    variances = np.einsum("ij,jk,ik->i", W, np.linalg.pinv(known.T @ known + rows.T @ rows), W)
    assert (variances <= c * (1 + 1e-6)).all()
    cost = float((rows**2).sum(axis=0).max())
    optimum = least_cost(W, c, known)
    assert optimum * (1 - 1e-6) <= cost <= optimum * 1.01
    assert where.problem.solved(gap=1e-4).bound <= optimum * (1 + 1e-6)


def test_a_plan_with_sums_is_the_least_on_all_points(found: Table, nothing: History) -> None:
    group = [asked(sums(found, {"a": A}), 10.0), asked(counts(found, {"b": B}), 1.0)]
    where, chart = meeting(nothing, group), everywhere(found, summed=True)
    assert where.ends == (("m", 1),)
    W = np.vstack([rows_on(chart, one.question) for one in group])
    c, rows = np.concatenate([one.targets for one in group]), dense(where, chart)
    variances = np.einsum("ij,jk,ik->i", W, np.linalg.pinv(rows.T @ rows), W)
    assert (variances <= c * (1 + 1e-6)).all()
    assert float((rows**2).sum(axis=0).max()) == pytest.approx(least_cost(W, c, np.zeros((0, chart.size))), rel=0.01)


def test_all_that_was_released_is_there_while_there_is_room(found: Table, nothing: History) -> None:
    told = released(counts(found, {"a": A, "b": B}), [[1]], number=7)
    where = meeting(nothing, [asked(counts(found, {"a": [0, 0, 1, 1]}), 1.0)], [told])
    assert sorted(where.axes) == ["a", "b"]
    assert (where.whole, where.releases) == (True, (7,))


def test_where_there_is_no_room_what_was_released_is_summed_onto_the_columns_that_are_asked_about(
    found: Table, nothing: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = released(counts(found, {"a": A, "b": B}), [[1]], number=7)
    beside = released(one_count(found, {"b": B}, [0]), [[1]], number=8)
    group = [asked(one_count(found, {"a": A}, [0]), 1.0), asked(one_count(found, {"a": A}, [1, 2]), 1.0)]
    monkeypatch.setattr(axes, "MAX_ORBITS", 4)
    where = meeting(nothing, group, [told, beside])
    assert sorted(where.axes) == ["a"]
    assert (where.whole, where.releases) == (False, (7,))
    [given_] = where.given
    assert pytest.approx(np.eye(4) / 3) == given_.C  # three counts with noise of variance 1 are added up


def test_what_is_too_large_on_all_axes_meets_nowhere(
    found: Table, nothing: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = [asked(one_count(found, {"a": A}, [i]), 1.0 + i) for i in A]
    monkeypatch.setattr(axes, "MAX_ORBITS", 3)
    assert common_problem(group, nothing, Releases()) is None
    monkeypatch.setattr(axes, "MAX_ORBITS", 4)
    assert common_problem(group, nothing, Releases()) is not None
    monkeypatch.setattr(axes, "MAX_ROUND_WORK", 1)
    assert common_problem(group, nothing, Releases()) is None


def test_cells_that_nothing_tells_apart_are_one_orbit_and_the_ends_of_a_sum_never_are(
    found: Table, nothing: History
) -> None:
    where = meeting(nothing, [asked(counts(found, {"c": C}), 1.0), asked(sums(found, {"b": B}), 1.0)])
    ends, b, c = where.orbits.labels
    assert len(set(ends.tolist())) == 2
    assert len(set(b.tolist())) == len(set(c.tolist())) == 1


def test_a_cell_of_the_orbits_may_pay_what_the_least_of_its_cells_may(found: Table, nothing: History) -> None:
    group = [asked(counts(found, {"a": [0, 0, 1, 1]}), 1.0), asked(one_count(found, {"a": A}, [3]), 0.5)]
    where = meeting(nothing, group)
    key = where.axes["a"].key
    allowed = np.array([40, 30, 20, 0])
    limits = where.limits([Cost((key,), (np.arange(4),), allowed)])
    assert limits is not None
    unit = 2 * float(rho_of(1))  # information of 2 on a cell costs it a rho of 1
    atoms, expected = where.axes["a"].atoms, []
    for orbit in range(where.orbits.shape[0]):
        values = [allowed[i] for i in range(4) if where.orbits.labels[0][atoms[i]] == orbit]
        expected.append(max(min(values), LEAST_LIMIT * 30))
    assert (limits / unit).tolist() == pytest.approx(expected)
    assert where.limits([Cost((), (), np.array(0))]) is None


def test_what_is_to_be_released_is_information_on_the_axes_that_it_speaks_of(found: Table, nothing: History) -> None:
    where = meeting(nothing, [asked(counts(found, {"a": A, "b": B}), 1.0)])
    told = where.told_by([released(counts(found, {"b": B}), [[2]])])
    assert told is not None
    assert told[0].axes == (1,)
    assert pytest.approx(4 * np.eye(3)) == told[0].C
    assert where.told_by([released(counts(found, {"c": C}), [[1]])]) is None


def test_a_row_that_several_ask_for_belongs_to_who_asks_for_it_best(found: Table, nothing: History) -> None:
    group = [
        asked(counts(found, {"a": A}), 4.0),
        asked(counts(found, {"a": A}), 1.0),
        asked(counts(found, {"b": B}), 2.0),
    ]
    where = meeting(nothing, group)
    assert sorted(owners(where).values()) == [1, 2]
    assert sorted(where.problem.c.tolist()) == [1.0, 2.0]


def test_a_block_is_told_by_the_questions_with_rows_in_it(found: Table, nothing: History) -> None:
    where = meeting(nothing, [asked(counts(found, {"a": A}), 1.0), asked(counts(found, {"b": B}), 1.0)])
    assert where.telling(()) == [0, 1]  # the total
    assert where.telling(((0, 0),)) == [0]
    assert where.telling(((1, 0),)) == [1]


def test_a_chart_is_no_larger_than_what_is_released_on_it(found: Table, nothing: History) -> None:
    where = meeting(nothing, [asked(counts(found, {"a": A}), 1.0), asked(counts(found, {"b": B}), 1.0)])
    for key, piece in where.problem.pieces(where.problem.solved(), where.partners):
        chart, rows = where.placed(piece)
        columns = {axis.column: axis for axis in chart.workspace.axes}
        assert set(columns) == {sorted(where.axes)[axis] for axis, _ in key}
        assert rows.shape[1] == chart.size == chart_size(columns, ())
