"""The output of a mechanism made from those of the common and the residual one (arXiv 2212.00135, Algorithm 4).

The product does not need it: it keeps both releases, and answers from all that is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mechanisms.gaussian.linear import EIGENVALUE_CUT, Matrix, Mechanism, whitened


@dataclass(frozen=True, eq=False)
class Recreation:
    """A_common omega_common + A_residual omega_residual is equivalent to M; adding N(0, Sigma_extra) makes it M."""

    A_common: Matrix
    A_residual: Matrix
    Sigma_extra: Matrix


def recreation(M: Mechanism, M_common: Mechanism, M_residual: Mechanism) -> Recreation:
    """Return the matrices that make M from the outputs of its two parts (Theorem 5.5).

    With Sigma = L L^T: A = L (B^T L^-T)^+ B_part^T Sigma_part^-1 for each part; any root L gives the same.
    """
    pseudo = np.linalg.pinv(whitened(M).T, rcond=np.sqrt(EIGENVALUE_CUT))
    left = np.linalg.cholesky(M.Sigma) @ pseudo
    A_common = left @ np.linalg.solve(M_common.Sigma, M_common.B).T
    A_residual = left @ np.linalg.solve(M_residual.Sigma, M_residual.B).T
    used = A_common @ M_common.Sigma @ A_common.T + A_residual @ M_residual.Sigma @ A_residual.T
    return Recreation(A_common, A_residual, M.Sigma - used)


def recreate(omega_common: Matrix, omega_residual: Matrix, *, parts: Recreation) -> Matrix:
    """Return the output of the mechanism, from those of the common and the residual mechanism (Algorithm 4)."""
    answer: Matrix = parts.A_common @ omega_common + parts.A_residual @ omega_residual
    return answer
