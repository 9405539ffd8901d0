"""Refusals, exit codes and help are the same for all commands."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from planner.basics.errors import BudgetExceeded, Refusal
from planner.gate import Gate
from proxy.cli import main as cli
from tests.proxy.cli.process import BY_SEX, Run, break_policy, command, environment

COMMANDS = (
    *("init", "check", "query", "explain", "choose", "verify", "fidelity", "round", "serve", "budget", "passwd"),
    "refresh",
)


def test_a_refusal_points_at_the_piece_and_exits_with_1(run: Run) -> None:
    result = run("query", "adult.toml", "--analyst", "ann", "SELECT count(*)\nFROM nobody WHERE 1 = 1")
    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert lines[1:3] == ["LINE 2: FROM nobody WHERE 1 = 1", "             ^^^^^^"]
    assert "Traceback" not in result.stderr


def test_a_refusal_gives_a_hint(run: Run) -> None:
    result = run("query", "adult.toml", "--analyst", "ann", "SELECT * FROM adult LIMIT 5")
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("hint: ")


def test_a_question_over_the_budget_exits_with_3_and_is_not_charged(run: Run) -> None:
    result = run("query", "adult.toml", "--analyst", "ann", BY_SEX, "--set", "error=0.5")
    assert result.returncode == 3
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    spent = [float(row["rho_spent"]) for row in json.loads(run("budget", "adult.toml", "--format=json").stdout)]
    assert spent == [0.0] * len(spent)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("no-such-command",),
        ("query",),
        ("query", "adult.toml"),
        ("query", "adult.toml", "SELECT 1", "more"),
        ("query", "SELECT 1", "--format", "xml"),
        ("query", "SELECT 1", "--set", "error"),
        ("query", "SELECT 1", "--set", "error; x=1"),
        ("explain", "SELECT 1", "--format", "csv"),
        ("init",),
        ("serve", "--port", "70000"),
        ("serve", "--workers", "0"),
        ("serve", "--log-format", "xml"),
    ],
    ids=" ".join,
)
def test_wrong_usage_exits_with_2(run: Run, arguments: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("usage: noisegate")


@pytest.mark.parametrize(
    "arguments",
    [
        ("query", "--analyst", "ann", "adult.toml", "SELECT 1"),
        ("query", "adult.toml", "--analyst", "ann", "SELECT 1"),
        ("query", "adult.toml", "SELECT 1", "--analyst", "ann"),
        ("query", "SELECT 1", "adult.toml", "--analyst=ann"),
        ("query", "SELECT 1", "--analyst=ann", "adult.toml"),
    ],
    ids=" ".join,
)
def test_options_and_arguments_mix(arguments: tuple[str, ...]) -> None:
    parsed = cli.parse(list(arguments))
    assert (parsed.policy, parsed.sql, parsed.analyst) == ("adult.toml", "SELECT 1", "ann")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "error: nobody could log in: no analyst has a password\nhint: make one with `noisegate passwd`"),
        (("--trust", "--host", "0.0.0.0"), 'error: auth = "trust" lets anyone in; it needs a loopback host'),
        (("--trust", "--host", "192.0.2.1"), 'error: auth = "trust" lets anyone in'),
    ],
)
def test_what_must_not_be_served_is_refused(run: Run, options: tuple[str, ...], message: str) -> None:
    result = run("serve", "adult.toml", "--port", "0", *options)
    assert result.returncode == 1
    assert result.stderr.startswith(message)


def test_an_unknown_analyst_is_a_user_error(run: Run) -> None:
    result = run("query", "adult.toml", "SELECT 1", "--analyst", "mallory")
    assert (result.returncode, result.stdout) == (1, "")
    assert "ann, bob; name one with --analyst" in result.stderr


def test_a_broken_policy_lists_its_mistakes_before_any_question(run: Run, adult_policy: Path) -> None:
    break_policy(adult_policy)
    result = run("query", "adult.toml", "SELECT 1", "--analyst", "ann")
    assert result.returncode == 1
    assert re.match(r"error: adult\.toml:5: budget", result.stderr)
    assert len(result.stderr.splitlines()) == 2


def test_what_is_unexpected_has_no_traceback_unless_asked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: object) -> Gate:
        raise RuntimeError("x = [1, 2, 3]")

    monkeypatch.setattr(Gate, "open", broken)
    assert cli.main(["query", "SELECT 1"]) == 1
    plain = capsys.readouterr()
    assert plain.out == ""
    assert plain.err.startswith("error: something went wrong inside the gate\nhint: ")
    assert "x =" not in plain.err
    assert cli.main(["query", "SELECT 1", "--debug"]) == 1
    assert "RuntimeError: x = [1, 2, 3]" in capsys.readouterr().err


def test_an_interrupt_exits_with_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(path: object) -> Gate:
        raise KeyboardInterrupt

    monkeypatch.setattr(Gate, "open", interrupted)
    assert cli.main(["query", "SELECT 1"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_broken_pipe_is_quiet(adult_policy: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as stdout:
        result = subprocess.run(
            command("init", "adult.parquet"),
            cwd=adult_policy.parent,
            env=environment(),
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert result.returncode == 128 + signal.SIGPIPE
    assert "Error" not in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(("kind", "code"), [(BudgetExceeded, 3), (Refusal, 1)])
def test_the_exit_code_follows_the_sqlstate(monkeypatch: pytest.MonkeyPatch, kind: type[Refusal], code: int) -> None:
    def refuse(path: object) -> Gate:
        raise kind("no")

    monkeypatch.setattr(Gate, "open", refuse)
    assert cli.main(["query", "SELECT 1"]) == code


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main([name, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert f"example:\n  noisegate {name}" in text
    assert "--debug" in text


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert [name for name in COMMANDS if f"\n    {name} " not in text] == []


def test_the_version_is_told(run: Run) -> None:
    result = run("--version")
    assert result.returncode == 0
    assert re.fullmatch(r"noisegate .+\n", result.stdout)
