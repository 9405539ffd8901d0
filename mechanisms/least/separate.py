"""What must still be released of very many small problems that share no cell, all at once.

Each problem has n numbers, of which C_g is known and of which a release of information C, the same for all, would tell
enough. Then the positive part of C - C_g is enough as well: C_g + (C - C_g)_+ >= C. For one number that is the least.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mechanisms.gaussian.linear import Matrix

_CLEAR = 1e6
"""What is known better than this, in units of what is wanted, is taken to be known just so well."""

_UNKNOWN = 1e12
"""The variance, in units of what is wanted, that stands for knowing nothing."""

_LITTLE = 1e-7
"""What is missing by less than this part of what is wanted is rounding."""


def filled(covariances: Matrix, missing: NDArray[np.bool_]) -> Matrix:
    """Return covariances (G, n, n) with a variance beyond all that is wanted where a number is missing, (G, n)."""
    found: Matrix = np.where(missing[:, :, None] | missing[:, None, :], 0.0, covariances)
    places = np.arange(found.shape[1])
    found[:, places, places] += _UNKNOWN * missing
    return found


def information(covariances: Matrix) -> Matrix:
    """Return what is known, as information (G, n, n), of numbers with these covariances and wanted variances near 1.

    Guarantee: at most what the covariances say.
    """
    values, vectors = np.linalg.eigh(covariances)
    return _formed(1 / np.maximum(values, 1 / _CLEAR), vectors)


def beyond(wanted: Matrix, known: Matrix) -> Matrix:
    """Return rows X_g (G, n, n) with known_g + X_g^T X_g >= wanted (n, n), as few as can be that are not zero.

    >>> beyond(np.array([[4.0]]), np.array([[[3.0]], [[9.0]]])).ravel().tolist()
    [1.0, 0.0]
    """
    values, vectors = np.linalg.eigh(wanted - known)
    least = _LITTLE * np.abs(np.linalg.eigvalsh(wanted)).max(initial=0.0)
    roots = np.sqrt(np.where(values > least, values, 0.0))
    rows: Matrix = roots[:, :, None] * vectors.transpose(0, 2, 1)
    return rows


def fused(one: tuple[Matrix, Matrix], other: tuple[Matrix, Matrix]) -> tuple[Matrix, Matrix]:
    """Return the best answers (G, n) from two independent ones, and their covariances (G, n, n); nan stands for none.

    >>> values, covariances = fused((np.array([[1.0]]), np.array([[[2.0]]])), (np.array([[3.0]]), np.array([[[2.0]]])))
    >>> values.round(9).tolist(), covariances.round(9).tolist()
    ([[2.0]], [[[1.0]]])
    """
    least = np.fmin(*(np.einsum("gff->gf", covariances) for _, covariances in (one, other)))
    scale = np.sqrt(np.where(least > 0, least, 1.0))
    outer, known, told = scale[:, :, None] * scale[:, None, :], np.zeros_like(one[1]), np.zeros_like(one[0])
    for values, covariances in (one, other):
        part = information(filled(np.nan_to_num(covariances) / outer, np.isnan(values)))
        known, told = known + part, told + np.einsum("gij,gj->gi", part, np.nan_to_num(values) / scale)
    squares, vectors = np.linalg.eigh(known)
    inverse = _formed(1 / np.maximum(squares, 1 / _UNKNOWN), vectors)
    missing = np.isnan(one[0]) & np.isnan(other[0])
    found = np.where(missing, np.nan, np.einsum("gij,gj->gi", inverse, told) * scale)
    return found, np.where(missing[:, :, None] | missing[:, None, :], np.nan, inverse * outer)


def variances(known: Matrix, of: Matrix) -> Matrix:
    """Return the variances (G, m) of the numbers `of` (m, n) under what is known, (G, n, n)."""
    values, vectors = np.linalg.eigh(known)
    found: Matrix = np.einsum("mi,gij,mj->gm", of, _formed(1 / np.maximum(values, 1 / _UNKNOWN), vectors), of)
    return found


def _formed(values: Matrix, vectors: Matrix) -> Matrix:
    found: Matrix = np.einsum("gij,gj,gkj->gik", vectors, values, vectors)
    return found
