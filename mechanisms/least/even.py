"""The rows that must still be released for some targets, spread so that the dearest cell pays least.

If nothing is known the fixed point of `fitness` solves the problem. If something is, what its solution has
beyond that is one candidate, and `orbits` finds another, with a bound.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mechanisms.gaussian.known import Known, nothing_known
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.blocks import Block
from mechanisms.least.fitness import fit
from mechanisms.least.orbits import least
from mechanisms.least.residual import Join, join_residual

_LARGE = 512
"""With more cells than this only what the fresh solution lacks is released, and no bound is known."""

_MET = 1 + 1e-9

_SPARE = 1e-6
"""By how much of the target new rows do better than asked, for rounding."""


def even_join(known: Known, W: Matrix, c: Matrix, *, gap: float = 0.01, max_steps: int = 300) -> Join:
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
    if not _meets(known, beyond, W, c):
        beyond = fresh.K @ W
    cost = float((beyond**2).sum(axis=0).max(initial=0.0))
    if known.cells > _LARGE:
        return Join(beyond, cost, 0.0, fresh.prices * cost)
    block = Block(np.arange(len(W)), W, np.arange(known.cells), known=known.rows)
    spare = 1 - _SPARE
    plan = least([block], c * spare, sizes=np.ones(known.cells), members=np.ones(len(W)), gap=gap, max_steps=max_steps)
    bound = plan.bound_at(1 / spare)
    if plan.cost <= cost and _meets(known, plan.rows[0], W, c):
        return Join(plan.rows[0], plan.cost, min(bound, plan.cost), plan.multipliers)
    return Join(beyond, cost, min(bound, cost), fresh.prices * cost)


def _meets(known: Known, rows: Matrix, W: Matrix, c: Matrix) -> bool:
    return bool((known.with_rows(rows, np.zeros(len(rows))).variances(W) <= c * _MET).all())
