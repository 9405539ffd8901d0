"""Plans that stay within what every cell may pay.

A plan is known that keeps within: what everybody would release alone, one beside the other. Wanted is one that charges
the cells less. Cells that no row, asked or known, shares with the others are a problem of their own, a *group*. In each
group the plan is sought whose cells pay the least part of what they may (`minimax`). If it does not keep
within, since nothing can be saved in some cell and no search ends exactly there, it is the known plan.

Then what is too much is taken away. With R new information, C = C_known + R, a row w has the variance w C^-1 w^T.
Taking away Delta <= R charges every cell less, whatever Delta is. It leaves the variance of w as it is if and only if
Delta C^-1 w^T = 0. So in coordinates where C is one, Delta must vanish on the rows that are just met; the largest one
that does, below R, is R shorted to their complement (a Schur complement). As much of it is taken away as the other rows
allow, until one more row is just met, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from mechanisms import interrupts
from mechanisms.gaussian.linear import Indices, Matrix, row_space
from mechanisms.least.blocks import Block, Bound
from mechanisms.least.minimax import Plan, least
from mechanisms.tolerances import FAINT, JUST_MET, LIMIT_SPARE, MOST_TAKEN

_LITTLE = 1e-3
"""Taking away ends when less than this part of what cells pay was taken away in a step."""

_WORK = 2**36
"""About so many operations are spent on taking away."""


def least_within(
    blocks: Sequence[Block],
    c: Matrix,
    *,
    sizes: Matrix,
    members: Matrix,
    instead: Sequence[Matrix] | None = None,
    gap: float = 0.01,
) -> Plan:
    """Return rows with which row j has variance at most c_j, and which charge every cell at most one, if that is found.

    Args:
        blocks, c, sizes, members, gap: as in `mechanisms.least.minimax.least`.
        instead: for each block the rows of a plan that charges every cell at most one. No variance will be larger than
            with them (but for 1e-10, which is spared for rounding), or than c_j.

    >>> ones, every = np.ones(2), np.arange(2)
    >>> plan = least_within([Block(every, np.eye(2), every)], np.array([1.0, 4.0]), sizes=ones, members=ones)
    >>> (plan.rows[0] ** 2).sum(axis=0).round(4)
    array([1.  , 0.25])
    """
    rows: list[list[Matrix]] = [[block.V[:0]] for block in blocks]
    dearest = Plan((), 0.0, Bound(0.0, np.zeros(len(c)), 0.0))
    for cells, asked in _groups(blocks, len(sizes), len(c)):
        numbers, parts = zip(*_parts(blocks, cells, asked), strict=True)
        found = least(parts, c[asked], sizes=sizes[cells], members=members[asked], gap=gap)
        kept, columns = found.rows, [np.isin(blocks[number].cells, cells) for number in numbers]
        if instead is not None and found.cost > 1 - LIMIT_SPARE:
            less = np.sqrt(1 - LIMIT_SPARE)
            kept = tuple(less * instead[number][:, own] for number, own in zip(numbers, columns, strict=True))
        for number, own, each in zip(numbers, columns, trimmed(parts, kept, c[asked]), strict=True):
            wide = np.zeros((len(each), len(own)))
            wide[:, own] = each
            rows[number].append(wide)
        if found.cost >= dearest.cost:
            multipliers = np.zeros(len(c))
            multipliers[asked] = found.multipliers
            dearest = replace(found, least=replace(found.least, multipliers=multipliers))
    return replace(dearest, rows=tuple(np.vstack(each) for each in rows))


def _groups(blocks: Sequence[Block], cells: int, rows: int) -> Iterator[tuple[Indices, Indices]]:
    """Yield the cells of each group and the rows asked there; cells that nobody asks about are in none."""
    ends = [(block.rows[i] + cells, block.cells[j]) for block in blocks for i, j in [np.nonzero(block.V)]]
    count = cells + rows
    for block in blocks:
        if block.known is not None:
            i, j = np.nonzero(block.known)
            ends.append((i + count, block.cells[j]))
            count += len(block.known)
    left, right = (np.concatenate(each) for each in zip(*ends, strict=True)) if ends else (np.zeros(0, int),) * 2
    graph = coo_array((np.ones(len(left)), (left, right)), shape=(count, count))
    _, labels = connected_components(graph, directed=False)
    for label in dict.fromkeys(labels[cells : cells + rows].tolist()):
        asked = np.flatnonzero(labels[cells : cells + rows] == label)
        yield np.flatnonzero(labels[:cells] == label), asked


def _parts(blocks: Sequence[Block], cells: Indices, asked: Indices) -> Iterator[tuple[int, Block]]:
    """Yield what each block has of a group, with the number of the block."""
    for number, block in enumerate(blocks):
        mine, columns = np.isin(block.rows, asked), np.isin(block.cells, cells)
        if mine.any():
            known = None if block.known is None else block.known[:, columns]
            own, places = np.searchsorted(asked, block.rows[mine]), np.searchsorted(cells, block.cells[columns])
            yield number, Block(own, block.V[mine][:, columns], places, block.copies, known)


@dataclass(frozen=True, eq=False)
class _Held:
    """A block with its information: V and C_known on coordinates Q with room for all of it, and R, which is new."""

    block: Block
    Q: Matrix
    V: Matrix
    C_known: Matrix
    R: Matrix

    @classmethod
    def of(cls, block: Block, rows: Matrix) -> _Held:
        known = rows[:0] if block.known is None else block.known
        Q = row_space(np.vstack([known, rows, block.V]))
        return cls(block, Q, block.V @ Q.T, Q @ known.T @ known @ Q.T, Q @ rows.T @ rows @ Q.T)

    @property
    def rows(self) -> Matrix:
        values, vectors = np.linalg.eigh(self.R)
        keep = values > FAINT * float(values[-1])
        return np.asarray((np.sqrt(values[keep]) * vectors[:, keep]).T @ self.Q)


@dataclass(frozen=True, eq=False)
class _White:
    """The same where C is one: `half` is C^1/2, z are the rows asked for, R is the new information."""

    held: _Held
    half: Matrix
    z: Matrix
    R: Matrix

    @classmethod
    def of(cls, held: _Held) -> _White:
        values, vectors = np.linalg.eigh(held.C_known + held.R)
        values = np.maximum(values, FAINT * float(values[-1]))
        half, back = (vectors * np.sqrt(values)) @ vectors.T, (vectors / np.sqrt(values)) @ vectors.T
        return cls(held, half, held.V @ back, back @ held.R @ back)

    def shorted(self, is_met: NDArray[np.bool_]) -> tuple[Matrix, Matrix]:
        """Return the eigenvalues and vectors of the largest matrix below R that vanishes on rows that are met."""
        frozen = self.z[is_met[self.held.block.rows]]
        F = row_space(frozen / np.linalg.norm(frozen, axis=1, keepdims=True)) if len(frozen) else self.z[:0]
        free = self.R - (self.R @ F.T) @ np.linalg.pinv(F @ self.R @ F.T, hermitian=True) @ (F @ self.R)
        rest = np.eye(len(free)) - F.T @ F
        values, vectors = np.linalg.eigh(rest @ free @ rest)
        return np.clip(values, 0.0, 1.0), vectors


def trimmed(blocks: Sequence[Block], rows: Sequence[Matrix], c: Matrix) -> tuple[Matrix, ...]:
    """Return less than the given rows of each block, with which no variance is larger than c_j, or than with them.

    Guarantee: the information of the rows returned is at most that of the given ones (in every direction, so in every
    cell), up to rounding.

    >>> twice = np.array([[1.0, 1.0], [1.0, 1.0]])
    >>> [less] = trimmed([Block(np.arange(1), twice[:1], np.arange(2))], [twice], np.ones(1))
    >>> (less**2).sum(axis=0).round(4)
    array([1., 1.])
    """
    held = [_Held.of(block, each) for block, each in zip(blocks, rows, strict=True)]
    steps = max(_WORK // max(sum(32 * len(each.Q) ** 3 for each in held), 1), 1)
    allowed = np.maximum(c, _variances([_White.of(each) for each in held], len(c)))
    for _ in range(min(steps, 2 * len(c))):
        interrupts.check()
        white = [_White.of(each) for each in held]
        met = _variances(white, len(c)) >= allowed * (1 - JUST_MET)
        found = [each.shorted(met) for each in white]
        part = _largest_part(white, found, allowed, met)
        before = sum(float(np.trace(each.R)) for each in held)
        taken = [
            w.half @ ((vectors * (part * values)) @ vectors.T) @ w.half
            for w, (values, vectors) in zip(white, found, strict=True)
        ]
        held = [replace(each, R=each.R - less) for each, less in zip(held, taken, strict=True)]
        if sum(float(np.trace(less)) for less in taken) <= _LITTLE * before:
            break
    return tuple(each.rows for each in held)


def _variances(white: Sequence[_White], count: int) -> Matrix:
    found = np.zeros(count)
    for each in white:
        found[each.held.block.rows] += (each.z**2).sum(axis=1)
    return found


def _largest_part(
    white: Sequence[_White], found: Sequence[tuple[Matrix, Matrix]], allowed: Matrix, met: NDArray[np.bool_]
) -> float:
    """Return which part of what may be taken away leaves all variances as allowed, by bisection."""
    squares = [((each.z @ vectors) ** 2, values) for each, (values, vectors) in zip(white, found, strict=True)]

    def is_allowed(part: float) -> bool:
        variances = np.zeros(len(allowed))
        for each, (square, values) in zip(white, squares, strict=True):
            variances[each.held.block.rows] += square @ (1 / (1 - part * values))
        return bool((variances <= allowed)[~met].all())

    low, high = 0.0, MOST_TAKEN
    if is_allowed(high):
        return high
    for _ in range(48):
        middle = (low + high) / 2
        low, high = (middle, high) if is_allowed(middle) else (low, middle)
    return low
