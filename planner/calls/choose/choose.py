"""noisegate.choose: the finest of several analyses that the data support, paid for as if it alone had been asked.

What several analyses share is released first: it is a part of each of them, so looking at it costs nothing extra.
What was released decides; then the rest of the analysis that is taken is released, and nothing else (arXiv
2212.00135: sections 6.1 and 6.2 for the rules, 7.5 for choosing among more than two). Or the analyst looks, decides,
and takes one.

Guarantee: what all looks and the last part charge a cell together is at most what the analysis taken charges its
dearest cell when it is asked alone, whether they are paid for at once or one after the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from planner.basics.errors import BadValue, Forbidden, Refusal, TooLarge, Unsupported
from planner.basics.limits import MAX_ANALYSES, MAX_DEVIATIONS, MAX_SETTING, MIN_SETTING
from planner.calls.call import (
    Arguments,
    Caller,
    CallResult,
    Constant,
    Function,
    Parameter,
    PlannedCall,
    Ready,
    Row,
    number,
)
from planner.calls.choose import looks as stages
from planner.calls.choose.choice import COLUMNS, LOOK, ChoiceArguments, Choosing, Task, rows
from planner.calls.choose.looks import Course, Ground, Strategy
from planner.cells.costs import rho_of
from planner.cells.workload import Recipe
from planner.ledger.accounts import Charge, Release
from planner.plans import wording
from planner.plans.plan import Planner
from planner.plans.release import Residual
from planner.policy.file import budget_cap
from planner.policy.table import Table
from planner.questions import body, linear
from planner.questions.linear import Question
from planner.sql import statement

Asked = tuple[Question, tuple[Recipe, ...]]
"""What an analysis asks, and how its answers are made of that."""

SNR, FRACTION, DEVIATIONS = 20.0, 0.5, 0.0
RULES = ("nested", "general")
EXAMPLE = "for example: ARRAY[$$SELECT count(*) FROM t$$, $$SELECT age / 10, count(*) FROM t GROUP BY 1$$]"


@dataclass(frozen=True, kw_only=True)
class Considered:
    """One analysis of a choice.

    passed, possible: nested rule; the parts of its groups that surely, and perhaps, have the ratio asked for when they
        are read off the next finer analysis. None if it was not looked at.
    good: the part of its groups that have the ratio if it is taken, as far as was seen.
    gain: general rule; how much of it becomes usable, times its weight.
    rho: what was charged until it was decided about; None if that was never so.
    rest: what it would still have cost when one was taken, or none.
    why: in a sentence.
    """

    sql: str
    chosen: bool
    passed: float | None
    possible: float | None
    good: float | None
    gain: float | None
    rho: float | None
    rest: float | None
    why: str


@dataclass(frozen=True)
class Choice:
    """Which analysis was taken: its index from 0 and its SQL, or None; by which rule; `cost` is the rho newly charged.

    Nothing is taken if no analysis can be good enough, or if you only look. What was released stays known.
    """

    index: int | None
    sql: str | None
    rule: str
    cost: Fraction
    analyses: tuple[Considered, ...]

    @classmethod
    def of(cls, rows: Sequence[Row], cost: Fraction) -> Choice:
        """Return the choice that the rows of the function tell."""
        found = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
        seen = tuple(
            Considered(**{name: value for name, value in row.items() if name not in NOT_EACH}) for row in found
        )
        index = next((i for i, one in enumerate(seen) if one.chosen), None)
        return cls(index, None if index is None else seen[index].sql, found[0]["rule"], cost, seen)

    @property
    def is_stopped(self) -> bool:
        """Whether no analysis can be good enough."""
        return self.index is None and self.rule != LOOK


NOT_EACH = ("analysis", "rule")


# --- what is asked -----------------------------------------------------------------------------------------


def _wish(arguments: Arguments) -> ChoiceArguments:
    rho = number(arguments, "rho", low=MIN_SETTING, high=MAX_SETTING, example="0.001")
    snr = number(arguments, "snr", low=MIN_SETTING, high=MAX_SETTING, example="20")
    fraction = number(arguments, "fraction", low=MIN_SETTING, high=1.0, example="0.5")
    deviations = number(arguments, "deviations", low=0.0, high=MAX_DEVIATIONS, example="3")
    stop = arguments["stop"].value
    return ChoiceArguments(
        snr=SNR if snr is None else snr,
        fraction=FRACTION if fraction is None else fraction,
        deviations=DEVIATIONS if deviations is None else deviations,
        stop=True if stop is None else stop,
        rho=None if rho is None else Fraction(rho).limit_denominator(10**15),  # as SET noisegate.rho reads it
        rule=_named_rule(arguments),
        weights=_weights(arguments),
        look=bool(arguments["look"].value),
        take=_taken(arguments),
    )


def _named_rule(arguments: Arguments) -> str | None:
    """Return the rule that is asked for: what is weighed is compared, by the general one."""
    rule, weights = arguments["rule"], arguments["weights"]
    if rule.value is not None and rule.value not in RULES:
        raise BadValue(f"there is no rule {rule.value!r}", hint=f"there are: {', '.join(RULES)}", span=rule.span)
    if weights.value is None:
        return None if rule.value is None else str(rule.value)
    if rule.value == "nested":
        raise BadValue(
            "the nested rule does not weigh analyses",
            hint="leave out weights, or use rule => 'general'",
            span=rule.span,
        )
    return "general"


def _weights(arguments: Arguments) -> tuple[float, ...] | None:
    weights = arguments["weights"]
    if weights.value is None:
        return None
    found = tuple(item.value for item in weights.value)
    if len(found) != len(arguments["sqls"].value) or not all(MIN_SETTING <= weight <= MAX_SETTING for weight in found):
        raise BadValue(
            f"weights must be positive numbers, one for each of the {len(arguments['sqls'].value)} analyses",
            hint="for example: weights => ARRAY[1, 2]",
            span=weights.span,
        )
    return found


def _taken(arguments: Arguments) -> int | None:
    """Return the index of the analysis that is to be taken, whatever a rule would say."""
    take, count = arguments["take"], len(arguments["sqls"].value)
    if take.value is None:
        return None
    if arguments["look"].value:
        raise BadValue("either look or take", hint="look first, and then take one", span=take.span)
    if take.value not in range(1, count + 1):
        raise BadValue(
            f"take must be the number of an analysis, 1 to {count}, got {take.value:g}",
            hint="for example: take => 1",
            span=take.span,
        )
    return int(take.value) - 1


def _questions(caller: Caller, sqls: Constant) -> list[Asked]:
    """Return what each analysis asks; all are about one table."""
    if not 2 <= len(sqls.value) <= MAX_ANALYSES:
        raise BadValue(
            f"a choice is among 2 to {MAX_ANALYSES} analyses, got {len(sqls.value)}", hint=EXAMPLE, span=sqls.span
        )
    found = [_question(caller, text) for text in sqls.value]
    for (question, _), text in zip(found, sqls.value, strict=True):
        if question.workspace.table is not found[0][0].workspace.table:
            raise Unsupported(
                "the analyses are about different tables", hint="choose among analyses of one table", span=text.span
            )
    return found


def _question(caller: Caller, text: Constant) -> Asked:
    try:
        query = statement.read(text.value)
        if not isinstance(query, statement.Query):
            raise Forbidden("an analysis must be a SELECT", hint=EXAMPLE)
        with caller.prepared(query) as ready:
            return _linear(ready)
    except Refusal as refused:
        refused.span = text.place(refused.span)
        raise


def _linear(ready: Ready) -> Asked:
    """Return the one question of counts, sums and averages that a query asks, and how its answers are made."""
    if ready.call is not None or len(ready.parts) != 1:
        raise Unsupported("an analysis must be one aggregate query about a protected table", hint=EXAMPLE)
    (part,) = ready.parts
    for aggregate in part.measured.aggregates:
        if aggregate.traits.powers not in (0, 1):
            raise Unsupported(
                f"{aggregate.kind} has no signal-to-noise ratio to choose by: it is not a sum over rows",
                hint="choose among counts, sums and averages",
                span=aggregate.span,
            )
    if part.marginals is not None or len(part.linear) > 1:
        raise TooLarge("an analysis has too many answers to choose by", hint="ask for fewer groups, or grouping sets")
    if not part.linear or not linear.reach(part.linear[0][0]).any():
        raise Unsupported("an analysis must count or sum something", hint=EXAMPLE)
    return part.linear[0][0], part.recipes


# --- the function ------------------------------------------------------------------------------------------


def plan(caller: Caller, arguments: Arguments) -> PlannedCall:
    """Return what a choice would release on each way, and what that costs; read nothing protected."""
    asked, sqls = _asked(caller, arguments), tuple(text.value for text in arguments["sqls"].value)
    stored = None if asked.wish.look else _stored(caller, asked, asked.digest)
    if stored is not None:
        return _replay(stored, sqls, asked.table)
    if caller.settings.as_of is not None:
        raise BadValue(
            f"release {caller.settings.as_of} and those before it do not tell this choice",
            hint="RESET noisegate.as_of to choose anew",
        )
    task = _task(caller, asked, sqls, arguments["rule"])
    return PlannedCall(
        alternatives=[_charges(asked.table, way) for way in task.ways],
        populations=(asked.table.population,),
        path=_path(task),
        lines=tuple(_lines(task)),
        releases=tuple(sorted({*task.ground.releases, *(release.id for release in task.stored.values())})),
        run=lambda sql, step: Choosing(task, sql, step).run(),
    )


@dataclass(frozen=True)
class _Asked:
    """What is to be chosen among: each analysis as it is measured alone, on which version of the data, how."""

    wish: ChoiceArguments
    table: Table
    version: int
    strategies: tuple[Strategy, ...]

    @property
    def digest(self) -> str:
        """What makes two choices the same: the analyses, how well each is told, and all that decides."""
        wish = self.wish
        decides = [wish.snr, wish.fraction, wish.deviations, wish.stop, wish.rule, wish.weights]
        return self._digest("choice 2", wish.take if wish.take is not None else decides)

    def begun(self, rule: str) -> str:
        """Return what makes the looks of two choices the same."""
        return self._digest("looks 1", rule)

    def _digest(self, *what: object) -> str:
        asked = [strategy.measurement.digest(strategy.question) for strategy in self.strategies]
        return hashlib.sha256(json.dumps([*what, asked]).encode()).hexdigest()


def _asked(caller: Caller, arguments: Arguments) -> _Asked:
    wish, questions = _wish(arguments), _questions(caller, arguments["sqls"])
    table = questions[0][0].workspace.table
    settings = caller.settings if wish.rho is None else replace(caller.settings, rho=wish.rho)
    planner = caller.planner(settings)
    strategies = tuple(_strategy(planner, *question) for question in questions)
    return _Asked(wish, table, planner.version(table.name), strategies)


def _task(caller: Caller, asked: _Asked, sqls: tuple[str, ...], rule: Constant) -> Task:
    """Return the choice that is still to be made, on what is known now, or as it was begun, whichever costs less."""
    history, version = caller.moment.history(asked.table.name), asked.version
    grounds = [stages.ground(asked.strategies, history, version)]
    by = _rule(asked.wish, grounds[0], rule)
    before = _stored(caller, asked, asked.begun(by))
    if before is not None:
        then = stages.ground(asked.strategies, history, version, as_of=body.decode(before.body)["as_of"])
        if grounds[0].is_whole or not then.is_whole:  # else what was known then might not be brought to a question now
            grounds.insert(0, then)
    courses = [(ground, stages.course(ground, nested=by == "nested")) for ground in grounds]
    tasks = [
        Task(
            caller=caller,
            wish=asked.wish,
            sqls=sqls,
            digest=asked.digest,
            begun=asked.begun(by),
            rule=by,
            ground=ground,
            course=course,
            stored=_released(caller, asked, course),
        )
        for ground, course in courses
    ]
    return min(tasks, key=lambda task: task.price)


def _released(caller: Caller, asked: _Asked, course: Course) -> dict[str, Release]:
    """Return by its key what is released already of all that is on a way."""
    parts = {part.key: part for part in (*course.looks, *course.rests) if part is not None}
    found = (release for part in parts.values() for release in caller.moment.find(part.digest, table=asked.table.name))
    return {release.key: release for release in found if release.key in parts}


def _replay(stored: Release, sqls: Sequence[str], table: Table) -> PlannedCall:
    lines = (_title(len(sqls), table), wording.line("known already", f"chosen before: release {stored.id}"))
    told = CallResult(rows(stored.body, sqls), Fraction(0))
    return PlannedCall(
        alternatives=(),
        populations=(table.population,),
        path="free",
        lines=lines,
        releases=(stored.id,),
        run=lambda *_: told,
    )


def _strategy(planner: Planner, question: Question, recipes: tuple[Recipe, ...]) -> Strategy:
    """Return what the planner would measure if nothing were known."""
    table, rho = question.workspace.table, planner.settings.rho
    targets = planner.targets(question, planner.error(table.name))
    if rho is None:
        return Strategy(question, recipes, linear.meeting(question, targets), targets)
    return Strategy(
        question, recipes, *linear.spending(question, targets, rho=rho, rows_per_unit=table.max_rows_per_unit)
    )


def _rule(wish: ChoiceArguments, ground: Ground, argument: Constant) -> str:
    if wish.rule == "nested" and not ground.is_nested:
        raise Unsupported(
            "the analyses are not nested: each must follow from the next finer one",
            hint="use rule => 'general'",
            span=argument.span,
        )
    return wish.rule or ("nested" if ground.is_nested else "general")


def _stored(caller: Caller, asked: _Asked, digest: str) -> Release | None:
    latest = caller.settings.as_of
    found = [r for r in caller.moment.find(digest, table=asked.table.name) if r.version == asked.version]
    return next((r for r in found if latest is None or r.id <= latest), None)


def _charges(table: Table, way: Sequence[Residual]) -> list[Charge]:
    return [Charge(population=table.population, table=table.name, version=part.version, cost=part.cost) for part in way]


# --- for people --------------------------------------------------------------------------------------------


def _path(task: Task) -> str:
    if not any(task.ways):
        return "free"
    return "join" if task.ground.releases or task.stored else "direct"


def _title(count: int, table: Table) -> str:
    return f"Choice among {count} analyses of {table.name}"


def _lines(task: Task) -> list[str]:
    """Return what EXPLAIN says: the rule, what is looked at, and what each way costs."""
    line, workspace = wording.line, task.ground.chart.workspace
    sizes = " × ".join(f"{axis.column} {axis.size}" for axis in workspace.axes)
    cells = wording.number(workspace.cells, "cell") + (f" ({sizes})" if sizes else "")
    lines = [_title(len(task.sqls), task.ground.table), *_rules(task), line("measured on", cells)]
    if task.ground.releases:
        lines.append(line("known already", f"releases {wording.ranges(task.ground.releases)}"))
    looks = task.course.looks[:1] if task.wish.look else task.course.looks
    for index, look in enumerate(looks if task.wish.take is None else ()):
        of = f"analysis {task.numbers[index] + 1}" if task.rule == "nested" else "all analyses"
        lines.append(line(f"look {index + 1}", f"at {of}: {_amount(task, look)}"))
    for index, place in enumerate(task.numbers):
        if task.wish.take in (None, place):
            lines.append(line(f"if {place + 1} is taken", _price(task, task.missing(index), " in all")))
    return lines


def _rules(task: Task) -> Iterator[str]:
    wish = task.wish
    if wish.take is not None:
        yield wording.line("rule", f"none: analysis {wish.take + 1} is taken")
        return
    sure = "" if not wish.deviations else f", {wish.deviations:g} standard deviations clear of it"
    good = f"{wish.fraction:.0%} of its groups have a ratio of {wish.snr:g}{sure}"
    if wish.look:
        yield wording.line("rule", "none: what is seen is told, and nothing is taken")
    elif task.rule == "nested":
        kept = f"{wish.fraction:.0%} of the groups keep a ratio of {wish.snr:g}{sure}"
        yield wording.line("rule", f"nested: go on while {kept}")
    else:
        yield wording.line("rule", f"general: where most becomes usable, if {good}")
    if wish.stop and not wish.look:
        which = f"analysis {task.numbers[0] + 1}" if task.rule == "nested" else "any analysis"
        yield wording.line("stop", f"unless {which} can be good enough: {good}")


def _amount(task: Task, look: Residual | None) -> str:
    if look is None or look.key in task.stored:
        return "known already"
    return f"{wording.number(len(look.measurement.K), 'noisy sum')}, {_price(task, [look])}"


def _price(task: Task, way: Sequence[Residual], more: str = "") -> str:
    """Return what a way charges the dearest cell, as a part of the budget and as rho."""
    rho = rho_of(stages.highest(way))
    return f"{wording.price(rho, budget_cap(task.caller.policy))}{more}" if rho else "free"


FUNCTION = Function(
    "choose",
    (
        Parameter("sqls", "text[]", required=True),
        Parameter("snr", "number"),
        Parameter("fraction", "number"),
        Parameter("rho", "number"),
        Parameter("rule", "text"),
        Parameter("deviations", "number"),
        Parameter("stop", "boolean"),
        Parameter("weights", "number[]"),
        Parameter("look", "boolean"),
        Parameter("take", "number"),
    ),
    COLUMNS,
    plan,
)
