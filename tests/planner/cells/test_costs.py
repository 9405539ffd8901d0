"""Costs on cells: the dearest cell equals brute force over the product, and is never less than the truth."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.cells.costs import (
    Cost,
    Spending,
    constant,
    dearest,
    from_bytes,
    rho_of,
    simplified,
    to_bytes,
    to_units,
    to_units_down,
)

SIZES = {"age": 4, "job": 3, "race": 3, "sex": 2}
SAFE = 2**62


@st.composite
def costs(draw: st.DrawFn, highest: int = 20) -> Cost:
    """Any cost on some columns of SIZES, in any column order, also with atoms that no value is in."""
    scope = tuple(draw(st.lists(st.sampled_from(sorted(SIZES)), unique=True, max_size=3)))
    shape = [draw(st.integers(1, 3)) for _ in scope]
    partitions = [
        draw(st.lists(st.integers(0, atoms - 1), min_size=SIZES[column], max_size=SIZES[column]))
        for column, atoms in zip(scope, shape, strict=True)
    ]
    entries = int(np.prod(shape, dtype=int))
    values = draw(st.lists(st.integers(0, highest), min_size=entries, max_size=entries))
    return Cost(scope, tuple(map(np.array, partitions)), np.array(values).reshape(shape))


def on_every_cell(cost: Cost) -> dict[tuple[int, ...], int]:
    """The function written out on the product of all columns of SIZES."""
    columns = list(SIZES)
    written = {}
    for cell in itertools.product(*map(range, SIZES.values())):
        atoms = tuple(
            partition[cell[columns.index(column)]]
            for column, partition in zip(cost.scope, cost.partitions, strict=True)
        )
        written[cell] = int(cost.values[atoms])
    return written


def brute_force(history: list[Cost]) -> int:
    written = [on_every_cell(cost) for cost in history]
    return max(sum(table[cell] for table in written) for cell in itertools.product(*map(range, SIZES.values())))


def where(column: str, indices: list[int], units: int) -> Cost:
    """What `WHERE column IN (...)` costs."""
    partition = np.isin(np.arange(SIZES[column]), indices).astype(int)
    return Cost((column,), (partition,), np.array([0, units]))


@given(st.lists(costs(), max_size=8))
def test_dearest_equals_brute_force_over_the_product_domain(history: list[Cost]) -> None:
    assert dearest(history) == brute_force(history)
    assert dearest(map(simplified, history)) == brute_force(history)


@given(st.lists(costs(), max_size=8), st.integers(1, 12))
def test_dearest_is_never_less_than_the_truth_when_tables_are_too_small(history: list[Cost], limit: int) -> None:
    bound = dearest(history, limit=limit)
    assert brute_force(history) <= bound <= sum(cost.highest for cost in history)


def test_a_tiny_limit_does_give_a_bound_above_the_truth() -> None:
    history = [
        Cost(pair, (np.arange(SIZES[pair[0]]), np.arange(SIZES[pair[1]])), values)
        for pair, values in [
            (("age", "job"), np.eye(4, 3, dtype=int)),
            (("age", "race"), 1 - np.eye(4, 3, dtype=int)),
            (("job", "race"), np.eye(3, dtype=int)),
        ]
    ]
    assert dearest(history) == brute_force(history) == 2
    assert dearest(history, limit=1) == 3


@given(st.lists(costs(), max_size=6), st.integers(1, 40))
def test_spending_grows_one_release_at_a_time_and_leaves_the_former_one_as_it_was(
    history: list[Cost], limit: int
) -> None:
    spendings = [Spending(limit=limit)]
    for cost in history:
        spendings.append(spendings[-1].plus(cost))
    for count, spending in enumerate(spendings):
        assert spending.dearest == dearest(history[:count], limit=limit)


@given(st.lists(st.tuples(costs(), st.booleans()), max_size=8), st.integers(1, 40))
def test_the_bound_found_without_a_search_is_never_below_the_dearest_cell(
    history: list[tuple[Cost, bool]], limit: int
) -> None:
    spending = Spending(limit=limit)
    for number, (cost, is_sought) in enumerate(history, 1):
        spending = spending.plus(cost)
        truth = brute_force([cost for cost, _ in history[:number]])
        assert truth <= spending.bound <= sum(cost.highest for cost, _ in history[:number])
        if is_sought:
            assert truth <= spending.dearest == spending.bound


@given(st.lists(costs(highest=SAFE - 1), max_size=5), st.sampled_from([1, 6, 2**20]))
def test_sums_beyond_64_bits_do_not_wrap(history: list[Cost], limit: int) -> None:
    assert dearest(history, limit=limit) >= brute_force(history)


def test_sums_beyond_64_bits_are_exact_on_one_cell() -> None:
    most = SAFE - 1
    pair = Cost(("age", "sex"), (np.arange(4), np.arange(2)), np.array([[most, 0]] * 4))
    assert dearest([where("sex", [0], most)] * 5) == 5 * most
    assert dearest([where("sex", [0], most), pair, where("age", [1], most), pair, constant(most)]) == 5 * most


def test_disjoint_filters_cost_one_also_with_other_columns_between() -> None:
    women, men = where("sex", [0], 100), where("sex", [1], 100)
    assert dearest([women, men]) == 100
    between = [where("age", [0, 1], 7), constant(5), where("job", [2], 11)]
    assert dearest([women, *between, men]) == 100 + 7 + 5 + 11
    by_age_and_sex = Cost(("age", "sex"), (np.arange(4), np.arange(2)), np.full((4, 2), 3))
    assert dearest([women, by_age_and_sex, *between, men]) == 100 + 7 + 5 + 11 + 3


def test_overlapping_filters_add_up_on_their_overlap() -> None:
    assert dearest([where("age", [0, 1], 10), where("age", [1, 2], 10)]) == 20
    assert dearest([where("age", [0, 1], 10), where("age", [2], 15), where("age", [3], 12)]) == 15


def test_nothing_released_costs_nothing() -> None:
    assert dearest([]) == 0
    assert Spending().plus(constant(0)).dearest == 0


@given(costs())
def test_simplified_is_the_same_function_and_keeps_nothing_needless(cost: Cost) -> None:
    simple = simplified(cost)
    assert on_every_cell(simple) == on_every_cell(cost)
    assert list(simple.scope) == sorted(simple.scope)
    assert simple.highest == max(on_every_cell(cost).values())
    for axis, partition in enumerate(simple.partitions):
        slices = {row.tobytes() for row in np.moveaxis(simple.values, axis, 0)}
        assert len(slices) == simple.values.shape[axis] == len(set(partition.tolist())) > 1


@given(costs())
def test_equal_functions_become_equal_costs(cost: Cost) -> None:
    columns = list(reversed(range(len(cost.scope))))
    turned = Cost(
        tuple(cost.scope[axis] for axis in columns),
        tuple(cost.values.shape[axis] - 1 - cost.partitions[axis] for axis in columns),
        np.flip(cost.values).transpose(columns),
    )
    assert simplified(turned) == simplified(cost)
    assert hash(simplified(turned)) == hash(simplified(cost))
    assert to_bytes(simplified(turned)) == to_bytes(simplified(cost))


@given(costs(highest=SAFE - 1))
def test_bytes_give_the_cost_back(cost: Cost) -> None:
    assert from_bytes(to_bytes(cost)) == cost


def test_a_range_of_a_million_values_takes_few_bytes() -> None:
    partition = np.zeros(1_000_000, dtype=int)
    partition[300_000:400_000] = 1
    cost = Cost(("income",), (partition,), np.array([0, 9]))
    assert len(to_bytes(cost)) < 200
    assert from_bytes(to_bytes(cost)) == cost


@pytest.mark.parametrize("encoded", [b"", b"text", to_bytes(constant(3))[:-4]])
def test_bytes_that_encode_no_cost_are_refused(encoded: bytes) -> None:
    with pytest.raises(ValueError, match="do not encode a cost"):
        from_bytes(encoded)


@pytest.mark.parametrize(
    ("scope", "partitions", "values"),
    [
        (("sex", "sex"), ([0, 1], [0, 1]), [[1, 2], [3, 4]]),
        (("sex",), (), [1, 2]),
        (("sex",), ([0, 1],), [[1, 2], [3, 4]]),
        (("sex",), ([0, 2],), [1, 2]),
        (("sex",), ([0, -1],), [1, 2]),
        (("sex",), (np.array([], dtype=int),), [1, 2]),
        (("sex",), ([0, 1],), [1, -2]),
        (("sex",), ([0, 1],), [1, SAFE]),
        (("sex",), ([0, 1],), [1.0, 2.0]),
    ],
)
def test_what_is_no_cost_is_refused(scope: tuple[str, ...], partitions: tuple[object, ...], values: object) -> None:
    with pytest.raises(ValueError, match=r"cost|partition"):
        Cost(scope, tuple(np.array(partition) for partition in partitions), np.array(values))


def test_a_column_can_not_change_its_domain_under_the_same_key() -> None:
    spending = Spending().plus(where("sex", [0], 1))
    with pytest.raises(ValueError, match="column sex has 2 values, a cost has 3"):
        spending.plus(Cost(("sex",), (np.array([0, 1, 1]),), np.array([0, 1])))


def test_a_cost_can_not_be_changed_from_outside() -> None:
    values = np.array([0, 5])
    cost = Cost(("sex",), (np.arange(2),), values)
    values[1] = 0
    assert cost.highest == 5
    with pytest.raises(ValueError, match="read-only"):
        cost.values[1] = 0


@given(st.fractions(min_value=0, max_value=4))
def test_charges_are_rounded_up_and_caps_down(rho: Fraction) -> None:
    assert to_units_down(rho) <= rho * 2**50 <= to_units(rho)
    assert 0 <= to_units(rho) - to_units_down(rho) <= 1
    assert to_units(rho_of(to_units(rho))) == to_units(rho) == to_units_down(rho_of(to_units(rho)))


def test_a_negative_rho_is_refused() -> None:
    for convert in (to_units, to_units_down):
        with pytest.raises(ValueError, match="must not be negative"):
            convert(Fraction(-1, 2))


def test_many_releases_on_many_columns_are_added_up_exactly() -> None:
    generator = np.random.default_rng(1)
    spending, total = Spending(), np.zeros(tuple(SIZES.values()), dtype=int)
    for _ in range(300):
        axes = sorted(generator.choice(4, size=2, replace=False))
        names = tuple(sorted(SIZES)[axis] for axis in axes)
        shape = [SIZES[name] for name in names]
        values = generator.integers(0, 2**40, size=shape)
        spending = spending.plus(Cost(names, tuple(np.arange(n) for n in shape), values))
        total = total + values.reshape([SIZES[n] if n in names else 1 for n in sorted(SIZES)])
    assert spending.dearest == total.max()
