"""Which chart a question gets: the same whether or not releases that can't fit any more are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from planner.basics.limits import MAX_POINTS
from planner.cells.workspace import Axis, Feature, Workspace
from planner.history.atlas import Choice
from planner.history.chart import Evidence, chart_size, finest_axes
from planner.policy.file import load
from planner.policy.table import Table

POLICY = """[budget]
epsilon = 1.0
delta = 1e-9
[tables.t]
source = "t.parquet"
[tables.t.columns]
a = { type = "integer", min = 0, max = 63 }
b = { type = "integer", min = 0, max = 31 }
c = { type = "integer", min = 0, max = 7 }
d = { type = "integer", min = 0, max = 3 }
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    path: Path = tmp_path_factory.mktemp("atlas") / "noisegate.toml"
    (path.parent / "t.parquet").touch()
    path.write_text(POLICY)
    return load(path).tables["t"]


def cut(table: Table, column: str, generator: np.random.Generator) -> Axis:
    """Return a column cut at random places, or into its values."""
    domain = table.columns[column].domain
    assert domain is not None
    starts = generator.random(domain.size) < generator.choice([0.05, 0.3, 1.0])
    _, first, atoms = np.unique(np.cumsum(starts), return_index=True, return_inverse=True)
    return Axis(column, domain, atoms.astype(np.int64), first.astype(np.int64))


def release(table: Table, generator: np.random.Generator) -> Evidence:
    columns = sorted(generator.choice(list("abcd"), size=generator.integers(1, 4), replace=False))
    workspace = Workspace(table, tuple(cut(table, str(column), generator) for column in columns))
    features: tuple[Feature, ...] = (("a", 1),) if generator.random() < 0.2 else ()
    cell = np.arange(workspace.cells)
    group = workspace.atom_of(cell, 0)
    rows = np.ones((1, 1, 1 + len(features)))
    ones = np.ones((int(group.max()) + 1, 1))
    return Evidence(
        id=1,
        question="",
        workspace=workspace,
        features=features,
        cell=cell,
        group=group,
        groups=len(ones),
        pattern=0 * cell,
        rows=rows,
        weight=ones[:, 0],
        y=ones,
    )


def plain(offers: list[Evidence], axes: Mapping[str, Axis]) -> tuple[dict[str, Axis], frozenset[Feature]]:
    """Return what is chosen by looking at every release in turn, whether or not it can still fit."""
    chosen, features, waiting = dict(axes), frozenset[Feature](), list[Evidence]()

    def grows(finer: dict[str, Axis], more: frozenset[Feature]) -> bool:
        nonlocal chosen, features
        if chart_size(finer, more) > MAX_POINTS:
            return False
        chosen, features = finer, more
        return True

    def offer(found: Evidence) -> None:
        nonlocal waiting
        mine = {*chosen, *(column for column, _ in features)}
        columns = {*found.columns, *(column for column, _ in found.features)}
        if not columns & mine:
            waiting.append(found)
            return
        finer = finest_axes([found], chosen)
        if not grows(finer, features.union(found.features)) and features.issuperset(found.features):
            for column in sorted(found.columns) if found.groups > 1 else ():
                grows({**chosen, column: finer[column]}, features)
        for column in sorted({*chosen, *(name for name, _ in features)} - mine):
            now = [each for each in waiting if column in columns_of(each)]
            waiting = [each for each in waiting if each not in now]
            for each in now:
                offer(each)

    for each in offers:
        offer(each)
    return chosen, features


def columns_of(found: Evidence) -> set[str]:
    return {*found.columns, *(column for column, _ in found.features)}


@pytest.mark.parametrize("seed", range(40))
def test_a_chart_is_what_it_would_be_if_every_release_were_looked_at(table: Table, seed: int) -> None:
    generator = np.random.default_rng(seed)
    offers = [release(table, generator) for _ in range(60)]
    first = {"a": cut(table, "a", generator)}
    found = Choice(first, frozenset())
    for each in offers:
        found.offer(each)
    axes, features = plain(offers, first)
    assert found.features == features
    assert chart_size(axes, features) <= MAX_POINTS
    assert {name: axis.atoms.tolist() for name, axis in found.axes.items()} == {
        name: axis.atoms.tolist() for name, axis in axes.items()
    }


def test_charts_do_get_full(table: Table) -> None:
    full = 0
    for seed in range(40):
        generator = np.random.default_rng(seed)
        found = Choice({"a": cut(table, "a", generator)}, frozenset())
        for _ in range(60):
            found.offer(release(table, generator))
        full += found._is_full
    assert full > 5
