"""Marginals released by integer rows: Helmert coefficients, what they cost, and the cheapest that are still missing.

On an axis of n cells let h_j = (1, ..., 1, -j, 0, ..., 0) with j ones, for j = 1 .. n - 1. These rows are integer and
orthogonal to each other and to the constants, |h_j|^2 = j (j + 1), so sum_j h_j h_j^T / |h_j|^2 = I - J/n. Their
tensor products over the axes of a marginal A are orthogonal as well, and sum_r r r^T / |r|^2 = (x)_i (I - J/n_i) = P:
measuring every r x with independent noise of variance |r|^2 / e_A tells e_A P about the marginal, and nothing else.

The precision e_A does not depend on attributes outside of A. On the whole domain the information is sum_A c_A P_A with
c_A = e_A prod_{i not in A} n_i and P_A = (x)_{i in A} (I - J/n_i) (x)_{i not in A} J/n_i are projections, orthogonal to
each other. So the order of informations is that of the e_A, and no matrix on cells is formed.
Parts of marginals are told apart by their subset A of the attributes: ascending positions, () for the total.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mechanisms import interrupts
from mechanisms.tolerances import BISECTED, JUST_ABOVE, MULTIPLIER_FLOOR

Matrix = NDArray[np.float64]
Subset = tuple[int, ...]
"""Positions of the attributes of a marginal, ascending; () is the total."""

Sizes = tuple[int, ...]
Precisions = Mapping[Subset, float]

PRECISION_BITS = 20
"""Integers that stand for real numbers have at least so many significant bits."""

MAX_BITS = 58


def subsets(A: Subset) -> list[Subset]:
    """Return all subsets of A, A and () included."""
    return [part for size in range(len(A) + 1) for part in combinations(A, size)]


# --- rows --------------------------------------------------------------------------------------------------


def coefficients(table: NDArray[Any]) -> NDArray[Any]:
    """Return r x for every Helmert row of a table, shape (n_1 - 1, n_2 - 1, ...), exact for integers that fit.

    h_j v = (v_0 + ... + v_{j-1}) - j v_j: one cumulative sum along each axis. No entry, and no partial sum, is larger
    than the sum of |table| times the product of the n_i.
    """
    for axis in range(table.ndim):
        moved = np.moveaxis(table, axis, -1)
        j = np.arange(1, moved.shape[-1])
        table = np.moveaxis(np.cumsum(moved, axis=-1)[..., :-1] - j * moved[..., 1:], -1, axis)
    return table


def centred(found: Matrix) -> Matrix:
    """Return the table with these coefficients whose sum along every axis is zero: sum_r (r x) r / |r|^2.

    v_l = sum_{j > l} t_j / (j (j + 1)) - t_l / (l + 1), with t_0 = 0.
    """
    for axis in range(found.ndim):
        t = np.moveaxis(found, axis, -1)
        j = np.arange(1, t.shape[-1] + 1)
        none = np.zeros((*t.shape[:-1], 1))
        later = np.cumsum((t / (j * (j + 1.0)))[..., ::-1], axis=-1)[..., ::-1]
        table = np.concatenate([later, none], axis=-1) - np.concatenate([none, t / (j + 1.0)], axis=-1)
        found = np.moveaxis(table, -1, axis)
    return found


def without_means(table: Matrix) -> Matrix:
    """Return the table with its mean along every axis taken away: P applied to it, as `centred(coefficients(table))`.

    Guarantee: with independent noise N(0, v) on every cell of a table, the result is a release of information P / v.
    """
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table


def squares(sizes: Sizes) -> Matrix:
    """Return |r|^2 of every Helmert row of a table of these sizes, shape (n_1 - 1, n_2 - 1, ...).

    >>> squares((3, 2)).tolist()
    [[4.0], [12.0]]
    """
    found = np.ones(())
    for n in sizes:
        j = np.arange(1.0, n)
        found = np.multiply.outer(found, j * (j + 1))
    return found


@dataclass(frozen=True)
class Rows:
    """All Helmert rows of the marginal on A, each times ceil(scale / |r|), with noise round(N(0, 4^bits))."""

    A: Subset
    scale: int
    bits: int

    @classmethod
    def telling(cls, A: Subset, precision: float, sizes: Sizes) -> Rows:
        """Return rows of at least that precision, and at most a 2^-19th more where bits allow it; sizes are A's."""
        longest = math.sqrt(math.prod(n * (n - 1) for n in sizes))
        bits = math.ceil(PRECISION_BITS + math.log2(longest) - math.log2(precision) / 2)
        bits = min(max(bits, 0), MAX_BITS)
        return cls(A, math.ceil(math.ldexp(math.sqrt(precision), bits)), bits)

    @property
    def precision(self) -> float:
        """Return e_A as it is told at least: by every row, (k |r|)^2 / 4^bits >= scale^2 / 4^bits."""
        return math.ldexp(float(self.scale), -self.bits) ** 2

    def multipliers(self, sizes: Sizes) -> Matrix:
        """Return k = ceil(scale / |r|) of every row, whole numbers: the same on every machine with IEEE arithmetic."""
        found: Matrix = np.ceil(self.scale / np.sqrt(squares(sizes)))
        return found

    def profile(self, sizes: Sizes) -> Fraction:
        """Return what a record in any cell pays at most: a bound on sum_r (k r[cell])^2 / 4^bits.

        Guarantee: releasing the rows once is rho-zCDP with rho = profile / 2, for neighbours that differ by one record.
        With m the largest k^2 |r|^2, the sum is at most m / 4^bits times sum_r r[cell]^2 / |r|^2, and that is the
        diagonal of (x) (I - J/n_i): prod_i (n_i - 1) / n_i in every cell. m is rounded up: its factors are off by
        less than 2^-50 together, and it is raised by 2^-40.
        """
        largest = float((self.multipliers(sizes) ** 2 * squares(sizes)).max(initial=0.0)) * (1 + 2.0**-40)
        everywhere = Fraction(math.prod(n - 1 for n in sizes), math.prod(sizes))
        return Fraction(largest) / Fraction(4) ** self.bits * everywhere


