"""Recall: everything released about a table, brought to a new question.

What is brought is decided from public things only: the columns and atoms of the question and of what was
released, never what the releases told.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mechanisms.join import join_to_targets, prices
from mechanisms.known import Known, nothing_known
from planner import symmetric
from planner.chart import (
    MAX_POINTS,
    Chart,
    Evidence,
    Fold,
    Forms,
    covered,
    evidence,
    fold,
    is_finer,
    refined,
    shareable,
)
from planner.ledger import Ledger
from planner.linear import Question
from planner.policy import Table
from planner.pool import Key, Pool, added_told, pooled
from planner.symmetric import Told
from planner.workload import Floats
from planner.workspace import Axis, Feature, Workspace

MAX_ASKED = 384
"""Largest number of answers that is planned against the history; beyond, a query is measured on its own."""

KEPT_FOLDS = 32
"""For how many choices of columns it is remembered how releases are summed onto them."""

KEPT_BASES = 8
"""How many different choices of columns keep what is known on them."""

KEPT_RECALLS = 3
"""For how many charts all that is known is kept, until something is released."""

BATCH = 256
"""Rows of releases that are added to what is known at a time."""

Axes = Mapping[str, Axis]


@dataclass(frozen=True, eq=False)
class Recall:
    """What is known of a question: rows W (groups * F, P) on the points of a chart, and what was released on it."""

    chart: Chart
    releases: tuple[int, ...]
    known: Known
    W: Floats

    def with_evidence(self, brought: Sequence[Evidence]) -> Recall:
        """Return what is known once more is released; what does not fit onto this chart adds nothing."""
        known = self.known
        for batch in _batches(_placed(self.chart, found) for found in brought if self.chart.fits(found)):
            known = known.with_rows(*batch)
        return replace(self, known=known)

    def rows(self, found: Evidence) -> Floats:
        """Return the rows of a release, or of what might be one, on the points: shape (n, P)."""
        return _placed(self.chart, found)[0]

    def estimates(self, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        """Return the best answers (groups, F) and their covariances (groups, F, F); nan for what is not known."""
        values = self.known.estimate(self.W).reshape(shape)
        roots, _ = self.known.roots(self.W)
        blocks = roots.reshape(*shape, roots.shape[1])
        covariance: Floats = np.einsum("gfn,ghn->gfh", blocks, blocks)
        return values, np.where(np.isnan(values[:, :, None] + values[:, None, :]), np.nan, covariance)

    def missing(self, targets: Floats) -> Floats:
        """Return the rows (r, P) that must still be released for the asked ones to meet their target variances.

        Cells that have paid most are spared: the guarantee is the dearest cell's.
        """
        rows = join_to_targets(self.known, self.W, targets, weights=prices(self.known.profile)).rows
        # Nothing else is missing than what was asked: what leaves the span of both by rounding would open directions
        # that are hardly known at all.
        basis = self.known.with_rows(self.W, np.zeros(len(self.W))).basis
        return rows if basis is None else rows @ basis.T @ basis


Recalls = OrderedDict[tuple[object, ...], Recall]
"""By table, chart and what is brought to it, what is known."""


@dataclass(frozen=True, eq=False)
class Found:
    """Releases in pools, with the axes and features that are fine enough for all of them."""

    pools: Mapping[Key, Pool] = field(default_factory=dict)
    axes: Axes = field(default_factory=dict)
    features: frozenset[Feature] = frozenset()
    marginals: Mapping[object, tuple[Told, ...]] = field(default_factory=dict)  # brought to any chart, however coarse

    @cached_property
    def told(self) -> tuple[Told, ...]:
        """Return what releases of marginals tell about them."""
        return tuple(map(added_told, self.marginals.values()))

    @property
    def evidence(self) -> list[Evidence]:
        """Return one release of each form."""
        return [pool.form for pool in self.pools.values()]

    @property
    def count(self) -> int:
        return sum(len(pool.members) for pool in self.pools.values())

    def plus(self, more: Sequence[Evidence], told: Sequence[Told] = ()) -> Found:
        pools = pooled(self.pools, more)
        forms = [pool.form for key, pool in pools.items() if key not in self.pools]
        features = self.features.union(*(e.features for e in forms))
        marginals = dict(self.marginals)
        for found in told:
            marginals[_parts(found)] = (*marginals.get(_parts(found), ()), found)
        return Found(pools, finest_axes(forms, self.axes), features, marginals)

    def until(self, last: int) -> Found:
        """Return what was released up to a release."""
        members = [m for pool in self.pools.values() if (part := pool.until(last)) is not None for m in part.members]
        told = [found for each in self.marginals.values() for found in each if found.id <= last]
        return Found().plus(sorted(members, key=lambda member: member.id), told)


def _parts(found: Told) -> object:
    """Return what releases of marginals must have in common to be added up."""
    return _written(found.workspace.axes), frozenset(found.precisions)


def _written(axes: Iterable[Axis]) -> tuple[tuple[str, bytes], ...]:
    return tuple((axis.key, axis.atoms.tobytes()) for axis in axes)


@dataclass(frozen=True, eq=False)
class _Part:
    """What a pool tells on the axes of a question: summed by `way`, or as it is for None."""

    pool: Pool
    way: Fold | None

    @property
    def form(self) -> Workspace:
        return self.pool.form.workspace if self.way is None else self.way.workspace

    def told(self, known: Collection[int]) -> Evidence | None:
        """Return what is not among the known releases; None if all are."""
        new = self.pool.without(known)
        return None if new is None else new.sum if self.way is None else self.way.of(new.sum)


@dataclass(frozen=True, eq=False)
class _Brought:
    """What the releases tell on some axes and features."""

    parts: tuple[_Part, ...]
    axes: Axes
    is_all: bool

    @cached_property
    def ids(self) -> frozenset[int]:
        return frozenset().union(*(part.pool.ids for part in self.parts))


@dataclass(frozen=True, eq=False)
class _Base:
    """What is known on a chart that is fine enough for the releases with these numbers."""

    chart: Chart
    ids: frozenset[int]
    known: Known


class History:
    """Everything linear that was released about one table. Threads may share it."""

    def __init__(self, table: Table, ledger: Ledger) -> None:
        self._table, self._ledger = table, ledger
        self._found: dict[int, Found] = {}
        self._last = 0
        self._forms: Forms = {}
        self._folds: OrderedDict[object, dict[Key, Fold | None]] = OrderedDict()
        self._bases: OrderedDict[tuple[object, ...], _Base] = OrderedDict()
        self._recalls: Recalls = OrderedDict()
        self._lock = threading.Lock()

    def recall(
        self,
        question: Question,
        *,
        version: int,
        as_of: int | None = None,
        pending: tuple[Sequence[Evidence], Sequence[Told]] | None = None,
        recalls: Recalls | None = None,
    ) -> Recall | None:
        """Return what is known about a question on a version of the data; None if that is too large a problem.

        `pending` would be released as well: then this is what would be known. It is kept in `recalls`, for questions
        on the same chart while the same is pending.
        """
        if question.groups * len(question.units) > MAX_ASKED or not shareable(question):
            return None
        found = self.found(version)
        if as_of is not None:
            found = found.until(as_of)
        if pending is not None:
            found = found.plus(*pending)
        chosen = _chosen(question, found)
        if chosen is None:
            return None
        now = as_of is None and pending is None
        kept = self._recalls if now else OrderedDict() if recalls is None else recalls
        chart = _chart(self._table, *chosen)
        brought = self._brought(found, *chosen)
        # What was folded for some axes tells less than it could tell on others.
        folded_on = () if brought.is_all else _written(chart.workspace.axes)
        W = chart.place(question, question.E.astype(float) * question.units[:, None, None])
        where = self._table.name, version, _written(chart.workspace.axes), chart.features
        key = (*where, brought.ids, tuple(each.ids for each in found.told))
        with self._lock:
            before = kept.get(key)
        if before is not None:
            return replace(before, W=W)
        base = self._base(brought, chart.features, key=(version, folded_on) if now else None)
        recall = _with_marginals(Recall(chart, tuple(sorted(base.ids)), _carried(base, chart), W), found.told)
        with self._lock:
            kept[key] = recall
            while now and len(kept) > KEPT_RECALLS:
                kept.popitem(last=False)
        return recall

    def found(self, version: int) -> Found:
        """Return what was released on a version of the data, after reading what is new in the ledger."""
        with self._lock:
            new: defaultdict[int, tuple[list[Evidence], list[Told]]] = defaultdict(lambda: ([], []))
            last, contents = self._ledger.contents(self._table.name, after=self._last)
            for content in contents:
                brought, told = new[content.version]
                if content.kind == "marginals" and (whole := symmetric.read(content, self._table)) is not None:
                    told.append(whole)
                if content.kind == "linear" and (linear := evidence(content, self._table, self._forms)) is not None:
                    brought.append(linear)
            for at, each in new.items():
                self._found[at] = self._found.get(at, Found()).plus(*each)
            self._last = last
            return self._found.get(version, Found())

    def told(self, version: int, *, as_of: int | None = None) -> list[Told]:
        """Return what was released about whole marginals, on a version of the data, in the order of release."""
        found = self.found(version) if as_of is None else self.found(version).until(as_of)
        plain = [pool.told for pool in found.pools.values() if pool.told is not None]
        return sorted((*found.told, *plain), key=lambda told: told.id)

    def fits(self, chart: Chart, version: int) -> bool:
        """Return whether all that was released can be brought onto a chart as it is."""
        found = self.found(version)
        return all(chart.fits(e) for e in found.evidence) and all(symmetric.is_small(told) for told in found.told)

    def is_symmetric(self, version: int) -> bool:
        """Return whether all that was released tells about whole marginals, and about nothing else."""
        return all(pool.told is not None for pool in self.found(version).pools.values())

    def _fold(self, key: Key, form: Evidence, axes: Axes) -> Fold | None:
        """Return how evidence of a form is summed onto axes that are not fine enough; remembered for later ones."""
        on = _written(axes.values())
        with self._lock:
            known = self._folds.setdefault(on, {})
            self._folds.move_to_end(on)
            while len(self._folds) > KEPT_FOLDS:
                self._folds.popitem(last=False)
        if not form.form:
            return fold(form, axes)
        if key not in known:
            known[key] = fold(form, axes)
        return known[key]

    def _base(self, brought: _Brought, features: tuple[Feature, ...], *, key: tuple[object, ...] | None) -> _Base:
        """Return what the releases tell, on a chart that is just fine enough for them.

        What was there the last time is kept under the key, for each choice of columns; None keeps nothing.
        """
        chart = _chart(self._table, brought.axes, features)
        kept = (key, frozenset(brought.axes), features)
        ids = brought.ids
        with self._lock:
            base = self._bases.get(kept) if key is not None else None
            if base is None or not base.ids <= ids or not chart.finer_than(base.chart):
                base = _Base(chart, frozenset(), nothing_known(chart.size))
            known = _carried(base, chart)
            for batch in _batches(
                _placed(chart, told) for p in brought.parts if (told := p.told(base.ids)) is not None
            ):
                known = known.with_rows(*batch)
            base = _Base(chart, ids, known)
            if key is not None:
                self._bases[kept] = base
                self._bases.move_to_end(kept)
                while len(self._bases) > KEPT_BASES:
                    self._bases.popitem(last=False)
            return base

    def bring(self, found: Found, axes: Axes, features: tuple[Feature, ...]) -> list[tuple[frozenset[int], Evidence]]:
        """Return what the releases tell on some axes and features, each with the numbers of those that it is from."""
        parts = [*self._brought(found, axes, features).parts]
        brought = [(part.pool.ids, told) for part in parts if (told := part.told(())) is not None]
        return brought + [(frozenset(each.ids), part) for each in found.told for part in symmetric.evidence(each, axes)]

    def _brought(self, found: Found, axes: Axes, features: tuple[Feature, ...]) -> _Brought:
        """Return what the releases tell on some axes and features."""
        if found.features <= set(features) and all(is_finer(axes.get(name), a) for name, a in found.axes.items()):
            return _Brought(tuple(_Part(pool, None) for pool in found.pools.values()), found.axes, is_all=True)
        parts = []
        for key, pool in found.pools.items():
            if set(pool.form.features) <= set(features):
                if covered(pool.form, axes):
                    parts.append(_Part(pool, None))
                elif (way := self._fold(key, pool.form, axes)) is not None:
                    parts.append(_Part(pool, way))
        return _Brought(tuple(parts), finest_axes([part.form for part in parts], {}), is_all=False)


def _with_marginals(recall: Recall, told: Sequence[Told]) -> Recall:
    """Return a recall with what is told about whole marginals of the columns of its chart."""
    axes = {axis.column: axis for axis in recall.chart.workspace.axes}
    brought = [(found, symmetric.evidence(found, axes)) for found in told]
    used = {number for found, parts in brought if parts for number in found.ids}
    releases = tuple(sorted({*recall.releases, *used}))
    return replace(recall.with_evidence([part for _, parts in brought for part in parts]), releases=releases)


def _carried(base: _Base, chart: Chart) -> Known:
    """Return what is known on a chart at least as fine as the base's."""
    if chart.same_as(base.chart):
        return base.known
    return nothing_known(chart.size).with_rows(chart.carry(base.known.rows, base.chart), base.known.outcome)


