"""The rows that must still be released for some targets, spread so that the dearest cell pays least.

If nothing is known the fixed point of `mechanisms.fitness` solves the problem. If something is, what its solution has
beyond that is one candidate, and `mechanisms.join.join_to_least_cost` finds another, with a bound.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mechanisms.fitness import fit
from mechanisms.join import Join, join_residual, join_to_least_cost
from mechanisms.known import Known, nothing_known
from mechanisms.linear import Matrix

_FEW = 128
"""Up to so many rows the weights of cells are adjusted; beyond, each round would take seconds."""

_LARGE = 512
"""With more than so many directions known, the weights of cells are not adjusted, either."""

_MET = 1 + 1e-9


def even_join(known: Known, W: Matrix, c: Matrix, *, gap: float = 0.01, max_rounds: int = 12) -> Join:
    """Return rows with which each row of W is known with variance at most c_j, and that charge the dearest cell least.

    `cost` is max_i R_ii of the rows, and no rows that meet the targets have less than `bound`; multipliers tell what
    a larger target would save of the cost. Cells that nothing tells apart are one cell to the solver.

    Guarantee: known.with_rows(rows, y).variances(W) <= c (1 + 1e-9), as computed there.
    """
    is_open = (known.variances(W) > c * _MET) & W.any(axis=1)
    multipliers = np.zeros(len(W))
    if not is_open.any():
        return Join(W[:0], 0.0, 0.0, multipliers)
    stack = np.vstack([W[is_open], known.rows])
    _, first, kind = np.unique(stack, axis=1, return_index=True, return_inverse=True)
    small = nothing_known(len(first)).with_rows(known.rows[:, first], known.outcome)
    found = _solved(small, W[is_open][:, first], c[is_open], gap, max_rounds)
    multipliers[is_open] = found.multipliers
    return replace(found, rows=found.rows[:, kind.ravel()], multipliers=multipliers)


def _solved(known: Known, W: Matrix, c: Matrix, gap: float, max_rounds: int) -> Join:
    fresh = fit(W, c * (1 - 1e-9), gap=gap)
    if not known.rank:
        return Join(fresh.K @ W, fresh.cost, min(fresh.bound, fresh.cost), fresh.prices * fresh.cost)
    beyond = join_residual(known, fresh.K @ W)
    if not (known.with_rows(beyond, np.zeros(len(beyond))).variances(W) <= c * _MET).all():
        beyond = fresh.K @ W
    cost = float((beyond**2).sum(axis=0).max(initial=0.0))
    if len(W) > _FEW or known.rank > _LARGE:
        return Join(beyond, cost, 0.0, fresh.prices * cost)
    found = join_to_least_cost(known, W, c, gap=gap, max_rounds=max_rounds)
    if found.cost <= cost:
        return found
    return Join(beyond, cost, min(found.bound, cost), fresh.prices * cost)
