from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from mechanisms.gaussian.linear import (
    Mechanism,
    answerable,
    equivalent,
    independent,
    information,
    profile,
    rho,
    row_space,
    standardised,
    together,
)
from tests.mechanisms.matrices import families

EXAMPLE_A = independent(np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), 2.0)
EXAMPLE_B = Mechanism(np.eye(2), np.array([[4.0, -2.0], [-2.0, 4.0]]) / 3)


def test_the_two_mechanisms_of_example_3_3_are_equivalent_and_cost_one_half() -> None:
    assert equivalent(EXAMPLE_A, EXAMPLE_B)
    assert rho(EXAMPLE_A) == pytest.approx(0.5, abs=1e-14)
    assert rho(EXAMPLE_B) == pytest.approx(0.5, abs=1e-14)
    forward = answerable(EXAMPLE_B, EXAMPLE_A)
    assert forward.L is not None
    np.testing.assert_allclose(forward.L, np.array([[1, 2, -1], [1, -1, 2]]) / 3, atol=1e-12)
    np.testing.assert_allclose(forward.Sigma_extra, 0, atol=1e-12)
    back = answerable(EXAMPLE_A, EXAMPLE_B)
    np.testing.assert_allclose(back.L, EXAMPLE_A.B, atol=1e-12)


@given(families(count=1))
def test_standardising_keeps_the_information_with_unit_noise_and_independent_rows(family: list[Mechanism]) -> None:
    M = family[0]
    plain = standardised(M)
    np.testing.assert_allclose(information(plain), information(M), atol=1e-7)
    np.testing.assert_array_equal(plain.Sigma, np.eye(len(plain.B)))
    assert np.linalg.matrix_rank(plain.B) == len(plain.B)
    assert equivalent(M, plain)


@given(families(count=2))
def test_answerability_comes_with_a_witness_or_a_direction(family: list[Mechanism]) -> None:
    wanted, known = family
    verdict = answerable(wanted, known)
    if verdict.holds:
        assert verdict.L is not None
        assert verdict.Sigma_extra is not None
        np.testing.assert_allclose(verdict.L @ known.B, wanted.B, atol=1e-6)
        extra = wanted.Sigma - verdict.L @ known.Sigma @ verdict.L.T
        np.testing.assert_allclose(extra, verdict.Sigma_extra, atol=1e-8)
        assert np.linalg.eigvalsh(extra).min() > -1e-6
    else:
        v = verdict.direction
        assert v is not None
        assert v @ information(wanted) @ v > v @ information(known) @ v


@given(families(count=2))
def test_a_part_is_always_answerable_from_the_whole(family: list[Mechanism]) -> None:
    whole = together(family)
    assert answerable(family[0], whole).holds
    np.testing.assert_allclose(information(whole), information(family[0]) + information(family[1]), atol=1e-9)
    np.testing.assert_allclose(profile(whole), information(whole).diagonal(), atol=1e-9)


def test_a_short_row_counts_in_the_row_space() -> None:
    assert len(row_space(np.array([[1.0, 0.0], [1e-12, 1e-12]]))) == 2
    assert len(row_space(np.array([[1.0, 2.0], [-3.0, -6.0], [0.0, 0.0]]))) == 1


def test_noise_that_is_not_positive_definite_is_refused() -> None:
    with pytest.raises(ValueError, match="positive definite"):
        information(Mechanism(np.ones((1, 2)), np.zeros((1, 1))))
    with pytest.raises(ValueError, match="got shapes"):
        Mechanism(np.ones((1, 2)), np.eye(2))
    with pytest.raises(ValueError, match="at least one"):
        together([])
