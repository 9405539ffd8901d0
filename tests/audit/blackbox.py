"""Lower bounds on what answers betray of a person, at a stated confidence, whatever the mechanism.

A trial is a person who is in the table or not, by a fair coin, and all answers about their cell. All persons of one
table are tried at once (as in Steinke, Nasr and Jagielski, arXiv:2305.08846), each in a town of their own. For every
one of them, whatever the others' coins, the answers with and without them are those of neighbours, and a mixture of
neighbours is no further apart (Rényi divergences are jointly quasi-convex). That trials count as independent holds for
a gate whose noise in different towns is: so the false-alarm rate is that of a right gate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from tests.mechanisms.audit import interval

Floats = NDArray[np.float64]
ORDERS = (1.0001, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)
ALPHA = 1e-8


@dataclass(frozen=True)
class Trials:
    """Answers about each person, shape (n, f), and whether they were there, shape (n,)."""

    answers: Floats
    present: NDArray[np.bool_]

    @classmethod
    def joined(cls, parts: Sequence[Trials]) -> Trials:
        return cls(np.concatenate([p.answers for p in parts]), np.concatenate([p.present for p in parts]))


def rho_between(p: float, q: float) -> float:
    """Return the least rho for which events of chances p and q are possible on neighbours under rho-zCDP."""
    found = 0.0
    for order in ORDERS:
        for one, other in ((p, q), (q, p)):
            found = max(found, _renyi(one, other, order) / order)
    return found


def _renyi(p: float, q: float, order: float) -> float:
    total = 0.0
    for one, other in ((p, q), (1 - p, 1 - q)):
        if one > 0:
            if other <= 0:
                return math.inf
            total += math.exp(order * math.log(one) + (1 - order) * math.log(other))
    return math.log(total) / (order - 1)


def rho_from_below(present: NDArray[np.bool_], absent: NDArray[np.bool_], *, alpha: float = ALPHA) -> float:
    """Return a rho such that with confidence 1 - alpha the mechanism costs no less; given where an event happened."""
    low, _ = interval(int(present.sum()), len(present), alpha=alpha / 2)
    _, high = interval(int(absent.sum()), len(absent), alpha=alpha / 2)
    return rho_between(low, high) if low > high else 0.0


def found_rho(training: Trials, testing: Trials) -> float:
    """Return the bound for an event that is found on other trials: a linear statistic above a threshold."""
    direction, thresholds = _direction(training)
    scores = training.answers @ direction
    best = max(thresholds, key=lambda t: rho_from_below(*_sides(scores > t, training.present)))
    return rho_from_below(*_sides(testing.answers @ direction > best, testing.present))


def _sides(happened: NDArray[np.bool_], present: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    return happened[present], happened[~present]


def _direction(trials: Trials) -> tuple[Floats, Floats]:
    """Return Fisher's direction between persons who are there and who are not, and thresholds along it."""
    there, gone = trials.answers[trials.present], trials.answers[~trials.present]
    spread = np.cov(there.T) + np.cov(gone.T)
    direction = np.linalg.pinv(np.atleast_2d(spread)) @ (there.mean(axis=0) - gone.mean(axis=0))
    return direction, np.quantile(trials.answers @ direction, np.linspace(0.02, 0.98, 97))


def power(paid: float, limit: float, *, size: int, alpha: float = ALPHA) -> float:
    """Return a lower bound on the chance to find more than the limit, for Gaussian answers that cost `paid`.

    With `size` trials a side, and the threshold in the middle: the counts stay within bounds of error 1e-7 each.
    """
    p = float(norm.cdf(math.sqrt(2 * paid) / 2))
    few, many = int(binom.ppf(1e-7, size, p)), int(binom.isf(1e-7, size, 1 - p))
    low, high = interval(few, size, alpha=alpha / 2)[0], interval(many, size, alpha=alpha / 2)[1]
    return 1 - 2e-7 if low > high and rho_between(low, high) > limit else 0.0
