"""Conversions between zCDP and (epsilon, delta): the only place of the project that makes them.

A mechanism is rho-zCDP if, for all neighbours, the Rényi divergence of every order alpha > 1 between its
outputs is at most alpha * rho. Results are rounded to the safe side: an epsilon up, a rho down.
"""

import math
import struct
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import mpmath

Number = Fraction | float

_SMALLEST_DELTA = 1e-300
# alpha is at most 1/delta, so ln(1 - 1/alpha) keeps 100 of these digits.
_DIGITS = 400


@lru_cache(maxsize=256)
def rho_to_epsilon(rho: Number, delta: Number) -> float:
    """Return the smallest epsilon for which every rho-zCDP mechanism is shown to be (epsilon, delta)-DP.

    By Canonne, Kamath and Steinke (arXiv:2004.00010, proposition 12) every alpha > 1 shows
    epsilon(alpha) = alpha rho + (ln(1/delta) - ln alpha) / (alpha - 1) + ln(1 - 1/alpha). The derivative is
    rho - (ln(1/delta) - ln alpha) / (alpha - 1)^2, so the best alpha = 1 + beta is the only root of
    rho beta^2 + ln(1 + beta) = ln(1/delta). The root is found in floating point: any beta gives a valid
    epsilon, and an error of 1e-15 in the best one costs about 1e-30. The formula is evaluated with 400 digits
    and rounded up.

    >>> round(rho_to_epsilon(Fraction(1, 2), 1e-6), 8)
    5.22153444
    """
    _check(delta, rho=rho)
    if rho == 0:
        return 0.0
    slope, target = max(float(rho), 1e-300), _log_inverse(delta)
    beta = _crossing(lambda beta: slope * beta * beta + math.log1p(beta) - target)
    with localcontext(Context(prec=_DIGITS)):
        return max(0.0, _float_above(_decimal(rho) * (1 + Decimal(beta)) + _overhead(Decimal(beta), delta)))


def epsilon_to_rho(epsilon: Number, delta: Number) -> Fraction:
    """Return the largest rho with rho_to_epsilon(rho, delta) <= epsilon, rounded down to 53 bits.

    At the best alpha = 1 + beta both rho = (ln(1/delta) - ln(1 + beta)) / beta^2 and
    epsilon = (1 + 2 beta) rho - ln(1 + 1/beta) fall as beta grows, which gives beta by bisection. Any beta
    gives a valid rho, the one with alpha rho + overhead = epsilon.

    >>> round(float(epsilon_to_rho(1, 1e-9)), 15)
    0.014973057673589
    """
    _check(delta, epsilon=epsilon)
    goal, target = float(epsilon), _log_inverse(delta)

    def shortfall(beta: float) -> float:
        rho = (target - math.log1p(beta)) / (beta * beta)
        return goal - (1 + 2 * beta) * rho + math.log1p(1 / beta)

    beta = Decimal(_crossing(shortfall))
    with localcontext(Context(prec=_DIGITS)):
        rho = (_decimal(epsilon) - _overhead(beta, delta)) / (1 + beta)
        below = max(0.0, -_float_above(-rho))
    while rho_to_epsilon(below, delta) > epsilon:
        below = math.nextafter(below, 0.0)
    return Fraction(below)


@lru_cache(maxsize=256)
def gaussian_epsilon(rho: Number, delta: Number) -> float:
    """Return the smallest epsilon for which Gaussian releases of total cost rho are (epsilon, delta)-DP.

    Gaussian releases whose costs are capped at rho beforehand are together no worse than one Gaussian of
    mu = sqrt(2 rho), also if each is chosen after seeing the others (Smith and Thakurta, arXiv:2210.17520).
    It is (epsilon, delta)-DP exactly if delta >= Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu)
    (Balle and Wang, arXiv:1805.06530, theorem 8). Use it only for a history of nothing but Gaussian releases;
    for what was spent so far it is a report, not a guarantee, since an analyst may choose when to stop.

    The smallest float that satisfies this is found by bisection, with 100 digits.

    >>> round(gaussian_epsilon(Fraction(1, 2), 1e-6), 8)
    4.88655412
    """
    _check(delta, rho=rho)
    if rho == 0:
        return 0.0
    context = mpmath.MPContext()  # of our own: the precision of mpmath's default one is shared by threads
    context.dps = 100
    mu = context.sqrt(2 * context.mpf(Fraction(rho)))
    limit = context.mpf(Fraction(delta))

    def holds(epsilon: float) -> bool:
        shift = context.mpf(epsilon) / mu
        return bool(context.ncdf(mu / 2 - shift) - context.exp(epsilon) * context.ncdf(-mu / 2 - shift) <= limit)

    return _first_float(holds, rho_to_epsilon(rho, delta))


def exponential_rho(epsilon: Fraction) -> Fraction:
    """Return the zCDP cost of an exponential mechanism with weights exp(-epsilon distance / (2 sensitivity)).

    Guarantee: epsilon^2 / 8 (Cesar and Rogers, arXiv:2004.07223). Between neighbours each distance changes
    by at most the sensitivity, so the logarithm of a weight moves by at most epsilon / 2 either way, and
    dividing by the sum of weights moves all by the same amount: the privacy loss Z = ln(P/Q) lies in an
    interval of length epsilon ("bounded range"). K(s) = ln E_Q[exp(s Z)] has K(0) = K(1) = 0, and K''(s) is
    the variance of Z under a tilted distribution, at most epsilon^2 / 4. So
    K(alpha) <= alpha (alpha - 1) epsilon^2 / 8, and K(alpha) / (alpha - 1) is the Rényi divergence.

    It does not hold for every epsilon-DP mechanism: report-noisy-max with Laplace noise, for one, costs more.
    """
    return epsilon * epsilon / 8


