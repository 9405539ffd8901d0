"""Rows that are kept column by column are the same rows, and the same bytes, as those kept one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.plans.result import Columns
from proxy.conversation import columnar
from proxy.wire import oids, rows
from proxy.wire.values import Format, encoder

KINDS: dict[int, tuple[str, st.SearchStrategy[Any]]] = {
    oids.INT2: ("i2", st.integers(-(2**15), 2**15 - 1)),
    oids.INT4: ("i4", st.integers(-(2**31), 2**31 - 1)),
    oids.INT8: ("i8", st.integers(-(2**63), 2**63 - 1)),
    oids.FLOAT4: ("f4", st.floats(width=32, allow_nan=False)),
    oids.FLOAT8: ("f8", st.floats(allow_nan=False) | st.floats(-1e6, 1e6)),
    oids.TEXT: ("O", st.text(st.characters(exclude_categories=["Cs"]), max_size=8)),
    oids.BOOL: ("?", st.booleans()),
}
FORMATS = pytest.mark.parametrize("form", list(Format), ids=["text", "binary"])


def array(values: list[Any], code: str) -> np.ndarray[Any, Any]:
    """Return a column as DuckDB gives it: masked if and only if it has a NULL."""
    if None not in values:
        return np.array(values, dtype=code)
    filled = np.array([(np.zeros(1, code)[0] if value is None else value) for value in values], dtype=code)
    return np.ma.MaskedArray(filled, mask=[value is None for value in values])


@FORMATS
@given(data=st.data())
def test_columns_are_the_bytes_of_their_rows(form: Format, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=5))
    count = data.draw(st.integers(1, 12))
    drawn = [data.draw(st.lists(st.none() | KINDS[kind][1], min_size=count, max_size=count)) for kind in kinds]
    found = Columns(tuple(array(values, KINDS[kind][0]) for values, kind in zip(drawn, kinds, strict=True)))
    each = list(zip(*drawn, strict=True))
    assert list(found) == each
    assert [found[i] for i in range(-count, count)] == each * 2
    assert list(found[1:][::-1]) == each[1:][::-1]
    encoders = [encoder(kind, form) for kind in kinds]
    assert columnar.data_rows(found, encoders) == rows.data_rows(each, encoders)


@FORMATS
def test_a_number_that_was_described_as_another_type_is_never_cut(form: Format) -> None:
    found = Columns((np.array([1, 2**40]),))
    encoders = [encoder(oids.INT8, form)]
    assert columnar.data_rows(found, encoders) == rows.data_rows([(1,), (2**40,)], encoders)
    if form is Format.BINARY:
        with pytest.raises(Exception, match="format requires"):
            columnar.data_rows(found, [encoder(oids.INT4, form)])


@pytest.mark.parametrize("text", ["x" * 5_000, "a\0b", ""])
def test_texts_of_unusual_length_or_letters_are_whole(text: str) -> None:
    encoders = [encoder(oids.TEXT, Format.TEXT)]
    found = Columns((np.array([text, "é", "z"], dtype=object),))
    assert columnar.data_rows(found, encoders) == rows.data_rows([(text,), ("é",), ("z",)], encoders)
