"""What must still be released, when some is known: the join of what is known and what is wanted.

Known is an information C_known. The join residual is the least-trace R >= 0 with C_known + R >= C_wanted. The join to
targets is less: the cheapest R such that every row of W has variance at most its target.

Primal: min sum_i price_i R_ii over R >= 0 with w_j (C_known + R)^-1 w_j^T <= c_j.
Dual: max over U, lambda of 2 sum_j sqrt(lambda_j) u_j w_j^T - tr(U C_known U^T) - sum_j lambda_j c_j, where
  U^T U <= diag(price).
  (w C^-1 w^T >= 2 u w^T - u C u^T for C = C_known + R, with equality at u = w C^-1; then minimise over R.)
With T = diag(sqrt price), C' = T C_known T, W' = W T and so on, all prices are 1; a basis in which C' is diagonal makes
it the problem of `trace`. If there are many cells, R' is sought among the forms Q^T X^T X Q with few rows Q. The best
R' has eigenvectors proportional to t_k W' (C' + s_k)^-1, s_k its eigenvalues; so Q spans W' and W' (C' + s)^-i for
i = 1, 2, ... and one s of the right size (Taylor).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from mechanisms import interrupts
from mechanisms.gaussian.known import Known
from mechanisms.gaussian.linear import Matrix, directions, row_space
from mechanisms.least.trace import alone, cheapest, least_scale
from mechanisms.tolerances import FAINT, MET, SPANNED, SPARE, TINY, UNKNOWN

_DENSE = 128
"""Up to this size R is sought among all forms; beyond, among those of a subspace."""

_MANY = 100
"""A query of more rows than this gets fewer steps."""


@dataclass(frozen=True, eq=False)
class Join:
    """New standardised rows to release, shape (r, d), which meet all targets together with what is known.

    `cost` is their price, sum_i price_i (rows^T rows)_ii; no rows that meet the targets are cheaper than `bound`. If
    target j were larger by a small part p of it, about p * multipliers[j] would be saved, shape (m,).
    """

    rows: Matrix
    cost: float
    bound: float
    multipliers: Matrix = field(default_factory=lambda: np.zeros(0))


def join_residual(known: Known, B_wanted: Matrix) -> Matrix:
    """Return rows B_new with B_new^T B_new = (C_wanted - C)_+, the positive part: the least-trace residual.

    Known plus new information is at least C_wanted. The work is done in the row space of the stacked rows.

    >>> from mechanisms.gaussian.known import nothing_known
    >>> join_residual(nothing_known(2).with_rows(np.eye(2), np.zeros(2)), np.array([[2.0, 0.0]])).round(3).tolist()
    [[1.732, 0.0]]
    """
    stack = np.vstack([B_wanted, known.rows])
    signs = np.concatenate([np.ones(len(B_wanted)), -np.ones(known.rank)])
    if len(stack) < stack.shape[1]:
        Q, lower = np.linalg.qr(stack.T)
        return np.asarray(_positive_rows((lower * signs) @ lower.T) @ Q.T, dtype=np.float64)
    return _positive_rows((stack.T * signs) @ stack)


def prices(profile: Matrix, *, strength: float = 3.0) -> Matrix:
    """Return a price for each cell that rises with what it has paid: exp(strength (profile / max - 1)), shape (d,).

    The guarantee is the dearest cell's, so that cells which have paid little should pay next.
    """
    top = float(np.max(profile, initial=0.0))
    price: Matrix = np.exp(strength * (profile / top - 1)) if top > 0 else np.ones_like(profile)
    return price


def join_to_targets(
    known: Known,
    W: Matrix,
    c: Matrix,
    *,
    weights: Matrix | None = None,
    gap: float = 0.01,
    max_steps: int = 40,
) -> Join:
    """Return the cheapest rows to release so that each row of W is known with variance at most c_j.

    Guarantee: known.with_rows(rows, y).variances(W) <= c (1 + 1e-9), as computed there. Among all R that meet the
    targets the returned one has the least price up to the factor cost / bound, 1 + gap if max_steps sufficed. Beyond
    128 cells R is sought in a subspace, and was within 1 % of the best of all there is wherever tried; then the bound
    is valid but may be far below.

    Args:
        known: what was released so far.
        W: queries, shape (m, d).
        c: largest variances, shape (m,), positive.
        weights: price of each cell's cost, shape (d,), positive; `prices` makes some. Default: all alike.
    """
    if not (c > 0).all():
        raise ValueError(f"target variances must be positive, got {np.sum(c <= 0)} that are not")
    V, variances, asked = _open(known, W, c)
    multipliers = np.zeros(len(W))
    if not len(V):
        return Join(V, 0.0, 0.0, multipliers)
    price = np.ones(known.cells) if weights is None else weights
    small = _problem(known, V, variances, price)
    steps = max_steps if len(V) <= _MANY else max(4, 20 * _MANY // len(V))
    X, U = cheapest(small.V, small.D, gap=gap, max_steps=steps)
    rows = _sufficient(known, small, X, V)
    cost = float((rows**2 @ price).sum())
    multipliers[asked] = np.maximum((small.V * U).sum(axis=1), 0.0) ** 2
    return Join(rows, cost, min(cost, _bound(known, small, U, price)), multipliers)


def _positive_rows(D: Matrix) -> Matrix:
    eigenvalues, vectors = np.linalg.eigh(D)
    keep = eigenvalues > FAINT * np.max(np.abs(eigenvalues), initial=0.0)
    rows: Matrix = np.sqrt(eigenvalues[keep])[:, None] * vectors[:, keep].T
    return rows


def _open(known: Known, W: Matrix, c: Matrix) -> tuple[Matrix, Matrix, list[int]]:
    """Return the distinct rows that are not known well enough, scaled to targets of one, their variances and places."""
    ratios = known.variances(W) / c
    wanted = np.flatnonzero((ratios > MET) & W.any(axis=1))
    by_target = wanted[np.argsort(-c[wanted], kind="stable")]
    distinct = list({W[j].tobytes(): j for j in by_target}.values())
    return W[distinct] / np.sqrt(c[distinct])[:, None], ratios[distinct], distinct


def _problem(known: Known, V: Matrix, variances: Matrix, price: Matrix) -> _Restricted:
    """Return the problem for R' = T R T = Q^T X^T X Q with orthonormal rows Q: all there are, or a few that matter.

    1 / (v' (C' + s)^-1 v'^T) is concave in s, which bounds the cost of row v alone by |v'|^2 (1 - 1 / variance); it is
    about a third of that. Where it turns out to be far less, so is s.
    """
    V_half, powers = V * np.sqrt(price), min(4, max(1, 128 // len(V)))
    if min(known.cells, known.rank + len(V)) <= max(_DENSE, powers * len(V)):
        every = (
            np.eye(known.cells) if known.basis is None else row_space(np.vstack([known.basis * np.sqrt(price), V_half]))
        )
        return _restricted(known, V, every, price)
    shift = float(((V_half**2).sum(axis=1) * (1 - 1 / variances)).mean()) / 3
    small = _restricted(known, V, _span(V_half, powers, _resolvent(known, price, shift)), price)
    typical = float(alone(small.V, small.D).mean())
    if typical > shift / 8:
        return small
    return _restricted(known, V, _span(V_half, powers, _resolvent(known, price, typical)), price)


def _span(V_half: Matrix, powers: int, resolvent: Callable[[Matrix], Matrix]) -> Matrix:
    """Return an orthonormal basis, rows, of V' and V' (C' + s)^-k for some powers k."""
    spans = [V_half]
    for _ in range(powers):
        spans.append(resolvent(spans[-1]))
    Q, extra = row_space(V_half), np.vstack(spans[1:])
    rest = extra - (extra @ Q.T) @ Q
    rest -= (rest @ Q.T) @ Q
    return np.vstack([Q, directions(rest, SPANNED * np.linalg.norm(extra, axis=1))])


def _resolvent(known: Known, price: Matrix, shift: float) -> Callable[[Matrix], Matrix]:
    """Return the function rows -> rows (C' + shift)^-1, C' = T C_known T; by Woodbury while little is known."""
    if known.C is None:
        B = known.rows * np.sqrt(price)
        inner = cho_factor(B @ B.T + shift * np.eye(len(B)), overwrite_a=True, check_finite=False)
        return lambda rows: (rows - cho_solve(inner, B @ rows.T, check_finite=False).T @ B) / shift
    dense = known.C.copy()
    dense[np.diag_indices_from(dense)] += shift / price
    outer, root = cho_factor(dense, overwrite_a=True, check_finite=False), np.sqrt(price)
    return lambda rows: cho_solve(outer, (rows / root).T, check_finite=False).T / root


@dataclass(frozen=True, eq=False)
class _Restricted:
    """The problem for R = basis^T X^T X basis, where basis diag(price) basis^T = 1; diag(D) is known, V is V on it."""

    basis: Matrix
    D: Matrix
    V: Matrix


def _restricted(known: Known, V: Matrix, Q: Matrix, price: Matrix) -> _Restricted:
    """Return the problem in the span of Q, which contains V'.

    With R = Q^T X^T X Q, V (C_known + R)^-1 V^T depends on C_known by Q C_known^-1 Q^T only (Schur). Where that is
    infinite nothing is known; such directions count as faintly known, so that D can be divided by.
    """
    rows = Q / np.sqrt(price)
    roots, outside = known.roots(rows)
    squares, vectors = np.linalg.eigh(outside @ outside.T)
    is_known = squares <= FAINT * float((rows**2).sum(axis=1).max())
    inner = vectors[:, is_known].T @ roots
    precision, turn = np.linalg.eigh(inner @ inner.T)
    Q = np.vstack([turn.T @ vectors[:, is_known].T, vectors[:, ~is_known].T]) @ Q
    V = (V * np.sqrt(price)) @ Q.T
    unknown, lengths = (V[:, len(precision) :] ** 2).sum(axis=1), (V**2).sum(axis=1)
    faint = UNKNOWN * float(np.where(unknown > FAINT * lengths, unknown, lengths).min())
    D = np.full(len(Q), faint)
    D[: len(precision)] = 1 / np.maximum(precision, TINY * np.max(precision, initial=0.0))
    return _Restricted(Q / np.sqrt(price), np.maximum(D, FAINT * D.max()), V)


def _sufficient(known: Known, small: _Restricted, X: Matrix, V: Matrix) -> Matrix:
    """Return the rows X on the domain, with a length at which the variances of V, as computed from them, are <= 1.

    The problem was solved with rounding, so aim a little lower, and lower still by as much as that falls short. The
    rows V themselves are the last resort.
    """
    aim = 1 - SPARE
    while aim > 0.1:
        interrupts.check()
        rows: Matrix = np.sqrt(least_scale(small.V, small.D, X, target=aim)) * X @ small.basis
        worst = _worst(known, rows, V)
        if worst <= 1:
            return rows
        aim *= (1 - SPARE) / min(worst, 2.0)
    if _worst(known, V * (1 + SPARE), V) <= 1:
        return V * (1 + SPARE)
    raise ValueError("the targets can't be met: they are too far below what rounding allows")


def _worst(known: Known, rows: Matrix, V: Matrix) -> float:
    return float(known.with_rows(rows, np.zeros(len(rows))).variances(V).max())


def _bound(known: Known, small: _Restricted, Z: Matrix, price: Matrix) -> float:
    """Return the value of the dual at U = Z basis diag(price): no rows that meet the targets are cheaper."""
    U = (Z @ small.basis) * price
    inside = U if known.basis is None else U @ known.basis.T
    inner = np.maximum((small.V * Z).sum(axis=1), 0.0)
    return max(0.0, float((inner**2).sum() - ((inside @ known.factor.T) ** 2).sum()))
