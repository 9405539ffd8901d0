"""The public domain of one column: numbering, sizes, fingerprints."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.basics.limits import MAX_VALUES
from planner.policy.domain import Domain, show_duration, whole_steps

AGE = Domain(type="integer", low=17, high=90, step=1)
SEX = Domain(type="text", values=("Female", "Male"))


def test_a_list_numbers_its_values_then_other_then_null() -> None:
    domain = Domain(type="text", values=("b", "a"), nullable=True, other="Other")
    assert (domain.size, domain.cells) == (3, 4)
    assert [domain.value(i) for i in range(4)] == ["b", "a", "Other", None]


def test_an_integer_grid_runs_from_low_to_high_in_steps() -> None:
    domain = Domain(type="integer", low=-4, high=4, step=2, nullable=True)
    assert [domain.value(i) for i in range(domain.cells)] == [-4, -2, 0, 2, 4, None]


def test_a_date_grid_steps_by_whole_days() -> None:
    domain = Domain(type="date", low=dt.date(2024, 2, 26), high=dt.date(2024, 3, 11), step=7)
    dates = [dt.date(2024, 2, 26), dt.date(2024, 3, 4), dt.date(2024, 3, 11)]
    assert [domain.value(i) for i in range(domain.cells)] == dates


def test_a_timestamp_grid_steps_by_its_duration() -> None:
    noon = dt.datetime(2024, 1, 1, 12)
    domain = Domain(type="timestamp", low=noon, high=noon + dt.timedelta(hours=1), step=dt.timedelta(minutes=15))
    assert domain.size == 5
    assert domain.value(3) == dt.datetime(2024, 1, 1, 12, 45)


@given(
    low=st.decimals(-(10**9), 10**9, places=4),
    step=st.decimals(Decimal("0.0001"), 1000, places=4),
    count=st.integers(0, 10**6),
    data=st.data(),
)
def test_a_float_grid_is_exact_and_its_values_are_the_nearest_doubles(
    low: Decimal, step: Decimal, count: int, data: st.DataObject
) -> None:
    domain = Domain(type="float", low=low, high=low + count * step, step=step)
    index = data.draw(st.integers(0, count))
    assert domain.size == count + 1
    assert domain.value(index) == float(Fraction(low) + index * Fraction(step))


def test_a_float_grid_is_not_rounded_at_the_precision_of_the_decimal_context() -> None:
    step = Decimal("1e-40")
    domain = Domain(type="float", low=Decimal(0), high=1000 * step + 0, step=step)
    assert domain.size == 1001
    assert not whole_steps(Decimal(1), Decimal("2.00000000000000000000000000000000001"), Decimal("0.1"))


@pytest.mark.parametrize("index", [-1, 74])
def test_an_index_outside_the_cells_raises(index: int) -> None:
    with pytest.raises(IndexError):
        AGE.value(index)


def test_ordered_and_numeric_tell_grids_and_numbers() -> None:
    assert (AGE.ordered, AGE.numeric) == (True, True)
    assert (SEX.ordered, SEX.numeric) == (False, False)
    assert not Domain(type="integer", values=(1, 3)).ordered


def test_a_domain_is_enumerable_up_to_the_limit() -> None:
    assert Domain(type="integer", low=1, high=MAX_VALUES, step=1).enumerable
    assert not Domain(type="integer", low=1, high=MAX_VALUES, step=1, nullable=True).enumerable


def test_every_type_has_a_duckdb_type() -> None:
    assert AGE.duckdb_type == "BIGINT"
    assert SEX.duckdb_type == "VARCHAR"


JANUARY = dt.datetime(2015, 1, 1)
FIRST, LAST = JANUARY.date(), dt.date(2015, 1, 8)


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (AGE, "17 … 90"),
        (SEX, "Female, Male"),
        (Domain(type="text", values=("a",), other="Other", nullable=True), "a, Other or NULL"),
        (Domain(type="boolean", values=(False, True)), "false, true"),
        (Domain(type="integer", low=0, high=100, step=5), "0 … 100 by 5"),
        (Domain(type="float", low=Decimal(0), high=Decimal("1e3"), step=Decimal("1e-2")), "0 … 1000 by 0.01"),
        (Domain(type="date", low=FIRST, high=LAST, step=1), "2015-01-01 … 2015-01-08"),
        (Domain(type="date", low=FIRST, high=LAST, step=7), "2015-01-01 … 2015-01-08 by 7 days"),
        (
            Domain(type="timestamp", low=JANUARY, high=JANUARY, step=dt.timedelta(hours=6)),
            "2015-01-01 00:00:00 … 2015-01-01 00:00:00 by 6 hours",
        ),
        (Domain(type="integer", values=tuple(range(22))), ", ".join(map(str, range(20))) + ", … (22 values)"),
    ],
)
def test_describe_is_short_and_says_the_bounds(domain: Domain, text: str) -> None:
    assert domain.describe() == text


def test_a_fingerprint_stands_for_the_meaning_of_the_cells() -> None:
    domains = [
        AGE,
        SEX,
        Domain(type="integer", low=17, high=90, step=1, nullable=True),
        Domain(type="integer", low=17, high=91, step=1),
        Domain(type="text", values=("Male", "Female")),
        Domain(type="text", values=("Female", "Male"), other="Other"),
        Domain(type="text", values=("Female", "Male", "Other")),
        Domain(type="text", values=("1",)),
        Domain(type="integer", values=(1,)),
        Domain(type="boolean", values=(True,)),
    ]
    assert len({domain.fingerprint for domain in domains}) == len(domains)
    assert all(len(domain.fingerprint) == 8 for domain in domains)


def test_a_fingerprint_does_not_depend_on_how_a_number_is_written() -> None:
    written = [("0.0", "1.00", "0.10"), ("0", "1", "0.1"), ("0e3", "1e0", "1e-1")]
    grids = [Domain(type="float", low=Decimal(a), high=Decimal(b), step=Decimal(c)) for a, b, c in written]
    assert len({grid.fingerprint for grid in grids}) == 1


def test_a_fingerprint_stays_what_it_is_between_versions() -> None:
    assert (AGE.fingerprint, SEX.fingerprint) == ("16d5543d", "7a301389")


def test_half_a_grid_and_a_list_with_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="low, high and step"):
        Domain(type="integer", low=1, step=1)
    with pytest.raises(ValueError, match="not both"):
        Domain(type="integer", values=(1,), low=1, high=1, step=1)
    with pytest.raises(ValueError, match="type must be one of"):
        Domain(type="money", values=(1,))


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (dt.timedelta(minutes=90), "90 minutes"),
        (dt.timedelta(days=1), "1 day"),
        (dt.timedelta(days=14), "2 weeks"),
        (dt.timedelta(microseconds=1500), "1500 microseconds"),
    ],
)
def test_a_duration_is_shown_in_the_largest_unit_that_fits(step: dt.timedelta, text: str) -> None:
    assert show_duration(step) == text
