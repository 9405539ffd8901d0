"""Each statistical test here is wrong about a correct sampler with probability below 1e-6.

The p-value asked for is 1e-7, which leaves a factor of ten for the chi-square approximation; every cell
expects at least 100 draws. Each comes with a planted error that it must see, and where the error is small
the power is computed: the chance to miss it is below 1e-6, too.
"""

import os
import threading
from fractions import Fraction

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, laplace, ncx2, norm

from mechanisms.noise import sampling

FALSE_ALARM = 1e-7


def gaussian_cells(bits: int, scale: float = 1.0, *, reach: float = 2.8) -> tuple[np.ndarray, np.ndarray]:
    """Return integer boundaries c, a fifth of a deviation apart up to `reach`, and the chances of the cells.

    P(round(N(0, (scale 2^bits)^2)) < c) = Phi((c - 1/2) / (scale 2^bits)).
    """
    bounds = np.unique(np.ceil(np.arange(-reach, reach + 0.1, 0.2) * 2.0**bits).astype(np.int64))
    below = norm.cdf((bounds - 0.5) / (scale * 2.0**bits))
    return bounds, np.diff(below, prepend=0.0, append=1.0)


def counts(draws: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    return np.bincount(np.searchsorted(bounds, draws, side="right"), minlength=len(bounds) + 1)


def fits(observed: np.ndarray, chances: np.ndarray) -> bool:
    """Pearson's chi-square test."""
    expected = observed.sum() * chances
    assert expected.min() >= 100
    return bool(((observed - expected) ** 2 / expected).sum() <= chi2.isf(FALSE_ALARM, len(chances) - 1))


def chance_to_miss(size: int, *, truth: np.ndarray, claim: np.ndarray) -> float:
    """Return the chance that `size` draws from `truth` pass the test for `claim`."""
    degrees = len(claim) - 1
    return float(ncx2.cdf(chi2.isf(FALSE_ALARM, degrees), degrees, size * ((truth - claim) ** 2 / claim).sum()))


# The Gaussian


@pytest.mark.parametrize("bits", [0, 1, 5, 20, 58])
def test_rounded_gaussian_fits_its_distribution_and_one_percent_of_scale_does_not(bits: int) -> None:
    size = 3_000_000
    draws = sampling.rounded_gaussian(size, bits=bits)
    bounds, chances = gaussian_cells(bits)
    assert draws.dtype == np.int64
    assert draws.shape == (size,)
    assert fits(counts(draws, bounds), chances)

    real = sampling.rounded_gaussian(size, bits=50) * 2.0 ** (bits - 50)
    for scale in (0.99, 1.01):
        assert chance_to_miss(size, truth=gaussian_cells(bits, scale)[1], claim=chances) < 1e-6
        assert not fits(counts(np.rint(scale * real), bounds), chances)


def test_low_digits_of_wide_draws_are_uniform() -> None:
    draws = sampling.rounded_gaussian(500_000, bits=58)
    uniform = np.full(256, 1 / 256)
    for shift in (0, 8, 16, 32, 44):
        assert fits(np.bincount((draws >> shift) & 255, minlength=256), uniform)
    assert not fits(np.bincount((draws & ~1) & 255, minlength=256), uniform)


def test_neighbouring_draws_are_independent() -> None:
    draws = np.clip(sampling.rounded_gaussian(1_000_000, bits=0), -2, 2) + 2
    single = np.diff(norm.cdf([-1.5, -0.5, 0.5, 1.5]), prepend=0.0, append=1.0)
    pairs = np.outer(single, single).ravel()
    for lag in (1, 2, 7):
        blocks = np.arange(0, len(draws) - 2 * lag, 2 * lag)  # pairs that do not overlap
        first = (blocks[:, None] + np.arange(lag)).ravel()
        left, right = draws[first], draws[first + lag]
        assert fits(np.bincount(5 * left + right, minlength=25), pairs)
        repeated = np.where(np.arange(len(first)) % 50 == 0, left, right)
        assert not fits(np.bincount(5 * left + repeated, minlength=25), pairs)


@pytest.mark.slow
def test_rounded_gaussian_agrees_with_opendp_and_one_percent_of_scale_does_not() -> None:
    """OpenDP draws the discrete Gaussian; at a deviation of 2^20 it and the rounded one differ by 1e-13."""
    dp.enable_features("contrib")
    theirs_size, ours_size = 600_000, 4_000_000
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*space, scale=2.0**20)([0] * theirs_size), dtype=np.float64)
    ours = sampling.rounded_gaussian(ours_size, bits=20).astype(np.float64)

    def z_of_variances(left: np.ndarray, right: np.ndarray) -> float:
        # The logarithm of a variance of n Gaussians has variance 2 / n.
        return float(abs(np.log((left**2).mean() / (right**2).mean())) / np.sqrt(2 / len(left) + 2 / len(right)))

    limit = norm.isf(FALSE_ALARM / 2)
    shift = 2 * np.log(1.01) / np.sqrt(2 / theirs_size + 2 / ours_size)
    assert norm.cdf(limit - shift) < 1e-6
    assert z_of_variances(theirs, ours) <= limit
    assert z_of_variances(1.01 * theirs, ours) > limit
    assert z_of_variances(theirs, 1.01 * ours) > limit
    bounds, chances = gaussian_cells(20)
    assert fits(counts(theirs, bounds), chances)


