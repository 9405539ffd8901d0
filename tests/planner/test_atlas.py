"""Which chart a question gets: the same whether or not releases that can't fit any more are looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from planner import atlas
from planner.atlas import Choice
from planner.chart import MAX_POINTS, Evidence, chart_size
from planner.policy import Table, load
from planner.workspace import Axis, Feature, Workspace

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
    return Evidence(1, "", workspace, features, cell, group, len(ones), 0 * cell, rows, ones[:, 0], ones)


def choice(table: Table, offers: list[Evidence], seed: int) -> Choice:
    first = cut(table, "a", np.random.default_rng(seed))
    found = Choice({"a": first}, frozenset())
    for each in offers:
        found.offer(each)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_full_chart_is_what_it_would_be_if_all_were_offered(
    table: Table, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(seed)
    offers = [release(table, generator) for _ in range(60)]
    quick = choice(table, offers, seed)
    monkeypatch.setattr(atlas, "_is_full", lambda *_: False)
    slow = choice(table, offers, seed)
    assert quick.features == slow.features
    assert chart_size(quick.axes, quick.features) == chart_size(slow.axes, slow.features) <= MAX_POINTS
    assert {name: axis.atoms.tolist() for name, axis in quick.axes.items()} == {
        name: axis.atoms.tolist() for name, axis in slow.axes.items()
    }


def test_charts_do_get_full(table: Table) -> None:
    generators = [np.random.default_rng(seed) for seed in range(20)]
    charts = [choice(table, [release(table, each) for _ in range(60)], 0) for each in generators]
    assert any(chart._is_full for chart in charts)
