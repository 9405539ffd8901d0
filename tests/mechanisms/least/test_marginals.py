"""Helmert rows are what they say and cost what is booked, and no top-up is cheaper: against dense algebra."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from mechanisms.gaussian.known import nothing_known
from mechanisms.least import marginals as helmert
from mechanisms.least.marginals import Rows, Subset, subsets
from mechanisms.least.minimax import fit

Sizes = tuple[int, ...]

sizes_of_tables = st.lists(st.integers(1, 6), min_size=0, max_size=3).map(tuple)
DOMAINS: list[Sizes] = [(2,), (5,), (3, 2), (4, 3), (2, 3, 4)]


def helmert_rows(n: int) -> np.ndarray:
    return np.array([[1] * j + [-j] + [0] * (n - j - 1) for j in range(1, n)]).reshape(n - 1, n)


def rows_of(sizes: Sizes, A: Subset, *, centred: bool = True) -> np.ndarray:
    """Return the Helmert rows of the marginal on A, or its cells, on the whole domain."""
    B = np.ones((1, 1))
    for i, n in enumerate(sizes):
        inside = helmert_rows(n) if centred else np.eye(n)
        B = np.kron(B, inside if i in A else np.ones((1, n)))
    return B


def standardised(sizes: Sizes, precisions: dict[Subset, float]) -> np.ndarray:
    """Return rows with noise 1 that tell these precisions about the centred marginals."""
    parts = []
    for A, precision in precisions.items():
        norms = helmert.squares(tuple(sizes[i] for i in A)).ravel()
        parts.append(rows_of(sizes, A) * np.sqrt(precision / norms)[:, None])
    return np.vstack(parts)


def every(sizes: Sizes) -> list[Subset]:
    return subsets(tuple(range(len(sizes))))


@given(sizes_of_tables, st.integers(0, 2**32))
def test_coefficients_are_products_with_helmert_rows_and_go_back_to_the_centred_table(sizes: Sizes, seed: int) -> None:
    table = np.random.default_rng(seed).integers(-1000, 1000, sizes)
    expected = rows_of(sizes, tuple(range(len(sizes)))) @ table.ravel()
    found = helmert.coefficients(table)
    assert found.ravel().tolist() == expected.tolist()
    np.testing.assert_allclose(
        helmert.centred(found.astype(float)), helmert.without_means(table.astype(float)), atol=1e-9
    )


@given(sizes_of_tables)
def test_helmert_rows_are_orthogonal_and_make_up_the_projection(sizes: Sizes) -> None:
    B, norms = rows_of(sizes, tuple(range(len(sizes)))), helmert.squares(sizes).ravel()
    np.testing.assert_array_equal(B @ B.T, np.diag(norms))
    projection = np.ones((1, 1))
    for n in sizes:
        projection = np.kron(projection, np.eye(n) - 1 / n)
    np.testing.assert_allclose(B.T @ (B / norms[:, None]), projection, atol=1e-12)


def test_coefficients_of_large_numbers_are_exact_as_python_integers() -> None:
    table = np.array([[2**70, 3], [5, -(2**69)]], dtype=object)
    assert helmert.coefficients(table).tolist() == [[2**70 - 3 - 5 - 2**69]]


@pytest.mark.parametrize("sizes", [(), (2,), (7,), (3, 4), (2, 3, 5)])
@pytest.mark.parametrize("precision", [1e-9, 0.0016, 1.0, 12345.678])
def test_rows_tell_the_precision_and_book_at_least_what_every_cell_pays(sizes: Sizes, precision: float) -> None:
    rows = Rows.telling(tuple(range(len(sizes))), precision, sizes)
    k = [int(value) for value in rows.multipliers(sizes).ravel()]
    B = rows_of(sizes, rows.A).astype(int)
    assert rows.precision >= precision * (1 - 1e-12)
    for value, row in zip(k, B, strict=True):
        told = Fraction(value**2 * int(row @ row), 4**rows.bits)
        assert Fraction(rows.precision) * (1 - Fraction(1, 2**50)) <= told
        assert told <= Fraction(precision) * (1 + Fraction(1, 2**18))
    for cell in range(B.shape[1]):
        paid = sum(Fraction((value * int(row[cell])) ** 2, 4**rows.bits) for value, row in zip(k, B, strict=True))
        assert paid <= rows.profile(sizes) <= paid * (1 + Fraction(1, 2**18))


def test_a_precision_beyond_the_grid_is_rounded_up_and_still_booked() -> None:
    rows = Rows.telling((0,), 1e-40, (4,))
    assert rows.precision >= 1e-40
    paid = [sum(Fraction(int(k * h) ** 2, 4**rows.bits) for k, h in zip(rows.multipliers((4,)), column, strict=True))
            for column in helmert_rows(4).T]  # fmt: skip
    assert max(paid) <= rows.profile((4,))


@pytest.mark.parametrize("sizes", DOMAINS)
def test_variances_and_answers_are_those_of_the_dense_algebra(sizes: Sizes) -> None:
    generator = np.random.default_rng(5)
    precisions = {A: float(generator.uniform(0.1, 3)) for A in every(sizes)}
    B = standardised(sizes, precisions)
    y = generator.normal(size=len(B))
    known = nothing_known(B.shape[1]).with_rows(B, y)
    tables, start = {}, 0
    for A, precision in precisions.items():
        norms = helmert.squares(tuple(sizes[i] for i in A))
        told = y[start : start + norms.size].reshape(norms.shape) * np.sqrt(norms / precision)
        tables[A], start = helmert.centred(told), start + norms.size
    for A in every(sizes):
        W = rows_of(sizes, A, centred=False)
        np.testing.assert_allclose(known.variances(W), helmert.cell_variance(sizes, precisions, A), rtol=1e-7)
        found = helmert.reconstructed(sizes, tables, A)
        np.testing.assert_allclose(found.ravel(), known.estimate(W), rtol=1e-6, atol=1e-6)
    profile = sum(e * helmert.share(sizes, A) for A, e in precisions.items())
    np.testing.assert_allclose((B**2).sum(axis=0), profile, rtol=1e-9)


@pytest.mark.parametrize("sizes", DOMAINS)
def test_a_plain_marginal_tells_its_parts_as_in_the_dense_algebra(sizes: Sizes) -> None:
    for A in every(sizes):
        B = rows_of(sizes, A, centred=False) / math.sqrt(2.5)
        parts = standardised(sizes, helmert.plain(sizes, A, 2.5))
        np.testing.assert_allclose(parts.T @ parts, B.T @ B, atol=1e-9)


@pytest.mark.parametrize("sizes", DOMAINS)
def test_a_fresh_plan_costs_what_the_best_of_all_gaussian_mechanisms_costs(sizes: Sizes) -> None:
    for wanted in (every(sizes), every(sizes)[1:], every(sizes)[-1:]):
        W = np.vstack([rows_of(sizes, A, centred=False) for A in wanted])
        found = helmert.top_up(sizes, {}, dict.fromkeys(wanted, 2.0))
        best = fit(W, np.full(len(W), 2.0))
        assert found.bound <= found.cost <= found.bound * (1 + 1e-4)
        assert found.cost == pytest.approx(float(np.square(best.K @ W).sum(axis=0).max()), rel=3e-3)


@st.composite
def known_and_targets(draw: st.DrawFn) -> tuple[Sizes, dict[Subset, float], dict[Subset, float]]:
    sizes = draw(st.sampled_from(DOMAINS))
    amounts = st.floats(0.01, 4.0)
    known = {A: draw(amounts) for A in every(sizes) if draw(st.booleans())}
    wanted = draw(st.lists(st.sampled_from(every(sizes)), min_size=1, unique=True))
    return sizes, known, {A: draw(st.floats(0.2, 5.0)) for A in wanted}


@given(known_and_targets())
def test_a_top_up_meets_all_targets_and_no_other_is_cheaper(
    problem: tuple[Sizes, dict[Subset, float], dict[Subset, float]],
) -> None:
    sizes, known, targets = problem
    found = helmert.top_up(sizes, known, targets)
    after = {**known, **found.precisions}
    assert all(e >= known.get(A, 0.0) for A, e in found.precisions.items())
    for A, t in targets.items():
        assert helmert.cell_variance(sizes, after, A) <= t * (1 + 1e-9)
    assert found.bound <= found.cost <= found.bound * (1 + 2e-3) + 1e-12
    spent = sum(helmert.share(sizes, A) * (e - known.get(A, 0.0)) for A, e in found.precisions.items())
    assert found.cost == pytest.approx(spent, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_a_top_up_is_as_cheap_as_a_general_solver_finds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    sizes = (3, 4, 2)
    known = {A: float(generator.uniform(0, 1)) for A in every(sizes) if generator.random() < 0.6}
    targets = {A: float(generator.uniform(0.5, 3)) for A in every(sizes) if generator.random() < 0.6 or A == (0, 1)}
    found = helmert.top_up(sizes, known, targets)
    parts = every(sizes)
    floor = np.array([known.get(A, 0.0) for A in parts])
    price = np.array([helmert.share(sizes, A) for A in parts])

    def slack(e: np.ndarray) -> list[float]:
        return [t - helmert.cell_variance(sizes, dict(zip(parts, e, strict=True)), A) for A, t in targets.items()]

    start = floor + max(10.0, found.cost * 10)
    best = minimize(
        lambda e: float(price @ (e - floor)), start, jac=lambda _: price, method="SLSQP",
        bounds=[(low + 1e-9, None) for low in floor], constraints={"type": "ineq", "fun": slack},
        options={"maxiter": 500, "ftol": 1e-10},
    )  # fmt: skip
    assert best.success
    assert found.cost <= best.fun * (1 + 1e-3) + 1e-6
    assert found.bound <= best.fun * (1 + 1e-6) + 1e-6


def test_a_fresh_plan_meets_its_targets_and_equals_a_convex_solver() -> None:
    sizes = (2, 3, 5)
    targets: dict[Subset, float] = {(0,): 1.0, (0, 1): 2.0, (1, 2): 0.5, (): 0.25}
    plan = helmert.top_up(sizes, {}, targets)
    assert all(helmert.cell_variance(sizes, plan.precisions, A) <= t * (1 + 1e-9) for A, t in targets.items())
    parts = list(plan.precisions)
    e = cp.Variable(len(parts), pos=True)
    limits = []
    for A, t in targets.items():
        ones = dict.fromkeys(parts, 1.0)
        at_one = helmert.cell_variance(sizes, ones, A)  # of each part, twice the precision takes half of it away
        weights = [2 * (at_one - helmert.cell_variance(sizes, {**ones, part: 2.0}, A)) for part in parts]
        limits.append(np.array(weights) @ cp.inv_pos(e) <= t)
    price = np.array([helmert.share(sizes, part) for part in parts])
    optimum = cp.Problem(cp.Minimize(price @ e), limits).solve(solver="CLARABEL")
    assert plan.bound <= optimum * (1 + 1e-5)
    assert plan.cost == pytest.approx(optimum, rel=3e-4)


def test_an_attribute_with_one_value_is_no_obstacle() -> None:
    plan = helmert.top_up((1, 3), {}, {(0, 1): 1.0})
    assert helmert.cell_variance((1, 3), plan.precisions, (0, 1)) <= 1.0 + 1e-9
    tables = {part: np.zeros([(1, 3)[i] for i in part]) for part in plan.precisions}
    assert helmert.reconstructed((1, 3), tables, (0, 1)).shape == (1, 3)


def test_what_is_known_well_enough_needs_no_top_up() -> None:
    sizes = (5, 7)
    known = helmert.plain(sizes, (0, 1), 1.0)
    assert helmert.top_up(sizes, known, {(0, 1): 1.0001, (0,): 7.001, (): 36.0}).cost == 0


def test_releases_add_up() -> None:
    one, other = helmert.plain((3,), (0,), 1.0), helmert.plain((3,), (0,), 2.0)
    assert helmert.cell_variance((3,), helmert.added([one, other]), (0,)) == pytest.approx(1 / 1.5)


def test_all_sets_of_eight_attributes_are_planned_together() -> None:
    sizes = (74, 16, 15, 9, 7, 6, 5, 2)
    cube = [A for size in range(9) for A in combinations(range(8), size)]
    found = helmert.top_up(sizes, helmert.plain(sizes, (0, 1, 2), 1.0), dict.fromkeys(cube, 1.0))
    assert found.cost <= found.bound * (1 + 1e-4)
    assert found.cost < len(cube) / 3
