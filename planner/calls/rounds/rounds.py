"""Rounds: queries that several analysts, or one with a whole report, want released together.

noisegate.enlist stores a query with its accuracy and spends nothing. noisegate.release plans all of a round at once,
and charges and stores everything in one commit, together with a record of the round. Afterwards every plain SELECT is
free for everyone, at the error it was enlisted with.

Guarantee: a round is released once on the same data, wholly or not at all. In no cell is anybody charged more than a
round of their queries alone would charge them (but for who releases it, with a given rho or another mechanism than
water-filling), and in every cell all together are charged at least what is released.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from numbers import Real

from planner.basics.errors import BadValue, Forbidden, Refusal, Unsupported, WrongType
from planner.basics.limits import MAX_ROUND_NAME, MAX_SETTING, MIN_SETTING
from planner.basics.stopping import holding
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
from planner.calls.rounds import payment, roster
from planner.calls.rounds.model import RoundQuery
from planner.calls.rounds.offer import RELEASED, Offer, details_of, lines_of, rows_of
from planner.calls.rounds.payment import MECHANISMS
from planner.calls.rounds.planner import Workshop
from planner.calls.rounds.roster import Accuracy, Entry
from planner.cells.costs import Cost, constant
from planner.ledger.accounts import Release, total
from planner.ledger.kinds import Kind
from planner.plans import wording
from planner.plans.plan import Planner
from planner.plans.release import versioned
from planner.policy.file import Policy
from planner.questions import body as bodies
from planner.sources.measure import Meter
from planner.sql import statement

NOTHING = constant(0)

ENLISTED = {
    "round": "VARCHAR",
    "query": "BIGINT",
    "analyst": "VARCHAR",
    "answers": "BIGINT",
    "error": "DOUBLE",
    "rho_alone": "DOUBLE",
}
WITHDRAWN = {"round": "VARCHAR", "query": "BIGINT", "sql": "VARCHAR"}


@dataclass(frozen=True)
class Published:
    """One query of a released round, as noisegate.release tells it.

    asked, error: the half-width that was asked for, and that there is now, of the count or sum for which that is most
        of what was asked; None where it depends on the answer.
    rho_alone: what the query would have cost by itself; paid: what its analyst pays for the whole round.
    gain: how much better the analyst fares than alone: what their queries alone would cost over what is paid, or in a
        round with a given rho the error alone over the error now. None if they pay nothing.
    """

    query: int
    analyst: str
    sql: str
    asked: float | None
    error: float | None
    rho_alone: float
    paid: float
    gain: float | None


@dataclass(frozen=True)
class Publication:
    """What releasing a round gave: one entry for each query; `cost` is the rho newly charged on the dearest cell."""

    queries: tuple[Published, ...]
    cost: Fraction

    @classmethod
    def of(cls, rows: Sequence[Row], cost: Fraction) -> Publication:
        return cls(tuple(Published(*row) for row in rows), cost)


# --- enlisting ---------------------------------------------------------------------------------------------


def _name(argument: Constant) -> str:
    name = str(argument.value)
    if not name.strip() or len(name) > MAX_ROUND_NAME or not name.isprintable():
        raise BadValue(
            f"the name of a round has 1 to {MAX_ROUND_NAME} printable characters",
            hint="for example: 'q3'",
            span=argument.span,
        )
    return name


def _wish(caller: Caller, arguments: Arguments) -> Accuracy:
    """Return the accuracy that a query is enlisted with: the session's, but for what the call says."""
    error = number(arguments, "error", low=MIN_SETTING, high=MAX_SETTING, example="20")
    sums = number(arguments, "sum_error", low=MIN_SETTING, high=MAX_SETTING, example="10000")
    confidence = number(arguments, "confidence", low=0.5, high=1 - 1e-9, example="0.95")
    importance = number(arguments, "importance", low=MIN_SETTING, high=MAX_SETTING, example="4")
    if error is not None and importance is not None:
        raise BadValue(
            "a query has an error or an importance, not both",
            hint="importance => 4 asks for half of the session's error",
            span=arguments["importance"].span,
        )
    wish = Accuracy.of(caller.settings)
    if error is not None:
        wish = replace(wish, error=error, relative=False)
    wish = replace(
        wish,
        sum_error=wish.sum_error if sums is None else sums,
        confidence=wish.confidence if confidence is None else confidence,
    )
    return wish if importance is None else wish.scaled(importance**-0.5)


def workshop(caller: Caller) -> Workshop:
    """Return where the queries of a round are planned."""
    moment = caller.moment
    return Workshop(lambda settings: Planner(moment, settings), caller.policy.tables)


