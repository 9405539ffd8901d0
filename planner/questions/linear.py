"""Linear measurements: which integer rows are released, what they cost on every cell, what they tell.

A workload is put on *patterns*: places with the same coefficients are alike. All groups share one small
problem (functionals on patterns), so that planning does not grow with the number of groups.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.least.minimax import fit
from planner.basics.errors import TooLarge
from planner.basics.limits import MAX_COEFFICIENTS, MAX_FIT_WORK, MAX_JOINT, MAX_MEASURES, MAX_UNITS
from planner.cells.costs import UNIT_BITS, Cost, simplified, to_units_down
from planner.cells.workload import Placement, Workload
from planner.cells.workspace import Feature, Floats, Ints, Workspace
from planner.policy.table import Table
from planner.questions.noise import MAX_BITS, PRECISION_BITS

Integers = NDArray[Any]
"""Exact integers: dtype object (Python ints), or int64 where it surely fits."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Question:
    """A workload on patterns: what is asked, whatever the accuracy.

    Place r belongs to group `group[r]` and pattern `pattern[r]`; functional f of a group is units[f] times
    the sum over its places of E[f, pattern, :] times the features of the records there.
    """

    workspace: Workspace
    features: tuple[Feature, ...]
    cell: Ints
    group: Ints
    groups: int
    pattern: Ints
    low: Ints
    high: Ints
    E: Integers  # (F, S, Q)
    units: Floats  # (F,)
    roles: tuple[str, ...]
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", self._digest())

    def _digest(self) -> str:
        state = hashlib.sha256(f"linear 1\0{self.workspace.table.name}".encode())
        for axis in self.workspace.axes:
            state.update(f"{axis.key}\\0".encode() + axis.atoms.tobytes())
        columns = self.workspace.table.columns
        domains = [domain.fingerprint for name, _ in self.features if (domain := columns[name].domain)]
        state.update(repr((self.features, domains, self.groups, self.E.shape, self.E.ravel().tolist())).encode())
        for array in (self.cell, self.group, self.pattern, self.units):
            state.update(array.tobytes())
        return state.hexdigest()

    @cached_property
    def points(self) -> tuple[Floats, Integers, Ints]:
        """Return what one record can add: V (F, P) in units, phi (P, Q) doubled and the pattern of each point."""
        if len(self.E) * self.E.shape[1] * ends(self.features) > 4 * MAX_COEFFICIENTS:
            raise TooLarge(
                f"{len(self.E):,} different sums over {self.E.shape[1]:,} kinds of rows are too much for one SELECT",
                hint="ask for fewer aggregates at a time, or for sums of fewer columns",
            )
        lows, highs = _ranges_of(self.pattern, self.low, self.high, self.E.shape[1])
        phi, pattern = corners(self.features, lows, highs)
        V = np.einsum("fpq,pq->fp", self.E[:, pattern, :].astype(float), phi.astype(float)) / 2
        return V, phi, pattern


def question(work: Workload, sets: Sequence[int]) -> Question:
    """Return the question of some grouping sets: one set shares its problem among groups, several are one problem."""
    placement = work.placement
    base = (
        np.stack([f.coefficients for f in work.functionals])
        if work.functionals
        else np.zeros((0, len(placement.cell), 1))
    )
    roles = tuple(f.role for f in work.functionals)
    single = len(sets) == 1
    labels = [] if single else [placement.groups[s] for s in sets]
    pattern, first = _patterns(base, labels)
    coefficients = base[:, first, :]
    group, groups = placement.groups[sets[0]], placement.group_counts[sets[0]]
    if not single:
        coefficients = _spread(coefficients, placement, sets, first)
        roles = tuple(role for s in sets for _ in range(placement.group_counts[s]) for role in roles)
        group, groups = np.zeros(len(placement.cell), dtype=np.int64), 1
    reach = _reach(work, pattern, len(first))
    rows = [integer_row(row, reach) for row in coefficients]
    E = np.array([row for row, _ in rows], dtype=object).reshape(coefficients.shape)
    units = np.array([unit for _, unit in rows])
    return Question(
        workspace=placement.workspace,
        features=work.features,
        cell=placement.cell,
        group=group,
        groups=groups,
        pattern=pattern,
        low=work.low,
        high=work.high,
        E=E,
        units=units,
        roles=roles,
    )


