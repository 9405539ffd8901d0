"""What every unit has really paid, from the stored releases and the public domain alone, in exact fractions.

Written from the definitions, not from the code that books costs, of which nothing is imported (a test sees to it):

- A linear release is y = B x + round(N(0, 4^bits)). A unit whose rows add b to B x pays |b|^2 / (2 4^bits) of zCDP
  (Bun and Steinke, arXiv:1605.02065, proposition 1.6), and rounding is post-processing.
- A number of different values, or of units, is the same with the most that a unit can add to each group's number.
- A quantile is an exponential mechanism of bounded range: epsilon^2 / 8 (Cesar and Rogers, arXiv:2004.07223).
- A decision costs what docs/explanation/deciders.md says of its decider.
- What a unit pays in one version of the data adds up over releases; between versions its rows may be any others.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from functools import cache, cached_property

from tests.audit.books import Axes, Entry, Record, Table, integers, least_multiple

Unit = Sequence[Record]
Sums = dict[tuple[int, ...], int]
"""What is added to each output: by (part, group, row) of the release."""

SHARE = "share"
"""Tells nothing, and is charged to one account: a share of what releases of the same statement cost."""

FREE = ("choice", "settled", "round", SHARE)
"""Kinds that are made from other releases; that nothing was read for them is the witness's matter."""


@dataclass(frozen=True, eq=False)
class Gaussian:
    """Sums of rows with Gaussian noise: what a record adds to each output, and the bits of each output's noise."""

    added: Callable[[Record], Sums]
    bits: Mapping[int, int]  # by part

    def exact(self, rows: Iterable[tuple[Record, int]]) -> Sums:
        """Return what so many rows of each kind add up to."""
        total: Sums = defaultdict(int)
        for record, times in rows:
            for output, value in self.added(record).items():
                total[output] += times * value
        return total

    def pays(self, unit: Unit) -> Fraction:
        sums: dict[int, int] = defaultdict(int)
        for output, value in self.exact(Counter(unit).items()).items():
            sums[output[0]] += value * value
        return sum((Fraction(square, 2 * 4 ** self.bits[part]) for part, square in sums.items()), Fraction(0))


def linear(entry: Entry, table: Table) -> Gaussian:
    """Return y = K E x: place p, in a group, adds the coefficients of its pattern times (1, u, u^2, ...)."""
    body, axes = entry.body, Axes.read(entry.body)
    cells, groups, patterns = (integers(body[name]) for name in ("cell", "group", "pattern"))
    here: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for cell, group, pattern in zip(cells, groups, patterns, strict=True):
        here[cell].append((group, pattern))
    K, E, features = body["K"], body["E"], body["features"]

    def added(record: Record) -> Sums:
        phi = [1]
        for column, power in features:
            phi.append(0 if table.is_null(record, column) else table.index(record, column) ** power)
        total: Sums = defaultdict(int)
        for group, pattern in here[axes.cell(table, record)]:
            asked = [sum(c * f for c, f in zip(row[pattern], phi, strict=True)) for row in E]
            for r, row in enumerate(K):
                total[0, group, r] += sum(k * value for k, value in zip(row, asked, strict=True))
        return total

    return Gaussian(cache(added), {0: body["bits"]})


def marginals(entry: Entry, table: Table) -> Gaussian:
    """Return k (r x) for all Helmert rows r of each part, k = ceil(scale / |r|).

    On an axis of n atoms row j = 1 ... n - 1 is 1 on the atoms before j, -j on atom j, and 0 after it.
    """
    axes, parts = Axes.read(entry.body), entry.body["parts"]

    def added(record: Record) -> Sums:
        atoms, total = axes.of(table, record), {}
        for number, part in enumerate(parts):
            sizes = [axes.shape[i] for i in part["part"]]
            for place, js in enumerate(itertools.product(*(range(1, n) for n in sizes))):
                entry_of_row = math.prod(_helmert(j, atoms[i]) for j, i in zip(js, part["part"], strict=True))
                square = math.prod(j * (j + 1) for j in js)
                total[number, 0, place] = least_multiple(part["scale"], square) * entry_of_row
        return total

    return Gaussian(cache(added), {number: part["bits"] for number, part in enumerate(parts)})


def _helmert(j: int, atom: int) -> int:
    return 1 if atom < j else -j if atom == j else 0