def pure_rho(epsilon: Fraction) -> Fraction:
    """Return the zCDP cost of any epsilon-DP mechanism: epsilon tanh(epsilon / 2), rounded up to 53 bits.

    Guarantee: any two distributions whose ratios lie between e^-epsilon and e^epsilon are an image of the two
    of randomised response with these odds (Kairouz, Oh and Viswanath, arXiv:1311.0776), so its Rényi
    divergences bound theirs. Write alpha = t + 1/2 and K = (alpha - 1) D_alpha = ln(cosh(t epsilon) /
    cosh(epsilon / 2)). All zeros of cosh(epsilon sqrt(x)) are real and negative, and it is entire of order 1/2,
    so it is a product of factors 1 + x / lambda with lambda > 0, and its logarithm is concave in x = t^2 >= 0.
    Hence K stays below its tangent at x = 1/4, where K = 0 and dK/dx is the Kullback-Leibler divergence,
    epsilon tanh(epsilon / 2). Since x - 1/4 = alpha (alpha - 1), D_alpha <= alpha epsilon tanh(epsilon / 2).

    >>> round(float(pure_rho(Fraction(1))), 5)
    0.46212
    """
    with localcontext(Context(prec=_DIGITS)):
        decay = (-_exact(epsilon)).exp()
        return _fraction_above(_exact(epsilon) * (1 - decay) / (1 + decay))


def laplace_rho(epsilon: Fraction) -> Fraction:
    """Return the zCDP cost of Laplace noise of scale sensitivity / epsilon: epsilon - 1 + e^-epsilon, rounded up.

    Guarantee: for real Laplace noise and what is made of it, rounding to a grid included. The proof is that of
    `pure_rho`, with K = ln(cosh(t epsilon) + sinh(t epsilon) / (2 t)) - epsilon / 2. The zeros in x = t^2 are
    those where u'' = x u, u(0) = 1, u'(0) = 1/2 reaches u(epsilon) = 0: a self-adjoint problem, so x is real,
    and -x times the integral of u^2 is that of u'^2 plus u(0)^2 / 2, so x is negative. The tangent at
    alpha = 1 is again the Kullback-Leibler divergence. The cost is convex in epsilon and 0 at 0: what a unit
    of several rows spends on several noisy numbers, epsilons adding up to epsilon, costs no more together.

    >>> round(float(laplace_rho(Fraction(1))), 5)
    0.36788
    """
    with localcontext(Context(prec=_DIGITS)):
        return _fraction_above(_exact(epsilon) - 1 + (-_exact(epsilon)).exp())


def _exact(epsilon: Fraction) -> Decimal:
    # Below 1e-150 the 400 digits would not leave 53 bits of epsilon^2.
    if not Fraction(1, 10**150) <= epsilon <= 10**6:
        raise ValueError(f"epsilon must be between 1e-150 and 1e6, got {float(epsilon)}")
    return _decimal(epsilon)


def _fraction_above(value: Decimal) -> Fraction:
    """Return a float not below the value, which may be wrong by 1e-390 and is at least 1e-301."""
    return Fraction(_float_above(value * (1 + Decimal("1e-60"))))


def _check(delta: Number, **amounts: Number) -> None:
    if not _SMALLEST_DELTA <= delta < 1:
        raise ValueError(f"delta must be at least {_SMALLEST_DELTA} and below 1, got {delta}")
    for name, amount in amounts.items():
        if not 0 <= amount < math.inf:
            raise ValueError(f"{name} must be finite and not negative, got {amount}")


def _log_inverse(delta: Number) -> float:
    return -math.log(float(delta))


def _overhead(beta: Decimal, delta: Number) -> Decimal:
    """Return epsilon(alpha) - alpha rho at alpha = 1 + beta, from above, in the current decimal context."""
    alpha = 1 + beta
    first, second = -(_decimal(delta) * alpha).ln() / beta, (beta / alpha).ln()
    return first + second + (abs(first) + abs(second)) * Decimal("1e-60")


def _decimal(value: Number) -> Decimal:
    numerator, denominator = value.as_integer_ratio()
    return Decimal(numerator) / Decimal(denominator)


def _float_above(value: Decimal) -> float:
    nearest = float(value)
    return nearest if Decimal(nearest) >= value else math.nextafter(nearest, math.inf)


def _crossing(increasing: Callable[[float], float]) -> float:
    """Return a positive number near which the function turns from negative to positive."""
    low, high = -300.0, 700.0
    for _ in range(80):
        middle = (low + high) / 2
        if increasing(math.exp(middle)) < 0:
            low = middle
        else:
            high = middle
    return math.exp(high)


def _first_float(holds: Callable[[float], bool], known: float) -> float:
    """Return the smallest float >= 0 from which `holds` is true, given one where it is."""
    low, high = -1, _place(known)
    while high - low > 1:
        middle = (low + high) // 2
        if holds(_at_place(middle)):
            high = middle
        else:
            low = middle
    return _at_place(high)


def _place(value: float) -> int:
    """Return how many floats are below a non-negative one: its bits, read as an integer."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _at_place(place: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", place))[0])
