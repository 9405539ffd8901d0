import math
from fractions import Fraction

import dp_accounting
import mpmath
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given
from hypothesis import strategies as st

from mechanisms.noise.accounting import (
    epsilon_to_rho,
    exponential_rho,
    gaussian_epsilon,
    laplace_rho,
    pure_rho,
    rho_to_epsilon,
)

# rho, delta, epsilon of every rho-zCDP mechanism, epsilon of the Gaussian
REFERENCE = [
    (0.005, 1e-6, 0.42994147, 0.39685738),
    (0.05, 1e-6, 1.47159475, 1.36757148),
    (0.125, 1e-6, 2.41909318, 2.25408465),
    (0.5, 1e-6, 5.22153444, 4.88655412),
    (0.5, 1e-9, 6.47407002, 6.17393505),
    (1.0, 1e-9, 9.52146367, 9.09255837),
    (2.0, 1e-6, 11.68859625, 10.99715121),
]

deltas = st.sampled_from([1e-30, 1e-12, 1e-9, 1e-6, 1e-3, 0.1])
rhos = st.floats(-30, 10).map(lambda exponent: 10.0**exponent)


@pytest.mark.parametrize(("rho", "delta", "zcdp", "gaussian"), REFERENCE)
def test_reference_values_come_out(rho: float, delta: float, zcdp: float, gaussian: float) -> None:
    assert rho_to_epsilon(rho, delta) == pytest.approx(zcdp, abs=6e-9)
    assert gaussian_epsilon(rho, delta) == pytest.approx(gaussian, abs=6e-9)


def test_rho_of_epsilon_one_is_the_reference_value() -> None:
    assert float(epsilon_to_rho(1, 1e-9)) == pytest.approx(0.014973057673588523, rel=1e-15)


@pytest.mark.parametrize(("rho", "delta"), [(rho, delta) for rho, delta, _, _ in REFERENCE])
def test_zcdp_conversion_agrees_with_dp_accounting(rho: float, delta: float) -> None:
    """Theirs takes the best of a grid of orders, so it can't be smaller; 200,000 come within 1e-6."""
    orders = [1 + 0.001 * step for step in range(1, 200_000)]
    theirs, _ = rdp_privacy_accountant.compute_epsilon(orders, [order * rho for order in orders], delta)
    assert theirs * (1 - 1e-6) <= rho_to_epsilon(rho, delta) <= theirs * (1 + 1e-12)


@pytest.mark.parametrize(("rho", "delta"), [(rho, delta) for rho, delta, _, _ in REFERENCE])
def test_gaussian_curve_agrees_with_dp_accounting(rho: float, delta: float) -> None:
    theirs = dp_accounting.get_epsilon_gaussian(1 / math.sqrt(2 * rho), delta)
    assert gaussian_epsilon(rho, delta) == pytest.approx(theirs, rel=1e-9)


@given(rhos, deltas)
def test_no_other_order_gives_a_smaller_epsilon(rho: float, delta: float) -> None:
    ours = rho_to_epsilon(rho, delta)
    with mpmath.workdps(60):
        best = math.sqrt(-math.log(delta) / rho)
        for factor in (1e-3, 0.1, 0.5, 0.9, 0.99, 0.999, 1.001, 1.01, 1.1, 2, 10, 1e3):
            beta = mpmath.mpf(best * factor)
            shown = rho * (1 + beta) - mpmath.log(delta * (1 + beta)) / beta + mpmath.log(beta / (1 + beta))
            assert ours <= max(shown, 0) * (1 + mpmath.mpf(2) ** -52)


