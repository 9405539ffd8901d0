"""The programs in examples/ run on the bundled table, and do what they say."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import noisegate

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))


def load(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / name))


def spent(policy: Path) -> float:
    with noisegate.connect(policy, "ann") as connection:
        row = connection.cursor().execute("SELECT rho_spent FROM noisegate.budget").fetchone()
    return float(row[0]) if row else 0.0


def test_there_are_examples() -> None:
    assert len(PROGRAMS) >= 3


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_an_example_is_short_and_has_a_main(program: Path) -> None:
    assert len(program.read_text(encoding="utf-8").splitlines()) < 60
    assert callable(runpy.run_path(str(program))["main"])


def test_ask_prints_the_price_and_rows_with_intervals(adult_policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load("ask.py")["main"](str(adult_policy))
    price, *rows = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"it costs \d+\.\d% of the budget", price)
    assert rows
    for row in rows:
        assert re.fullmatch(r"[\w-]+ +[\d,]+ people +\d+\.\d hours, between \d+\.\d and \d+\.\d", row)
    assert spent(adult_policy) > 0


def test_the_dashboard_is_free_the_second_time(adult_policy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dashboard = load("pandas_dashboard.py")
    dashboard["main"](str(adult_policy))
    first, before = capsys.readouterr().out, spent(adult_policy)
    dashboard["main"](str(adult_policy))
    second = capsys.readouterr().out
    assert all(title in first and title in second for title in dashboard["PANELS"])
    assert second.splitlines()[-1] == "cost: rho 0.0000"
    assert spent(adult_policy) == before > 0


def test_every_group_gets_a_pyramid_and_all_together_cost_one(
    adult_policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """White people are so many that in each look enough cells are more than six deviations above the threshold."""
    example = load("age_pyramid.py")
    example["main"](str(adult_policy))
    *lines, total = capsys.readouterr().out.splitlines()
    chosen = [line.split() for line in lines[: len(example["GROUPS"])]]
    assert chosen[0] == ["White", "Age23", "cost:", "rho", "0.0050"]
    assert [line[0] for line in chosen] == example["GROUPS"]
    assert all(line[1] in example["AGES"] and line[2:] == ["cost:", "rho", "0.0050"] for line in chosen)
    assert total == "spent in all: rho 0.0050"
    assert spent(adult_policy) == pytest.approx(example["RHO"], rel=1e-6)


def test_the_policy_check_names_every_domain_and_spends_nothing(
    adult_policy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load("policy_check.py")["main"](str(adult_policy))
    output = capsys.readouterr().out
    assert "adult.age: 17 … 90 (a row with NULL is left out)" in output
    assert re.search(r"adult: ann can ask \d+ counts of everyone within 50", output)
    assert spent(adult_policy) == 0
