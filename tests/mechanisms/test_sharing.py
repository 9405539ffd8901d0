"""Sharing a budget: what is promised to every analyst, and what cells pay. With Laplace noise: tests/benchmarks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mechanisms.gaussian.linear import Matrix
from mechanisms.least.minimax import least_total
from mechanisms.sharing import MECHANISMS, Analyst, select_strategy, share, total_variance


@st.composite
def tables(draw: st.DrawFn) -> list[Analyst]:
    """Return analysts on up to six cells who ask a few small integer rows, some of them alike."""
    d = draw(st.integers(1, 6))
    entries = st.integers(-2, 2).map(float)
    workloads = st.integers(1, 4).flatmap(lambda m: arrays(np.float64, (m, d), elements=entries))
    asked = draw(st.lists(workloads.filter(lambda W: bool(W.any())), min_size=1, max_size=4))
    return [Analyst(W, draw(st.sampled_from([0.5, 1.0, 3.0]))) for W in asked]


@given(tables(), st.sampled_from(MECHANISMS), st.sampled_from([0.0, 1e-3, 0.3]))
@settings(max_examples=50)
def test_no_cell_ever_pays_more_than_the_budget(analysts: list[Analyst], mechanism: str, tolerance: float) -> None:
    """Even with buckets of rows that are far from parallel."""
    found = share(analysts, budget=0.7, mechanism=mechanism, tolerance=tolerance)
    assert found.profile == pytest.approx((found.rows**2).sum(axis=0))
    assert found.profile.max() <= 0.7 * (1 + 1e-9)


@given(tables())
@settings(max_examples=30)
def test_waterfilling_makes_nobody_regret_to_take_part(analysts: list[Analyst]) -> None:
    assert np.all(share(analysts, budget=0.5).ratios <= 1 + 1e-6)


def test_gaussian_buckets_change_nothing_but_the_number_of_rows() -> None:
    """Information adds, in one row or in two."""
    analysts = [Analyst(np.eye(3), 1.0), Analyst(np.eye(3)[:2], 2.0)]
    poured = share(analysts, budget=1.0)
    apart = share(analysts, budget=1.0, mechanism="independent")
    assert len(poured.rows) < len(apart.rows)
    np.testing.assert_allclose(poured.rows.T @ poured.rows, apart.rows.T @ apart.rows, atol=1e-12)


@given(arrays(np.float64, (4, 5), elements=st.integers(-2, 2).map(float)).filter(lambda W: bool(W.any())))
@settings(max_examples=30)
def test_the_selected_strategy_is_within_its_certificate(W: Matrix) -> None:
    A, bound = select_strategy(W), least_total(W, gap=1e-4).bound
    assert (A**2).sum(axis=0).max() <= 1 + 1e-9
    assert bound * (1 - 1e-9) <= total_variance(W, A) <= bound * (1 + 2e-3)


def test_shares_workloads_and_mechanisms_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="share must be positive"):
        Analyst(np.eye(2), 0.0)
    with pytest.raises(ValueError, match="not zero"):
        Analyst(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="same cells"):
        share([Analyst(np.eye(2)), Analyst(np.eye(3))], budget=1.0)
    with pytest.raises(ValueError, match="must be one of"):
        share([Analyst(np.eye(2))], budget=1.0, mechanism="auction")
