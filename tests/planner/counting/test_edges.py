"""A value is before the edge of a cell exactly if its own cell comes before: in doubles, as engines compute it."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.counting.edges import edge
from planner.policy.domain import Domain
from tests.planner.engines import grid


@given(
    low=st.decimals(-1_000, 1_000, places=3),
    step=st.decimals(Decimal("0.001"), 7, places=3),
    size=st.integers(2, 400),
    part=st.floats(0, 1, exclude_min=True),
)
def test_a_float_edge_is_the_first_double_of_its_cell(low: Decimal, step: Decimal, size: int, part: float) -> None:
    domain, index = grid("float", low, low + step * (size - 1), step), math.ceil(part * (size - 1))
    first = edge(domain, index)
    assert isinstance(first, float)

    def cell(value: float) -> int:
        return math.floor((value - float(low)) / float(step) + 0.5)

    assert cell(first) == index
    assert cell(math.nextafter(first, -math.inf)) == index - 1


@pytest.mark.parametrize(
    ("domain", "first"),
    [
        (grid("integer", -7, 113, 5), -2),
        (grid("date", dt.date(2024, 2, 27), dt.date(2024, 3, 12), 7), dt.date(2024, 3, 5)),
        (
            grid("timestamp", dt.datetime(1, 1, 1), dt.datetime(1, 1, 2), dt.timedelta(minutes=90)),
            dt.datetime(1, 1, 1, 1, 30),
        ),
    ],
)
def test_other_edges_are_values_of_the_grid(domain: Domain, first: object) -> None:
    assert edge(domain, 1) == first


def test_a_grid_finer_than_doubles_has_cells_without_an_edge() -> None:
    assert edge(grid("float", Decimal(10**17), Decimal(10**17 + 4), Decimal(1)), 4) is None
