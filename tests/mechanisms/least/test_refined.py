"""Below the dearest cell nobody pays more than in the refined order's least solution, level by level."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

from mechanisms.gaussian.linear import Matrix
from mechanisms.least import minimax
from mechanisms.least.blocks import Block, Problem, part_of
from mechanisms.least.minimax import Strategy, fit, least
from mechanisms.least.refined import refined

TARGETS = [0.25, 1.0, 4.0]


def oracle(V: Matrix, c: Matrix) -> Matrix:
    """Return what cells pay in the least solution of the refined order, level by level with a semidefinite solver.

    A level minimises what the free cells pay at most; those with a multiplier bind, and get a cap.
    """
    U, size = V / np.sqrt(c)[:, None], V.shape[1]
    caps, free = np.zeros(size), set(range(size))
    while free:
        C, most = cp.Variable((size, size), symmetric=True), cp.Variable()
        told = [cp.bmat([[C, u[:, None]], [u[None, :], np.ones((1, 1))]]) >> 0 for u in U]
        below = {i: C[i, i] <= most for i in free}
        kept = [C[i, i] <= caps[i] for i in range(size) if i not in free]
        cp.Problem(cp.Minimize(most), [*told, *below.values(), *kept]).solve(
            solver="CLARABEL", tol_gap_rel=1e-6, tol_gap_abs=1e-6, tol_feas=1e-8
        )
        binds = {i for i, each in below.items() if float(each.dual_value) > 1e-3}
        caps[list(binds)] = float(most.value) * (1 + (1e-6 if len(free) == size else 1e-4))
        free -= binds
    return caps


def comes_before(found: Matrix, other: Matrix) -> bool:
    """Return whether a profile is at most 1 % above another one, cell by cell from the dearest on, until it is below it
    by more than that: then it comes before in the order, whatever follows.
    """
    for own, theirs in zip(np.sort(found)[::-1], np.sort(other)[::-1], strict=True):
        if own > theirs * 1.01:
            return False
        if own < theirs * 0.99:
            return True
    return True


def profile(V: Matrix, found: Strategy) -> Matrix:
    return np.asarray(((found.K @ V) ** 2).sum(axis=0))


def variances(V: Matrix, B: Matrix) -> Matrix:
    return np.asarray(np.diag(V @ np.linalg.pinv(B.T @ B, rcond=1e-12) @ V.T))


def dearest_only(V: Matrix, c: Matrix, monkeypatch: pytest.MonkeyPatch) -> Strategy:
    """Return the fit that ends with the dearest cell."""
    with monkeypatch.context() as patch:
        patch.setattr(minimax, "refined", lambda *_: None)
        return fit(V, c)


def bits(rng: np.random.Generator, rows: int, cells: int) -> Matrix:
    V = rng.integers(0, 2, (rows, cells)).astype(float)
    V[0] = 1.0
    return V[V.any(axis=1)]


def ranges(rng: np.random.Generator, rows: int, cells: int) -> Matrix:
    ends, at = np.sort(rng.integers(0, cells, (rows, 2)), axis=1), np.arange(cells)
    V = ((at >= ends[:, :1]) & (at <= ends[:, 1:])).astype(float)
    V[0] = 1.0
    return V


def check(V: Matrix, c: Matrix, monkeypatch: pytest.MonkeyPatch) -> tuple[Matrix, Matrix]:
    """Return what cells pay before and after, once the dearest is no dearer and all targets are met."""
    before, after = dearest_only(V, c, monkeypatch), fit(V, c)
    assert after.cost <= before.cost * (1 + 2e-6)
    assert after.cost == pytest.approx(float(profile(V, after).max()), rel=1e-9)
    assert after.bound == before.bound
    assert (variances(V, after.K @ V) <= c * (1 + 1e-7)).all()
    return profile(V, before), profile(V, after)


@pytest.mark.parametrize("kind", [bits, ranges])
@pytest.mark.parametrize("seed", range(8))
def test_every_level_is_that_of_a_semidefinite_solver(kind, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(seed)
    V = kind(rng, 6, 6)
    c = rng.choice(TARGETS, len(V))
    _, after = check(V, c, monkeypatch)
    assert comes_before(after, oracle(V, c))


def test_the_fit_that_ends_with_the_dearest_cell_would_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    late = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        V = ranges(rng, 6, 6)
        c = rng.choice(TARGETS, len(V))
        before, after = check(V, c, monkeypatch)
        late += not comes_before(before, after)
    assert late >= 3


def test_cells_that_could_pay_less_than_half_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cells are asked about closely; four more are only part of a sum of all, and of one of their own."""
    V = np.array([[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0]])
    c = np.array([0.25, 0.25, 1.0, 4.0, 4.0])
    before, after = check(V.astype(float), c, monkeypatch)
    least_profile = oracle(V.astype(float), c)
    assert comes_before(after, least_profile)
    assert after[2:].max() < 0.5 * before[2:].max()


