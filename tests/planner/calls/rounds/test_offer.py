"""What is said of a planned round: rows, lines of EXPLAIN and details tell the same, in the order that matters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest

from planner.calls.rounds import offer, rounds
from planner.calls.rounds.model import RoundPlan
from planner.calls.rounds.offer import RELEASED, Offer, details_of, lines_of, rows_of
from planner.calls.rounds.rounds import Terms
from planner.gate import Gate
from tests.planner.calls.rounds.shop import ALL, BY_G, LOW, enlisted, opened


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gate]:
    made = opened(tmp_path_factory.mktemp("offer"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def planned(gate: Gate) -> Offer:
    queries = enlisted(gate, ("ann", BY_G, 10.0), ("bob", LOW, 20.0), ("bob", ALL, 90.0))
    return rounds.settle(gate.session("bob"), "r", queries, Terms())


def with_savings(planned: Offer, *savings: float, bound: float | None = None) -> Offer:
    plan = replace(planned.together, savings=savings, bound=bound)
    return replace(planned, deal=replace(planned.deal, together=plan))


def test_a_row_tells_a_query_with_what_its_analyst_pays(planned: Offer) -> None:
    rows = [dict(zip(RELEASED, row, strict=True)) for row in rows_of(planned)]
    assert [(row["query"], row["analyst"], row["sql"], row["asked"]) for row in rows] == [
        (1, "ann", BY_G, 10.0),
        (2, "bob", LOW, 20.0),
        (3, "bob", ALL, 90.0),
    ]
    assert [row["paid"] for row in rows] == [float(planned.deal.paid[row["analyst"]]) for row in rows]
    assert rows[1]["gain"] == planned.deal.gains["bob"]
    assert [row["rho_alone"] for row in rows] == list(planned.alone_rho)
    assert all(row["error"] <= row["asked"] * (1 + 1e-6) for row in rows)


def test_the_first_line_counts_who_asks_what(planned: Offer) -> None:
    assert lines_of(planned)[0] == "Round r: 2 analysts, 3 queries, 5 answers; waterfilling"


def test_a_bound_is_told_as_how_far_off_the_plan_is_at_most(planned: Offer) -> None:
    rho = float(planned.together.rho)
    told = "\n".join(lines_of(with_savings(planned, 0.1, 0.1, 0.0, bound=rho / 1.05)))
    assert "certified within 5.0 % of the least possible for these targets" in told
    for useless in (None, rho / 3):
        assert "certified" not in "\n".join(lines_of(with_savings(planned, 0.1, 0.1, 0.0, bound=useless)))


def test_everybody_is_told_what_they_pay_and_gain(planned: Offer) -> None:
    told = "\n".join(lines_of(planned))
    for name, paid in planned.deal.paid.items():
        assert f"{name}" in told
        assert f"pays ρ {float(paid):.3g}, gains {planned.deal.gains[name]:.2f}×" in told


def test_queries_for_which_accuracy_matters_most_come_first_and_the_rest_is_counted(
    planned: Offer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = with_savings(planned, 0.02, 0.15, 0.0)
    named = [line for line in lines_of(found) if "saves" in line]
    assert [line.split(" by ")[0].split("± ")[1] for line in named] == ["20", "10"]
    assert "± 22 saves 15.0 %, ± 18 costs 20.3 % more" in named[0]
    assert lines_of(found)[-1].endswith("1 query, of which none changes it as much")
    monkeypatch.setattr(offer, "SHOWN", 1)
    assert lines_of(found)[-1].endswith("2 queries, of which none changes it as much")


def test_what_less_error_adds_follows_from_what_more_error_saves(planned: Offer) -> None:
    """A price p of a target makes 10 % more error save (1 - 1.1^-2) p, and 10 % less add (0.9^-2 - 1) p."""
    details = details_of(with_savings(planned, 1 - 1.1**-2, 0.0, 0.0))
    assert details["queries"][0]["costs"] == pytest.approx(0.9**-2 - 1)
    assert details["queries"][1]["costs"] == 0.0


def test_details_tell_programs_what_lines_tell_people(planned: Offer) -> None:
    details = details_of(planned)
    assert (details["name"], details["mechanism"], details["scale"]) == ("r", "waterfilling", None)
    assert details["one_by_one"] == float(planned.each_alone)
    assert details["analysts"] == [
        {"analyst": name, "paid": float(paid), "gain": planned.deal.gains[name]}
        for name, paid in planned.deal.paid.items()
    ]
    assert [query["query"] for query in details["queries"]] == [1, 2, 3]


def test_of_a_given_rho_the_scale_is_told_and_no_price_of_accuracy(gate: Gate, planned: Offer) -> None:
    found = rounds.settle(gate.session("bob"), "r", planned.queries, Terms("identity", Fraction(1, 1000)))
    told, details = "\n".join(lines_of(found)), details_of(found)
    assert f"what ρ 0.001 buys: errors up to {found.deal.scale:.3g} times those asked for" in told
    assert "saves" not in told
    assert "one by one" not in told
    assert details["bound"] is None
    assert "saves" not in details["queries"][0]


def test_a_round_that_is_known_already_names_the_releases(planned: Offer) -> None:
    known: RoundPlan = replace(planned.together, tasks=(), releases=(1, 2, 3, 7))
    found = replace(planned, deal=replace(planned.deal, together=known, shares={}))
    told = "\n".join(lines_of(found))
    assert "releases 1–3, 7" in told or "releases 1-3, 7" in told
    assert "certified" not in told
