"""Questions that treat the cells of whole marginals alike, and what releases tell about marginals.

Attributes are columns cut into atoms. What is known of a marginal is kept apart by its parts in the residual basis:
for a subset A of the attributes, the marginal with its mean along every axis taken away, and its precision
(mechanisms/least/marginals.py). Parts of different subsets are independent of each other, so nothing larger than a
marginal is ever formed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mechanisms.least import marginals as helmert
from mechanisms.least.marginals import Subset, subsets
from planner.basics.limits import MAX_FOLDED, MAX_MARGINAL_WORK
from planner.cells.workload import Workload
from planner.cells.workspace import Axis, Floats, Ints, Workspace
from planner.history.chart import Evidence, coarsened, covered, fold, is_finer
from planner.ledger.accounts import Stored
from planner.policy.table import Table
from planner.questions import body

ALIKE = 1.01
"""Precisions that differ by less than this factor are taken to be equal, to the lesser one."""


# --- questions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MarginalQuestion:
    """The number of rows in each cell of some marginals: `sets[s]` are the axes of the s-th grouping set.

    `cells[s]` has for each of its groups the cell of the marginal, the last axis fastest.
    """

    workspace: Workspace
    sets: tuple[Subset, ...]
    cells: tuple[Ints, ...]

    @cached_property
    def digest(self) -> str:
        state = hashlib.sha256(f"marginals 1\0{self.workspace.table.name}".encode())
        for axis in self.workspace.axes:
            state.update(f"{axis.key}\0".encode() + axis.atoms.tobytes())
        state.update(repr(self.sets).encode())
        return state.hexdigest()

    @cached_property
    def parts(self) -> frozenset[Subset]:
        """Return the subsets of all sets."""
        return frozenset(part for A in self.sets for part in subsets(A))


def symmetric(work: Workload) -> MarginalQuestion | None:
    """Return a workload as a question about marginals; None if something tells their cells apart.

    It must count rows and nothing else, all of them and each once, and the groups of every set must be the cells of
    the marginal of some columns as they are cut into atoms: two ways to cut one column are too many.
    """
    placement = work.placement
    if work.features or [f.role for f in work.functionals] != ["count"]:
        return None
    if not (work.functionals[0].coefficients == 1.0).all() or not _every_cell_once(placement.cell, placement.workspace):
        return None
    found = [
        _marginal(placement.cell, group, count, placement.workspace)
        for group, count in zip(placement.groups, placement.group_counts, strict=True)
    ]
    sets = [pair for pair in found if pair is not None]
    if len(sets) < len(found) or sum(len(cells) << len(A) for A, cells in sets) > MAX_MARGINAL_WORK:
        return None
    used = sorted({i for A, _ in sets for i in A})
    workspace = Workspace(placement.workspace.table, tuple(placement.workspace.axes[i] for i in used))
    return MarginalQuestion(
        workspace, tuple(tuple(used.index(i) for i in A) for A, _ in sets), tuple(cells for _, cells in sets)
    )


def _every_cell_once(cell: Ints, workspace: Workspace) -> bool:
    return len(cell) == workspace.cells and len(np.unique(cell)) == len(cell)


def _marginal(cell: Ints, group: Ints, groups: int, workspace: Workspace) -> tuple[Subset, Ints] | None:
    """Return the axes whose marginal the groups are, and the cell of each; None if they are not a marginal.

    A marginal's group changes along each of its axes and along no other: the lines through one cell show which those
    are, and then everything is compared.
    """
    table = np.empty(workspace.cells, dtype=np.int64)
    table[cell] = group
    table = table.reshape(workspace.shape)
    lines = [table[tuple(slice(None) if i == axis else 0 for i in range(table.ndim))] for axis in range(table.ndim)]
    A = tuple(axis for axis, line in enumerate(lines) if (line != line[0]).any())
    corner = table[tuple(slice(None) if i in A else slice(1) for i in range(table.ndim))]
    if corner.size != groups or not np.array_equal(np.sort(corner, axis=None), np.arange(groups)):
        return None
    return (A, np.argsort(corner, axis=None)) if (table == corner).all() else None


# --- what releases tell ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MarginalEvidence:
    """What a release tells about marginals: for subsets of the workspace's axes a precision and a centred table.

    The table of A is the centred marginal plus noise of covariance (x)_{i in A} (I - J/n_i) / precision, independent
    of all other subsets'; it is worked out when it is asked for.
    """

    id: int
    workspace: Workspace
    precisions: Mapping[Subset, float]
    table: Callable[[Subset], Floats]
    also: tuple[int, ...] = ()  # other releases that are added up in it

    @property
    def ids(self) -> tuple[int, ...]:
        return (self.id, *self.also)

    @cached_property
    def plain(self) -> tuple[Subset, float] | None:
        """Return a marginal and the precision of its cells, if this is just what that tells with equal noise on all."""
        top, sizes = max(self.precisions, key=len, default=()), self.workspace.shape
        if set(subsets(top)) != set(self.precisions):
            return None
        levels = [
            precision * math.prod(sizes[i] for i in top if i not in part) for part, precision in self.precisions.items()
        ]
        return (top, min(levels)) if max(levels) <= ALIKE * min(levels) else None


def read(release: Stored, table: Table) -> MarginalEvidence | None:
    """Return what a release of the kind "marginals" tells; None if domains changed since."""
    found = body.read_marginals(release, table)
    if found is None:
        return None
    workspace, parts = found
    tables = {}
    for rows, y in parts:
        k = rows.multipliers(tuple(workspace.shape[i] for i in rows.A))
        tables[rows.A] = np.array(y, dtype=float).reshape(k.shape) / k
    precisions = {rows.A: rows.precision for rows, _ in parts}
    return MarginalEvidence(release.id, workspace, precisions, lambda A: helmert.centred(tables[A]))


def told(found: Evidence) -> MarginalEvidence | None:
    """Return what evidence tells about marginals, if it is one marginal, complete, with equal noise in all cells."""
    workspace = found.workspace
    if found.features or found.rows.shape != (1, 1, 1) or not _every_cell_once(found.cell, workspace):
        return None
    marginal = _marginal(found.cell, found.group, found.groups, workspace)
    if marginal is None or (found.weight != found.weight[0]).any():
        return None
    A, cells = marginal
    scale = float(found.rows[0, 0, 0] * found.weight[0])
    y = np.empty(found.groups)
    y[cells] = found.y[:, 0] / scale
    return _plain(found.id, workspace, A, y.reshape(tuple(workspace.shape[i] for i in A)), scale**-2)


def _plain(number: int, workspace: Workspace, A: Subset, y: Floats, variance: float) -> MarginalEvidence:
    """Return what the marginal on A with independent noise of equal variance tells."""

    def centred(part: Subset) -> Floats:
        return helmert.without_means(y.sum(axis=tuple(place for place, i in enumerate(A) if i not in part)))

    return MarginalEvidence(number, workspace, helmert.plain(workspace.shape, A, variance), centred)


# --- brought to other attributes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Fold:
    """Atoms of an axis added up: `labels` has for each of them the coarser atom, which has the position `place`."""

    place: int
    labels: Ints

    @cached_property
    def blocks(self) -> Ints:
        """Return how many atoms there are in each of the coarser ones."""
        return np.bincount(self.labels)

    @property
    def even(self) -> bool:
        return bool((self.blocks == self.blocks[0]).all())

    def fold(self, table: Floats, axis: int) -> Floats:
        """Return sums over the atoms of each coarser one, along one axis."""
        moved = np.moveaxis(table, axis, 0)
        found = np.zeros((len(self.blocks), *moved.shape[1:]))
        np.add.at(found, self.labels, moved)
        return np.moveaxis(found, 0, axis)


def onto(found: MarginalEvidence, workspace: Workspace) -> MarginalEvidence:
    """Return what is told about the axes of a workspace: other columns are summed over, and finer atoms added up.

    Where all coarser atoms have the same number of finer ones, b, precisions are divided by it. Where they have not,
    noise is no longer alike in all cells: a plain marginal's cells are then all taken to have the variance of the
    least certain one, which overstates the covariance, so that what is stated is an upper bound; of other releases
    only the parts without such a column are used.
    """
    folds = {i: fold for i, axis in enumerate(found.workspace.axes) if (fold := _fold(axis, workspace)) is not None}
    if not all(fold.even for fold in folds.values()) and found.plain is not None:
        return _levelled(found, *found.plain, folds, workspace)
    parts = {}
    for A in found.precisions:
        if all(i in folds and folds[i].even for i in A):
            parts[tuple(sorted(folds[i].place for i in A))] = A

    def centred(part: Subset) -> Floats:
        return _folded(found.table(parts[part]), parts[part], folds)

    precisions = {part: found.precisions[A] / math.prod(folds[i].blocks[0] for i in A) for part, A in parts.items()}
    return MarginalEvidence(found.id, workspace, precisions, centred, found.also)


def _fold(axis: Axis, workspace: Workspace) -> _Fold | None:
    place = workspace.index(axis.column)
    if place is None or not is_finer(axis, workspace.axes[place]):
        return None
    return _Fold(place, workspace.axes[place].atoms[axis.first])


def _folded(table: Floats, A: Subset, folds: Mapping[int, _Fold]) -> Floats:
    """Return the table of the axes A folded, and its axes in the order of their new places."""
    for axis, i in enumerate(A):
        table = folds[i].fold(table, axis)
    return table.transpose(sorted(range(len(A)), key=lambda axis: folds[A[axis]].place))


def _levelled(
    found: MarginalEvidence, top: Subset, level: float, folds: Mapping[int, _Fold], workspace: Workspace
) -> MarginalEvidence:
    """Return a marginal of that precision folded, as if all coarser cells had as many finer ones as the largest."""
    sizes, kept = found.workspace.shape, tuple(i for i in top if i in folds)
    spread = math.prod(int(folds[i].blocks.max()) if i in folds else sizes[i] for i in top)
    whole = helmert.reconstructed(sizes, {part: found.table(part) for part in found.precisions}, top)
    y = whole.sum(axis=tuple(axis for axis, i in enumerate(top) if i not in folds))
    places = tuple(sorted(folds[i].place for i in kept))
    return replace(_plain(found.id, workspace, places, _folded(y, kept, folds), spread / level), also=found.also)


def evidence(found: MarginalEvidence, axes: Mapping[str, Axis], *, in_cells: bool = False) -> list[Evidence]:
    """Return what is told about functions of some (coarser) axes, as rows on the cells of each part's own axes.

    An axis of n atoms is cut into blocks of b_1, ..., b_m atoms. Sums over the blocks of a centred axis are
    (I - b 1^T / n) times the blocks' sums, with noise of covariance diag(b) - b b^T / n; whitened, that leaves m - 1
    rows. A part's rows are the tensor products of those of its axes, the same all along the others. Nothing is lost
    but parts with more than MAX_FOLDED cells; with `in_cells`, a plain marginal that has such a part is brought by its
    cells instead.
    """
    cuts = {i: cut for i, axis in enumerate(found.workspace.axes) if (cut := coarsened(axis, axes.get(axis.column)))}
    blocks = {i: cut.atoms[found.workspace.axes[i].first] for i, cut in cuts.items()}
    whitening = {i: _whitening(np.bincount(labels)) for i, labels in blocks.items()}
    large = any(set(A) <= set(cuts) and math.prod(cuts[i].size for i in A) > MAX_FOLDED for A in found.precisions)
    if in_cells and large and found.plain is not None and (cells_of := whole(found)) is not None:
        way = None if covered(cells_of, axes) else fold(cells_of, axes)
        return [cells_of] if covered(cells_of, axes) else [] if way is None else [way.of(cells_of)]
    brought = []
    for A, precision in found.precisions.items():
        if set(A) <= set(cuts) and math.prod(cuts[i].size for i in A) <= MAX_FOLDED:
            small = Workspace(found.workspace.table, tuple(cuts[i] for i in A))
            folds = {i: _Fold(place, blocks[i]) for place, i in enumerate(A)}
            table = math.sqrt(precision) * _folded(found.table(A), A, folds)
            for axis, i in enumerate(A):
                table = np.moveaxis(np.tensordot(whitening[i][0], table, axes=(1, axis)), 0, axis)
            B = math.sqrt(precision) * _product([whitening[i][1] for i in A])
            cells, none = np.arange(small.cells), np.zeros(small.cells, dtype=np.int64)
            y = np.asarray(table).reshape(1, -1)
            brought.append(
                Evidence(
                    id=found.id,
                    question="",
                    workspace=small,
                    features=(),
                    cell=cells,
                    group=none,
                    groups=1,
                    pattern=cells,
                    rows=B[:, :, None],
                    weight=np.ones(1),
                    y=y,
                )
            )
    return brought


def whole(found: MarginalEvidence) -> Evidence | None:
    """Return the cells of the largest marginal that is told, as evidence; None if it is not told whole.

    They are taken to have independent noise of the least precision that a part of it has, which states an upper bound.
    """
    top, sizes = max(found.precisions, key=lambda A: (len(A), A), default=()), found.workspace.shape
    if not found.precisions.keys() >= set(subsets(top)):
        return None
    level = min(found.precisions[A] * math.prod(sizes[i] for i in top if i not in A) for A in subsets(top))
    y = helmert.reconstructed(sizes, {A: found.table(A) for A in subsets(top)}, top).reshape(-1, 1)
    small, cells = Workspace(found.workspace.table, tuple(found.workspace.axes[i] for i in top)), np.arange(len(y))
    weight, none = np.full(len(y), math.sqrt(level)), np.zeros(len(y), dtype=np.int64)
    return Evidence(
        id=found.id,
        question="",
        workspace=small,
        features=(),
        cell=cells,
        group=cells,
        groups=len(y),
        pattern=none,
        rows=np.ones((1, 1, 1)),
        weight=weight,
        y=y * weight[:, None],
    )


def is_small(found: MarginalEvidence) -> bool:
    """Return whether none of the parts is too large to be brought to small questions."""
    sizes = found.workspace.shape
    return all(math.prod(sizes[i] for i in A) <= MAX_FOLDED for A in found.precisions)


def _product(factors: Sequence[Floats]) -> Floats:
    found = np.ones((1, 1))
    for factor in factors:
        found = np.kron(found, factor).astype(np.float64)
    return found


def _whitening(blocks: Ints) -> tuple[Floats, Floats]:
    """Return W with W (diag(b) - b b^T / n) W^T = I, shape (m - 1, m), and W (I - b 1^T / n)."""
    b, n = blocks.astype(float), float(blocks.sum())
    values, vectors = np.linalg.eigh(np.diag(b) - np.outer(b, b) / n)
    W = vectors[:, 1:].T / np.sqrt(values[1:, None])  # the first eigenvalue is 0, of the vector 1
    return W, W - np.outer(W @ b, np.ones(len(b))) / n
