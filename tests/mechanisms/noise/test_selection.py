import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.noise import sampling, selection

quantiles = st.sampled_from(
    [Fraction(0), Fraction(1, 20), Fraction(1, 3), Fraction(1, 2), Fraction(9, 10), Fraction(1)]
)
offsets = st.sampled_from([Fraction(0), Fraction(1, 2), Fraction(-7, 3), Fraction(40)])
epsilons = st.sampled_from([Fraction(1, 100), Fraction(1), Fraction(7, 2), Fraction(20)])
histograms = st.lists(st.integers(0, 6), min_size=1, max_size=8)


@pytest.fixture(autouse=True)
def many_digits() -> Iterator[None]:
    with mpmath.workdps(60):
        yield


def asked(histogram: list[int], **options: object) -> tuple[list[int], Fraction]:
    """Return the exponents and the rate that `quantile` hands to the sampler."""
    calls = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "exponential_choice", lambda exponents, *, rate: calls.append((exponents, rate)) or 0)
        selection.quantile(np.array(histogram, np.int64), **options)
    [(exponents, rate)] = calls
    return exponents.tolist(), rate


def log_chances(histogram: list[int], **options: object) -> list[mpmath.mpf]:
    """Return the logarithm of the exact probability of each output."""
    exponents, rate = asked(histogram, **options)
    weights = [-mpmath.mpf(rate.numerator) * exponent / rate.denominator for exponent in exponents]
    largest = max(weights)
    total = largest + mpmath.log(sum(mpmath.exp(weight - largest) for weight in weights))
    return [weight - total for weight in weights]


def distances_by_definition(histogram: list[int], p: Fraction, offset: Fraction) -> list[Fraction]:
    aim = p * sum(histogram) + offset
    return [max(Fraction(0), sum(histogram[:e]) - aim, aim - sum(histogram[: e + 1])) for e in range(len(histogram))]


@given(histograms, quantiles, epsilons, offsets, st.integers(1, 3))
def test_weights_are_those_of_the_definition(
    histogram: list[int], p: Fraction, epsilon: Fraction, offset: Fraction, rows: int
) -> None:
    exponents, rate = asked(histogram, p=p, epsilon=epsilon, offset=offset, rows=rows)
    expected = [
        epsilon * distance / (2 * rows * max(p, 1 - p)) for distance in distances_by_definition(histogram, p, offset)
    ]
    assert [rate * exponent for exponent in exponents] == expected


def test_median_of_three_values_has_its_closed_form() -> None:
    """4 rows on values 0, 1, 1, 2: the aimed rank 2 is inside value 1; the others are 1 rank away."""
    chances = [mpmath.exp(chance) for chance in log_chances([1, 2, 1], p=Fraction(1, 2), epsilon=Fraction(2))]
    outer = mpmath.exp(-2)
    assert chances == pytest.approx([outer / (1 + 2 * outer), 1 / (1 + 2 * outer), outer / (1 + 2 * outer)], rel=1e-30)


def test_extreme_quantiles_aim_at_the_ends() -> None:
    assert asked([0, 3, 2, 0], p=Fraction(0), epsilon=Fraction(1))[0] == [0, 0, 3, 5]
    assert asked([0, 3, 2, 0], p=Fraction(1), epsilon=Fraction(1))[0] == [5, 2, 0, 0]


def test_offset_shifts_the_aimed_rank() -> None:
    assert asked([1] * 5, p=Fraction(1, 2), epsilon=Fraction(1), offset=Fraction(1, 2))[0] == [4, 2, 0, 0, 2]
    assert asked([1] * 5, p=Fraction(1, 2), epsilon=Fraction(1))[0] == [3, 1, 0, 1, 3]


@given(st.integers(1, 9), quantiles, offsets)
def test_an_empty_histogram_gives_a_uniform_choice(size: int, p: Fraction, offset: Fraction) -> None:
    exponents, _ = asked([0] * size, p=p, epsilon=Fraction(1), offset=offset)
    assert len(set(exponents)) == 1


@given(histograms, st.data(), quantiles, epsilons, offsets, st.integers(1, 3))
def test_log_ratios_between_neighbours_stay_within_a_range_of_epsilon(
    histogram: list[int], data: st.DataObject, p: Fraction, epsilon: Fraction, offset: Fraction, rows: int
) -> None:
    """One unit adds up to `rows` rows, wherever; its removal is the same with the signs changed."""
    added = data.draw(st.lists(st.integers(0, len(histogram) - 1), min_size=1, max_size=rows))
    neighbour = [count + added.count(e) for e, count in enumerate(histogram)]
    options = {"p": p, "epsilon": epsilon, "offset": offset, "rows": rows}
    here, there = log_chances(histogram, **options), log_chances(neighbour, **options)
    ratios = [left - right for left, right in zip(here, there, strict=True)]
    slack = mpmath.mpf(10) ** -40
    assert max(abs(ratio) for ratio in ratios) <= mpmath.mpf(epsilon) + slack
    assert max(ratios) - min(ratios) <= mpmath.mpf(epsilon) + slack