@dataclass(frozen=True, eq=False)
class Placed:
    """Where rows count: in which group, with which label."""

    entry: Entry
    table: Table

    @cached_property
    def axes(self) -> Axes:
        return Axes.read(self.entry.body)

    @cached_property
    def here(self) -> dict[int, list[tuple[int, int]]]:
        body = self.entry.body
        cells, groups = integers(body["cell"]), integers(body["group"])
        labels = integers(body["label"]) if "label" in body else [0] * len(cells)
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for cell, group, label in zip(cells, groups, labels, strict=True):
            if label >= 0:
                found[cell].append((group, label))
        return found

    def of(self, record: Record) -> list[tuple[int, int]]:
        """Return the (group, label) of a record, for each time that it counts."""
        return self.here.get(self.axes.cell(self.table, record), [])

    def in_groups(self, unit: Unit) -> dict[int, list[int]]:
        """Return the labels of a unit's rows, by group."""
        found: dict[int, list[int]] = defaultdict(list)
        for record in unit:
            for group, label in self.of(record):
                found[group].append(label)
        return found


def distinct(entry: Entry, table: Table) -> Callable[[Unit], Fraction]:
    """Return what a noisy number of different values, or of units, costs: the most that a unit can add, squared."""
    placed, body = Placed(entry, table), entry.body

    def pays(unit: Unit) -> Fraction:
        new = [1 if body["units"] else len(set(labels)) for labels in placed.in_groups(unit).values()]
        return Fraction(body["scale"] ** 2 * sum(n * n for n in new), 2 * 4 ** body["bits"])

    return pays


def quantile(entry: Entry, table: Table) -> Callable[[Unit], Fraction]:
    """Return what exponential mechanisms cost: m of a unit's k rows in a group move scores by m / k of the most."""
    placed = Placed(entry, table)
    each = sum((Fraction(epsilon) ** 2 / 8 for epsilon, _ in entry.body["draws"]), Fraction(0))

    def pays(unit: Unit) -> Fraction:
        parts = [Fraction(len(labels), table.rows_per_unit) for labels in placed.in_groups(unit).values()]
        return each * sum((part * part for part in parts), Fraction(0))

    return pays


def log_weights(entry: Entry, table: Table, rows: Iterable[tuple[Record, int]], group: int) -> list[list[Fraction]]:
    """Return for each draw the exponent of every value's weight, if a group has these rows.

    exp(-epsilon d / (2 s)) with d = max(0, #{< e} - t, t - #{<= e}), t = p n + offset, s = k max(p, 1 - p).
    """
    placed, p = Placed(entry, table), Fraction(entry.body["p"])
    histogram = [0] * entry.body["size"]
    for record, times in rows:
        for where, label in placed.of(record):
            histogram[label] += times * (where == group)
    up_to = list(itertools.accumulate(histogram))
    found = []
    for epsilon, offset in entry.body["draws"]:
        aim, scale = p * up_to[-1] + Fraction(offset), 2 * table.rows_per_unit * max(p, 1 - p)
        pairs = zip(up_to, histogram, strict=True)
        found.append([-Fraction(epsilon) * max(0, n - own - aim, aim - n) / scale for n, own in pairs])
    return found


def _decimal(function: Callable[[Decimal], Decimal]) -> Callable[[Fraction], Fraction]:
    def found(epsilon: Fraction) -> Fraction:
        with localcontext(Context(prec=80)):
            return Fraction(function(Decimal(epsilon.numerator) / Decimal(epsilon.denominator)))

    return found


laplace = _decimal(lambda e: e - 1 + (-e).exp())
pure = _decimal(lambda e: e * (1 - (-e).exp()) / (1 + (-e).exp()))
DECIDERS: dict[str, Callable[[Fraction], Fraction]] = {
    "LM": laplace,
    "R2T": laplace,
    "Hist": laplace,
    "EM": lambda e: e * e / 8,
    "SVT": lambda e: laplace(e / 9) + pure(2 * e / 9) + pure(2 * e / 3),
}
"""What a decider costs, by the first part of its name."""


def decision(entry: Entry, table: Table) -> Callable[[Unit], Fraction]:
    """Return what the decisions of all groups cost: with m of a unit's k rows in a group, m / k of epsilon."""
    placed = Placed(entry, table)
    costs = []
    for _, name, *rest in entry.body["rows"]:
        epsilon = Fraction(str(rest[4]))
        costs.append((DECIDERS[name.split("_")[0]], epsilon) if epsilon else None)

    def pays(unit: Unit) -> Fraction:
        total = Fraction(0)
        for group, labels in placed.in_groups(unit).items():
            if (cost := costs[group]) is not None:
                function, epsilon = cost
                total += function(epsilon * len(labels) / table.rows_per_unit)
        return total

    return pays


