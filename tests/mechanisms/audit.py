"""A lower bound on epsilon from draws on two neighbouring tables, with a stated confidence.

It says nothing about distributions: any mechanism with few outcomes can be audited, and one that spends more than it
says on these neighbours is found out, given enough draws.
"""

import math

import numpy as np
from scipy.stats import beta, binom


def interval(hits: int, size: int, *, alpha: float) -> tuple[float, float]:
    """Return Clopper and Pearson's bounds: each is wrong with probability at most alpha."""
    low = float(beta.ppf(alpha, hits, size - hits + 1)) if hits > 0 else 0.0
    high = float(beta.isf(alpha, hits + 1, size - hits)) if hits < size else 1.0
    return low, high


def epsilon_from_below(left: np.ndarray, right: np.ndarray, *, alpha: float) -> float:
    """Return e such that, with confidence 1 - alpha, the mechanism isn't e'-DP for any e' < e.

    `left` and `right` are outcomes (small non-negative integers) on two neighbours. Every outcome and every
    complement is an event, in both directions; the confidence is shared between all the bounds.
    """
    outcomes = int(max(left.max(), right.max())) + 1
    counts = [np.bincount(draws.astype(np.int64), minlength=outcomes) for draws in (left, right)]
    share = alpha / (8 * outcomes)
    best = 0.0
    for outcome in range(outcomes):
        for hits in (lambda i, o=outcome: int(counts[i][o]), lambda i, o=outcome: int(counts[i].sum() - counts[i][o])):
            for first, second in ((0, 1), (1, 0)):
                low, _ = interval(hits(first), int(counts[first].sum()), alpha=share)
                _, high = interval(hits(second), int(counts[second].sum()), alpha=share)
                best = max(best, math.log(low / high) if low > 0 else 0.0)
    return best


def chance_to_see(limit: float, left: float, right: float, *, size: int, alpha: float) -> float:
    """Return a lower bound on the power: P(audit > limit) for a decider with these chances of yes.

    The counts stay within their own bounds, of error 1e-7 each, with probability 1 - 2e-7; the audit sees the
    difference if it does at the worst of these counts.
    """
    if left < right:
        left, right = right, left
    few, many = int(binom.ppf(1e-7, size, left)), int(binom.isf(1e-7, size, right))
    low, high = interval(few, size, alpha=alpha / 16)[0], interval(many, size, alpha=alpha / 16)[1]
    return 1 - 2e-7 if low > 0 and math.log(low / high) > limit else 0.0
