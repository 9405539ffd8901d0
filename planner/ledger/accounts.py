"""Accounts: releases, what they cost, and the caps they must stay below; the same for every kind of store."""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Protocol

from planner.basics.errors import BudgetExceeded
from planner.cells.costs import PARTS, UNIT_BITS, Cost, Spending, dearest, rho_of
from planner.ledger.kinds import GAUSSIAN_KINDS, Kind


def joint_account(analysts: Iterable[str]) -> str:
    """Return the text that stands for several analysts who bear a release together, by shares that stand beside it.

    >>> joint_account(["ann", "bob"])
    '{"ann": null, "bob": null}'
    """
    return json.dumps(dict.fromkeys(analysts), ensure_ascii=False)


def payers(analyst: str) -> dict[str, int]:
    """Return whose accounts a release itself charges, each so many 2^-20ths of its cost.

    Nobody's, if there are shares. Before there were, rounds were paid for in parts, and ledgers keep such texts. The
    policy has no analyst whose name begins with a brace.
    """
    if not analyst.startswith("{"):
        return {analyst: PARTS}
    return {name: int(part) for name, part in json.loads(analyst).items() if part is not None}


def shown_payers(analyst: str) -> str:
    """Return who paid for a release, for people.

    >>> shown_payers("ann"), shown_payers('{"ann": 262144, "bob": 786432}'), shown_payers(joint_account(["ann", "bob"]))
    ('ann', 'ann 25 %, bob 75 %', 'ann, bob')
    """
    if not analyst.startswith("{"):
        return analyst
    parts = json.loads(analyst).items()
    return ", ".join(
        name if part is None else f"{name} {int(part) / PARTS:.0%}".replace("%", " %") for name, part in parts
    )


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A release that was drawn and is not paid for yet.

    Args:
        key: SHA-256 in hex; one key never gets a second draw.
        question: SHA-256 in hex of the question, whatever its accuracy.
        version: version of the table's data that was read.
        analyst: who pays for it; `joint_account` if several do, each by a draft of kind `Kind.SHARE`.
        body: what is released, encoded; the ledger does not look inside.
    """

    key: str
    question: str
    population: str
    table: str
    version: int
    analyst: str
    sql: str
    kind: str
    body: bytes
    cost: Cost

    @property
    def charge(self) -> Charge:
        return Charge(
            population=self.population,
            table=self.table,
            version=self.version,
            cost=self.cost,
            analyst=self.analyst,
            is_share=self.kind == Kind.SHARE,
        )


@dataclass(frozen=True, kw_only=True)
class Release(Draft):
    """A draft that is paid for and durable; ids count from 1 without gaps, `created` is ISO 8601 in UTC."""

    id: int
    created: str
    replayed: bool = field(default=False, compare=False)
    """Whether it was stored before, under the key of a draft that was thrown away."""


class Stored(Protocol):
    """What a release told, whoever paid for it and however much."""

    @property
    def id(self) -> int: ...

    @property
    def question(self) -> str: ...

    @property
    def body(self) -> bytes: ...


@dataclass(frozen=True)
class Content:
    """A release without its cost and its story: see Release."""

    id: int
    question: str
    version: int
    kind: str
    body: bytes


@dataclass(frozen=True)
class Edition:
    """A version of a table's data, and the fingerprint of the source that was first read in it; None if none was."""

    version: int
    fingerprint: str | None = None


