"""A choice as it is made: what is looked at, what that decides, which analysis is taken, and what is said about it.

Guarantee: every look is drawn, charged and stored before anything is decided from it, and the decision is a function
of what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from mechanisms.gaussian.signals import SignalToNoise
from planner.basics.errors import Refusal
from planner.calls.call import Caller, CallResult, Row, Step
from planner.calls.choose import looks
from planner.calls.choose.looks import Course, Ground
from planner.cells.costs import Cost, constant, dearest, rho_of
from planner.ledger.accounts import Release
from planner.ledger.kinds import Kind
from planner.plans.release import Residual, versioned
from planner.plans.task import Payable
from planner.questions import body as bodies
from planner.sources.measure import Meter

AGAIN = "the looks so far were charged and stay known: choose again, and pay for the rest only"
NOTHING = constant(0)
LOOK, TAKE = "look", "take"
"""What stands in place of a rule where the analyst decides."""

COLUMNS = {
    "analysis": "BIGINT",
    "sql": "VARCHAR",
    "chosen": "BOOLEAN",
    "rule": "VARCHAR",
    "passed": "DOUBLE",
    "possible": "DOUBLE",
    "good": "DOUBLE",
    "gain": "DOUBLE",
    "rho": "DOUBLE",
    "rest": "DOUBLE",
    "why": "VARCHAR",
}


@dataclass(frozen=True, kw_only=True)
class ChoiceArguments:
    """The arguments of a choice.

    snr, fraction, deviations: an analysis is good enough if this part of its groups have this ratio, so many standard
        deviations of what was seen beyond it.
    stop: whether nothing is taken if no analysis can be good enough.
    rho: what each costs; None for the session's accuracy.
    weights: what each is worth; None if all are worth the same.
    look: whether the analyst decides after the first look; take: the index of the one that they take.
    """

    snr: float
    fraction: float
    deviations: float
    stop: bool
    rho: Fraction | None
    rule: str | None
    weights: tuple[float, ...] | None
    look: bool
    take: int | None


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was chosen and why, or how a choice was begun, stored so that it is the same the next time; free."""

    table: str
    version: int
    digest: str
    body: bytes
    kind: Kind = Kind.CHOICE
    cost: Cost = NOTHING

    @property
    def key(self) -> str:
        return versioned(self.version, self.digest)

    def draw(self, meter: Meter) -> bytes:  # noqa: ARG002 - nothing more is read
        return self.body


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """A choice that is still to be made: among what, by which rule, and what is released on each way.

    digest: of this choice, with all that was wished; begun: of any choice that begins with the same looks.
    stored: by their keys, what is released already of all that is on a way.
    """

    caller: Caller
    wish: ChoiceArguments
    sqls: tuple[str, ...]
    digest: str
    begun: str
    rule: str
    ground: Ground
    course: Course
    stored: Mapping[str, Release]

    @property
    def numbers(self) -> list[int]:
        """The numbers of the analyses as they were listed, from the coarsest to the finest."""
        return [one.number for one in self.ground.analyses]

    def missing(self, index: int) -> list[Residual]:
        """Return what is still to be released if an analysis is taken."""
        return [part for part in self.course.way(index) if part.key not in self.stored]

    @property
    def ways(self) -> list[list[Residual]]:
        """What may be released, in all: one of these."""
        first = self.course.looks[0]
        look = [] if first is None or first.key in self.stored else [first]
        if self.wish.look:
            return [look]
        if self.wish.take is not None:
            return [self.missing(self.numbers.index(self.wish.take))]
        return [*([look] if self.wish.stop else []), *(self.missing(index) for index in range(len(self.sqls)))]

    @property
    def price(self) -> int:
        """The most that the dearest cell may be charged, in units."""
        return max(looks.highest(way) for way in self.ways)


@dataclass(frozen=True, kw_only=True)
class _Seen:
    """What was seen of an analysis before one was taken: columns of the result."""

    passed: float | None = None
    possible: float | None = None
    good: float | None = None
    gain: float | None = None
    rho: float | None = None
    rest: float | None = None
    why: str = ""


