"""noisegate.verify: is the answer of a query on a synthetic table within tau of the true one?

The query is compiled a second time, with the original in the place of its copy. So both are read by the same domains,
the true answer only by a decider (mechanisms/deciders/deciders.py), and the synthetic one exactly.

Guarantee: a decision is drawn, charged on the cells whose rows count in its group, and stored, before it is told.
Which decider is taken, its price and its errors depend on the synthetic table, the policy and earlier releases only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

from planner.basics.errors import BadValue, Unsupported
from planner.basics.limits import MAX_EPSILON, MIN_EPSILON
from planner.calls.call import (
    Arguments,
    Caller,
    CallResult,
    Constant,
    Function,
    Parameter,
    PlannedCall,
    Preparing,
    Row,
    Step,
    number,
)
from planner.calls.verify import decisions as each
from planner.calls.verify.decisions import AUTO, FREE, Case, Decisions, VerifyArguments
from planner.calls.verify.synthetic import Subject, subject
from planner.history.recall import Recall
from planner.ledger.accounts import Charge, Release
from planner.plans import wording
from planner.plans.plan import Planner
from planner.questions.linear import Question
from planner.questions.statistic import Ranked, Summed, sizes
from planner.sql.aggregates import AggregateKind

DELTA = 0.05
SHORT_NUMBER = re.compile(r"(?=.?[0-9])[0-9]{0,40}\.?[0-9]{0,40}(e[-+]?[0-9]{1,2})?", re.IGNORECASE)
"""What is read as an exact number: a long exponent alone would take for ever."""

COLUMNS = {
    "decision": "BOOLEAN",
    "decider": "VARCHAR",
    "synthetic": "DOUBLE",
    "low": "DOUBLE",
    "high": "DOUBLE",
    "tau": "DOUBLE",
    "epsilon": "DOUBLE",
    "rho": "DOUBLE",
    "effective_tau": "DOUBLE",
    "delta": "DOUBLE",
    "wrong": "VARCHAR",
    "why": "VARCHAR",
    "compared": "VARCHAR",
    "provided": "VARCHAR",
    "tau_if_alike": "DOUBLE",
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One decision: whether the true answer lies between low and high, strictly.

    group: the keys of its group, by name.
    decision: None if it was only explained, or if there is nothing to decide.
    epsilon, rho: what it costs, or had cost when it was made; 0 if earlier releases told it.
    effective_tau: the smallest tau that can be told at error delta for this epsilon; None if none can be known to be.
    wrong: the probability of a wrong decision for true gaps |q(D) - q(D_s)|; empty if earlier releases told it.
    compared: which rows of both tables, if not all.
    provided: what the true table is taken to be like for effective_tau and wrong; None if they hold whatever it is.
    tau_if_alike: what effective_tau would be if the true table had as many rows as the synthetic one.
    """

    group: Mapping[str, Any]
    decision: bool | None
    decider: str | None
    synthetic: float | None
    low: float | None
    high: float | None
    tau: float | None
    epsilon: float
    rho: float
    effective_tau: float | None
    delta: float
    wrong: Mapping[float, float]
    why: str
    compared: str | None
    provided: str | None
    tau_if_alike: float | None

    @property
    def least_tau(self) -> float | None:
        """The effective tau, or where too little is known of the true table what it would be if that were alike."""
        return self.tau_if_alike if self.effective_tau is None else self.effective_tau


@dataclass(frozen=True)
class Verification:
    """The decisions about one query, one a group; `cost` is the rho newly charged on the dearest cell."""

    verdicts: tuple[Verdict, ...]
    cost: Fraction

    @classmethod
    def of(cls, names: Sequence[str], rows: Sequence[Row], cost: Fraction) -> Verification:
        """Return what the rows of the function tell."""
        return cls(tuple(_verdict(dict(zip(names, row, strict=True))) for row in rows), cost)

    @property
    def decision(self) -> bool | None:
        """Whether the answer holds in every group; None if that is not known of some, and of none that it does not."""
        found = [verdict.decision for verdict in self.verdicts]
        return False if False in found else None if None in found else True


def _verdict(row: dict[str, Any]) -> Verdict:
    own = {name: row.pop(name) for name in COLUMNS}
    wrong = {float(gap): float(chance) for gap, chance in json.loads(own.pop("wrong") or "[]")}
    return Verdict(group=row, wrong=wrong, **own)


# --- the function ------------------------------------------------------------------------------------------


def _wish(arguments: Arguments, about: Subject) -> VerifyArguments:
    tau, relative = _tau(arguments["tau"])
    epsilon = number(arguments, "epsilon", low=MIN_EPSILON, high=MAX_EPSILON, example="0.25")
    delta = number(arguments, "delta", low=1e-9, high=0.499, example="0.05")
    assert epsilon is not None
    return VerifyArguments(
        tau=tau,
        relative=relative,
        epsilon=Fraction(epsilon).limit_denominator(10**12),
        decider=_decider(about, arguments["decider"]),
        delta=DELTA if delta is None else delta,
        explain=bool(arguments["explain"].value),
    )


