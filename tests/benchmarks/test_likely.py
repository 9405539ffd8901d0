from __future__ import annotations

import numpy as np

from benchmarks.likely import join_to_likely, likely_queries, prior
from mechanisms.gaussian.known import nothing_known
from mechanisms.least.residual import prices


def test_a_prior_has_inverse_factors_and_favours_likely_directions() -> None:
    root, unroot = prior(likely_queries([True, False], [4, 3]))
    np.testing.assert_allclose(root @ unroot, np.eye(12), atol=1e-10)
    N = root @ root
    total, zigzag = np.ones(12), np.tile([1.0, -1.0], 6)
    assert total @ N @ total < zigzag @ N @ zigzag


def test_a_join_with_a_prior_meets_its_targets_and_costs_what_its_metric_says() -> None:
    rng = np.random.default_rng(3)
    known = nothing_known(12).with_rows(rng.integers(0, 2, (5, 12)).astype(float), np.zeros(5))
    W, weights, likely = np.eye(12)[:4], prices(known.profile), prior(likely_queries([True, False], [4, 3]))
    found = join_to_likely(known, W, np.full(4, 0.5), weights=weights, likely=likely)
    assert (known.with_rows(found.rows, np.zeros(len(found.rows))).variances(W) <= 0.5 * (1 + 1e-6)).all()
    T = np.sqrt(weights)[:, None] * likely[0]
    np.testing.assert_allclose(((found.rows @ T) ** 2).sum(), found.cost, rtol=1e-9)
    assert found.bound <= found.cost <= found.bound * 1.02
