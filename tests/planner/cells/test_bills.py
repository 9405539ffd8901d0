"""Costs cell by cell: what each one is charged, on random costs, against the definition in every cell."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from planner.cells.bills import capped, cells_of, covers, divided, lowest, mean, poured
from planner.cells.costs import PARTS, Cost, Ints

SIZES = {"a": 4, "b": 3, "c": 2}


def drawn(source: np.random.Generator, *, most: int = 2**40) -> Cost:
    """Return a cost on some of the columns, cut into some atoms."""
    scope = tuple(name for name in SIZES if source.random() < 0.6)
    partitions = tuple(source.integers(0, 2, SIZES[name]) for name in scope)
    return Cost(scope, partitions, source.integers(0, most, (2,) * len(scope)))


def everywhere(costs: Sequence[Cost]) -> Ints:
    """Return the sum of costs on every cell of the product of all columns, one by one."""
    found = np.zeros(tuple(SIZES.values()), dtype=np.int64)
    for index in np.ndindex(*found.shape):
        at = dict(zip(SIZES, index, strict=True))
        for cost in costs:
            found[index] += cost.values[tuple(p[at[n]] for n, p in zip(cost.scope, cost.partitions, strict=True))]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_what_is_poured_is_within_limits_and_covers_in_every_cell(seed: int) -> None:
    source = np.random.default_rng(seed)
    names = ["ann", "bob", "cal"][: source.integers(1, 4)]
    alone = {name: [drawn(source), drawn(source)] for name in names}
    limits = {name: costs[: source.integers(1, 3)] for name, costs in alone.items()}
    released = [cost.part(int(source.integers(0, PARTS + 1))) for costs in limits.values() for cost in costs]
    weights = {name: Fraction(int(source.integers(1, 6))) for name in names}
    found = poured(released, limits, alone, weights)
    wanted = everywhere(released)
    if (wanted > sum(everywhere(costs) for costs in limits.values())).any():  # parts are rounded up
        assert found is None
        return
    assert found is not None
    charged = {name: everywhere([found[name]]) for name in names}
    total = sum(charged.values())
    assert (total >= wanted).all()
    assert (total <= wanted + len(names)).all()
    level = {}
    for name in names:
        assert (charged[name] <= everywhere(limits[name])).all()
        level[name] = (everywhere(alone[name]) - charged[name]) / float(weights[name])
    for low in names:  # who saves less, by weight, than somebody for whom more was saved now, pays nothing
        for high in names:
            saves_more = charged[high] < everywhere(limits[high])
            assert ((level[low] >= level[high] - 2) | (charged[low] <= 4) | ~saves_more).all()


def test_more_than_all_limits_is_not_shared_out() -> None:
    one = Cost(("a",), (np.array([0, 0, 0, 1]),), np.array([5, 9]))
    assert poured([one, one], {"ann": [one]}, {"ann": [one]}, {"ann": Fraction(1)}) is None


@pytest.mark.parametrize("seed", range(10))
def test_what_limits_leave_is_charged_to_one(seed: int) -> None:
    source = np.random.default_rng(seed)
    released, limits = [drawn(source), drawn(source)], {name: [drawn(source)] for name in ("ann", "bob", "cal")}
    own = {name: [drawn(source)] for name in limits}
    parts = {"ann": PARTS // 3, "bob": PARTS // 2, "cal": PARTS // 6}
    for found in (capped(released, own, limits, rest="bob"), divided(released, parts, limits, rest="bob")):
        assert found is not None
        assert (sum(everywhere([cost]) for cost in found.values()) == everywhere(released)).all()
        for name in ("ann", "cal"):
            assert (everywhere([found[name]]) <= everywhere(limits[name])).all()


@pytest.mark.parametrize("seed", range(10))
def test_sums_and_means_and_the_least_are_those_of_all_cells(seed: int) -> None:
    source = np.random.default_rng(seed)
    costs = [drawn(source) for _ in range(3)]
    table = everywhere(costs)
    assert mean(costs) == pytest.approx(table.mean())
    labels = source.integers(0, 2, 4)
    labels[:2] = 0, 1
    found = lowest(costs, [("c", np.arange(2)), ("a", labels)])
    assert found is not None
    for c in range(2):
        for atom in range(2):
            assert found[c, atom] == table[labels == atom][:, :, c].min()
    assert covers(costs, costs[:2])
    assert covers(costs[:1], costs) == (everywhere(costs[1:]) == 0).all()


def test_too_many_cells_are_not_looked_at() -> None:
    costs = [Cost((str(i),), (np.arange(8),), np.arange(8)) for i in range(7)]
    assert cells_of(costs) is None
    assert poured(costs, {"ann": costs}, {"ann": costs}, {"ann": Fraction(1)}) is None
    assert lowest(costs, [("0", np.arange(8))]) is None
    assert cells_of([Cost((), (), np.array(2**61))] * 2) is None
