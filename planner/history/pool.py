"""Pools: releases of one form added up, so that ten thousand of them weigh no more than the questions they answered.

Two releases have one form if they speak of the same cells, cut into the same groups and patterns: then they differ in
their rows on patterns, their noise, and what they told. Their rows in one stack are one release that tells the same,
and where there are more rows than directions, as many rows as directions tell it all: R x + noise gave y, R = U D V^T,
so D V^T x + noise gave U^T y, and what is left of y is noise alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mechanisms.least.marginals import Subset
from planner.cells.workspace import Floats
from planner.history import marginals
from planner.history.chart import Brought, Evidence
from planner.history.marginals import MarginalEvidence

ROUNDING, CLEAR = 1e-12, 1e-5
"""Singular values below the first, relative to the largest, are rounding; those above the second are surely not."""

Key = tuple[object, ...]


@dataclass(frozen=True, eq=False)
class Pool:
    """Evidence of one form, in the order of release; all in one but for single ones."""

    members: tuple[Brought, ...]

    @cached_property
    def ids(self) -> frozenset[int]:
        return frozenset(member.id for member in self.members)

    @property
    def form(self) -> Brought:
        """Return any of the members, for what they have in common."""
        return self.members[-1]

    @property
    def first(self) -> tuple[bool, int]:
        """Return when the first of them was released; what is yet to be comes after all that was."""
        number = self.members[0].id
        return number < 0, abs(number)

    @cached_property
    def rounds(self) -> frozenset[str]:
        """Return the digests of the questions of rounds that they were released for."""
        return frozenset().union(*(member.also for member in self.members))

    @property
    def sum(self) -> Evidence:
        """Return one piece of evidence that tells what all members tell."""
        return self.members[0].whole if len(self.members) == 1 else self._sum

    @cached_property
    def _sum(self) -> Evidence:
        return added([member.whole for member in self.members])

    @cached_property
    def told(self) -> MarginalEvidence | None:
        """Return what they tell about marginals, if each tells about a whole marginal and nothing else."""
        if self.form.features or self.form.shape != (1, 1):  # the numbers need not be looked at
            return None
        found = marginals.told(self.sum)
        first, *others = sorted(self.ids)
        return None if found is None else replace(found, id=first, also=tuple(others))

    def plus(self, members: Sequence[Brought]) -> Pool:
        found = Pool((*self.members, *members))
        if "_sum" in self.__dict__:  # then what is new is added to it
            found.__dict__["_sum"] = added([self._sum, *(member.whole for member in members)])
        return found

    def without(self, ids: Collection[int]) -> Pool | None:
        """Return the pool of the members that are not among these; None if there are none."""
        if self.ids.isdisjoint(ids):
            return self
        return self._only(member for member in self.members if member.id not in ids)

    def until(self, last: int) -> Pool | None:
        """Return the pool of the members up to a release; None if there are none."""
        return self if self.members[-1].id <= last else self._only(m for m in self.members if m.id <= last)

    def _only(self, members: Iterable[Brought]) -> Pool | None:
        found = tuple(members)
        return Pool(found) if found else None


def key_of(found: Brought) -> Key:
    """Return what evidence of one form has in common; what was not read from a release is alone."""
    return (found.form, *found.shape) if found.form else ("", found.id)


def pooled(before: Mapping[Key, Pool], more: Sequence[Brought]) -> dict[Key, Pool]:
    """Return pools with more evidence."""
    new: dict[Key, list[Brought]] = {}
    for found in more:
        new.setdefault(key_of(found), []).append(found)
    return {
        **before,
        **{key: before[key].plus(members) if key in before else Pool(tuple(members)) for key, members in new.items()},
    }


def added(members: Sequence[Evidence]) -> Evidence:
    """Return one piece of evidence of the same form that tells what all of them tell; weights must be 1.

    Where it can't be told which directions are rounding, all rows are kept.
    """
    last = members[-1]
    if len(members) == 1:
        return last
    rows, y = np.concatenate([m.rows for m in members]), np.concatenate([m.y for m in members], axis=1)
    flat = rows.reshape(len(rows), -1)
    if len(flat) <= flat.shape[1]:
        return replace(last, rows=rows, y=y)
    lengths = np.linalg.norm(flat, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    U, values, directions = np.linalg.svd(flat / scale, full_matrices=False)
    kept = values > ROUNDING * values[0]
    if (values[kept] < CLEAR * values[0]).any():
        return replace(last, rows=rows, y=y)
    fewer = values[kept, None] * directions[kept] * scale
    return replace(last, rows=fewer.reshape(-1, *rows.shape[1:]), y=y @ U[:, kept])


def added_told(members: Sequence[MarginalEvidence]) -> MarginalEvidence:
    """Return what several releases about the same parts of the same marginals tell together: precisions add up."""
    if len(members) == 1:
        return members[0]
    first = members[0]
    precisions = {A: sum(member.precisions[A] for member in members) for A in first.precisions}

    def table(A: Subset) -> Floats:
        total: Floats = np.sum([m.precisions[A] / precisions[A] * m.table(A) for m in members], axis=0)
        return total

    ids = sorted(number for member in members for number in member.ids)
    return replace(first, id=ids[0], also=tuple(ids[1:]), precisions=precisions, table=table)