# --- what is known, and what is missing --------------------------------------------------------------------


def plain(sizes: Sizes, A: Subset, variance: float) -> dict[Subset, float]:
    """Return what the marginal on A with independent noise of that variance on every cell tells about its parts.

    >>> plain((3, 5), (0, 1), 2.0)[(0,)]
    0.1
    """
    return {part: 1 / (variance * _outside(sizes, A, part)) for part in subsets(A)}


def added(all_known: Iterable[Precisions]) -> dict[Subset, float]:
    """Return what independent releases tell together: the sum."""
    total: dict[Subset, float] = {}
    for known in all_known:
        for A, precision in known.items():
            total[A] = total.get(A, 0.0) + precision
    return total


def cell_variance(sizes: Sizes, known: Precisions, A: Subset) -> float:
    """Return the variance of the best answer to each cell of the marginal on A, inf if a part of it is missing.

    sum over A' within A of prod_{i in A'} (1 - 1/n_i) prod_{i in A - A'} n_i^-2 / e_A'.
    """
    parts = [(_weight(sizes, A, part), known.get(part, 0.0)) for part in subsets(A)]
    return math.fsum(weight / e if e > 0 else math.inf for weight, e in parts if weight > 0)


def reconstructed(sizes: Sizes, parts: Mapping[Subset, Matrix], A: Subset) -> Matrix:
    """Return the marginal on A from the centred tables of all its parts: each is spread evenly over the other axes.

    A part with an axis of one cell is nothing but zeros, and need not be there.
    """
    answer = np.zeros(tuple(sizes[i] for i in A))
    for part in subsets(A):
        if _weight(sizes, A, part) == 0:
            continue
        shape = tuple(sizes[i] if i in part else 1 for i in A)
        answer += parts[part].reshape(shape) / _outside(sizes, A, part)
    return answer


