"""What a plan costs and how accurate it is, for people and for programs; it depends on nothing secret."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
from sqlglot import exp

from planner.accounts import Caps, Quote
from planner.costs import rho_of
from planner.measured import BASE, Aggregate
from planner.plan import DistinctTask, LinearTask, Part, Plan, QuantileTask, Task
from planner.settings import Settings

LABEL = 17
"""Width of the left column of EXPLAIN."""


@dataclass(frozen=True)
class Explanation:
    """The price of a query before it is paid.

    rho: what the dearest cell would newly pay; rho_before, rho_after: what the population has and would have spent.
    path: exact (no protected table), free (known already) or direct (newly measured).
    errors: half-width at the session's confidence for each output column; None where it depends on the answer.
    """

    rho: Fraction
    rho_before: Fraction
    rho_after: Fraction
    path: str
    errors: dict[str, float | None]
    lines: tuple[str, ...]
    budget: Fraction
    account_before: Fraction
    account_after: Fraction
    account: Fraction
    confidence: float
    releases: tuple[int, ...]
    quotes: tuple[Quote, ...] = ()

    def as_json(self) -> dict[str, Any]:
        numbers = ("rho", "rho_before", "rho_after", "budget", "account_before", "account_after", "account")
        found: dict[str, Any] = {name: float(getattr(self, name)) for name in numbers}
        return found | {
            "path": self.path,
            "errors": self.errors,
            "confidence": self.confidence,
            "releases": list(self.releases),
            "plan": list(self.lines),
        }


def explanation(plan: Plan, *, settings: Settings, rho: Fraction, quotes: Sequence[Quote], caps: Caps) -> Explanation:
    """Return the explanation of a plan, given what the ledger says of its charges."""
    path = "exact" if not plan.parts else "direct" if plan.paid else "free"
    tightest = max(quotes, key=lambda quote: quote.after, default=None)
    spent = (tightest.spent, tightest.after, tightest.account_spent, tightest.account_after) if tightest else (0,) * 4
    before, after, account_before, account_after = map(rho_of, spent)
    known = sorted({release.id for part in plan.parts for task in part.tasks for release in task.history})
    found = Explanation(
        rho,
        before,
        after,
        path,
        _errors(plan, settings),
        (),
        rho_of(caps.population),
        account_before,
        account_after,
        rho_of(caps.account),
        settings.confidence,
        tuple(known),
        tuple(quotes),
    )
    return _with_lines(found, tuple(_lines(plan, found, settings)))


def _with_lines(found: Explanation, lines: tuple[str, ...]) -> Explanation:
    return Explanation(**{**vars(found), "lines": lines})


def _errors(plan: Plan, settings: Settings) -> dict[str, float | None]:
    """Return the half-width of every output column that is an aggregate as it stands; None for all others."""
    found: dict[str, float | None] = {}
    for name, projection in zip(plan.compiled.names, plan.compiled.post.selects, strict=False):
        column = projection.unalias()
        aggregate = _aggregate_of(column, plan) if isinstance(column, exp.Column) else None
        if not (isinstance(column, exp.Column) and column.name.startswith("k") and column.table.startswith("__m")):
            found[name] = aggregate_error(*aggregate, settings) if aggregate else None
    return found


def _aggregate_of(column: exp.Column, plan: Plan) -> tuple[Part, int] | None:
    part = next((p for p in plan.parts if p.measured.name == column.table), None)
    if part is None or not column.name[1:].isdigit() or column.name[0] != "a":
        return None
    return part, int(column.name[1:])


def aggregate_error(part: Part, number: int, settings: Settings) -> float | None:
    """Return the largest half-width that an aggregate will have in any group, if it is known beforehand."""
    errors = [_task_error(task, number, part.measured.aggregates[number], settings) for task in part.tasks]
    found = [error for error in errors if error is not None]
    return max(found) if found else None


def _task_error(task: Task, number: int, aggregate: Aggregate, settings: Settings) -> float | None:
    if isinstance(task, LinearTask) and aggregate.kind in ("count", "sum"):
        part = next(recipe.parts[0] for recipe in task.recipes if recipe.aggregate == number)
        each = max(part_ for recipe in task.recipes for part_ in recipe.parts) + 1
        return settings.z * float(np.sqrt(task.known.variances[part::each].max()))
    if isinstance(task, DistinctTask) and task.number == number:
        return settings.z * float(np.sqrt(task.noise.variance))
    if isinstance(task, QuantileTask) and task.number == number:
        return task.draws.rank_error
    return None


# --- for people --------------------------------------------------------------------------------------------


def _lines(plan: Plan, found: Explanation, settings: Settings) -> Iterator[str]:
    if not plan.parts:
        yield "Exact: no protected table is read"
        return
    for part in plan.parts:
        yield _title(part)
        yield _line("accuracy", "; ".join(_accuracies(part, settings)))
        yield _line("measured on", _measured(part))
        for task in part.tasks:
            yield from _task_lines(task)
    if found.path == "free":
        yield _line("cost", "nothing: already known")
    else:
        yield _line("cost", f"ρ {float(found.rho):.3g} on the dearest cell")
    yield _line("budget", _used(found.rho_before, found.rho_after, found.budget))
    yield _line("your account", _used(found.account_before, found.account_after, found.account))


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' if count != 1 else ''}"


def _line(label: str, text: str) -> str:
    return f"  {label:<{LABEL - 2}} {text}"


def _used(before: Fraction, after: Fraction, cap: Fraction) -> str:
    first, last = max(float(before / cap), 0.0), float(after / cap)
    return f"{first:.2%} used" if first == last else f"{first:.2%} used → {last:.2%}"


def _title(part: Part) -> str:
    kinds = dict.fromkeys(aggregate.kind for aggregate in part.measured.aggregates)
    what = ", ".join(kinds) or "groups"
    keys = ", ".join(_shown(key) for key in part.measured.keys)
    rows = sum(part.placement.group_counts)
    return f"Noisy {what} of {part.measured.table.name}{f' by {keys}' if keys else ''} ({_number(rows, 'row')})"


def _shown(node: exp.Expr) -> str:
    """Return an expression as an analyst would write it."""

    def plain(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and part.table == BASE:
            return exp.column(part.name)
        return exp.Div(this=part.left, expression=part.right) if isinstance(part, exp.IntDiv) else part

    return node.copy().transform(plain).sql("postgres")


def _accuracies(part: Part, settings: Settings) -> Iterator[str]:
    level = f"{settings.confidence:.0%}"
    for number, aggregate in enumerate(part.measured.aggregates):
        error = aggregate_error(part, number, settings)
        if error is None:
            yield f"{aggregate.kind}: depends on the size of the group"
        elif aggregate.kind == "quantile":
            yield f"quantile ± {error:,.4g} ranks at {level}"
        else:
            yield f"{aggregate.kind} ± {error:,.4g} at {level}"


def _measured(part: Part) -> str:
    axes = part.placement.workspace.axes
    sizes = " × ".join(f"{axis.column} {axis.size}" for axis in axes)
    return f"{_number(part.placement.workspace.cells, 'cell')}{f' ({sizes})' if axes else ''}"


def _task_lines(task: Task) -> Iterator[str]:
    if task.history:
        yield _line("known already", f"release {', '.join(str(r.id) for r in reversed(task.history))}")
    if task.cost is not None:
        rho = float(rho_of(task.cost.highest))
        yield _line("to be released", f"{_released(task)}, ρ {rho:.3g}")
    if isinstance(task, QuantileTask) and task.cost is not None:
        yield from _prefix_note(task)


def _released(task: Task) -> str:
    if isinstance(task, LinearTask):
        rows = task.question.groups * len(task.measurement.K)
        return _number(rows, "noisy sum")
    if isinstance(task, DistinctTask):
        return _number(task.question.groups, "noisy number") + " of values"
    assert isinstance(task, QuantileTask)
    choices = _number(task.question.groups * len(task.draws.draws), "choice")
    return f"{choices} among {_number(task.question.size, 'value')}"


def _prefix_note(task: QuantileTask) -> Iterator[str]:
    """Say when noisy counts of all prefixes would give this quantile, and every other, for less.

    Prefix counts of n values at variance v cost at most (1 + ln(n) / pi)^2 / (2 v) of rho.
    """
    size, own = task.question.size, float(task.draws.rho)
    deviation = task.draws.rank_error / NormalDist().inv_cdf(0.975)
    prefix = (1 + math.log(max(size, 1)) / math.pi) ** 2 / (2 * deviation**2)
    prefix *= task.question.workspace.table.max_rows_per_unit**2
    if prefix < own:
        yield _line("note", f"noisy counts of all {size} prefixes would cost ρ {prefix:.3g} and give every quantile")
    elif prefix < 3 * own:
        few = int(prefix / own) + 1
        yield _line(
            "note",
            f"for {few} or more quantiles, noisy prefix counts (ρ {prefix:.3g} for all) would cost less",
        )
