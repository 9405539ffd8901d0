"""What verify states about errors holds for tables of any size, not only for those of the copy's size.

True tables of 0 to 100,000 rows stand behind the same copy of 1,000 rows. What is stated is compared with the exact
probability (closed forms, which tests/mechanisms/deciders compares with draws) and with draws. A comparison with draws
is wrong about a true statement with probability below 1e-8 (exact binomial tails); there are fewer than 100 of them.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from mechanisms.deciders import deciders
from mechanisms.deciders.deciders import Claim, Histogram, Query, Totals
from planner.gate import Gate
from planner.session import Session
from tests.planner.gates import open_gate, write

pytestmark = pytest.mark.slow  # simulations of every decider

SIZES = (0, 1, 10, 30, 100, 1000, 100_000)
TAU, EPSILON, COPIED = 5, Fraction(18, 100), 1000
DRAWS, FALSE_ALARM = 20_000, 1e-8
COPY = "SELECT (30 + i % 41)::INTEGER AS age, 7 AS few FROM range(1025) AS r(i)"
"""Ages from 30 to 70, as many of each: their average and their median are 50."""

ASKED = {"LM_avg": "avg", "EM_avg": "avg", "EM_med": "median", "EM_rank": "median", "Hist_med": "median"}


def opened(folder: Path, rows: int, gap: int, *, error: float | None = None) -> Gate:
    """Return a gate whose true ages are spread as in the copy, and off by the gap; with an error, they were counted."""
    step = 41 if rows < 41 else 1
    age = f"(30 + (20 + i * {step}) % 41 + {gap})::INTEGER"
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "copy.parquet", COPY)
    gate = open_gate(
        folder,
        f"SELECT {age} AS age, 7 AS few FROM range({rows // 41 * 41 or rows}) AS r(i)",
        columns='age = { type = "integer", min = 0, max = 100 }\nfew = { values = [7, 8] }',
        rest='[tables.copy]\nsource = "copy.parquet"\nsynthetic_of = "people"\n',
        epsilon=1e5,
    )
    if error is not None:
        session = gate.session()
        session.execute(f"SET noisegate.error = {error}")
        session.execute("SELECT count(*) FROM people")
    return gate


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Deciders, and what they were given of the true table."""
    found: list[tuple[Any, Any]] = []
    monkeypatch.setattr(deciders, "decide", lambda decider, statistics: bool(found.append((decider, statistics))))
    return found


def told(session: Session, aggregate: str, rest: str) -> dict[str, Any]:
    sql = f"SELECT * FROM noisegate.verify($$SELECT {aggregate}(age) FROM copy$$, {rest})"
    result = session.execute(sql)
    ((*row,),) = result.rows
    return dict(zip([column.name for column in result.columns], row, strict=True))


def error(decider: Any, statistics: Any) -> float:
    """The exact probability of a wrong decision about the true table."""
    yes = float(decider.yes(statistics))
    return 1 - yes if decider.truth(statistics) else yes


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("rows", SIZES)
def test_a_stated_error_holds_for_true_tables_of_every_size(
    tmp_path: Path, seen: list[tuple[Any, Any]], rows: int, known: bool
) -> None:
    for gap in (0, 2 * TAU):
        gate = opened(tmp_path / f"{gap}", rows, gap, error=20 if known else None)
        for name, aggregate in ASKED.items():
            row = told(gate.session(), aggregate, f"tau => {TAU}, epsilon => {float(EPSILON)}, decider => '{name}'")
            if row["decider"] == "free":
                continue
            stated, (decider, statistics) = dict(json.loads(row["wrong"]))[float(gap)], seen[-1]
            assert error(decider, statistics) <= stated * (1 + 1e-5) + 1e-9, (name, gap)
            if aggregate == "avg":
                wrong = int((decider.draw(statistics, DRAWS) != decider.truth(statistics)).sum())
                assert wrong <= binom.isf(FALSE_ALARM, DRAWS, min(1.0, stated * (1 + 1e-5))), (name, gap)
            if not known:
                assert row["effective_tau"] is None
                assert stated >= 0.5 or name in ("EM_med", "Hist_med")  # which are no coins without rows
                assert "nothing released tells how many" in row["why"]
        gate.close()


@pytest.mark.parametrize("rows", [30, 100])
def test_what_was_stated_for_the_size_of_the_copy_would_not_pass(rows: int) -> None:
    """0.0000 was stated where errors are 0.38 and 0.16; such draws pass with probability below 1e-6."""
    decider = deciders.candidates(Query(kind="avg", claim=Claim(50, TAU), most=100), epsilon=EPSILON)["EM_avg"]
    ages = Histogram(np.array([50]), np.array([COPIED]))
    (stated,) = deciders.profile(decider, ages, [2 * TAU])
    real = error(decider, Totals((50 + 2 * TAU) * rows, rows))
    assert (round(float(stated), 4), round(real, 2)) == (0.0, {30: 0.38, 100: 0.16}[rows])
    assert binom.cdf(binom.isf(FALSE_ALARM, DRAWS, stated), DRAWS, real) < 1e-6


