"""Small random mechanisms for property tests: integer rows, so that row spaces do intersect now and then."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mechanisms.gaussian.known import Known, nothing_known
from mechanisms.gaussian.linear import Matrix, Mechanism


def row_matrices(d: int, *, least: int = 1, most: int = 5) -> st.SearchStrategy[Matrix]:
    """Return matrices of small integers with d columns."""
    entries = st.integers(-2, 2).map(float)
    return st.integers(least, most).flatmap(lambda m: arrays(np.float64, (m, d), elements=entries))


@st.composite
def mechanisms(draw: st.DrawFn, d: int) -> Mechanism:
    """Return a mechanism with correlated noise, not all of whose rows are zero."""
    B = draw(row_matrices(d).filter(lambda rows: bool(np.abs(rows).max() > 0)))
    mixing = draw(arrays(np.float64, (len(B), len(B)), elements=st.integers(-1, 1).map(float)))
    variance = draw(st.sampled_from([0.25, 1.0, 3.0]))
    return Mechanism(B, mixing @ mixing.T + variance * np.eye(len(B)))


@st.composite
def families(draw: st.DrawFn, *, count: int, largest: int = 5) -> list[Mechanism]:
    """Return mechanisms on one domain of up to `largest` cells."""
    d = draw(st.integers(1, largest))
    return [draw(mechanisms(d)) for _ in range(count)]


def known_from(B: Matrix) -> Known:
    """Return what is known after the rows of B were released, all with output zero."""
    return nothing_known(B.shape[1]).with_rows(B, np.zeros(len(B)))
