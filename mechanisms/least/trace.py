"""The cheapest information that meets targets, in coordinates where what is known is diagonal and all cells cost alike.

Primal: min tr(R) over R >= 0 with w (diag(D) + R)^-1 w^T <= 1 for every row w of W; D > 0.
Dual: max over U with U^T U <= 1 and lambda of 2 sum_j sqrt(lambda_j) u_j w_j^T - tr(U D U^T) - sum_j lambda_j.
At the optimum sqrt(lambda_j) = u_j w_j^T and R = (E^T E)^1/2 with E = diag(sqrt lambda) W - U D. See `residual`
for how other problems are brought into this form.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from mechanisms import interrupts
from mechanisms.gaussian.linear import Matrix
from mechanisms.tolerances import LEAST_ALONE, SQUARES, TINY, WEIGHT_FLOOR, WHITE


def alone(W: Matrix, D: Matrix) -> Matrix:
    """Return for each row w the least cost if it were the only one: gamma with w (diag(D) + gamma)^-1 w^T = 1.

    1 / (w (D + gamma)^-1 w^T) is concave in gamma, so that Newton's steps from zero rise to the solution.
    """
    gamma, lengths = np.zeros(len(W)), (W**2).sum(axis=1)
    for _ in range(20):
        shifted = D + gamma[:, None]
        variance, slope = (W**2 / shifted).sum(axis=1), ((W / shifted) ** 2).sum(axis=1)
        gamma = np.maximum(gamma + (variance - 1) * variance / slope, LEAST_ALONE * lengths)
    return gamma


def cheapest(W: Matrix, D: Matrix, *, gap: float, max_steps: int) -> tuple[Matrix, Matrix]:
    """Return X with R = X^T X that meets the targets, and the best U found; stop at a cost within `gap` of its value.

    ADMM on U = Z, U free and Z in the spectral unit ball, with lambda in closed form; step * drift tends to E. Start as
    if each row were alone: u (D + gamma) = sqrt(lambda) w with u of length one, E = gamma u. Every fourth step R is
    made to meet the targets.
    """
    gamma = alone(W, D)
    directions = W / (D + gamma[:, None])
    root = 1 / np.linalg.norm(directions, axis=1)
    directions *= root[:, None]
    step = float(gamma.mean())
    start = (1 + gamma / step)[:, None] * directions
    Z, _, _ = in_ball(start)
    drift = start - Z
    cost, X, bound, U_best = np.inf, W, -np.inf, Z
    for count in range(1, max_steps + 1):
        interrupts.check()
        U = (root[:, None] * W + step * (Z - drift)) / (D + step)
        Z_old, (Z, _, _) = Z, in_ball(U + drift)
        drift = drift + U - Z
        inner = np.maximum((W * Z).sum(axis=1), 0.0)
        value = float((inner**2).sum() - (Z**2 @ D).sum())
        if value > bound:
            bound, U_best = value, Z
        if count % 4 == 0 or count == max_steps:
            found = _meeting(W, D, _root(root[:, None] * W - U * D), directions)
            if (found**2).sum() < cost:
                cost, X = float((found**2).sum()), found
            if cost <= bound * (1 + gap):
                break
            factor = _balance(np.linalg.norm(U - Z), np.linalg.norm(Z - Z_old))
            step, drift = step * factor, drift / factor
        root = np.maximum(np.clip(inner, root * 0.3, root * 3.0), WEIGHT_FLOOR * root.max())
    return X, U_best


def _balance(primal: np.floating, dual: np.floating) -> float:
    """Return by how much to change ADMM's step, so that both residuals shrink alike."""
    if primal > 3 * dual:
        return 2.0
    return 0.5 if dual > 3 * primal else 1.0


def in_ball(U: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return the nearest matrix with singular values of at most one; the right singular vectors that had more, and
    those singular values.
    """
    if len(U) < U.shape[1]:
        squares, left = np.linalg.eigh(U @ U.T)
        roots = np.sqrt(np.maximum(squares, 0.0))
        large = roots > 1
        nearest: Matrix = (left / np.maximum(roots, 1.0)) @ (left.T @ U)
        return nearest, (U.T @ left[:, large]) / roots[large], roots[large]
    squares, right = np.linalg.eigh(U.T @ U)
    roots = np.sqrt(np.maximum(squares, 0.0))
    large = roots > 1
    nearest = ((U @ right) / np.maximum(roots, 1.0)) @ right.T
    return nearest, right[:, large], roots[large]


def _root(E: Matrix) -> Matrix:
    """Return X with X^T X = (E^T E)^1/2: X = (E E^T)^-1/4 E, but for parts that are rounding."""
    squares, vectors = np.linalg.eigh(E @ E.T)
    keep = squares > SQUARES * squares[-1]
    X: Matrix = (vectors[:, keep] / squares[keep] ** 0.25).T @ E
    return X


def _meeting(W: Matrix, D: Matrix, X: Matrix, directions: Matrix) -> Matrix:
    """Return X, with what rows of W that miss their targets lack on top, scaled to meet all targets just so.

    With C = D + X^T X, adding t u^T u lowers the variance of w by t (w C^-1 u)^2 / (1 + t u C^-1 u). Of its
    direction when alone, and of w itself, which always works, the cheaper one is added.
    """
    W_white = _whitened(W, D, X)
    variance = (W_white**2).sum(axis=1)
    short = variance > 1
    variance, missing, U = variance[short], variance[short] - 1, directions[short]
    U_white = _whitened(U, D, X)
    effect = (U_white * W_white[short]).sum(axis=1) ** 2 - missing * (U_white**2).sum(axis=1)
    more = np.sqrt(missing / variance)[:, None] * W[short]
    is_better = missing < effect * (more**2).sum(axis=1)
    more[is_better] = np.sqrt(missing[is_better] / effect[is_better])[:, None] * U[is_better]
    X = np.vstack([X, more])
    return X * float(np.sqrt(least_scale(W, D, X)))


def _whitened(rows: Matrix, D: Matrix, X: Matrix) -> Matrix:
    """Return white with white white^T = rows (diag(D) + X^T X)^-1 rows^T, up to rounding that keeps it positive."""
    C = X.T @ X
    C[np.diag_indices_from(C)] += D + WHITE * float((C.diagonal() + D).max())
    white: Matrix = solve_triangular(
        cholesky(C, lower=True, check_finite=False), rows.T, lower=True, check_finite=False
    ).T
    return white


def least_scale(W: Matrix, D: Matrix, X: Matrix, *, target: float = 1.0) -> float:
    """Return the least t such that diag(W (diag(D) + t X^T X)^-1 W^T) <= target, or 1e15 if that is less.

    For C = D + X^T X let W_white = W C^-1/2, X_white = X C^-1/2, and let `shares` and `vectors` be those of
    X_white X_white^T. The variances are |W_white|^2 - sum parts (t - 1) shares / (1 + (t - 1) shares), where
    parts = (W_white X_white^T vectors)^2 / shares.
    """
    white = _whitened(np.vstack([W, X]), D, X)
    W_white, X_white = white[: len(W)], white[len(W) :]
    shares, vectors = np.linalg.eigh(X_white @ X_white.T)
    shares = np.clip(shares, TINY, 1 - TINY)
    parts = (W_white @ (X_white.T @ vectors)) ** 2 / shares
    total = (W_white**2).sum(axis=1)

    def is_enough(t: float) -> bool:
        return bool(np.max(total - parts @ ((t - 1) * shares / (1 + (t - 1) * shares))) <= target)

    low, high = 0.0, 1.0
    while not is_enough(high) and high < 1e15:
        low, high = high, 2 * high
    for _ in range(32):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
