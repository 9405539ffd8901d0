"""Rounds in Python."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import noisegate

BY_SEX = "SELECT sex, count(*) AS n FROM adult GROUP BY sex"
BY_RACE = "SELECT race, sex, count(*) AS n FROM adult GROUP BY 1, 2"


def test_a_round_in_python(adult_policy: Path) -> None:
    with (
        noisegate.connect(adult_policy, analyst="ann") as ann,
        noisegate.connect(adult_policy, analyst="bob") as bob,
    ):
        first = ann.enlist("q3", BY_SEX, error=60)
        second = bob.enlist("q3", BY_RACE, error=80, confidence=0.9)
        third = bob.enlist("q3", "SELECT count(*) FROM adult", importance=4)
        assert bob.withdraw("q3", third) == [third]
        price = ann.explain("SELECT noisegate.release('q3')")
        found = ann.release("q3", weights={"ann": 1, "bob": 2.5})
        assert found.cost == price.rho > 0
        assert [(one.query, one.analyst, one.asked) for one in found.queries] == [
            (first, "ann", 60.0),
            (second, "bob", 80.0),
        ]
        assert all(one.error is not None and one.error <= one.asked * (1 + 1e-6) for one in found.queries if one.asked)
        assert bob.release("q3").cost == 0
        cursor = bob.cursor()
        cursor.execute("SET noisegate.error = 60")
        assert cursor.execute(BY_SEX).cost == 0
        with pytest.raises(noisegate.DataError):
            ann.release("q9")


def test_a_given_rho_in_python(adult_policy: Path) -> None:
    with noisegate.connect(adult_policy, analyst="ann") as ann:
        ann.enlist("q3", BY_SEX)
        ann.enlist("q3", BY_RACE, error=100)
        found = ann.release("q3", rho=0.001)
        assert 0.00095 <= float(found.cost) <= 0.001


def test_an_explanation_tells_programs_of_every_query_and_analyst(adult_policy: Path) -> None:
    with (
        noisegate.connect(adult_policy, analyst="ann") as ann,
        noisegate.connect(adult_policy, analyst="bob") as bob,
    ):
        numbers = ann.enlist("q3", BY_SEX, error=60), bob.enlist("q3", BY_RACE, error=80)
        [(text,)] = ann.cursor().execute("EXPLAIN (FORMAT JSON) SELECT * FROM noisegate.release('q3')").fetchall()
        [plan] = json.loads(text)
        found = plan["round"]
        assert 0 < found["bound"] <= plan["rho"] < found["one_by_one"]
        assert (found["mechanism"], found["scale"]) == ("waterfilling", None)
        assert sum(each["paid"] for each in found["analysts"]) == pytest.approx(plan["rho"])
        assert all(each["gain"] > 1 for each in found["analysts"])
        assert [(each["query"], each["asked"]) for each in found["queries"]] == [(numbers[0], 60), (numbers[1], 80)]
        assert all(0 <= each["saves"] < each["costs"] or each["saves"] == 0 for each in found["queries"])
        assert sum(each["saves"] for each in found["queries"]) > 0.1


WRONG_TYPES: list[Callable[[noisegate.Connection], object]] = [
    lambda ann: ann.enlist("q3", BY_SEX, error=float("nan")),
    lambda ann: ann.enlist("q3", BY_SEX, error=float("inf")),
    lambda ann: ann.enlist("q3", BY_SEX, error="20"),  # type: ignore[arg-type]
    lambda ann: ann.enlist(3, BY_SEX),  # type: ignore[arg-type]
    lambda ann: ann.enlist("q3", None),  # type: ignore[arg-type]
    lambda ann: ann.enlist("q3", b"SELECT 1"),  # type: ignore[arg-type]
    lambda ann: ann.withdraw("q3", "x"),  # type: ignore[arg-type]
    lambda ann: ann.release("q3", weights="x"),  # type: ignore[arg-type]
    lambda ann: ann.release("q3", weights={"ann": "x"}),  # type: ignore[dict-item]
    lambda ann: ann.release("q3", rho=object()),  # type: ignore[arg-type]
    lambda ann: ann.choose(BY_SEX),
    lambda ann: ann.choose([BY_SEX, 3]),  # type: ignore[list-item]
    lambda ann: ann.choose(None),  # type: ignore[arg-type]
    lambda ann: ann.verify(BY_SEX, tau=None, epsilon=0.1),  # type: ignore[arg-type]
    lambda ann: ann.verify(BY_SEX, tau=[5], epsilon=0.1),  # type: ignore[arg-type]
    lambda ann: ann.verify(BY_SEX, tau=5, epsilon=0.1, explain="yes"),  # type: ignore[arg-type]
    lambda ann: ann.verify(BY_SEX, tau=5, epsilon=0.1, decider=5),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("wrong", WRONG_TYPES)
def test_an_argument_of_a_wrong_type_is_refused_in_words(
    shared_adult_policy: Path, wrong: Callable[[noisegate.Connection], object]
) -> None:
    with noisegate.connect(shared_adult_policy, analyst="ann") as ann:
        with pytest.raises(noisegate.ProgrammingError) as refused:
            wrong(ann)
        assert refused.value.sqlstate in ("42804", "42883")
        assert refused.value.hint
