from __future__ import annotations

from itertools import combinations, pairwise

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings

from mechanisms.gaussian.common import common, common_many, least_upper_bound, residual, sequence
from mechanisms.gaussian.linear import (
    Matrix,
    Mechanism,
    answerable,
    equivalent,
    independent,
    information,
    profile,
    rho,
    together,
)
from tests.mechanisms.matrices import families

SUM = np.ones((1, 3))


def ways(count: int, attributes: int = 7) -> Matrix:
    """Return the rows of all marginals of that many of the binary attributes."""
    cells = np.array(np.unravel_index(np.arange(2**attributes), (2,) * attributes)).T
    rows = [
        (cells[:, list(A)] == value).all(axis=1)
        for A in combinations(range(attributes), count)
        for value in np.ndindex(*(2,) * count)
    ]
    return np.array(rows, dtype=float)


def test_the_common_mechanism_of_example_3_8_is_the_sum_with_variance_one_and_a_half() -> None:
    one = independent(SUM, 1.0)
    other = independent(np.vstack([SUM, np.eye(3)]), 2.0)
    found = common(one, other)
    assert equivalent(found, independent(SUM, 1.5))
    np.testing.assert_allclose(information(found), np.ones((3, 3)) / 1.5, atol=1e-12)
    assert answerable(independent(SUM, 2.0), found).holds
    assert not answerable(one, found).holds


def test_the_common_mechanism_of_example_3_12_is_the_total_with_variance_three() -> None:
    first = independent(np.kron(np.eye(3), np.ones((1, 3))), 1.0)
    second = independent(np.kron(np.ones((1, 3)), np.eye(3)), 1.0)
    total = common(first, second)
    assert equivalent(total, independent(np.ones((1, 9)), 3.0))
    B = np.array([[0, 0, 0, 1, 1, 1, -1, -1, -1], [-1, -1, -1, 1, 1, 1, 0, 0, 0]], dtype=float)
    published = Mechanism(B, np.array([[2.0, 1.0], [1.0, 2.0]]))
    rest = residual(first, total)
    assert equivalent(rest, published)


@given(families(count=2))
def test_common_is_answerable_from_both_and_residuals_complete_it(family: list[Mechanism]) -> None:
    """Lemma 3.11: C_common + C_residual = C for each of the two, so the cost is that of the one chosen."""
    shared = common(*family)
    for M in family:
        assert answerable(shared, M, tolerance=1e-7).holds
        whole = together([shared, residual(M, shared)])
        np.testing.assert_allclose(information(whole), information(M), atol=1e-6 * (1 + information(M).max()))
        np.testing.assert_allclose(profile(whole), profile(M), atol=1e-6 * (1 + profile(M).max()))


@given(families(count=2))
def test_no_direction_of_the_shared_row_space_could_have_less_noise_in_trace(family: list[Mechanism]) -> None:
    """Two mechanisms: the closed form equals the general solver."""
    shared, general = common(*family), common_many(family, gap=1e-7)
    assert len(shared.B) == len(general.B)
    assert np.trace(general.Sigma) == pytest.approx(np.trace(shared.Sigma), rel=1e-5)


@settings(max_examples=30)
@given(families(count=3, largest=4))
def test_the_common_mechanism_of_three_is_answerable_from_each(family: list[Mechanism]) -> None:
    shared = common_many(family)
    assert all(answerable(shared, M, tolerance=1e-6).holds for M in family)


def test_least_upper_bounds_equal_those_of_a_semidefinite_solver() -> None:
    for seed, (size, count) in enumerate([(1, 3), (2, 3), (5, 3), (8, 4)]):
        rng = np.random.default_rng(seed)
        matrices = [A @ A.T for A in rng.standard_normal((count, size, size))]
        found = least_upper_bound(matrices)
        Sigma = cp.Variable((size, size), PSD=True)
        optimum = cp.Problem(cp.Minimize(cp.trace(Sigma)), [Sigma - S >> 0 for S in matrices]).solve(solver="CLARABEL")
        assert np.trace(found) == pytest.approx(optimum, rel=1e-5)
        assert min(np.linalg.eigvalsh(found - S).min() for S in matrices) > -1e-9


