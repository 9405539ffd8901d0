from __future__ import annotations

import numpy as np
from hypothesis import given

from benchmarks.papers.recreate import recreate, recreation
from mechanisms.gaussian.common import common, residual
from mechanisms.gaussian.linear import Mechanism, independent
from tests.mechanisms.matrices import families


def test_the_matrices_of_example_3_12_are_those_printed() -> None:
    first = independent(np.kron(np.eye(3), np.ones((1, 3))), 1.0)
    B = np.array([[0, 0, 0, 1, 1, 1, -1, -1, -1], [-1, -1, -1, 1, 1, 1, 0, 0, 0]], dtype=float)
    published = Mechanism(B, np.array([[2.0, 1.0], [1.0, 2.0]]))
    parts = recreation(first, independent(np.ones((1, 9)), 3.0), published)
    np.testing.assert_allclose(parts.A_residual, np.array([[1, -2], [1, 1], [-2, 1]]) / 3, atol=1e-12)
    np.testing.assert_allclose(parts.A_common, np.full((3, 1), 1 / 3), atol=1e-12)
    np.testing.assert_allclose(parts.Sigma_extra, 0, atol=1e-12)


@given(families(count=2))
def test_recreated_output_has_the_distribution_of_the_mechanism(family: list[Mechanism]) -> None:
    """Theorem 5.5: A_common B_common + A_residual B_residual = B, and the noise falls short of Sigma by Sigma_extra."""
    shared = common(*family)
    for M in family:
        rest = residual(M, shared)
        parts = recreation(M, shared, rest)
        mean = parts.A_common @ shared.B + parts.A_residual @ rest.B
        np.testing.assert_allclose(mean, M.B, atol=1e-6)
        covariance = (
            parts.A_common @ shared.Sigma @ parts.A_common.T + parts.A_residual @ rest.Sigma @ parts.A_residual.T
        )
        np.testing.assert_allclose(covariance + parts.Sigma_extra, M.Sigma, atol=1e-9)
        assert np.linalg.eigvalsh(parts.Sigma_extra).min() > -1e-6
        np.testing.assert_allclose(
            recreate(np.ones(len(shared.B)), np.zeros(len(rest.B)), parts=parts), parts.A_common.sum(axis=1)
        )