def _placed(chart: Chart, found: Evidence) -> tuple[Floats, Floats]:
    rows = chart.place(found, found.rows) * np.repeat(found.weight, len(found.rows))[:, None]
    return rows, found.y.ravel()


def _batches(placed: Iterable[tuple[Floats, Floats]]) -> Iterator[tuple[Floats, Floats]]:
    """Yield rows and what they told, many at a time: with_rows takes about as long for one."""
    rows, told = list[Floats](), list[Floats]()
    for B, y in placed:
        rows.append(B)
        told.append(y)
        if sum(map(len, told)) >= BATCH:
            yield np.vstack(rows), np.concatenate(told)
            rows, told = [], []
    if rows:
        yield np.vstack(rows), np.concatenate(told)


def small(answers: int, cells: int) -> bool:
    """Return whether that many plain counts on that many cells can be planned against the whole history."""
    return answers <= MAX_ASKED and cells <= MAX_POINTS


def _chart(table: Table, axes: Axes, features: tuple[Feature, ...]) -> Chart:
    return Chart(Workspace(table, tuple(axes[column] for column in sorted(axes))), features)


# --- what is brought ---------------------------------------------------------------------------------------


def _chosen(question: Question, found: Found) -> tuple[Axes, tuple[Feature, ...]] | None:
    """Return the axes and features of the chart for a question: all that was ever told apart, if that fits.

    Otherwise its own; then what the rounds need that it took part in; then what the releases need that share columns
    with these, in the order of release, while it fits. So a question is answered alike by every gate, and what it was
    told before it is told later. None if the question alone is too large.
    """
    finest, own = finest_axes([question], found.axes), frozenset(question.features)
    if chart_size(finest, own | found.features) <= MAX_POINTS:
        return finest, tuple(sorted(own | found.features))
    choice = _Choice(finest_axes([question], {}), own)
    if chart_size(choice.axes, choice.features) > MAX_POINTS:
        return None
    pools = sorted(found.pools.values(), key=lambda pool: pool.first)
    for pool in sorted(pools, key=lambda pool: question.digest not in pool.rounds):
        choice.offer(pool.form, needed=question.digest in pool.rounds)
    return choice.axes, tuple(sorted(choice.features))


