"""Sharing a budget: what is promised to every analyst, the paper's examples, and what cells pay."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from benchmarks.papers.sharing import NOISES, POWERS, interference, p_identity, select_strategy, share
from mechanisms.gaussian.linear import Matrix
from mechanisms.sharing import MECHANISMS, Analyst, total_variance

AGES = 11
ALICE, BOB, CAROL = Analyst(np.eye(AGES)), Analyst(np.eye(AGES)), Analyst(np.ones((1, AGES)))
noises = st.sampled_from(["gaussian", "laplace"])
seeds = st.integers(0, 2**32 - 1)


@st.composite
def tables(draw: st.DrawFn) -> list[Analyst]:
    """Return analysts on up to six cells who ask a few small integer rows, some of them alike."""
    d = draw(st.integers(1, 6))
    entries = st.integers(-2, 2).map(float)
    workloads = st.integers(1, 4).flatmap(lambda m: arrays(np.float64, (m, d), elements=entries))
    asked = draw(st.lists(workloads.filter(lambda W: bool(W.any())), min_size=1, max_size=4))
    return [Analyst(W, draw(st.sampled_from([0.5, 1.0, 3.0]))) for W in asked]


def quick(W: Matrix, *, noise: str) -> Matrix:
    return select_strategy(W, noise=noise, starts=2)


def errors(W: Matrix, rows: Matrix, noise: str) -> float:
    """Return the sum of variances by the dense formula."""
    C = rows.T @ rows
    return NOISES[noise].variance * float(np.trace(W @ np.linalg.pinv(C, rcond=1e-12) @ W.T))


# --- what is promised ----------------------------------------------------------------------------------------


@given(tables(), noises, st.booleans())
@settings(max_examples=50)
def test_waterfilling_makes_nobody_regret_to_take_part(analysts: list[Analyst], noise: str, fill: bool) -> None:
    select = partial(quick, noise=noise)
    found = share(analysts, budget=0.5, noise=noise, select=select, fill=fill)
    assert np.all(found.ratios <= 1 + 1e-6)


@given(tables(), noises, st.booleans())
@settings(max_examples=50)
def test_waterfilling_makes_nobody_regret_that_others_take_part(
    analysts: list[Analyst], noise: str, fill: bool
) -> None:
    found = interference(analysts, noise=noise, select=partial(quick, noise=noise), fill=fill)
    assert np.all(np.nan_to_num(found) <= 1 + 1e-6)


@given(tables(), noises, st.sampled_from(MECHANISMS), st.sampled_from([0.0, 1e-3, 0.3]), st.booleans())
@settings(max_examples=50)
def test_no_cell_ever_pays_more_than_the_budget(
    analysts: list[Analyst], noise: str, mechanism: str, tolerance: float, fill: bool
) -> None:
    """Even with buckets of rows that are far from parallel."""
    found = share(
        analysts,
        budget=0.7,
        mechanism=mechanism,
        noise=noise,
        tolerance=tolerance,
        select=partial(quick, noise=noise),
        fill=fill,
    )
    assert found.profile == pytest.approx((np.abs(found.rows) ** POWERS[noise]).sum(axis=0))
    assert found.profile.max() <= 0.7 * (1 + 1e-9)
    if fill and tolerance == 0 and mechanism == "waterfilling":
        assert found.profile == pytest.approx(np.full(len(found.profile), 0.7))


@given(tables(), noises)
@settings(max_examples=30)
def test_with_columns_of_norm_one_who_joins_adds_exactly_the_own_part_to_every_cell(
    analysts: list[Analyst], noise: str
) -> None:
    """Lemma 3: with `fill`, and with no other scale of the noise, so that nobody pays for who joins."""
    select = partial(quick, noise=noise)
    parts = np.array([analyst.share for analyst in analysts])
    parts /= parts.sum()
    everybody = share(analysts, budget=1.0, noise=noise, select=select, fill=True).profile
    without = np.zeros(len(everybody))
    if len(analysts) > 1:
        without = share(analysts[1:], budget=1 - parts[0], noise=noise, select=select, fill=True).profile
    assert everybody - without == pytest.approx(np.full(len(everybody), parts[0]))


@given(tables(), noises, st.sampled_from(["independent", "identity"]))
@settings(max_examples=30)
def test_who_does_not_look_at_others_interferes_with_nobody(
    analysts: list[Analyst], noise: str, mechanism: str
) -> None:
    """Lemmas 1 and 2."""
    select = partial(quick, noise=noise)
    assert np.all(share(analysts, budget=1.0, mechanism=mechanism, noise=noise, select=select).ratios <= 1 + 1e-6)
    found = interference(analysts, mechanism=mechanism, noise=noise, select=select)
    assert np.all(np.nan_to_num(found) <= 1 + 1e-6)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_waterfilling_adapts_to_what_is_asked_and_the_identity_does_not(noise: str) -> None:
    """Carol's total has the error of one query, not of eleven cells."""
    errors_of_carol = {
        mechanism: share([CAROL], budget=1.0, mechanism=mechanism, noise=noise).joint[0]
        for mechanism in ("waterfilling", "identity")
    }
    assert errors_of_carol["identity"] == pytest.approx(AGES * errors_of_carol["waterfilling"])


