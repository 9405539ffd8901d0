"""A round as a file on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from planner.calls.rounds import roster
from planner.gate import Gate
from proxy.cli import main

PLAN = """policy = "adult.toml"
round = "q3"

[queries.sexes]
analyst = "ann"
sql = "SELECT sex, count(*) AS n FROM adult GROUP BY sex"
error = 60

[queries.races]
analyst = "bob"
sql = "SELECT race, sex, count(*) AS n FROM adult GROUP BY 1, 2"
error = 80
"""


@dataclass(frozen=True)
class Ended:
    """What a command printed, and its exit code."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture
def run(adult_policy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command line beside a copy of the bundled table."""
    monkeypatch.chdir(adult_policy.parent)

    def run(*arguments: str) -> Ended:
        code = main.main(list(arguments))
        return Ended(code, *capsys.readouterr())

    return run


@pytest.fixture
def plan(adult_policy: Path) -> Path:
    path = adult_policy.with_name("q3.toml")
    path.write_text(PLAN, encoding="utf-8")
    return path


@pytest.mark.usefixtures("plan")
def test_a_file_is_explained_and_released(run: Run, adult_policy: Path) -> None:
    price = run("round", "q3.toml", "--explain")
    assert price.returncode == 0
    assert price.stdout.startswith("Round q3: 2 analysts, 2 queries, 12 answers; waterfilling\n")
    assert re.search(
        r"\n  races +\+/- 80 by bob: \+/- 88 saves [0-9.]+ %, \+/- 72 costs [0-9.]+ % more\n", price.stdout
    )
    gate = Gate.open(adult_policy)
    try:
        assert roster.entries(gate.ledger) == []
        first = run("round", "q3.toml", "--format", "json")
        assert first.returncode == 0
        assert [row["analyst"] for row in json.loads(first.stdout)] == ["ann", "bob"]
        assert re.fullmatch(r"2 rows, cost [0-9.]+ % of the budget, left [0-9.]+ %\n", first.stderr)
        again = run("round", "q3.toml", "--format", "json")
        assert (again.stdout, again.stderr) == (first.stdout, "2 rows, free: already known\n")
        assert [release.kind for release in gate.ledger.releases()].count("round") == 1
        assert "released before" in run("round", "q3.toml", "--explain").stdout
    finally:
        gate.close()


WRONG = [
    ("error = 80", "error = -80", "q3.toml:12: queries.races: error must be a number"),
    ("error = 80", "eror = 80", "q3.toml:12: queries.races: unknown key eror; did you mean error?"),
    ("SELECT race,", "SELECT rice,", "q3.toml:11: queries.races: there is no column rice"),
    ('analyst = "bob"', 'analyst = "zoe"', "q3.toml:11: queries.races: there is no analyst zoe"),
    ('round = "q3"', 'round = "q3"\nmechanism = "magic"', "q3.toml:3: mechanism must be one of waterfilling"),
    ('round = "q3"', 'round = "q3"\nrho = 0', "q3.toml:3: rho must be a number"),
    ('round = "q3"', "", "q3.toml:1: round is missing"),
    ("[queries.sexes]", "[queries.sexes", "q3.toml:4: is not TOML"),
]


@pytest.mark.parametrize(("old", "new", "message"), WRONG)
def test_a_wrong_file_is_refused_with_its_line(run: Run, plan: Path, old: str, new: str, message: str) -> None:
    plan.write_text(PLAN.replace(old, new), encoding="utf-8")
    result = run("round", "q3.toml")
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: {message}")


def test_weights_and_rho_may_stand_in_the_file(run: Run, plan: Path) -> None:
    rest = PLAN.replace('round = "q3"', 'round = "q3"\nmechanism = "utilitarian"\nrho = 0.001')
    plan.write_text(rest + "[analysts.ann]\nweight = 2\n[analysts.bob]\nweight = 0.5\n", encoding="utf-8")
    result = run("round", "q3.toml", "--analyst", "bob")
    assert result.returncode == 0, result.stderr
    assert "utilitarian" not in result.stderr


def test_shares_are_moved_on_the_command_line(run: Run) -> None:
    moved = run("budget", "adult.toml", "--move", "0.1", "ann", "bob", "--format", "json")
    assert moved.returncode == 0
    totals = {row["analyst"]: row["rho_total"] for row in json.loads(moved.stdout)}
    assert totals["ann"] == pytest.approx(totals["bob"]) == pytest.approx(totals[None] / 2)
    refused = run("budget", "adult.toml", "--move", "0.9", "ann", "bob")
    assert refused.returncode == 3
    assert "can't be moved: the account of ann has 0.5 left" in refused.stderr
