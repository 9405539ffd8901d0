"""Settings: what can be SET, and relative errors, which need a size that is public or already known."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from planner.basics.errors import BadValue, TooDear, UnknownSetting
from planner.gate import Gate
from planner.session import Session


@pytest.fixture
def session(adult_policy: Path) -> Iterator[Session]:
    gate = Gate.open(adult_policy)
    yield gate.session("ann")
    gate.close()


def test_a_relative_error_needs_a_size(session: Session) -> None:
    session.execute("SET noisegate.error = '1%'")
    with pytest.raises(BadValue, match="already known size"):
        session.explain("SELECT count(*) FROM adult")


def test_a_relative_error_is_taken_of_the_size_that_was_released(session: Session) -> None:
    size = session.execute("SELECT count(*) FROM adult").rows[0][0]
    session.execute("SET noisegate.error = '1%'")
    error = session.explain("SELECT sex, count(*) AS n FROM adult GROUP BY sex").errors["n"]
    assert error == pytest.approx(0.01 * size, rel=1e-3)


def test_a_relative_error_is_taken_of_a_declared_size_first(adult_policy: Path) -> None:
    text = adult_policy.read_text().replace("[tables.adult]", "[tables.adult]\nrows = 10_000", 1)
    adult_policy.write_text(text)
    gate = Gate.open(adult_policy)
    session = gate.session("ann")
    session.execute("SET noisegate.error = '1%'")
    assert session.explain("SELECT count(*) AS n FROM adult").errors["n"] == pytest.approx(100, rel=1e-3)
    gate.close()


def test_a_setting_can_be_set_shown_and_reset(session: Session) -> None:
    session.execute("SET noisegate.error TO 25")
    assert session.execute("SHOW noisegate.error").rows == [("25",)]
    session.execute("RESET noisegate.error")
    assert session.execute("SHOW noisegate.error").rows == [("50",)]
    session.execute("SET noisegate.rho = 0.001")
    session.execute("RESET ALL")
    assert session.execute("SHOW noisegate.rho").rows == [("",)]


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "x", "1e300"])
def test_a_value_that_means_nothing_is_refused(session: Session, value: str) -> None:
    with pytest.raises(BadValue):
        session.execute(f"SET noisegate.error = '{value}'")


def test_an_unknown_setting_is_refused(session: Session) -> None:
    with pytest.raises(UnknownSetting):
        session.execute("SET noisegate.eror = 1")


def test_rho_is_spent_and_not_more(session: Session) -> None:
    session.execute("SET noisegate.rho = 0.001")
    cost = session.execute("SELECT sex, count(*), avg(age) FROM adult GROUP BY sex").cost
    assert 0.0009 < cost <= 0.001


def test_max_rho_refuses_what_is_dearer(session: Session) -> None:
    session.execute("SET noisegate.max_rho = 0.0001")
    with pytest.raises(TooDear):
        session.execute("SELECT count(*) FROM adult")
    assert session.execute("SELECT rho_spent FROM noisegate.budget").rows == [(0.0,)]
