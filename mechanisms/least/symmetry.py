"""Which cells a problem does not tell apart, and the blocks into which that lets it fall.

A domain is the product of axes. Atoms i and j of an axis can be swapped if that maps what is asked onto itself, and
what is known too. Atoms that can be swapped are an *orbit*. On an orbit of k atoms a vector has a constant part and a
rest that adds up to zero; symmetric matrices do not mix the two, and are a multiple of one on the rest (Schur's lemma).
So a block is named by the axes on which it lives on the rest of some orbit, `((axis, orbit), ...)`; on the other axes
its coordinates are orbits, standing for the constant parts of length one. It has prod (k - 1) copies.

A row is either the same on all atoms of an orbit, or lives on one atom of an axis alone. Then along that axis it is
1 / sqrt(k) in the constant part and sqrt(1 - 1/k) long in the rest.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mechanisms.gaussian.linear import Indices, Matrix
from mechanisms.least.blocks import Block
from mechanisms.least.minimax import Plan, least
from mechanisms.least.within import least_within
from mechanisms.tolerances import CONSTANT, FAINT, UNKNOWN

Key = tuple[tuple[int, int], ...]
"""The name of a block: ascending axes, each with an orbit."""

_ALIKE = 0.02
"""What is known is symmetric if swapping atoms changes it by less than this part; its mean over swaps is used."""

_PROBES = 6


@dataclass(frozen=True, eq=False)
class Asked:
    """Rows on the product of some axes: W (m, n_1, n_2, ...), with largest variances c (m,)."""

    axes: tuple[int, ...]
    W: Matrix
    c: Matrix


@dataclass(frozen=True, eq=False)
class Given:
    """What is known on the product of some axes: C (d, d), the last axis fastest."""

    axes: tuple[int, ...]
    C: Matrix

    @cached_property
    def whitened(self) -> Matrix:
        """C^-1/2, but for what is rounding."""
        values, vectors = np.linalg.eigh(self.C)
        least = UNKNOWN * float(values[-1]) or 1.0  # one where nothing is known
        return np.asarray((vectors / np.sqrt(np.maximum(values, least))) @ vectors.T)


@dataclass(frozen=True, eq=False)
class Piece:
    """Rows to release on some axes, whose atoms are merged: atom i of the n-th of them is labels[n][i] there."""

    axes: tuple[int, ...]
    labels: tuple[Indices, ...]
    rows: Matrix  # (r, ...)


@dataclass(frozen=True, eq=False)
class Orbits:
    """For every axis the orbit of each atom, numbered from zero."""

    labels: tuple[Indices, ...]

    @cached_property
    def counts(self) -> tuple[Indices, ...]:
        """The number of atoms in each orbit."""
        return tuple(np.bincount(labels) for labels in self.labels)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(counts) for counts in self.counts)

    def constant(self, axis: int) -> Matrix:
        """Return the constant parts, rows of length one, shape (orbits, atoms)."""
        counts, labels = self.counts[axis], self.labels[axis]
        return np.asarray((labels == np.arange(len(counts))[:, None]) / np.sqrt(counts)[:, None])

    def copies(self, key: Key) -> int:
        return math.prod(int(self.counts[axis][orbit]) - 1 for axis, orbit in key)


def orbits(sizes: Sequence[int], asked: Sequence[Asked], given: Sequence[Given], fixed: Collection[int]) -> Orbits:
    """Return the orbits of axes of these sizes; atoms of the fixed axes are told apart."""
    signatures: list[list[list[bytes]]] = [[[] for _ in range(size)] for size in sizes]
    for one in asked:
        for place, axis in enumerate(one.axes):
            for atom, signature in enumerate(_signatures(np.moveaxis(one.W, place + 1, 1), one.c)):
                signatures[axis][atom].append(signature)
    found = []
    for axis, size in enumerate(sizes):
        kinds: dict[bytes, int] = {}
        names = [str(atom).encode() if axis in fixed else b"".join(signatures[axis][atom]) for atom in range(size)]
        found.append(np.array([kinds.setdefault(name, len(kinds)) for name in names], dtype=np.intp))
    for known in given:
        for place, axis in enumerate(known.axes):
            found[axis] = _split(found[axis], known, place, [sizes[each] for each in known.axes])
    return Orbits(tuple(found))


def _signatures(W: Matrix, c: Matrix) -> list[bytes]:
    """Return for every atom of the first axis of rows W (m, n, ...) what it is asked for.

    That is what rows on several atoms have there, and which rows live on it alone, in any order.
    """
    flat = np.round(W.reshape(*W.shape[:2], math.prod(W.shape[2:])), 9) + 0.0
    live = np.abs(flat).max(axis=2, initial=0.0) > 0
    alone = np.isin(live.sum(axis=1), 1)
    found = []
    for atom in range(W.shape[1]):
        state = hashlib.sha256(np.ascontiguousarray(flat[~alone, atom]).tobytes())
        for single in sorted(
            flat[row, atom].tobytes() + c[row].tobytes() for row in np.flatnonzero(alone & live[:, atom])
        ):
            state.update(hashlib.sha256(single).digest())
        found.append(state.digest())
    return found


def _split(labels: Indices, known: Given, place: int, shape: list[int]) -> Indices:
    """Return the orbits of an axis, split where swapping atoms changes what is known.

    It changes nothing if C^-1/2 (C' - C) C^-1/2 is zero: what is known faintly counts as much as what is known
    well.
    """
    points = np.arange(math.prod(shape)).reshape(shape)
    probes = known.whitened @ _scattered(len(points.ravel()))
    told = known.C @ probes
    limit = _ALIKE * float(np.linalg.norm(known.whitened @ told))
    chosen: list[tuple[int, int]] = []  # the old orbit and the first atom of each new one
    found = np.zeros_like(labels)
    for atom, label in enumerate(labels):
        for number, (old, first) in enumerate(chosen):
            if old == label:
                order = np.arange(shape[place])
                order[[atom, first]] = first, atom
                swapped = np.take(points, order, axis=place).ravel()
                change = (known.C @ probes[swapped])[swapped] - told
                if np.linalg.norm(known.whitened @ change) <= limit:
                    found[atom] = number
                    break
        else:
            found[atom] = len(chosen)
            chosen.append((int(label), atom))
    return found


def _scattered(size: int) -> Matrix:
    """Return a few vectors of numbers that look random and are not: fractions of golden k^2."""
    k = np.arange(1, size * _PROBES + 1, dtype=float)
    return np.asarray((k * k * ((np.sqrt(5) - 1) / 2)) % 1.0 - 0.5).reshape(size, _PROBES)


@dataclass(frozen=True, eq=False, kw_only=True)
class Symmetric:
    """A problem on its orbits. `places` has for each of what is asked the row that each of its rows became, or -1."""

    orbits: Orbits
    keys: tuple[Key, ...]
    blocks: tuple[Block, ...]
    c: Matrix
    members: Matrix
    places: tuple[Indices, ...]

    @property
    def sizes(self) -> Matrix:
        """How many cells each cell of the orbits stands for."""
        found = np.ones(())
        for counts in self.orbits.counts:
            found = np.multiply.outer(found, counts.astype(float))
        return found.ravel()

    @property
    def work(self) -> int:
        """About how many operations a step of the solver takes."""
        return sum(rank**3 for rank, _ in self._ranks)

    @property
    def entries(self) -> int:
        """The most entries that the rows to release for a block have, at each of its copies."""
        return max((rank * wide for rank, wide in self._ranks), default=0)

    @property
    def _ranks(self) -> list[tuple[int, int]]:
        """How many directions of each block there may be to tell about, and how many there are."""
        told = [0 if block.known is None else len(block.known) for block in self.blocks]
        return [(min(b.V.shape[1], len(b.V) + k), b.V.shape[1]) for b, k in zip(self.blocks, told, strict=True)]

    def solved(self, *, tighter: float = 1.0, gap: float = 0.005) -> Plan:
        """Return the cheapest plan, with all target variances times a factor."""
        return least(self.blocks, self.c * tighter, sizes=self.sizes, members=self.members, gap=gap)

    def within(self, limits: Matrix, instead: Sequence[Given] | None, *, tighter: float, gap: float = 0.005) -> Plan:
        """Return a plan that charges no cell more than its limit, if that is found; its cost is a part of the limits.

        Args:
            limits: what each cell of the orbits may pay, positive, shape (n,).
            instead: a plan that keeps within the limits, and is used where nothing better is found.
        """
        rows = None if instead is None else [self._rows(key, instead) for key in self.keys]
        # A cell that may pay a limit of l is one that may pay one, and stands for l times as many cells.
        sizes, c = self.sizes * limits, self.c * tighter
        return least_within(self.blocks, c, sizes=sizes, members=self.members, instead=rows, gap=gap)

    def _rows(self, key: Key, given: Sequence[Given]) -> Matrix:
        """Return information as rows in a block."""
        found = [rows for one in given if (rows := _known(one, key, self.orbits)) is not None]
        return np.vstack(found) if found else np.zeros((0, self.blocks[self.keys.index(key)].V.shape[1]))

    def pieces(self, plan: Plan, partners: Mapping[int, int]) -> list[tuple[Key, Piece]]:
        """Return what the plan releases for each block; an axis is there with its partner or not at all."""
        return [
            (key, _piece(self.orbits, key, rows, partners))
            for key, rows in zip(self.keys, plan.rows, strict=True)
            if len(rows)
        ]


def symmetric(asked: Sequence[Asked], given: Sequence[Given], found: Orbits) -> Symmetric:
    """Return the problem on its orbits: one row for all that are swapped with each other, in blocks."""
    rows: dict[bytes, int] = {}
    c: list[float] = []
    members: list[float] = []
    parts: dict[Key, list[tuple[int, Matrix]]] = {}
    places = []
    for one in asked:
        place = np.full(len(one.W), -1, dtype=np.intp)
        constant = _constant(one, found)
        for j in np.flatnonzero(one.W.any(axis=tuple(range(1, one.W.ndim)))).tolist():
            label = _label(one, j, found)
            row = constant[j]
            name = repr((one.axes, label)).encode() + (np.round(row, 9) + 0.0).tobytes()
            if name not in rows:
                rows[name] = len(rows)
                c.append(math.inf)
                members.append(float(math.prod(int(found.counts[axis][orbit]) for axis, orbit in label)))
                for size in range(len(label) + 1):
                    for key in itertools.combinations(label, size):
                        parts.setdefault(key, []).append((rows[name], _vector(row, one.axes, key, found)))
            place[j] = rows[name]
            c[rows[name]] = min(c[rows[name]], float(one.c[j]))
        places.append(place)
    grid = np.arange(math.prod(found.shape)).reshape(found.shape)
    blocks = []
    for key, each in parts.items():
        at = dict(key)
        cells = grid[tuple(at.get(axis, slice(None)) for axis in range(grid.ndim))].ravel()
        V = np.array([vector for _, vector in each])
        numbers = np.array([number for number, _ in each], dtype=np.intp)
        known = [told for one in given if (told := _known(one, key, found)) is not None]
        blocks.append(Block(numbers, V, cells, found.copies(key), np.vstack(known) if known else None))
    return Symmetric(
        orbits=found,
        keys=tuple(parts),
        blocks=tuple(blocks),
        c=np.array(c),
        members=np.array(members),
        places=tuple(places),
    )


def _constant(one: Asked, found: Orbits) -> Matrix:
    """Return the constant parts of all rows along all axes: (m, orbits, ...)."""
    table = one.W
    for place, axis in enumerate(one.axes):
        table = np.moveaxis(np.tensordot(table, found.constant(axis), axes=(place + 1, 1)), -1, place + 1)
    return table


def _label(one: Asked, row: int, found: Orbits) -> Key:
    """Return the axes along which a row lives on one atom of a larger orbit."""
    label = []
    for place, axis in enumerate(one.axes):
        live = np.flatnonzero(np.moveaxis(one.W[row], place, 0).reshape(one.W.shape[place + 1], -1).any(axis=1))
        orbit = int(found.labels[axis][live[0]])
        if len(live) == 1 and found.counts[axis][orbit] > 1:
            label.append((axis, orbit))
    return tuple(sorted(label))


def _vector(row: Matrix, axes: tuple[int, ...], key: Key, found: Orbits) -> Matrix:
    """Return the part of a row in a block."""
    at = dict(key)
    inside = row[tuple(at.get(axis, slice(None)) for axis in axes)]
    inside = inside * math.sqrt(found.copies(key))  # 1 / sqrt(k) is there; sqrt(1 - 1/k) is wanted
    return _widened(inside, [axis for axis in axes if axis not in at], at, found).ravel()


def _widened(inside: Matrix, axes: Sequence[int], at: Mapping[int, int], found: Orbits) -> Matrix:
    """Return what is constant along all other axes, along them too, except those of the block."""
    rest = [axis for axis in range(len(found.shape)) if axis not in at]
    table = inside.reshape([found.shape[axis] if axis in axes else 1 for axis in rest])
    for place, axis in enumerate(rest):
        if axis not in axes:
            width = [1] * len(rest)
            width[place] = found.shape[axis]
            table = table * np.sqrt(found.counts[axis]).reshape(width)
    return table


def _known(one: Given, key: Key, found: Orbits) -> Matrix | None:
    """Return rows that are known in a block, averaged over swaps; None if there are none."""
    at = dict(key)
    if not set(at) <= set(one.axes):
        return None
    sizes = [len(found.labels[axis]) for axis in one.axes]
    table = one.C.reshape((*sizes, *sizes))
    kept = list(one.axes)
    for axis in one.axes:
        left = kept.index(axis)
        right = left + len(kept)
        if axis in at:
            atoms = np.flatnonzero(found.labels[axis] == at[axis])
            table = np.take(np.take(table, atoms, axis=left), atoms, axis=right)
            rest = np.trace(table, axis1=left, axis2=right) - table.sum(axis=(left, right)) / len(atoms)
            table = rest / (len(atoms) - 1)
            kept.remove(axis)
        else:
            constant = found.constant(axis)
            for place in (left, right):
                table = np.moveaxis(np.tensordot(table, constant, axes=(place, 1)), -1, place)
    wide = math.prod(found.shape[axis] for axis in kept)
    values, vectors = np.linalg.eigh(table.reshape(wide, wide))
    rows = (np.sqrt(np.maximum(values, 0.0)) * vectors).T[values > FAINT * values[-1]]
    return np.array([_widened(row, kept, at, found).ravel() for row in rows]) if len(rows) else None


def _piece(found: Orbits, key: Key, rows: Matrix, partners: Mapping[int, int]) -> Piece:
    """Return the rows of a block on atoms; axes along which they are constant are left out."""
    at = dict(key)
    rest = [axis for axis in range(len(found.shape)) if axis not in at]
    table = rows.reshape(len(rows), *(found.shape[axis] for axis in rest))
    for place, axis in enumerate(rest):  # from constant parts of length one to what each atom has
        width = [1] * table.ndim
        width[place + 1] = found.shape[axis]
        table = table / np.sqrt(found.counts[axis]).reshape(width)
    limit = CONSTANT * float(np.abs(table).max(initial=0.0))
    varying = {axis for place, axis in enumerate(rest) if float(np.ptp(table, axis=place + 1).max(initial=0.0)) > limit}
    varying |= {partners[axis] for axis in varying if partners.get(axis) in rest}
    table = table[(slice(None), *(slice(None) if axis in varying else 0 for axis in rest))]
    axes, labels = [axis for axis in rest if axis in varying], [found.labels[axis] for axis in rest if axis in varying]
    for axis, orbit in key:
        inside = found.labels[axis] == orbit
        count = int(inside.sum())
        helmert = np.zeros((count - 1, count + (not inside.all())))
        for j in range(1, count):
            helmert[j - 1, : j + 1] = np.array([1.0] * j + [-j]) / math.sqrt(j * (j + 1))
        place = sum(other < axis for other in axes)
        table = np.moveaxis(np.multiply.outer(table, helmert), -2, 1)  # copies beside the rows, atoms last
        table = np.moveaxis(table.reshape(-1, *table.shape[2:]), -1, place + 1)
        axes.insert(place, axis)
        labels.insert(place, np.where(inside, np.cumsum(inside) - 1, count).astype(np.intp))
    return Piece(tuple(axes), tuple(labels), table)