def asked(gate: Preparing, entry: Entry) -> RoundQuery:
    """Return a query compiled and placed; refuse what can't belong to a round."""
    query = statement.read(entry.sql)
    if not isinstance(query, statement.Query):
        raise Forbidden("a query of a round must be a SELECT", hint="for example: SELECT count(*) FROM …")
    with gate.prepared(query) as ready:
        if ready.call is not None or not ready.parts:
            raise Unsupported(
                "a query of a round must ask for aggregates of a protected table",
                hint="what reads no protected table is free at any time",
            )
        return RoundQuery(entry, ready.compiled, ready.parts, entry.wish.settings, f"query {entry.number}")


def _enlist(caller: Caller, arguments: Arguments) -> PlannedCall:
    """Return what enlisting a query would do; it is checked as EXPLAIN would."""
    round_, text = _name(arguments["round"]), arguments["sql"]
    wish = _wish(caller, arguments)
    draft = Entry(number=0, round=round_, analyst=caller.analyst, sql=text.value, wish=wish, created="")
    try:
        found = asked(caller, draft)
        charges = workshop(caller).alone_charges(found)
    except Refusal as refused:
        refused.span = text.place(refused.span)
        raise
    _check_open(caller, round_, arguments["round"])
    alone = float(total(charges))
    lines = (
        f"Query for round {round_}: {wording.number(found.answers, 'answer')}, ± {wish.text}",
        wording.line("asked alone", f"ρ {alone:.3g} on the dearest cell" if alone else "free: already known"),
    )

    def run(sql: str, step: Step) -> CallResult:  # noqa: ARG001 - nothing is measured
        kept = roster.enlist(caller, round_, caller.analyst, text.value, wish)
        row = (round_, kept.number, caller.analyst, found.answers, None if wish.relative else wish.error, alone)
        return CallResult([row], Fraction(0))

    populations = tuple(dict.fromkeys(part.measured.table.population for part in found.parts))
    return PlannedCall(
        alternatives=(), populations=populations, path="exact", lines=lines, releases=(), run=run, keeps=True
    )


def _check_open(caller: Caller, round_: str, argument: Constant) -> None:
    if (stored := released(caller, round_)) is not None:
        raise BadValue(
            f"round {round_} was released already: release {stored.id}",
            hint="enlist the query in another round",
            span=argument.span,
        )


def released(caller: Caller, round_: str) -> Release | None:
    """Return the record of a round's release on today's data; None if it is open."""
    moment = caller.moment
    record = partial(moment.find, roster.question_of(round_))
    return roster.released(record(), lambda name: moment.edition(name).version, protected(caller.policy))


def protected(policy: Policy) -> list[str]:
    """Return the names of the protected tables."""
    return [table.name for table in policy.tables.values() if table.kind == "protected"]


def _withdraw(caller: Caller, arguments: Arguments) -> PlannedCall:
    round_ = _name(arguments["round"])
    which = number(arguments, "query", low=1, high=2**53, example="3")

    def run(sql: str, step: Step) -> CallResult:  # noqa: ARG001 - nothing is measured
        found = roster.withdraw(caller, round_, caller.analyst, None if which is None else int(which))
        return CallResult([(entry.round, entry.number, entry.sql) for entry in found], Fraction(0))

    lines = (f"Withdraws from round {round_} what you have enlisted",)
    return PlannedCall(
        alternatives=(),
        populations=_populations(caller.policy),
        path="exact",
        lines=lines,
        releases=(),
        run=run,
        keeps=True,
    )


def _populations(policy: Policy) -> tuple[str, ...]:
    return tuple(dict.fromkeys(policy.tables[name].population for name in protected(policy)))


# --- releasing ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """How a round is released: by which mechanism, for which rho (None: as accurate as asked), with which weights."""

    mechanism: str | None = None
    rho: Fraction | None = None
    weights: Mapping[str, Fraction] | None = None


def _terms(arguments: Arguments) -> Terms:
    mechanism = arguments["mechanism"]
    rho = number(arguments, "rho", low=MIN_SETTING, high=MAX_SETTING, example="0.001")
    if mechanism.value is not None and mechanism.value not in MECHANISMS:
        raise BadValue(
            f"there is no mechanism {mechanism.value!r}",
            hint=f"there are: {', '.join(MECHANISMS)}",
            span=mechanism.span,
        )
    weights = None if arguments["weights"].value is None else _weights(arguments["weights"])
    spend = None if rho is None else Fraction(rho).limit_denominator(10**15)  # as SET noisegate.rho reads it
    return Terms(mechanism.value, spend, weights)


