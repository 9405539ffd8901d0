"""What is known of a new question: everything that was released about its table, on one chart.

What is brought is decided from public things only: the columns and atoms of the question and of what was
released, never what the releases told.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from mechanisms.gaussian.known import Known, nothing_known
from mechanisms.least.minimax import even_join
from mechanisms.least.residual import join_to_targets, prices
from planner.basics.cache import BoundedCache, array_bytes
from planner.basics.limits import HISTORY_BYTES, MAX_ASKED, MAX_CHART_ENTRIES, MAX_EVEN, MAX_POINTS, SMALL_MARGINALS
from planner.cells.workspace import Axis, Feature, Floats, Workspace
from planner.history import marginals as symmetric
from planner.history.atlas import Axes, Choice, chosen
from planner.history.chart import (
    FORMS_BYTES,
    Brought,
    Chart,
    Evidence,
    Fold,
    Forms,
    Shelved,
    chart_size,
    coarsened,
    evidence,
    finest_axes,
    fold,
    is_finer,
    shareable,
    shelved,
)
from planner.history.marginals import MarginalEvidence
from planner.history.pool import Key, Pool, added_told, pooled
from planner.history.slices import Slices, surveyed
from planner.ledger.accounts import Content
from planner.ledger.kinds import Kind
from planner.ledger.snapshot import Snapshot
from planner.policy.table import Table
from planner.questions.linear import Question

WAY = 200
"""About how many bytes it takes to note in which way something is brought."""

BATCH = 256
"""Rows of releases that are added to what is known at a time."""


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

        Cells that have paid most are spared: the guarantee is the dearest cell's. Many answers are taken in pieces,
        each beyond what those before it will tell.
        """
        known, found = self.known, list[Floats]()
        for piece in range(self.pieces):
            W, c = self.W[piece :: self.pieces], targets[piece :: self.pieces]
            found.append(join_to_targets(known, W, c, weights=prices(known.profile)).rows)
            known = known.with_rows(found[-1], np.zeros(len(found[-1]))) if self.pieces > 1 else known
        return self._asked(np.vstack(found))

    @property
    def pieces(self) -> int:
        """Return into how many pieces the answers are cut."""
        return max(-(-len(self.W) // MAX_ASKED), 1)

    @property
    def variances(self) -> Floats:
        """Return the variance of every answer, inf for what is not known."""
        return self.known.variances(self.W)

    @property
    def is_apart(self) -> bool:
        """Return whether nothing that is known has to do with what is asked; of few answers, whether nothing is known.

        A few are joined with anything: that may charge all cells together less. For many that would take long.
        """
        known = self.known
        if not known.rank or len(self.W) <= SMALL_MARGINALS:
            return not known.rank
        return known.basis is not None and not (known.basis @ self.W.T).any()

    def evenly(self, targets: Floats) -> Floats | None:
        """Return the same so that the dearest cell pays least, as in a round; None if that is too large a problem."""
        if max(self.chart.size, len(self.W)) > MAX_EVEN:
            return None
        return self._asked(even_join(self.known, self.W, targets).rows)

    def _asked(self, rows: Floats) -> Floats:
        """Return rows without what leaves the span of what is known and asked by rounding.

        That would open directions that are hardly known at all.
        """
        basis = self.known.with_rows(self.W, np.zeros(len(self.W))).basis
        return rows if basis is None else rows @ basis.T @ basis

    def dearest(self, new: Evidence) -> float:
        """Return what the dearest cell will have paid for all that is known here, once more is released."""
        return float((self.known.profile + np.square(self.rows(new)).sum(axis=0)).max())


Recalls = OrderedDict[tuple[object, ...], Recall]
"""By table, chart and what is brought to it, what is known."""


@dataclass(frozen=True, eq=False)
class Releases:
    """Releases in pools, with the axes and features that are fine enough for all of them."""

    pools: Mapping[Key, Pool] = field(default_factory=dict)
    axes: Axes = field(default_factory=dict)
    features: frozenset[Feature] = frozenset()
    marginals: Mapping[object, tuple[MarginalEvidence, ...]] = field(
        default_factory=dict
    )  # brought to any chart, however coarse
    rounds: frozenset[str] = frozenset()  # digests of the questions of rounds that something was released for

    @cached_property
    def told(self) -> tuple[MarginalEvidence, ...]:
        """Return what releases of marginals tell about them."""
        return tuple(map(added_told, self.marginals.values()))

    @property
    def evidence(self) -> list[Brought]:
        """Return one release of each form."""
        return [pool.form for pool in self.pools.values()]

    @property
    def count(self) -> int:
        return sum(len(pool.members) for pool in self.pools.values())

    def plus(self, more: Sequence[Brought], told: Sequence[MarginalEvidence] = ()) -> Releases:
        pools = pooled(self.pools, more)
        forms = [pool.form for key, pool in pools.items() if key not in self.pools]
        features = self.features.union(*(e.features for e in forms))
        marginals = dict(self.marginals)
        for found in told:
            marginals[_parts(found)] = (*marginals.get(_parts(found), ()), found)
        rounds = self.rounds.union(*(found.also for found in more))
        return Releases(pools, finest_axes(forms, self.axes), features, marginals, rounds)

    def until(self, last: int) -> Releases:
        """Return what was released up to a release."""
        members = [m for pool in self.pools.values() if (part := pool.until(last)) is not None for m in part.members]
        told = [found for each in self.marginals.values() for found in each if found.id <= last]
        return Releases().plus(sorted(members, key=lambda member: member.id), told)


def _parts(found: MarginalEvidence) -> object:
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
class _Contributions:
    """What the releases tell on some axes and features."""

    parts: tuple[_Part, ...]
    axes: Axes
    is_all: bool

    @cached_property
    def ids(self) -> frozenset[int]:
        return frozenset().union(*(part.pool.ids for part in self.parts))


@dataclass(frozen=True, eq=False)
class _Ways:
    """In which way each of the pools that were seen is brought onto some axes, and the axes that these need."""

    seen: int = 0
    ways: Mapping[Key, Fold | None] = field(default_factory=dict)
    axes: Axes = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class _Base:
    """What is known on a chart that is fine enough for the releases with these numbers."""

    chart: Chart
    ids: frozenset[int]
    known: Known


class History:
    """Everything linear that was released about one table. Threads may share it."""

    def __init__(self, table: Table, content: Callable[[int], Content], kept: BoundedCache[Any] | None = None) -> None:
        """Begin with nothing; keep what is worked out, with other histories or alone.

        Args:
            content: reads a release from the ledger, by its number.
        """
        self._table, self._content = table, content
        self._found: dict[int, Releases] = {}
        self._last = 0
        self._forms = Forms(FORMS_BYTES)
        self._axes: dict[tuple[str, bytes], Axis] = {}  # the same for all releases that cut a column alike
        self._kept = BoundedCache[Any](HISTORY_BYTES) if kept is None else kept
        self._lock = threading.Lock()

    def recall(
        self,
        question: Question,
        *,
        version: int,
        as_of: int | None = None,
        pending: tuple[Sequence[Evidence], Sequence[MarginalEvidence]] | None = None,
        recalls: Recalls | None = None,
        most: int = MAX_ASKED,
    ) -> Recall | None:
        """Return what is known about a question on a version of the data; None if that is too large a problem.

        `pending` would be released as well: then this is what would be known. It is kept in `recalls`, for questions
        on the same chart while the same is pending. `most` is how many answers the question may have.
        """
        answers = question.groups * len(question.units)
        if answers > most or not shareable(question):
            return None
        found = self.found(version)
        if as_of is not None:
            found = found.until(as_of)
        if pending is not None:
            found = found.plus(*pending)
        now = as_of is None and pending is None
        choice = self._chosen(question, found, version if now else None)
        if choice is None:
            return None
        chart = _chart(self._table, *choice)
        if answers > MAX_ASKED and answers * chart.size > MAX_CHART_ENTRIES:
            return None
        brought = self._brought(found, *choice, version=version if now else None)
        W = chart.place(question, question.E.astype(float) * question.units[:, None, None])
        where = self._table.name, version, _written(chart.workspace.axes), chart.features
        told = brought.ids, tuple(each.ids for each in found.told)
        before = self._recalled(where, told) if now else None if recalls is None else recalls.get((*where, told))
        if before is not None:
            return replace(before, W=W)
        # What was folded for some axes tells less than it could tell on others.
        folded_on = () if brought.is_all else where[2]
        base = self._base(brought, chart.features, key=(version, folded_on) if now else None)
        recall = _with_marginals(Recall(chart, tuple(sorted(base.ids)), _carried(base, chart), W), found.told)
        if now:
            nothing = replace(recall, W=np.zeros((0, chart.size)))
            self._kept.put(("recall", *where), (told, nothing), array_bytes(recall.known))
        elif recalls is not None:
            recalls[*where, told] = recall
        return recall

    def survey(self, question: Question, *, version: int, as_of: int | None = None) -> Slices | None:
        """Return what is known about a question slice by slice; None if it can't be cut so."""
        if not shareable(question) or question.groups * len(question.units) ** 2 > MAX_CHART_ENTRIES // 4:
            return None
        found = self.found(version)
        if as_of is not None:
            found = found.until(as_of)
        slices = surveyed(question, _summed(found))
        own = {m.id for pool in found.pools.values() for m in pool.members if m.question == question.digest}
        if slices is None or not slices.is_divided or not own:
            return slices
        # Of those groups that are not divided its own releases would be told twice.
        return surveyed(question, _summed(found, without=own))

    def _recalled(self, where: tuple[object, ...], told: object) -> Recall | None:
        """Return what was known on a chart the last time, if nothing else is told by now."""
        kept: tuple[object, Recall] | None = self._kept.get(("recall", *where))
        return kept[1] if kept is not None and kept[0] == told else None

    def _chosen(
        self, question: Question, found: Releases, version: int | None
    ) -> tuple[Axes, tuple[Feature, ...]] | None:
        """Return the axes and features of the chart for a question: all that was ever told apart, if that fits.

        What was chosen for it before is kept, and goes on from there; None for the version keeps nothing.
        """
        finest, features = finest_axes([question], found.axes), found.features.union(question.features)
        if chart_size(finest, features) <= MAX_POINTS:
            return finest, tuple(sorted(features))
        is_plain = version is not None and question.digest not in found.rounds
        key = "choice", self._table.name, version, question.digest
        before: Choice | None = self._kept.get(key) if is_plain else None
        if before is not None and before.offered <= len(found.pools):
            choice: Choice | None = before.resumed(found.pools.values())
        else:
            choice = chosen(question, found.pools.values())
        if choice is None:
            return None
        if is_plain and (before is None or choice.offered > before.offered):
            self._kept.put(key, choice, array_bytes(choice.axes))
        return choice.axes, tuple(sorted(choice.features))

    @property
    def last(self) -> int:
        """Return up to which release this was read."""
        return self._last

    def found(self, version: int) -> Releases:
        """Return what was released on a version of the data, as far as it was read."""
        return self._found.get(version, Releases())

    def read(self, snapshot: Snapshot) -> History:
        """Return the history after reading on, up to a moment of the ledger."""
        with self._lock:
            new: defaultdict[int, tuple[list[Brought], list[MarginalEvidence]]] = defaultdict(lambda: ([], []))
            for content in snapshot.contents(self._table.name, after=self._last):
                brought, told = new[content.version]
                if content.kind == Kind.MARGINALS and (whole := symmetric.read(content, self._table)) is not None:
                    told.append(whole)
                if content.kind == Kind.LINEAR and (linear := self._shelved(content)) is not None:
                    brought.append(linear)
            for at, each in new.items():
                self._found[at] = self._found.get(at, Releases()).plus(*each)
            self._last = max(self._last, snapshot.last)
            return self

    def _shelved(self, content: Content) -> Shelved | None:
        """Return what a release speaks of; what it told is read once more when it is brought somewhere."""
        number, found = content.id, evidence(content, self._table, self._forms)
        if found is None:
            return None
        self._kept.put(("evidence", self._table.name, number), found, found.nbytes)
        axes = tuple(self._axes.setdefault((axis.key, axis.atoms.tobytes()), axis) for axis in found.workspace.axes)
        found = replace(found, workspace=Workspace(self._table, axes))
        return shelved(found, lambda: self._loaded(number))

    def _loaded(self, number: int) -> Evidence:
        key = "evidence", self._table.name, number
        found: Evidence | None = self._kept.get(key)
        if found is None:
            found = evidence(self._content(number), self._table, self._forms)
            assert found is not None, "it could be shared when it was first read"
            self._kept.put(key, found, found.nbytes)
        return found

    def told(self, version: int, *, as_of: int | None = None) -> list[MarginalEvidence]:
        """Return what was released about whole marginals, on a version of the data, in the order of release."""
        found = self.found(version) if as_of is None else self.found(version).until(as_of)
        plain = [pool.told for pool in found.pools.values() if pool.told is not None]
        return sorted((*found.told, *plain), key=lambda told: told.id)

    def fits(self, chart: Chart, version: int) -> bool:
        """Return whether all that was released can be brought onto a chart as it is."""
        found = self.found(version)
        return all(chart.fits(e) for e in found.evidence) and all(symmetric.is_small(told) for told in found.told)

    def is_empty(self, version: int) -> bool:
        """Return whether nothing was released on a version of the data that could be brought to a question."""
        found = self.found(version)
        return not found.pools and not found.marginals

    def is_symmetric(self, version: int) -> bool:
        """Return whether all that was released tells about whole marginals, and about nothing else."""
        return all(pool.told is not None for pool in self.found(version).pools.values())

    def _fold(self, key: Key, form: Brought, coarser: Axes) -> Fold | None:
        """Return how evidence of a form is summed onto coarser axes of its columns; remembered for later ones."""
        if not form.form:
            return fold(form.whole, coarser)
        kept = "fold", self._table.name, key, _written(coarser.values())
        known: tuple[Fold | None] | None = self._kept.get(kept)
        if known is None:
            known = (fold(form.whole, coarser),)
            self._kept.put(kept, known, array_bytes(known))
        return known[0]

    def _base(self, brought: _Contributions, features: tuple[Feature, ...], *, key: tuple[object, ...] | None) -> _Base:
        """Return what the releases tell, on a chart that is just fine enough for them.

        What was there the last time is kept under the key, for each choice of columns; None keeps nothing.
        """
        chart = _chart(self._table, brought.axes, features)
        kept = "base", self._table.name, key, frozenset(brought.axes), features
        base: _Base | None = self._kept.get(kept) if key is not None else None
        if base is None or not base.ids <= brought.ids or not chart.finer_than(base.chart):
            base = _Base(chart, frozenset(), nothing_known(chart.size))
        elif base.ids == brought.ids and chart.same_as(base.chart):
            return base
        known = _carried(base, chart)
        for batch in _batches(_placed(chart, told) for p in brought.parts if (told := p.told(base.ids)) is not None):
            known = known.with_rows(*batch)
        base = _Base(chart, brought.ids, known)
        if key is not None:
            self._kept.put(kept, base, array_bytes(known))
        return base

    def bring(
        self, found: Releases, axes: Axes, features: tuple[Feature, ...]
    ) -> list[tuple[frozenset[int], Evidence]]:
        """Return what the releases tell on some axes and features, each with the numbers of those that it is from."""
        parts = [*self._brought(found, axes, features).parts]
        brought = [(part.pool.ids, told) for part in parts if (told := part.told(())) is not None]
        return brought + [(frozenset(each.ids), part) for each in found.told for part in symmetric.evidence(each, axes)]

    def _brought(
        self, found: Releases, axes: Axes, features: tuple[Feature, ...], *, version: int | None = None
    ) -> _Contributions:
        """Return what the releases tell on some axes and features."""
        if found.features <= set(features) and all(is_finer(axes.get(name), a) for name, a in found.axes.items()):
            return _Contributions(tuple(_Part(pool, None) for pool in found.pools.values()), found.axes, is_all=True)
        ways = self._ways(found, axes, features, version)
        parts = tuple(_Part(found.pools[key], way) for key, way in ways.ways.items())
        return _Contributions(parts, ways.axes, is_all=False)

    def _ways(self, found: Releases, axes: Axes, features: tuple[Feature, ...], version: int | None) -> _Ways:
        """Return in which way each pool is brought; kept for a version, for what is released later to be added."""
        kept = "ways", self._table.name, version, _written(axes.values()), features
        before: _Ways = (self._kept.get(kept) if version is not None else None) or _Ways()
        if before.seen > len(found.pools):  # another thread has read on in the ledger by now
            before, version = _Ways(), None
        if before.seen == len(found.pools):
            return before
        ways, onto, forms = dict(before.ways), _Onto(axes), list[Workspace]()
        for key, pool in islice(found.pools.items(), before.seen, None):
            if set(pool.form.features) <= set(features):
                is_whole = onto.covers(pool.form)
                way = (
                    None if is_whole or _is_minimal(pool.form) else self._fold(key, pool.form, onto.coarser(pool.form))
                )
                if way is not None or is_whole:
                    ways[key] = way
                    forms.append(pool.form.workspace if way is None else way.workspace)
        after = _Ways(len(found.pools), ways, finest_axes(forms, before.axes))
        if version is not None:
            self._kept.put(kept, after, array_bytes(after) + WAY * len(ways))
        return after


class _Onto:
    """The axes of a question, and what they make of those of releases: these share many, and each is looked at once."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._covered: dict[int, tuple[Axis, bool]] = {}
        self._coarser: dict[int, tuple[Axis, Axis | None]] = {}

    def covers(self, found: Brought) -> bool:
        """Return whether the axes are fine enough for a release."""
        return all(self._covers(axis) for axis in found.workspace.axes)

    def _covers(self, axis: Axis) -> bool:
        if id(axis) not in self._covered:
            self._covered[id(axis)] = axis, is_finer(self._axes.get(axis.column), axis)
        return self._covered[id(axis)][1]

    def coarser(self, found: Brought) -> Axes:
        """Return the axes of a release, each as fine as these allow, without those that then tell nothing apart."""
        made = {}
        for axis in found.workspace.axes:
            if id(axis) not in self._coarser:
                self._coarser[id(axis)] = axis, coarsened(axis, self._axes.get(axis.column))
            if (coarse := self._coarser[id(axis)][1]) is not None:
                made[axis.column] = coarse
        return made


def _is_minimal(found: Brought) -> bool:
    """Return whether a release tells nothing on coarser axes: its one row depends on all that its own tell apart.

    When it was read, values that it treats alike were made one atom, unless they are summed.
    """
    return bool(found.form) and found.groups == 1 and not found.features


def _summed(found: Releases, *, without: Collection[int] = ()) -> list[tuple[frozenset[int], Evidence]]:
    """Return what pools and whole marginals tell, each with the numbers of its releases."""
    pools = [rest for pool in found.pools.values() if (rest := pool.without(without)) is not None]
    wholes = [(frozenset(told.ids), symmetric.whole(told)) for told in found.told]
    return [(pool.ids, pool.sum) for pool in pools] + [(ids, whole) for ids, whole in wholes if whole is not None]


def _with_marginals(recall: Recall, told: Sequence[MarginalEvidence]) -> Recall:
    """Return a recall with what is told about whole marginals of the columns of its chart."""
    axes = {axis.column: axis for axis in recall.chart.workspace.axes}
    brought = [(found, symmetric.evidence(found, axes, in_cells=True)) for found in told]
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
    """Return whether that many plain counts on that many cells are planned against the whole history at all times."""
    return answers <= SMALL_MARGINALS and cells <= MAX_POINTS


def recallable(answers: int, cells: int) -> bool:
    """Return whether that many plain counts on that many cells can be planned against the whole history."""
    return answers <= MAX_ASKED and cells <= MAX_POINTS


def _chart(table: Table, axes: Axes, features: tuple[Feature, ...]) -> Chart:
    return Chart(Workspace(table, tuple(axes[column] for column in sorted(axes))), features)
