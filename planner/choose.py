"""noisegate.choose: the finest of several analyses that the data support, paid for as if it alone had been asked.

What several analyses share is released first: it is a part of each of them, so looking at it costs nothing extra.
What was released decides; then the rest of the analysis that is taken is released, and nothing else (arXiv
2212.00135: sections 6.1 and 6.2 for the rules, 7.5 for choosing among more than two).

Guarantee: every look is drawn, charged and stored before anything is decided from it, and the decision is a function
of what is stored. What all looks and the last part charge a cell together is at most what the analysis taken charges
its dearest cell when it is asked alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from planner import bodies, explain, linear, stages, statement
from planner.accounts import Charge, Release
from planner.costs import Cost, constant, dearest, rho_of
from planner.errors import BadValue, Forbidden, Refusal, TooLarge, Unsupported
from planner.functions import Arguments, Constant, Function, Parameter, Payable, Planned, Row, Step, Told, number
from planner.linear import Question
from planner.measure import Meter
from planner.plan import Planner
from planner.policy import Table
from planner.settings import LEAST, MOST
from planner.stages import Course, Ground, Residual, Strategy
from planner.tasks import versioned

if TYPE_CHECKING:
    from planner.gate import Ready, Session

SNR, FRACTION = 20.0, 0.5
RULES = ("nested", "general")
MAX_ANALYSES = 16

EXAMPLE = "for example: ARRAY[$$SELECT count(*) FROM t$$, $$SELECT age / 10, count(*) FROM t GROUP BY 1$$]"
AGAIN = "the looks so far were charged and stay known: choose again, and pay for the rest only"


@dataclass(frozen=True)
class Considered:
    """One analysis of a choice.

    passed, possible: nested rule; the parts of its cells that surely, and perhaps, have the ratio asked for when they
        are read off the next finer analysis. None if it was not looked at.
    removed: general rule; by how much it lowers the variance of its cells, all together.
    rho: what was charged until it was decided about; None if that was never so.
    """

    sql: str
    chosen: bool
    passed: float | None
    possible: float | None
    removed: float | None
    rho: float | None


@dataclass(frozen=True)
class Choice:
    """Which analysis was taken: its index from 0, its SQL, by which rule; `cost` is the rho newly charged."""

    index: int
    sql: str
    rule: str
    cost: Fraction
    analyses: tuple[Considered, ...]

    @classmethod
    def of(cls, rows: Sequence[Row], cost: Fraction) -> Choice:
        """Return the choice that the rows of the function tell."""
        names = list(COLUMNS)
        found = [dict(zip(names, row, strict=True)) for row in rows]
        seen = tuple(
            Considered(**{name: value for name, value in row.items() if name not in NOT_EACH}) for row in found
        )
        index = next(i for i, one in enumerate(seen) if one.chosen)
        return cls(index, seen[index].sql, found[index]["rule"], cost, seen)


COLUMNS = {
    "analysis": "BIGINT",
    "sql": "VARCHAR",
    "chosen": "BOOLEAN",
    "rule": "VARCHAR",
    "passed": "DOUBLE",
    "possible": "DOUBLE",
    "removed": "DOUBLE",
    "rho": "DOUBLE",
}
NOT_EACH = ("analysis", "rule")


# --- what is asked -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Wish:
    """The arguments: which ratio in which part of the cells, at which cost (None: at the session's accuracy)."""

    snr: float
    fraction: float
    rho: Fraction | None
    rule: str | None


def _wish(arguments: Arguments) -> _Wish:
    rule, rho = arguments["rule"], number(arguments, "rho", low=LEAST, high=MOST, example="0.001")
    if rule.value is not None and rule.value not in RULES:
        raise BadValue(f"there is no rule {rule.value!r}", hint=f"there are: {', '.join(RULES)}", span=rule.span)
    snr = number(arguments, "snr", low=LEAST, high=MOST, example="20")
    fraction = number(arguments, "fraction", low=LEAST, high=1.0, example="0.5")
    return _Wish(
        SNR if snr is None else snr,
        FRACTION if fraction is None else fraction,
        None if rho is None else Fraction(rho).limit_denominator(10**15),  # as SET noisegate.rho reads it
        rule.value,
    )


def _questions(session: Session, sqls: Constant) -> list[Question]:
    """Return the question of each analysis; all are about one table."""
    if not 2 <= len(sqls.value) <= MAX_ANALYSES:
        raise BadValue(
            f"a choice is among 2 to {MAX_ANALYSES} analyses, got {len(sqls.value)}", hint=EXAMPLE, span=sqls.span
        )
    found = [_question(session, text) for text in sqls.value]
    for question, text in zip(found, sqls.value, strict=True):
        if question.workspace.table is not found[0].workspace.table:
            raise Unsupported(
                "the analyses are about different tables", hint="choose among analyses of one table", span=text.span
            )
    return found


def _question(session: Session, text: Constant) -> Question:
    try:
        query = statement.read(text.value)
        if not isinstance(query, statement.Query):
            raise Forbidden("an analysis must be a SELECT", hint=EXAMPLE)
        with session.gate.prepared(query) as ready:
            return _linear(ready)
    except Refusal as refused:
        refused.span = text.place(refused.span)
        raise


def _linear(ready: Ready) -> Question:
    """Return the one question of counts and sums that a query asks."""
    if ready.call is not None or len(ready.parts) != 1:
        raise Unsupported("an analysis must be one aggregate query about a protected table", hint=EXAMPLE)
    (part,) = ready.parts
    for aggregate in part.measured.aggregates:
        if aggregate.kind not in ("count", "sum"):
            raise Unsupported(
                f"{aggregate.kind} has no signal-to-noise ratio to choose by: it is not a sum over rows",
                hint="choose among counts and sums; the average of what was chosen may then be asked",
                span=aggregate.span,
            )
    if part.marginals is not None or len(part.linear) > 1:
        raise TooLarge("an analysis has too many answers to choose by", hint="ask for fewer groups, or grouping sets")
    if not part.linear or not linear.reach(part.linear[0][0]).any():
        raise Unsupported("an analysis must count or sum something", hint=EXAMPLE)
    return part.linear[0][0]


# --- choosing ----------------------------------------------------------------------------------------------


NOTHING = constant(0)


@dataclass(frozen=True)
class _Record:
    """What was chosen and why, stored so that the same choice is never made a second time."""

    table: str
    version: int
    digest: str
    body: bytes
    kind: str = "choice"
    cost: Cost = NOTHING

    @property
    def key(self) -> str:
        return versioned(self.version, self.digest)

    def draw(self, meter: Meter) -> bytes:  # noqa: ARG002 - nothing more is read
        return self.body


@dataclass(frozen=True, eq=False)
class _Task:
    """A choice that is still to be made: among what, by which rule, and what is released on each way."""

    session: Session
    wish: _Wish
    sqls: tuple[str, ...]
    digest: str
    rule: str
    ground: Ground
    course: Course


@dataclass(frozen=True)
class _Seen:
    """What was seen of an analysis before one was taken; the fields of Considered."""

    passed: float | None = None
    possible: float | None = None
    removed: float | None = None
    rho: float | None = None


class _Choosing:
    """One choice while it is made: what is known so far, what was paid, what was seen."""

    def __init__(self, task: _Task, sql: str, step: Step) -> None:
        self.task, self.sql, self.step = task, sql, step
        self.known, self.paid = task.ground.known, list[Cost]()
        self.seen = [_Seen() for _ in task.sqls]  # as the analyses: from the coarsest to the finest

    def run(self) -> Told:
        try:
            index = self._nested() if self.task.rule == "nested" else self._general()
            stored = self._take(index)
        except Refusal as refused:
            if self.paid:
                refused.hint = AGAIN
            raise
        return Told(_rows(stored, self.task.sqls), rho_of(dearest(self.paid)))

    def _nested(self) -> int:
        """Return the index of the first analysis that would suffer too much from the next finer one (section 6.1)."""
        wish, ground, course = self.task.wish, self.task.ground, self.task.course
        for index, look in enumerate(course.looks):
            self._look(look)
            found = stages.ratios(ground, course, self.known, index=index)
            passed, possible = (float(np.mean(bound >= wish.snr)) for bound in (found.lower, found.upper))
            self.seen[index] = _Seen(passed, possible, None, _rho(self.paid))
            if not found.suffices(share=wish.fraction, ratio=wish.snr):
                return index
        return len(ground.analyses) - 1

    def _general(self) -> int:
        """Return the index of the analysis that tells most (section 6.2)."""
        self._look(self.task.course.looks[0])
        removed = stages.removed(self.task.ground, self.task.course, self.known)
        self.seen = [_Seen(removed=each, rho=_rho(self.paid)) for each in removed]
        return int(np.argmax(removed))

    def _look(self, look: Residual | None) -> None:
        """Release what is looked at; only what is durable is known."""
        if look is None:
            return
        (release,) = self._release([look])
        if release.id not in self.task.ground.releases:  # else it is known already
            self.known = self.known.with_rows(self.task.ground.rows(look), bodies.values(release).ravel())

    def _take(self, index: int) -> Release:
        """Release the rest of an analysis together with the record of the choice, and return the record."""
        task, rest = self.task, self.task.course.rests[index]
        total = [*self.paid, *([] if rest is None else [rest.cost])]
        self.seen[index] = replace(self.seen[index], rho=_rho(total))
        record = _Record(task.ground.table.name, task.ground.version, task.digest, self._body(index))
        return self._release([record] if rest is None else [rest, record])[-1]

    def _release(self, tasks: Sequence[Payable]) -> list[Release]:
        found, _ = self.task.session.release(tasks, self.sql, self.step)
        self.paid += [release.cost for release in found if not release.replayed]
        return found

    def _body(self, index: int) -> bytes:
        order = [one.number for one in self.task.ground.analyses]
        seen = [vars(self.seen[order.index(number)]) for number in range(len(order))]
        return bodies.encode({"rule": self.task.rule, "chosen": order[index], "seen": seen})


def _rho(costs: Sequence[Cost]) -> float:
    return float(rho_of(dearest(costs)))


def _rows(stored: Release, sqls: Sequence[str]) -> list[Row]:
    """Return the rows of the function, from what was stored of the choice."""
    body: dict[str, Any] = bodies.decode(stored.body)
    return [
        (
            i + 1,
            sql,
            i == body["chosen"],
            body["rule"],
            *(seen[name] for name in ("passed", "possible", "removed", "rho")),
        )
        for i, (sql, seen) in enumerate(zip(sqls, body["seen"], strict=True))
    ]


# --- the function ------------------------------------------------------------------------------------------


def plan(session: Session, arguments: Arguments) -> Planned:
    """Return what a choice would release on each way, and what that costs; read nothing protected."""
    wish, sqls = _wish(arguments), tuple(text.value for text in arguments["sqls"].value)
    questions = _questions(session, arguments["sqls"])
    gate, table = session.gate, questions[0].workspace.table
    settings = session.settings if wish.rho is None else replace(session.settings, rho=wish.rho)
    planner = Planner(gate.ledger, gate.meters, gate.histories, settings)
    version = planner.version(table.name)
    strategies = [_strategy(planner, question) for question in questions]
    digest = _digest(wish, strategies)
    stored = _stored(session, digest, table.name, version)
    if stored is not None:
        lines = (_title(len(sqls), table), explain.line("known already", f"chosen before: release {stored.id}"))
        return Planned((), (table.population,), "free", lines, (stored.id,), partial(_replayed, stored, sqls))
    if settings.as_of is not None:
        raise BadValue(
            f"release {settings.as_of} and those before it do not tell this choice",
            hint="RESET noisegate.as_of to choose anew",
        )
    ground = stages.ground(strategies, gate.histories[table.name], version)
    rule = _rule(wish, ground, arguments["rule"])
    course = stages.course(ground, nested=rule == "nested")
    task = _Task(session, wish, sqls, digest, rule, ground, course)
    return Planned(
        [_charges(table, course.way(index)) for index in range(len(sqls))],
        (table.population,),
        _path(task),
        tuple(_lines(task)),
        ground.releases,
        lambda sql, step: _Choosing(task, sql, step).run(),
    )


def _strategy(planner: Planner, question: Question) -> Strategy:
    """Return what the planner would measure if nothing were known."""
    table, rho = question.workspace.table, planner.settings.rho
    targets = planner.targets(question, planner.error(table.name))
    if rho is None:
        return Strategy(question, linear.meeting(question, targets), targets)
    return Strategy(question, *linear.spending(question, targets, rho=rho, rows_per_unit=table.max_rows_per_unit))


def _rule(wish: _Wish, ground: Ground, argument: Constant) -> str:
    if wish.rule == "nested" and not ground.is_nested:
        raise Unsupported(
            "the analyses are not nested: each must follow from the next finer one",
            hint="use rule => 'general'",
            span=argument.span,
        )
    return wish.rule or ("nested" if ground.is_nested else "general")


def _digest(wish: _Wish, strategies: Sequence[Strategy]) -> str:
    """Return what makes two choices the same: the analyses, how well each is told, and the rule."""
    asked = [strategy.measurement.digest(strategy.question) for strategy in strategies]
    text = json.dumps(["choice 1", asked, wish.snr, wish.fraction, wish.rule])
    return hashlib.sha256(text.encode()).hexdigest()


def _stored(session: Session, digest: str, table: str, version: int) -> Release | None:
    latest = session.settings.as_of
    found = [r for r in session.gate.ledger.find(digest, table=table) if r.version == version]
    return next((r for r in found if latest is None or r.id <= latest), None)


def _replayed(stored: Release, sqls: Sequence[str], sql: str, step: Step) -> Told:  # noqa: ARG001 - nothing is done
    return Told(_rows(stored, sqls), Fraction(0))


def _charges(table: Table, way: Sequence[Residual]) -> list[Charge]:
    return [Charge(table.population, table.name, part.cost) for part in way]


# --- for people --------------------------------------------------------------------------------------------


def _path(task: _Task) -> str:
    if not any(task.course.way(index) for index in range(len(task.sqls))):
        return "free"
    return "join" if task.ground.releases else "direct"


def _title(count: int, table: Table) -> str:
    return f"Choice among {count} analyses of {table.name}"


def _lines(task: _Task) -> list[str]:
    """Return what EXPLAIN says: the rule, what is looked at, and what each way costs."""
    line, wish, workspace = explain.line, task.wish, task.ground.chart.workspace
    sizes = " × ".join(f"{axis.column} {axis.size}" for axis in workspace.axes)
    rule = "general: the analysis that removes most variance"
    if task.rule == "nested":
        rule = f"nested: go on while {wish.fraction:.0%} of the cells keep a ratio of {wish.snr:g}"
    cells = explain.number(workspace.cells, "cell") + (f" ({sizes})" if sizes else "")
    lines = [_title(len(task.sqls), task.ground.table), line("rule", rule), line("measured on", cells)]
    if task.ground.releases:
        lines.append(line("known already", f"releases {explain.ranges(task.ground.releases)}"))
    numbers = [one.number + 1 for one in task.ground.analyses]
    for index, look in enumerate(task.course.looks):
        of = f"analysis {numbers[index]}" if task.rule == "nested" else "all analyses"
        lines.append(line(f"look {index + 1}", f"at {of}: {_amount(look)}"))
    for index, taken in enumerate(numbers):
        rho = float(rho_of(stages.highest(task.course.way(index))))
        lines.append(line(f"if {taken} is taken", f"ρ {rho:.3g} in all" if rho else "free"))
    return lines


def _amount(look: Residual | None) -> str:
    if look is None:
        return "known already"
    return explain.number(len(look.measurement.K), "noisy sum") + f", ρ {float(rho_of(look.cost.highest)):.3g}"


FUNCTION = Function(
    "choose",
    (
        Parameter("sqls", "text[]", required=True),
        Parameter("snr", "number"),
        Parameter("fraction", "number"),
        Parameter("rho", "number"),
        Parameter("rule", "text"),
    ),
    COLUMNS,
    plan,
)
