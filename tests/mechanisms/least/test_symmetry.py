"""Problems on their orbits have the same solutions as on all cells: what is released meets the targets there, too."""

from __future__ import annotations

import itertools

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.gaussian.known import Known, nothing_known
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.blocks import Block
from mechanisms.least.minimax import fit, least
from mechanisms.least.symmetry import Asked, Given, Piece, Symmetric, orbits, symmetric


def on_all_cells(sizes: tuple[int, ...], axes: tuple[int, ...], X: Matrix) -> Matrix:
    """Return rows on some axes, on the cells of all."""
    shape = [len(X), *(size if axis in axes else 1 for axis, size in enumerate(sizes))]
    return np.broadcast_to(X.reshape(shape), (len(X), *sizes)).reshape(len(X), -1)


def spread(sizes: tuple[int, ...], piece: Piece) -> Matrix:
    """Return the rows of a piece on all cells."""
    table = piece.rows
    for place, labels in enumerate(piece.labels):
        table = np.take(table, labels, axis=place + 1)
    return on_all_cells(sizes, piece.axes, table)


def grouped(sizes: tuple[int, ...], by: tuple[int, ...], where: Matrix | None = None, cut: int = 0) -> Matrix:
    """Return one row for each group of some axes; with `where`, only some atoms of one more axis."""
    axes = tuple(sorted({*by, cut})) if where is not None else by
    rows = []
    for atoms in itertools.product(*(range(sizes[axis]) for axis in by)):
        factors = [np.eye(sizes[axis])[atoms[by.index(axis)]] if axis in by else where for axis in axes]
        row = np.ones(())
        for factor in factors:
            row = np.multiply.outer(row, factor)
        rows.append(row)
    return np.array(rows)


def problem(sizes: tuple[int, ...], asked: list[Asked], known: list[Given]) -> Symmetric:
    return symmetric(asked, known, orbits(sizes, asked, known, ()))


def dense(sizes: tuple[int, ...], asked: list[Asked]) -> tuple[Matrix, Matrix]:
    return np.vstack([on_all_cells(sizes, one.axes, one.W) for one in asked]), np.concatenate([one.c for one in asked])


def told(sizes: tuple[int, ...], known: list[Given]) -> Known:
    found = nothing_known(int(np.prod(sizes)))
    for one in known:
        rows = np.linalg.cholesky(one.C).T.reshape(-1, *(sizes[axis] for axis in one.axes))
        found = found.with_rows(on_all_cells(sizes, one.axes, rows), np.zeros(len(rows)))
    return found


def check(sizes: tuple[int, ...], asked: list[Asked], known: list[Given], *, gap: float) -> tuple[float, float]:
    """Return the cost and the bound, after checking on all cells that they are what they are said to be."""
    found = problem(sizes, asked, known)
    plan = found.solved(gap=gap)
    rows = np.vstack([spread(sizes, piece) for _, piece in found.pieces(plan, {})])
    W, c = dense(sizes, asked)
    after = told(sizes, known).with_rows(rows, np.zeros(len(rows)))
    assert (after.variances(W) <= c * (1 + 1e-6)).all()
    assert (rows**2).sum(axis=0).max() == pytest.approx(plan.cost, rel=1e-6)
    assert plan.bound <= plan.cost
    return plan.cost, plan.bound


SIZES = (5, 4, 6)


def mixed() -> list[Asked]:
    """Return groups by the first axis under conditions on the second, groups of the third, and one of its atoms."""
    two = np.array([1.0, 1.0, 0.0, 0.0])
    return [
        Asked((0, 1), grouped(SIZES, (0,), two, 1), np.full(5, 2.0)),
        Asked((2,), np.eye(6), np.ones(6)),
        Asked((2,), np.eye(6)[:1], np.full(1, 0.2)),
        Asked((0, 2), grouped(SIZES, (0, 2)), np.full(30, 3.0)),
        Asked((1,), np.tril(np.ones((4, 4))), np.ones(4)),
    ]