def _tau(found: Constant) -> tuple[Fraction, bool]:
    text = str(found.value).strip()
    relative = text.endswith("%")
    number = text.removesuffix("%").strip()
    tau = Fraction(number) / (100 if relative else 1) if SHORT_NUMBER.fullmatch(number) else Fraction(0)
    if not 0 < tau < 10**30:
        raise BadValue(
            f"tau must be a positive number below 1e30, or a percentage of the synthetic answer, got {text:.60}",
            hint="for example: tau => 100, or tau => '5%'",
            span=found.span,
        )
    return tau, relative


def columns(gate: Preparing, arguments: Arguments) -> dict[str, str]:
    """Return the columns of the result: the group keys of the query, then what is told of each group."""
    return {**subject(gate, arguments["sql"], taken=COLUMNS).keys, **COLUMNS}


def plan(caller: Caller, arguments: Arguments) -> PlannedCall:
    """Return what a verification would release, and what that costs; read nothing protected."""
    about = subject(caller, arguments["sql"], taken=COLUMNS)
    wish = _wish(arguments, about)
    claimed, table, as_of = each.claims_of(about, wish), about.original, caller.settings.as_of
    if len(claimed) == 1 and claimed[0].synthetic == 0 and claimed[0].tau is None:
        raise BadValue(
            "a percentage of the synthetic answer, which is 0, is nothing",
            hint="give tau as a number",
            span=arguments["tau"].span,
        )
    planner = caller.planner(caller.settings)
    version = planner.version(table.name)
    title = _title(about, wish)
    stored = _stored(caller, each.digest(about, wish, claimed), table.name, version)
    if stored is not None:
        rows = each.stored_rows(about, stored, width=len(COLUMNS))
        if wish.explain:
            rows = [(*row[: len(about.keys)], None, *row[len(about.keys) + 1 :]) for row in rows]
        before = wording.line("known already", f"decided before: release {stored.id}")
        return _free(about, (title, before), (stored.id,), rows)
    recall = None if isinstance(about.asked, Ranked) else _recall(planner, about, about.asked.question)
    known = each.with_known(about.asked, claimed, wish.delta, recall)
    if about.asked.kind in SIZED:
        known = each.sized(about.asked, known, _recall(planner, about, sizes(about.asked)))
    found = [each.with_decider(about, wish, c) if c.claim is not None and c.settled is None else c for c in known]
    task = Decisions(about, wish, version, found)
    lines = (title, *_lines(task))
    if wish.explain:
        return _free(about, lines, (), task.undecided())
    if as_of is not None:
        if task.paid:
            raise BadValue(
                f"release {as_of} and those before it do not tell this decision",
                hint="RESET noisegate.as_of to ask anew",
            )
        return _free(about, lines, (), task.known())
    charges = (
        [Charge(population=table.population, table=table.name, version=version, cost=task.cost)] if task.paid else []
    )
    return PlannedCall(
        alternatives=[charges] if charges else (),
        populations=(table.population,),
        path="direct" if charges else FREE,
        lines=lines,
        releases=recall.releases if recall is not None and any(c.name == FREE for c in found) else (),
        run=partial(_run, caller, task),
    )


def _decider(about: Subject, named: Constant) -> str:
    """Return the full name of a decider, written in full or in short and in whichever case.

    Refuse one that there is not, or that can't decide about the aggregate.
    """
    wanted, asked = str(named.value or AUTO).lower(), about.asked
    signed = isinstance(asked, Summed) and asked.bounds[0] < 0 < asked.bounds[1]
    fitting = [name for name, kind in DECIDERS.items() if kind == asked.kind and not (signed and name == "SVT_sum")]
    names = {short(name).lower(): name for name in reversed(fitting)}  # the first of several is the paper's
    names |= {name.lower(): name for name in (AUTO, *fitting)}
    if wanted in names:
        return names[wanted]
    there = ", ".join(dict.fromkeys([AUTO, *fitting, *map(short, fitting)]))
    if wanted not in {name.lower() for long in DECIDERS for name in (long, short(long))}:
        raise BadValue(f"there is no decider {named.value:.60}", hint=f"there are here: {there}", span=named.span)
    what = "sums of values of both signs" if signed and "svt" in wanted else f"a {asked.kind}"
    raise Unsupported(f"{named.value} can't decide about {what}", hint=f"use one of: {there}", span=named.span)


def short(name: str) -> str:
    """Return what people know a decider by, whatever it decides about.

    >>> short("LM_count"), short("Hist_med")
    ('LM', 'HIST')
    """
    return name.partition("_")[0].upper()


