from __future__ import annotations

from math import prod, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.residual_planner import (
    Marginals,
    added,
    answers,
    cell_variance,
    combined,
    common,
    cost,
    join,
    noise_variance,
    plan_total,
    reconstructed,
    released,
    residual,
    up_to,
)
from mechanisms.gaussian import linear
from mechanisms.gaussian.known import nothing_known
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.marginals import Subset, subsets, top_up, without_means
from mechanisms.least.residual import join_residual
from tests.mechanisms.matrices import known_from

DOMAINS = [(1,), (2,), (5,), (2, 2), (3, 2), (1, 3), (2, 3, 2), (4, 3), (2, 2, 2, 2)]
ADULT = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)


def projection(sizes: tuple[int, ...], A: Subset) -> Matrix:
    P = np.ones((1, 1))
    for i, n in enumerate(sizes):
        mean = np.full((n, n), 1 / n)
        P = np.kron(P, np.eye(n) - mean if i in A else mean)
    return P


def dense(M: Marginals) -> Matrix:
    d = prod(M.sizes)
    return sum((c * projection(M.sizes, A) for A, c in M.information.items()), np.zeros((d, d)))


def rows_of(sizes: tuple[int, ...], A: Subset) -> Matrix:
    B = np.ones((1, 1))
    for i, n in enumerate(sizes):
        B = np.kron(B, np.eye(n) if i in A else np.ones((1, n)))
    return B


@st.composite
def informations(draw: st.DrawFn) -> tuple[Marginals, Marginals]:
    sizes = draw(st.sampled_from(DOMAINS))
    values = st.sampled_from([0.0, 0.5, 1.0, 2.0])
    keys = subsets(tuple(range(len(sizes))))
    first, second = ({A: c for A in keys if (c := draw(values)) > 0} for _ in range(2))
    return Marginals(sizes, first), Marginals(sizes, second)