def test_what_can_be_swapped_is_an_orbit() -> None:
    found = orbits(SIZES, mixed(), [], ())
    assert [labels.tolist() for labels in found.labels] == [[0] * 5, [0, 1, 2, 3], [0, 1, 1, 1, 1, 1]]
    apart = Given((0,), np.diag([1.0, 1.0, 4.0, 1.0, 1.0]))
    assert orbits(SIZES, mixed(), [apart], ()).labels[0].tolist() == [0, 0, 1, 0, 0]
    assert orbits(SIZES, mixed(), [], {0}).labels[0].tolist() == [0, 1, 2, 3, 4]


def test_what_is_known_faintly_counts_when_atoms_are_compared() -> None:
    total, part = np.ones((5, 5)), np.diag([0.0, 0.0, 1e-3, 0.0, 0.0])
    assert orbits(SIZES, mixed(), [Given((0,), total + part)], ()).labels[0].tolist() == [0, 0, 1, 0, 0]


def test_nothing_known_is_alike_everywhere() -> None:
    asked, known = [Asked((0,), np.eye(3), np.ones(3))], [Given((0,), np.zeros((3, 3)))]
    assert orbits([3], asked, known, ()).shape == (1,)
    assert problem((3,), asked, known).solved().cost == pytest.approx(1.0, rel=0.02)


def test_without_rows_nothing_is_released() -> None:
    found = problem((3,), [Asked((0,), np.zeros((0, 3)), np.ones(0)), Asked((0,), np.zeros((1, 3)), np.ones(1))], [])
    assert found.solved().cost == 0
    assert not found.pieces(found.solved(), {})


def test_a_symmetric_problem_costs_what_it_costs_on_all_cells() -> None:
    cost, bound = check(SIZES, mixed(), [], gap=1e-3)
    direct = fit(*dense(SIZES, mixed()), gap=1e-3)
    assert cost == pytest.approx(direct.cost, rel=2e-3)
    assert bound == pytest.approx(direct.bound, rel=2e-3)


def test_what_is_known_is_not_paid_again() -> None:
    known = [Given((0,), np.eye(5) * 0.5 + 0.1), Given((1, 2), np.kron(np.eye(4) * 0.1 + 0.02, np.eye(6) * 0.3))]
    cost, bound = check(SIZES, mixed(), known, gap=0.01)
    assert cost <= bound * 1.01
    assert cost < 0.97 * problem(SIZES, mixed(), []).solved().bound


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_plans_meet_their_targets_on_all_cells(data: st.DataObject) -> None:
    sizes = data.draw(st.tuples(st.integers(1, 4), st.integers(2, 4), st.integers(1, 3)))
    asked = []
    for _ in range(data.draw(st.integers(1, 4))):
        by = tuple(sorted(data.draw(st.sets(st.sampled_from([0, 2])))))
        where = None
        if data.draw(st.booleans()):
            where = np.array(data.draw(st.lists(st.booleans(), min_size=sizes[1], max_size=sizes[1])), dtype=float)
        X = grouped(sizes, by, where, 1)
        if X.any():
            axes = tuple(sorted({*by, 1})) if where is not None else by
            asked.append(Asked(axes, X, np.full(len(X), data.draw(st.sampled_from([0.5, 1.0, 3.0])))))
    if asked:
        known = [Given((0,), np.eye(sizes[0]) * data.draw(st.sampled_from([0.1, 1.0])))]
        fresh, bound = check(sizes, asked, [], gap=0.01)
        assert fresh <= bound * 1.02
        assert fit(*dense(sizes, asked)).cost >= bound * (1 - 1e-9)
        found = problem(sizes, asked, known)
        W, c = dense(sizes, asked)
        if (told(sizes, known).variances(W) > c * 1.01).any():
            _, later = check(sizes, asked, known, gap=0.01)
            assert later <= fresh * (1 + 1e-6)
        assert len(found.c) <= len(W)


