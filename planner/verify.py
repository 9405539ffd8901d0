"""noisegate.verify: is the answer of a query on a synthetic table within tau of the true one?

The query is compiled a second time, with the original in the place of its copy. So both are read by the same domains,
the true answer only by a decider (mechanisms/deciders.py), and the synthetic one exactly.

Guarantee: a decision is drawn, charged on the cells whose rows count in its group, and stored, before it is told.
Which decider is taken, its price and its errors depend on the synthetic table, the policy and earlier releases only.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlglot import exp

from mechanisms import deciders
from mechanisms.claims import Claim, Histogram
from mechanisms.deciders import Decider
from planner import asked as asking
from planner import bodies, explain, names, statement
from planner.accounts import Charge, Release
from planner.asked import Asked, Ranked, Summed
from planner.costs import Cost, constant, rho_of, simplified, to_units
from planner.errors import BadValue, Forbidden, NotGrouped, Refusal, TooLarge, Unsupported, WrongType
from planner.functions import Arguments, Constant, Function, Parameter, Planned, Row, Step, Told, number
from planner.measure import Exact, Meter
from planner.measured import Aggregate
from planner.plan import Planner, Prepared
from planner.policy import Table
from planner.recall import Recall
from planner.tasks import versioned

if TYPE_CHECKING:
    from planner.gate import Gate, Ready, Session

AUTO, FREE = "auto", "free"
DELTA = 0.05
KINDS = ("count", "sum", "avg", "quantile")
GAPS = (0.0, 0.5, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0)
"""True gaps, in parts of tau, for which the probability of a wrong decision is told."""

MAX_GROUPS = 384
MOST_VALUES = 4096
"""For so many values of a domain EM_med is looked at; beyond, only when it is asked for."""

EXAMPLE = "for example: $$SELECT count(*) FROM people_synth WHERE age < 30$$"

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
}


@dataclass(frozen=True)
class Verdict:
    """One decision: whether the true answer lies between low and high, strictly.

    group: the keys of its group, by name.
    decision: None if it was only explained, or if there is nothing to decide.
    epsilon, rho: what it costs, or had cost when it was made; 0 if earlier releases told it.
    effective_tau: the smallest tau that can be told at error delta for this epsilon.
    wrong: the probability of a wrong decision for true gaps |q(D) - q(D_s)|; empty if earlier releases told it.
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
    return Verdict(row, wrong=wrong, **own)


# --- what is asked -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Subject:
    """A query on a synthetic table, and the same about its original."""

    copy: Table
    original: Table
    asked: Asked
    exact: Exact
    keys: Mapping[str, str]  # name and type of the group keys that are shown
    groups: Sequence[Row]  # their values
    part: Prepared
    span: tuple[int, int] | None  # of the aggregate

    @property
    def aggregate(self) -> Aggregate:
        return self.part.measured.aggregates[0]


def subject(gate: Gate, text: Constant) -> Subject:
    """Return what a query on a synthetic table asks; refuse what can't be verified, with its place in the statement."""
    try:
        query = statement.read(text.value)
        if not isinstance(query, statement.Query):
            raise Forbidden("what is verified must be a SELECT", hint=EXAMPLE)
        with gate.prepared(query) as plain:  # as it is written: names of tables and columns are those of the copy
            if plain.call is not None:
                raise Unsupported("what is verified can't call a function in FROM", hint=EXAMPLE)
        tree, copy = _about_original(query, gate)
        mapped = statement.Query(tree, query.sql, None if query.key is None else f"verify\0{query.key}")
        with gate.prepared(mapped) as ready:
            return _subject(gate, ready, copy)
    except Refusal as refused:
        refused.span = text.place(refused.span)
        raise


