"""The groups of a query on a synthetic table: what is claimed of each, what is known, which decider decides, its cost.

Everything but the draw is public: it depends on the synthetic table, the policy and earlier releases only.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from mechanisms.deciders import deciders
from mechanisms.deciders.claims import Claim, Histogram
from mechanisms.deciders.deciders import Decider
from planner.basics.errors import TooLarge
from planner.basics.limits import MAX_LISTED_VALUES
from planner.calls.call import Row
from planner.calls.verify.synthetic import Subject
from planner.cells.costs import Cost, constant, simplified, to_units
from planner.cells.workspace import Floats
from planner.history.recall import Recall
from planner.ledger.accounts import Release
from planner.ledger.kinds import Kind
from planner.plans import wording
from planner.plans.release import versioned
from planner.questions import body
from planner.questions.statistic import Asked, Ranked, Summed
from planner.sources.measure import Meter
from planner.sql.aggregates import AggregateKind

AUTO, FREE = "auto", "free"
GAPS = (0.0, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0)
"""True gaps, in parts of tau, for which the probability of a wrong decision is told."""

SIZE_DOUBT = 1e-9
"""How probably a table has fewer rows than earlier releases are taken to tell."""


@dataclass(frozen=True, kw_only=True)
class VerifyArguments:
    """The arguments: tau as a number or as a part of the answer, epsilon for each decision, the error delta."""

    tau: Fraction
    relative: bool
    epsilon: Fraction
    decider: str
    delta: float
    explain: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """One group: what is claimed of it, and who decides; a claim is in integers of the grid, all else in its own unit.

    decider: None where nothing has to be released. settled: what is known without; None if nothing can be told.
    effective_tau holds for at least `least_rows` true rows, alike for as many as the synthetic table has.
    """

    values: Histogram
    synthetic: Fraction | None
    tau: Fraction | None
    why: str = ""
    claim: Claim | None = None
    decider: Decider | None = None
    effective_tau: float | None = None
    settled: bool | None = None
    p: Fraction = Fraction(1, 2)
    least_rows: int = 0
    alike: float | None = None
    provided: str | None = None

    @property
    def name(self) -> str | None:
        return self.decider.name if self.decider is not None else None if self.settled is None else FREE

    @cached_property
    def wrong(self) -> list[tuple[Fraction, float]]:
        """Return (true gap, probability of a wrong decision), the worse of a gap upwards and downwards, on the grid.

        It is the largest for any number of rows that the true table may have.
        """
        if self.decider is None or self.claim is None:
            return []
        gaps = [Fraction(part).limit_denominator(10) * self.claim.tau for part in GAPS]
        both = [*gaps, *(-gap for gap in gaps)]
        worst = deciders.at_worst(self.decider, self.values, both, rows=self.least_rows, p=self.p)
        doubt = SIZE_DOUBT if self.least_rows else 0.0
        chances = np.minimum(worst.reshape(2, -1).max(axis=0) + doubt, 1.0)
        return list(zip(gaps, chances.tolist(), strict=True))


def claims_of(about: Subject, wish: VerifyArguments) -> list[Case]:
    """Return what is claimed of every group. Depends on the synthetic table and the policy only."""
    asked = about.asked
    _, groups = asked.counted
    possible = np.bincount(groups, minlength=asked.groups) > 0
    found = []
    for group, values in enumerate(about.exact.histograms(asked)):
        answer = _answer(asked, values)
        if answer is None:
            found.append(Case(values=values, synthetic=None, tau=None, why="the synthetic table has no rows here"))
            continue
        synthetic = answer * asked.unit
        tau = wish.tau * abs(synthetic) if wish.relative else wish.tau
        if not possible[group]:
            found.append(
                Case(
                    values=values,
                    synthetic=synthetic,
                    tau=tau,
                    why="no row can count here, so the answer is 0",
                    settled=True,
                )
            )
        elif isinstance(asked, Summed) and asked.kind != AggregateKind.COUNT and not asked.most:
            found.append(
                Case(
                    values=values, synthetic=synthetic, tau=tau, why="every value is 0, so the answer is", settled=True
                )
            )
        elif not tau:
            found.append(
                Case(
                    values=values,
                    synthetic=synthetic,
                    tau=None,
                    why="a percentage of 0 is nothing: give tau as a number",
                )
            )
        else:
            found.append(Case(values=values, synthetic=synthetic, tau=tau, claim=Claim(answer, tau / asked.unit)))
    return found


def with_known(asked: Asked, cases: Sequence[Case], delta: float, recall: Recall | None) -> list[Case]:
    """Return the cases with what earlier releases tell, at an error of at most delta."""
    if recall is None or not isinstance(asked, Summed):
        return list(cases)
    values, blocks = recall.estimates((asked.groups, len(asked.question.units)))
    units, found = asked.question.units, []
    for group, case in enumerate(cases):
        known = None
        if case.claim is not None and not np.isnan(values[group]).any():
            known = _told(asked, case.claim, values[group] / units, blocks[group] / np.outer(units, units), delta)
        if known is None:
            found.append(case)
        else:
            why = f"earlier releases tell it: {_releases(recall)}"
            found.append(replace(case, why=why, settled=known[0], effective_tau=known[1] * float(asked.unit)))
    return found


def _answer(asked: Asked, values: Histogram) -> Fraction | None:
    """Return the answer on the synthetic table in integers of the grid, as the true one is read; None if it is NULL.

    A quantile is the ceil(p n)-th value, and lies between none: that is what deciders ask of the true table.
    """
    if asked.kind == AggregateKind.COUNT:
        return Fraction(values.rows)
    if asked.kind == AggregateKind.SUM:
        return Fraction(values.total)
    if not values.rows:
        return None
    if not isinstance(asked, Ranked):
        return Fraction(values.total, values.rows)
    return Fraction(values.quantile(asked.p))


def _is_between(asked: Asked, values: Histogram) -> bool:
    """Return whether SQL has an answer between two values of the synthetic table."""
    if not isinstance(asked, Ranked) or not asked.question.aggregate.continuous or not values.rows:
        return False
    place = asked.p * (values.rows - 1)
    ends = np.cumsum(values.counts)
    low, high = (
        int(values.values[np.searchsorted(ends, at, side="right")]) for at in (math.floor(place), math.ceil(place))
    )
    return low != high


def with_decider(about: Subject, wish: VerifyArguments, case: Case) -> Case:
    """Return the case with its decider: the one that was asked for, or the one that tells most."""
    assert case.claim is not None
    asked, unit = about.asked, float(about.asked.unit)
    query = _query(about, wish, case.claim)
    like = case.values.resized(case.least_rows, asked.p) if case.least_rows else case.values
    try:
        if wish.decider == AUTO:
            decider, tau, why = deciders.recommend(
                query, epsilon=wish.epsilon, synthetic=like, delta=wish.delta, unit=asked.unit
            )
        else:
            decider = deciders.candidates(query, epsilon=wish.epsilon, delta=wish.delta)[wish.decider]
            tau, why = decider.effective_tau(wish.delta, like), "asked for"
        alike = tau if like is case.values else decider.effective_tau(wish.delta, case.values)
    except OverflowError:
        raise TooLarge(
            f"the values of {asked.kind} are too large for so small an epsilon",
            hint="give a larger epsilon, or a coarser step in the policy",
            span=about.span,
        ) from None
    if "rows" in decider.depends_on and not case.least_rows:
        tau, why = math.inf, f"{why}; {_unknown_size(about, case.values.rows)}"
    provided = _provided(about, decider, case.provided)
    return replace(
        case, p=asked.p, decider=decider, effective_tau=tau * unit, why=why, alike=alike * unit, provided=provided
    )


def _unknown_size(about: Subject, rows: int) -> str:
    original, copy = about.original.name, about.copy.name
    return (
        f"that is for as many rows as {copy} has, {rows:,}, and of {original} nothing released tells how many count: "
        "effective_tau and wrong are for the worst case, until they are counted"
    )


def _provided(about: Subject, decider: Decider, size: str | None) -> str | None:
    """Return in words under which condition the errors are as stated; None if they are so whatever the true table."""
    words = [size] if size is not None and "rows" in decider.depends_on else []
    if "spread" in decider.depends_on:
        words.append(f"values in {about.original.name} are spread as in {about.copy.name}")
    return ", and ".join(words) or None


def _query(about: Subject, wish: VerifyArguments, claim: Claim) -> deciders.Query:
    rows, asked = about.original.max_rows_per_unit, about.asked
    if isinstance(asked, Ranked):
        listed = wish.decider == "EM_med" or len(asked.values) <= MAX_LISTED_VALUES
        domain = tuple(asked.values.tolist()) if listed else ()
        return deciders.Query(kind="quantile", claim=claim, rows=rows, p=asked.p, domain=domain)
    if asked.kind == AggregateKind.COUNT:
        return deciders.Query(kind="count", claim=claim, rows=rows)
    least, most = asked.bounds
    kind: Any = asked.kind
    return deciders.Query(kind=kind, claim=claim, rows=rows, least=least, most=most)


# --- what earlier releases tell ----------------------------------------------------------------------------


def _told(asked: Summed, claim: Claim, estimate: Floats, covariance: Floats, delta: float) -> tuple[bool, float] | None:
    """Return whether what is known settles a claim, and how, with the tau that it could tell; None if it does not.

    The claim holds if two numbers are positive: q - low and high - q, for an average sum - low n and high n - sum.
    Both are linear in what is known, with Gaussian noise. At least z deviations above 0 is positive beyond doubt.
    """
    size = len(estimate)
    rows = np.zeros(size) if asked.kind == AggregateKind.SUM else np.eye(size)[0]
    total = asked.scale * np.eye(size)[-1] + asked.shift * rows
    forms, offsets = [], []
    for sign, end in ((1, float(claim.low)), (-1, float(claim.high))):
        forms.append(sign * (total - end * rows) if asked.kind == AggregateKind.AVG else sign * total)
        offsets.append(0.0 if asked.kind == AggregateKind.AVG else -sign * end)
    margins = [float(form @ estimate) + offset for form, offset in zip(forms, offsets, strict=True)]
    deviations = [math.sqrt(max(float(form @ covariance @ form), 0.0)) for form in forms]
    # A wrong yes needs one number to be wrong by z deviations, a wrong no either of the two.
    sure, doubt = (NormalDist().inv_cdf(1 - level) for level in (delta, delta / 2))
    least = _least(float(rows @ estimate), float(rows @ covariance @ rows)) if asked.kind == AggregateKind.AVG else 1
    half = sure * max(deviations) / least if least else math.inf
    pairs = list(zip(margins, deviations, strict=True))
    if all(margin >= sure * deviation and margin > 0 for margin, deviation in pairs):
        return True, half
    if any(margin <= -doubt * deviation for margin, deviation in pairs):
        return False, half
    return None


def sized(asked: Asked, cases: Sequence[Case], recall: Recall | None) -> list[Case]:
    """Return the cases with the fewest rows that the true table has in each, as far as earlier releases tell."""
    if recall is None:
        return list(cases)
    values, blocks = recall.estimates((asked.groups, 1))
    least = [_least(float(n), float(variance)) for n, variance in zip(values.ravel(), blocks.ravel(), strict=True)]
    provided = [
        f"there are at least {n:,} rows, as {_releases(recall)} tell{'s' * (len(recall.releases) == 1)}" for n in least
    ]
    return [
        replace(case, least_rows=n, provided=words if n else None)
        for case, n, words in zip(cases, least, provided, strict=True)
    ]


def _least(estimate: float, variance: float) -> int:
    """Return how many rows there are at least, but with probability SIZE_DOUBT; 0 if nothing is known."""
    if math.isnan(estimate) or math.isnan(variance):
        return 0
    return max(0, math.floor(estimate - NormalDist().inv_cdf(1 - SIZE_DOUBT) * math.sqrt(max(variance, 0.0))))


def _releases(recall: Recall) -> str:
    noun = "release" if len(recall.releases) == 1 else "releases"
    return f"{noun} {wording.ranges(recall.releases)}"


# --- what is released --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decisions of all groups of a query, drawn and stored together; what is known is stored as it is."""

    about: Subject
    wish: VerifyArguments
    version: int
    cases: Sequence[Case]

    @property
    def table(self) -> str:
        return self.about.original.name

    @property
    def paid(self) -> dict[int, Decider]:
        return {group: case.decider for group, case in enumerate(self.cases) if case.decider is not None}

    @property
    def kind(self) -> Kind:
        return Kind.DECISION if self.paid else Kind.SETTLED

    @cached_property
    def cost(self) -> Cost:
        """Return the cost of each group's decider on the cells whose rows count there, and nothing elsewhere."""
        paid = self.paid
        if not paid:
            return constant(0)
        workspace = self.about.asked.question.workspace
        units = np.zeros(self.about.asked.groups, dtype=np.int64)
        for group, decider in paid.items():
            units[group] = to_units(decider.rho)
        cells, groups = self.about.asked.counted
        values = np.zeros(workspace.cells, dtype=np.int64)
        values[cells] = units[groups]
        keys, partitions = tuple(a.key for a in workspace.axes), tuple(a.atoms for a in workspace.axes)
        return simplified(Cost(keys, partitions, values.reshape(workspace.shape)))

    @cached_property
    def digest(self) -> str:
        return digest(self.about, self.wish, self.cases)

    @property
    def key(self) -> str:
        return versioned(self.version, self.digest)

    def draw(self, meter: Meter) -> bytes:
        drawn = meter.decisions(self.about.asked, self.paid) if self.paid else {}
        rows = [
            (drawn.get(group, case.settled), *row)
            for group, (case, row) in enumerate(zip(self.cases, self._public, strict=True))
        ]
        cell, group = self.about.asked.counted
        return body.encode({**body.placed(self.about.asked.question.workspace, cell=cell, group=group), "rows": rows})

    @cached_property
    def _public(self) -> list[Row]:
        """Return all columns but keys and decision."""
        return [self._row(case) for case in self.cases]

    def _row(self, case: Case) -> Row:
        synthetic, tau = (None if value is None else float(value) for value in (case.synthetic, case.tau))
        epsilon, rho = (0.0, 0.0) if case.decider is None else (float(self.wish.epsilon), float(case.decider.rho))
        ends = (None, None) if synthetic is None or tau is None else (synthetic - tau, synthetic + tau)
        least = _finite(case.effective_tau)
        return (
            case.name,
            synthetic,
            *ends,
            tau,
            epsilon,
            rho,
            least,
            self.wish.delta,
            wrong(case, self.about.asked.unit),
            case.why,
            self._compared(case),
            case.provided if case.decider is not None else None,
            _finite(case.alike),
        )

    def _compared(self, case: Case) -> str | None:
        """Return in words what is compared, where a plain SELECT of the synthetic table would give another number."""
        whole = "a value that occurs, where a plain SELECT has its answer between two"
        words = [self.about.compared, whole if _is_between(self.about.asked, case.values) else None]
        return "; ".join(text for text in words if text is not None) or None

    def undecided(self) -> list[Row]:
        """Return the rows of the function before anything is spent."""
        pairs = zip(self.about.groups, self._public, strict=True)
        return [(*keys, None, *row) for keys, row in pairs]

    def known(self) -> list[Row]:
        """Return the rows of the function if nothing has to be released."""
        triples = zip(self.about.groups, self.cases, self._public, strict=True)
        return [(*keys, case.settled, *row) for keys, case, row in triples]


def digest(about: Subject, wish: VerifyArguments, cases: Sequence[Case]) -> str:
    """Return what makes two decisions the same: the question, the claims, epsilon, delta, and who decides."""
    claims = [None if case.claim is None else [str(case.claim.synthetic), str(case.claim.tau)] for case in cases]
    text = json.dumps(["decision 1", about.asked.question.digest, claims, str(wish.epsilon), wish.decider, wish.delta])
    return hashlib.sha256(text.encode()).hexdigest()


def stored_rows(about: Subject, stored: Release, *, width: int) -> list[Row]:
    """Return the rows of the function as they were stored; what was not told yet at that time is NULL."""
    rows = body.decode(stored.body)["rows"]
    return [(*keys, *row, *(None,) * (width - len(row))) for keys, row in zip(about.groups, rows, strict=True)]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def wrong(case: Case, unit: Fraction) -> str | None:
    """Return [[true gap, probability of a wrong decision], …] as JSON."""
    if not case.wrong:
        return None
    return json.dumps([[_rounded(float(gap) * float(unit)), _rounded(chance)] for gap, chance in case.wrong])


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
