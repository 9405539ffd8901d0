"""Charts: releases on other columns and other atoms are the same rows there, and what is folded is post-processing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from planner.cells.workspace import Axis, Workspace
from planner.history.chart import Chart, Evidence, _alike, _different, coarsened, fold, refined
from planner.policy.file import load
from planner.policy.table import Table

POLICY = """[budget]
epsilon = 1.0
delta = 1e-9
[tables.t]
source = "t.parquet"
[tables.t.columns]
a = { type = "integer", min = 0, max = 4 }
b = { type = "integer", min = 0, max = 3 }
m = { type = "integer", min = 0, max = 9 }
n = { type = "integer", min = 0, max = 9, nullable = true }
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path: Path = tmp_path_factory.mktemp("chart") / "noisegate.toml"
    (path.parent / "t.parquet").touch()
    path.write_text(POLICY)
    return load(path).tables["t"]


def axis(table: Table, column: str, labels: list[int]) -> Axis:
    domain = table.columns[column].domain
    assert domain is not None
    _, first, atoms = np.unique(labels, return_index=True, return_inverse=True)
    return Axis(column, domain, atoms.astype(np.int64), first.astype(np.int64))


labels_a = st.lists(st.integers(0, 3), min_size=5, max_size=5)
labels_b = st.lists(st.integers(0, 3), min_size=4, max_size=4)


def random_evidence(table: Table, one: Axis, other: Axis, seed: int, *, features: bool) -> Evidence:
    """Return a release with cells cut into random groups and patterns, or left out."""
    generator = np.random.default_rng(seed)
    workspace = Workspace(table, (one, other))
    cell = np.flatnonzero(generator.random(workspace.cells) < generator.choice([0.7, 1.0]))
    groups = int(generator.integers(1, 5))
    keyed = generator.random() < 0.5  # groups by the cells of one column, as GROUP BY makes them
    group = workspace.atom_of(cell, 1) % groups if keyed else generator.integers(0, groups, len(cell))
    pattern = generator.integers(0, 2, len(cell)) if generator.random() < 0.3 else np.zeros(len(cell), dtype=np.int64)
    r, names = 2, (("m", 1),) if features else ()
    rows = generator.normal(size=(r, 2, 1 + len(names)))
    return Evidence(
        id=7,
        question="",
        workspace=workspace,
        features=names,
        cell=cell,
        group=group.astype(np.int64),
        groups=groups,
        pattern=pattern.astype(np.int64),
        rows=rows,
        weight=generator.uniform(0.5, 2, groups),
        y=generator.normal(size=(groups, r)),
    )


def placed(chart: Chart, found: Evidence) -> np.ndarray:
    return chart.place(found, found.rows) * np.repeat(found.weight, len(found.rows))[:, None]


def folded(found: Evidence, axes: dict[str, Axis]) -> Evidence | None:
    way = fold(found, axes)
    return None if way is None else way.of(found)


@given(labels_a, labels_b, labels_a, st.one_of(st.none(), labels_b), st.integers(0, 2**32), st.booleans())
def test_what_is_folded_is_an_orthonormal_mixture_of_what_was_released(
    table: Table, a: list[int], b: list[int], coarse: list[int], other: list[int] | None, seed: int, features: bool
) -> None:
    found = random_evidence(table, axis(table, "a", a), axis(table, "b", b), seed, features=features)
    axes = {"a": axis(table, "a", coarse)} | ({} if other is None else {"b": axis(table, "b", other)})
    part = folded(found, axes)
    if part is None:
        return
    fine = Chart(Workspace(table, (axis(table, "a", list(range(5))), axis(table, "b", list(range(4))))), found.features)
    before, after = placed(fine, found), placed(fine, part)
    mixing = np.linalg.lstsq(before.T, after.T, rcond=None)[0].T
    assert np.allclose(mixing @ before, after)
    if np.linalg.matrix_rank(before) == len(before):
        assert np.allclose(mixing @ mixing.T, np.eye(len(mixing)))
        assert np.allclose(mixing @ found.y.ravel(), part.y.ravel())
    small = Chart(Workspace(table, tuple(axes[name] for name in sorted(axes))), found.features)
    assert small.fits(part)
    assert np.allclose(fine.carry(placed(small, part), small), after)


def test_every_group_of_a_plain_grouping_is_folded_onto_a_coarser_one(table: Table) -> None:
    workspace = Workspace(table, (axis(table, "a", [0, 1, 2, 3, 4]), axis(table, "b", [0, 1, 2, 3])))
    every, zero = np.arange(20), np.zeros(20, dtype=np.int64)
    y = np.arange(20.0)[:, None]
    found = Evidence(
        id=1,
        question="",
        workspace=workspace,
        features=(),
        cell=every,
        group=every,
        groups=20,
        pattern=zero,
        rows=np.ones((1, 1, 1)),
        weight=np.ones(20),
        y=y,
    )
    part = folded(found, {"b": axis(table, "b", [0, 0, 1, 1])})
    assert part is not None
    assert part.groups == 2
    assert part.weight == pytest.approx([10**-0.5] * 2)
    sums = y.reshape(5, 2, 2).sum(axis=(0, 2))
    assert part.y.ravel() == pytest.approx(sums / 10**0.5)
    assert folded(found, {}) is not None