def _about_original(query: statement.Query, gate: Gate) -> tuple[exp.Query, Table]:
    """Return the query with the original in the place of the one synthetic table that it reads."""
    tree = names.with_views(query.tree.copy(), gate.catalog)
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    tables = [table for table in tree.find_all(exp.Table) if table.name.lower() not in own]
    copies = [t for t in tables if (found := gate.policy.tables.get(t.name.lower())) and found.synthetic_of is not None]
    known = [table.name for table in gate.policy.tables.values() if table.synthetic_of is not None]
    there = f"there are: {', '.join(known)}" if known else "declare one in the policy, with synthetic_of"
    if not copies:
        raise Unsupported(
            "the query does not read a synthetic table",
            hint=there,
            span=names.span(tables[0]) if tables else None,
        )
    if len(copies) > 1:
        raise Unsupported(
            "the query reads synthetic tables more than once", hint="read one, once", span=names.span(copies[1])
        )
    (node,) = copies
    copy = gate.policy.tables[node.name.lower()]
    assert copy.synthetic_of is not None
    if not node.alias:
        node.set("alias", exp.TableAlias(this=exp.to_identifier(copy.name)))
    renamed = exp.to_identifier(copy.synthetic_of)
    renamed.meta.update(node.this.meta)
    node.set("this", renamed)
    return tree, copy


def _subject(gate: Gate, ready: Ready, copy: Table) -> Subject:
    part = _part(ready)
    (aggregate,) = part.measured.aggregates
    outputs = _outputs(ready, aggregate)
    if part.placement.group_counts[0] > MAX_GROUPS or part.marginals is not None:
        raise TooLarge(f"a query of more than {MAX_GROUPS} groups can't be verified", hint="group more coarsely")
    found = _asked(part, aggregate, ready)
    cells, _ = found.counted
    if len(np.unique(found.question.cell)) < len(found.question.cell):
        raise Unsupported(
            "a query over a join in which a row has several matches can't be verified",
            hint="join on a key of the public table",
            span=aggregate.span,
        )
    placement = part.placement
    keys = {name: placement.key_types[key] for name, key in outputs}
    columns = ", ".join(f"k{key}" for _, key in outputs) or "1"
    rows = ready.bench.rows(f"SELECT {columns} FROM {placement.keys[0]} ORDER BY g")
    groups = rows if outputs else [()] * len(rows)
    exact = Exact.of(gate.sandbox.reader(copy.name))
    return Subject(copy, part.measured.table, found, exact, keys, groups, part, aggregate.span)


def _part(ready: Ready) -> Prepared:
    """Return the one measured query; refuse all that is done with its answer afterwards."""
    post = ready.compiled.post
    if len(ready.parts) != 1 or not isinstance(post, exp.Select) or post.args["from_"].this.name != "__m0":
        raise Unsupported("what is verified must be one plain aggregate query", hint=EXAMPLE)
    for name in ("where", "qualify", "limit", "offset", "distinct"):
        if post.args.get(name):
            clause = "HAVING" if name == "where" else name.upper()
            raise Unsupported(f"{clause} can't be verified: it picks rows by their answers", hint="leave it out")
    (part,) = ready.parts
    aggregates = part.measured.aggregates
    if len(aggregates) != 1:
        raise Unsupported(
            f"one aggregate is verified at a time, this query has {len(aggregates)}",
            hint=EXAMPLE,
            span=aggregates[1].span if len(aggregates) > 1 else None,
        )
    if len(part.measured.sets) != 1:
        raise Unsupported("GROUPING SETS, ROLLUP and CUBE can't be verified", hint="verify one grouping at a time")
    return part


def _outputs(ready: Ready, aggregate: Aggregate) -> list[tuple[str, int]]:
    """Return name and number of every group key that is shown; the only other output is the aggregate."""
    found = []
    columns = zip(ready.compiled.names, ready.compiled.post.selects, strict=False)
    for name, projection in columns:
        node = projection.unalias().unnest()
        plain = isinstance(node, exp.Column) and node.table == "__m0"
        if plain and node.name.startswith("a"):
            continue
        if not plain or not node.name.startswith("k"):
            raise Unsupported(
                "an output must be a group key or the aggregate itself",
                hint="verify the plain aggregate, and compute with it afterwards",
                span=names.span(projection) or aggregate.span,
            )
        if name in COLUMNS or name in (other for other, _ in found):
            raise NotGrouped(
                f"the name {name} is taken by another column of the result", hint="give the group key an alias"
            )
        found.append((name, int(node.name[1:])))
    return found


