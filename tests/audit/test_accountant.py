"""The books are right: an accountant of their own finds that nobody has paid more than was booked.

Three ways meet. The accountant works out from the stored rows and noise what every possible unit has paid. The witness
sees what was really measured and drawn, which must be what is stored. And two gates on tables that differ by one unit
show what that unit changes. None of them uses the code that books costs. There is no chance in what is asserted.

NOISEGATE_AUDIT=10 runs ten times as many streams.
"""

from __future__ import annotations

import ast
import math
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner import session as sessions
from planner.cells import costs
from planner.questions import linear
from planner.sources import measure
from tests.audit import accountant, books, streams, witness
from tests.audit.books import UNIT, Entry
from tests.audit.streams import World
from tests.audit.witness import Reading

pytestmark = pytest.mark.slow  # streams of statements through a whole gate

TIMES = int(os.environ.get("NOISEGATE_AUDIT", "1"))
STREAMS = range(4 * TIMES)
ORDERS = (1 + 1e-6, 1.5, 2.0, 4.0, 16.0, 256.0)


@dataclass(frozen=True)
class Audited:
    """A stream that was run, with all that was seen and stored of it."""

    world: World
    seen: list[Reading]
    entries: list[Entry]

    @property
    def charged(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind not in accountant.FREE]

    def domain(self, entry: Entry) -> books.Table:
        return self.world.domains[entry.table]

    def booked(self, population: str = "default") -> Fraction:
        return self.world.gate.ledger.spent(population) * UNIT

    def account(self, analyst: str) -> Fraction:
        return self.world.gate.ledger.account_spent("default", analyst) * UNIT


def audited(folder: Path, seed: int, *, refreshing: bool = False, length: int = 10) -> Audited:
    with witness.watching() as seen:
        world = World(folder, random.Random(seed))
        try:
            streams.run(world, length=length, refreshing=refreshing)
        except BaseException:
            world.close()
            raise
    return Audited(world, seen, books.entries(world.ledger))


@pytest.fixture(scope="module")
def all_streams(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Audited]]:
    """Streams on one version of the data, and on several: the latter are the odd ones."""
    folder = tmp_path_factory.mktemp("streams")
    found = [audited(folder / str(seed), seed, refreshing=seed % 2 == 1) for seed in STREAMS]
    yield found
    for each in found:
        each.world.close()


# --- what is checked ---------------------------------------------------------------------------------------


def check_stored(found: Audited) -> None:
    """Everything that was read is stored, in order, and nothing is stored that was not: free kinds read nothing."""
    assert len(found.seen) == len(found.charged)
    for reading, entry in zip(found.seen, found.charged, strict=True):
        assert reading.table == entry.table
        assert reading.output == OUTPUTS[reading.kind](entry.body), f"release {entry.id}: {entry.sql}"


OUTPUTS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda body: body["y"],
    "helmert": lambda body: [part["y"] for part in body["parts"]],
    "distinct": lambda body: body["y"],
    "units": lambda body: body["y"],
    "quantiles": lambda body: body["y"],
    "decisions": lambda body: {g: row[0] for g, row in enumerate(body["rows"]) if row[6]},
}


def check_drawn(found: Audited) -> None:
    """What is stored says truly what was run: its rows on the true table, plus noise of its width."""
    for reading, entry in zip(found.seen, found.charged, strict=True):
        rows = found.world.rows[entry.table, entry.version]
        if entry.kind in accountant.GAUSSIAN:
            _check_sums(reading, entry, found.domain(entry), rows)
        elif entry.kind == "distinct":
            _check_distinct(reading, entry, found.domain(entry), rows)
        elif entry.kind == "quantile":
            _check_choices(reading, entry, found.domain(entry), rows)


