"""Marginals in the residual basis, as ResidualPlanner has them (arXiv 2305.08175): least total variance, and the order.

The product releases and plans by `mechanisms.least.marginals`, in other units: e_A = c_A / prod_{i not in A} n_i.
Here are the closed forms of the paper, to reproduce its figures and to check the product's planner against them.

On an axis of n cells let J/n project onto the constant vectors. For a subset A of the attributes,
P_A = (x)_{i in A} (I - J/n_i) (x)_{i not in A} J/n_i. The P_A are orthogonal projections that add up to I, and noise
that treats the cells of each marginal alike has information C = sum_A c_A P_A. So the order is that of the c_A:
common mechanism = min, join = max, residual = difference, and no d x d matrix is formed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from mechanisms.least.marginals import Subset, subsets

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Marginals:
    """The information C = sum_A c_A P_A on attributes of these sizes; a subset that is missing has c_A = 0."""

    sizes: tuple[int, ...]
    information: Mapping[Subset, float]


def up_to(attributes: int, ways: int) -> list[Subset]:
    """Return all marginals of at most that many of the attributes, the total first."""
    return [A for size in range(ways + 1) for A in combinations(range(attributes), size)]


def released(sizes: tuple[int, ...], noise: Mapping[Subset, float]) -> Marginals:
    """Return the information of marginals released with independent noise of these variances on every cell.

    The marginal on A tells every P_A' with A' within A alike: c_A' = prod_{i not in A} n_i / variance.
    """
    found: dict[Subset, float] = {}
    for A, variance in noise.items():
        _check(sizes, A)
        for part in subsets(A):
            found[part] = found.get(part, 0.0) + _outside(sizes, A) / variance
    return Marginals(sizes, found)


def cost(M: Marginals) -> float:
    """Return the profile diag(C), the same for every cell: sum_A c_A prod_{i in A} (1 - 1/n_i) prod_{i not in A} 1/n_i.

    Guarantee: releasing M once is rho-zCDP with rho = cost / 2.

    >>> cost(released((3, 3), {(0,): 1.0}))
    1.0
    """
    return sum(c * _share(M.sizes, A) for A, c in M.information.items())


def cell_variance(M: Marginals, A: Subset) -> float:
    """Return the variance of the best answer to each cell of the marginal on A, inf if some c_A' is missing.

    sum over A' within A of prod_{i not in A} n_i prod_{i in A'} (1 - 1/n_i) prod_{i in A - A'} 1/n_i / c_A'.

    >>> cell_variance(released((3, 3), {(0,): 1.0}), ())
    3.0
    """
    _check(M.sizes, A)
    total = 0.0
    for part in subsets(A):
        weight = _weight(M.sizes, A, part)
        c = M.information.get(part, 0.0)
        if weight > 0:
            total += weight / c if c > 0 else np.inf
    return total


def answers(M: Marginals, wanted: Marginals) -> bool:
    """Return whether `wanted` is exactly answerable from M: its c_A are nowhere larger, but where P_A = 0."""
    _same(M, wanted)
    return all(
        c <= M.information.get(A, 0.0) * (1 + 1e-12) or _is_empty(M.sizes, A) for A, c in wanted.information.items()
    )


def common(one: Marginals, other: Marginals) -> Marginals:
    """Return the maximal common mechanism, the element-wise minimum."""
    _same(one, other)
    shared = {A: min(c, other.information[A]) for A, c in one.information.items() if A in other.information}
    return Marginals(one.sizes, {A: c for A, c in shared.items() if c > 0})


def join(one: Marginals, other: Marginals) -> Marginals:
    """Return the least information from which both are answerable, the element-wise maximum."""
    _same(one, other)
    keys = {**one.information, **other.information}
    return Marginals(one.sizes, {A: max(one.information.get(A, 0.0), other.information.get(A, 0.0)) for A in keys})


def residual(wanted: Marginals, known: Marginals) -> Marginals:
    """Return what must be released so that known + residual = join(known, wanted): the positive difference."""
    _same(wanted, known)
    missing = {A: c - known.information.get(A, 0.0) for A, c in wanted.information.items()}
    return Marginals(wanted.sizes, {A: c for A, c in missing.items() if c > 0})


def added(one: Marginals, other: Marginals) -> Marginals:
    """Return the information of both releases together, the sum."""
    _same(one, other)
    keys = {**one.information, **other.information}
    return Marginals(one.sizes, {A: one.information.get(A, 0.0) + other.information.get(A, 0.0) for A in keys})


def plan_total(sizes: tuple[int, ...], weights: Mapping[Subset, float], *, cost: float) -> Marginals:
    """Return the information of that cost with the least sum over marginals A of weight_A times a cell's variance.

    To weigh every cell alike, let weight_A be the number of cells. With the sum sum_A q_A / c_A and the cost
    sum_A p_A c_A, the optimum is c_A = sqrt(q_A / p_A) cost / sum_B sqrt(q_B p_B).
    """
    q: dict[Subset, float] = {}
    for A, weight in weights.items():
        _check(sizes, A)
        for part in subsets(A):
            if not _is_empty(sizes, part):
                q[part] = q.get(part, 0.0) + weight * _weight(sizes, A, part)
    p = np.array([_share(sizes, part) for part in q])
    values = np.array(list(q.values()))
    c = np.sqrt(values / p) * cost / float(np.sqrt(values * p).sum())
    return Marginals(sizes, dict(zip(q, c.tolist(), strict=True)))


def noise_variance(M: Marginals, A: Subset) -> float:
    """Return the variance of the noise on each cell of the marginal on A whose centred table tells c_A P_A."""
    _check(M.sizes, A)
    return _outside(M.sizes, A) / M.information[A]


def reconstructed(sizes: tuple[int, ...], parts: Mapping[Subset, Matrix], A: Subset) -> Matrix:
    """Return the best answer to the marginal on A from the centred tables of all its subsets, by broadcasting.

    The table of A' is spread evenly over the axes of A that it does not have.
    """
    _check(sizes, A)
    answer = np.zeros(tuple(sizes[i] for i in A))
    for part in subsets(A):
        if _is_empty(sizes, part):
            continue
        if part not in parts:
            raise ValueError(f"the part {part} of the marginal {A} was not measured")
        shape = tuple(sizes[i] if i in part else 1 for i in A)
        answer = answer + parts[part].reshape(shape) / prod(sizes[i] for i in A if i not in part)
    return answer


def combined(weighted: Iterable[tuple[float, Matrix]]) -> tuple[float, Matrix]:
    """Return the sum of the informations and the best table from several centred tables of one subset."""
    pairs = list(weighted)
    if not pairs:
        raise ValueError("at least one table is needed, got none")
    total = sum(c for c, _ in pairs)
    return total, np.asarray(sum(c * table for c, table in pairs) / total, dtype=np.float64)


@lru_cache
def _cells(sizes: tuple[int, ...]) -> int:
    return prod(sizes)


def _share(sizes: tuple[int, ...], A: Subset) -> float:
    """Return diag(P_A): prod_{i in A} (1 - 1/n_i) prod_{i not in A} 1/n_i."""
    inside: float = prod(sizes[i] - 1 for i in A)
    return float(inside / _cells(sizes))


def _is_empty(sizes: tuple[int, ...], A: Subset) -> bool:
    """Return whether P_A = 0: an axis of one cell has no vector that adds up to zero."""
    return any(sizes[i] == 1 for i in A)


def _outside(sizes: tuple[int, ...], A: Subset) -> float:
    return float(_cells(sizes) / prod(sizes[i] for i in A))


def _weight(sizes: tuple[int, ...], A: Subset, part: Subset) -> float:
    """Return w P_part w^T for a row w of the marginal on A."""
    inside = prod(sizes[i] - 1 for i in part)
    return float(_cells(sizes) * inside / prod(sizes[i] for i in A) ** 2)


def _check(sizes: tuple[int, ...], A: Subset) -> None:
    if list(A) != sorted(set(A)) or (A and not 0 <= A[0] <= A[-1] < len(sizes)):
        raise ValueError(f"a marginal is an ascending tuple of positions below {len(sizes)}, got {A}")


def _same(one: Marginals, other: Marginals) -> None:
    if one.sizes != other.sizes:
        raise ValueError(f"the attributes must have the same sizes, got {one.sizes} and {other.sizes}")
