"""Where a synthetic table holds and where it does not: a spread of queries from the policy, verified within a budget.

What is asked depends on the policy and on the synthetic table only. Each query is verified like any other, so every
decision is charged and stored before it is told.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from planner.basics.errors import BadValue, BudgetExceeded, LedgerFailed, Refusal, SourceFailed, UnknownTable
from planner.basics.limits import MIN_EPSILON
from planner.calls.call import written
from planner.calls.verify.verify import DELTA, Verdict, Verification
from planner.duck.quoting import quoted
from planner.policy.domain import Domain
from planner.session import Session
from planner.shared import Shared

MAX_BARS = 48
"""Most groups of one proposed query."""

TAU = 0.05

RANGES = 12
"""Into about so many ranges a long column is cut."""

PAIRS = 12
"""Most pairs of columns."""

Step = Callable[[int, int, str], None]
"""Is told how many queries are done, of how many, and which is next."""


@dataclass(frozen=True)
class Proposal:
    """One query on a synthetic table, about one column or two.

    kind: count, sum, avg or median. scale: what a relative tau is a part of; 0 for the answer itself.
    """

    kind: str
    columns: tuple[str, ...]
    sql: str
    scale: float = 0.0

    @property
    def title(self) -> str:
        over = " × ".join(self.columns)
        return f"rows by {over}" if self.kind == "count" else f"{self.kind} of {over}"


@dataclass(frozen=True)
class Finding:
    """What came out of a proposal: its verdicts at one tau, what was charged, or why it was refused."""

    proposal: Proposal
    tau: float | None = None
    verdicts: tuple[Verdict, ...] = ()
    cost: Fraction = Fraction(0)
    refused: str | None = None

    @property
    def holds(self) -> int:
        return sum(verdict.decision is True for verdict in self.verdicts)

    @property
    def decided(self) -> int:
        return sum(verdict.decision is not None for verdict in self.verdicts)


@dataclass(frozen=True, kw_only=True)
class Fidelity:
    """All findings about a synthetic table: epsilon in all and for each query, tau as a part of an answer."""

    copy: str
    original: str
    epsilon: float
    each: float
    tau: float
    delta: float
    findings: tuple[Finding, ...]

    @property
    def cost(self) -> Fraction:
        """Return the rho newly charged to one person, at most."""
        return sum((finding.cost for finding in self.findings), Fraction(0))

    @property
    def holds(self) -> int:
        return sum(finding.holds for finding in self.findings)

    @property
    def decided(self) -> int:
        return sum(finding.decided for finding in self.findings)

    @property
    def refused(self) -> int:
        return sum(finding.refused is not None for finding in self.findings)

    def of_column(self, column: str) -> list[Finding]:
        """Return the findings about one column alone."""
        return [finding for finding in self.findings if finding.proposal.columns == (column,)]

    @property
    def columns(self) -> list[str]:
        singles = (f.proposal.columns[0] for f in self.findings if len(f.proposal.columns) == 1)
        return list(dict.fromkeys(singles))

    @property
    def compared(self) -> str | None:
        """Return which rows of both tables were compared, if not all: the same ones for every query."""
        return next((verdict.compared for finding in self.findings for verdict in finding.verdicts), None)

    @property
    def pairs(self) -> list[Finding]:
        return [finding for finding in self.findings if len(finding.proposal.columns) == 2]


def fidelity(
    session: Session,
    table: str,
    *,
    epsilon: float,
    tau: float = 0.05,
    delta: float = DELTA,
    on_step: Step | None = None,
) -> Fidelity:
    """Return how far a synthetic table can be trusted, query by query.

    All decisions about one person together are epsilon-DP: each query gets an equal part, and its groups are
    disjoint. A query's tau is the part `tau` of its answer or, where that can't be told, the smallest tau that can,
    in a true table of as many rows as the synthetic one where nothing tells how many it has.
    """
    gate = session.gate
    found = gate.policy.tables.get(table)
    known = [name for name, each in gate.policy.tables.items() if each.synthetic_of is not None]
    if found is None or found.synthetic_of is None:
        hint = f"there are: {', '.join(known)}" if known else "declare one in the policy, with synthetic_of"
        raise UnknownTable(f"there is no synthetic table {table}", hint=hint)
    proposals = propose(gate, table)
    each = math.floor(epsilon / len(proposals) * 1e9) / 1e9
    if not each >= MIN_EPSILON:
        raise BadValue(
            f"epsilon = {epsilon:g} is too little for {len(proposals)} queries", hint="for example: --epsilon 0.5"
        )
    findings = []
    for number, proposal in enumerate(proposals):
        if on_step is not None:
            on_step(number, len(proposals), proposal.title)
        findings.append(_finding(session, proposal, each, tau, delta))
    return Fidelity(
        copy=table,
        original=found.synthetic_of,
        epsilon=epsilon,
        each=each,
        tau=tau,
        delta=delta,
        findings=tuple(findings),
    )


def _finding(session: Session, proposal: Proposal, epsilon: float, tau: float, delta: float) -> Finding:
    try:
        shown = _verified(session, proposal.sql, epsilon, delta, tau=1.0, explain=True)
        wanted = _tau(proposal, shown.verdicts, tau)
        if wanted is None:
            return Finding(proposal, refused="no tau can be told with so small an epsilon")
        found = _verified(session, proposal.sql, epsilon, delta, tau=wanted, explain=False)
    except (BudgetExceeded, LedgerFailed, SourceFailed):
        raise  # the others would end in the same way; what was decided is stored, and free the next time
    except Refusal as refused:
        return Finding(proposal, refused=refused.message)
    return Finding(proposal, wanted, found.verdicts, found.cost)


def _verified(session: Session, sql: str, epsilon: float, delta: float, *, tau: float, explain: bool) -> Verification:
    text = written("verify", sql, tau=tau, epsilon=epsilon, delta=delta, explain=explain)
    result = session.execute(text)
    return Verification.of([column.name for column in result.columns], result.rows, result.cost)


def _tau(proposal: Proposal, verdicts: Sequence[Verdict], part: float) -> float | None:
    """Return a part of the largest answer, or of the scale; or the smallest tau that can be told, if that is larger."""
    answers = [abs(verdict.synthetic) for verdict in verdicts if verdict.synthetic is not None]
    least = [verdict.least_tau for verdict in verdicts if verdict.decider is not None]
    if not answers or None in least:
        return None
    wanted = max(part * (proposal.scale or max(answers)), *(tau or 0.0 for tau in least), 0.0)
    return float(f"{math.ceil(wanted * 1000) / 1000:.6g}") if wanted > 0 else None


# --- what is proposed --------------------------------------------------------------------------------------


def propose(gate: Shared, table: str) -> list[Proposal]:
    """Return queries about every column of a synthetic table that its original's domain makes askable."""
    copy = gate.policy.tables[table]
    assert copy.synthetic_of is not None
    there = gate.catalog.types[table]
    columns = {
        name: column.domain
        for name, column in gate.policy.tables[copy.synthetic_of].columns.items()
        if name in there and column.domain is not None and not column.hidden
    }
    found = [proposal for name, domain in columns.items() for proposal in _single(table, name, domain)]
    return [*found, *itertools.islice(_pairs(table, columns), PAIRS)]