def is_one_problem(work: Workload, sets: Sequence[int]) -> bool:
    """Return whether grouping sets are small enough to be one question."""
    placement = work.placement
    if len(sets) == 1:
        return True
    total = sum(placement.group_counts[s] for s in sets) * len(work.functionals)
    if total > MAX_JOINT:
        return False
    base = np.stack([f.coefficients for f in work.functionals])
    _, first = _patterns(base, [placement.groups[s] for s in sets])
    points = len(first) * ends(work.features)
    return (
        total * len(first) * base.shape[2] <= MAX_COEFFICIENTS and total * points * min(total, points) <= MAX_FIT_WORK
    )


def row_count(table: Table) -> Question:
    """Return the question SELECT count(*) FROM table."""
    one = np.zeros(1, dtype=np.int64)
    return row_counts(Workspace(table, ()), one, one, groups=1)


def row_counts(workspace: Workspace, cell: Ints, group: Ints, *, groups: int) -> Question:
    """Return the question of how many rows each group has: those in its cells."""
    pattern, none = np.zeros(len(cell), dtype=np.int64), np.zeros((len(cell), 0), dtype=np.int64)
    E = np.ones((1, 1, 1), dtype=np.int64).astype(object)
    return Question(
        workspace=workspace,
        features=(),
        cell=cell,
        group=group,
        groups=groups,
        pattern=pattern,
        low=none,
        high=none,
        E=E,
        units=np.ones(1),
        roles=("count",),
    )


def _spread(base: Floats, placement: Placement, sets: Sequence[int], first: Ints) -> Floats:
    """Return the functionals of every group of every set, each on the patterns of its own places."""
    total = sum(placement.group_counts[s] for s in sets) * len(base)
    found = []
    for s in sets:
        member = placement.groups[s][first]
        found += [row * (member == g)[:, None] for g in range(placement.group_counts[s]) for row in base]
    return np.array(found).reshape(total, *base.shape[1:])


