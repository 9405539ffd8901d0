"""even_join meets its targets, and charges the dearest cell hardly more than its bound."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.gaussian.known import nothing_known
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.minimax import even_join, fit


def ranges(count: int, cells: int, rng: np.random.Generator) -> Matrix:
    """Return random ranges of cells as rows."""
    ends = np.sort(rng.integers(0, cells + 1, size=(count, 2)), axis=1)
    at = np.arange(cells)
    return ((at >= ends[:, :1]) & (at <= ends[:, 1:])).astype(float)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(0, 8), st.integers(1, 24))
def test_targets_are_met_for_no_less_than_the_bound(seed: int, asked: int, before: int, cells: int) -> None:
    rng = np.random.default_rng(seed)
    known = nothing_known(cells).with_rows(ranges(before, cells, rng), np.zeros(before))
    W, c = ranges(asked, cells, rng), rng.uniform(0.2, 3.0, asked)
    found = even_join(known, W, c)
    profile = (found.rows**2).sum(axis=0)
    assert found.cost == pytest.approx(profile.max(initial=0.0))
    assert found.bound <= found.cost * (1 + 1e-9)
    after = known.with_rows(found.rows, np.zeros(len(found.rows)))
    assert (after.variances(W)[W.any(axis=1)] <= c[W.any(axis=1)] * (1 + 1e-8)).all()
    assert found.cost <= fit(W, c).cost * 1.02 if W.any() else True


def test_without_history_it_is_the_fixed_point() -> None:
    prefix = np.tril(np.ones((32, 32)))
    found = even_join(nothing_known(32), prefix, np.ones(32), gap=1e-3)
    assert found.cost / found.bound <= 1.001 + 1e-9
    assert found.multipliers.sum() == pytest.approx(found.cost)


def test_multipliers_tell_what_a_larger_target_saves() -> None:
    rng = np.random.default_rng(3)
    known = nothing_known(20).with_rows(ranges(4, 20, rng), np.zeros(4))
    W, c = ranges(6, 20, rng), np.ones(6)
    found = even_join(known, W, c, gap=1e-4, max_steps=2000)
    dearest = int(np.argmax(found.multipliers))
    relaxed = even_join(known, W, np.where(np.arange(6) == dearest, 1.02, 1.0), gap=1e-4, max_steps=2000)
    assert found.cost - relaxed.cost == pytest.approx(0.02 * found.multipliers[dearest], rel=0.25)


def test_cells_that_nothing_tells_apart_pay_alike() -> None:
    W = np.repeat(np.eye(3), 4, axis=1)
    found = even_join(nothing_known(12), W, np.array([1.0, 2.0, 4.0]))
    assert (found.rows**2).sum(axis=0).round(6).tolist() == pytest.approx([1.0] * 4 + [0.5] * 4 + [0.25] * 4, abs=0.51)
    assert found.cost == pytest.approx(1.0)


def test_what_is_known_costs_nothing() -> None:
    known = nothing_known(4).with_rows(np.eye(4), np.zeros(4))
    found = even_join(known, np.ones((1, 4)), np.array([4.0]))
    assert (found.cost, found.bound, len(found.rows)) == (0.0, 0.0, 0)


@pytest.mark.parametrize("seed", range(6))
def test_the_dearest_cell_pays_what_a_semidefinite_solver_says(seed: int) -> None:
    """Batches on top of what is known: C + R >= C as a condition."""
    rng = np.random.default_rng(seed)
    B = rng.integers(0, 2, (2, 5)).astype(float)
    known = nothing_known(5).with_rows(B, np.zeros(2))
    W, c = rng.integers(0, 2, (4, 5)) + np.eye(4, 5), rng.uniform(0.3, 1.5, 4)
    R = cp.Variable((5, 5), PSD=True)
    blocks = [
        cp.bmat([[B.T @ B + R, w[:, None]], [w[None, :], np.array([[v]])]]) >> 0 for w, v in zip(W, c, strict=True)
    ]
    optimum = float(cp.Problem(cp.Minimize(cp.max(cp.diag(R))), blocks).solve(solver="CLARABEL"))
    found = even_join(known, W, c)
    assert found.bound <= optimum * (1 + 1e-4)
    assert optimum * (1 - 1e-4) <= found.cost <= optimum * 1.011


def test_what_is_known_well_enough_is_not_paid_again() -> None:
    known = nothing_known(3).with_rows(2 * np.eye(3), np.zeros(3))
    found = even_join(known, np.eye(3), np.ones(3))
    assert len(found.rows) == 0
    assert found.cost == found.bound == 0.0