def _weights(argument: Constant) -> dict[str, Fraction]:
    """Return the weights that a text lists: 'ann = 2, bob = 1'."""
    found: dict[str, Fraction] = {}
    for piece in str(argument.value).split(","):
        match = re.fullmatch(r"\s*(.+?)\s*=\s*([0-9]{1,9}(?:\.[0-9]{1,9})?|\.[0-9]{1,9})\s*", piece)
        if match is None or not Fraction(match[2]) or match[1] in found:
            raise BadValue(
                "weights must be positive numbers, one for each analyst",
                hint="for example: weights => 'ann = 2, bob = 1'",
                span=argument.span,
            )
        found[match[1]] = Fraction(match[2])
    return found


def listed(weights: object) -> str:
    """Return the text that lists weights.

    >>> listed({"ann": 2, "bob": 0.5})
    'ann = 2.000000000, bob = 0.500000000'
    """
    if not isinstance(weights, Mapping) or not all(isinstance(weight, Real) for weight in weights.values()):
        raise WrongType("weights must be a mapping from analysts to numbers", hint='for example: {"ann": 2, "bob": 1}')
    return ", ".join(f"{name} = {float(weight):.9f}" for name, weight in weights.items())


def settle(caller: Caller, round_: str, queries: Sequence[RoundQuery], terms: Terms) -> Offer:
    """Return the plan of a round that the caller releases; read nothing protected, spend nothing."""
    shop, releaser = workshop(caller), caller.analyst
    weights = _checked_weights(caller, queries, terms)
    _check_populations(queries, weights)
    with holding(caller.planning_round):
        deal = payment.deal(shop, queries, terms.mechanism, terms.rho, weights, releaser=releaser)
        charges = [shop.alone_charges(query) for query in queries]
        each_alone = shop.each_alone(queries)
    if len(weights) == 1 and terms.rho is None and deal.together.rho:
        deal = replace(deal, gains={releaser: float(each_alone / deal.together.rho)})
    planner = shop.planner(caller.settings)
    tables = dict.fromkeys(part.measured.table.name for query in queries for part in query.parts)
    return Offer(
        round=round_,
        queries=tuple(queries),
        deal=deal,
        each_alone=each_alone,
        versions={name: planner.version(name) for name in tables},
        alone_rho=tuple(float(total(each)) for each in charges),
    )


def _check_populations(queries: Sequence[RoundQuery], weights: Mapping[str, Fraction]) -> None:
    """Refuse a bill that analysts would share in a population that some of them did not ask about."""
    found = dict.fromkeys(part.measured.table.population for query in queries for part in query.parts)
    if len(weights) > 1 and len(found) > 1:
        raise Unsupported(
            f"several analysts can't share a round about several populations: {', '.join(found)}",
            hint="enlist the queries about each in a round of its own",
        )


def _checked_weights(caller: Caller, queries: Sequence[RoundQuery], terms: Terms) -> dict[str, Fraction]:
    """Return the weight of each analyst who takes part: as given, or their share of the budget."""
    taking_part = list(dict.fromkeys(query.entry.analyst for query in queries))
    for name in terms.weights or {}:
        if name not in taking_part:
            raise BadValue(f"{name} takes no part in the round", hint=f"its analysts are: {', '.join(taking_part)}")
    moved = caller.moment.moved
    shares = {
        name: max(found.share + moved.get(name, Fraction(0)), Fraction(1, 10**6))
        for name, found in caller.policy.analysts.items()
    }
    given = terms.weights or {}
    missing = [name for name in taking_part if terms.weights is not None and name not in given]
    if missing:
        raise BadValue(f"the weight of {missing[0]} is missing", hint="give one for each analyst of the round")
    if caller.analyst not in taking_part:
        raise Forbidden("you take no part in this round", hint="enlist a query first; see noisegate.rounds")
    return {name: given.get(name) or shares.get(name, Fraction(1, 10**6)) for name in taking_part}


@dataclass(frozen=True, kw_only=True)
class _Record:
    """That a round was released, how, and for whom: stored with what it released, under a key that exists once."""

    table: str
    version: int
    digest: str
    key: str
    body: bytes
    kind: Kind = Kind.ROUND
    cost: Cost = NOTHING

    def draw(self, meter: Meter) -> bytes:  # noqa: ARG002 - nothing more is read
        return self.body


@dataclass(frozen=True, kw_only=True)
class _Share:
    """What an account is charged for a round, on the cells of one table: stored with what was released."""

    table: str
    version: int
    digest: str
    key: str
    cost: Cost
    kind: Kind = Kind.SHARE

    def draw(self, meter: Meter) -> bytes:  # noqa: ARG002 - it tells nothing
        return b""


def _shares(found: Offer, at: str) -> dict[str, tuple[str, _Share]]:
    """Return everybody's shares with whose they are, by key."""
    shares = {}
    for place, (name, table, cost) in enumerate(found.deal.shared):
        version, text = found.versions[table], f"share\0{found.round}\0{at}\0{place}\0{name}"
        share = _Share(
            table=table, version=version, digest=roster.question_of(text), key=versioned(version, text), cost=cost
        )
        shares[share.key] = name, share
    return shares