def _patterns(base: Floats, labels: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return the pattern of every place and the first place of every pattern: equal columns are merged."""
    count = base.shape[1]
    code = np.zeros(count, dtype=np.int64)
    columns = [*labels, *(row[:, q] for row in base for q in range(base.shape[2]))]
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        if len(values) > 1:
            code = np.unique(code * len(values) + inverse, return_inverse=True)[1].astype(np.int64)
    _, first, pattern = np.unique(code, return_index=True, return_inverse=True)
    return pattern.astype(np.int64), first.astype(np.int64)


def _ranges_of(pattern: Ints, low: Ints, high: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the widest range of each feature's grid index over the places of every pattern."""
    lows = np.full((count, low.shape[1]), np.iinfo(np.int64).max)
    highs = np.full((count, low.shape[1]), -1)
    np.minimum.at(lows, pattern, low)
    np.maximum.at(highs, pattern, high)
    return lows, highs


def _reach(work: Workload, pattern: Ints, count: int) -> Floats:
    """Return the largest value of each feature at any place of every pattern, shape (S, Q)."""
    _, highs = _ranges_of(pattern, work.low, work.high, count)
    powers = np.array([power for _, power in work.features], dtype=float)
    return np.column_stack([np.ones(count), np.maximum(highs, 0).astype(float) ** powers])


def integer_row(row: Floats, reach: Floats) -> tuple[Integers, float]:
    """Return integers and a unit with row = unit * integers: exactly for decimal coefficients, else to 2^-40.

    Args:
        row: coefficients, shape (S, Q).
        reach: largest value of each feature, shape (S, Q); the rounding is relative to what a record can add.
    """
    size, most = float(np.abs(row).max(initial=0.0)), float(np.abs(row * reach).max(initial=0.0))
    for digits, factor in itertools.product(range(8), (1, 2, 4)):
        scale = factor * 10**digits
        near = np.rint(row * scale)
        error = np.abs(row * scale - near)
        decimal = np.all(error <= 1e-9 * np.maximum(np.abs(near), 1e-3)) and np.all(
            error * reach <= 2.0**-40 * most * scale
        )
        if size * scale < 2**50 and decimal:
            return near.astype(np.int64).astype(object), 1.0 / scale
    unit = 2.0 ** (math.floor(math.log2(most)) - 40 - math.ceil(math.log2(float(reach.max()) + 1)))
    exact = [[round(Fraction(float(value)) / Fraction(unit)) for value in values] for values in row]
    return np.array(exact, dtype=object).reshape(row.shape), unit


def ends(features: Sequence[Feature]) -> int:
    """Return how many corners a cell has: two for each column that is summed, three with its squares."""
    columns = [column for column, _ in features]
    return math.prod(1 + columns.count(column) for column in dict.fromkeys(columns))


def corners(features: Sequence[Feature], low: Ints, high: Ints) -> tuple[Integers, Ints]:
    """Return points whose convex hull holds whatever (1, u, u^2, …) a record can add: twice them, and their row.

    A column with u alone has its two ends; with u^2 the three Bernstein points (lo, lo^2), ((lo + hi)/2, lo hi),
    (hi, hi^2), between which the parabola lies. Several columns combine freely. |B phi|^2 is convex, so no
    record costs more than the dearest corner.
    """
    columns = list(dict.fromkeys(column for column, _ in features))
    if len(columns) > MAX_MEASURES:
        raise TooLarge(
            f"{len(columns)} measured columns, the limit is {MAX_MEASURES}", hint="ask about fewer at a time"
        )
    low, high = low.astype(object), high.astype(object)
    choices = []
    for column in columns:
        powers = [i for i, (name, _) in enumerate(features) if name == column]
        lo, hi = low[:, powers[0]], high[:, powers[0]]
        ends = [(2 * lo, 2 * lo * lo), (2 * hi, 2 * hi * hi)]
        if len(powers) == 2:
            ends.append((lo + hi, 2 * lo * hi))
        choices.append([dict(zip(powers, end, strict=False)) for end in ends])
    points = []
    for choice in itertools.product(*choices):
        chosen = {index: value for part in choice for index, value in part.items()}
        twos = np.full(len(low), 2, dtype=object)
        points.append(np.stack([twos, *(chosen[i] for i in range(len(features)))], axis=1))
    return np.concatenate(points), np.tile(np.arange(len(low)), len(points))


# --- measurements ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Measurement:
    """Integer rows B = K E with noise round(N(0, 4^bits)): what is run, in every group alike."""

    K: Integers  # (r, F)
    bits: int

    def digest(self, question: Question) -> str:
        text = repr((question.digest, self.bits, self.K.shape, self.K.ravel().tolist()))
        return hashlib.sha256(text.encode()).hexdigest()

    def rows(self, question: Question) -> Integers:
        """Return B, shape (r, S, Q), exact."""
        return product(self.K, question.E)


def product(K: Integers, E: Integers) -> Integers:
    """Return K E, shape (r, S, Q), exact."""
    F, S, Q = E.shape
    return E if np.array_equal(K, np.eye(F)) else exact_product(K, E.reshape(F, S * Q)).reshape(-1, S, Q)


def rounded_product(K: Integers, E: Integers) -> Floats:
    """Return K E in floats, each entry rounded once; quick where every partial sum is exact."""
    F, S, Q = E.shape
    if _largest(K) * _largest(E) * max(F, 1) < 2**53:
        found: Floats = K.astype(float) @ E.reshape(F, S * Q).astype(float)
        return found.reshape(-1, S, Q)
    return product(K, E).astype(float)


def exact_product(left: Integers, right: Integers) -> Integers:
    """Return left @ right in integers: through float64, in digits so short that every partial sum is exact."""
    width = left.shape[1]
    if _largest(left) * _largest(right) * max(width, 1) < 2**53:
        found: Integers = np.rint(left.astype(float) @ right.astype(float)).astype(np.int64)
        return found.astype(object)
    bits = (52 - width.bit_length()) // 2
    pairs = [(i + j, one @ other) for i, one in _digits(left, bits) for j, other in _digits(right, bits)]
    return np.asarray(sum(np.rint(part).astype(np.int64).astype(object) << place for place, part in pairs))


def _digits(array: Integers, bits: int) -> list[tuple[int, Floats]]:
    """Return an array in digits below 2^bits in size, each with its place, as floats."""
    found, signs, rest = [], np.sign(array), np.abs(array)
    for place in range(0, _largest(array).bit_length(), bits):
        found.append((place, (signs * (rest >> place & (2**bits - 1))).astype(float)))
    return found


def _largest(array: Integers) -> int:
    return int(np.abs(array).max(initial=0))


def cheapest(question: Question, variances: Floats, *, slack: float = 1.0) -> Measurement:
    """Return the measurement that tells every functional within its target variance, as cheaply as we can.

    Each is measured on its own where targets differ so much that some would be lost.
    """
    active = _active(question)
    V, _, _ = question.points
    V, targets = V[active] * question.units[active, None], variances[active] * slack
    found = _quantised(fit(V, targets).K * question.units[active], active, len(question.units))
    if np.isfinite(known(question, [found]).variances).all():
        return found
    return _quantised(np.diag(question.units[active] / np.sqrt(targets)), active, len(question.units))


def meeting(question: Question, variances: Floats) -> Measurement:
    """Return a measurement whose variances, after rounding to integers, are all within the targets."""
    if not len(_active(question)):
        return Measurement(np.zeros((0, len(question.units)), dtype=object), 0)
    slack = 1.0
    for _ in range(6):
        found = cheapest(question, variances, slack=slack)
        reached = known(question, [found])
        ratio = float((reached.variances / variances).max())
        if ratio <= 1:
            return found
        if not math.isfinite(ratio):
            break
        slack *= (1 - 1e-6) / ratio
    raise TooLarge("the accuracy asked for can't be reached on the grid of the noise", hint="ask for a larger error")


def spending(question: Question, shape: Floats, *, rho: Fraction, rows_per_unit: int) -> tuple[Measurement, Floats]:
    """Return the measurement that costs at most rho, with variances in proportion to `shape`, and those variances."""
    if not len(_active(question)):
        return meeting(question, shape), shape
    allowed, scale = max(to_units_down(rho), 1), 1.0
    for attempt in range(12):
        found = cheapest(question, shape * scale)
        try:
            asked = cost(question, found, rows_per_unit=rows_per_unit).highest
        except TooLarge:
            asked = MAX_UNITS
        if attempt and asked <= allowed:
            return found, known(question, [found]).variances
        scale *= asked / allowed * (1 + 1e-7)
    raise TooLarge("so little budget can't be spent on the grid of the noise", hint="set a larger noisegate.rho")


def reach(question: Question) -> Floats:
    """Return the most that one record can add to each functional, shape (F,)."""
    V, _, _ = question.points
    found: Floats = np.abs(V * question.units[:, None]).max(axis=1, initial=0.0)
    return found


def _active(question: Question) -> Ints:
    """Return the functionals to which some record can add something: the others are known to be 0."""
    V, _, _ = question.points
    return np.flatnonzero(np.abs(V).max(axis=1, initial=0.0) > 0)


def _quantised(K: Floats, active: Ints, count: int) -> Measurement:
    """Return K on the grid 2^-bits, away from zero, with zero columns for what is not measured."""
    largest = np.abs(K).max(axis=0)
    least = float(largest[largest > 0].min())
    bits = min(max(math.ceil(PRECISION_BITS - math.log2(least)), 0), MAX_BITS)
    scaled = np.ldexp(K, bits)
    whole = np.sign(scaled) * np.ceil(np.abs(scaled) * (1 - 1e-12))
    full = np.zeros((len(K), count), dtype=object)
    full[:, active] = [[int(value) for value in row] for row in whole]
    return Measurement(full, bits)


@dataclass(frozen=True, eq=False)
class Known:
    """What a stack of measurements of one question tells: estimates are L y, their covariance L L^T (noise 1)."""

    L: Floats  # (F, r), for y in units of the noise
    missing: NDArray[np.bool_]  # (F,): what is not determined

    @cached_property
    def variances(self) -> Floats:
        return np.where(self.missing, np.inf, np.square(self.L).sum(axis=1))

    def covariances(self, width: int) -> Floats:
        """Return the covariances of so many functionals in a row, then of the next ones: (F / width, width, width)."""
        L = np.where(self.missing[:, None], 0.0, self.L).reshape(len(self.L) // width, width, self.L.shape[1])
        found: Floats = np.einsum("gfr,ghr->gfh", L, L)
        found[:, np.arange(width), np.arange(width)] = self.variances.reshape(-1, width)
        return found


def known(question: Question, measurements: Sequence[Measurement]) -> Known:
    """Return the best linear unbiased reconstruction of all functionals from the measurements together.

    Where a functional is not determined by them its variance is infinite.
    """
    V, _, _ = question.points
    if not measurements:
        rows = np.zeros((0, len(V)))
    else:
        rows = np.vstack([np.ldexp(m.K.astype(float), -m.bits) for m in measurements])
    scale = np.abs(V).max(axis=1, initial=0.0)
    scale = np.where(scale > 0, scale, 1.0)
    target = V / scale[:, None]
    B = (rows * scale) @ target
    norms = np.linalg.norm(B, axis=1)
    keep = norms > 0
    B = B[keep] / norms[keep, None]
    # Weighted least squares: rows of B were scaled to length 1, so their noise has deviation 1 / norms.
    G = B * norms[keep, None]
    L = target @ np.linalg.pinv(G, rcond=1e-11) if G.size else np.zeros((len(V), 0))
    missing = np.abs(L @ G - target).max(axis=1, initial=0.0) > 1e-6
    full = np.zeros((len(V), len(rows)))
    full[:, keep] = L
    full *= (question.units * scale)[:, None]
    return Known(full, missing)


def cost(question: Question, measurement: Measurement, *, rows_per_unit: int) -> Cost:
    """Return what the measurement costs on every cell, in units, rounded up: k^2 |B phi|^2 / 2 at the dearest corner.

    The two ends of a measured column that the cells do not cut are told apart, as if they were cells: what all
    releases together cost a record is convex in its value, so no value is dearer than the dearer end.

    Guarantee: for tables that differ by one unit (at most k rows) the release has Rényi divergence of order
    alpha at most alpha times the sum over the unit's rows of their cells' cost, divided by k; between two ends the
    cost of a row is at most their mean, weighted by how near it is to each.
    """
    corner, ended = _corner_costs(question, measurement, rows_per_unit), _ended(question)
    columns = list(dict.fromkeys(column for column, _ in question.features))
    values = np.zeros((2,) * len(ended) + (question.workspace.cells,), dtype=np.int64)
    for number, at_places in enumerate(corner):
        ends = tuple(number >> (len(columns) - 1 - columns.index(column)) & 1 for column in ended)
        values[ends] = np.maximum(values[ends], _on_cells(question, at_places))
    axes = question.workspace.axes
    grids = (domain.fingerprint for column in ended if (domain := question.workspace.table.columns[column].domain))
    scope = [f"{column}#{grid}/ends" for column, grid in zip(ended, grids, strict=True)]
    partitions = [np.arange(2)] * len(ended) + [axis.atoms for axis in axes]
    shape = (2,) * len(ended) + question.workspace.shape
    return simplified(Cost((*scope, *(axis.key for axis in axes)), tuple(partitions), values.reshape(shape)))


def burden(question: Question, measurement: Measurement) -> float:
    """Return about what a measurement charges all cells together."""
    V, _, pattern = question.points
    rows = np.ldexp(measurement.K.astype(float), -measurement.bits) @ V
    return float(np.square(rows).sum(axis=0) @ np.bincount(question.pattern, minlength=question.E.shape[1])[pattern])


def _ended(question: Question) -> list[str]:
    """Return the measured columns whose ends are the same in every cell; none if squares are summed."""
    if any(power > 1 for _, power in question.features):
        return []
    cut = {axis.column for axis in question.workspace.axes if not axis.presence}
    return [column for column, _ in question.features if column not in cut]


def _corner_costs(question: Question, measurement: Measurement, rows_per_unit: int) -> Iterator[Integers]:
    """Yield for each choice of corners what a record at that corner of every place costs, in units, rounded up."""
    B = measurement.rows(question).astype(float)
    ranges = np.column_stack([question.pattern, question.low, question.high])
    kinds, kind = np.unique(ranges, axis=0, return_inverse=True)
    width = len(question.features)
    phi, row = corners(question.features, kinds[:, 1 : 1 + width], kinds[:, 1 + width :])
    for start in range(0, len(row), len(kinds) or 1):
        part = slice(start, start + len(kinds))
        terms = B[:, kinds[row[part], 0], :] * phi[None, part, :].astype(float)
        # Floating point, rounded up: no sum of a few terms is off by more than 2^-48 of the sum of their sizes.
        reach = np.abs(terms.sum(axis=2)) + np.abs(terms).sum(axis=2) * 2.0**-48
        worst = np.square(reach).sum(axis=0) * (1 + 2.0**-40)
        scaled = np.ldexp(worst, UNIT_BITS - 3 - 2 * measurement.bits) * rows_per_unit**2
        if scaled.max(initial=0.0) > MAX_UNITS:
            raise TooLarge("an answer this accurate costs more than can be booked", hint="ask for a larger error")
        yield np.ceil(scaled).astype(np.int64)[kind.ravel()]


def _on_cells(question: Question, at_places: Ints) -> Ints:
    """Return the cost on cells of costs at places; a cell with several places in a group pays for their sum's square.

    |a + b|^2 <= 2 (|a|^2 + |b|^2): n places of a cell in one group cost at most n times the sum of their costs,
    places in different groups are different outputs and add up.
    """
    pair = question.cell * max(question.groups, 1) + question.group
    _, inverse, times = np.unique(pair, return_inverse=True, return_counts=True)
    matches = int(times.max(initial=0)) * int(np.bincount(question.cell).max(initial=0))
    if int(at_places.max(initial=0)) * matches > MAX_UNITS:
        raise TooLarge("an answer this accurate costs more than can be booked", hint="ask for a larger error")
    values = np.zeros(question.workspace.cells, dtype=np.int64)
    np.add.at(values, question.cell, at_places * times[inverse.ravel()])
    return values
