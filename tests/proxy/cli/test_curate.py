"""The curator's commands: policies, passwords, refreshes, the ledger's place."""

import io
import re
from contextlib import closing
from pathlib import Path

import pytest

from planner.gate import Gate
from planner.policy import passwords
from proxy.cli import main as cli
from tests.proxy.cli.process import BY_SEX, Run, break_policy


def test_check_says_in_one_line_what_is_guarded(run: Run) -> None:
    result = run("check", "adult.toml")
    assert result.returncode == 0
    assert result.stdout == (
        "adult.toml: ok: adult (15 columns), adult_synth (synthetic); epsilon 2 at delta 1e-09; ann 60 %, bob 40 %\n"
    )


def test_check_lists_every_mistake_with_its_line(run: Run, adult_policy: Path) -> None:
    break_policy(adult_policy)
    result = run("check", "adult.toml")
    assert result.returncode == 1
    first, second = result.stdout.splitlines()
    assert first.startswith("adult.toml:5: budget")
    assert re.match(r"adult\.toml:[0-9]+: tables\.adult\.columns\.age: max is missing", second)


def test_check_reports_a_missing_file(run: Run) -> None:
    result = run("check", "none.toml")
    assert result.returncode == 1
    assert "none.toml: can't be read" in result.stdout


def test_init_prints_a_policy_whose_bounds_are_missing(run: Run, adult_policy: Path) -> None:
    result = run("init", "adult.parquet")
    assert result.returncode == 0
    (adult_policy.parent / "first.toml").write_text(result.stdout, encoding="utf-8")
    checked = run("check", "first.toml")
    assert checked.returncode == 1
    assert "columns.age: " in checked.stdout


def test_init_refuses_what_is_no_source(run: Run) -> None:
    result = run("init", "adult.txt")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")


def test_passwd_reads_stdin_and_prints_a_line_for_the_policy(run: Run) -> None:
    result = run("passwd", "alice", stdin="correct horse\n")
    match = re.fullmatch(r'password = "(SCRAM-SHA-256\$.+)"\n', result.stdout)
    assert match
    assert passwords.verify("correct horse", match[1])
    assert "[analysts.alice]" in result.stderr
    assert "correct horse" not in result.stdout + result.stderr


def test_passwd_refuses_an_empty_password(run: Run) -> None:
    result = run("passwd")
    assert (result.returncode, result.stdout, result.stderr) == (1, "", "error: the password is empty\n")


def test_passwd_asks_twice_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(["one", "two"])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("getpass.getpass", lambda _: next(answers))
    assert cli.main(["passwd"]) == 1


def test_refresh_makes_old_answers_stay_charged_but_not_reused(run: Run) -> None:
    run("query", "adult.toml", BY_SEX, "--analyst", "ann")
    result = run("refresh", "adult.toml", "adult")
    assert result.returncode == 0, result.stderr
    again = run("query", "adult.toml", BY_SEX, "--analyst", "ann")
    assert re.search(r"cost [0-9.]+ % of the budget", again.stderr)


def test_refresh_says_first_what_was_paid_and_a_dry_run_only_says_it(run: Run) -> None:
    run("query", "adult.toml", BY_SEX, "--analyst", "ann")
    told = run("refresh", "adult.toml", "adult", "--dry-run")
    assert told.returncode == 0, told.stderr
    paid, left, cells, _ = told.stdout.splitlines()
    [spent] = re.findall(r"has paid ([0-9.]+) % of the budget, rho [0-9.e-]+$", paid)
    [rest] = re.findall(r"^after a refresh ([0-9.]+) % is left for new questions, rho [0-9.e-]+$", left)
    assert round(float(spent) + float(rest), 2) == 100
    assert "can then no longer be shared by cells" in cells
    assert "free: already known" in run("query", "adult.toml", BY_SEX, "--analyst", "ann").stderr
    done = run("refresh", "adult.toml", "adult")
    assert (done.stdout, done.stderr) == (told.stdout, "adult: refreshed, its data are version 2 now\n")


@pytest.mark.parametrize(("answer", "code", "version"), [("y\n", 0, 2), ("n\n", 1, 1), ("", 1, 1)])
def test_refresh_asks_at_a_terminal(
    adult_policy: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, version: int
) -> None:
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    assert cli.main(["refresh", str(adult_policy), "adult"]) == code
    with closing(Gate.open(adult_policy)) as gate:
        assert gate.ledger.version("adult") == version
        assert cli.main(["refresh", str(adult_policy), "adult", "--yes"]) == 0
        assert gate.ledger.version("adult") == version + 1


def test_refresh_refuses_an_unknown_table(run: Run) -> None:
    result = run("refresh", "adult.toml", "nobody")
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")


def test_relocate_takes_the_policy_in_either_place_and_is_safe_to_run_twice(run: Run) -> None:
    for arguments in (("adult.toml", "new.sqlite"), ("new.sqlite", "adult.toml")):
        result = run("relocate", *arguments)
        assert (result.returncode, result.stdout) == (0, 'url = "new.sqlite"\n'), result.stderr
    assert run("budget", "adult.toml").stderr.startswith(
        "error: the ledger adult.ledger.sqlite was moved to new.sqlite"
    )


def test_relocate_repeats_no_password(run: Run) -> None:
    result = run("relocate", "adult.toml", "postgresql://ann:hunter2@db/ledger")
    assert result.returncode == 1
    assert result.stderr.startswith("error: url must not hold a password")
    assert "hunter2" not in result.stdout + result.stderr