def test_least_upper_bound_that_runs_out_of_steps_says_so() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="after 5 steps"):
        least_upper_bound([A @ A.T for A in rng.standard_normal((3, 6, 6))], gap=1e-12, max_steps=5)
    with pytest.raises(ValueError, match="at least two"):
        common_many([independent(SUM, 1.0)])


@pytest.mark.parametrize(
    ("finer", "saved", "rank"),
    [(independent(ways(2), 21.0), 75.0, 8), (independent(np.eye(128), 1.0), 6.25, 8)],
    ids=["two-way", "identity"],
)
def test_the_share_of_the_budget_saved_on_seven_binary_attributes(finer: Mechanism, saved: float, rank: int) -> None:
    one_way = independent(ways(1), 7.0)
    assert rho(one_way) == pytest.approx(rho(finer))
    shared = common(one_way, finer)
    assert 100 * rho(shared) / rho(one_way) == pytest.approx(saved, rel=1e-9)
    assert len(shared.B) == rank


def test_the_share_of_the_budget_saved_on_age_and_gender() -> None:
    ages, genders = np.kron(np.eye(101), np.ones((1, 2))), np.kron(np.ones((1, 101)), np.eye(2))
    one_way = independent(np.vstack([ages, genders]), 2.0)
    shared = common(one_way, independent(np.eye(202), 1.0))
    assert 100 * rho(shared) / rho(one_way) == pytest.approx(50.495, abs=5e-4)
    assert len(shared.B) == 102


def test_mechanisms_whose_row_spaces_only_partly_meet_share_just_that() -> None:
    """Marginals {A, B} and {B, C} share the marginal on B: the case that the authors' code gets wrong."""
    eye, one = np.eye(2), np.ones((1, 2))
    left = independent(np.kron(np.kron(eye, eye), one), 1.0)
    right = independent(np.kron(np.kron(one, eye), eye), 1.0)
    shared = common(left, right)
    assert equivalent(shared, independent(np.kron(np.kron(one, eye), one), 2.0))


def test_mechanisms_that_share_nothing_have_an_empty_common_mechanism() -> None:
    one, other = independent(np.array([[1.0, 0.0]]), 1.0), independent(np.array([[0.0, 1.0]]), 1.0)
    shared = common(one, other)
    assert shared.B.shape == (0, 2)
    assert equivalent(residual(one, shared), one)


def test_a_residual_of_something_not_common_is_refused() -> None:
    with pytest.raises(ValueError, match="must be answerable"):
        residual(independent(SUM, 2.0), independent(SUM, 1.0))


def test_a_sequence_of_choices_always_costs_what_the_mechanism_taken_costs() -> None:
    cuts = [[0, 12], [0, 4, 12], [0, 2, 4, 8, 12], list(range(13))]
    family = [independent(_buckets(ends), 1.0) for ends in cuts]
    stages = sequence(family)
    paid: list[Mechanism] = []
    for stage, M in zip(stages, family, strict=True):
        paid.append(stage.step)
        np.testing.assert_allclose(information(together(paid)), information(stage.common), atol=1e-8)
        assert equivalent(together([*paid, stage.finish]), M, tolerance=1e-7)
    assert len(stages[-1].finish.B) == 0
    many = common_many(family)
    np.testing.assert_allclose(information(stages[0].common), information(many), atol=1e-5)


def _buckets(ends: list[int]) -> Matrix:
    cells = np.arange(ends[-1])
    return np.array([(cells >= low) & (cells < high) for low, high in pairwise(ends)], float)


@settings(max_examples=30)
@given(families(count=3))
def test_each_stage_of_any_sequence_is_answerable_from_the_next(family: list[Mechanism]) -> None:
    stages = sequence(family)
    for here, then in pairwise(stages):
        assert answerable(here.common, then.common, tolerance=1e-6).holds
    for stage, M in zip(stages, family, strict=True):
        assert answerable(stage.common, M, tolerance=1e-6).holds
