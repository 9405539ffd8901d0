"""Costs cell by cell, added up and compared on common cells, and shared out among analysts.

An account stands at its dearest cell of all that it was ever charged, so what it is charged is a function on cells, not
a number. Here such functions are added, compared and shared out, in whole units: nothing is lost by rounding.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from planner.basics.limits import MAX_COST_TABLE
from planner.cells.costs import Cost, Ints, simplified

Floats = NDArray[np.float64]
Costs = Sequence[Cost]
"""A function on cells: the sum of these."""

_SAFE = 2**62
"""Sums that stay below it can't overflow an int64."""


@dataclass(frozen=True, eq=False)
class Cells:
    """The product of the atoms of some columns: `labels` of every value of a domain, `first` a value in every atom."""

    labels: Mapping[str, Ints]
    first: Mapping[str, Ints]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(first) for first in self.first.values())

    def values(self, costs: Costs) -> Ints:
        """Return the sum of the costs on every cell."""
        columns, found = list(self.labels), np.zeros(self.shape, dtype=np.int64)
        for cost in costs:
            order = sorted(range(len(cost.scope)), key=lambda i: columns.index(cost.scope[i]))
            atoms = [cost.partitions[i][self.first[cost.scope[i]]] for i in order]
            table = cost.values.transpose(order)[np.ix_(*atoms)] if order else cost.values
            found += table.reshape([len(self.first[name]) if name in cost.scope else 1 for name in columns])
        return found

    def cost(self, values: Ints) -> Cost:
        return simplified(Cost(tuple(self.labels), tuple(self.labels.values()), values))


def cells_of(costs: Costs, *, limit: int = MAX_COST_TABLE) -> Cells | None:
    """Return the coarsest cells on which all costs are constant; None if they are too many, or the sum too large."""
    labels: dict[str, Ints] = {}
    for cost in costs:
        for name, partition in zip(cost.scope, cost.partitions, strict=True):
            known = labels.get(name, np.zeros_like(partition))
            labels[name] = np.unique(known * (int(partition.max()) + 1) + partition, return_inverse=True)[1]
    first = {name: np.unique(each, return_index=True)[1] for name, each in labels.items()}
    if math.prod(map(len, first.values())) > limit or sum(cost.highest for cost in costs) >= _SAFE:
        return None
    return Cells(labels, first)


def lowest(costs: Costs, axes: Sequence[tuple[str, Ints]]) -> Floats | None:
    """Return the least that the costs add up to on each cell of a product of axes; None if that is too large.

    Args:
        axes: the name of a column with an atom for every value of its domain; what the costs tell apart besides is
            looked through for the least.
    """
    cuts = [Cost((name,), (labels,), np.zeros(int(labels.max()) + 1, dtype=np.int64)) for name, labels in axes]
    cells = cells_of([*costs, *cuts])
    if cells is None:
        return None
    names, table = list(cells.labels), cells.values(costs)
    for name, labels in axes:
        whole = np.moveaxis(table, names.index(name), 0)
        found = np.full((int(labels.max()) + 1, *whole.shape[1:]), _SAFE)
        np.minimum.at(found, labels[cells.first[name]], whole)
        table = np.moveaxis(found, 0, names.index(name))
    table = table.transpose(
        *(names.index(name) for name, _ in axes), *(names.index(n) for n in names if n not in dict(axes))
    )
    return np.asarray(table.reshape(*table.shape[: len(axes)], -1).min(axis=-1), dtype=np.float64)


def poured(
    released: Costs, limits: Mapping[str, Costs], alone: Mapping[str, Costs], weights: Mapping[str, Fraction]
) -> dict[str, Cost] | None:
    """Return what each one is charged: what they would be alone, less their part of what all save.

    In every cell savings are poured out like water into vessels as wide as the weights, as deep as the prices alone.
    What somebody is charged less than alone by their limit is in their vessel already.

    Guarantee: in every cell nobody is charged more than their limit, and all together at least what is released, to the
    unit. None if some cell is released for more than all limits, or if there are too many cells.
    """
    cells = cells_of([*released, *(cost for each in (limits, alone) for costs in each.values() for cost in costs)])
    if cells is None:
        return None
    most = np.array([cells.values(costs) for costs in limits.values()])
    deep = np.maximum(np.array([cells.values(alone[name]) for name in limits]), most)
    rest = most.sum(axis=0) - cells.values(released)
    if (rest < 0).any():
        return None
    saved, charged = _filled(deep, deep - most, rest, [float(weights[name]) for name in limits]), {}
    for name, limit, more in zip(limits, most, saved, strict=True):
        more = np.clip(more, 0, np.minimum(limit, rest))
        rest -= more
        charged[name] = cells.cost(limit - more)
    return charged


def _filled(deep: Ints, floors: Ints, rest: Ints, widths: Sequence[float]) -> Ints:
    """Return how much of the rest each vessel takes beyond what is in it, in every cell, up to rounding.

    At a level l there is width times l in a vessel, but at least its floor, at most its depth. The level at which
    all is poured out is found by bisection.
    """
    wide = np.array(widths).reshape(-1, *[1] * rest.ndim)
    low, high = np.zeros(rest.shape), (deep / wide).max(axis=0)
    for _ in range(64):
        level = (low + high) / 2
        taken = (np.clip(wide * level, floors, deep) - floors).sum(axis=0)
        low, high = np.where(taken <= rest, level, low), np.where(taken <= rest, high, level)
    return np.asarray(np.rint(np.clip(wide * high, floors, deep) - floors), dtype=np.int64)


def divided(
    released: Costs, parts: Mapping[str, int], limits: Mapping[str, Costs], *, rest: str
) -> dict[str, Cost] | None:
    """Return what each one is charged: so many 2^-20ths of what is released, never more than their limit in any cell.

    Whoever is named `rest` is charged what that leaves, so that all together are charged just what is released. None if
    there are too many cells.
    """
    own = {name: [cost.part(part) for cost in released] for name, part in parts.items() if part}
    return capped(released, own, limits, rest=rest)


def capped(
    released: Costs, own: Mapping[str, Costs], limits: Mapping[str, Costs], *, rest: str
) -> dict[str, Cost] | None:
    """Return what each one is charged: their own, never more than their limit, and never more than is left.

    Whoever is named `rest` is charged what that leaves. None if there are too many cells.
    """
    cells = cells_of([*released, *(cost for each in (own, limits) for costs in each.values() for cost in costs)])
    if cells is None:
        return None
    left, charged = cells.values(released), dict[str, Cost]()
    for name, costs in own.items():
        if name != rest:
            values = np.minimum(np.minimum(cells.values(costs), cells.values(limits[name])), left)
            charged[name], left = cells.cost(values), left - values
    return {**charged, rest: cells.cost(left)}


def mean(costs: Costs) -> float:
    """Return what the costs add up to in the mean over all cells of the domains, in units."""
    total = 0.0
    for cost in costs:
        values = cost.values.astype(float)
        for partition in cost.partitions:
            counts = np.bincount(partition, minlength=len(values))
            values = np.tensordot(counts / len(partition), values, axes=1)
        total += float(values)
    return total


def covers(charged: Costs, released: Costs) -> bool:
    """Return whether no cell is released for more than is charged; True also if there are too many cells to look."""
    cells = cells_of([*charged, *released])
    return cells is None or bool((cells.values(charged) >= cells.values(released)).all())