@dataclass(frozen=True)
class TopUp:
    """Precisions that meet all targets, what they cost beyond what is known, and a bound below all such costs."""

    precisions: dict[Subset, float]
    cost: float
    bound: float


def top_up(sizes: Sizes, known: Precisions, targets: Precisions, *, gap: float = 1e-4, max_steps: int = 500) -> TopUp:
    """Return the cheapest precisions e >= known with which every cell of marginal A has variance at most target_A.

    min sum_A' p_A' (e_A' - known_A') s.t. e >= known and sum_A' q_AA' / e_A' <= t_A, p_A = prod_{i in A} (1 - 1/n_i):
    a convex program, and joining with what is known element by element. For multipliers mu >= 0 and g = mu q the
    Lagrangian is least at e_A = max(known_A, sqrt(g_A / p_A)). Each step scales mu until that is just feasible; then
    its cost is an upper bound, and cost + mu (variance - t) a lower one. Step: mu_A <- mu_A (variance_A / t_A)^1.5.

    >>> {A: round(e, 9) for A, e in top_up((4,), {}, {(0,): 2.0}).precisions.items()}
    {(): 0.125, (0,): 0.5}
    """
    wanted = [A for A, t in targets.items() if cell_variance(sizes, known, A) > t]
    if not wanted:
        return TopUp({}, 0.0, 0.0)
    parts, q = _incidence(sizes, wanted)
    t = np.array([targets[A] for A in wanted])
    p = np.array([share(sizes, part) for part in parts])
    floor = np.array([known.get(part, 0.0) for part in parts])
    mu = 1 / t
    best, upper, lower = floor, math.inf, 0.0
    for _ in range(max_steps):
        interrupts.check()
        root = np.sqrt((mu @ q) / p)
        scale = _feasible(q, t, floor, root)
        e, mu = np.maximum(floor, scale * root), mu * scale**2
        slack = (q @ (1 / e)) - t
        cost = float(p @ (e - floor))
        if cost < upper:
            best, upper = e, cost
        lower = max(lower, cost + float(mu @ slack))
        if upper <= lower * (1 + gap):
            break
        mu = np.maximum(mu * (1 + slack / t) ** 1.5, mu.max() * MULTIPLIER_FLOOR)
    return TopUp(dict(zip(parts, best.tolist(), strict=True)), upper, lower)


def share(sizes: Sizes, A: Subset) -> float:
    """Return what a unit of precision costs every cell: prod_{i in A} (1 - 1/n_i)."""
    return math.prod(1 - 1 / sizes[i] for i in A)


def _feasible(incidence: csr_array, t: Matrix, floor: Matrix, root: Matrix) -> float:
    """Return the least scale, up to rounding, with q / max(floor, scale * root) <= t."""

    def excess(scale: float) -> float:
        return float(((incidence @ (1 / np.maximum(floor, scale * root))) / t).max())

    high = 1.0
    if not floor.any():
        return excess(high) * JUST_ABOVE
    while excess(high) > 1:
        high *= 2
    while excess(high / 2) <= 1:
        high /= 2
    low = high / 2
    while high - low > BISECTED * high:
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 1 else (low, middle)
    return high


def _incidence(sizes: Sizes, wanted: list[Subset]) -> tuple[list[Subset], csr_array]:
    """Return the parts of all wanted marginals, and q: a cell's variance in marginal A is sum_A' q_AA' / e_A'."""
    position: dict[Subset, int] = {}
    triples = []
    for row, A in enumerate(wanted):
        for part in subsets(A):
            if (weight := _weight(sizes, A, part)) > 0:
                triples.append((row, position.setdefault(part, len(position)), weight))
    rows, columns, values = (np.array(column) for column in zip(*triples, strict=True))
    return list(position), csr_array((values, (rows, columns)), shape=(len(wanted), len(position)))


def _outside(sizes: Sizes, A: Subset, part: Subset) -> int:
    return math.prod(sizes[i] for i in A if i not in part)


def _weight(sizes: Sizes, A: Subset, part: Subset) -> float:
    return share(sizes, part) / _outside(sizes, A, part) ** 2
