"""Which deciders fit a query, which of them is best, and the decision.

A decider answers, under differential privacy, whether the answer on a synthetic table is within tau of the true
one (DP-PQD, arXiv:2309.08574). What each of them does and costs is told where it is: `gaps` (LM_count, EM_count,
LM_sum, EM_sum, LM_avg, EM_avg), `truncation` (R2T_sum, SVT_sum), `ranks` (EM_med, EM_rank, Hist_med).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from mechanisms.claims import Buckets, Claim, Histogram, Ranks, Totals, buckets_for, buckets_of, ranks_of
from mechanisms.gaps import Average, LaplaceTotal, LogisticTotal
from mechanisms.profiles import Decider, profile
from mechanisms.ranks import RankBins, RankChoice, RankMargin
from mechanisms.truncation import Race, Sparse

__all__ = [
    "Buckets",
    "Claim",
    "Decider",
    "Histogram",
    "Query",
    "Ranks",
    "Totals",
    "buckets_for",
    "buckets_of",
    "candidates",
    "decide",
    "profile",
    "ranks_of",
    "recommend",
]

_NEAR = 1.05  # thresholds that differ by less than this factor are as good as equal
_GAPS = 9  # a side, for a mean error


@dataclass(frozen=True)
class Query:
    """What is asked of both tables.

    Args:
        kind: what `claim` is about.
        rows: the most rows that one privacy unit has.
        least, most: the policy's bounds on values, for sums and averages.
        p: the quantile, between 0 and 1.
        domain: all values in increasing order, for quantiles; without it EM_med is no candidate.
    """

    kind: Literal["count", "sum", "avg", "quantile"]
    claim: Claim
    rows: int = 1
    least: int = 0
    most: int = 0
    p: Fraction = Fraction(1, 2)
    domain: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise ValueError(f"rows must be at least 1, got {self.rows}")
        if self.kind in ("sum", "avg") and (self.least > self.most or self.magnitude == 0):
            raise ValueError(f"bounds must be in order and not both 0, got {self.least} and {self.most}")
        if self.kind == "quantile" and not 0 < self.p < 1:
            raise ValueError(f"p must be between 0 and 1, got {self.p}")
        if any(after <= before for before, after in zip(self.domain, self.domain[1:], strict=False)):
            raise ValueError("domain must increase")

    @property
    def magnitude(self) -> int:
        """The most by which one row changes a sum: rows are added and removed, so it is not most - least."""
        return max(abs(self.least), abs(self.most))


def candidates(query: Query, *, epsilon: Fraction, delta: float = 0.05) -> dict[str, Decider]:
    """Return the deciders for a query by name. `delta` is the error that R2T_sum is tuned for; all are epsilon-DP."""
    if epsilon <= 0:
        raise ValueError(f"epsilon must be positive, got {epsilon}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta}")
    return {decider.name: decider for decider in _candidates(query, Fraction(epsilon), delta)}


def _candidates(query: Query, epsilon: Fraction, delta: float) -> Iterator[Decider]:
    claim, rows = query.claim, query.rows
    match query.kind:
        case "count":
            yield LaplaceTotal("LM_count", claim, epsilon, rows)
            yield LogisticTotal("EM_count", claim, epsilon, rows)
        case "sum":
            yield LaplaceTotal("LM_sum", claim, epsilon, rows * query.magnitude)
            yield LogisticTotal("EM_sum", claim, epsilon, rows * query.magnitude)
            yield Race("R2T_sum", claim, epsilon, rows, query.magnitude, delta)
            if query.least >= 0 or query.most <= 0:
                yield Sparse("SVT_sum", claim, epsilon, rows, query.magnitude, 1 if query.least >= 0 else -1)
        case "avg":
            yield Average("LM_avg", claim, epsilon, rows, query.least, query.most, continuous=True)
            yield Average("EM_avg", claim, epsilon, rows, query.least, query.most, continuous=False)
        case "quantile":
            if query.domain:
                yield RankChoice("EM_med", claim, epsilon, rows, query.p, query.domain)
            yield RankMargin("EM_rank", claim, epsilon, rows, query.p)
            yield RankBins("Hist_med", claim, epsilon, rows, query.p)


def decide(decider: Decider, statistics: Any) -> bool:
    """Return the decision, drawn exactly.

    Guarantee: `decider.epsilon`-DP and `decider.rho`-zCDP for units of up to `rows` rows, if `statistics` are those of
    the true table. Everything else in this package about a decider is public.
    """
    return bool(decider.draw(statistics, 1)[0])


def recommend(
    query: Query, *, epsilon: Fraction, synthetic: Histogram, delta: float = 0.05
) -> tuple[Decider, float, str]:
    """Return the decider with the smallest effectiveness threshold, that threshold, and why, in words.

    Thresholds within 5 % are as good as equal. Of those the one with the smallest mean error is taken, over gaps up to
    2 tau either way and at equal cost: both errors and 1 / sqrt(rho) are proportional to 1 / epsilon, so
    the mean error is multiplied by sqrt(rho). Only public things are looked at.
    """
    choices = candidates(query, epsilon=epsilon, delta=delta)
    thresholds = {name: decider.effective_tau(delta, synthetic) for name, decider in choices.items()}
    smallest = min(thresholds.values())
    near = [name for name, threshold in thresholds.items() if threshold <= smallest * _NEAR]
    gaps = [query.claim.tau * Fraction(2 * step, _GAPS) for step in range(-_GAPS, _GAPS + 1)]

    def price(name: str) -> float:
        return float(profile(choices[name], synthetic, gaps).mean()) * math.sqrt(choices[name].rho)

    best = min(near, key=price) if len(near) > 1 else near[0]
    words = _why(best, near, thresholds, query, delta)
    return choices[best], thresholds[best], words + _cheaper(choices[best], choices, thresholds)


def _why(best: str, near: list[str], thresholds: dict[str, float], query: Query, delta: float) -> str:
    others = ", ".join(f"{name} {_short(tau)}" for name, tau in thresholds.items() if name not in near)
    words = f"{best} tells gaps from tau = {_short(thresholds[best])} at error {delta:g}"
    words += (
        f", the smallest of all ({others})" if others and len(near) == 1 else f" (beside {others})" if others else ""
    )
    ties = ", ".join(f"{name} {_short(thresholds[name])}" for name in near if name != best)
    if ties:
        words += f"; {ties} is as good, but has the larger mean error at the same cost"
    if query.claim.tau < thresholds[best]:
        words += f"; the tau asked for, {_short(float(query.claim.tau))}, is below that: expect more errors"
    return words


def _cheaper(best: Decider, choices: dict[str, Decider], thresholds: dict[str, float]) -> str:
    """Return a hint at deciders that cost less than half and are not much worse."""
    cheap = [
        f"; {name} would cost {float(other.rho / best.rho):.0%} of it and tell gaps from {_short(thresholds[name])}"
        for name, other in choices.items()
        if 2 * other.rho < best.rho and thresholds[name] <= 1.5 * thresholds[best.name]
    ]
    return "".join(cheap)


def _short(tau: float) -> str:
    return "none" if tau == math.inf else f"{tau:.4g}"
