"""What is kept stays within its bytes, and the least recently used is forgotten first."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from planner.basics.cache import ENTRY, BoundedCache, array_bytes

MOST = 10 * ENTRY


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 12 * ENTRY))))
def test_all_that_is_kept_stays_within_the_bound_but_for_a_single_value(puts: list[tuple[int, int]]) -> None:
    kept, sizes = BoundedCache[int](MOST), dict[int, int]()
    for number, (key, size) in enumerate(puts):
        kept.put(key, number, size)
        sizes[key] = size + ENTRY
        assert kept.get(key) == number
        there = [k for k in sizes if kept.get(k) is not None]
        assert kept.bytes == sum(sizes[k] for k in there)
        assert kept.bytes <= MOST or len(kept) == 1


def test_what_was_asked_for_last_is_forgotten_last() -> None:
    kept = BoundedCache[str](3 * ENTRY)
    for name in ("a", "b", "c"):
        kept.put(name, name, 0)
    assert kept.get("a") == "a"
    kept.put("d", "d", 0)
    assert [kept.get(name) for name in ("a", "b", "c", "d")] == ["a", None, "c", "d"]


def test_what_was_taken_out_is_not_there_and_takes_no_room() -> None:
    kept = BoundedCache[str](MOST)
    kept.put("a", "value", 5)
    assert kept.pop("a") == "value"
    assert (kept.pop("a"), kept.get("a"), kept.bytes, len(kept)) == (None, None, 0, 0)


def test_arrays_that_are_held_twice_are_counted_once() -> None:
    array = np.zeros(100)
    assert array_bytes(({"a": array}, [array, (array,)], "text", None)) == array.nbytes