@pytest.mark.parametrize(("rows", "least"), [(1025, 900), (100_000, 99_000)])
def test_a_released_count_tells_how_small_a_tau_can_be_told(
    tmp_path: Path, seen: list[tuple[Any, Any]], rows: int, least: int
) -> None:
    """The count is off by 60 (six deviations) with probability below 1e-8."""
    gate = opened(tmp_path, rows, 0, error=20)
    for name, aggregate in ASKED.items():
        rest = f"tau => {TAU}, epsilon => {float(EPSILON)}, decider => '{name}', delta => 0.01"
        row = told(gate.session(), aggregate, f"{rest}, explain => true")
        assert row["provided"].startswith("there are at least ")
        assert row["provided"].partition(", and ")[0].endswith("as release 1 tells")
        assert ("spread as in copy" in row["provided"]) == (aggregate == "median")
        assert int(row["provided"].split()[4].replace(",", "")) >= least
        tau = Fraction(row["effective_tau"])
        told(gate.session(), aggregate, rest)
        decider, _ = seen[-1]
        there = Histogram(np.arange(30, 71), np.full(41, rows // 41))
        assert deciders.profile(decider.at(tau), there, [0, 2 * tau, -2 * tau]).max() <= 0.01 * (1 + 1e-6), name
        assert row["tau_if_alike"] == pytest.approx(decider.effective_tau(0.01, histogram()))
    gate.close()


def histogram() -> Histogram:
    return Histogram(np.arange(30, 71), np.full(41, 25))


def test_choice_and_statements_depend_on_public_things_only(tmp_path: Path) -> None:
    found = []
    for rows in (0, 100_000):
        gate = opened(tmp_path / f"{rows}", rows, 0)
        rest = f"tau => {TAU}, epsilon => {float(EPSILON)}, explain => true"
        found.append([told(gate.session(), aggregate, rest) for aggregate in ("avg", "median")])
        assert [row["decider"] for row in found[-1]] == ["EM_avg", "EM_rank"]
        gate.close()
    assert found[0] == found[1]


def test_what_holds_whatever_the_true_table_is_says_so_and_what_does_not_says_why(tmp_path: Path) -> None:
    gate = opened(tmp_path, 100, 0)
    session = gate.session()
    for name, provided in {"LM": None, "EM": None, "R2T": "spread", "SVT": "spread"}.items():
        row = told(session, "sum", f"tau => 5000, epsilon => 1, decider => '{name}', explain => true")
        assert (row["provided"] is None) == (provided is None)
        assert row["effective_tau"] == row["tau_if_alike"]
        if provided is not None:
            assert row["provided"] == "values in people are spread as in copy"
    lines = "\n".join(
        session.explain(
            f"SELECT * FROM noisegate.verify($$SELECT avg(age) FROM copy$$, tau => {TAU}, epsilon => 1)"
        ).lines
    )
    assert "not known" in lines
    assert "if alike" in lines
    gate.close()


# --- the parts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [Fraction(1, 4), Fraction(1, 2), Fraction(9, 10)])
def test_a_resized_table_has_so_many_rows_the_same_quantile_and_a_like_spread(p: Fraction) -> None:
    rng = np.random.default_rng(8)
    for _ in range(20):
        whole = _random(rng)
        for rows in (0, 1, 2, 7, 40, 41, 1025, 10**7):
            found = whole.resized(rows, p)
            assert found.rows == rows
            if rows:
                assert found.quantile(p) == whole.quantile(p)
            shares = [
                abs(
                    int(found.counts[found.values <= value].sum())
                    - rows * int(whole.counts[: i + 1].sum()) / whole.rows
                )
                for i, value in enumerate(whole.values.tolist())
            ]
            assert max(shares) < 1


def _random(rng: np.random.Generator) -> Histogram:
    values = np.unique(rng.integers(-50, 50, 9))
    return Histogram(values, rng.integers(1, 60, len(values)))


def test_without_rows_nothing_is_known_of_an_average_but_that_a_coin_is_fair() -> None:
    query = Query(kind="avg", claim=Claim(50, TAU), most=100)
    gaps = [0, TAU, 2 * TAU, 50]
    for decider in deciders.candidates(query, epsilon=EPSILON).values():
        assert deciders.at_worst(decider, histogram(), gaps, rows=0, p=Fraction(1, 2)).tolist() == [0.5] * 4
        assert decider.effective_tau(0.05, histogram().resized(0)) == math.inf
        small, large = (deciders.at_worst(decider, histogram(), gaps, rows=n, p=Fraction(1, 2)) for n in (30, 300))
        assert (large <= small).all()
        assert (small <= 0.5).all()
