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

from mechanisms.deciders.claims import Buckets, Claim, Histogram, Ranks, Totals, buckets_for, buckets_of, ranks_of
from mechanisms.deciders.gaps import Average, LaplaceTotal, LogisticTotal
from mechanisms.deciders.profiles import Decider, at_worst, profile, tells
from mechanisms.deciders.ranks import RankBins, RankChoice, RankMargin
from mechanisms.deciders.truncation import Race, Sparse

__all__ = [
    "Buckets",
    "Claim",
    "Decider",
    "Histogram",
    "Query",
    "Ranks",
    "Totals",
    "at_worst",
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


@dataclass(frozen=True, kw_only=True)
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
            yield Race(name="R2T_sum", claim=claim, epsilon=epsilon, rows=rows, most=query.magnitude, beta=delta)
            if query.least >= 0 or query.most <= 0:
                yield Sparse(
                    name="SVT_sum",
                    claim=claim,
                    epsilon=epsilon,
                    rows=rows,
                    most=query.magnitude,
                    sign=1 if query.least >= 0 else -1,
                )
        case "avg":
            yield Average(
                name="LM_avg",
                claim=claim,
                epsilon=epsilon,
                rows=rows,
                least=query.least,
                most=query.most,
                continuous=True,
            )
            yield Average(
                name="EM_avg",
                claim=claim,
                epsilon=epsilon,
                rows=rows,
                least=query.least,
                most=query.most,
                continuous=False,
            )
        case "quantile":
            if query.domain:
                yield RankChoice(name="EM_med", claim=claim, epsilon=epsilon, rows=rows, p=query.p, domain=query.domain)
            yield RankMargin("EM_rank", claim, epsilon, rows, query.p)
            yield RankBins("Hist_med", claim, epsilon, rows, query.p)


def decide(decider: Decider, statistics: Any) -> bool:
    """Return the decision, drawn exactly.

    Guarantee: `decider.epsilon`-DP and `decider.rho`-zCDP for units of up to `rows` rows, if `statistics` are those of
    the true table. Everything else in this package about a decider is public.
    """
    return bool(decider.draw(statistics, 1)[0])


def recommend(
    query: Query, *, epsilon: Fraction, synthetic: Histogram, delta: float = 0.05, unit: Fraction | int = 1
) -> tuple[Decider, float, str]:
    """Return the cheapest decider that tells the tau asked for, its effectiveness threshold, and why, in words.

    If none does, it is the one with the smallest threshold; thresholds within 5 % are as good as equal. Of several the
    one with the smallest mean error is taken, over gaps up to 2 tau either way and at equal cost: both errors and
    1 / sqrt(rho) are proportional to 1 / epsilon, so the mean error is multiplied by sqrt(rho). An error below a
    hundredth of delta counts as that. Only public things are looked at. The words have numbers times `unit`.
    """
    choices = candidates(query, epsilon=epsilon, delta=delta)
    thresholds = _thresholds(choices, delta, synthetic)
    able = [name for name, threshold in thresholds.items() if threshold <= query.claim.tau]
    if able:
        least = min(choices[name].rho for name in able)
        thresholds = {name: t for name, t in thresholds.items() if name in able and choices[name].rho == least}
    smallest = min(thresholds.values())
    near = [name for name, threshold in thresholds.items() if threshold <= smallest * _NEAR]
    gaps = [query.claim.tau * Fraction(2 * step, _GAPS) for step in range(-_GAPS, _GAPS + 1)]

    def price(name: str) -> float:
        error = float(profile(choices[name], synthetic, gaps).mean())
        return max(error, delta / 100) * math.sqrt(choices[name].rho)

    best = min(near, key=price) if len(near) > 1 else near[0]
    shown = {name: threshold * float(unit) for name, threshold in thresholds.items()}
    if able:
        words = f"{best} is the cheapest that tells gaps from tau = {_short(shown[best])} at error {delta:g}"
        return choices[best], thresholds[best], words
    return choices[best], thresholds[best], _why(best, near, shown, float(query.claim.tau * unit), delta)


def _thresholds(choices: dict[str, Decider], delta: float, synthetic: Histogram) -> dict[str, float]:
    """Return the threshold of every decider; infinity for one that errs too much at the best threshold in closed form.

    So a search, which takes a while, is made only where it may win.
    """
    closed = (LaplaceTotal, LogisticTotal, Average)
    found = {name: d.effective_tau(delta, synthetic) for name, d in choices.items() if isinstance(d, closed)}
    known = min(found.values(), default=math.inf) * _NEAR
    for name, decider in choices.items():
        if name not in found:
            beaten = 0 < known < math.inf and not tells(decider, Fraction(known), delta, synthetic)
            found[name] = math.inf if beaten else decider.effective_tau(delta, synthetic)
    return found


def _why(best: str, near: list[str], thresholds: dict[str, float], tau: float, delta: float) -> str:
    if thresholds[best] == math.inf:
        return f"no decider tells any gap at error {delta:g} for this epsilon; {best} errs least at the same cost"
    others = ", ".join(f"{name} {_short(each)}" for name, each in thresholds.items() if name not in near)
    words = f"{best} tells gaps from tau = {_short(thresholds[best])} at error {delta:g}"
    words += (
        f", the smallest of all ({others})" if others and len(near) == 1 else f" (beside {others})" if others else ""
    )
    ties = ", ".join(f"{name} {_short(thresholds[name])}" for name in near if name != best)
    if ties:
        words += f"; {ties} is as good, but errs more at the same cost, or costs more"
    if tau < thresholds[best]:
        words += f"; the tau asked for, {_short(tau)}, is below that: expect more errors"
    return words


def _short(tau: float) -> str:
    return "more" if tau == math.inf else f"{tau:.4g}"
