"""Signal-to-noise ratios of counts, sums and averages: how good they would be, judged by what is known so far.

The ratio of an answer is its true value divided by the standard deviation that its noise would have once something
more is released: the reciprocal of its relative error (arXiv 2212.00135, section 6.1). The true value is not known, so
it is estimated from what is known, with bounds some standard deviations wide. All of it is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.gaussian.known import Known
from mechanisms.gaussian.linear import Matrix
from mechanisms.tolerances import ENTRY

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers that are judged: sums over records, shape (k, d), or averages: sums divided by counts, shape (k, d).

    The row of `counts` is 0 where an answer is a count or a sum.
    """

    sums: Matrix
    counts: Matrix

    @classmethod
    def plain(cls, rows: Matrix) -> Answers:
        """Return answers that are counts or sums."""
        return cls(rows, np.zeros_like(rows))

    @property
    def are_averages(self) -> Mask:
        """Which of them are averages."""
        return np.asarray(np.abs(self.counts).max(axis=1) > 0)

    def where(self, kept: Mask) -> Answers:
        """Return some of the answers."""
        return Answers(self.sums[kept], self.counts[kept])


@dataclass(frozen=True, eq=False)
class SignalToNoise:
    """Bounds for the ratio of each answer's true value to the standard deviation of its noise, shape (k,)."""

    lower: Matrix
    upper: Matrix

    def suffices(self, *, share: float, ratio: float) -> bool:
        """Return whether at least that share of the answers surely have a ratio as large as wanted."""
        return self.passed(ratio) >= share

    def is_hopeless(self, *, share: float, ratio: float) -> bool:
        """Return whether fewer than that share of the answers can have a ratio as large as wanted."""
        return self.possible(ratio) < share

    def passed(self, ratio: float) -> float:
        """Return the share of the answers that surely have a ratio."""
        return float(np.mean(self.lower >= ratio))

    def possible(self, ratio: float) -> float:
        """Return the share of the answers that may have a ratio."""
        return float(np.mean(self.upper >= ratio))

    def usable(self, ratio: float) -> float:
        """Return how far the answers come on their way to a ratio, on average: 1 where it is reached, 0 at no signal.

        >>> SignalToNoise(np.array([0.0, 5.0, 10.0, 90.0]), np.zeros(4)).usable(10.0)
        0.625
        """
        return float(np.mean(np.minimum(self.lower / ratio, 1.0)))


def ratios(known: Known, then: Known, *, answers: Answers, deviations: float) -> SignalToNoise:
    """Return bounds for the ratios of answers once `then` is known, so many deviations wide; 0 for the estimate itself.

    What `known` does not tell is taken to be spread evenly over the cells: the answer of least norm. Its deviation is
    that of independent cells as large as those are. An answer that `then` does not tell has the ratio 0.

    A value with a sign that no data could give it, such as a count below 0, is no signal, and an average of no people
    isn't either.
    """
    averaged = answers.are_averages
    lower, upper = np.zeros(len(averaged)), np.zeros(len(averaged))
    for part, bounds in ((~averaged, _of_sums), (averaged, _of_averages)):
        if part.any():
            lower[part], upper[part] = bounds(known, then, answers.where(part), deviations)
    return SignalToNoise(lower, upper)


def _of_sums(known: Known, then: Known, answers: Answers, deviations: float) -> tuple[Matrix, Matrix]:
    rows = answers.sums
    values, spread = _guessed(known, rows)
    signal = _oriented(values, rows.min(axis=1), rows.max(axis=1))
    low, high = (np.maximum(signal + side * deviations * spread, 0.0) for side in (-1, 1))
    noise = np.sqrt(then.variances(rows))
    return _divided(low, noise), _divided(high, noise)


def _of_averages(known: Known, then: Known, answers: Answers, deviations: float) -> tuple[Matrix, Matrix]:
    """The error of an average a of n people is that of the sum of their differences from a, divided by n."""
    people, doubt = _guessed(known, answers.counts)
    few, many = (np.maximum(people + side * deviations * doubt, 0.0) for side in (-1, 1))
    least, most = _ends(answers)
    some = np.maximum(people, 0.0)
    values = np.clip(_divided(_guessed(known, answers.sums)[0], some), least, most)
    values = np.where(some > 0, values, (least + most) / 2)
    differences = _without_rounding(answers.sums - values[:, None] * answers.counts, answers.sums)
    spread = deviations * _divided(_guessed(known, differences)[1], some) if deviations else np.zeros(len(some))
    signal, largest = _oriented(values, least, most), np.maximum(np.abs(least), np.abs(most))
    noise = np.sqrt(then.variances(differences))
    low, high = np.maximum(signal - spread, 0.0), np.where(some > 0, np.minimum(signal + spread, largest), largest)
    return (
        np.where(few > 0, _divided(low, _divided(noise, few)), 0.0),
        np.where(many > 0, _divided(high, _divided(noise, many)), 0.0),
    )


def _without_rounding(rows: Matrix, of: Matrix) -> Matrix:
    """Return rows with 0 for what is tiny beside what they were made of: people who all have the same value."""
    return np.where(np.abs(rows) > ENTRY * np.abs(of).max(axis=1, keepdims=True), rows, 0.0)


def _guessed(known: Known, rows: Matrix) -> tuple[Matrix, Matrix]:
    """Return the estimates of rows and their standard deviations; of rows that are not told, a guess and its own."""
    roots, outside = known.roots(rows)
    size = float(np.sqrt(np.mean(_least_norm(known) ** 2)))
    unknown = np.where(np.isfinite(known.variances(rows)), 0.0, size * np.linalg.norm(outside, axis=1))
    return roots @ known.outcome, np.hypot(np.linalg.norm(roots, axis=1), unknown)


def _least_norm(known: Known) -> Matrix:
    """Return the smallest data vector with the answers that are known best, shape (d,)."""
    inside = np.linalg.solve(known.factor, known.outcome) if known.rank else known.outcome
    return np.asarray(inside if known.basis is None else inside @ known.basis)


def _oriented(values: Matrix, least: Matrix, most: Matrix) -> Matrix:
    """Return how much of a signal values are: negative where their sign is one that no data could give."""
    oriented: Matrix = np.where(least >= 0, values, np.where(most <= 0, -values, np.abs(values)))
    return oriented


def _ends(answers: Answers) -> tuple[Matrix, Matrix]:
    """Return the least and the greatest average that there can be, each shape (k,)."""
    counted = answers.counts > 0
    each = np.divide(answers.sums, answers.counts, out=np.zeros_like(answers.sums), where=counted)
    return np.where(counted, each, np.inf).min(axis=1), np.where(counted, each, -np.inf).max(axis=1)


def _divided(above: Matrix, below: Matrix) -> Matrix:
    """Return above / below, where nothing is below something infinite: what has no noise is told exactly."""
    return np.asarray(np.divide(above, below, out=np.full(len(above), np.inf), where=below > 0))
