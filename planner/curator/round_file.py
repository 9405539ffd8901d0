"""A round as a file: the policy, the round's name, and its queries, each with an analyst and an accuracy.

policy = "noisegate.toml"
round = "q3"
mechanism = "waterfilling"      # may be left out, as rho and the weights of analysts

[analysts.ann]
weight = 2

[queries.regions]
analyst = "ann"
sql = "SELECT region, count(*) FROM people GROUP BY region"
error = 20
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from planner.basics.errors import Mistake, Refusal
from planner.calls.call import written
from planner.calls.rounds import roster, rounds
from planner.calls.rounds.model import RoundQuery
from planner.calls.rounds.payment import MECHANISMS
from planner.calls.rounds.roster import Accuracy, Entry
from planner.calls.rounds.rounds import Terms
from planner.gate import Gate
from planner.plans.explain import Explanation
from planner.plans.result import Result
from planner.plans.settings import Settings
from planner.policy.file import opened, refusal
from planner.policy.toml import Section
from planner.session import Session
from planner.shared import Shared

KEYS = ("policy", "round", "mechanism", "rho", "analysts", "queries")
ACCURACY = ("error", "importance", "sum_error", "confidence")


@dataclass(frozen=True)
class Wanted:
    """One query of the file: its name there, the line of its SQL, who asks, and the accuracy as far as it is given."""

    name: str
    line: int
    analyst: str | None
    sql: str
    accuracy: Mapping[str, float]

    def wish(self, defaults: Settings) -> Accuracy:
        found = Accuracy.of(defaults)
        given = dict(self.accuracy)
        importance = given.pop("importance", 1.0)
        return replace(found, **given).scaled(importance**-0.5)  # type: ignore[arg-type]  # by name, all numbers


@dataclass(frozen=True)
class RoundFile:
    """What a file says, checked by itself; the policy's path is relative to the file."""

    path: Path
    policy: Path
    round: str
    terms: Terms
    queries: tuple[Wanted, ...]


def load(path: str | Path) -> RoundFile:
    """Return the round in a file, or raise PolicyRefusal with all its mistakes, one line each."""
    file = Path(path)
    root = opened(file)
    found = _read(root, file)
    if root.mistakes:
        raise refusal(file, root.mistakes)
    return found


def _read(root: Section, path: Path) -> RoundFile:
    root.only(KEYS)
    for key in ("policy", "round", "queries"):
        if key not in root:
            root.wrong(f"{key} is missing")
    rho = _positive(root, "rho")
    queries = tuple(_query(section) for section in root.child("queries").children().values())
    weights = {name: _weight(section) for name, section in root.child("analysts").children().items()}
    mechanism = root.choice("mechanism", MECHANISMS)
    terms = Terms(mechanism, None if rho is None else Fraction(rho), weights or None)
    return RoundFile(path, path.parent / (root.text("policy") or ""), root.text("round") or "", terms, queries)


def _query(section: Section) -> Wanted:
    section.only(("analyst", "sql", *ACCURACY))
    if "sql" not in section:
        section.wrong("sql is missing")
    if "error" in section and "importance" in section:
        section.wrong("a query has an error or an importance, not both", "importance")
    accuracy = {key: float(value) for key in ACCURACY if (value := _positive(section, key)) is not None}
    if not 0.5 <= accuracy.get("confidence", 0.95) < 1:
        section.wrong("confidence must be at least 0.5 and below 1", "confidence")
    line = section.lines.get((*section.path, "sql"), section.lines.get(section.path, 1))
    return Wanted(str(section.path[-1]), line, section.text("analyst"), section.text("sql") or "", accuracy)


def _weight(section: Section) -> Fraction:
    section.only(("weight",))
    if "weight" not in section:
        section.wrong("weight is missing")
    return Fraction(_positive(section, "weight") or 1)


def _positive(section: Section, key: str) -> Decimal | None:
    value = section.number(key)
    if value is not None and not 1e-9 <= float(value) <= 1e18:
        section.wrong(f"{key} must be a number from 1e-09 to 1e+18, got {value}", key)
        return None
    return value


def asked(gate: Gate, found: RoundFile, *, on_query: Callable[[int, int], None]) -> list[RoundQuery]:
    """Return the queries compiled and placed, or raise PolicyRefusal with the line of each that can't be."""
    queries, mistakes = [], []
    for number, wanted in enumerate(found.queries):
        on_query(number, len(found.queries))
        where = f"queries.{wanted.name}"
        try:
            analyst = gate.session(wanted.analyst).analyst
            entry = Entry(
                number=-1 - number,
                round=found.round,
                analyst=analyst,
                sql=wanted.sql,
                wish=wanted.wish(Settings.of(gate.policy)),
                created="",
            )
            queries.append(replace(rounds.asked(gate, entry), label=wanted.name))
        except Refusal as refused:
            hint = f" ({refused.hint})" if refused.hint else ""
            mistakes.append(Mistake(wanted.line, where, f"{refused.message}{hint}"))
    if mistakes:
        raise refusal(found.path, mistakes)
    return queries


def price(session: Session, found: RoundFile, queries: Sequence[RoundQuery]) -> Explanation:
    """Return what releasing the round would cost, with what was enlisted in it before; store and spend nothing."""
    if rounds.released(session, found.round) is not None:
        return session.explain(_call(found))
    every = _with_enlisted(session.gate, queries)
    return session.price(rounds.planned(session, found.round, every, found.terms))


def release(
    session: Session, found: RoundFile, queries: Sequence[RoundQuery], *, on_step: Callable[[str], None]
) -> Result:
    """Enlist the queries and release the round; the same file a second time is free."""
    if rounds.released(session, found.round) is None:
        for query in queries:
            entry = query.entry
            roster.enlist(session.gate.ledger, entry.round, entry.analyst, entry.sql, entry.wish)
    return session.execute(_call(found), on_step=on_step)


def _call(found: RoundFile) -> str:
    terms = found.terms
    weights = None if terms.weights is None else rounds.listed(terms.weights)
    return written("release", found.round, mechanism=terms.mechanism, rho=terms.rho, weights=weights)


def _with_enlisted(gate: Shared, queries: Sequence[RoundQuery]) -> list[RoundQuery]:
    """Return the queries of a file with those that were enlisted in the same round before."""
    own = {(query.entry.analyst, query.entry.sql) for query in queries}
    before = roster.entries(gate.ledger, queries[0].entry.round) if queries else []
    return [*(rounds.asked(gate, e) for e in before if (e.analyst, e.sql) not in own), *queries]