def test_parts_apart_are_each_refined(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    left, right = ranges(rng, 5, 4), ranges(rng, 5, 4)
    V = np.block([[left, np.zeros((5, 4))], [np.zeros((5, 4)), right]])
    c = np.concatenate([rng.choice(TARGETS, 5), 9 * rng.choice(TARGETS, 5)])
    _, after = check(V, c, monkeypatch)
    for part, at in ((slice(0, 5), slice(0, 4)), (slice(5, 10), slice(4, 8))):
        alone = fit(V[part, at], c[part])
        np.testing.assert_allclose(after[at], profile(V[part, at], alone), rtol=1e-3)


def test_cells_that_are_alike_pay_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four groups of three cells: what is asked does not tell the groups 1 to 3 apart, nor the cells of a group."""
    V = np.vstack([np.eye(12), np.kron(np.eye(4), np.ones(3)), np.ones(12)])
    c = np.concatenate([[0.25] * 3, [4.0] * 9, [0.25, 1.0, 1.0, 1.0], [1.0]])
    before, after = check(V, c, monkeypatch)
    assert np.ptp(after[3:]) < 1e-2 * after[3:].max()
    assert comes_before(after, before)
    assert after.sum() < before.sum()


@pytest.mark.parametrize("cells", [16, 40])
@pytest.mark.parametrize("kind", [bits, ranges])
def test_larger_problems_come_before_what_they_were(kind, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    for seed in range(4):
        rng = np.random.default_rng(seed)
        V = kind(rng, cells // 2 if seed % 2 else cells, cells)
        before, after = check(V, rng.choice(TARGETS, len(V)), monkeypatch)
        assert comes_before(after, before)


@pytest.mark.parametrize("spread", [1e2, 1e4, 1e6])
def test_very_different_targets_and_reaches_are_met_too(spread: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts and sums, with many levels far apart: rounding may end the way down early, but never spoils it."""
    rng = np.random.default_rng(0)
    V = np.vstack([np.tril(np.ones((10, 10))), rng.uniform(0, spread, 10), np.eye(10)[:4]])
    c = np.concatenate([np.geomspace(1 / spread, spread, 10), [spread**2], np.ones(4)])
    before, after = check(V, c, monkeypatch)
    assert comes_before(after, before)


def test_fewer_steps_find_fewer_levels_and_none_finds_nothing() -> None:
    """However early it ends, what there is meets all targets, and no cell pays more than the dearest did."""
    rng = np.random.default_rng(1)
    V = ranges(rng, 12, 12)
    c = rng.choice(TARGETS, 12)
    cells, rows = np.arange(12), np.ones(12)
    problem = Problem([part_of(Block(cells, V, cells), c)], np.ones(12), rows)
    whole = least([Block(cells, V, cells)], c, sizes=np.ones(12), members=rows, gap=1e-3)
    first = np.ones(12), np.linspace(1e-6, 1.0, 12)
    assert refined(problem, first, whole.cost, work=0.0) is None
    sums = []
    for work in (3e6, 1e7, 1e9):
        found = refined(problem, first, whole.cost, work=work)
        if found is not None:
            B = problem.parts[0].spread(found.rows[0])
            assert (variances(V, B) <= c).all()
            np.testing.assert_allclose((B**2).sum(axis=0), found.profile, rtol=1e-9)
            assert found.profile.max() <= whole.cost * (1 + 1e-6)
            sums.append(found.profile.sum())
    assert len(sums) >= 2
    assert sums == sorted(sums, reverse=True)


def test_where_all_cells_bind_the_fit_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    V = np.tril(np.ones((8, 8)))
    assert (fit(V, np.ones(8)).K == dearest_only(V, np.ones(8), monkeypatch).K).all()


def test_cells_that_no_row_speaks_of_pay_nothing() -> None:
    V = np.array([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 1.0, 1.0, 0.0]])
    c, cells = np.array([0.25, 4.0, 4.0]), np.arange(4)
    plan = least([Block(np.arange(3), V, cells)], c, sizes=np.ones(4), members=np.ones(3), gap=1e-3)
    paid = (plan.rows[0] ** 2).sum(axis=0)
    assert paid[3] == pytest.approx(0.0, abs=1e-9)
    np.testing.assert_allclose(paid[:3], profile(V[:, :3], fit(V[:, :3], c)), rtol=1e-2)


def test_on_orbits_cells_pay_what_they_pay_one_by_one() -> None:
    """Twelve cells in two orbits, and all of them told apart: the same least solution."""
    V = np.vstack([np.eye(12), np.ones((1, 12))])
    c = np.concatenate([np.full(4, 0.25), np.full(8, 4.0), [1.0]])
    apart = profile(V, fit(V, c, gap=1e-4))
    rows, total = np.arange(3), np.array([[1, 0], [0, 1], [0, 0]], dtype=float)
    constant = np.vstack([total[:2] / np.sqrt([[4.0], [8.0]]), np.sqrt([[4.0, 8.0]])])
    blocks = [
        Block(rows, constant, np.arange(2)),
        Block(rows[:1], np.array([[np.sqrt(3 / 4)]]), np.arange(1), copies=3),
        Block(rows[1:2], np.array([[np.sqrt(7 / 8)]]), np.arange(1, 2), copies=7),
    ]
    sizes = np.array([4.0, 8.0])
    plan = least(blocks, np.array([0.25, 4.0, 1.0]), sizes=sizes, members=np.array([4.0, 8.0, 1.0]), gap=4e-4)
    paid = np.zeros(2)
    for block, B in zip(blocks, plan.rows, strict=True):
        paid[block.cells] += block.copies * (B**2).sum(axis=0)
    np.testing.assert_allclose(paid / sizes, [apart[:4].mean(), apart[4:].mean()], rtol=5e-3)