def test_the_range_of_epsilon_is_attained_and_one_percent_less_sensitivity_would_exceed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted error of the test above: the smallest understatement of the sensitivity shows."""

    def width() -> mpmath.mpf:
        options = {"p": Fraction(1, 2), "epsilon": Fraction(1)}
        here, there = log_chances([5, 1, 1, 5], **options), log_chances([5, 1, 1, 6], **options)
        ratios = [left - right for left, right in zip(here, there, strict=True)]
        return max(ratios) - min(ratios)

    assert width() == pytest.approx(1, rel=1e-15)
    honest = selection.sensitivity
    monkeypatch.setattr(selection, "sensitivity", lambda p, *, rows: honest(p, rows=rows) * Fraction(99, 100))
    assert width() > 1.01


@given(
    histograms,
    st.sampled_from([Fraction(1, 4), Fraction(1, 2), Fraction(1)]),
    st.integers(1, 3),
    st.floats(0.001, 0.9),
)
def test_rank_error_bounds_the_chance_of_a_larger_distance(
    histogram: list[int], p: Fraction, rows: int, alpha: float
) -> None:
    epsilon = Fraction(3)
    bound = selection.rank_error(len(histogram), p=p, epsilon=epsilon, rows=rows, alpha=alpha)
    distances = distances_by_definition(histogram, p, Fraction(0))
    chances = log_chances(histogram, p=p, epsilon=epsilon, rows=rows)
    assert sum(mpmath.exp(c) for c, d in zip(chances, distances, strict=True) if d > bound) <= alpha


def test_rank_error_has_its_closed_form() -> None:
    error = selection.rank_error(100, p=Fraction(3, 4), epsilon=Fraction(1, 2), rows=2, alpha=0.05)
    assert error == pytest.approx(2 * 2 * 0.75 * math.log(2000) / 0.5, rel=1e-12)


@given(st.integers(1, 10**6), quantiles, st.floats(1e-3, 1e9), st.integers(1, 1000), st.floats(1e-9, 0.999))
def test_epsilon_for_rank_error_meets_its_target_and_is_short(
    size: int, p: Fraction, error: float, rows: int, alpha: float
) -> None:
    epsilon = selection.epsilon_for_rank_error(size, p=p, error=error, rows=rows, alpha=alpha)
    reached = selection.rank_error(size, p=p, epsilon=epsilon, rows=rows, alpha=alpha)
    assert 0.999 * error <= reached <= error
    assert epsilon.denominator & (epsilon.denominator - 1) == 0
    odd = epsilon.numerator // (epsilon.numerator & -epsilon.numerator)
    assert odd <= 2**12


def test_a_median_is_drawn() -> None:
    histogram = np.array([0, 100, 1, 100, 0])
    assert selection.quantile(histogram, p=Fraction(1, 2), epsilon=Fraction(50)) in (1, 2, 3)


def test_a_trillion_rows_fit() -> None:
    exponents, _ = asked([2**39, 0, 2**39], p=Fraction(2**20 - 1, 2**20), epsilon=Fraction(1), offset=2**40)
    assert exponents == [2**20 * (2**40 + 2**39 - 2**20)] * 2 + [2**20 * (2**40 - 2**20)]


def test_impossible_arguments_are_refused_without_telling_counts() -> None:
    half, one = Fraction(1, 2), Fraction(1)
    good = np.array([1, 2])
    for histogram in (np.array([], np.int64), np.zeros((2, 2), np.int64), np.array([1.0])):
        with pytest.raises(ValueError, match="histogram must be a non-empty int64 vector"):
            selection.quantile(histogram, p=half, epsilon=one)
    for counts in ([-777, 2], [2**62, 2**62]):
        with pytest.raises(ValueError, match=r"^histogram must hold non-negative counts of at most 2\^40 rows$"):
            selection.quantile(np.array(counts), p=half, epsilon=one)
    for p in (Fraction(-1, 2), Fraction(3, 2)):
        with pytest.raises(ValueError, match="p must be between 0 and 1"):
            selection.quantile(good, p=p, epsilon=one)
    for p, offset in ((Fraction(1, 2**21), 0), (half, Fraction(1, 3**13)), (half, 2**41)):
        with pytest.raises(ValueError, match="p and offset"):
            selection.quantile(good, p=p, epsilon=one, offset=offset)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        selection.quantile(good, p=half, epsilon=Fraction(0))
    with pytest.raises(ValueError, match="rows must be at least 1"):
        selection.quantile(good, p=half, epsilon=one, rows=0)
    with pytest.raises(ValueError, match="alpha must be between 0 and 1"):
        selection.rank_error(2, p=half, epsilon=one, alpha=1.0)
    with pytest.raises(ValueError, match="size must be at least 1"):
        selection.rank_error(0, p=half, epsilon=one, alpha=0.5)
    with pytest.raises(ValueError, match="epsilon must be positive"):
        selection.rank_error(2, p=half, epsilon=Fraction(0), alpha=0.5)
    with pytest.raises(ValueError, match="error must be positive and finite"):
        selection.epsilon_for_rank_error(2, p=half, error=0.0, alpha=0.5)