def _stored(caller: Caller, question: str, table: str, version: int) -> Release | None:
    latest = caller.settings.as_of
    found = [r for r in caller.moment.find(question, table=table) if r.version == version]
    return next((r for r in found if latest is None or r.id <= latest), None)


def _recall(planner: Planner, about: Subject, question: Question) -> Recall | None:
    name = about.original.name
    found = planner.history(name).recall(question, version=planner.version(name), as_of=planner.settings.as_of)
    return found if found is not None and found.releases else None


def _free(about: Subject, lines: Sequence[str], releases: tuple[int, ...], rows: Sequence[Row]) -> PlannedCall:
    """Return a plan that releases nothing and stores nothing."""
    told = partial(_tell, CallResult(rows, Fraction(0)))
    return PlannedCall(
        alternatives=(),
        populations=(about.original.population,),
        path=FREE,
        lines=tuple(lines),
        releases=releases,
        run=told,
    )


def _tell(told: CallResult, sql: str, step: Step) -> CallResult:  # noqa: ARG001 - nothing is done
    return told


def _run(caller: Caller, task: Decisions, sql: str, step: Step) -> CallResult:
    (release,), charged = caller.release([task], sql, step)
    return CallResult(each.stored_rows(task.about, release, width=len(COLUMNS)), charged)


# --- for people --------------------------------------------------------------------------------------------


def _title(about: Subject, wish: VerifyArguments) -> str:
    tau = f"{float(100 * wish.tau):g} %" if wish.relative else f"{float(wish.tau):g}"
    groups = f" by {', '.join(about.keys)} ({wording.number(about.asked.groups, 'row')})" if about.keys else ""
    return f"Whether {about.asked.kind} of {about.copy.name}{groups} is within {tau} of {about.original.name}"


def _lines(task: Decisions) -> Iterator[str]:
    """Yield what EXPLAIN says: what is known, who decides, from which tau on, and how often it is wrong."""
    line, cells = wording.line, task.about.asked.question.workspace
    sizes = " × ".join(f"{axis.column} {axis.size}" for axis in cells.axes)
    yield line("measured on", wording.number(cells.cells, "cell") + (f" ({sizes})" if sizes else ""))
    if task.about.compared is not None:
        yield line("compared", task.about.compared)
    known = [case for case in task.cases if case.name == FREE]
    if known:
        yield line("known already", f"{wording.number(len(known), 'decision')}: {known[0].why}")
    by_name: dict[str, list[Case]] = {}
    for case in task.cases:
        if case.decider is not None:
            by_name.setdefault(case.decider.name, []).append(case)
    for name, cases in by_name.items():
        first = cases[0]
        assert first.decider is not None
        price = f"ε {float(task.wish.epsilon):g}, ρ {float(first.decider.rho):.3g}"
        yield line("decider", f"{name} for {wording.number(len(cases), 'decision')}, {price} each")
        yield line("why", first.why)
        if first.provided is not None:
            yield line("provided", first.provided)
        taus, alike = ([getattr(case, name) or 0.0 for case in cases] for name in ("effective_tau", "alike"))
        told = f"{max(taus):.4g} at error {task.wish.delta:g}" if max(taus) < math.inf else "not known"
        yield line("effective tau", told if max(taus) == max(alike) else f"{told}; {max(alike):.4g} if alike")
    if len(task.cases) == 1 and (wrong := each.wrong(task.cases[0], task.about.asked.unit)) is not None:
        shown = ", ".join(f"{gap:g}: {chance:.2g}" for gap, chance in json.loads(wrong))
        yield line("wrong, by gap", shown)


DECIDERS = {
    "LM_count": AggregateKind.COUNT,
    "EM_count": AggregateKind.COUNT,
    "LM_sum": AggregateKind.SUM,
    "EM_sum": AggregateKind.SUM,
    "R2T_sum": AggregateKind.SUM,
    "SVT_sum": AggregateKind.SUM,
    "LM_avg": AggregateKind.AVG,
    "EM_avg": AggregateKind.AVG,
    "EM_med": AggregateKind.QUANTILE,
    "EM_rank": AggregateKind.QUANTILE,
    "Hist_med": AggregateKind.QUANTILE,
}
"""Every decider, and the aggregate that it decides about."""

SIZED = (AggregateKind.AVG, AggregateKind.QUANTILE)
"""Aggregates of which it depends on the number of true rows how often a decision is wrong."""

FUNCTION = Function(
    "verify",
    (
        Parameter("sql", "text", required=True),
        Parameter("tau", "amount", required=True),
        Parameter("epsilon", "number", required=True),
        Parameter("decider", "text"),
        Parameter("delta", "number"),
        Parameter("explain", "boolean"),
    ),
    columns,
    plan,
)
