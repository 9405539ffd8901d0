"""A planned round, and what analysts are told of it before and after its release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from planner.calls.call import Row
from planner.calls.rounds.model import Deal, RoundPlan, RoundQuery
from planner.calls.rounds.roster import Entry
from planner.plans import wording

SHOWN = 12
"""Of so many queries EXPLAIN tells what another accuracy would change: those for which it changes most."""

RELEASED = {
    "query": "BIGINT",
    "analyst": "VARCHAR",
    "sql": "VARCHAR",
    "asked": "DOUBLE",
    "error": "DOUBLE",
    "rho_alone": "DOUBLE",
    "paid": "DOUBLE",
    "gain": "DOUBLE",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Offer:
    """A round that is planned: its queries, what is released, and who pays what."""

    round: str
    queries: tuple[RoundQuery, ...]
    deal: Deal
    each_alone: Fraction
    versions: Mapping[str, int]
    alone_rho: tuple[float, ...]

    @property
    def entries(self) -> list[Entry]:
        return [query.entry for query in self.queries]

    @property
    def together(self) -> RoundPlan:
        return self.deal.together


def rows_of(found: Offer) -> list[Row]:
    """Return one row for each query of a round."""
    rows: list[Row] = []
    for i, query in enumerate(found.queries):
        entry = query.entry
        paid, gain = found.deal.paid[entry.analyst], found.deal.gains.get(entry.analyst)
        errors = found.together.asked[i], found.together.errors[i]
        rows.append((entry.number, entry.analyst, entry.sql, *errors, found.alone_rho[i], float(paid), gain))
    return rows


def lines_of(found: Offer) -> list[str]:
    """Return what EXPLAIN says of a round: what is released, how little could do, who pays, which targets are dear."""
    line, deal, plan = wording.line, found.deal, found.together
    counts = (
        wording.number(len(deal.paid), "analyst"),
        _queries(len(found.queries)),
        wording.number(sum(query.answers for query in found.queries), "answer"),
    )
    lines = [f"Round {found.round}: {', '.join(counts)}; {deal.mechanism.replace('_', ' ')}"]
    if deal.scale is not None:
        lines.append(
            line(
                "accuracy",
                f"what ρ {float(deal.rho or 0):.3g} buys: errors up to {deal.scale:.3g} times those asked for",
            )
        )
    if plan.releases:
        noun = "release" if len(plan.releases) == 1 else "releases"
        lines.append(line("known already", f"{noun} {wording.ranges(plan.releases)}"))
    if plan.tasks and plan.bound is not None and deal.rho is None:
        gap = max(float(plan.rho) / plan.bound - 1, 0.0) if plan.bound else 0.0
        if gap <= 1:  # else it says nothing
            lines.append(line("how good", f"certified within {_percent(gap)} of the least possible for these targets"))
    if plan.tasks and deal.rho is None:
        ratio = float(found.each_alone / plan.rho)
        times = f", {ratio:.3g} times as much" if ratio > 1.005 else ""
        lines.append(line("one by one", f"ρ {float(found.each_alone):.3g}{times}"))
    for name, paid in deal.paid.items() if len(deal.paid) > 1 else ():
        gain = deal.gains.get(name)
        lines.append(
            line(name[:14], f"pays ρ {float(paid):.3g}" + (f", gains {gain:.2f}× over going alone" if gain else ""))
        )
    return [*lines, *(_sensitivities(found) if deal.rho is None else [])]


def details_of(found: Offer) -> dict[str, Any]:
    """Return the same for programs, in full: of each analyst what they pay and gain, of each query what it changes.

    `saves` and `costs` are the parts of the cost that 10 % more error of a query saves, and 10 % less adds.
    """
    deal, plan = found.deal, found.together
    queries = []
    for i, row in enumerate(rows_of(found)):
        told = dict(zip(RELEASED, row, strict=True))
        told = {name: told[name] for name in ("query", "analyst", "sql", "asked", "error", "rho_alone")}
        queries.append(told | ({} if deal.rho is not None else {"saves": plan.savings[i], "costs": _dearer(plan, i)}))
    return {
        "name": found.round,
        "mechanism": deal.mechanism,
        "bound": plan.bound if deal.rho is None else None,
        "scale": deal.scale,
        "one_by_one": float(found.each_alone),
        "analysts": [
            {"analyst": name, "paid": float(paid), "gain": deal.gains.get(name)} for name, paid in deal.paid.items()
        ],
        "queries": queries,
    }


def _dearer(plan: RoundPlan, query: int) -> float:
    """Return which part of the cost 10 % less error adds: to first order, as the price of the target says."""
    return plan.savings[query] * (0.9**-2 - 1) / (1 - 1.1**-2)


def _sensitivities(found: Offer) -> list[str]:
    """Return what 10 % more or less error would change, for the queries for which that is most."""
    savings = found.together.savings
    order = sorted(range(len(savings)), key=lambda i: -savings[i])
    lines = []
    for i in order[:SHOWN]:
        entry = found.queries[i].entry
        if savings[i] < 5e-4:
            continue
        more, less = entry.wish.scaled(1.1).text, entry.wish.scaled(0.9).text
        saved, dearer = _percent(savings[i]), _percent(_dearer(found.together, i))
        text = f"± {entry.wish.text} by {entry.analyst}: ± {more} saves {saved}, ± {less} costs {dearer} more"
        lines.append(wording.line(found.queries[i].label[:14], text))
    rest = len(savings) - len(lines)
    if lines and rest:
        lines.append(wording.line("others", f"{_queries(rest)}, of which none changes it as much"))
    return lines


def _queries(count: int) -> str:
    return f"{count:,} {'query' if count == 1 else 'queries'}"


def _percent(part: float) -> str:
    return f"{part:.1%}".replace("%", " %")
