"""Rounds as people reach them: over the wire, in Python, and as a file on the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

import noisegate
from planner.calls.rounds import roster
from planner.gate import Gate
from proxy.cli import main
from proxy.server.shared import policy_catalog
from tests.proxy import town
from tests.proxy.servers import running

BY_SEX = "SELECT sex, count(*) AS n FROM adult GROUP BY sex"
BY_RACE = "SELECT race, sex, count(*) AS n FROM adult GROUP BY 1, 2"

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


# --- over the wire -----------------------------------------------------------------------------------------


def test_a_team_releases_a_round_over_the_wire(tmp_path: Path) -> None:
    sql, other = (
        "SELECT city, count(*) AS n FROM people GROUP BY city",
        "SELECT count(*) AS n FROM people WHERE age < 9",
    )
    call: Any = f"SELECT noisegate.enlist('q3', $${sql}$$, error => 15)"
    with (
        running(town.make(tmp_path), catalog=policy_catalog) as server,
        psycopg.connect(server.dsn("ann"), autocommit=True) as ann,
        psycopg.connect(server.dsn("bob"), autocommit=True) as bob,
    ):
        for _ in range(2):  # the same words mean another thing when somebody else says them
            assert ann.execute(call).fetchall()[0][:3] == ("q3", 1, "ann")
        assert bob.execute(call).fetchall()[0][:3] == ("q3", 2, "bob")
        bob.execute("SELECT * FROM noisegate.enlist(%s, %s, error => %s)", ("q3", other, 30))
        shown = ann.execute("SELECT analyst, state FROM noisegate.rounds ORDER BY query").fetchall()
        assert shown == [("ann", "open"), ("bob", "open"), ("bob", "open")]
        price = [row[0] for row in ann.execute("EXPLAIN SELECT noisegate.release('q3')").fetchall()]
        assert price[0] == "Round q3: 2 analysts, 3 queries, 9 answers; waterfilling"
        assert server.gate.ledger.releases() == []
        rows = ann.execute("SELECT query, error, gain FROM noisegate.release('q3')").fetchall()
        assert [row[0] for row in rows] == [1, 2, 3]
        assert all(error <= 30 * (1 + 1e-6) and gain > 1 for _, error, gain in rows)
        before = server.gate.ledger.spent("default")
        assert bob.execute("SELECT query, error, gain FROM noisegate.release('q3')").fetchall() == rows
        bob.execute("SET noisegate.error = 15")
        assert len(bob.execute(sql).fetchall()) == 4
        assert server.gate.ledger.spent("default") == before


def test_a_mistake_inside_the_quotes_is_pointed_at(tmp_path: Path) -> None:
    with running(town.make(tmp_path), catalog=policy_catalog) as server, psycopg.connect(server.dsn("ann")) as ann:
        sql = "SELECT noisegate.enlist('q3', $$SELECT nope FROM people$$)"
        with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
            ann.execute(sql)
        assert caught.value.diag.statement_position == str(1 + sql.index("nope"))


# --- in Python ---------------------------------------------------------------------------------------------


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


# --- as a file ---------------------------------------------------------------------------------------------


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
