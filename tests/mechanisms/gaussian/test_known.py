from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechanisms.gaussian.known import Known, after, nothing_known
from mechanisms.gaussian.linear import Matrix, Mechanism, whitened
from tests.mechanisms.matrices import known_from, mechanisms

seeds = st.integers(0, 2**32 - 1)


def agrees(known: Known, B: Matrix, y: Matrix, *, accuracy: float = 1e-7) -> None:
    """Assert that C, h, and the answers to all cells, the total and the rows themselves are those of the stack."""
    C = B.T @ B
    np.testing.assert_allclose(known.rows.T @ known.rows, C, atol=1e-10)
    np.testing.assert_allclose(known.rows.T @ known.outcome, B.T @ y, atol=1e-10)
    np.testing.assert_allclose(known.profile, C.diagonal(), atol=1e-10)
    W = np.vstack([np.eye(known.cells), np.ones((1, known.cells)), B])
    inverse = np.linalg.pinv(C, rcond=1e-10, hermitian=True)
    inside = np.linalg.norm(W - W @ inverse @ C, axis=1) < 1e-6
    variances, answers = known.variances(W), known.estimate(W)
    np.testing.assert_array_equal(np.isfinite(variances), inside)
    exact = np.einsum("ij,jk,ik->i", W, inverse, W)
    np.testing.assert_allclose(variances[inside], exact[inside], rtol=accuracy, atol=1e-9)
    np.testing.assert_allclose(answers[inside], (W @ inverse @ B.T @ y)[inside], rtol=accuracy, atol=accuracy)
    assert np.isnan(answers[~inside]).all()


@given(mechanisms(4), seeds)
def test_estimates_and_variances_equal_the_pseudo_inverse(M: Mechanism, seed: int) -> None:
    omega = np.random.default_rng(seed).standard_normal(len(M.B))
    agrees(after(M, omega), whitened(M), np.linalg.solve(np.linalg.cholesky(M.Sigma), omega))


@settings(max_examples=40)
@given(seeds, st.integers(1, 9), st.lists(st.integers(0, 4), max_size=8))
def test_what_is_known_release_by_release_is_what_all_releases_tell_at_once(
    seed: int, d: int, counts: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    known, B, y = nothing_known(d), np.zeros((0, d)), np.zeros(0)
    for count in counts:
        new, output = rng.integers(-2, 3, (count, d)).astype(float), rng.standard_normal(count)
        known, B, y = known.with_rows(new, output), np.vstack([B, new]), np.concatenate([y, output])
        assert known.rank == (np.linalg.matrix_rank(B) if len(B) else 0)
    agrees(known, B, y)


def test_rows_of_zeros_tell_nothing() -> None:
    assert nothing_known(3).with_rows(np.zeros((2, 3)), np.zeros(2)).rank == 0
    some = nothing_known(3).with_rows(np.eye(3)[:1], np.ones(1))
    assert some.with_rows(np.zeros((2, 3)), np.ones(2)).variances(np.eye(3)[:1]) == pytest.approx(1.0)


def test_a_thousand_small_releases_leave_no_trace_of_rounding() -> None:
    rng = np.random.default_rng(0)
    B = rng.integers(0, 2, (1000, 20)).astype(float) * rng.choice([0.01, 1.0, 30.0], (1000, 1))
    y = rng.standard_normal(1000)
    known = nothing_known(20)
    for row, output in zip(B, y, strict=True):
        known = known.with_rows(row[None, :], np.array([output]))
    C = B.T @ B
    np.testing.assert_allclose(known.variances(np.eye(20)), np.linalg.inv(C).diagonal(), rtol=1e-10)
    np.testing.assert_allclose(known.estimate(np.eye(20)), np.linalg.solve(C, B.T @ y), rtol=1e-8)


def test_the_value_from_before_a_release_is_left_as_it_was() -> None:
    before = known_from(np.eye(2))
    after_all = before.with_rows(np.ones((1, 2)), np.ones(1))
    assert before.variances(np.eye(2)).tolist() == [1.0, 1.0]
    np.testing.assert_allclose(after_all.variances(np.eye(2)), [2 / 3, 2 / 3])
    assert before.with_rows(np.zeros((0, 2)), np.zeros(0)) is before


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 0, 2]])
def test_answers_of_very_different_accuracy_are_mixed_without_loss(order: list[int]) -> None:
    """The sum is known 1e7 times better than one part: C has condition 1e14 and more, the rows are solved."""
    B = np.array([[1e6, 1e6, 0.0], [0.1, 0.0, 0.0], [0.0, 0.0, 1.0]])[order]
    x = np.array([3.0, 4.0, 5.0])
    W = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    known = nothing_known(3)
    for row in B:
        known = known.with_rows(row[None, :], row[None, :] @ x)
    np.testing.assert_allclose(known.variances(W), [1e-12, 100.0 + 1e-12, 1.0], rtol=1e-7)
    np.testing.assert_allclose(known.estimate(W), W @ x, rtol=1e-7)