@pytest.mark.parametrize("seed", range(4))
def test_a_semidefinite_program_finds_the_same_least_cost(seed: int) -> None:
    rng = np.random.default_rng(seed)
    V, c = rng.integers(0, 2, (6, 5)).astype(float), rng.uniform(0.5, 2.0, 6)
    V = V[V.any(axis=1)]
    c = c[: len(V)]
    B = rng.standard_normal((3, 5)) * 0.5
    R, top = cp.Variable((5, 5), PSD=True), cp.Variable()
    for known in (B[:0], B):
        C = R + known.T @ known
        limits = [cp.matrix_frac(row, C) <= target for row, target in zip(V, c, strict=True)]
        least_cost = cp.Problem(cp.Minimize(top), [cp.diag(R) <= top, *limits]).solve(solver=cp.CLARABEL)
        block = Block(np.arange(len(V)), V, np.arange(5), known=known)
        found = least([block], c, sizes=np.ones(5), members=np.ones(len(V)), gap=1e-3, max_steps=2000)
        assert found.bound <= least_cost * (1 + 1e-4)
        assert found.cost >= least_cost * (1 - 1e-4)
        assert found.cost <= least_cost * (1.001 + 1e-4)


def test_multipliers_tell_what_a_larger_target_saves() -> None:
    known = [Given((0,), np.eye(5) * 0.2)]
    found = problem(SIZES, mixed(), known)
    plan = found.solved(gap=1e-3)
    relaxed = found.solved(tighter=1.02, gap=1e-3)
    assert plan.cost - relaxed.cost == pytest.approx(0.02 * plan.multipliers.sum(), rel=0.2)


def filters(rng: np.random.Generator, sizes: tuple[int, ...], count: int) -> Matrix:
    """Return distinct rows, each a range or an atom or all of every axis."""
    rows = []
    for _ in range(count):
        row = np.ones(())
        for size in sizes:
            low, high = sorted(rng.choice(size + 1, 2, replace=False))
            inside = (np.arange(size) >= low) & (np.arange(size) < high)
            row = np.multiply.outer(
                row, [inside, np.eye(size)[low % size], np.ones(size)][rng.choice(3, p=[0.4, 0.2, 0.4])]
            )
        rows.append(row.ravel())
    return np.unique(np.array(rows), axis=0)


@pytest.mark.parametrize("told", [0.0, 0.1, 1.0, 10.0])
def test_filters_are_solved_to_a_small_gap_whatever_is_known(told: float) -> None:
    rng = np.random.default_rng(0)
    W = filters(rng, (6, 5, 4), 150)
    c, known = rng.choice([0.5, 1.0, 2.0], len(W)), W[rng.choice(len(W), 40, replace=False)] * np.sqrt(told)
    block = Block(np.arange(len(W)), W, np.arange(120), known=known)
    found = least([block], c, sizes=np.ones(120), members=np.ones(len(W)))
    after = nothing_known(120).with_rows(np.vstack([known, found.rows[0]]), np.zeros(40 + len(found.rows[0])))
    assert (after.variances(W) <= c * (1 + 1e-6)).all()
    assert (found.rows[0] ** 2).sum(axis=0).max() == pytest.approx(found.cost, rel=1e-6)
    assert found.least.value <= found.cost <= found.bound * 1.02
    relaxed = least([block], c * 1.1, sizes=np.ones(120), members=np.ones(len(W)))
    assert found.bound_at(1.1) <= relaxed.cost


def test_the_bound_is_right_where_rows_hardly_differ() -> None:
    rng = np.random.default_rng(1)
    W = filters(rng, (6, 6, 4), 200)
    W = np.vstack([W, W + 1e-7 * rng.standard_normal(W.shape)])
    every, ones = np.arange(len(W)), np.ones(len(W))
    found = least([Block(every, W, np.arange(144))], ones, sizes=np.ones(144), members=ones)
    assert found.least.value <= found.cost <= found.bound * 1.02
    assert found.bound <= fit(W, ones).cost * (1 + 1e-4)