def _single(table: str, name: str, domain: Domain) -> Iterator[Proposal]:
    """Yield the marginal of a column, and for numbers its sum, its average and its median."""
    key = _key(name, domain)
    if key is not None:
        sql = f"SELECT {key} AS {quoted(name)}, count(*) AS n FROM {table} GROUP BY 1"
        yield Proposal("count", (name,), sql)
    if not domain.numeric or not domain.ordered:
        return
    width = float(domain.high) - float(domain.low)  # type: ignore[arg-type] # a numeric grid has numbers for ends
    for kind in ("sum", "avg", "median") if domain.enumerable else ("sum", "avg"):
        sql = f"SELECT {kind}({quoted(name)}) AS answer FROM {table}"
        yield Proposal(kind, (name,), sql, 0.0 if kind == "sum" else width)


def _pairs(table: str, columns: dict[str, Domain]) -> Iterator[Proposal]:
    """Yield pairs of columns with few combinations, those first whose columns were paired least."""
    short = {name: domain for name, domain in columns.items() if not domain.ordered and domain.cells > 1}
    fitting = [
        pair for pair in itertools.combinations(short, 2) if short[pair[0]].cells * short[pair[1]].cells <= MAX_BARS
    ]
    used = dict.fromkeys(short, 0)
    while fitting:
        pair = min(fitting, key=lambda pair: (used[pair[0]] + used[pair[1]], fitting.index(pair)))
        fitting.remove(pair)
        for name in pair:
            used[name] += 1
        keys = ", ".join(quoted(name) for name in pair)
        yield Proposal("count", pair, f"SELECT {keys}, count(*) AS n FROM {table} GROUP BY {keys}")


def _key(name: str, domain: Domain) -> str | None:
    """Return what a column is grouped by: itself if it is short, else ranges named by where they begin."""
    if domain.cells <= MAX_BARS:
        return quoted(name)
    if not domain.enumerable or not domain.ordered:
        return None
    low, high, step = domain.low, domain.high, domain.step
    if domain.type == "integer" and isinstance(low, int) and isinstance(high, int) and isinstance(step, int):
        width = _round_width((high - low) / RANGES, step)
        start = low // width * width
        return f"({quoted(name)} - ({start})) / {width} * {width} + ({start})"
    if domain.type == "float" and isinstance(low, Decimal) and isinstance(high, Decimal):
        wide = (float(high) - float(low)) / RANGES
        return f"{float(low)!r} + floor(({quoted(name)} - ({float(low)!r})) / {wide!r}) * {wide!r}"
    years = (high.year - low.year) if hasattr(high, "year") and hasattr(low, "year") else 0  # type: ignore[union-attr]
    unit = "year" if years > 3 else "month"
    return f"date_trunc('{unit}', {quoted(name)})" if years <= MAX_BARS else None


def _round_width(width: float, step: int) -> int:
    """Return a multiple of the step with one leading digit 1, 2 or 5, at least `width`.

    >>> _round_width(6.1, 1), _round_width(8333.3, 1), _round_width(0.3, 1)
    (10, 10000, 1)
    """
    ten = int(10 ** math.floor(math.log10(max(width, 1))))
    nice = next(ten * digit for digit in (1, 2, 5, 10) if ten * digit >= width)
    return math.ceil(nice / step) * step
