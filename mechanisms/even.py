"""The rows that must still be released for some targets, spread so that the dearest cell pays least.

The least possible maximum over cells is max over prices mu on the simplex of the least sum_i mu_i R_ii (minimax): the
join to targets at any prices tells a lower bound, and its own dearest cell an upper one. Prices rise where cells pay
most. If nothing is known the fixed point of `mechanisms.fitness` solves the same problem much faster; if something
is, what its solution has beyond that is a candidate as well.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mechanisms.fitness import fit
from mechanisms.join import Join, join_residual, join_to_targets
from mechanisms.known import Known, nothing_known
from mechanisms.linear import Matrix

_LEAST_PRICE = 1e-6
"""No cell is cheaper than this part of the dearest price: a row could otherwise burden it without end."""

_FEW = 128
"""Up to so many rows prices are adjusted; beyond, each step would take seconds."""

_MET = 1 + 1e-9


def even_join(known: Known, W: Matrix, c: Matrix, *, gap: float = 0.01, max_steps: int = 16) -> Join:
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
    found = _solved(small, W[is_open][:, first], c[is_open], gap, max_steps)
    multipliers[is_open] = found.multipliers
    return replace(found, rows=found.rows[:, kind.ravel()], multipliers=multipliers)


def _solved(known: Known, W: Matrix, c: Matrix, gap: float, max_steps: int) -> Join:
    fresh = fit(W, c * (1 - 1e-9), gap=gap)
    if not known.rank:
        return Join(fresh.K @ W, fresh.cost, min(fresh.bound, fresh.cost), fresh.prices * fresh.cost)
    beyond = join_residual(known, fresh.K @ W)
    start = Join(beyond, _dearest(beyond), 0.0, fresh.prices * _dearest(beyond))
    if not (known.with_rows(beyond, np.zeros(len(beyond))).variances(W) <= c * _MET).all():
        start = Join(fresh.K @ W, fresh.cost, 0.0, fresh.prices * fresh.cost)
    return _spread(known, W, c, gap, max_steps if len(W) <= _FEW else 1, start)


def _spread(known: Known, W: Matrix, c: Matrix, gap: float, max_steps: int, best: Join) -> Join:
    """Return the best rows found while the prices of cells follow what they pay, and the best bound."""
    price = np.full(known.cells, 1 / known.cells)
    for _ in range(max_steps):
        found = join_to_targets(known, W, c, weights=price, gap=gap / 2)
        profile = (found.rows**2).sum(axis=0)
        bound, cost = max(best.bound, found.bound), _dearest(found.rows)
        best = replace(found if cost < best.cost else best, cost=min(cost, best.cost), bound=bound)
        if best.cost <= best.bound * (1 + gap) or not cost:
            break
        price = price * np.maximum(profile / cost, 1e-3) ** 0.75
        price = np.maximum(price / price.max(), _LEAST_PRICE)
        price /= price.sum()
    return replace(best, bound=min(best.bound, best.cost))


def _dearest(rows: Matrix) -> float:
    return float((rows**2).sum(axis=0).max(initial=0.0))