@given(tables(), noises, st.sampled_from(MECHANISMS))
@settings(max_examples=50)
def test_the_stated_errors_are_those_of_the_rows(analysts: list[Analyst], noise: str, mechanism: str) -> None:
    found = share(analysts, budget=1.0, mechanism=mechanism, noise=noise, select=partial(quick, noise=noise))
    for analyst, joint, alone in zip(analysts, found.joint, found.alone, strict=True):
        assert alone >= joint * (1 - 1e-6) or mechanism in ("utilitarian", "weighted_utilitarian")
        if mechanism != "independent":
            assert joint == pytest.approx(errors(analyst.W, found.rows, noise), rel=1e-5)


@given(tables(), noises)
@settings(max_examples=40)
def test_one_analyst_alone_is_served_alike_by_all_who_adapt(analysts: list[Analyst], noise: str) -> None:
    one, select = analysts[:1], partial(quick, noise=noise)
    found = [
        share(one, budget=2.0, mechanism=mechanism, noise=noise, select=select).joint
        for mechanism in ("waterfilling", "independent", "utilitarian")
    ]
    assert found[0] <= found[1] * (1 + 1e-9)
    assert found[1] == pytest.approx(found[2])


# --- the paper's examples ------------------------------------------------------------------------------------


def test_alice_bob_and_carol_apart_have_the_errors_of_example_2() -> None:
    found = share([ALICE, BOB, CAROL], budget=1.0, mechanism="independent", noise="laplace")
    assert found.joint == pytest.approx([198, 198, 18])


def test_carol_loses_by_the_utilitarian_release_as_in_example_2() -> None:
    found = share([ALICE, BOB, CAROL], budget=1.0, mechanism="utilitarian", noise="laplace")
    assert found.joint == pytest.approx([22, 22, 22])
    assert found.ratios[2] == pytest.approx(22 / 18)


def test_carol_loses_by_the_identity_as_in_example_4() -> None:
    """The paper prints 24 where Equation 2 gives 2 * 11 = 22; more than her 18 in both cases."""
    found = share([ALICE, BOB, CAROL], budget=1.0, mechanism="identity", noise="laplace")
    own = share([ALICE, BOB, CAROL], budget=1.0, mechanism="independent", noise="laplace")
    assert found.joint[2] == pytest.approx(22)
    assert found.joint[2] > own.joint[2]


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_alice_bob_and_carol_all_gain_by_waterfilling(noise: str) -> None:
    found = share([ALICE, BOB, CAROL], budget=1.0, noise=noise)
    if noise == "laplace":
        assert found.joint == pytest.approx([46.2, 46.2, 13.2])
    assert np.all(found.ratios < 0.9)
    assert np.nanmax(interference([ALICE, BOB, CAROL], noise=noise)) <= 1


