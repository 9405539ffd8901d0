"""Estimates, rounded to the digits that mean something under their noise."""

from __future__ import annotations

import numpy as np

from planner.cells.workspace import Floats


def rounded(values: Floats, covariances: Floats) -> tuple[Floats, Floats]:
    """Return values (…, F) to 1e-5 of their standard deviation, and covariances (…, F, F) to nine digits.

    So an answer is the same to the digit whichever way the same history was read.

    >>> rounded(np.array([1234.56789]), np.array([[625.0000000001]]))
    (array([1234.5679]), array([[625.]]))
    """
    deviations = np.sqrt(np.einsum("...ff->...f", covariances))
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 5 - np.floor(np.log10(deviations))
        near = np.where(deviations > 0, _at_digits(values, digits), values)
        scale = _at_digits(deviations, digits + 3)
        alike = np.round(covariances / (deviations[..., :, None] * deviations[..., None, :]), 9)
    return near, np.where(covariances == 0, 0.0, alike * scale[..., :, None] * scale[..., None, :])


def _at_digits(values: Floats, digits: Floats) -> Floats:
    """Return values rounded to that many decimal places, which may be negative."""
    up, down = 10.0 ** np.maximum(digits, 0), 10.0 ** np.maximum(-digits, 0)
    found: Floats = np.rint(values * up / down) * down / up
    return found
