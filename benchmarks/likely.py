"""The join to targets where directions that later queries are likely to need are cheaper: tried, and not used.

The product's join prices cells by what they have paid (`mechanisms.least.residual.prices`). A prior has the metric
M = diag(sqrt price) N diag(sqrt price) with N = G^-power, G the mean of w^T w over likely queries w. On coordinates in
which M is one it is the same problem, and so it needs no solver of its own.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from mechanisms.gaussian.known import Known, nothing_known
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.residual import Join, join_to_targets

POWER = 0.15
FAINT = 1e-8


def likely_queries(ordered: list[bool], sizes: list[int]) -> list[Matrix]:
    """Return for each axis the mean of w^T w over a group (a cell), no filter (all cells) and, if ordered, a range.

    A query groups by, filters or ignores an axis; its row is the Kronecker product of one row for each axis.
    """
    return [_axis_gram(size, is_ordered) for is_ordered, size in zip(ordered, sizes, strict=True)]


def prior(grams: list[Matrix], *, power: float = POWER) -> tuple[Matrix, Matrix]:
    """Return N^1/2 and N^-1/2 for queries whose rows are Kronecker products, one mean w^T w for each axis."""
    spectra = [np.linalg.eigh(G / np.trace(G) * len(G)) for G in grams]

    def whole(exponent: float) -> Matrix:
        factors = [(Q * np.maximum(values, FAINT) ** exponent) @ Q.T for values, Q in spectra]
        return np.asarray(reduce(np.kron, factors))

    return whole(-power / 2), whole(power / 2)


def join_to_likely(known: Known, W: Matrix, c: Matrix, *, weights: Matrix, likely: tuple[Matrix, Matrix]) -> Join:
    """Return the join to targets with the prior: solved on rows @ T, T = diag(sqrt weights) N^1/2."""
    root, unroot = likely
    T, T_back = np.sqrt(weights)[:, None] * root, unroot / np.sqrt(weights)
    inside = nothing_known(known.cells).with_rows(known.rows @ T, known.outcome)
    found = join_to_targets(inside, W @ T, c)
    return Join(found.rows @ T_back, found.cost, found.bound, found.multipliers)


def _axis_gram(size: int, is_ordered: bool) -> Matrix:
    cells = np.arange(size)
    alike = np.eye(size) + 1.0
    if not is_ordered:
        return alike / 2
    ranges = (np.minimum.outer(cells, cells) + 1.0) * (size - np.maximum.outer(cells, cells))
    gram: Matrix = (alike + ranges * 2 / (size * (size + 1))) / 3
    return gram