def test_columns_of_very_different_size_do_not_hide_each_other() -> None:
    known = known_from(np.array([[1e5, 1.0], [1e5, -1.0]]))
    np.testing.assert_allclose(known.variances(np.array([[0.0, 1.0], [1e5, 0.0]])), [0.5, 0.5], rtol=1e-8)


def test_rounding_in_a_cell_that_nobody_asked_for_is_not_blown_up() -> None:
    known = known_from(np.array([[1e-17, 2.0, 2.0], [-1e-17, 1.0, -1.0]]))
    np.testing.assert_allclose(known.variances(np.array([[0.0, 1.0, 0.0]])), [0.3125], rtol=1e-9)


def test_rows_released_on_a_grid_open_no_new_directions() -> None:
    """Taken at its word, the second row would tell nothing about the total: all it says would go into the rounding."""
    total = np.full((1, 4), 0.3)
    on_grid = np.trunc(total * 2**28 + [[0, 1, 2, 3]]) / 2**28
    known = known_from(total).with_rows(on_grid, np.zeros(1))
    assert known.rank == 1
    np.testing.assert_allclose(known.variances(np.ones((1, 4))), [1 / 0.18], rtol=1e-6)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_direction_that_rounding_turned_is_not_taken_for_two(order: tuple[int, ...]) -> None:
    """The second row leaves the first by so little that rounding decides where to; the third tells what is there."""
    other, rounding = np.array([1.0, -1.0, 1.0, -1.0]), np.array([1.0, 1.0, -1.0, -1.0])
    B = np.array([np.full(4, 0.3), 0.3 + 1e-5 * other + 1e-10 * rounding, other])
    known = nothing_known(4)
    for row in B[list(order)]:
        known = known.with_rows(row[None, :], np.zeros(1))
    assert known.rank == 2
    np.testing.assert_allclose(known.variances(np.ones((1, 4))), [1 / 0.18], rtol=1e-6)


def test_answers_from_one_history_agree_with_each_other() -> None:
    rng = np.random.default_rng(3)
    known = nothing_known(6).with_rows(rng.standard_normal((9, 6)), rng.standard_normal(9))
    assert known.estimate(np.ones((1, 6)))[0] == pytest.approx(known.estimate(np.eye(6)).sum(), abs=1e-10)


def test_nothing_known_answers_nothing_but_the_empty_query() -> None:
    W = np.array([[1.0, 0.0], [0.0, 0.0]])
    assert nothing_known(2).variances(W).tolist() == [np.inf, 0.0]
    assert nothing_known(2).estimate(W)[1] == 0.0


def test_rows_of_another_domain_are_refused() -> None:
    with pytest.raises(ValueError, match=r"B must be \(m, 2\)"):
        nothing_known(2).with_rows(np.ones((1, 3)), np.zeros(1))
    with pytest.raises(ValueError, match="y"):
        nothing_known(2).with_rows(np.ones((1, 2)), np.zeros(2))
