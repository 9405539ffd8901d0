"""The demo runs from a clean slate, shows what it promises, and what it tells to paste works."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from noisegate import demo

ROOT = Path(__file__).parents[2]


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def output(folder: Path) -> str:
    result = run(sys.executable, "-m", "noisegate", "demo", folder=folder)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def stations(output: str) -> list[str]:
    return output.split("\n\n")


def test_it_says_what_is_guarded_by_which_budget(output: str) -> None:
    assert "guarding 32,561 people (UCI Adult) with a budget of ε = 2.0 at δ = 1e-9" in output


def test_a_dozen_different_questions_are_asked() -> None:
    assert len({question.sql for question in demo.QUESTIONS}) >= 12


@pytest.mark.parametrize("question", demo.QUESTIONS, ids=lambda question: question.about)
def test_each_question_stands_with_its_answer_and_its_cost(output: str, question: demo.Question) -> None:
    [station] = [text for text in stations(output) if text.splitlines()[0].strip() == question.about]
    assert indented(question.sql) in station
    cost = station.splitlines()[-1]
    assert re.fullmatch(r" +(cost [0-9.]+ % of the budget|free: .+?) +left [0-9.]+ %", cost)
    assert re.search(r"[0-9] (± [0-9]|\([0-9.,-]+ … [0-9])", station), station


def indented(sql: str) -> str:
    return "\n".join(f"  {line}" for line in sql.splitlines())


def test_the_budget_goes_down_and_never_up(output: str) -> None:
    left = [float(text) for text in re.findall(r"left ([0-9.]+) %", output)]
    assert left == sorted(left, reverse=True)
    assert 100 > left[0] > left[-1] > 0


def test_the_same_question_is_free_the_second_time(output: str) -> None:
    assert "free: already known" in stations(output)[len(demo.QUESTIONS)]


def test_a_plan_is_shown(output: str) -> None:
    assert f"EXPLAIN {demo.EXPLAINED}\n    " in output


def test_one_question_is_refused_clearly(output: str) -> None:
    [station] = [text for text in stations(output) if f"  {demo.REFUSED}\n" in text]
    assert "refused, 42501: " in station
    assert re.search(r"LINE 1: SELECT \* FROM adult LIMIT 5\n +\^", station)
    assert "hint: " in station


def test_the_commands_at_the_end_can_be_pasted(output: str, folder: Path) -> None:
    tail = output[output.index("Go on from here") :]
    commands = [shlex.split(line) for line in tail.splitlines() if "adult.toml" in line and "with " not in line]
    assert [command[-1] for command in commands if "serve" in command] == ["--trust"]
    commands = [command for command in commands if "serve" not in command]  # it runs until it is stopped
    assert len(commands) == 3
    for command in commands:
        result = run(*command, folder=folder)
        assert result.returncode == 0, result.stderr
        assert result.stdout


def test_the_server_at_the_end_answers_the_client_at_the_end(output: str, folder: Path) -> None:
    [line] = [line for line in output.splitlines() if " serve " in line]
    [client] = [line for line in output.splitlines() if line.startswith("  psql ")]
    where = shlex.split(client)[1].replace("port=5433 ", "")
    command = [*shlex.split(line), "--port", "0"]  # any port that is free here
    environment = os.environ | {"TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, encoding="utf-8") as server:
        try:
            assert server.stderr is not None
            port = next(found[1] for text in server.stderr if (found := re.search(r"\bport=(\d+)", text)))
            with psycopg.connect(f"{where} port={port}") as connection:
                rows = connection.execute("SELECT sex, avg(hours) FROM adult GROUP BY sex").fetchall()
            assert [sex for sex, _ in rows] == ["Female", "Male"]
        finally:
            server.terminate()


def test_the_program_at_the_end_can_be_pasted(output: str, folder: Path) -> None:
    program = "\n".join(line[2:] for line in output[output.index("  import noisegate") :].splitlines())
    result = run(sys.executable, "-W", "error", "-c", program, folder=folder)
    assert result.returncode == 0, result.stderr
    assert "('Female', " in result.stdout


def test_each_run_has_a_folder_and_a_budget_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first, second = demo.copy_table(), demo.copy_table()
    assert first != second
    assert {path.name for path in first.parent.iterdir()} == {
        "adult.parquet",
        "adult_synth.parquet",
        "adult.toml",
    }