def test_example_3_does_not_follow_from_the_error_formula() -> None:
    """Printed: 22 without Carol at 2/3 of the budget, 24 with her. By Equation 2 it is 49.5, and 22 with her."""
    pair = share([ALICE, BOB], budget=2 / 3, mechanism="utilitarian", noise="laplace")
    assert pair.joint == pytest.approx([49.5, 49.5])
    assert np.nanmax(interference([ALICE, BOB, CAROL], mechanism="utilitarian", noise="laplace")) < 1


def test_the_utilitarian_release_interferes_as_in_theorem_3() -> None:
    """Two who ask the total have 2 (3/2)^2 by themselves, and much more with a third who asks all cells."""
    totals = [CAROL, CAROL, ALICE]
    without = share(totals[:2], budget=2 / 3, mechanism="utilitarian", noise="laplace")
    assert without.joint == pytest.approx([4.5, 4.5])
    assert interference(totals, mechanism="utilitarian", noise="laplace")[2, 0] > 4
    assert np.nanmax(interference(totals, noise="laplace")) <= 1 + 1e-9


def test_weighted_utilitarian_interferes_with_alice_and_bob() -> None:
    found = interference([ALICE, BOB, CAROL], mechanism="weighted_utilitarian", noise="laplace")
    assert np.nanmax(found) > 1.1


@pytest.mark.parametrize("count", [2, 5])
def test_the_same_query_of_k_analysts_is_answered_with_all_of_the_budget(count: int) -> None:
    """Theorem 6: 2 / epsilon^2 for all, where each alone has k^2 times that."""
    found = share([CAROL] * count, budget=1.0, noise="laplace")
    assert found.joint == pytest.approx(np.full(count, 2.0))
    assert found.ratios == pytest.approx(np.full(count, 1 / count**2))


# --- strategies ----------------------------------------------------------------------------------------------


def test_p_identity_has_columns_of_norm_one_and_is_always_the_same() -> None:
    W = np.tril(np.ones((16, 16)))
    A = p_identity(W, starts=3)
    assert np.abs(A).sum(axis=0) == pytest.approx(np.ones(16))
    np.testing.assert_array_equal(A, p_identity(W, starts=3))
    assert total_variance(W, A) < total_variance(W, np.eye(16))


def test_p_identity_turns_back_where_rounding_would_eat_its_errors() -> None:
    """Single races and all others, 7 rows: larger and larger weights on the rows still pay, up to a point."""
    bits = np.array([cell.bit_count() for cell in range(64)])
    W = np.vstack([np.eye(64)[bits == 1], bits != 1])
    A = p_identity(W)
    assert np.abs(A).sum(axis=0) == pytest.approx(np.ones(64))
    assert 7 <= total_variance(W, A) < 8


@given(seeds, st.integers(2, 6))
@settings(max_examples=20)
def test_p_identity_is_no_worse_than_single_cells(seed: int, size: int) -> None:
    W = np.random.default_rng(seed).normal(size=(3, size))
    A = p_identity(W, rows=2, starts=2)
    assert total_variance(W, A) <= total_variance(W, np.eye(size)) * (1 + 1e-9)


def test_p_identity_cannot_reach_the_total_and_the_selection_does() -> None:
    W = np.ones((1, 64))
    assert 2 * total_variance(W, p_identity(W, starts=3)) > 4
    assert 2 * total_variance(W, select_strategy(W, noise="laplace", starts=1)) == pytest.approx(2.0)


def test_cells_that_are_not_told_apart_are_one_and_others_pay_nothing() -> None:
    W = np.array([[1.0, 1.0, 0.0, 2.0, 2.0]])
    for noise in NOISES:
        A = select_strategy(W, noise=noise, starts=1)
        assert A.shape == (1, 5)
        assert np.abs(A[0] / A[0, 3]) == pytest.approx([0.5, 0.5, 0.0, 1.0, 1.0])