def _check_sums(reading: Reading, entry: Entry, table: books.Table, rows: Counter[books.Record]) -> None:
    release = accountant.GAUSSIAN[entry.kind](entry, table)
    parts = [[value for row in entry.body["y"] for value in row]] if entry.kind == "linear" else None
    told = parts or [part["y"] for part in entry.body["parts"]]
    width = len(entry.body["K"]) if entry.kind == "linear" else 0
    exact = release.exact(rows.items())
    assert [bits for bits, _ in reading.noise] == list(release.bits.values())
    for part, (values, (_, noise)) in enumerate(zip(told, reading.noise, strict=True)):
        for place, (value, draw) in enumerate(zip(values, noise, strict=True)):
            output = (part, *divmod(place, width)) if width else (part, 0, place)
            assert value - draw == exact.get(output, 0), f"release {entry.id}: {entry.sql}"


def _check_distinct(reading: Reading, entry: Entry, table: books.Table, rows: Counter[books.Record]) -> None:
    placed, body, ((bits, noise),) = accountant.Placed(entry, table), entry.body, reading.noise
    assert bits == body["bits"]
    labels = placed.in_groups(list(rows))
    for group, ([value], draw) in enumerate(zip(body["y"], noise, strict=True)):
        number, rest = divmod(value - draw, body["scale"])
        assert rest == 0
        assert body["units"] or number == len(set(labels.get(group, [])))  # of units, records alone do not tell


def _check_choices(reading: Reading, entry: Entry, table: books.Table, rows: Counter[books.Record]) -> None:
    choices = iter(reading.choices)
    for group in range(len(entry.body["y"])):
        for weights in accountant.log_weights(entry, table, rows.items(), group):
            exponents, rate = next(choices)
            assert [-rate * exponent for exponent in exponents] == weights
    assert next(choices, None) is None


def check_booked(found: Audited) -> None:
    """For no release does a unit pay more than its rows are charged in the mean; so no unit passes the dearest cell."""
    for entry in found.entries:
        table, cost = found.domain(entry), accountant.pays(entry, found.domain(entry))
        known = {record: entry.booked.at(table, record) for record in table.records}
        for unit in table.units():
            charged = sum((known[record] for record in unit), Fraction(0)) / len(unit)
            assert cost(unit) <= charged, f"release {entry.id} costs {unit} too little: {entry.sql}"


def check_totals(found: Audited) -> None:
    """What was booked in all covers what the dearest person paid, for everyone together and for each account."""
    domains, entries = found.world.domains, found.entries
    assert accountant.population_paid(entries, domains, "default") <= found.booked() <= found.world.gate.cap
    for entry in entries:
        assert not entry.payers or sum(entry.payers.values()) >= 1
    assert accountant.unborne(entries, domains) == []
    for analyst in streams.ANALYSTS:
        assert accountant.account_paid(entries, domains, "default", analyst) <= found.account(analyst)


CHECKS = (check_stored, check_drawn, check_booked, check_totals)


