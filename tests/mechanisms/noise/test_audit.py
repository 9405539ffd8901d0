"""Every decider audited on its worst neighbours, from its draws alone.

200,000 draws a side (10,000 for EM_med, whose draws are slow). An audit that passes a limit it should not pass has
probability at most 1e-8; there are fewer than 40, so the false-alarm rate of the file is below 1e-6. Each decider
is audited with a planted mistake as well, half the noise (an eighth for SVT_sum), and the power is computed from its
exact probabilities: the chance to miss it is below 1e-6. SVT_sum's core is audited by itself, on its full transcript.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from mechanisms.deciders import truncation
from mechanisms.deciders.deciders import Buckets, Claim, Decider, Histogram, Query, Ranks, Totals, candidates
from mechanisms.noise import laplace
from tests.mechanisms.audit import chance_to_see, epsilon_from_below, interval

ALPHA = 1e-8
SIZE = 200_000
EPSILON = Fraction(2)


@dataclass(frozen=True)
class Case:
    """Neighbouring statistics, and how much of epsilon the audit must find on them with the right noise."""

    query: Query
    left: Any
    right: Any
    found: float
    size: int = SIZE
    planted: int = 2  # how much too little noise is planted


def top(total: int, *, rows: int = 1) -> Buckets:
    """Everything in the highest of five buckets."""
    return Buckets((0, 0, 0, 0, rows), (0, 0, 0, 0, total))


# A wide claim of which one edge matters: beyond it, one row more makes a yes e^epsilon times rarer.
COUNT, SUM = Query(kind="count", claim=Claim(1000, 100)), Query(kind="sum", claim=Claim(16_000, 1600), most=16)
AVERAGE = Query(kind="avg", claim=Claim(0, 1), least=-8, most=8)
MEDIAN = Query(kind="quantile", claim=Claim(0, 5))
# A row more on the far left: 100 empty values there become likelier, 30 on the right rarer.
CROWD = Query(kind="quantile", claim=Claim(16, 16), domain=tuple(range(-100, 31)))
CASES = {
    "LM_count": Case(COUNT, 1100, 1101, 0.93),
    "EM_count": Case(COUNT, 1101, 1102, 0.8),
    "LM_sum": Case(SUM, 17_600, 17_616, 0.93),
    "EM_sum": Case(SUM, 17_616, 17_632, 0.8),
    "R2T_sum": Case(SUM, top(14_400 - 16), top(14_400 - 32), 0.8),
    # Of epsilon, a third is for the bound and the rest is shared: one decision shows little of it.
    "SVT_sum": Case(SUM, top(14_400, rows=900), top(14_400 - 16, rows=899), 0.15, planted=8),
    "LM_avg": Case(AVERAGE, Totals(-17, 1), Totals(-9, 2), 0.85),
    "EM_avg": Case(AVERAGE, Totals(-17, 1), Totals(-9, 2), 0.8),
    "EM_rank": Case(MEDIAN, Ranks(11, 0, 21), Ranks(12, 0, 22), 0.8),
    "Hist_med": Case(MEDIAN, Ranks(11, 0, 21), Ranks(12, 0, 22), 0.55),
    "EM_med": Case(
        CROWD,
        Histogram(np.array([0]), np.array([1])),
        Histogram(np.array([-100, 0]), np.array([1, 1])),
        0.5,
        size=10_000,
    ),
}


def found(decider: Decider, case: Case) -> float:
    left, right = (decider.draw(statistics, case.size) for statistics in (case.left, case.right))
    return epsilon_from_below(left, right, alpha=ALPHA)


def power(decider: Decider, case: Case, limit: float) -> float:
    left, right = decider.yes(case.left), decider.yes(case.right)
    chances = [(left, right), (1 - left, 1 - right)]
    return max(chance_to_see(limit, *pair, size=case.size, alpha=ALPHA) for pair in chances)


@pytest.mark.parametrize("name", CASES)
def test_decider_spends_no_more_than_epsilon_and_the_audit_would_see_it(name: str) -> None:
    case = CASES[name]
    decider = candidates(case.query, epsilon=EPSILON)[name]
    assert power(decider, case, case.found * float(EPSILON)) > 1 - 1e-6
    assert case.found * EPSILON < found(decider, case) <= EPSILON


@pytest.mark.parametrize("name", CASES)
def test_audit_catches_too_little_noise(name: str) -> None:
    case = CASES[name]
    careless = candidates(case.query, epsilon=case.planted * EPSILON)[name]
    assert power(careless, case, float(EPSILON)) > 1 - 1e-6
    assert found(careless, case) > EPSILON


def test_every_decider_is_audited() -> None:
    kinds = [COUNT, SUM, AVERAGE, CROWD]
    assert set(CASES) == {name for query in kinds for name in candidates(query, epsilon=EPSILON)}


# The sparse vector technique by itself, on all it tells: which comparison was the first to succeed.

SVT_EPSILON = 4
FAIL_THEN_REACH = [0.5, 0.5, 0.5, 0.5, 0.0]  # in sensitivities
ASKS_UP = [-0.5, -0.5, -0.5, -0.5, 0.0]  # what one unit can do to monotone asks
ASKS_UP_AND_DOWN = [-0.5, -0.5, -0.5, -0.5, 1.0]  # and to asks like |sum - q(D_s)|


def first_successes(gaps: list[float], *, noise: Fraction = Fraction(1)) -> np.ndarray:
    grid = laplace.grid(noise, Fraction(SVT_EPSILON, 2))
    draws = grid.draw(len(gaps) * SIZE).reshape(len(gaps), SIZE)
    return truncation.first_success([int(gap * grid.multiplier) for gap in gaps], draws, threshold=grid.draw(SIZE))


def test_first_success_spends_no_more_than_epsilon_on_monotone_asks() -> None:
    spent = epsilon_from_below(first_successes(FAIL_THEN_REACH), first_successes(ASKS_UP), alpha=ALPHA)
    assert 0.7 * SVT_EPSILON < spent <= SVT_EPSILON


def test_audit_catches_asks_that_are_not_monotone_and_half_the_noise() -> None:
    left = first_successes(FAIL_THEN_REACH)
    assert epsilon_from_below(left, first_successes(ASKS_UP_AND_DOWN), alpha=ALPHA) > SVT_EPSILON
    half = Fraction(1, 2)
    left, right = (first_successes(gaps, noise=half) for gaps in (FAIL_THEN_REACH, ASKS_UP))
    assert epsilon_from_below(left, right, alpha=ALPHA) > SVT_EPSILON


def test_bounds_of_the_audit_are_those_of_clopper_and_pearson() -> None:
    for hits, size in ((0, 10), (3, 10), (10, 10)):
        low, high = interval(hits, size, alpha=0.025)
        exact = binomtest(hits, size).proportion_ci(0.95, method="exact")
        assert (low, high) == pytest.approx((exact.low, exact.high))