GAUSSIAN: dict[str, Callable[[Entry, Table], Gaussian]] = {"linear": linear, "marginals": marginals}
OTHERS = {"distinct": distinct, "quantile": quantile, "decision": decision}


@cache
def pays(entry: Entry, table: Table) -> Callable[[Unit], Fraction]:
    """Return what a release costs every unit."""
    if entry.kind in FREE:
        return lambda _: Fraction(0)
    return cache(
        GAUSSIAN[entry.kind](entry, table).pays if entry.kind in GAUSSIAN else OTHERS[entry.kind](entry, table)
    )


@dataclass(frozen=True)
class Bill:
    """What the dearest unit has paid for some releases about one version of a table."""

    most: Fraction
    unit: tuple[Record, ...]


def dearest(entries: Sequence[Entry], table: Table, parts: Sequence[Fraction]) -> Bill:
    """Return what the dearest unit has paid for parts of the releases."""
    costs = [share(entry, table) if entry.kind == SHARE else pays(entry, table) for entry in entries]
    best = Bill(Fraction(0), ())
    for unit in table.units():
        total = sum((part * cost(unit) for part, cost in zip(parts, costs, strict=True)), Fraction(0))
        if total > best.most:
            best = Bill(total, unit)
    return best


def population_paid(entries: Sequence[Entry], tables: Mapping[str, Table], population: str) -> Fraction:
    """Return the most that one person can have paid: over tables and versions the sum of the dearest units."""
    return _paid(entries, tables, population, lambda entry: Fraction(entry.kind != SHARE))


def account_paid(entries: Sequence[Entry], tables: Mapping[str, Table], population: str, analyst: str) -> Fraction:
    """Return the same of what an analyst paid for, alone or by shares."""
    return _paid(entries, tables, population, lambda entry: entry.payers.get(analyst, Fraction(0)))


def _paid(
    entries: Sequence[Entry], tables: Mapping[str, Table], population: str, part: Callable[[Entry], Fraction]
) -> Fraction:
    own = [entry for entry in entries if entry.population == population and part(entry)]
    bills = [dearest(found, tables[name], [part(e) for e in found]) for (name, _), found in by_version(own).items()]
    return sum((bill.most for bill in bills), Fraction(0))


def by_version(entries: Iterable[Entry]) -> dict[tuple[str, int], list[Entry]]:
    """Return releases by table and version of its data."""
    found: dict[tuple[str, int], list[Entry]] = defaultdict(list)
    for entry in entries:
        found[entry.table, entry.version].append(entry)
    return found


def share(entry: Entry, table: Table) -> Callable[[Unit], Fraction]:
    """Return what a share charges a unit: the mean of what it charges its rows."""
    at = cache(lambda record: entry.booked.at(table, record))
    return lambda unit: sum((at(record) for record in unit), Fraction(0)) / len(unit)


def unborne(entries: Sequence[Entry], tables: Mapping[str, Table]) -> list[tuple[Record, ...]]:
    """Return the units whose cost of what analysts bear together is not covered by the analysts' shares of it."""
    missing = []
    for statement in {entry.sql for entry in entries if not entry.payers}:
        for (name, _), found in by_version(entry for entry in entries if entry.sql == statement).items():
            borne = [pays(entry, tables[name]) for entry in found if not entry.payers]
            shares = [share(entry, tables[name]) for entry in found if entry.kind == SHARE]
            for unit in tables[name].units():
                if sum((cost(unit) for cost in borne), Fraction(0)) > sum((part(unit) for part in shares), Fraction(0)):
                    missing.append(unit)
    return missing


def renyi(logs: Sequence[float], others: Sequence[float], order: float) -> float:
    """Return the Rényi divergence of two distributions, given logarithms of their weights."""
    p, q = (_normalised(weights) for weights in (logs, others))
    return _log_sum(order * a + (1 - order) * b for a, b in zip(p, q, strict=True)) / (order - 1)


def _normalised(weights: Sequence[float]) -> list[float]:
    total = _log_sum(weights)
    return [weight - total for weight in weights]


def _log_sum(terms: Iterable[float]) -> float:
    found = list(terms)
    top = max(found)
    return top + math.log(math.fsum(math.exp(term - top) for term in found))