def test_a_filter_on_a_column_that_is_left_out_leaves_nothing(table: Table) -> None:
    workspace = Workspace(table, (axis(table, "a", [0, 0, 0, 1, 1]), axis(table, "b", [0, 1, 2, 3])))
    cell, group = np.arange(4), np.arange(4)  # a < 3, by b
    zero = np.zeros(4, dtype=np.int64)
    found = Evidence(
        id=1,
        question="",
        workspace=workspace,
        features=(),
        cell=cell,
        group=group,
        groups=4,
        pattern=zero,
        rows=np.ones((1, 1, 1)),
        weight=np.ones(4),
        y=np.ones((4, 1)),
    )
    assert folded(found, {"b": workspace.axes[1]}) is None
    assert folded(found, {"a": workspace.axes[0]}) is not None


@given(labels_a, labels_a)
def test_refined_and_coarsened_axes_are_the_nearest_ones(table: Table, one: list[int], other: list[int]) -> None:
    left, right = axis(table, "a", one), axis(table, "a", other)
    fine, coarse = refined(left, right), coarsened(left, right)
    pairs = [(i, j) for i in range(5) for j in range(5)]
    assert all((fine.atoms[i] == fine.atoms[j]) == ((one[i], other[i]) == (one[j], other[j])) for i, j in pairs)
    linked = np.array([[one[i] == one[j] or other[i] == other[j] for j in range(5)] for i in range(5)])
    reach = np.linalg.matrix_power(linked.astype(int), 5) > 0
    atoms = coarse.atoms if coarse is not None else np.zeros(5, dtype=np.int64)
    assert all((atoms[i] == atoms[j]) == reach[i, j] for i, j in pairs)


def test_rows_are_released_as_integers_close_to_what_was_planned(table: Table) -> None:
    chart = Chart(Workspace(table, (axis(table, "a", [0, 0, 1, 1, 2]),)), (("m", 1),))
    generator = np.random.default_rng(1)
    coefficients = generator.normal(size=(3, 4, 2))  # cells, rows, features
    phi, cell = chart.points
    rows = np.einsum("prq,pq->rp", coefficients[cell], phi)
    made, measurement = chart.released(rows)
    back = chart.place(made, np.ldexp(measurement.rows(made).astype(float), -measurement.bits))
    assert np.abs(back - rows).max() < 1e-14


@given(rows=st.lists(st.lists(st.floats(-1, 1), min_size=6, max_size=6), min_size=1, max_size=3))
def test_rows_that_are_released_sum_nothing_where_a_column_is_null(table: Table, rows: list[list[float]]) -> None:
    """Both ends of the cell of NULL are one point; a solver may give it two values, which are no slope."""
    cut = axis(table, "n", [0] * 5 + [1] * 5 + [2])
    made, measurement = Chart(Workspace(table, (cut,)), (("n", 1),)).released(np.array([[1.0] * 6, *rows]))
    null = made.pattern[made.cell == 2]
    assert not np.any(measurement.rows(made)[:, null, 1:])


@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 6), st.integers(0, 4))
def test_rows_that_are_alike_are_numbered_as_numpy_does(seed: int, rows: int, width: int, values: int) -> None:
    found = np.random.default_rng(seed).integers(-1, values, (rows, width))
    found[0, 0] = 2**40  # more than a byte
    _, first, labels = np.unique(found, axis=0, return_index=True, return_inverse=True)
    mine = _alike(found)
    assert mine[0].tolist() == first.tolist()
    assert mine[1].tolist() == labels.ravel().tolist()


@given(st.integers(0, 2**31), st.integers(0, 30))
def test_combinations_are_found_once_each(seed: int, count: int) -> None:
    columns = np.random.default_rng(seed).integers(0, 3, (3, count))
    assert {*zip(*_different(*columns), strict=True)} == {*zip(*columns, strict=True)}
    assert len(_different(*columns)[0]) == len({*zip(*columns, strict=True)})


@given(labels_a, labels_a)
def test_the_finest_axis_that_is_coarser_than_both_links_what_either_leaves_together(
    table: Table, one: list[int], other: list[int]
) -> None:
    """Atoms are numbered in the order of the first atom in them, as they are in ledgers that were read before."""
    mine, theirs = axis(table, "a", one), axis(table, "a", other)
    size = mine.size + theirs.size
    links = coo_array((np.ones(5), (mine.atoms, mine.size + theirs.atoms)), shape=(size, size))
    count, label = connected_components(links, directed=False)
    found = coarsened(mine, theirs)
    if count == 1:
        assert found is None or found is mine
    else:
        assert found is not None
        assert found.atoms.tolist() == np.unique(label[mine.atoms], return_inverse=True)[1].tolist()