class _Choice:
    """Axes and features while they grow."""

    def __init__(self, axes: Axes, features: frozenset[Feature]) -> None:
        self.axes, self.features = axes, features
        self._later: defaultdict[str, list[Evidence]] = defaultdict(list)

    def offer(self, found: Evidence, *, needed: bool = False) -> None:
        """Tell apart what a release does, as far as that fits; one that shares nothing yet waits until it does."""
        columns = found.columns.union(column for column, _ in found.features)
        if self._columns and not columns & self._columns and not needed:
            for column in columns:
                self._later[column].append(found)
            return
        before = self._columns
        finer = finest_axes([found], self.axes)
        fits = self._grown(finer, self.features.union(found.features))
        if not fits and found.groups > 1 and self.features.issuperset(found.features):
            for column in sorted(found.columns):  # a part of it tells something: groups are summed over the others
                self._grown({**self.axes, column: finer[column]}, self.features)
        for column in sorted(self._columns - before):
            for waiting in self._later.pop(column, []):
                self.offer(waiting)

    @property
    def _columns(self) -> frozenset[str]:
        return frozenset(self.axes).union(column for column, _ in self.features)

    def _grown(self, axes: Axes, features: frozenset[Feature]) -> bool:
        if chart_size(axes, features) > MAX_POINTS:
            return False
        self.axes, self.features = axes, features
        return True


def finest_axes(brought: Iterable[Evidence | Question | Workspace], axes: Axes) -> dict[str, Axis]:
    """Return for every column the coarsest axis that is fine enough for all that is brought, and for `axes`."""
    found = dict(axes)
    for one in brought:
        for axis in (one if isinstance(one, Workspace) else one.workspace).axes:
            known = found.get(axis.column)
            found[axis.column] = axis if known is None else known if is_finer(known, axis) else refined(known, axis)
    return found


def chart_size(axes: Axes, features: Collection[Feature]) -> int:
    """Return how many points a chart has: columns that are summed have two ends, unless all values are told apart."""
    ended = sum(not is_single(axes.get(column)) for column, _ in features)
    return math.prod(axis.size for axis in axes.values()) << ended


def is_single(axis: Axis | None) -> bool:
    """Return whether every atom of an axis is a single value."""
    return axis is not None and not axis.presence and axis.size == len(axis.atoms)