@pytest.mark.parametrize("first_precision", [2, 128])
def test_undecided_lanes_follow_the_same_distribution(monkeypatch: pytest.MonkeyPatch, first_precision: int) -> None:
    """All lanes are declared undecided; from 2 digits on, most of them need several rounds of refinement."""
    monkeypatch.setattr(sampling, "_MARGIN", 1.0)
    monkeypatch.setattr(sampling, "_FIRST_PRECISION", first_precision)
    bounds, chances = gaussian_cells(1, reach=2.0)
    assert fits(counts(sampling.rounded_gaussian(10_000, bits=1), bounds), chances)

    exactly = sampling._propose_exactly
    monkeypatch.setattr(sampling, "_propose_exactly", lambda *uniforms: (exactly(*uniforms)[0], True))
    assert not fits(counts(sampling.rounded_gaussian(10_000, bits=1), bounds), chances)


def test_exact_proposals_from_no_digits_follow_the_same_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here all digits, those that round the draw too, are drawn on demand."""
    monkeypatch.setattr(sampling, "_FIRST_PRECISION", 1)
    stream = sampling._Stream()
    draws = []
    while len(draws) < 10_000:
        x = sampling._Uniform(stream)
        level, accepted = sampling._propose_exactly(sampling._Uniform(stream), x, sampling._Uniform(stream))
        if accepted:
            draws.append((-1) ** stream.bits(1) * ((level << 5) + (x.prefix(6) + 1 >> 1)))
    bounds, chances = gaussian_cells(5, reach=2.0)
    assert fits(counts(np.array(draws), bounds), chances)


def test_fast_decisions_equal_exact_ones() -> None:
    stream = sampling._Stream()
    digits, x, v = stream.words(3 * 3_000).reshape(3, -1)
    digits = digits >> np.uint64(1)
    digits[:1000] |= np.uint64(0x7FFF << 48)  # levels of 3 and more
    level = sampling._levels(digits)
    accept = sampling._acceptance(level, x) > sampling._unit(v)
    exact = [
        sampling._propose_exactly(
            sampling._Uniform(stream, int(a), 63),
            sampling._Uniform(stream, int(b), 64),
            sampling._Uniform(stream, int(c), 64),
        )
        for a, b, c in zip(digits, x, v, strict=True)
    ]
    assert list(zip(level.tolist(), accept.tolist(), strict=True)) == exact
    assert level.max() >= 4


def test_acceptance_is_far_closer_than_the_margin() -> None:
    words = sampling._Stream().words(2_000)
    levels = (words % np.uint64(11)).astype(np.uint8)
    x = sampling._Stream().words(2_000)
    with mpmath.workdps(40):
        for fast, level, digits in zip(sampling._acceptance(levels, x), levels.tolist(), x.tolist(), strict=True):
            exact = mpmath.mpf(digits) / 2**64
            assert abs(mpmath.exp(-exact * (2 * level + exact) / 2) - fast) < sampling._MARGIN / 16


def test_edges_are_the_leading_digits_of_the_chances_of_levels() -> None:
    with mpmath.workdps(80):
        weights = [mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(40)]
        edges = [int(mpmath.floor(sum(weights[:j]) / sum(weights) * 2**63)) for j in range(11)]
    assert sampling._EDGES.tolist() == edges
    assert edges[-1] == 2**63 - 1


def test_digits_on_an_edge_are_settled_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    settled = []
    exactly = sampling._propose_exactly

    def spy(level: sampling._Uniform, x: sampling._Uniform, v: sampling._Uniform) -> tuple[int, bool]:
        settled.append(exactly(level, x, v))
        return settled[-1]

    class Planted(sampling._Stream):
        def words(self, count: int) -> np.ndarray:
            words = super().words(count).copy()
            words[:11] = sampling._EDGES << np.uint64(1)  # edge j lies between levels j - 1 and j
            return words

    monkeypatch.setattr(sampling, "_propose_exactly", spy)
    sampling._accepted(Planted(), 50, 3)
    assert len(settled) == 11
    assert all(level in (max(j - 1, 0), j) for j, (level, _) in enumerate(settled[:10]))
    assert settled[10][0] >= 9


def test_draws_that_do_not_fit_64_bits_become_python_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_MARGIN", 1.0)
    monkeypatch.setattr(sampling, "_propose_exactly", lambda *_: (1000, True))
    draws = sampling.rounded_gaussian(100, bits=58)
    assert draws.dtype == np.object_
    assert all(1000 << 58 <= abs(draw) <= 1001 << 58 for draw in draws)
    assert {draw > 0 for draw in draws} == {True, False}


@pytest.mark.parametrize("size", [0, 1, 2, 33, 5_000])
def test_as_many_draws_come_as_were_asked_for(size: int) -> None:
    assert sampling.rounded_gaussian(size, bits=3).shape == (size,)


def test_impossible_sizes_and_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="size must not be negative, got -1"):
        sampling.rounded_gaussian(-1, bits=0)
    for bits in (-1, 59):
        with pytest.raises(ValueError, match="bits must be between 0 and 58"):
            sampling.rounded_gaussian(1, bits=bits)


# The choice


def exact_chances(exponents: list[int], rate: Fraction) -> np.ndarray:
    with mpmath.workdps(60):
        base = min(exponents)
        weights = [mpmath.exp(-mpmath.mpf(rate.numerator) * (e - base) / rate.denominator) for e in exponents]
        return np.array([float(weight / sum(weights)) for weight in weights])


CHOICES = [
    ([7, 5, 6, 5, 8, 9, 11], Fraction(1, 3)),
    ([10**15 + 2, 10**15, 10**15 + 1, 10**15], Fraction(7, 10)),
    ([3, 9, 4], Fraction(0)),
    ([2, 1], Fraction(1)),
]


@pytest.mark.parametrize(("exponents", "rate"), CHOICES)
@pytest.mark.parametrize("margin", [sampling._CHOICE_MARGIN, 1.0], ids=["fast", "fallback"])
def test_choice_fits_its_distribution(
    monkeypatch: pytest.MonkeyPatch, margin: float, exponents: list[int], rate: Fraction
) -> None:
    """With a margin of 1 every choice goes through the fallback, from 4 digits on."""
    monkeypatch.setattr(sampling, "_CHOICE_MARGIN", margin)
    monkeypatch.setattr(sampling, "_FIRST_PRECISION", 4 if margin == 1.0 else 128)
    chances = exact_chances(exponents, rate)
    vector = np.array(exponents)
    size = 3_000
    observed = np.bincount(
        [sampling.exponential_choice(vector, rate=rate) for _ in range(size)], minlength=len(chances)
    )
    assert fits(observed, chances)

    wrong = exact_chances(exponents, rate * Fraction(3, 2) + Fraction(1, 5))
    assert chance_to_miss(size, truth=wrong, claim=chances) < 1e-6
    planted = [sampling.exponential_choice(vector, rate=rate * Fraction(3, 2) + Fraction(1, 5)) for _ in range(size)]
    assert not fits(np.bincount(planted, minlength=len(chances)), chances)


@given(
    st.lists(st.integers(0, 40) | st.integers(0, 2**63 - 1), min_size=1, max_size=30),
    st.fractions(0, 3) | st.sampled_from([Fraction(1, 10**400), Fraction(10**400), Fraction(1, 2**60)]),
    st.integers(0, 2**64 - 1),
    st.integers(1, 6),
)
def test_fast_choice_of_a_group_equals_the_exact_one(
    exponents: list[int], rate: Fraction, digits: int, width: int
) -> None:
    vector = np.array(exponents, np.int64)
    stream = sampling._Stream()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "bits", lambda count: digits if count == 64 else 1 << count - 1)
        fast = sampling._choose_group(vector, width, rate, stream)
        patch.setattr(sampling, "_CHOICE_MARGIN", 1.0)
        assert sampling._choose_group(vector, width, rate, stream) == fast


@given(st.lists(st.integers(0, 1000), min_size=2, max_size=60), st.fractions(0, 2), st.integers(1, 8))
def test_float_shares_are_far_closer_than_their_bound(exponents: list[int], rate: Fraction, width: int) -> None:
    gaps = np.array(exponents, np.int64) - min(exponents)
    shares, bound = sampling._shares(gaps, width, rate)
    with mpmath.workdps(60):
        weights = [mpmath.exp(-mpmath.mpf(rate.numerator) * int(gap) / rate.denominator) for gap in gaps]
        for group, share in enumerate(shares, 1):
            assert abs(sum(weights[: group * width]) / sum(weights) - mpmath.mpf(float(share))) < bound / 4


def test_huge_exponents_and_rates_neither_overflow_nor_warn() -> None:
    largest = np.iinfo(np.int64).max
    assert sampling.exponential_choice(np.array([largest, 0, largest]), rate=Fraction(10**400)) == 1
    assert sampling.exponential_choice(np.array([10**15, 10**15 - 10**6]), rate=Fraction(1)) == 1
    assert sampling.exponential_choice(np.array([largest]), rate=Fraction(10)) == 0
    assert sampling.exponential_choice(np.array([largest, largest - 1]), rate=Fraction(1, 10**400)) in (0, 1)


def test_choice_among_a_million_values_finds_the_only_light_one() -> None:
    exponents = np.full(10**6, 10**6)
    exponents[765_432] = 0
    assert sampling.exponential_choice(exponents, rate=Fraction(1)) == 765_432


def test_impossible_exponents_and_rates_are_refused() -> None:
    for exponents in (np.array([], np.int64), np.zeros((2, 2), np.int64), np.array([1.5])):
        with pytest.raises(ValueError, match="exponents must be a non-empty int64 vector"):
            sampling.exponential_choice(exponents, rate=Fraction(1))
    with pytest.raises(ValueError, match="exponents must not be negative"):
        sampling.exponential_choice(np.array([-1]), rate=Fraction(1))
    with pytest.raises(ValueError, match="rate must not be negative"):
        sampling.exponential_choice(np.array([1]), rate=Fraction(-1))


@given(st.fractions(0, 300), st.integers(1, 300))
def test_integers_enclose_the_exponential_tightly(exponent: Fraction, precision: int) -> None:
    low, high = sampling._exp_enclosure(exponent, precision)
    with mpmath.workprec(1200):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * 2**precision
        assert low <= exact <= high
    assert high - low <= 2


@given(st.fractions(0, 30), st.integers(1, 60), st.integers(0, 3))
def test_integers_enclose_the_exponential_with_few_guard_digits_too(
    exponent: Fraction, precision: int, guard: int
) -> None:
    """Here the error bounds matter: with 64 guard digits a wrong one would hardly ever show."""
    with pytest.MonkeyPatch.context() as patch, mpmath.workprec(400):
        patch.setattr(sampling, "_GUARD_DIGITS", guard)
        low, high = sampling._exp_enclosure(exponent, precision)
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * 2**precision
        assert low <= exact <= high


@pytest.mark.parametrize("precision", [1, 2, 3, 7, 31, 128])
def test_level_weights_are_enclosed_with_all_that_follow(precision: int) -> None:
    with mpmath.workprec(500):
        *weights, rest = sampling._level_weights(precision)
        exact = [mpmath.exp(-mpmath.mpf(k * k) / 2) * 2**precision for k in range(len(weights) + 40)]
        for (low, high), weight in zip(weights, exact, strict=False):
            assert low <= weight <= high
        assert rest[0] < sum(exact[len(weights) :]) < rest[1]


# Bits


def test_stream_is_aes_256_in_counter_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    assert sampling._Stream().bits(128) == 0xDC95C078A2408989AD48A21492842087


@given(st.lists(st.integers(0, 200), min_size=1))
def test_longer_prefixes_continue_shorter_ones(lengths: list[int]) -> None:
    uniform = sampling._Uniform(sampling._Stream(), 0b101, 3)
    prefixes = [(length, uniform.prefix(length)) for length in lengths]
    whole = uniform.prefix(200)
    assert all(prefix == whole >> (200 - length) for length, prefix in prefixes)
    assert whole >> 197 == 0b101


def test_every_call_and_every_gibibyte_take_a_new_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    monkeypatch.setattr(os, "urandom", lambda size: keys.append(size) or bytes([len(keys)]) * size)
    sampling.rounded_gaussian(10, bits=1)
    sampling.exponential_choice(np.array([1, 2]), rate=Fraction(1))
    assert keys == [32, 32]
    stream = sampling._Stream()
    stream._left = 8
    first, second = stream.words(1), stream.words(1)
    assert keys == [32] * 4
    assert first != second


def read_in_child(stream: sampling._Stream, *, pretend_same_process: bool) -> bytes:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        if pretend_same_process:
            stream._pid = os.getpid()
        os.write(writing, stream.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read()


def test_parent_and_forked_child_draw_different_bits() -> None:
    stream = sampling._Stream()
    child = read_in_child(stream, pretend_same_process=False)
    unguarded = read_in_child(stream, pretend_same_process=True)
    parent = stream.words(4).tobytes()
    assert len(child) == len(parent) == 32
    assert child != parent
    assert unguarded == parent  # so the comparison would see a child that keeps its parent's key


def test_threads_draw_different_noise() -> None:
    draws: list[tuple[int, ...]] = []
    threads = [
        threading.Thread(target=lambda: draws.append(tuple(sampling.rounded_gaussian(5, bits=50)))) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(draws)) == 20


# The Laplace distribution


def laplace_cells(bits: int, scale: float = 1.0, *, reach: float = 4.0) -> tuple[np.ndarray, np.ndarray]:
    """Return integer boundaries up to `reach` scales, and the chances of the cells.

    P(round(Lap(scale 2^bits)) < c) is the Laplace distribution's at c - 1/2.
    """
    steps = np.unique(np.ceil(np.arange(-reach, reach + 0.1, 0.25) * 2.0 ** min(bits, 52)).astype(np.int64))
    bounds = np.array([int(step) << max(0, bits - 52) for step in steps], np.int64 if bits <= 56 else np.object_)
    below = laplace.cdf((bounds.astype(np.float64) - 0.5) / (scale * 2.0**bits))
    return bounds, np.diff(below, prepend=0.0, append=1.0)


@pytest.mark.parametrize("bits", [0, 1, 5, 20, 56, 57, 90])
def test_rounded_laplace_fits_its_distribution_and_a_few_percent_of_scale_do_not(bits: int) -> None:
    """With small integers 2 % too much or too little is seen, with long ones, whose draws are slow, 10 %."""
    size, error = (1_000_000, 0.02) if bits <= 56 else (60_000, 0.1)
    draws = sampling.rounded_laplace(size, bits=bits)
    bounds, chances = laplace_cells(bits)
    assert draws.dtype == (np.int64 if bits <= 56 else np.object_)
    assert draws.shape == (size,)
    assert fits(counts(draws, bounds), chances)
    for scale in (1 - error, 1 + error):
        assert chance_to_miss(size, truth=laplace_cells(bits, scale)[1], claim=chances) < 1e-6


@pytest.mark.parametrize("bits", [56, 60, 90])
def test_low_digits_of_wide_laplace_draws_are_uniform(bits: int) -> None:
    draws = sampling.rounded_laplace(60_000, bits=bits)
    for shift in (0, bits - 54, bits - 12):
        assert fits(np.bincount(((draws >> shift) & 63).astype(np.int64), minlength=64), np.full(64, 1 / 64))


@pytest.mark.parametrize(("bits", "first_precision"), [(1, 2), (1, 128), (60, 128)])
def test_undecided_laplace_lanes_follow_the_same_distribution(
    monkeypatch: pytest.MonkeyPatch, bits: int, first_precision: int
) -> None:
    monkeypatch.setattr(sampling, "_MARGIN", 1.0)
    monkeypatch.setattr(sampling, "_FIRST_PRECISION", first_precision)
    bounds, chances = laplace_cells(bits, reach=2.0)
    assert fits(counts(sampling.rounded_laplace(6000, bits=bits), bounds), chances)

    monkeypatch.setattr(sampling, "_decay", lambda *_: True)
    assert not fits(counts(sampling.rounded_laplace(6000, bits=bits), bounds), chances)


def test_laplace_levels_that_no_edge_decides_are_located_exactly() -> None:
    last = int(sampling._LAPLACE_EDGES[-1])
    assert len(sampling._LAPLACE_EDGES) == 45
    stream = sampling._Stream()
    levels = [sampling._locate(sampling._Uniform(stream, last, 63), sampling._laplace_level_weights) for _ in range(20)]
    assert min(levels) >= 43


# Coins


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("log_odds", [Fraction(0), Fraction(1, 3), Fraction(-2), Fraction(7, 2)])
def test_logistic_coins_fall_as_often_as_they_should(
    monkeypatch: pytest.MonkeyPatch, log_odds: Fraction, exact: bool
) -> None:
    size = 10_000 if exact else 1_000_000
    if exact:
        monkeypatch.setattr(sampling, "_MARGIN", 1.0)
    chance = 1 / (1 + np.exp(-float(log_odds)))
    heads = int(sampling.logistic(size, log_odds=log_odds).sum())
    observed = np.array([heads, size - heads])
    assert fits(observed, np.array([chance, 1 - chance]))
    other = 1 / (1 + np.exp(-float(log_odds) - (1.0 if exact else 0.1)))
    assert chance_to_miss(size, truth=np.array([other, 1 - other]), claim=np.array([chance, 1 - chance])) < 1e-6


def test_logistic_coins_with_huge_odds_are_certain() -> None:
    assert sampling.logistic(100, log_odds=Fraction(10**40)).all()
    assert not sampling.logistic(100, log_odds=-Fraction(10**40)).any()


def test_sizes_and_bits_of_laplace_draws_are_checked() -> None:
    with pytest.raises(ValueError, match="size must not be negative"):
        sampling.rounded_laplace(-1, bits=3)
    with pytest.raises(ValueError, match="bits must not be negative"):
        sampling.rounded_laplace(1, bits=-3)
    with pytest.raises(ValueError, match="size must not be negative"):
        sampling.logistic(-1, log_odds=Fraction(0))
