"""Linear measurements against dense numpy and Fractions: reconstruction, rounding, targets, costs and digests."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.basics.errors import TooLarge
from planner.cells.costs import rho_of
from planner.cells.workspace import Axis, Feature, Workspace
from planner.policy.domain import Domain
from planner.policy.table import Column, Table
from planner.questions import linear
from planner.questions.linear import Integers, Measurement, Question

Floats = np.ndarray[Any, np.dtype[np.float64]]

PLACES = Domain(type="integer", low=0, high=5, step=1)
VALUES = Domain(type="integer", low=0, high=9, step=1)
TABLE = Table(name="people", source="people.parquet", columns={"g": Column("g", PLACES), "v": Column("v", VALUES)})


def make(
    E: Any,
    *,
    features: Sequence[Feature] = (),
    high: int = 9,
    units: Sequence[float] | None = None,
    table: Table = TABLE,
    groups: int = 1,
    atoms: Sequence[int] | None = None,
) -> Question:
    """Return a question in which pattern s is atom s of column g; E has shape (functionals, patterns, features)."""
    array = np.array(E, dtype=object)
    count = array.shape[1]
    cut = np.array(atoms if atoms is not None else [min(i, count - 1) for i in range(6)], dtype=np.int64)
    domain = table.columns["g"].domain
    assert domain is not None
    axis = Axis("g", domain, cut, np.unique(cut, return_index=True)[1])
    places, width = np.arange(count, dtype=np.int64), len(features)
    return Question(
        workspace=Workspace(table, (axis,)),
        features=tuple(features),
        cell=places,
        group=np.minimum(places, groups - 1),
        groups=groups,
        pattern=places,
        low=np.zeros((count, width), dtype=np.int64),
        high=np.full((count, width), high, dtype=np.int64),
        E=array,
        units=np.ones(len(array)) if units is None else np.array(units, dtype=float),
        roles=("count",) * len(array),
    )


def counts(W: Sequence[Sequence[int]]) -> Question:
    """Return a question of plain counts: rows of W over cells."""
    return make([[[value] for value in row] for row in W])


def matched(question: Question, times: int) -> Question:
    """Return the question after a public join in which every row has so many matches, all in its group."""
    fields = ("cell", "group", "pattern", "low", "high")
    return dataclasses.replace(question, **{name: np.repeat(getattr(question, name), times, axis=0) for name in fields})


PREFIX = [[1] * (i + 1) + [0] * (3 - i) for i in range(4)]

small = st.integers(-6, 6)


@st.composite
def workloads(draw: st.DrawFn) -> list[list[int]]:
    width, height = draw(st.integers(1, 5)), draw(st.integers(1, 4))
    return draw(st.lists(st.lists(small, min_size=width, max_size=width), min_size=height, max_size=height))


@st.composite
def stacks(draw: st.DrawFn) -> tuple[list[list[int]], list[Measurement]]:
    """Return a workload and some measurements that mix its rows."""
    W = draw(workloads())
    found = []
    for _ in range(draw(st.integers(0, 3))):
        rows = draw(st.lists(st.lists(small, min_size=len(W), max_size=len(W)), min_size=1, max_size=4))
        found.append(Measurement(np.array(rows, dtype=object), draw(st.integers(0, 3))))
    return W, found


# --- reconstruction ----------------------------------------------------------------------------------------


@given(stacks())
def test_known_is_the_best_linear_unbiased_reconstruction(case: tuple[list[list[int]], list[Measurement]]) -> None:
    """Unbiased: L B = W. Best: covariance W (B^T B)^+ W^T. Undetermined rows have infinite variance."""
    W, measurements = case
    found = linear.known(counts(W), measurements)
    V = np.array(W, dtype=float)
    parts = [m.K.astype(float) @ V / 2.0**m.bits for m in measurements]
    B = np.vstack(parts) if parts else np.zeros((1, V.shape[1]))
    inverse = np.linalg.pinv(B.T @ B, rcond=1e-9)
    determined = np.abs(V @ inverse @ (B.T @ B) - V).max(axis=1) < 1e-6
    assert np.array_equal(np.isfinite(found.variances), determined)
    expected = (V @ inverse @ V.T)[np.ix_(determined, determined)]
    assert np.allclose(found.covariances(len(W))[0][np.ix_(determined, determined)], expected, rtol=1e-6, atol=1e-9)
    if measurements:
        assert np.allclose((found.L @ B)[determined], V[determined], atol=1e-6)


def test_an_unknown_functional_has_infinite_variance_and_no_covariance() -> None:
    found = linear.known(counts([[1, 0], [0, 1]]), [Measurement(np.array([[1, 0]], dtype=object), 0)])
    assert found.covariances(2).tolist() == [[[1.0, 0.0], [0.0, math.inf]]]


def test_estimates_from_stacked_releases_weigh_them_by_their_precision() -> None:
    """Two releases of a count with variances 1 and 4: weights 4/5 and 1/5, variance 4/5."""
    question = counts([[1]])
    fine, coarse = (Measurement(np.array([[k]], dtype=object), bits) for k, bits in ((4, 2), (1, 1)))
    found = linear.known(question, [fine, coarse])
    y = np.array([100 * 4 / 2**2, 110 * 1 / 2**1])
    assert (found.L @ y).item() == pytest.approx(0.8 * 100 + 0.2 * 110)
    assert found.variances.item() == pytest.approx(0.8)


def test_estimates_are_consistent_with_each_other() -> None:
    """From one history, a total is the sum of its parts, to the last digit that floats have."""
    question = counts([[1, 0], [0, 1], [1, 1]])
    rng = np.random.default_rng(1)
    stack = [Measurement(rng.integers(-9, 9, size=(4, 3)).astype(object), 1) for _ in range(3)]
    y = rng.normal(scale=100, size=12)
    left, right, total = linear.known(question, stack).L @ y
    assert left + right == pytest.approx(total, rel=1e-12)


def test_reconstruction_holds_for_rows_of_very_different_scale() -> None:
    """A count beside a sum of up to 10^9 of its unit: both come out right."""
    question = make([[[1, 0]], [[0, 1]]], features=[("v", 1)], high=10**9)
    measurement = linear.meeting(question, np.array([100.0, 1e20]))
    found = linear.known(question, [measurement])
    x = np.array([1000.0, 3.5e11])  # records, and the sum of their indices
    B = np.ldexp(measurement.rows(question).astype(float)[:, 0, :], -measurement.bits)
    assert found.L @ (B @ x) == pytest.approx(x, rel=1e-9)
    assert np.all(found.variances <= [100.0 * (1 + 1e-9), 1e20 * (1 + 1e-9)])


# --- integers ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=6), st.integers(0, 4), st.sampled_from([1, 2, 4]))
def test_decimal_coefficients_become_integers_exactly(numbers: list[int], digits: int, factor: int) -> None:
    row = np.array([[number / (10**digits * factor)] for number in numbers])
    whole, unit = linear.integer_row(row, np.ones(row.shape))
    step = Fraction(unit).limit_denominator(10**9)
    assert [step * int(w) for w in whole.ravel()] == [Fraction(n, 10**digits * factor) for n in numbers]


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=5).filter(lambda row: any(row)),
    st.integers(1, 10**9),
)
def test_other_coefficients_are_rounded_to_2_to_the_minus_40_of_what_a_record_adds(row: list[float], most: int) -> None:
    coefficients = np.array([[value, value / 3] for value in row])
    reach = np.column_stack([np.ones(len(row)), np.full(len(row), float(most))])
    whole, unit = linear.integer_row(coefficients, reach)
    exact = np.array([[float(Fraction(int(w)) * Fraction(unit)) for w in values] for values in whole])
    error = np.abs((exact - coefficients) * reach).max()
    assert error <= 2.0**-39 * np.abs(coefficients * reach).max()
    assert all(isinstance(value, int) for value in whole.ravel())


@given(
    st.lists(st.lists(st.integers(-(2**70), 2**70), min_size=3, max_size=3), min_size=1, max_size=3),
    st.lists(st.lists(st.integers(-(2**40), 2**40), min_size=2, max_size=2), min_size=3, max_size=3),
)
def test_products_of_large_integers_are_exact(left: list[list[int]], right: list[list[int]]) -> None:
    product = linear.exact_product(np.array(left, dtype=object), np.array(right, dtype=object))
    columns = list(zip(*right, strict=True))
    assert product.tolist() == [[sum(map(operator.mul, row, column)) for column in columns] for row in left]


@pytest.mark.parametrize("size", [2**26 - 1, 2**26, 2**26 + 1, 2**31, 2**32])
def test_products_are_exact_around_the_limit_of_floats(size: int) -> None:
    left, right = np.array([[size, 1]], dtype=object), np.array([[size + 1], [1]], dtype=object)
    found = linear.exact_product(left, right)
    assert found.tolist() == [[size * (size + 1) + 1]]
    assert all(isinstance(value, int) for value in found.ravel())


# --- targets and costs -------------------------------------------------------------------------------------


@given(workloads(), st.lists(st.sampled_from([1e-6, 0.3, 1.0, 650.0, 1e9]), min_size=4, max_size=4))
def test_quantised_measurements_meet_their_targets(W: list[list[int]], targets: list[float]) -> None:
    variances = np.array(targets[: len(W)])
    question = counts(W)
    found = linear.known(question, [linear.meeting(question, variances)])
    assert np.all(found.variances <= variances * (1 + 1e-9))


def brute_force(question: Question, measurement: Measurement, *, rows_per_unit: int) -> Fraction:
    """Return the largest k^2 |B phi|^2 / 2 over patterns and grid indices of one measured column, by trying all."""
    B, powers = measurement.rows(question), [power for _, power in question.features]
    worst = Fraction(0)
    for pattern in range(B.shape[1]):
        for u in range(int(question.high.max(initial=0)) + 1):
            phi = [1, *(u**power for power in powers)]
            reach = [sum(int(b) * f for b, f in zip(row[pattern], phi, strict=True)) for row in B]
            worst = max(worst, Fraction(sum(r * r for r in reach), 2 * 4**measurement.bits))
    return worst * rows_per_unit**2


@given(workloads(), st.integers(1, 5))
def test_the_cost_of_counts_is_exact(W: list[list[int]], k: int) -> None:
    question = counts(W)
    measurement = linear.meeting(question, np.full(len(W), 7.0))
    booked = rho_of(linear.cost(question, measurement, rows_per_unit=k).highest)
    true = brute_force(question, measurement, rows_per_unit=k)
    assert true <= booked < true * (1 + Fraction(1, 2**38)) + Fraction(1, 2**50)


@given(st.lists(st.tuples(small, small), min_size=1, max_size=4), st.integers(1, 3))
def test_the_cost_of_sums_is_exact(coefficients: list[tuple[int, int]], k: int) -> None:
    """|B (1, u)|^2 is convex in u, so its maximum is at an end."""
    question = make([[list(pair)] for pair in coefficients], features=[("v", 1)])
    measurement = linear.meeting(question, np.full(len(coefficients), 7.0))
    booked = rho_of(linear.cost(question, measurement, rows_per_unit=k).highest)
    true = brute_force(question, measurement, rows_per_unit=k)
    assert true <= booked < true * (1 + Fraction(1, 2**38)) + Fraction(1, 2**50)


@given(st.lists(st.tuples(small, small, small), min_size=1, max_size=3))
def test_the_cost_of_squares_is_never_too_low(coefficients: list[tuple[int, int, int]]) -> None:
    """Not tight: the middle Bernstein point lies off the parabola, so no record reaches it."""
    question = make([[list(triple)] for triple in coefficients], features=[("v", 1), ("v", 2)])
    measurement = linear.meeting(question, np.full(len(coefficients), 7e4))
    booked = rho_of(linear.cost(question, measurement, rows_per_unit=1).highest)
    assert booked >= brute_force(question, measurement, rows_per_unit=1)


@given(
    workloads(),
    st.sampled_from([Fraction(1, 10**9), Fraction(1, 1000), Fraction(1, 3), Fraction(50)]),
    st.integers(1, 40),
)
def test_spending_stays_within_rho_and_uses_nearly_all_of_it(W: list[list[int]], rho: Fraction, k: int) -> None:
    question = counts(W)
    if not any(any(row) for row in W):
        return
    measurement, variances = linear.spending(question, np.ones(len(W)), rho=rho, rows_per_unit=k)
    asked = rho_of(linear.cost(question, measurement, rows_per_unit=k).highest)
    assert asked <= rho
    assert asked >= rho * Fraction(99, 100)
    assert np.allclose(linear.known(question, [measurement]).variances, variances)


def test_spending_a_little_on_units_of_many_rows_is_possible() -> None:
    """The first try would cost more than can be booked."""
    measurement, _ = linear.spending(counts([[1]]), np.array([1e-6]), rho=Fraction(1, 1000), rows_per_unit=10**6)
    assert rho_of(linear.cost(counts([[1]]), measurement, rows_per_unit=10**6).highest) <= Fraction(1, 1000)


@pytest.mark.parametrize("matches", [1, 2, 3, 64])
def test_a_cost_beyond_all_accounts_is_refused_and_never_wraps(matches: int) -> None:
    """Costs are 64-bit integers in the ledger: 2^62 units times the matches of a public join once became 0."""
    repeated = matched(counts([[1]]), matches)
    for power in range(30, 80):
        measurement = Measurement(np.array([[2 ** (power // 2)]], dtype=object), 0)
        true = Fraction(matches**2 * 4 ** (power // 2), 2)
        try:
            assert rho_of(linear.cost(repeated, measurement, rows_per_unit=1).highest) >= true
        except TooLarge:
            assert true * 2**50 > linear.MAX_UNITS


def test_several_matches_in_one_group_pay_for_the_square_of_their_sum() -> None:
    question = counts([[1]])
    measurement = linear.meeting(question, np.array([1.0]))
    once = linear.cost(question, measurement, rows_per_unit=1).highest
    for matches in (2, 5):
        repeated = matched(question, matches)
        assert linear.cost(repeated, measurement, rows_per_unit=1).highest == once * matches**2
        apart = dataclasses.replace(repeated, group=np.arange(matches), groups=matches)
        assert linear.cost(apart, measurement, rows_per_unit=1).highest == once * matches


def test_what_is_zero_everywhere_is_known_without_a_measurement() -> None:
    question = counts([[0, 0]])
    assert len(linear.meeting(question, np.ones(1)).K) == 0
    assert linear.known(question, []).variances.tolist() == [0.0]


def test_accuracy_beyond_the_grid_is_refused() -> None:
    with pytest.raises(TooLarge):
        linear.cost(counts([[1]]), linear.meeting(counts([[1]]), np.array([1e-12])), rows_per_unit=1)


# --- digests -----------------------------------------------------------------------------------------------


def with_domain(**changes: Any) -> Table:
    return dataclasses.replace(
        TABLE, columns={**TABLE.columns, "v": Column("v", dataclasses.replace(VALUES, **changes))}
    )


BASE = {"E": [[[1, 2]], [[3, 4]]], "features": [("v", 1)]}


@pytest.mark.parametrize(
    "changes",
    [
        {"E": [[[1, 2]], [[3, 5]]]},
        {"E": [[[3, 4]], [[1, 2]]]},
        {"E": [[[1, 2]], [[3, 4]], [[0, 0]]]},
        {"E": [[[1, 2], [1, 2]], [[3, 4], [3, 4]]]},
        {"features": [("g", 1)]},
        {"features": [("v", 2)]},
        {"units": [1.0, 0.5]},
        {"groups": 2},
        {"atoms": [0, 0, 0, 0, 0, 0], "E": [[[1, 2], [1, 2]], [[3, 4], [3, 4]]]},
        {"table": dataclasses.replace(TABLE, name="others")},
        {"table": with_domain(high=10)},
        {"table": with_domain(low=-1)},
        {"table": with_domain(nullable=True)},
        {"table": with_domain(type="float")},
    ],
)
def test_the_digest_changes_with_the_meaning(changes: dict[str, Any]) -> None:
    assert make(**{**BASE, **changes}).digest != make(**BASE).digest  # type: ignore[arg-type]


def test_equal_questions_have_equal_digests() -> None:
    assert make(**BASE).digest == make(**BASE).digest  # type: ignore[arg-type]


def test_the_key_of_a_measurement_changes_with_its_noise_its_rows_and_its_question() -> None:
    question, K = counts(PREFIX), np.eye(4, dtype=int).astype(object)
    keys = {
        Measurement(K, 3).digest(question),
        Measurement(K, 4).digest(question),
        Measurement(2 * K, 3).digest(question),
        Measurement(K[:3], 3).digest(question),
        Measurement(K, 3).digest(counts([*PREFIX[:3], [2, 1, 1, 1]])),
    }
    assert len(keys) == 5


# --- corners -----------------------------------------------------------------------------------------------


@given(st.integers(-5, 50), st.integers(0, 60), st.integers(0, 100))
def test_every_record_lies_in_the_hull_of_the_corners(low: int, width: int, percent: int) -> None:
    """u = lo + t (hi - lo): (u, u^2) is the Bernstein combination of the three points."""
    high, t = low + width, Fraction(percent, 100)
    doubled, _ = linear.corners([("v", 1), ("v", 2)], np.array([[low, low]]), np.array([[high, high]]))
    ends, middle = doubled[:2], doubled[2]
    weights = [(1 - t) ** 2, t**2, 2 * t * (1 - t)]
    mixed = [sum(w * Fraction(int(p[i]), 2) for w, p in zip(weights, [*ends, middle], strict=True)) for i in range(3)]
    u = low + t * width
    assert mixed == [1, u, u * u]


def test_corners_of_several_columns_are_all_combinations() -> None:
    features = [("a", 1), ("b", 1), ("b", 2)]
    doubled, row = linear.corners(features, np.array([[1, 2, 2]]), np.array([[3, 5, 5]]))
    assert len(doubled) == 2 * 3
    assert set(row.tolist()) == {0}
    assert {int(p[1]) for p in doubled} == {2, 6}


def test_too_many_measured_columns_are_refused() -> None:
    features = [(f"c{i}", 1) for i in range(linear.MAX_MEASURES + 1)]
    with pytest.raises(TooLarge):
        linear.corners(features, np.zeros((1, 13), dtype=np.int64), np.ones((1, 13), dtype=np.int64))


def test_rows_are_integers_of_python() -> None:
    rows: Integers = Measurement(np.array([[3, -1]], dtype=object), 0).rows(make(BASE["E"], features=[("v", 1)]))
    assert rows.tolist() == [[[0, 2]]]