@pytest.mark.parametrize("sizes", DOMAINS)
def test_released_marginals_have_information_cost_and_variances_of_the_dense_algebra(
    sizes: tuple[int, ...],
) -> None:
    every = subsets(tuple(range(len(sizes))))
    for chosen in [every, every[-1:], every[: len(every) // 2 + 1]]:
        noise = {A: 1.0 + 0.5 * len(A) for A in chosen}
        M = released(sizes, noise)
        B = np.vstack([rows_of(sizes, A) / sqrt(v) for A, v in noise.items()])
        np.testing.assert_allclose(dense(M), B.T @ B, atol=1e-10)
        np.testing.assert_allclose((B**2).sum(axis=0), cost(M), rtol=1e-12)
        for A in every:
            expected = known_from(B).variances(rows_of(sizes, A))
            np.testing.assert_allclose(expected, cell_variance(M, A), rtol=1e-7)


@given(informations())
def test_common_join_and_residual_equal_the_dense_algebra(pair: tuple[Marginals, Marginals]) -> None:
    one, other = pair
    C_one, C_other = dense(one), dense(other)
    eigenvalues, vectors = np.linalg.eigh(C_one - C_other)
    positive = (vectors * np.maximum(eigenvalues, 0)) @ vectors.T
    np.testing.assert_allclose(dense(residual(one, other)), positive, atol=1e-9)
    np.testing.assert_allclose(dense(join(one, other)), C_other + positive, atol=1e-9)
    np.testing.assert_allclose(dense(common(one, other)), C_one - positive, atol=1e-9)
    np.testing.assert_allclose(dense(added(one, other)), C_one + C_other, atol=1e-9)
    assert answers(join(one, other), one)
    assert answers(one, common(one, other))
    assert answers(one, other) == bool(np.linalg.eigvalsh(C_one - C_other).min() > -1e-9)


def test_the_common_mechanism_equals_the_one_of_the_closed_form() -> None:
    from mechanisms.gaussian.common import common as dense_common

    one, other = released((3, 2), {(0,): 1.0, (1,): 2.0}), released((3, 2), {(0, 1): 1.5})
    matrices = [linear.Mechanism(B, np.eye(len(B))) for B in (linear.root_rows(dense(M)) for M in (one, other))]
    np.testing.assert_allclose(linear.information(dense_common(*matrices)), dense(common(one, other)), atol=1e-9)
    rows = [M.B for M in matrices]
    new = join_residual(known_from(rows[1]), rows[0])
    np.testing.assert_allclose(new.T @ new, dense(residual(one, other)), atol=1e-9)


@pytest.mark.parametrize(
    ("attributes", "rmse"), [(10, 9.34811), (20, 26.9168), pytest.param(30, 49.7132, id="thirty attributes")]
)
def test_total_variance_plans_reach_the_published_errors_at_cost_one(attributes: int, rmse: float) -> None:
    assert _rmse((10,) * attributes, up_to(attributes, 3)) == pytest.approx(rmse, rel=1e-5)


@pytest.mark.parametrize(("ways", "rmse"), [(1, 3.04682), (2, 6.35872), (3, 10.51527)])
def test_adult_marginals_reach_the_published_errors_at_cost_one(ways: int, rmse: float) -> None:
    assert _rmse(ADULT, [A for A in up_to(14, ways) if len(A) == ways]) == pytest.approx(rmse, rel=1e-5)


def test_adult_marginals_up_to_three_ways_reach_the_published_error() -> None:
    assert _rmse(ADULT, up_to(14, 3)) == pytest.approx(10.66501, rel=1e-5)


def _rmse(sizes: tuple[int, ...], wanted: list[Subset]) -> float:
    cells = {A: float(prod(sizes[i] for i in A)) for A in wanted}
    M = plan_total(sizes, cells, cost=1.0)
    assert cost(M) == pytest.approx(1.0, rel=1e-9)
    return sqrt(sum(n * cell_variance(M, A) for A, n in cells.items()) / sum(cells.values()))


@pytest.mark.parametrize(("attributes", "worst"), [(10, 105.0308), (20, 768.9414)])
def test_worst_case_plans_reach_the_published_variances_at_cost_one(attributes: int, worst: float) -> None:
    plan = top_up((10,) * attributes, {}, dict.fromkeys(up_to(attributes, 3), 1.0), gap=1e-4)
    assert plan.bound <= worst * (1 + 1e-6)
    assert plan.cost == pytest.approx(worst, rel=1e-4)


@settings(max_examples=25)
@given(st.sampled_from([s for s in DOMAINS if len(s) > 1]), st.integers(0, 2**32 - 1))
def test_broadcasting_centred_tables_equals_the_best_linear_estimate(sizes: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 9, sizes).astype(float)
    A = tuple(range(len(sizes)))
    M = Marginals(sizes, {part: float(rng.uniform(0.5, 2)) for part in subsets(A)})
    tables, rows, outputs = {}, [], []
    for part in subsets(A):
        axes = tuple(i for i in A if i not in part)
        noisy = x.sum(axis=axes) + sqrt(noise_variance(M, part)) * rng.standard_normal([sizes[i] for i in part])
        tables[part] = without_means(np.asarray(noisy))
        scale = sqrt(M.information[part] / prod(sizes[i] for i in axes))
        rows.append(scale * rows_of(sizes, part) @ projection(sizes, part))
        outputs.append(scale * tables[part].ravel())
    for wanted in subsets(A):
        W = rows_of(sizes, wanted)
        expected = nothing_known(prod(sizes)).with_rows(np.vstack(rows), np.concatenate(outputs)).estimate(W)
        np.testing.assert_allclose(reconstructed(sizes, tables, wanted).ravel(), expected, atol=1e-6)


def test_centred_noise_has_exactly_the_planned_information() -> None:
    """The covariance of a centred table is noise_variance times the centring projection: its information is c_A P_A."""
    sizes, A = (3, 4, 2), (0, 2)
    M = Marginals(sizes, {A: 0.7})
    centring = np.kron(np.eye(3) - 1 / 3, np.eye(2) - 1 / 2)
    table = np.arange(6.0).reshape(3, 2) ** 2
    np.testing.assert_allclose(centring @ table.ravel(), without_means(table).ravel(), atol=1e-12)
    covariance = noise_variance(M, A) * centring
    B = centring @ rows_of(sizes, A)
    np.testing.assert_allclose(B.T @ np.linalg.pinv(covariance) @ B, dense(M), atol=1e-12)


def test_several_measurements_of_one_part_are_weighed_by_their_information() -> None:
    total, table = combined([(1.0, np.array([1.0, -1.0])), (3.0, np.array([5.0, -5.0]))])
    assert total == 4.0
    assert table.tolist() == [4.0, -4.0]


def test_an_attribute_with_one_value_is_no_obstacle() -> None:
    M = plan_total((1, 3), {(0, 1): 1.0}, cost=1.0)
    assert cell_variance(M, (0, 1)) < np.inf
    tables = {part: np.zeros([(1, 3)[i] for i in part]) for part in M.information}
    assert reconstructed((1, 3), tables, (0, 1)).shape == (1, 3)


def test_a_part_that_was_not_measured_makes_the_variance_infinite_and_is_refused() -> None:
    M = Marginals((2, 2), {(0,): 1.0})
    assert cell_variance(M, (0,)) == np.inf
    with pytest.raises(ValueError, match="not measured"):
        reconstructed((2, 2), {(0,): np.zeros(2)}, (0,))


@pytest.mark.parametrize("wrong", [(1, 0), (0, 0), (2,), (-1,)])
def test_a_marginal_must_name_ascending_positions(wrong: Subset) -> None:
    with pytest.raises(ValueError, match="ascending"):
        cell_variance(Marginals((2, 2), {}), wrong)


def test_informations_on_different_attributes_do_not_mix() -> None:
    with pytest.raises(ValueError, match="same sizes"):
        common(Marginals((2,), {}), Marginals((3,), {}))
    with pytest.raises(ValueError, match="at least one table"):
        combined([])


def test_up_to_lists_every_small_subset_once() -> None:
    assert up_to(3, 2) == [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    assert len({frozenset(A) for A in up_to(6, 3)}) == 1 + 6 + 15 + 20
