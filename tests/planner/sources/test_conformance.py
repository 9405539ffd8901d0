"""Every engine returns the same integers: the same rows and workspaces on DuckDB, PostgreSQL and Spark."""

from __future__ import annotations

import datetime as dt
import hashlib
import random
from collections.abc import Iterator
from contextlib import closing, nullcontext
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from planner.cells.workspace import Axis, Feature, Workspace
from planner.counting.tally import Cut
from planner.duck.quoting import literal, quoted
from planner.duck.reader import Indexed, Reader
from planner.policy.domain import Domain
from planner.policy.table import Table
from planner.sources.measure import _cells_of, _rolled_up
from planner.sources.source import Source, open_source
from tests.planner import engines
from tests.planner.engines import WORDS, grid, table
from tests.proxy.postgres import running

ROWS = 400
HOUR, MINUTE, MICROSECOND = dt.timedelta(hours=1), dt.timedelta(minutes=1), dt.timedelta(microseconds=1)

LISTS = {
    "small": Domain(type="integer", values=(0, 1, -1, 5), nullable=True),
    "count": Domain(type="text", values=("0", "17", "-3"), other="else", nullable=True),
    "word": Domain(type="text", values=tuple(WORDS[:20]), nullable=True),
    "flag": Domain(type="boolean", values=(True, False), nullable=True),
    "day": Domain(type="date", values=(dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(2024, 1, 5)), nullable=True),
    "price": Domain(type="integer", values=(0, 1, 2, 3, 4, -3), nullable=True),
    "weight": Domain(type="integer", values=(0, 1, 2, 3, 4, -2, -3), nullable=True),
}
DROPPING = {
    "word": Domain(type="text", values=("F", "M", "é", " F")),
    "flag": Domain(type="boolean", values=(False, True)),
    "count": grid("integer", 0, 100, 1),
    "day": grid("date", dt.date(2024, 1, 1), dt.date(2024, 3, 31), 7),
}
OTHERS = {
    "word": Domain(type="text", values=("F", "\\n", "100%", "it's", *(f"w{i}" for i in range(70))), other="else"),
    "big": grid("integer", -500, 500, 10, nullable=True),
    "price": grid("float", Decimal("-5"), Decimal("5"), Decimal("0.01"), nullable=True),
    "instant": grid("timestamp", dt.datetime(2024, 3, 30), dt.datetime(2024, 4, 1), HOUR, nullable=True),
}
GRIDS = {
    "small": grid("integer", -6, 6, 3, nullable=True),
    "count": grid("integer", -7, 113, 5, nullable=True),
    "big": grid("integer", -(2**59), 2**59, 1, nullable=True),
    "price": grid("float", Decimal("-0.5"), Decimal("2.5"), Decimal("0.05"), nullable=True),
    "weight": grid("float", Decimal("-2"), Decimal("3"), Decimal("0.1"), nullable=True),
    "short": grid("float", Decimal("-1"), Decimal("1"), Decimal("0.25"), nullable=True),
    "day": grid("date", dt.date(2024, 1, 3), dt.date(2024, 2, 29), 1, nullable=True),
    "moment": grid("timestamp", dt.datetime(2024, 3, 30), dt.datetime(2024, 4, 1), 15 * MINUTE, nullable=True),
    "instant": grid("date", dt.date(2024, 3, 25), dt.date(2024, 4, 5), 1, nullable=True),
}
WIDE = {
    "big": grid("integer", -(2**63), 2**63 - 8, 8, nullable=True),
    "count": grid("float", Decimal("-100"), Decimal("100"), Decimal("0.5"), nullable=True),
    "price": grid("integer", -3, 4, 1, nullable=True),
    "weight": grid("integer", -3, 2**60 - 4, 1, nullable=True),
    "short": grid("integer", -4, 4, 2, nullable=True),
    "day": grid("timestamp", dt.datetime(2024, 1, 1), dt.datetime(2024, 3, 1), 6 * HOUR, nullable=True),
    "moment": grid("date", dt.date(2024, 3, 28), dt.date(2024, 4, 4), 2, nullable=True),
    "instant": grid("timestamp", dt.datetime(1900, 1, 1), dt.datetime(2024, 4, 1), MICROSECOND, nullable=True),
}
VARIANTS = {"lists": LISTS, "dropping": DROPPING, "others": OTHERS, "grids": GRIDS, "wide": WIDE}
MANY = 40
"""How many workspaces are compared for each set of domains, and a quarter of them for each kind of unit: 350 in all."""


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file with the rows, which DuckDB reads."""
    file = tmp_path_factory.mktemp("conformance") / "people.parquet"
    engines.write_parquet(file, engines.rows(ROWS, seed=7))
    return file


@pytest.fixture(scope="module", params=["postgres", "spark"])
def other(request: pytest.FixtureRequest, parquet: Path) -> Iterator[str]:
    """Return the same rows on another engine; in another order where it keeps one."""
    if request.param == "spark":
        yield engines.spark_source(f"parquet.`{parquet}`")
        return
    with running() as server:
        yield engines.write_postgres(server, "people", engines.rows(ROWS, seed=7)[::-1])


def axis(column: str, domain: Domain, draw: random.Random) -> Axis:
    """Return a column cut into all its values, some ranges, or anything."""
    if not domain.enumerable:
        atoms = np.arange(1 + domain.nullable)
        return Axis(column, domain, atoms, atoms, presence=True)
    cells = domain.cells
    match draw.randrange(3):
        case 0:
            labels = np.arange(cells)
        case 1:
            ends = sorted(draw.sample(range(cells), min(cells, draw.randrange(1, 9))))
            labels = np.searchsorted(ends, np.arange(cells))
        case _:
            labels = np.array([draw.randrange(5) for _ in range(cells)])
    _, first, atoms = np.unique(labels, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return Axis(column, domain, rank[atoms].astype(np.int64), first[order].astype(np.int64))


def workspace(found: Table, draw: random.Random) -> tuple[Workspace, tuple[Feature, ...]]:
    """Return some columns cut somehow, with at most 20,000 cells, and some sums."""
    domains = {name: column.domain for name, column in found.columns.items() if column.domain}
    axes: list[Axis] = []
    for name in draw.sample(list(domains), draw.randrange(min(4, len(domains)) + 1)):
        extra = axis(name, domains[name], draw)
        if np.prod([a.size for a in [*axes, extra]]) <= 20_000:
            axes.append(extra)
    summed = [name for name, domain in domains.items() if domain.numeric and domain.ordered and domain.size < 2**61]
    features = [(name, power) for name in summed for power in (1, 2) if draw.random() < 0.3]
    small = tuple((name, power) for name, power in features if power * domains[name].size.bit_length() < 120)
    return Workspace(found, tuple(axes)), small


UNITS = {
    "rows": {},
    "text": {"unit": "who", "max_rows_per_unit": 4, "row_key": "key"},
    "number": {"unit": "number", "max_rows_per_unit": 2, "row_key": "word"},
    "ties": {"unit": "who", "max_rows_per_unit": 3, "row_key": "day_of_key"},
}


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_engine_returns_the_same_vectors(parquet: Path, other: str, variant: str, unit: str) -> None:
    tables = [table(source, VARIANTS[variant], **UNITS[unit]) for source in (str(parquet), other)]
    with closing(open_source(tables[0])) as ours, closing(open_source(tables[1])) as theirs:
        draw, seen = random.Random(f"{variant} {unit}"), 0
        for _ in range(MANY if unit == "rows" else MANY // 4):
            space, features = workspace(tables[0], draw)
            expected = vector(ours, space, features)
            assert vector(theirs, space, features) == expected, (space.axes, features)
            seen += sum(row[0] for row in expected)
            assert not_held(ours, space, features) == expected
            parts = pieces(ours, space, features, seed := draw.random())
            assert parts == pieces(theirs, space, features, seed)
            assert all(list(map(sum, zip(*rows, strict=True))) == expected[cell] for cell, rows in parts.items())
            if unit != "rows":
                group = np.array([draw.randrange(6) for _ in range(space.cells)])
                assert units(theirs, space, group) == units(ours, space, group), space.axes
        assert seen


def test_the_kept_rows_of_a_unit_are_those_with_the_smallest_stated_hash(parquet: Path, other: str) -> None:
    domain, kept = grid("integer", 0, ROWS, 1), np.zeros(ROWS + 1, dtype=np.int64)
    units: dict[str, list[int]] = {}
    for row in engines.rows(ROWS, seed=7):
        if row["who"] is not None:
            units.setdefault(row["who"], []).append(row["key"])
    for who, keys in units.items():
        keys.sort(key=lambda key: hashlib.md5(f"noisegate|{who}|{key}".encode()).hexdigest())
        np.add.at(kept, keys[:4], 1)
    for source in (str(parquet), other):
        found = table(source, {"key": domain}, unit="who", max_rows_per_unit=4, row_key="key")
        atoms = np.arange(domain.cells)
        space = Workspace(found, (Axis("key", domain, atoms, atoms),))
        with closing(open_source(found)) as opened:
            assert vector(opened, space, ()) == kept[:, None].tolist()


def vector(source: Source, space: Workspace, features: tuple[Feature, ...]) -> list[list[int]]:
    """Return the vector of rows that are held: what is found out about them once serves from then on."""
    with source.reading():
        return not_held(source, space, features)


def not_held(source: Source, space: Workspace, features: tuple[Feature, ...]) -> list[list[int]]:
    """Return the vector of rows of which nothing is known."""
    found: list[list[int]] = _rolled_up(source.tally(space.axes, features), space, features).tolist()
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_stored_as_indices_tell_the_same(parquet: Path, variant: str) -> None:
    """Synthetic tables are read so."""
    found, file = table(str(parquet), VARIANTS[variant]), literal(str(parquet))
    domains = {name: column.domain for name, column in found.columns.items() if column.domain}
    with closing(open_source(found)) as ours, duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        plain = Reader(found, connection, f"read_parquet({file})")
        columns = ", ".join(f"{plain.index(name, domain)} AS {quoted(name)}" for name, domain in domains.items())
        tests = " AND ".join(plain.inside(name, domain) or "true" for name, domain in domains.items())
        connection.execute(f"CREATE TABLE stored AS SELECT {columns} FROM read_parquet({file}) WHERE {tests}")
        theirs, draw = Indexed(found, connection, "stored", conformed=True), random.Random(variant)
        for _ in range(40):
            space, features = workspace(found, draw)
            assert not_held(theirs, space, features) == vector(ours, space, features), (space.axes, features)
            seed = draw.random()
            assert pieces(theirs, space, features, seed) == pieces(ours, space, features, seed)


def pieces(source: Source, space: Workspace, features: tuple[Feature, ...], seed: float) -> dict[int, list[list[int]]]:
    """Return counts and sums in some of the cells, range by range of a column that is summed, if one is."""
    draw = random.Random(seed)
    wanted = [np.array(sorted(draw.sample(range(a.size), draw.randrange(1, a.size + 1)))) for a in space.axes]
    cut = None
    if features:
        domain = space.table.columns[features[0][0]].domain
        assert domain is not None
        cut = Cut(features[0][0], tuple(sorted({draw.randrange(1, domain.size + 1) for _ in range(9)})))
    with source.reading() if hasattr(source, "reading") else nullcontext():
        tally = source.tally(space.axes, features, cut, wanted)
    ranges = np.zeros(len(tally.codes)) if tally.ranges is None else tally.ranges
    found: dict[tuple[int, int], list[int]] = {}
    for cell, number, sums in zip(_cells_of(tally, space).tolist(), ranges.tolist(), tally.sums.tolist(), strict=True):
        if all(space.atom_of(np.array(cell), i) in atoms for i, atoms in enumerate(wanted)):
            before = found.get((cell, number), [0] * len(sums))
            found[cell, number] = [a + int(b) for a, b in zip(before, sums, strict=True)]
    grouped: dict[int, list[list[int]]] = {}
    for (cell, _), sums in sorted(found.items()):
        grouped.setdefault(cell, []).append(sums)
    return grouped


def units(source: Source, space: Workspace, group: np.ndarray[Any, Any]) -> list[int]:
    with source.reading():
        found: list[int] = source.units(space, cell=np.arange(space.cells), group=group, groups=6).tolist()
    return found
