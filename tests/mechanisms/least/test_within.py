"""Plans within what every cell may pay: less in every direction, no variance larger, and groups are looked at apart."""

from __future__ import annotations

import numpy as np
import pytest

from mechanisms.gaussian.linear import Matrix
from mechanisms.least.blocks import Block
from mechanisms.least.within import least_within, trimmed

CELLS = 6


def asked(source: np.random.Generator, count: int) -> Matrix:
    """Return rows of zeros and ones, none of them zero."""
    V = (source.random((count, CELLS)) < 0.4).astype(float)
    V[np.arange(count), source.integers(0, CELLS, count)] = 1.0
    return V


def variances(V: Matrix, *rows: Matrix) -> Matrix:
    B = np.vstack(rows)
    return np.asarray(((V @ np.linalg.pinv(B)) ** 2).sum(axis=1))


def least_eigenvalue(more: Matrix, less: Matrix) -> float:
    return float(np.linalg.eigvalsh(more.T @ more - less.T @ less)[0])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("is_known", [False, True])
def test_what_is_taken_away_changes_no_variance_beyond_its_target(seed: int, is_known: bool) -> None:
    source = np.random.default_rng(seed)
    V, c = asked(source, 5), source.choice([0.25, 1.0, 4.0], 5)
    rows = np.vstack([V / np.sqrt(c)[:, None], asked(source, 2)])  # everything by itself, and more
    known = source.random((2, CELLS)) if is_known else None
    [less] = trimmed([Block(np.arange(5), V, np.arange(CELLS), known=known)], [rows], c)
    before = variances(V, rows) if known is None else variances(V, rows, known)
    after = variances(V, less) if known is None else variances(V, less, known)
    assert (after <= np.maximum(c, before) * (1 + 1e-8)).all()
    assert least_eigenvalue(rows, less) >= -1e-9 * float((rows**2).sum())
    assert (less**2).sum() < (rows**2).sum()
    [again] = trimmed([Block(np.arange(5), V, np.arange(CELLS), known=known)], [less], c)
    assert (again**2).sum() >= 0.97 * (less**2).sum()  # hardly anything was left to be taken away


@pytest.mark.parametrize("seed", range(12))
def test_within_limits_every_target_is_met_and_no_cell_pays_more(seed: int) -> None:
    """Two analysts: what both measure alone, stacked, is the limit, and never too little."""
    source = np.random.default_rng(seed)
    V, c = asked(source, 6), source.choice([0.25, 1.0, 4.0], 6)
    stacked = V / np.sqrt(c)[:, None]
    limits = (stacked**2).sum(axis=0)
    sizes = np.where(limits > 0, limits, 1.0)
    block = Block(np.arange(6), V, np.arange(CELLS))
    plan = least_within([block], c, sizes=sizes, members=np.ones(6), instead=[stacked], gap=0.005)
    assert ((plan.rows[0] ** 2).sum(axis=0) <= limits * (1 + 1e-12)).all()
    assert (variances(V, plan.rows[0]) <= c * (1 + 1e-9)).all()


def test_where_nothing_can_be_saved_others_save_all_the_same() -> None:
    """Cells 0 and 1 are asked about by one analyst, cell 1 by another too: cell 0 can't be cheaper, cell 1 can."""
    V, c = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([1.0, 1.0, 0.25])
    stacked = V / np.sqrt(c)[:, None]
    block = Block(np.arange(3), V, np.arange(2))
    limits = (stacked**2).sum(axis=0)
    plan = least_within([block], c, sizes=limits, members=np.ones(3), instead=[stacked])
    assert (plan.rows[0] ** 2).sum(axis=0) == pytest.approx([1.0, 4.0], rel=1e-6)
    assert limits == pytest.approx([1.0, 5.0])
