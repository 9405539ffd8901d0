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
from dataclasses import dataclass, replace
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
from planner.costs import Cost, constant, simplified, to_units
from planner.errors import BadValue, Forbidden, NotGrouped, Refusal, TooLarge, Unsupported, WrongType
from planner.functions import Arguments, Constant, Function, Parameter, Planned, Row, Step, Told, number
from planner.measure import Exact, Meter
from planner.measured import Aggregate
from planner.plan import Planner, Prepared
from planner.policy import Table
from planner.recall import Recall
from planner.sandbox import span
from planner.tasks import versioned
from planner.workload import Floats

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
    span: tuple[int, int] | None  # of the aggregate


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
            span=span(tables[0]) if tables else None,
        )
    if len(copies) > 1:
        raise Unsupported(
            "the query reads synthetic tables more than once", hint="read one, once", span=span(copies[1])
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
    return Subject(copy, part.measured.table, found, exact, keys, groups, aggregate.span)


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
    found: list[tuple[str, int]] = []
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
                span=span(projection) or aggregate.span,
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
        if len({column for column, _ in part.linear[0][0].features}) > 1:
            raise Unsupported(
                f"{aggregate.kind} of several columns can't be verified",
                hint="verify the sum of one column at a time",
                span=aggregate.span,
            )
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
    """One group: what is claimed of it, and who decides; a claim is in integers of the grid, all else in its own unit.

    decider: None where nothing has to be released. settled: what is known without; None if nothing can be told.
    """

    values: Histogram
    synthetic: Fraction | None
    tau: Fraction | None
    why: str = ""
    claim: Claim | None = None
    decider: Decider | None = None
    effective_tau: float | None = None
    settled: bool | None = None

    @property
    def name(self) -> str | None:
        return self.decider.name if self.decider is not None else None if self.settled is None else FREE


def claimed(about: Subject, wish: Wish) -> list[Case]:
    """Return what is claimed of every group. Depends on the synthetic table and the policy only."""
    asked = about.asked
    _, groups = asked.counted
    possible = np.bincount(groups, minlength=asked.groups) > 0
    found = []
    for group, values in enumerate(about.exact.histograms(asked)):
        answer = _answer(asked, values)
        if answer is None:
            found.append(Case(values, None, None, "the synthetic table has no rows here"))
            continue
        synthetic = answer * asked.unit
        tau = wish.tau * abs(synthetic) if wish.relative else wish.tau
        if not possible[group]:
            found.append(Case(values, synthetic, tau, "no row can count here, so the answer is 0", settled=True))
        elif not tau:
            found.append(Case(values, synthetic, None, "a percentage of 0 is nothing: give tau as a number"))
        else:
            found.append(Case(values, synthetic, tau, claim=Claim(answer, tau / asked.unit)))
    return found


def settled(asked: Asked, cases: Sequence[Case], delta: float, recall: Recall | None) -> list[Case]:
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
    """Return the answer on the synthetic table, as SQL has it, in integers of the grid; None if it is NULL there."""
    if asked.kind == "count":
        return Fraction(values.rows)
    if asked.kind == "sum":
        return Fraction(values.total)
    if not values.rows:
        return None
    if not isinstance(asked, Ranked):
        return Fraction(values.total, values.rows)
    if not asked.question.aggregate.continuous:
        return Fraction(values.quantile(asked.p))
    place = asked.p * (values.rows - 1)
    ends = np.cumsum(values.counts)
    low, high = (
        int(values.values[np.searchsorted(ends, at, side="right")]) for at in (math.floor(place), math.ceil(place))
    )
    return low + (place - math.floor(place)) * (high - low)


def _decided(about: Subject, wish: Wish, case: Case) -> Case:
    """Return the case with its decider: the one that was asked for, or the one that tells most."""
    assert case.claim is not None
    asked, unit = about.asked, float(about.asked.unit)
    query = _query(about, wish, case.claim)
    try:
        if wish.decider == AUTO:
            decider, tau, why = deciders.recommend(query, epsilon=wish.epsilon, synthetic=case.values, delta=wish.delta)
            if unit != 1:  # what is told there is in integers of the grid
                why = f"{decider.name} tells gaps from tau = {tau * unit:.4g} at error {wish.delta:g}"
        else:
            decider = deciders.candidates(query, epsilon=wish.epsilon, delta=wish.delta)[wish.decider]
            tau, why = decider.effective_tau(wish.delta, case.values), "asked for"
    except OverflowError:
        raise TooLarge(
            f"the values of {asked.kind} are too large for so small an epsilon",
            hint="give a larger epsilon, or a coarser step in the policy",
            span=about.span,
        ) from None
    return replace(case, decider=decider, effective_tau=tau * unit, why=why)


def _query(about: Subject, wish: Wish, claim: Claim) -> deciders.Query:
    rows, asked = about.original.max_rows_per_unit, about.asked
    if isinstance(asked, Ranked):
        listed = wish.decider == "EM_med" or len(asked.values) <= MOST_VALUES
        domain = tuple(asked.values.tolist()) if listed else ()
        return deciders.Query("quantile", claim, rows=rows, p=asked.p, domain=domain)
    if asked.kind == "count":
        return deciders.Query("count", claim, rows=rows)
    least, most = asked.bounds
    kind: Any = asked.kind
    return deciders.Query(kind, claim, rows=rows, least=least, most=most)


# --- what earlier releases tell ----------------------------------------------------------------------------


def _told(asked: Summed, claim: Claim, estimate: Floats, covariance: Floats, delta: float) -> tuple[bool, float] | None:
    """Return whether what is known settles a claim, and how, with the tau that it could tell; None if it does not.

    The claim holds if two numbers are positive: q - low and high - q, for an average sum - low n and high n - sum.
    Both are linear in what is known, with Gaussian noise. At least z deviations above 0 is positive beyond doubt.
    """
    size = len(estimate)
    rows = np.zeros(size) if asked.kind == "sum" else np.eye(size)[0]
    total = asked.scale * np.eye(size)[-1] + asked.shift * rows
    forms, offsets = [], []
    for sign, end in ((1, float(claim.low)), (-1, float(claim.high))):
        forms.append(sign * (total - end * rows) if asked.kind == "avg" else sign * total)
        offsets.append(0.0 if asked.kind == "avg" else -sign * end)
    margins = [float(form @ estimate) + offset for form, offset in zip(forms, offsets, strict=True)]
    deviations = [math.sqrt(max(float(form @ covariance @ form), 0.0)) for form in forms]
    # A wrong yes needs one number to be wrong by z deviations, a wrong no either of the two.
    sure, doubt = (NormalDist().inv_cdf(1 - level) for level in (delta, delta / 2))
    half = sure * max(deviations) / (max(float(rows @ estimate), 1.0) if asked.kind == "avg" else 1.0)
    pairs = list(zip(margins, deviations, strict=True))
    if all(margin >= sure * deviation and margin > 0 for margin, deviation in pairs):
        return True, half
    if any(margin <= -doubt * deviation for margin, deviation in pairs):
        return False, half
    return None


def _releases(recall: Recall | None) -> str:
    assert recall is not None
    noun = "release" if len(recall.releases) == 1 else "releases"
    return f"{noun} {explain.ranges(recall.releases)}"


# --- what is released --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decisions of all groups of a query, drawn and stored together; what is known is stored as it is."""

    about: Subject
    wish: Wish
    version: int
    cases: Sequence[Case]

    @property
    def table(self) -> str:
        return self.about.original.name

    @property
    def paid(self) -> dict[int, Decider]:
        return {group: case.decider for group, case in enumerate(self.cases) if case.decider is not None}

    @property
    def kind(self) -> str:
        return "decision" if self.paid else "settled"

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
        return bodies.encode({**bodies.described(self.about.asked.question.workspace), "rows": rows})

    @cached_property
    def _public(self) -> list[Row]:
        """Return all columns but keys and decision."""
        return [self._row(case) for case in self.cases]

    def _row(self, case: Case) -> Row:
        synthetic, tau = (None if value is None else float(value) for value in (case.synthetic, case.tau))
        epsilon, rho = (0.0, 0.0) if case.decider is None else (float(self.wish.epsilon), float(case.decider.rho))
        ends = (None, None) if synthetic is None or tau is None else (synthetic - tau, synthetic + tau)
        wrong, least = _wrong(case, float(self.about.asked.unit)), _finite(case.effective_tau)
        return (case.name, synthetic, *ends, tau, epsilon, rho, least, self.wish.delta, wrong, case.why)

    def undecided(self) -> list[Row]:
        """Return the rows of the function before anything is spent."""
        pairs = zip(self.about.groups, self._public, strict=True)
        return [(*keys, None, *row) for keys, row in pairs]

    def known(self) -> list[Row]:
        """Return the rows of the function if nothing has to be released."""
        triples = zip(self.about.groups, self.cases, self._public, strict=True)
        return [(*keys, case.settled, *row) for keys, case, row in triples]


def digest(about: Subject, wish: Wish, cases: Sequence[Case]) -> str:
    """Return what makes two decisions the same: the question, the claims, epsilon, and who decides."""
    claims = [None if case.claim is None else [str(case.claim.synthetic), str(case.claim.tau)] for case in cases]
    text = json.dumps(["decision 1", about.asked.question.digest, claims, str(wish.epsilon), wish.decider])
    return hashlib.sha256(text.encode()).hexdigest()


def stored_rows(about: Subject, stored: Release) -> list[Row]:
    """Return the rows of the function as they were stored."""
    rows = bodies.decode(stored.body)["rows"]
    return [(*keys, *row) for keys, row in zip(about.groups, rows, strict=True)]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _wrong(case: Case, unit: float) -> str | None:
    """Return [[true gap, probability of a wrong decision], …] as JSON: the worse of a gap upwards and downwards."""
    if case.decider is None or case.claim is None:
        return None
    gaps = [Fraction(part).limit_denominator(10) * case.claim.tau for part in GAPS]
    up, down = (deciders.profile(case.decider, case.values, [sign * gap for gap in gaps]) for sign in (1, -1))
    pairs = zip(gaps, np.maximum(up, down), strict=True)
    return json.dumps([[_rounded(float(gap) * unit), _rounded(float(chance))] for gap, chance in pairs])


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


# --- the function ------------------------------------------------------------------------------------------


def columns(gate: Gate, arguments: Arguments) -> dict[str, str]:
    """Return the columns of the result: the group keys of the query, then what is told of each group."""
    return {**subject(gate, arguments["sql"]).keys, **COLUMNS}


def plan(session: Session, arguments: Arguments) -> Planned:
    """Return what a verification would release, and what that costs; read nothing protected."""
    gate, wish = session.gate, _wish(arguments)
    about = subject(gate, arguments["sql"])
    _check_decider(about, arguments["decider"])
    cases, table, as_of = claimed(about, wish), about.original, session.settings.as_of
    if len(cases) == 1 and cases[0].synthetic == 0 and cases[0].tau is None:
        raise BadValue(
            "a percentage of the synthetic answer, which is 0, is nothing",
            hint="give tau as a number",
            span=arguments["tau"].span,
        )
    version = Planner(gate.ledger, gate.meters, gate.histories, session.settings).version(table.name)
    title = _title(about, cases, wish)
    stored = _stored(session, digest(about, wish, cases), table.name, version)
    if stored is not None:
        rows = stored_rows(about, stored)
        if wish.explain:
            rows = [(*row[: len(about.keys)], None, *row[len(about.keys) + 1 :]) for row in rows]
        before = explain.line("known already", f"decided before: release {stored.id}")
        return _free(about, (title, before), (stored.id,), rows)
    recall = _recall(gate, about, version, as_of)
    known = settled(about.asked, cases, wish.delta, recall)
    found = [_decided(about, wish, c) if c.claim is not None and c.settled is None else c for c in known]
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
    charges = [Charge(table.population, table.name, task.cost)] if task.paid else []
    return Planned(
        [charges] if charges else (),
        (table.population,),
        "direct" if charges else FREE,
        lines,
        recall.releases if recall is not None and any(c.name == FREE for c in found) else (),
        partial(_run, session, task),
    )


def _check_decider(about: Subject, named: Constant) -> None:
    """Refuse a decider that there is not, or that does not fit the aggregate."""
    name = named.value or AUTO
    fitting = [each for each, kind in DECIDERS.items() if kind == about.asked.kind]
    if name != AUTO and name not in DECIDERS:
        raise BadValue(f"there is no decider {name}", hint=f"there are: {AUTO}, {', '.join(DECIDERS)}", span=named.span)
    signed = name == "SVT_sum" and isinstance(about.asked, Summed) and about.asked.bounds[0] < 0 < about.asked.bounds[1]
    if name != AUTO and (name not in fitting or signed):
        what = "sums of values of both signs" if signed else f"a {about.asked.kind}"
        others = [AUTO, *(each for each in fitting if each != name)]
        raise Unsupported(f"{name} can't decide about {what}", hint=f"use one of: {', '.join(others)}", span=named.span)


def _stored(session: Session, question: str, table: str, version: int) -> Release | None:
    latest = session.settings.as_of
    found = [r for r in session.gate.ledger.find(question, table=table) if r.version == version]
    return next((r for r in found if latest is None or r.id <= latest), None)


def _recall(gate: Gate, about: Subject, version: int, as_of: int | None) -> Recall | None:
    if isinstance(about.asked, Ranked):
        return None
    found = gate.histories[about.original.name].recall(about.asked.question, version=version, as_of=as_of)
    return found if found is not None and found.releases else None


def _free(about: Subject, lines: Sequence[str], releases: tuple[int, ...], rows: Sequence[Row]) -> Planned:
    """Return a plan that releases nothing and stores nothing."""
    told = partial(_tell, Told(rows, Fraction(0)))
    return Planned((), (about.original.population,), FREE, tuple(lines), releases, told)


def _tell(told: Told, sql: str, step: Step) -> Told:  # noqa: ARG001 - nothing is done
    return told


def _run(session: Session, task: Decisions, sql: str, step: Step) -> Told:
    (release,), charged = session.release([task], sql, step)
    return Told(stored_rows(task.about, release), charged)


# --- for people --------------------------------------------------------------------------------------------


def _title(about: Subject, cases: Sequence[Case], wish: Wish) -> str:
    tau = f"{float(100 * wish.tau):g} %" if wish.relative else f"{float(wish.tau):g}"
    groups = f" by {', '.join(about.keys)} ({explain.number(len(cases), 'row')})" if about.keys else ""
    return f"Whether {about.asked.kind} of {about.copy.name}{groups} is within {tau} of {about.original.name}"


def _lines(task: Decisions) -> Iterator[str]:
    """Yield what EXPLAIN says: what is known, who decides, from which tau on, and how often it is wrong."""
    line, cells = explain.line, task.about.asked.question.workspace
    sizes = " × ".join(f"{axis.column} {axis.size}" for axis in cells.axes)
    yield line("measured on", explain.number(cells.cells, "cell") + (f" ({sizes})" if sizes else ""))
    known = [case for case in task.cases if case.name == FREE]
    if known:
        yield line("known already", f"{explain.number(len(known), 'decision')}: {known[0].why}")
    by_name: dict[str, list[Case]] = {}
    for case in task.cases:
        if case.decider is not None:
            by_name.setdefault(case.decider.name, []).append(case)
    for name, cases in by_name.items():
        first = cases[0]
        assert first.decider is not None
        price = f"ε {float(task.wish.epsilon):g}, ρ {float(first.decider.rho):.3g}"
        yield line("decider", f"{name} for {explain.number(len(cases), 'decision')}, {price} each")
        yield line("why", first.why)
        taus = [case.effective_tau for case in cases if case.effective_tau is not None]
        yield line("effective tau", f"{max(taus):.4g} at error {task.wish.delta:g}")
    if len(task.cases) == 1 and (wrong := _wrong(task.cases[0], float(task.about.asked.unit))) is not None:
        shown = ", ".join(f"{gap:g}: {chance:.2g}" for gap, chance in json.loads(wrong))
        yield line("wrong, by gap", shown)


DECIDERS = {
    "LM_count": "count",
    "EM_count": "count",
    "LM_sum": "sum",
    "EM_sum": "sum",
    "R2T_sum": "sum",
    "SVT_sum": "sum",
    "LM_avg": "avg",
    "EM_avg": "avg",
    "EM_med": "quantile",
    "EM_rank": "quantile",
    "Hist_med": "quantile",
}
"""Every decider, and the aggregate that it decides about."""

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