@pytest.mark.parametrize("refreshed", [False, True], ids=["one version", "refreshed"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_nobody_has_paid_more_than_was_booked(
    all_streams: list[Audited], check: Callable[[Audited], None], refreshed: bool
) -> None:
    """With refreshes, a person may have been in another cell of every version: see population_paid."""
    for found in all_streams[int(refreshed) :: 2]:
        check(found)


def test_every_kind_of_question_was_asked(all_streams: list[Audited]) -> None:
    answered = {kind for found in all_streams for kind in found.world.answered}
    refused = [text for found in all_streams for text in found.world.refused]
    assert answered >= streams.EXPECTED, refused
    kinds = {entry.kind for found in all_streams for entry in found.entries}
    assert kinds >= {"linear", "marginals", "distinct", "quantile", "decision", "choice", "round", "share"}


def test_a_release_of_single_rows_is_booked_no_higher_than_its_dearest_row_pays(all_streams: list[Audited]) -> None:
    """Counts and sums, in which a row counts once in a group, and no squares: 2^-20 is left for rounding up."""
    entries = [(found.domain(e), e) for found in all_streams for e in found.entries if e.kind == "linear"]
    plain = [(table, entry) for table, entry in entries if table.rows_per_unit == 1 and _is_plain(entry)]
    assert len(plain) > 20
    for table, entry in plain:
        most = accountant.dearest([entry], table, [Fraction(1)]).most
        assert entry.booked.highest <= most * (1 + Fraction(1, 2**20)), entry.sql


def _is_plain(entry: Entry) -> bool:
    cells, groups = (books.integers(entry.body[name]) for name in ("cell", "group"))
    once = len(set(zip(cells, groups, strict=True))) == len(cells)
    return once and all(power == 1 for _, power in entry.body["features"])


# --- two tables that differ by one unit --------------------------------------------------------------------

PEOPLE = [((0, 0, 3, 3),), ((2, 2, 1, 4),)]
VISITS = [((0, 0, 3),), ((0, 1, 3), (0, 1, 3)), ((1, 0, 2), (2, 1, 0))]


def asked(world: World) -> None:
    """Ask what is planned alike on all tables: decisions before anything is known that would settle them."""
    left_out = (streams.verdicts, streams.choices, streams.rounds)
    for step in (streams.verdicts, *(kind for kind in streams.KINDS if kind not in left_out)):
        world.tune()
        step(world)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    yield from neighbour(tmp_path_factory.mktemp("alone"), {})


def neighbour(folder: Path, extra: dict[str, tuple[books.Record, ...]]) -> Iterator[Audited]:
    with witness.watching() as seen:
        world = World(folder, random.Random(99), extra)
        asked(world)
    yield Audited(world, seen, books.entries(world.ledger))
    world.close()


@pytest.mark.parametrize(
    ("table", "unit"), [*(("people", unit) for unit in PEOPLE), *(("visits", unit) for unit in VISITS)]
)
def test_a_unit_more_changes_what_is_released_by_no_more_than_it_is_charged(
    alone: Audited, tmp_path: Path, table: str, unit: tuple[books.Record, ...]
) -> None:
    for found in neighbour(tmp_path, {table: unit}):
        total, domain = 0.0, found.world.domains[table]
        assert len(found.seen) == len(alone.seen)
        for before, after, entry in zip(alone.seen, found.seen, found.charged, strict=True):
            paid = changed(before, after)
            if entry.table != table:
                assert paid == 0
                continue
            charged = sum((entry.booked.at(domain, record) for record in unit), Fraction(0)) / len(unit)
            own = accountant.pays(entry, domain)(unit)
            assert paid <= float(own) * (1 + 1e-9) + 1e-12, entry.sql
            assert own <= charged, entry.sql
            if entry.kind in accountant.GAUSSIAN:
                assert paid == pytest.approx(float(own), rel=1e-12)
            total += paid
        assert 0 < total <= float(found.booked())


def changed(before: Reading, after: Reading) -> float:
    """Return the zCDP cost of telling two tables apart by one reading, from its draws alone."""
    total = 0.0
    if before.decided:
        pairs = zip(before.decided, after.decided, strict=True)
        total += sum(_bernoulli(one, other) for one, other in pairs)
    elif before.choices:
        for (one, rate), (other, same) in zip(before.choices, after.choices, strict=True):
            assert rate == same
            total += _cost(*([-float(rate * exponent) for exponent in side] for side in (one, other)))
    else:
        assert [bits for bits, _ in before.noise] == [bits for bits, _ in after.noise]
        difference = zip(_exact(before), _exact(after), before.noise, strict=True)
        for one, other, (bits, _) in difference:
            square = sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
            total += float(Fraction(square, 2 * 4**bits))
    return total


def _exact(reading: Reading) -> list[list[int]]:
    """Return what was measured, without the noise that was drawn."""
    told = reading.output if reading.kind == "helmert" else [[value for row in reading.output for value in row]]
    pairs = zip(told, reading.noise, strict=True)
    return [[value - draw for value, draw in zip(values, noise, strict=True)] for values, (_, noise) in pairs]


def _bernoulli(one: tuple[Any, Any], other: tuple[Any, Any]) -> float:
    """Return the cost of a decision; it must be within its epsilon as well."""
    assert one[0] == other[0]
    decider = one[0]
    p, q = decider.yes(one[1]), decider.yes(other[1])
    if min(p, q, 1 - p, 1 - q) < 1e-9:  # floating point knows too little of 1 - p
        return 0.0
    sides = [[math.log(chance), math.log1p(-chance)] for chance in (p, q)]
    ratios = [abs(a - b) for a, b in zip(*sides, strict=True)]
    assert max(ratios) <= float(decider.epsilon) * (1 + 1e-6) + 1e-9
    return _cost(*sides)


def _cost(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the least rho with Rényi divergences of at most order times rho, at some orders and both ways."""
    if one == other:
        return 0.0
    return max(accountant.renyi(*pair, order) / order for order in ORDERS for pair in ((one, other), (other, one)))


# --- planted mistakes --------------------------------------------------------------------------------------


def half_the_noise(patch: pytest.MonkeyPatch) -> None:
    whole = measure.Meter.linear
    patch.setattr(measure.Meter, "linear", lambda m, q, found: whole(m, q, replace(found, bits=found.bits - 1)))


def a_dropped_charge(patch: pytest.MonkeyPatch) -> None:
    """Every third release is free."""
    count = iter(range(10**9))

    def draft(**named: Any) -> sessions.Draft:
        found = real(**named)
        return replace(found, cost=costs.constant(0)) if next(count) % 3 == 2 else found

    real = sessions.Draft
    patch.setattr(sessions, "Draft", draft)


def a_wrong_cell(patch: pytest.MonkeyPatch) -> None:
    """Linear releases are booked one cell further."""
    real = linear._on_cells
    patch.setattr(linear, "_on_cells", lambda question, at_places: np.roll(real(question, at_places), 1))


def units_of_one_row(patch: pytest.MonkeyPatch) -> None:
    """The square of the rows of a unit is forgotten."""
    real = linear.cost
    patch.setattr(linear, "cost", lambda question, found, **_: real(question, found, rows_per_unit=1))


def a_forgotten_match(patch: pytest.MonkeyPatch) -> None:
    """A row that counts several times in a group is charged for the sum of the squares."""
    real = linear._on_cells

    def on_cells(question: linear.Question, at_places: Any) -> Any:
        apart = replace(question, group=np.arange(len(question.group)), groups=len(question.group))
        return real(apart, at_places)

    patch.setattr(linear, "_on_cells", on_cells)


def a_reading_that_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    real = measure.Meter.linear

    def twice(meter: measure.Meter, question: Any, found: Any) -> Any:
        real(meter, question, found)
        return real(meter, question, found)

    patch.setattr(measure.Meter, "linear", twice)


@pytest.mark.parametrize(
    ("plant", "check"),
    [
        (half_the_noise, check_drawn),
        (a_dropped_charge, check_booked),
        (a_dropped_charge, check_totals),
        (a_wrong_cell, check_booked),
        (units_of_one_row, check_booked),
        (units_of_one_row, check_totals),
        (a_forgotten_match, check_booked),
    ],
    ids=lambda value: value.__name__,
)
def test_a_planted_mistake_is_found(
    tmp_path: Path, plant: Callable[[pytest.MonkeyPatch], None], check: Callable[[Audited], None]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        with witness.watching() as seen:
            world = World(tmp_path, random.Random(5))
            for step in (streams.joins, streams.counts, streams.sums, streams.top_ups) * 3:
                world.tune()
                step(world)
    found = Audited(world, seen, books.entries(world.ledger))
    with pytest.raises(AssertionError):
        check(found)
    world.close()


def test_the_accountant_imports_nothing_of_what_it_audits() -> None:
    folder = Path(__file__).parent
    for name in ("accountant.py", "books.py"):
        tree = ast.parse((folder / name).read_text(encoding="utf-8"))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        ours = {
            module for module in imported if module.split(".")[0] in ("planner", "mechanisms", "proxy", "noisegate")
        }
        assert ours == set()
        assert {module for module in imported if module.startswith("tests.")} <= {"tests.audit.books"}
