"""What a plan costs and how accurate it is, for people and for programs; it depends on nothing secret."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any

from sqlglot import exp

from planner.basics.limits import MAX_ASKED
from planner.cells.costs import rho_of
from planner.duck.relations import SCHEMA
from planner.history.recall import Recall
from planner.history.slices import Slices
from planner.ledger.accounts import Caps, Quote
from planner.plans import presence
from planner.plans.marginals import MarginalTask
from planner.plans.plan import Part, Plan
from planner.plans.release import LinearTask, QuantileTask
from planner.plans.settings import Settings
from planner.plans.task import Task
from planner.plans.wording import line, number, ranges, used
from planner.sql.aggregates import Returns
from planner.sql.query import BASE


@dataclass(frozen=True, eq=False, kw_only=True)
class Explanation:
    """The price of a query before it is paid; what takes time to say is worked out when it is asked for.

    rho: what the dearest cell would newly pay; rho_before, rho_after: what the population has and would have spent.
    """

    plan: Plan = field(repr=False)
    settings: Settings = field(repr=False)
    rho: Fraction
    rho_before: Fraction
    rho_after: Fraction
    budget: Fraction
    account_before: Fraction
    account_after: Fraction
    account: Fraction
    quotes: tuple[Quote, ...] = ()

    @property
    def path(self) -> str:
        """Return exact (no protected table), free (known already), join or marginals (what is missing), or direct."""
        paths = {task.path for task in self.plan.tasks}
        found = (path for path in ("direct", "join", "marginals", "free") if path in paths)
        return next(found, "free" if self.plan.parts else "exact")

    @property
    def repeatable(self) -> bool:
        """Return whether the same statement, asked again on the same history by anyone, has the same answer."""
        return True

    @property
    def tables(self) -> frozenset[str] | None:
        """Return the protected tables whose history decides the answer; None if anything in the ledger may."""
        if any(table.db == SCHEMA for table in self.plan.compiled.post.find_all(exp.Table)):
            return None
        return frozenset(part.measured.table.name for part in self.plan.parts)

    @property
    def confidence(self) -> float:
        return self.settings.confidence

    @cached_property
    def errors(self) -> dict[str, float | None]:
        """Return the half-width of each output column that is an aggregate; None where it depends on the answer."""
        return _errors(self.plan, self.settings)

    @property
    def releases(self) -> tuple[int, ...]:
        """Return the numbers of the earlier releases that are used."""
        return tuple(sorted({number for task in self.plan.tasks for number in task.releases}))

    @cached_property
    def known(self) -> float:
        """Return the part of the information that earlier releases hold; of several measurements, the least."""
        return min((task.share for task in self.plan.tasks), default=1.0)

    @cached_property
    def ways(self) -> dict[str, float]:
        """Return what the ways that were looked at would charge the dearest cell, if one thing only is measured."""
        return dict(self.plan.tasks[0].ways) if len(self.plan.tasks) == 1 else {}

    @cached_property
    def lines(self) -> tuple[str, ...]:
        """Return the explanation for people."""
        return tuple(_lines(self.plan, self, self.settings))

    def as_json(self) -> dict[str, Any]:
        numbers = ("rho", "rho_before", "rho_after", "budget", "account_before", "account_after", "account", "known")
        found: dict[str, Any] = {name: float(getattr(self, name)) for name in numbers}
        return found | {
            "path": self.path,
            "errors": self.errors,
            "confidence": self.confidence,
            "releases": list(self.releases),
            "ways": self.ways,
            "plan": list(self.lines),
        }


def explanation(plan: Plan, *, settings: Settings, rho: Fraction, quotes: Sequence[Quote], caps: Caps) -> Explanation:
    """Return the explanation of a plan, given what the ledger says of its charges."""
    tightest = max(quotes, key=lambda quote: quote.after, default=None)
    spent = (tightest.spent, tightest.after, tightest.account_spent, tightest.account_after) if tightest else (0,) * 4
    before, after, account_before, account_after = map(rho_of, spent)
    return Explanation(
        plan=plan,
        settings=settings,
        rho=rho,
        rho_before=before,
        rho_after=after,
        budget=rho_of(caps.population),
        account_before=account_before,
        account_after=account_after,
        account=rho_of(max(tightest.account_cap(caps), 0) if tightest else caps.account),
        quotes=tuple(quotes),
    )


def _errors(plan: Plan, settings: Settings) -> dict[str, float | None]:
    """Return the half-width of every output column that is an aggregate as it stands; None for all others."""
    found: dict[str, float | None] = {}
    for name, projection in zip(plan.compiled.names, plan.compiled.post.selects, strict=False):
        column = projection.unalias()
        aggregate = _aggregate_of(column, plan) if isinstance(column, exp.Column) else None
        if not (isinstance(column, exp.Column) and column.name.startswith("k") and column.table.startswith("__m")):
            found[name] = aggregate[0].error(aggregate[1], settings) if aggregate else None
    return found


def _aggregate_of(column: exp.Column, plan: Plan) -> tuple[Part, int] | None:
    part = next((p for p in plan.parts if p.measured.name == column.table), None)
    if part is None or not column.name[1:].isdigit() or column.name[0] != "a":
        return None
    return part, int(column.name[1:])


# --- for people --------------------------------------------------------------------------------------------


def _lines(plan: Plan, found: Explanation, settings: Settings) -> Iterator[str]:
    if not plan.parts:
        yield "Exact: no protected table is read"
        return
    for part in plan.parts:
        yield _title(part)
        yield line("accuracy", "; ".join(_accuracies(part, settings)))
        yield line("measured on", _measured(part))
        if (groups := _groups(part, settings)) is not None:
            yield line("groups", groups)
        for task in part.tasks:
            yield from _task_lines(task)
        yield from _cut_note(part)
    if found.path == "free":
        yield line("cost", "nothing: already known")
    else:
        yield line("cost", f"ρ {float(found.rho):.3g} on the dearest cell")
    yield line("budget", used(found.rho_before, found.rho_after, found.budget))
    yield line("your account", used(found.account_before, found.account_after, found.account))


def _title(part: Part) -> str:
    kinds = dict.fromkeys(aggregate.kind for aggregate in part.measured.aggregates)
    what = ", ".join(kinds) or "groups"
    keys = ", ".join(_shown(key) for key in part.measured.keys)
    rows = sum(part.placement.group_counts)
    return f"Noisy {what} of {part.measured.table.name}{f' by {keys}' if keys else ''} ({number(rows, 'row')})"


def _shown(node: exp.Expr) -> str:
    """Return an expression as an analyst would write it."""

    def plain(part: exp.Expr) -> exp.Expr:
        if isinstance(part, exp.Column) and part.table == BASE:
            return exp.column(part.name)
        return exp.Div(this=part.left, expression=part.right) if isinstance(part, exp.IntDiv) else part

    return node.copy().transform(plain).sql("postgres")


def _accuracies(part: Part, settings: Settings) -> Iterator[str]:
    level = f"{settings.confidence:.0%}"
    for place, aggregate in enumerate(part.measured.aggregates):
        error = part.error(place, settings)
        if error is None:
            yield f"{aggregate.kind}: depends on the size of the group"
        elif aggregate.traits.returns is Returns.VALUE:
            yield f"quantile ± {error:,.4g} ranks at {level}"
        else:
            yield f"{aggregate.kind} ± {error:,.4g} at {level}"


def _measured(part: Part) -> str:
    axes = part.placement.workspace.axes
    sizes = " × ".join(f"{axis.column} {axis.size}" for axis in axes)
    return f"{number(part.placement.workspace.cells, 'cell')}{f' ({sizes})' if axes else ''}"


def _task_lines(task: Task) -> Iterator[str]:
    if task.releases:
        noun = "release" if len(task.releases) == 1 else "releases"
        yield line("known already", f"{task.share:.0%} of the information: {noun} {ranges(task.releases)}")
    if task.cost is not None:
        yield line("still to learn", f"{task.said}, ρ {float(rho_of(task.cost.highest)):.3g}")
    if isinstance(task, LinearTask | MarginalTask) and task.cost is not None:
        yield line("why", _why(task))
    if isinstance(task, QuantileTask) and task.cost is not None:
        yield from _prefix_note(task)


def _groups(part: Part, settings: Settings) -> str | None:
    """Return which groups count, if not all of the domain do."""
    count = part.measured.present
    half = None if count is None else part.error(count, settings)
    return presence.explained(part.measured, part.placement, settings, half)


def _why(task: LinearTask | MarginalTask) -> str:
    """Return why a way was taken, and what the others would cost."""
    ways = {name: f"{name} ρ {rho:.3g}" for name, rho in task.ways.items()}
    if isinstance(task, MarginalTask) and not task.told and len(task.sets) == 1:
        return "measured afresh: nothing released so far tells about it"
    if isinstance(task, MarginalTask):
        return f"whole marginals share what they have in common ({', '.join(ways.values())})"
    if task.path == "join" and task.cost is not None and task.ways.get("even") == float(rho_of(task.cost.highest)):
        return f"it charges the dearest cell least, as a round would ({', '.join(ways.values())})"
    if task.path == "join" and task.reached is not None:
        return f"each group is told what it lacks ({', '.join(ways.values())})"
    if task.path == "join":
        return f"the join charges all cells together least ({', '.join(ways.values())})"
    if "join" in ways or "top-up" in ways:
        return f"measured afresh: the join would save little, or burden one cell more ({', '.join(ways.values())})"
    if task.recall is None:
        return "measured afresh: nothing released so far can be brought to it"
    return "measured afresh: nothing released so far tells about it"


def _cut_note(part: Part) -> Iterator[str]:
    """Say when a problem was too large to be solved as one."""
    paid = [task for task in part.tasks if isinstance(task, LinearTask) and task.cost is not None]
    if len(paid) > 1:
        yield line("cut", f"into {len(paid)} problems, since one would be too large: fewer answers may cost less")
    for task in part.tasks:
        if isinstance(task, LinearTask) and isinstance(task.recall, Slices) and task.releases:
            count = number(len(task.recall.slices), "slice")
            yield line("cut", f"into {count} of its cells, since one problem would be too large{_across(task.recall)}")
        elif isinstance(task, LinearTask) and isinstance(task.recall, Recall) and task.recall.pieces > 1:
            pieces = task.question.groups if task.question.groups > 1 else task.recall.pieces
            yield line(
                "cut", f"into {number(pieces, 'piece')}, since more than {MAX_ASKED} answers are too many for one"
            )


def _across(slices: Slices) -> str:
    return "" if slices.is_all else ": what was released across them is left out"


def _prefix_note(task: QuantileTask) -> Iterator[str]:
    """Say when noisy counts of all prefixes would give this quantile, and every other, for less.

    Prefix counts of n values at variance v cost at most (1 + ln(n) / pi)^2 / (2 v) of rho.
    """
    size, own = task.question.size, float(task.draws.rho)
    deviation = task.draws.rank_error / NormalDist().inv_cdf(0.975)
    prefix = (1 + math.log(max(size, 1)) / math.pi) ** 2 / (2 * deviation**2)
    prefix *= task.question.workspace.table.max_rows_per_unit**2
    if prefix < own:
        yield line("note", f"noisy counts of all {size} prefixes would cost ρ {prefix:.3g} and give every quantile")
    elif prefix < 3 * own:
        few = int(prefix / own) + 1
        yield line(
            "note",
            f"for {few} or more quantiles, noisy prefix counts (ρ {prefix:.3g} for all) would cost less",
        )
