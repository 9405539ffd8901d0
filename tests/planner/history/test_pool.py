"""Pools: releases of one form added up tell what they tell one by one."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.gaussian.known import Known, nothing_known
from planner.cells.workspace import Workspace
from planner.gate import Gate
from planner.history.chart import Chart, Evidence, Forms, evidence, made_evidence
from planner.history.marginals import MarginalEvidence
from planner.history.pool import Pool, added, added_told, key_of, pooled
from planner.history.recall import History
from planner.ledger.accounts import Content
from planner.policy.table import Table
from planner.questions import body
from tests.planner.gates import open_gate
from tests.planner.history.test_chart import axis, table  # noqa: F401  # a fixture

COLUMNS = """
age = { type = "integer", min = 0, max = 9 }
sex = { values = ["F", "M"] }
"""
ROWS = "SELECT (i * 7) % 10 AS age, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END AS sex FROM range(900) t(i)"
QUESTIONS = [
    "SELECT count(*) FROM people",
    "SELECT sex, count(*), sum(age) FROM people GROUP BY sex",
    "SELECT count(*), sum(age) FROM people WHERE age < 5",
    "SELECT age, sex, count(*) FROM people GROUP BY age, sex",
]


def together(chart: Chart, members: list[Evidence]) -> Known:
    known = nothing_known(chart.size)
    for found in members:
        rows = chart.place(found, found.rows) * np.repeat(found.weight, len(found.rows))[:, None]
        known = known.with_rows(rows, found.y.ravel())
    return known


def assert_tell_the_same(one: Known, other: Known) -> None:
    scale = np.abs(one.rows.T @ one.rows).max(initial=1.0)
    assert one.rank == other.rank
    np.testing.assert_allclose(one.rows.T @ one.rows, other.rows.T @ other.rows, atol=1e-9 * scale)
    np.testing.assert_allclose(one.rows.T @ one.outcome, other.rows.T @ other.outcome, atol=1e-8 * scale)


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 8),
    shape=st.tuples(st.integers(1, 3), st.integers(1, 3), st.booleans()),
    alike=st.booleans(),
)
def test_releases_added_up_tell_what_they_tell_one_by_one(
    table: Table,  # noqa: F811
    seed: int,
    count: int,
    shape: tuple[int, int, bool],
    alike: bool,
) -> None:
    generator, (r, patterns, summed) = np.random.default_rng(seed), shape
    workspace = Workspace(table, (axis(table, "a", [0, 1, 1, 2, 2]), axis(table, "b", [0, 0, 1, 1])))
    features = (("m", 1),) if summed else ()
    cell = np.arange(workspace.cells)
    group, pattern = generator.integers(0, 2, len(cell)), generator.integers(0, patterns, len(cell))
    first = generator.normal(size=(r, patterns, 1 + summed))
    members = [
        Evidence(
            id=number, question="", workspace=workspace, features=features, cell=cell, group=group, groups=2,
            pattern=pattern,
            rows=first * generator.uniform(0.1, 10) if alike else generator.normal(size=first.shape),
            weight=np.ones(2), y=generator.normal(size=(2, r)), form="one",
        )
        for number in range(count)
    ]  # fmt: skip
    chart = Chart(workspace, features)
    assert_tell_the_same(together(chart, [added(members)]), together(chart, members))
    grown = Pool((members[0],))
    assert grown.sum is members[0]
    for member in members[1:]:
        grown = grown.plus([member])
        assert grown.sum.rows.shape[0] <= max(r * count, patterns * (1 + summed))
    assert_tell_the_same(together(chart, [grown.sum]), together(chart, members))
    assert grown.ids == frozenset(range(count))
    assert grown.without(range(count)) is None
    assert grown.until(-1) is None


def test_rows_of_which_some_may_be_rounding_are_all_kept(table: Table) -> None:  # noqa: F811
    """Two rows that differ by as little as a grid makes them differ must not become a direction of their own."""
    workspace = Workspace(table, (axis(table, "a", [0, 0, 1, 1, 1]),))
    cell = np.arange(2)
    rows = [np.array([[[1.0], [1.0]]]), np.array([[[1.0], [1.0 + 3e-7]]]), np.array([[[2.0], [2.0]]])]
    members = [
        Evidence(
            id=n,
            question="",
            workspace=workspace,
            features=(),
            cell=cell,
            group=0 * cell,
            groups=1,
            pattern=cell,
            rows=B,
            weight=np.ones(1),
            y=np.ones((1, 1)),
            form="one",
        )
        for n, B in enumerate(rows)
    ]
    assert len(added(members).rows) == 3
    assert together(Chart(workspace, ()), [added(members)]).rank == 1


def test_what_was_not_read_from_a_release_is_not_added_to_anything(table: Table) -> None:  # noqa: F811
    workspace = Workspace(table, ())
    zero = np.zeros(1, dtype=np.int64)
    pending = Evidence(
        id=-1,
        question="",
        workspace=workspace,
        features=(),
        cell=zero,
        group=zero,
        groups=1,
        pattern=zero,
        rows=np.ones((1, 1, 1)),
        weight=np.ones(1),
        y=np.ones((1, 1)),
    )
    pools = pooled({}, [pending, replace(pending, id=-2)])
    assert [len(pool.members) for pool in pools.values()] == [1, 1]
    assert key_of(pending) != key_of(replace(pending, id=-2))


def test_precisions_about_the_same_marginals_add_up(table: Table) -> None:  # noqa: F811
    workspace = Workspace(table, (axis(table, "b", [0, 1, 2, 2]),))
    told = [
        MarginalEvidence(1, workspace, {(): 1.0, (0,): 2.0}, lambda A: np.full([3] * len(A), 1.0)),
        MarginalEvidence(2, workspace, {(): 3.0, (0,): 2.0}, lambda A: np.full([3] * len(A), 5.0)),
    ]
    both = added_told(told)
    assert both.ids == (1, 2)
    assert both.precisions == {(): 4.0, (0,): 4.0}
    assert both.table(()) == pytest.approx(4.0)
    assert both.table((0,)).tolist() == pytest.approx([3.0] * 3)


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return open_gate(tmp_path, ROWS, columns=COLUMNS)


def asked(gate: Gate) -> list[Content]:
    """Ask questions at several accuracies; return what was released."""
    session = gate.session()
    for error in (60, 31, 17, 9):
        session.execute(f"SET noisegate.error = {error}")
        for sql in QUESTIONS:
            session.execute(sql)
        gate.refresh("people")  # so that the next are measured afresh
    return gate.ledger.contents("people", after=0)[1]


def test_a_release_read_by_its_form_is_the_release(gate: Gate) -> None:
    forms = Forms(2**20)
    people = gate.policy.tables["people"]
    for content in asked(gate):
        if content.kind == "linear":
            found, whole = evidence(content, people, forms), body.read(content, people)
            assert found is not None
            assert whole is not None
            slow = made_evidence(*whole)
            for name in ("cell", "group", "groups", "pattern", "rows", "weight", "y"):
                np.testing.assert_array_equal(getattr(found, name), getattr(slow, name))
            assert found.id == content.id
            assert found.question == content.question
    assert 0 < len(forms) < len(gate.ledger.releases())
    gate.close()


def test_a_history_read_at_once_tells_what_one_that_grew_tells(gate: Gate, tmp_path: Path) -> None:
    session = gate.session()
    for error in (60, 31, 17, 9):
        session.execute(f"SET noisegate.error = {error}")
        for sql in QUESTIONS:
            session.execute(sql)
    grown = [session.execute(sql) for sql in QUESTIONS]
    last = len(gate.ledger.releases())
    gate.close()
    again = Gate.open(tmp_path / "policy.toml")
    session = again.session()
    for sql, before in zip(QUESTIONS, grown, strict=True):
        session.execute("SET noisegate.error = 9")
        found = session.execute(sql)
        assert (found.rows, found.intervals, found.cost) == (before.rows, before.intervals, Fraction(0))
        session.execute(f"SET noisegate.as_of = {last}")
        assert session.execute(sql).rows == before.rows
        session.execute("RESET noisegate.as_of")
    history: History = again.histories["people"].read(again.ledger.snapshot())
    assert history.found(1).count == sum(
        content.kind == "linear" for content in again.ledger.contents("people", after=0)[1]
    )
    again.close()