@dataclass(frozen=True)
class Reading:
    """What was seen of a source when a release was drawn: its fingerprint, if it has one, and which rows there are."""

    table: str
    version: int
    fingerprint: str | None
    rows: str


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One more cost on the cells of one version of a table; `analyst` says who pays, where that is not who asks.

    A share is charged to that account only: other charges have charged the population.
    """

    population: str
    table: str
    version: int
    cost: Cost
    analyst: str = ""
    is_share: bool = False


@dataclass(frozen=True)
class Caps:
    """What may be spent, in units: by all analysts on one population, and by one of them; `accounts` has others."""

    population: int
    account: int
    accounts: Mapping[str, int] = field(default_factory=dict)

    def of(self, analyst: str, moved: Fraction) -> int:
        """Return what an analyst may spend, in units: rounded down, so that accounts never add up to more."""
        return self.accounts.get(analyst, self.account) + math.floor(moved * self.population)


@dataclass(frozen=True, kw_only=True)
class Quote:
    """What is spent now on a population, and what would be after some charges: by everyone, and by one analyst."""

    population: str
    analyst: str
    spent: int
    after: int
    account_spent: int
    account_after: int
    moved: Fraction = Fraction(0)
    """The part of the budget that was moved to the analyst's account since the policy was written, or from it."""

    def account_cap(self, caps: Caps) -> int:
        return caps.of(self.analyst, self.moved)

    def check(self, caps: Caps) -> None:
        """Raise BudgetExceeded if a cap would be passed."""
        cap = self.account_cap(caps)
        if self.after > caps.population:
            raise _exceeded(self.spent, self.after, caps.population, f"the budget of {self.population}")
        if self.account_after > cap:
            raise _exceeded(self.account_spent, self.account_after, cap, f"the account of {self.analyst}")

    def check_left(self, caps: Caps, share: Fraction) -> None:
        """Raise BudgetExceeded if the account has spent more than it may after a share was moved from it."""
        cap = self.account_cap(caps)
        if self.account_spent > cap or cap < 0:
            left = (
                Fraction(max(cap - self.account_spent, -math.floor(share * caps.population)), caps.population) + share
            )
            raise BudgetExceeded(
                f"{float(share):.4g} of the budget can't be moved: the account of {self.analyst} "
                f"has {max(float(left), 0.0):.4g} left",
                hint="nothing was moved; move what was not spent",
            )


def _exceeded(spent: int, after: int, cap: int, of: str) -> BudgetExceeded:
    if spent > max(cap, 0):  # the budget was lowered, or spent when versions of the data still shared their cells
        return BudgetExceeded(
            f"{of} is overspent by rho={_decimal(spent - cap, ROUND_CEILING)}, so no question can be charged to it",
            hint="nothing was charged; ask what earlier answers already tell",
        )
    return BudgetExceeded(
        f"the query costs rho={_decimal(after - spent, ROUND_CEILING)} "
        f"but only rho={_decimal(max(cap - spent, 0), ROUND_FLOOR)} of {of} is left",
        hint="nothing was charged; allow a larger error or give a smaller epsilon or rho, "
        "or ask what earlier answers already tell",
    )