@given(rhos, deltas)
def test_epsilon_is_that_of_the_best_order_rounded_up(rho: float, delta: float) -> None:
    """The best order 1 + beta satisfies rho beta^2 + ln(1 + beta) = ln(1/delta)."""
    with mpmath.workdps(50):
        low, high = mpmath.mpf(10) ** -30, mpmath.mpf(10) ** 31
        while high / low > 1 + mpmath.mpf(10) ** -40:
            beta = mpmath.sqrt(low * high)
            if rho * beta**2 + mpmath.log1p(beta) + mpmath.log(delta) < 0:
                low = beta
            else:
                high = beta
        exact = rho * (1 + beta) - mpmath.log(delta * (1 + beta)) / beta - mpmath.log1p(1 / beta)
        above = max(exact, 0) * (1 + mpmath.mpf(2) ** -52) + mpmath.mpf(10) ** -45
        assert exact - mpmath.mpf(10) ** -35 <= rho_to_epsilon(rho, delta) <= above


@given(st.floats(-12, 6).map(lambda exponent: 10.0**exponent), deltas)
def test_epsilon_to_rho_is_the_largest_rho_within_epsilon(epsilon: float, delta: float) -> None:
    rho = epsilon_to_rho(epsilon, delta)
    assert rho_to_epsilon(rho, delta) <= epsilon
    assert rho_to_epsilon(rho * Fraction(1 + 1e-13), delta) >= epsilon * (1 - 1e-15)
    assert rho_to_epsilon(rho * Fraction(1 + 1e-12), delta) > epsilon * (1 + 1e-14)


@given(rhos, deltas)
def test_gaussian_epsilon_is_the_first_float_on_the_curve(rho: float, delta: float) -> None:
    epsilon = gaussian_epsilon(rho, delta)
    assert 0 <= epsilon <= rho_to_epsilon(rho, delta)

    def curve(epsilon: float) -> mpmath.mpf:
        mu = mpmath.sqrt(2 * mpmath.mpf(rho))
        near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        tails = [mpmath.erfc(z / mpmath.sqrt(2)) / 2 for z in (near, far)]
        return tails[0] - mpmath.exp(epsilon) * tails[1]

    with mpmath.workdps(120):
        assert curve(epsilon) <= delta
        assert epsilon == 0 or curve(math.nextafter(epsilon, 0)) > delta


@pytest.mark.parametrize("rho", [0.0, 1e-300, Fraction(1, 10**400)])
def test_next_to_nothing_costs_next_to_nothing(rho: float | Fraction) -> None:
    assert rho_to_epsilon(rho, 1e-9) == 0
    assert gaussian_epsilon(rho, 1e-9) == 0


def test_large_costs_are_converted_without_loss() -> None:
    assert rho_to_epsilon(1e30, 1e-9) == pytest.approx(1e30 + 2 * math.sqrt(1e30 * math.log(1e9)), rel=1e-15)
    assert 1e30 < gaussian_epsilon(1e30, 1e-9) < rho_to_epsilon(1e30, 1e-9)
    assert rho_to_epsilon(1, 1e-300) == pytest.approx(1 + 2 * math.sqrt(300 * math.log(10)), rel=0.1)


def test_equal_numbers_of_different_types_convert_alike() -> None:
    assert rho_to_epsilon(Fraction(1, 8), Fraction(1, 2**20)) == rho_to_epsilon(0.125, 2.0**-20)
    assert gaussian_epsilon(Fraction(1, 8), Fraction(1, 2**20)) == gaussian_epsilon(0.125, 2.0**-20)
    assert epsilon_to_rho(Fraction(1, 2), Fraction(1, 2**20)) == epsilon_to_rho(0.5, 2.0**-20)


def test_exponential_mechanism_costs_an_eighth_of_epsilon_squared() -> None:
    assert exponential_rho(Fraction(1)) == Fraction(1, 8)
    assert exponential_rho(Fraction(1, 3)) == Fraction(1, 72)


