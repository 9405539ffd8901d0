"""Measurements that are not linear in the data vector: numbers of different values, and quantiles."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from sqlglot import exp

from mechanisms.noise import accounting, selection
from mechanisms.tolerances import MET
from planner.basics.errors import BadValue, TooLarge, Unsupported
from planner.basics.limits import MAX_CELLS, MAX_UNITS
from planner.cells.costs import Cost, constant, simplified, to_units
from planner.cells.workload import Placement
from planner.cells.workspace import Ints, Workspace
from planner.questions.noise import Noise
from planner.sql.aggregates import AggregateKind
from planner.sql.placement import Placer
from planner.sql.query import BASE, Aggregate


@dataclass(frozen=True, eq=False, kw_only=True)
class Labelled:
    """One aggregate of one grouping set: the label of every place (-1: does not count), ordered from 0.

    `values` names a table (i, v) with the value of every label; `units` says that privacy units are counted.
    """

    aggregate: Aggregate
    workspace: Workspace
    cell: Ints
    group: Ints
    groups: int
    label: Ints
    size: int
    values: str
    units: bool
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        aggregate, table = self.aggregate, self.workspace.table.name
        fixed = ("labelled 1", table, aggregate.kind.value, aggregate.p, self.units, self.size, self.groups)
        state = hashlib.sha256(repr(fixed).encode())
        for axis in self.workspace.axes:
            state.update(f"{axis.key}\0".encode() + axis.atoms.tobytes())
        for array in (self.cell, self.group, self.label):
            state.update(array.tobytes())
        object.__setattr__(self, "digest", state.hexdigest())


def labelled(aggregate: Aggregate, placer: Placer) -> list[Labelled]:
    """Return the aggregate placed: one Labelled for each grouping set."""
    argument = aggregate.argument
    assert argument is not None
    bare, table = argument.unnest(), placer.measured.table
    is_unit = isinstance(bare, exp.Column) and bare.table == BASE and bare.name == table.unit
    units = is_unit and aggregate.kind == AggregateKind.DISTINCT
    asked = [exp.Literal.number(0) if units else argument]
    if aggregate.condition is not None:
        asked.append(aggregate.condition)
    placement = placer.place(asked)
    if placement.repeats:
        raise Unsupported(
            f"{aggregate.kind} over a join in which a row has several matches can't be answered",
            hint="join on a key of the public table",
            span=aggregate.span,
        )
    label, values, size = _labels(placement, placer)
    if aggregate.condition is not None:
        holds = np.ma.filled(np.ma.asarray(placement.values[1]), False).astype(bool)
        label = np.where(holds, label, -1)
    if size * max(placement.group_counts) > 8 * MAX_CELLS:
        raise TooLarge(
            f"{max(placement.group_counts):,} groups with {size:,} possible values each are too many",
            hint="group more coarsely, or ask about one group at a time",
            span=aggregate.span,
        )
    return [
        Labelled(
            aggregate=aggregate,
            workspace=placement.workspace,
            cell=placement.cell,
            group=group,
            groups=groups,
            label=label,
            size=size,
            values=values,
            units=units,
        )
        for group, groups in zip(placement.groups, placement.group_counts, strict=True)
    ]


def _labels(placement: Placement, placer: Placer) -> tuple[Ints, str, int]:
    """Return the label of every place, the table of their values, and their number; NULL has label -1."""
    bench, relation = placer.bench, placement.relation
    rank = "dense_rank() OVER (ORDER BY v0) - 1"
    distinct = f"SELECT DISTINCT v0 FROM {relation} WHERE v0 IS NOT NULL"
    bench.run(f"CREATE TEMP TABLE {relation}_v AS SELECT {rank} AS i, v0 AS v FROM ({distinct})")
    ranked = f"SELECT CASE WHEN v0 IS NULL THEN -1 ELSE {rank} END AS l FROM {relation} ORDER BY rowid"
    found = bench.arrays(ranked)["l"]
    [(size,)] = bench.rows(f"SELECT count(*) FROM {relation}_v")
    return np.asarray(found, dtype=np.int64), f"{relation}_v", int(size)


def distinct_reach(question: Labelled) -> int:
    """Return the most that a unit of at most k rows changes the numbers of all groups, in squares.

    A row adds at most 1 to the number of one group, and no number is larger than the labels of its group, 1 if units
    are counted: with m_g of its rows in group g the squares are at most the sum of min(m_g, L_g)^2. That is convex in
    m, so it is largest where the group with the most labels is filled first, then the next. For units it is
    min(k, groups).
    """
    rows, squares = question.workspace.table.max_rows_per_unit, 0
    for labels in _labels_of_groups(question):
        taken = min(rows, labels)
        squares, rows = squares + taken * taken, rows - taken
    return squares


def _labels_of_groups(question: Labelled) -> list[int]:
    """Return how many labels count in each group, the most first; a unit counts once, whatever its label."""
    counts = question.label >= 0
    label = np.zeros_like(question.label) if question.units else question.label
    pairs = np.unique(question.group[counts] * max(question.size, 1) + label[counts])
    _, labels = np.unique(pairs // max(question.size, 1), return_counts=True)
    return sorted(labels.tolist(), reverse=True)


def distinct_cost(question: Labelled, noise: Noise) -> Cost:
    """Return the cost of a noisy number of different values, or of units, on every cell.

    A unit pays the mean of the costs of its k rows; let rows that it lacks be copies of one that it has. So a cost C
    is enough if for all k cells the sum of their C is at least k rho S, where rho is what a change of 1 costs and S
    what `distinct_reach` would be for as many rows as are in cells that count. There are two ways to see to that:
    - rho times the reach in all cells: then the mean is that, whichever cells they are, and no S is larger;
    - k rho min(k, L) in the cells that count, for the most labels L of a group. For m rows there, S <= m min(k, L).
    The first is never the dearer one. If they are equally dear, the second leaves out the cells that do not count.
    """
    rows, reach = question.workspace.table.max_rows_per_unit, distinct_reach(question)
    most = max(_labels_of_groups(question), default=0)
    return _booked(question, noise.rho(reach), everywhere=reach < rows * min(rows, most))


@dataclass(frozen=True)
class Draws:
    """Quantile draws by the exponential mechanism: (epsilon, offset of the aimed rank) of each, and its error."""

    draws: tuple[tuple[Fraction, Fraction], ...]
    rank_error: float

    @property
    def rho(self) -> Fraction:
        return sum((accounting.exponential_rho(epsilon) for epsilon, _ in self.draws), Fraction(0))


def draws_for_error(question: Labelled, *, error: float, alpha: float) -> Draws:
    """Return draws whose rank is within `error` of the quantile's with probability 1 - alpha.

    With an interval asked for, two more draws aim half the error below and above and stay within half of it.
    """
    p, rows, size = _level(question), question.workspace.table.max_rows_per_unit, max(question.size, 1)
    middle = selection.epsilon_for_rank_error(size, p=p, error=error, rows=rows, alpha=alpha)
    draws = [(middle, Fraction(0))]
    if question.aggregate.interval:
        half = max(math.floor(error / 2), 1)
        side = selection.epsilon_for_rank_error(size, p=p, error=half, rows=rows, alpha=alpha / 2)
        draws += [(side, Fraction(-half)), (side, Fraction(half))]
    return Draws(tuple(draws), error)


def draws_for_rho(question: Labelled, *, rho: Fraction, alpha: float) -> Draws:
    """Return the draws that cost at most rho in all."""
    p, rows, size = _level(question), question.workspace.table.max_rows_per_unit, max(question.size, 1)
    if rho <= 0:
        raise BadValue("noisegate.rho must be positive", hint="for example: SET noisegate.rho = 0.001")
    # One draw costs epsilon^2 / 8; with an interval the sides take twice the epsilon: 1 + 4 + 4 parts.
    parts = 9 if question.aggregate.interval else 1
    epsilon = Fraction(math.isqrt(int(8 * rho / parts * 2**80)), 2**40)
    error = selection.rank_error(size, p=p, epsilon=epsilon, rows=rows, alpha=alpha)
    draws = [(epsilon, Fraction(0))]
    if question.aggregate.interval:
        half = math.ceil(selection.rank_error(size, p=p, epsilon=2 * epsilon, rows=rows, alpha=alpha / 2))
        draws += [(2 * epsilon, Fraction(-half)), (2 * epsilon, Fraction(half))]
    return Draws(tuple(draws), error)


def rank_error(question: Labelled, draws: Sequence[tuple[Fraction, Fraction]], *, alpha: float) -> float:
    """Return the rank error that draws have at confidence 1 - alpha; infinite if they lack a wanted interval."""
    p, rows, size = _level(question), question.workspace.table.max_rows_per_unit, max(question.size, 1)
    errors = [selection.rank_error(size, p=p, epsilon=draws[0][0], rows=rows, alpha=alpha)]
    if question.aggregate.interval:
        for epsilon, offset in draws[1:]:
            own = selection.rank_error(size, p=p, epsilon=epsilon, rows=rows, alpha=alpha / 2)
            errors.append(2 * abs(float(offset)) if own <= abs(offset) * MET else math.inf)
    return max(errors) if len(draws) > 1 or not question.aggregate.interval else math.inf


def _level(question: Labelled) -> Fraction:
    assert question.aggregate.p is not None
    return question.aggregate.p


def quantile_cost(question: Labelled, draws: Draws) -> Cost:
    """Return the cost of the draws on each cell that can change them."""
    return _booked(question, draws.rho, everywhere=False)


def _booked(question: Labelled, rho: Fraction, *, everywhere: bool) -> Cost:
    """Return a cost of rho on all cells, or on those whose rows count in some group and nothing elsewhere."""
    axes, units = question.workspace.axes, to_units(rho)
    if units > MAX_UNITS:
        raise TooLarge("an answer this accurate costs more than can be booked", hint="ask for a larger error")
    if everywhere:
        return constant(units)
    values = np.zeros(question.workspace.cells, dtype=np.int64)
    values[question.cell[question.label >= 0]] = units
    keys, partitions = tuple(axis.key for axis in axes), tuple(axis.atoms for axis in axes)
    return simplified(Cost(keys, partitions, values.reshape(question.workspace.shape)))