def _decimal(units: int, rounding: str) -> str:
    """Return units as a rho in plain decimals, six digits.

    >>> _decimal(2**50 // 3, ROUND_FLOOR), _decimal(0, ROUND_FLOOR)
    ('0.333333', '0')
    """
    text = format(Context(prec=6, rounding=rounding).divide(Decimal(units), Decimal(2**UNIT_BITS)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def total(charges: Iterable[Charge]) -> Fraction:
    """Return what a person pays for charges at most, in rho: the dearest cell of each table, in each version of it."""
    costs: defaultdict[tuple[str, int], list[Cost]] = defaultdict(list)
    for charge in charges:
        if not charge.is_share:
            costs[charge.table, charge.version].append(charge.cost)
    return rho_of(sum(map(dearest, costs.values())))


@dataclass(frozen=True)
class Paid:
    """What was paid on one table: cell by cell in its newest version, and as one number in all before it.

    Guarantee: `dearest` is at least the sum over versions of the maximum over cells of what was charged in each. So it
    bounds what a person has paid who was in any cell of each version: versions share no cells.
    """

    version: int = 0
    open: Spending = field(default_factory=Spending)
    closed: int = 0
    """The sum of what the dearest cells of earlier versions paid, in units: they are never searched again."""

    @property
    def dearest(self) -> int:
        return self.closed + self.open.dearest

    @property
    def bound(self) -> int:
        """What `dearest` is at most, found without a search."""
        return self.closed + self.open.bound

    def plus(self, costs: Iterable[tuple[int, Cost]]) -> Paid:
        """Return the same with more costs, each with its version, in the order in which they were charged."""
        found = self
        for version, group in groupby(costs, key=itemgetter(0)):
            found = found._in(version, [cost for _, cost in group])
        return found

    def _in(self, version: int, costs: Sequence[Cost]) -> Paid:
        if version == self.version:
            return replace(self, open=self.open.plus(*costs))
        if version > self.version:
            return Paid(version, Spending().plus(*costs), self.dearest)
        # No ledger charges a version after a newer one. Should one have, nothing is shared, and that is enough.
        return replace(self, closed=self.closed + sum(cost.highest for cost in costs))


Tables = Mapping[str, Paid]
NOTHING = Paid()


@dataclass(frozen=True)
class View:
    """What the releases up to `last_id` cost, table by table: for each population, and each analyst's part."""

    last_id: int
    last_hash: str
    populations: Mapping[str, Tables] = field(default_factory=dict)
    accounts: Mapping[tuple[str, str], Tables] = field(default_factory=dict)
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def charged(self, charges: Sequence[Charge], *, analyst: str) -> View:
        """Return the view after more charges, which the analyst pays who asks, or who a charge names."""
        costs: defaultdict[tuple[str, str], list[tuple[int, Cost]]] = defaultdict(list)
        own: defaultdict[tuple[str, str, str], list[tuple[int, Cost]]] = defaultdict(list)
        alone: dict[tuple[str, str], str | None] = {}
        for charge in charges:
            place, paying = (charge.population, charge.table), payers(charge.analyst or analyst)
            if not charge.is_share:
                costs[place].append((charge.version, charge.cost))
            for payer, part in paying.items():
                own[*place, payer].append((charge.version, charge.cost.part(part)))
            whole = None if charge.is_share else next((name for name, part in paying.items() if part == PARTS), None)
            alone[place] = whole if alone.get(place, whole) == whole else None
        populations, accounts = dict(self.populations), dict(self.accounts)
        for (population, table), added in costs.items():
            after = self._paid(population, table).plus(added)
            populations[population] = {**populations.get(population, {}), table: after}
        for (population, table, payer), added in own.items():
            tables = accounts.get((population, payer), {})
            paid = tables.get(table, NOTHING)
            # While one analyst alone has asked, both are the same object, and the dearest cell is sought once.
            same = paid is self._paid(population, table) and alone[population, table] == payer
            after = populations[population][table] if same else paid.plus(added)
            accounts[population, payer] = {**tables, table: after}
        return replace(self, populations=populations, accounts=accounts)

    def _paid(self, population: str, table: str) -> Paid:
        return self.populations.get(population, {}).get(table, NOTHING)

    def stored(self, kinds: Iterable[tuple[str, str]], last_id: int, last_hash: str) -> View:
        """Return the view after charged releases of some (population, kind) were written."""
        known = dict(self.kinds)
        for population, kind in kinds:
            if kind not in known.get(population, ()):
                known[population] = known.get(population, frozenset()) | {kind}
        return replace(self, last_id=last_id, last_hash=last_hash, kinds=known)

    def quote(self, after: View, population: str, *, analyst: str) -> Quote:
        return Quote(
            population=population,
            analyst=analyst,
            spent=self.spent(population),
            after=after.spent(population),
            account_spent=self.account_spent(population, analyst),
            account_after=after.account_spent(population, analyst),
        )

    def only_gaussian(self, population: str) -> bool:
        """Return whether all releases about the population have Gaussian noise."""
        return self.kinds.get(population, frozenset()) <= GAUSSIAN_KINDS

    def surely_within(self, caps: Caps, population: str, *, analyst: str, moved: Fraction) -> bool:
        """Return whether no cap is passed, as far as can be told without looking for the dearest cells."""
        everyone, own = self.populations.get(population, {}), self.accounts.get((population, analyst), {})
        return _bound(everyone) <= caps.population and _bound(own) <= caps.of(analyst, moved)

    def spent(self, population: str) -> int:
        """Return the sum over the population's tables, and over the versions of each, of what the dearest cell paid."""
        return _total(self.populations.get(population, {}))

    def account_spent(self, population: str, analyst: str) -> int:
        """Return the same over the analyst's own releases only."""
        return _total(self.accounts.get((population, analyst), {}))


def _total(tables: Tables) -> int:
    return sum(paid.dearest for paid in tables.values())


def _bound(tables: Tables) -> int:
    return sum(paid.bound for paid in tables.values())


def first_hash(identity: str) -> str:
    """Return what the first release is chained to."""
    return hashlib.sha256(identity.encode()).hexdigest()


def chained(previous: str, columns: Iterable[str | int | bytes]) -> str:
    """Return the SHA-256, in hex, of the previous hash and all columns, each with its type and length."""
    digest = hashlib.sha256(bytes.fromhex(previous))
    for column in columns:
        encoded = column if isinstance(column, bytes) else str(column).encode()
        digest.update(f"{type(column).__name__} {len(encoded)} ".encode() + encoded)
    return digest.hexdigest()
