"""Ratios of counts, sums and averages are those of their definition; a value that no data could give is no signal."""

from __future__ import annotations

import numpy as np
import pytest

from mechanisms.gaussian.common import common
from mechanisms.gaussian.known import Known, after, nothing_known
from mechanisms.gaussian.linear import Matrix, independent
from mechanisms.gaussian.signals import Answers, SignalToNoise, ratios

COARSE, FINE = independent(np.ones((1, 4)), 4.0), independent(np.eye(4), 1.0)
SHARED = common(COARSE, FINE)
THEN = after(FINE, np.zeros(4))


def seen(x: Matrix) -> Known:
    """Return what is known if the common mechanism has told x without noise."""
    return after(SHARED, SHARED.B @ x)


def told(B: Matrix, x: Matrix, *, deviation: float = 1.0) -> Known:
    """Return what is known after B x was told exactly, though with noise of that deviation."""
    return nothing_known(B.shape[1]).with_rows(B / deviation, B @ x / deviation)


def test_the_nested_rule_takes_the_finer_analysis_when_the_signal_is_strong() -> None:
    total = Answers.plain(COARSE.B)
    strong, weak = (ratios(seen(np.full(4, n)), THEN, answers=total, deviations=3.0) for n in (100.0, 1.0))
    assert strong.suffices(share=1.0, ratio=5.0)
    assert not strong.is_hopeless(share=1.0, ratio=5.0)
    assert not weak.suffices(share=1.0, ratio=5.0)
    assert weak.is_hopeless(share=1.0, ratio=8.0)
    np.testing.assert_allclose(strong.lower, [(400 - 3 * 2) / 2])
    np.testing.assert_allclose(strong.upper, [(400 + 3 * 2) / 2])
    point = ratios(seen(np.full(4, 100.0)), THEN, answers=total, deviations=0.0)
    np.testing.assert_allclose([point.lower, point.upper], [[200.0], [200.0]])


def test_shares_of_answers_count_the_boundary_as_enough() -> None:
    bounds = SignalToNoise(np.array([1.0, 3.0]), np.array([2.0, 4.0]))
    assert bounds.suffices(share=0.5, ratio=3.0)
    assert not bounds.suffices(share=0.6, ratio=3.0)
    assert bounds.is_hopeless(share=0.6, ratio=3.0)


@pytest.mark.parametrize(
    ("row", "value", "lower", "upper"),
    [
        ([1.0, 1.0], -50.0, 0.0, 0.0),  # a count far below 0
        ([1.0, 1.0], -2.0, 0.0, 1.0),  # one that may be 1
        ([-1.0, -2.0], 50.0, 0.0, 0.0),  # debts that are not debts
        ([-1.0, -2.0], -50.0, 47.0, 53.0),
        ([1.0, -1.0], -50.0, 47.0, 53.0),  # a balance may have either sign
    ],
)
def test_a_value_with_a_sign_that_no_data_could_give_is_no_signal(
    row: list[float], value: float, lower: float, upper: float
) -> None:
    """The value is known, and will be, with a deviation of 1."""
    B = np.array([row])
    known = nothing_known(2).with_rows(B, np.array([value]))
    found = ratios(known, known, answers=Answers.plain(B), deviations=3.0)
    np.testing.assert_allclose([found.lower, found.upper], [[lower], [upper]], atol=1e-12)


def test_what_is_not_told_is_spread_evenly_and_its_doubt_is_as_large_as_a_cell() -> None:
    """Of a total of 400, a cell of four gets 100; independent cells of 100 leave it a deviation of 100 sqrt(3/4)."""
    known = told(np.ones((1, 4)), np.full(4, 100.0), deviation=1e-3)
    cell = Answers.plain(np.eye(4)[:1])
    found = ratios(known, THEN, answers=cell, deviations=1.0)
    np.testing.assert_allclose((found.lower + found.upper) / 2, [100.0], rtol=1e-6)
    np.testing.assert_allclose((found.upper - found.lower) / 2, [100 * np.sqrt(0.75)], rtol=1e-6)


def test_an_answer_that_is_not_told_then_either_has_the_ratio_0() -> None:
    known = told(np.ones((1, 4)), np.full(4, 100.0))
    assert ratios(known, known, answers=Answers.plain(np.eye(4)), deviations=0.0).passed(1e-9) == 0.0


# --- averages ---------------------------------------------------------------------------------------------

VALUES = np.array([0.0, 10.0])
"""People have one of two values; a group is as many of each."""

AVERAGE = Answers(VALUES[None, :], np.ones((1, 2)))
EITHER = np.eye(2)


@pytest.mark.parametrize("x", [[70.0, 30.0], [5.0, 95.0], [0.0, 40.0]])
def test_the_ratio_of_an_average_is_that_of_draws(x: list[float]) -> None:
    """100,000 draws of the noisy average tell its deviation to 0.22 %; the bound is seven of that, and curvature."""
    people = np.array(x) * 100
    known = told(EITHER, people)
    found = ratios(known, known, answers=AVERAGE, deviations=0.0)
    draws = people + np.random.default_rng(0).standard_normal((100_000, 2))
    averages = (draws @ VALUES) / draws.sum(axis=1)
    np.testing.assert_allclose(found.lower, averages.mean() / averages.std(), rtol=0.017)


def test_an_average_of_nobody_is_no_signal() -> None:
    known = told(EITHER, np.array([-3.0, -4.0]))
    found = ratios(known, known, answers=AVERAGE, deviations=0.0)
    assert (found.lower.tolist(), found.upper.tolist()) == ([0.0], [0.0])
    perhaps = ratios(known, known, answers=AVERAGE, deviations=6.0)
    assert perhaps.lower.tolist() == [0.0]
    assert perhaps.upper[0] > 0


def test_bounds_of_an_average_are_around_its_estimate_and_grow_with_doubt() -> None:
    known = told(EITHER, np.array([300.0, 500.0]), deviation=5.0)
    point, narrow, wide = (ratios(known, THEN_TWO, answers=AVERAGE, deviations=k) for k in (0.0, 1.0, 3.0))
    assert wide.lower < narrow.lower < point.lower == point.upper < narrow.upper < wide.upper


THEN_TWO = told(EITHER, np.zeros(2))


def test_an_average_of_equals_has_no_noise_if_anybody_is_there() -> None:
    equals = Answers(np.array([[7.0, 0.0]]), np.array([[1.0, 0.0]]))
    some, nobody = (told(EITHER, np.array([n, 5.0])) for n in (30.0, -1.0))
    assert ratios(some, some, answers=equals, deviations=0.0).lower.tolist() == [np.inf]
    assert ratios(nobody, nobody, answers=equals, deviations=0.0).lower.tolist() == [0.0]


def test_counts_and_averages_are_judged_side_by_side() -> None:
    both = Answers(np.vstack([np.ones((1, 2)), AVERAGE.sums]), np.vstack([np.zeros((1, 2)), AVERAGE.counts]))
    known = told(EITHER, np.array([300.0, 500.0]))
    found = ratios(known, known, answers=both, deviations=0.0).lower
    parts = [
        ratios(known, known, answers=one, deviations=0.0).lower for one in (both.where(~both.are_averages), AVERAGE)
    ]
    np.testing.assert_allclose(found, np.concatenate(parts))
