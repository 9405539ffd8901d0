"""The roster: one accuracy for each query of an analyst, each withdraws their own, and a changed round is noticed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.basics.errors import BadValue, Forbidden
from planner.calls.rounds import roster
from planner.calls.rounds.roster import Accuracy
from planner.ledger.ledger import Ledger
from planner.plans.settings import Settings

TEN, FIVE = Accuracy(10.0, 0.95), Accuracy(5.0, 0.95)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite") as opened:
        yield opened


def test_the_same_query_of_an_analyst_has_its_latest_accuracy(ledger: Ledger) -> None:
    first = roster.enlist(ledger, "r", "ann", "Q", TEN)
    assert roster.enlist(ledger, "r", "ann", "Q", TEN) == first
    second = roster.enlist(ledger, "r", "ann", "Q", FIVE)
    assert second.number > first.number
    assert roster.entries(ledger, "r") == [second]


def test_the_same_query_of_another_analyst_or_round_is_another_one(ledger: Ledger) -> None:
    ann, bob = (roster.enlist(ledger, "r", who, "Q", TEN) for who in ("ann", "bob"))
    other = roster.enlist(ledger, "s", "ann", "Q", TEN)
    assert roster.entries(ledger, "r") == [ann, bob]
    assert roster.entries(ledger) == [ann, bob, other]


def test_a_number_is_never_used_again(ledger: Ledger) -> None:
    first = roster.enlist(ledger, "r", "ann", "Q", TEN)
    roster.withdraw(ledger, "r", "ann", first.number)
    assert roster.enlist(ledger, "r", "ann", "Q", TEN).number > first.number


def test_who_withdraws_all_leaves_the_others_in(ledger: Ledger) -> None:
    mine = [roster.enlist(ledger, "r", "ann", sql, TEN) for sql in ("P", "Q")]
    other = roster.enlist(ledger, "r", "bob", "Q", TEN)
    assert roster.withdraw(ledger, "r", "ann", None) == mine
    assert roster.entries(ledger, "r") == [other]


def test_nobody_withdraws_what_somebody_else_enlisted_or_nobody_did(ledger: Ledger) -> None:
    other = roster.enlist(ledger, "r", "bob", "Q", TEN)
    with pytest.raises(Forbidden, match=f"query {other.number} of round r was enlisted by somebody else"):
        roster.withdraw(ledger, "r", "ann", other.number)
    with pytest.raises(BadValue, match="you have not enlisted query 99 of round r"):
        roster.withdraw(ledger, "r", "ann", 99)
    with pytest.raises(BadValue, match="you have not enlisted a query in round r"):
        roster.withdraw(ledger, "r", "ann", None)
    assert roster.entries(ledger, "r") == [other]


@pytest.mark.parametrize("change", ["enlist", "withdraw", "accuracy", "elsewhere"])
def test_a_round_that_is_not_what_was_planned_is_noticed(ledger: Ledger, change: str) -> None:
    planned = [roster.enlist(ledger, "r", who, "Q", TEN) for who in ("ann", "bob")]
    match change:
        case "enlist":
            roster.enlist(ledger, "r", "cal", "Q", TEN)
        case "withdraw":
            roster.withdraw(ledger, "r", "bob", None)
        case "accuracy":
            roster.enlist(ledger, "r", "bob", "Q", FIVE)
        case "elsewhere":
            roster.enlist(ledger, "s", "bob", "Q", FIVE)
    with ledger.beside(write=False) as connection:
        if change == "elsewhere":
            roster.unchanged(planned, connection)
        else:
            with pytest.raises(BadValue, match="round r was changed while it was planned"):
                roster.unchanged(planned, connection)


wishes = st.builds(
    Accuracy,
    error=st.floats(1e-6, 1e9),
    confidence=st.floats(0.5, 0.999),
    relative=st.booleans(),
    sum_error=st.none() | st.floats(1e-6, 1e9),
)


@given(wishes)
def test_a_wish_says_what_settings_say_and_back(wish: Accuracy) -> None:
    assert Accuracy.of(wish.settings) == wish
    assert isinstance(wish.settings, Settings)


@given(wishes, st.floats(0.1, 10))
def test_a_scaled_wish_scales_both_errors_and_nothing_else(wish: Accuracy, factor: float) -> None:
    found = wish.scaled(factor)
    assert found.error == wish.error * factor
    assert found.sum_error == (None if wish.sum_error is None else wish.sum_error * factor)
    assert (found.confidence, found.relative) == (wish.confidence, wish.relative)


def test_a_wish_is_told_to_people_in_its_unit() -> None:
    assert Accuracy(1234.0, 0.95).text == "1,234"
    assert Accuracy(0.015, 0.95, relative=True).text == "1.50 %"
    assert Accuracy(20.0, 0.95, sum_error=40_000.0).text == "20, sums ± 40,000"


def test_a_stored_wish_is_read_as_it_was_written(ledger: Ledger) -> None:
    wish = Accuracy(0.1, 0.9, relative=True, sum_error=1 / 3)
    roster.enlist(ledger, "r", "ann", "Q", wish)
    assert roster.entries(ledger, "r")[0].wish == wish


def test_rounds_of_different_names_are_recorded_under_different_questions() -> None:
    assert roster.question_of("q3") == roster.question_of("q3") != roster.question_of("q4")