@given(st.floats(0.01, 0.99), st.floats(0.05, 4.0), st.floats(1.01, 50.0))
def test_bounded_range_divergence_is_within_its_cost(share: float, epsilon: float, order: float) -> None:
    """For two outcomes with losses z and z + epsilon, the extreme case of bounded range."""
    with mpmath.workdps(40):
        first = mpmath.mpf(share)
        low = -mpmath.log(first + (1 - first) * mpmath.exp(epsilon))
        moment = first * mpmath.exp(order * low) + (1 - first) * mpmath.exp(order * (low + epsilon))
        divergence = mpmath.log(moment) / (order - 1)
        assert divergence <= order * float(exponential_rho(Fraction(epsilon))) * (1 + 1e-12)


@pytest.mark.parametrize("delta", [0, -0.1, 1, 1e-301, math.nan])
def test_impossible_deltas_are_refused(delta: float) -> None:
    for convert in (rho_to_epsilon, epsilon_to_rho, gaussian_epsilon):
        with pytest.raises(ValueError, match="delta must be at least 1e-300 and below 1"):
            convert(0.5, delta)


@pytest.mark.parametrize("amount", [-0.5, math.inf, math.nan])
def test_impossible_amounts_are_refused(amount: float) -> None:
    for convert, name in ((rho_to_epsilon, "rho"), (epsilon_to_rho, "epsilon"), (gaussian_epsilon, "rho")):
        with pytest.raises(ValueError, match=f"{name} must be finite and not negative"):
            convert(amount, 1e-6)


@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(1, 4), Fraction(1), Fraction(5), Fraction(40)])
def test_pure_and_laplace_costs_bound_every_order_and_are_reached_at_the_first(epsilon: Fraction) -> None:
    """By the Rényi divergences of randomised response and of Laplace noise, with 60 digits."""
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon.numerator) / epsilon.denominator
        ratios: dict[str, list[mpmath.mpf]] = {"pure": [], "laplace": []}
        for alpha in (mpmath.mpf(1) + mpmath.mpf(10) ** -20, *map(mpmath.mpf, (1.01, 1.5, 2, 4, 16, 64, 1024))):
            t = alpha - 0.5
            pure = mpmath.log(mpmath.cosh(t * e) / mpmath.cosh(e / 2))
            noise = mpmath.log(mpmath.cosh(t * e) + mpmath.sinh(t * e) / (2 * t)) - e / 2
            ratios["pure"].append(pure / (alpha - 1) / alpha)
            ratios["laplace"].append(noise / (alpha - 1) / alpha)
        for name, cost in (("pure", pure_rho(epsilon)), ("laplace", laplace_rho(epsilon))):
            rho = mpmath.mpf(cost.numerator) / cost.denominator
            assert max(ratios[name]) == ratios[name][0] <= rho
            assert rho <= ratios[name][0] * (1 + mpmath.mpf(2) ** -50)


def test_divergence_of_laplace_noise_is_what_the_proof_says() -> None:
    """The formula in t against its definition, an integral."""
    for epsilon, alpha in ((0.5, 1.5), (2.0, 3.0)):
        noise = [lambda x: mpmath.exp(-abs(x)) / 2, lambda x, e=epsilon: mpmath.exp(-abs(x - e)) / 2]
        total = mpmath.quad(
            lambda x, a=alpha, n=noise: n[0](x) ** a * n[1](x) ** (1 - a), [-mpmath.inf, 0, epsilon, mpmath.inf]
        )
        t = alpha - 0.5
        closed = mpmath.exp(-epsilon / 2) * (mpmath.cosh(t * epsilon) + mpmath.sinh(t * epsilon) / (2 * t))
        assert float(total) == pytest.approx(float(closed), rel=1e-9)


def test_costs_of_extreme_epsilons_are_refused() -> None:
    for cost in (pure_rho, laplace_rho):
        with pytest.raises(ValueError, match="epsilon must be between"):
            cost(Fraction(0))
        with pytest.raises(ValueError, match="epsilon must be between"):
            cost(Fraction(10**7))
    assert laplace_rho(Fraction(1, 10**150)) > 0