@dataclass
class Choosing:
    """One choice while it is made: what is known so far, what was paid, what was seen of each analysis."""

    task: Task
    sql: str
    step: Step
    paid: list[Cost] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known, self.done = self.task.ground.known, dict(self.task.stored)
        self.seen = [_Seen() for _ in self.task.sqls]  # as the analyses: from the coarsest to the finest

    def run(self) -> CallResult:
        try:
            body = self._run()
        except Refusal as refused:
            if self.paid:
                refused.hint = AGAIN
            raise
        return CallResult(rows(body, self.task.sqls), rho_of(dearest(self.paid)))

    def _run(self) -> bytes:
        wish = self.task.wish
        if wish.look:
            self._look(0)
            self._judge()
            self._say(lambda i: f"{_share(self.seen[i].good)} would have a ratio of {wish.snr:g}")
            return self._body(LOOK, None)
        if wish.take is not None:
            taken = self.task.numbers.index(wish.take)
            self._say(lambda i: "taken, as you asked" if i == taken else "not taken")
            return self._settle(TAKE, taken)
        return self._settle(self.task.rule, self._nested() if self.task.rule == "nested" else self._general())

    # Deciding.

    def _nested(self) -> int | None:
        """Return the index of the first analysis that would suffer too much from the next finer one (section 6.1).

        None if not even the coarsest, asked alone, can be good enough.
        """
        wish = self.task.wish
        taken = next((i for i in range(len(self.task.course.looks)) if not self._is_kept(i)), len(self.seen) - 1)
        self._judge()
        if taken == 0 and wish.stop and self._is_hopeless(0):
            self._say(self._why_stopped)
            return None
        self._say(lambda index: self._why_nested(index, taken))
        return taken

    def _is_kept(self, index: int) -> bool:
        """Look at an analysis, and return whether it can be read off the next finer one."""
        wish = self.task.wish
        self._look(index)
        found = self._ratios(of=index, taking=index + 1)
        passed, possible = found.passed(wish.snr), found.possible(wish.snr)
        self.seen[index] = _Seen(passed=passed, possible=possible, rho=_rho(self.paid))
        return found.suffices(share=wish.fraction, ratio=wish.snr)

    def _general(self) -> int | None:
        """Return the index of the analysis of which most becomes usable, of those that are good enough (section 6.2).

        None if none can be. If that shall not matter, all are compared.
        """
        wish, every = self.task.wish, range(len(self.seen))
        self._look(0)
        self._judge()
        gains = [weight * self._gain(index) for index, weight in enumerate(self._weights())]
        self.seen = [replace(self.seen[i], gain=gains[i], rho=_rho(self.paid)) for i in every]
        hopeful = [i for i in every if not wish.stop or not self._is_hopeless(i)]
        if not hopeful:
            self._say(self._why_stopped)
            return None
        among = [i for i in every if (self.seen[i].good or 0.0) >= wish.fraction] or hopeful
        taken = max(among, key=lambda i: (gains[i], -self.task.numbers[i]))
        self._say(lambda index: self._why_general(index, taken, among))
        return taken

    def _weights(self) -> list[float]:
        weights = self.task.wish.weights
        return [1.0 if weights is None else weights[number] for number in self.task.numbers]

    def _ratios(self, *, of: int, taking: int) -> SignalToNoise:
        task = self.task
        deviations = task.wish.deviations
        return looks.ratios(task.ground, task.course, self.known, of=of, taking=taking, deviations=deviations)

    def _gain(self, index: int) -> float:
        task, wish = self.task, self.task.wish
        return looks.gain(task.ground, task.course, self.known, index=index, ratio=wish.snr, deviations=wish.deviations)

    def _is_hopeless(self, index: int) -> bool:
        wish = self.task.wish
        return self._ratios(of=index, taking=index).is_hopeless(share=wish.fraction, ratio=wish.snr)

    def _judge(self) -> None:
        """See which part of each analysis's groups would be good, and what it would still cost."""
        for index, seen in enumerate(self.seen):
            good = self._ratios(of=index, taking=index).passed(self.task.wish.snr)
            self.seen[index] = replace(seen, good=good, rest=self._rest(index))

    def _rest(self, index: int) -> float:
        return _rho([part.cost for part in self.task.course.way(index) if part.key not in self.done])

    # Releasing.

    def _look(self, index: int) -> None:
        """Release what is looked at; only what is durable is known.

        With the first look is stored what was known before it, so that any later choice can go on from there.
        """
        look, ground = self.task.course.looks[index], self.task.ground
        if look is None:
            return
        begun = Record(
            table=ground.table.name,
            version=ground.version,
            digest=self.task.begun,
            body=bodies.encode({"as_of": ground.last}),
        )
        if look.key not in self.done:
            self._release([look] if index else [look, begun])
        release = self.done[look.key]
        if release.id not in ground.releases:  # else it is known already
            self.known = self.known.with_rows(ground.rows(look), bodies.values(release).ravel())

    def _settle(self, rule: str, index: int | None) -> bytes:
        """Release the rest of an analysis together with the record of the choice, and return what is recorded."""
        task = self.task
        way = [] if index is None else [part for part in task.course.way(index) if part.key not in self.done]
        if index is not None:
            total = [*self.paid, *(part.cost for part in way)]
            self.seen[index] = replace(self.seen[index], rho=_rho(total), rest=0.0)
        record = Record(
            table=task.ground.table.name, version=task.ground.version, digest=task.digest, body=self._body(rule, index)
        )
        self._release([*way, record])
        return self.done[record.key].body

    def _release(self, tasks: Sequence[Payable]) -> None:
        found, _ = self.task.caller.release(tasks, self.sql, self.step)
        self.done |= {release.key: release for release in found}
        self.paid += [release.cost for release in found if not release.replayed]

    # Telling.

    def _body(self, rule: str, index: int | None) -> bytes:
        order = self.task.numbers
        seen = [vars(self.seen[order.index(number)]) for number in range(len(order))]
        return bodies.encode({"rule": rule, "chosen": None if index is None else order[index], "seen": seen})

    def _say(self, why: Callable[[int], str]) -> None:
        self.seen = [replace(seen, why=why(index)) for index, seen in enumerate(self.seen)]

    def _why_nested(self, index: int, taken: int) -> str:
        numbers = [number + 1 for number in self.task.numbers]
        if index > taken:
            return f"too fine: analysis {numbers[taken]} would suffer"
        if index == len(numbers) - 1:
            return f"taken: the finest, and analysis {numbers[index - 1]} can be read off it"
        kept = (
            f"{_share(self.seen[index].passed)} keep a ratio of {self.task.wish.snr:g} in analysis {numbers[index + 1]}"
        )
        return f"taken: only {kept}" if index == taken else kept

    def _why_stopped(self, index: int) -> str:
        wish, numbers = self.task.wish, [number + 1 for number in self.task.numbers]
        if self.task.rule == "nested" and index:
            return f"stopped: not even analysis {numbers[0]} is good enough"
        most = _share(self._ratios(of=index, taking=index).possible(wish.snr))
        return f"stopped: {'at most ' if wish.deviations else ''}{most} would have a ratio of {wish.snr:g}"

    def _why_general(self, index: int, taken: int, among: Sequence[int]) -> str:
        if index == taken:
            return "taken: most is gained by it"
        if index in among:
            return "less is gained by it"
        return f"not good enough: {_share(self.seen[index].good)} would have a ratio of {self.task.wish.snr:g}"


def _share(part: float | None) -> str:
    return f"{part or 0:.0%} of its groups"


def _rho(costs: Sequence[Cost]) -> float:
    return float(rho_of(dearest(costs)))


def rows(stored: bytes, sqls: Sequence[str]) -> list[Row]:
    """Return the rows of the function, from what was stored of the choice."""
    body: dict[str, Any] = bodies.decode(stored)
    names = list(COLUMNS)[4:]
    return [
        (i + 1, sql, i == body["chosen"], body["rule"], *(seen[name] for name in names))
        for i, (sql, seen) in enumerate(zip(sqls, body["seen"], strict=True))
    ]