def carry_out(caller: Caller, found: Offer, sql: str, step: Step) -> CallResult:
    """Release a planned round: everything is drawn, then charged and stored in one commit, once."""
    table = next(iter(found.versions))
    at = ",".join(f"{name}={version}" for name, version in sorted(found.versions.items()))
    body = bodies.encode(
        {
            "round": found.round,
            "mechanism": found.deal.mechanism,
            "versions": dict(found.versions),
            "rows": rows_of(found),
        }
    )
    key = versioned(found.versions[table], f"round\0{found.round}\0{at}")
    record = _Record(
        table=table, version=found.versions[table], digest=roster.question_of(found.round), key=key, body=body
    )
    for payer in found.deal.paid:
        for quote in caller.moment.quote(found.deal.charges, analyst=payer):
            quote.check(caller.caps(payer))
    shares, account = _shares(found, at), found.deal.account or caller.analyst
    new, charged = caller.release(
        [*found.together.tasks, *(share for _, share in shares.values()), record],
        sql,
        step,
        payers={task.key: account for task in found.together.tasks} | {key: name for key, (name, _) in shares.items()},
        once=partial(roster.unchanged, found.entries),
    )
    return CallResult(_stored_rows(new[-1]), charged)


def _stored_rows(record: Release) -> list[Row]:
    return [tuple(row) for row in bodies.decode(record.body)["rows"]]


def _release(caller: Caller, arguments: Arguments) -> PlannedCall:
    """Return what releasing a round would do, and what that costs whom."""
    round_, terms = _name(arguments["round"]), _terms(arguments)
    stored = released(caller, round_)
    latest = caller.settings.as_of
    if stored is not None and (latest is None or stored.id <= latest):
        lines = (f"Round {round_}", wording.line("known already", f"released before: release {stored.id}"))

        def replay(sql: str, step: Step) -> CallResult:  # noqa: ARG001 - nothing is done
            return CallResult(_stored_rows(stored), Fraction(0))

        return PlannedCall(
            alternatives=(),
            populations=_populations(caller.policy),
            path="free",
            lines=lines,
            releases=(stored.id,),
            run=replay,
        )
    if latest is not None:
        raise BadValue(f"round {round_} was not released by release {latest}", hint="RESET noisegate.as_of")
    entries = roster.entries(caller, round_)
    if not entries:
        names = dict.fromkeys(entry.round for entry in roster.entries(caller))
        hint = f"there are: {', '.join(names)}" if names else "enlist queries first, with noisegate.enlist"
        raise BadValue(f"there is no open round {round_}", hint=hint, span=arguments["round"].span)
    return planned(caller, round_, [_still_asked(caller, entry) for entry in entries], terms)


def planned(caller: Caller, round_: str, queries: Sequence[RoundQuery], terms: Terms) -> PlannedCall:
    """Return what releasing a round with these queries would do; read nothing protected, spend nothing."""
    found = settle(caller, round_, queries, terms)
    return PlannedCall(
        alternatives=[found.deal.charges],
        populations=tuple(dict.fromkeys(caller.policy.tables[name].population for name in found.versions)),
        path=found.together.path,
        lines=tuple(lines_of(found)),
        releases=found.together.releases,
        run=lambda sql, step: carry_out(caller, found, sql, step),
        keeps=True,
        details={"round": details_of(found)},
    )


def _still_asked(caller: Caller, entry: Entry) -> RoundQuery:
    """Return a stored query; the policy may have changed since it was enlisted."""
    if entry.analyst not in caller.policy.analysts:
        raise Forbidden(
            f"query {entry.number} is by {entry.analyst}, who is no analyst any more",
            hint="enlist what is still wanted in another round",
        )
    try:
        return asked(caller, entry)
    except Refusal as refused:
        refused.message = f"query {entry.number}, by {entry.analyst}: {refused.message}"
        refused.span = None
        raise


FUNCTIONS = (
    Function(
        "enlist",
        (
            Parameter("round", "text", required=True),
            Parameter("sql", "text", required=True),
            Parameter("error", "number"),
            Parameter("importance", "number"),
            Parameter("sum_error", "number"),
            Parameter("confidence", "number"),
        ),
        ENLISTED,
        _enlist,
    ),
    Function(
        "withdraw",
        (Parameter("round", "text", required=True), Parameter("query", "number")),
        WITHDRAWN,
        _withdraw,
    ),
    Function(
        "release",
        (
            Parameter("round", "text", required=True),
            Parameter("mechanism", "text"),
            Parameter("rho", "number"),
            Parameter("weights", "text"),
        ),
        RELEASED,
        _release,
    ),
)