def _asked(part: Prepared, aggregate: Aggregate, ready: Ready) -> Asked:
    if aggregate.kind not in KINDS:
        raise Unsupported(
            f"{aggregate.kind} can't be verified",
            hint="verify a count, a sum, an average, a median or another quantile",
            span=aggregate.span,
        )
    if aggregate.kind != "quantile":
        return asking.summed(aggregate.kind, part.linear[0][0], centre=part.recipes[0].centre)
    ((_, _, question),) = part.labelled
    assert aggregate.p is not None
    if not 0 < aggregate.p < 1:
        raise BadValue(
            "a quantile's level must lie between 0 and 1, both excluded: the ends depend on a single person",
            hint="for example: percentile_disc(0.05) WITHIN GROUP (ORDER BY …)",
            span=aggregate.span,
        )
    ((_, kind),) = ready.bench.types(f"SELECT v FROM {question.values}")
    if not exp.DataType.build(kind, dialect="duckdb").is_type(*exp.DataType.NUMERIC_TYPES):
        raise WrongType("a quantile that is verified must be of numbers", hint="cast it", span=aggregate.span)
    values = [value for (value,) in ready.bench.rows(f"SELECT v FROM {question.values} ORDER BY i")]
    return asking.ranked(question, values)


# --- what is wished ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish:
    """The arguments: tau as a number or as a part of the answer, epsilon for each decision, the error delta."""

    tau: Fraction
    relative: bool
    epsilon: Fraction
    decider: str
    delta: float
    explain: bool


def _wish(arguments: Arguments) -> Wish:
    tau, relative = _tau(arguments["tau"])
    epsilon = number(arguments, "epsilon", low=1e-6, high=100.0, example="0.25")
    delta = number(arguments, "delta", low=1e-9, high=0.499, example="0.05")
    assert epsilon is not None
    name = arguments["decider"].value or AUTO
    return Wish(
        tau,
        relative,
        Fraction(epsilon).limit_denominator(10**12),
        name,
        DELTA if delta is None else delta,
        bool(arguments["explain"].value),
    )


def _tau(found: Constant) -> tuple[Fraction, bool]:
    text = str(found.value).strip()
    relative = text.endswith("%")
    try:
        tau = Fraction(text.removesuffix("%").strip()) / (100 if relative else 1)
    except (ValueError, ZeroDivisionError):
        tau = Fraction(0)
    if not 0 < tau < 10**30 or (isinstance(found.value, float) and not math.isfinite(found.value)):
        raise BadValue(
            f"tau must be a positive number, or a percentage of the synthetic answer, got {text}",
            hint="for example: tau => 100, or tau => '5%'",
            span=found.span,
        )
    return tau, relative


# --- one group ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """One group: what is claimed of it, in integers of the grid, and who decides.

    claim, decider: None where there is nothing to decide, `why` says so. settled: what earlier releases tell.
    """

    group: Row
    histogram: Histogram | None
    synthetic: Fraction | None  # in its own unit
    tau: Fraction | None
    claim: Claim | None
    decider: Decider | None
    effective_tau: float | None
    why: str
    settled: bool | None = None


class Cases:
    """All groups of a subject: claims, deciders, and what earlier releases tell of them."""

    def __init__(self, about: Subject, wish: Wish, named: Constant) -> None:
        self.about, self.wish, self.named = about, wish, named
        self.unit = about.asked.unit
        self.values: Sequence[Histogram | None] = [None] * about.asked.groups
        self.answers: list[Fraction | None]
        if isinstance(about.asked, Summed) and (about.asked.kind == "count" or len(about.asked.columns) > 1):
            totals = about.exact.totals(about.asked)
            if about.asked.kind == "avg":
                self.answers = [Fraction(t.sum, t.count) if t.count else None for t in map(_exact_totals, totals)]
            else:
                self.answers = [Fraction(total.sum) for total in totals]
        else:
            self.values = about.exact.histograms(about.asked)
            self.answers = [_answer(about.asked, values) for values in self.values if values is not None]

    def all(self) -> list[Case]:
        return [self._case(group) for group in range(self.about.asked.groups)]
