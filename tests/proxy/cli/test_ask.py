"""Questions and their prices: streams, formats, settings."""

import csv
import io
import json
import os
import pty
import re
import subprocess
from fractions import Fraction
from pathlib import Path

from tests.proxy.cli.process import BY_SEX, Run, command, environment


def test_the_answer_goes_to_stdout_and_the_cost_to_stderr(run: Run) -> None:
    result = run("query", "adult.toml", "--analyst", "ann", BY_SEX)
    assert result.returncode == 0
    assert re.fullmatch(
        r"sex +\| +n\n-+\+-+\nFemale \| +[0-9,]+ \+/- [0-9]+\nMale   \| +[0-9,]+ \+/- [0-9]+\n", result.stdout
    )
    assert re.fullmatch(r"2 rows, cost [0-9.]+ % of the budget, left [0-9.]+ %\n", result.stderr)


def test_the_same_question_is_free_afterwards(run: Run) -> None:
    first, second = (run("query", "adult.toml", BY_SEX, "--analyst", name) for name in ("ann", "bob"))
    assert second.stdout == first.stdout
    assert "free: already known" in second.stderr


def test_the_policy_is_found_in_the_folder(run: Run, default_policy: Path) -> None:
    assert run("query", "--analyst", "ann", BY_SEX).returncode == 0
    assert run("explain", BY_SEX, "--analyst", "ann").returncode == 0
    assert run("budget").returncode == 0
    assert run("check").returncode == 0


def test_json_is_a_list_of_objects(run: Run) -> None:
    result = run("query", "adult.toml", BY_SEX, "--analyst", "ann", "--format", "json")
    rows = json.loads(result.stdout)
    assert [list(row) for row in rows] == [["sex", "n"]] * 2
    assert all(isinstance(row["n"], int) for row in rows)


def test_json_adds_the_ends_of_the_intervals_when_asked(run: Run) -> None:
    result = run("query", "adult.toml", BY_SEX, "--analyst", "ann", "--format", "json", "--intervals")
    for row in json.loads(result.stdout):
        assert list(row) == ["sex", "n", "n_low", "n_high"]
        assert row["n_low"] < row["n"] < row["n_high"]


def test_csv_has_a_header(run: Run) -> None:
    result = run("query", "adult.toml", BY_SEX, "--analyst", "ann", "--format=csv", "--intervals")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["sex"] for row in rows] == ["Female", "Male"]
    assert all(float(row["n_low"]) < int(row["n"]) < float(row["n_high"]) for row in rows)


def test_sql_can_come_from_stdin(run: Run) -> None:
    result = run("query", "adult.toml", "-", "--analyst", "ann", "--format", "json", stdin=f"{BY_SEX};\n")
    assert len(json.loads(result.stdout)) == 2


def test_settings_reach_the_question(run: Run) -> None:
    setting = ("--set", "error=200", "--set", "noisegate.confidence=0.9")
    result = run("query", "adult.toml", BY_SEX, "--analyst", "ann", *setting, "--format=json", "--intervals")
    widths = [(row["n_high"] - row["n_low"]) / 2 for row in json.loads(result.stdout)]
    assert all(100 < width <= 200.01 for width in widths)


def test_a_setting_is_a_value_and_never_sql(run: Run) -> None:
    result = run("query", "adult.toml", "SELECT 1", "--analyst", "ann", "--set", "error=1'; SELECT 2")
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")


def test_a_statement_without_rows_prints_nothing_to_stdout(run: Run) -> None:
    result = run("query", "adult.toml", "SET noisegate.error = 25", "--analyst", "ann")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "SET\n")


def test_explain_prints_the_plan_and_spends_nothing(run: Run) -> None:
    result = run("explain", "adult.toml", BY_SEX, "--analyst", "ann")
    assert result.returncode == 0
    assert result.stdout.isascii()
    assert result.stdout.strip()
    assert json.loads(run("budget", "adult.toml", "--format", "json").stdout)[0]["rho_spent"] == 0


def test_explain_as_json_has_the_price(run: Run) -> None:
    plan = json.loads(run("explain", "adult.toml", BY_SEX, "--analyst", "ann", "--format", "json").stdout)
    assert float(Fraction(str(plan["rho"]))) > 0
    assert plan["path"] == "direct"


def test_a_person_at_a_terminal_sees_a_table(adult_policy: Path) -> None:
    main, other = pty.openpty()
    question = command("query", "adult.toml", BY_SEX, "--analyst", "ann")
    settings = environment(TERM="xterm", COLUMNS="100", PYTHONIOENCODING="utf-8")
    with subprocess.Popen(question, cwd=adult_policy.parent, env=settings, stdout=other) as process:
        os.close(other)
        shown = b""
        try:
            while chunk := os.read(main, 4096):
                shown += chunk
        except OSError:  # Linux says so when the other side is closed
            pass
        os.close(main)
    assert process.returncode == 0
    assert re.search(r"Female +[0-9,]+ ± [0-9]+", shown.decode())
