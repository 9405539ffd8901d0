"""The command line keeps its promises to people and to scripts: streams, formats, carets, exit codes."""

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from rich.console import Console

from planner.basics.errors import BudgetExceeded, Refusal
from planner.gate import Gate
from planner.plans.result import OutputColumn, Result
from planner.policy import passwords
from proxy.cli import main as cli
from proxy.show.render import ASCII, ProgressLine, as_csv, as_json, measured_text, print_result, value_text

ROOT = Path(__file__).parents[3]
BY_SEX = "SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex"
COMMANDS = (
    *("init", "check", "query", "explain", "choose", "verify", "fidelity", "round", "serve", "budget", "passwd"),
    "refresh",
)

Run = Callable[..., subprocess.CompletedProcess[str]]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("FORCE_COLOR", "COLUMNS")}
    return kept | {"PYTHONPATH": str(ROOT), **more}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "noisegate", *arguments]


@pytest.fixture
def run(adult_policy: Path) -> Run:
    """Return a function that runs the command line beside a copy of the bundled table."""

    def run(*arguments: str, stdin: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            cwd=adult_policy.parent,
            env=environment(**more),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def default_policy(adult_policy: Path) -> Path:
    return adult_policy.rename(adult_policy.with_name("noisegate.toml"))


# --- query -------------------------------------------------------------------------------------------------


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


# --- errors and exit codes ---------------------------------------------------------------------------------


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


# --- choose ------------------------------------------------------------------------------------------------

BY_RACE = "SELECT sex, race, count(*) AS n FROM adult GROUP BY sex, race ORDER BY sex"


def test_choose_looks_and_takes_one_for_the_price_of_that_one(run: Run) -> None:
    asked = ("choose", "adult.toml", BY_SEX, BY_RACE, "--analyst", "ann", "--rho", "0.001")
    price = run(*asked, "--explain")
    assert "at best" in price.stdout
    look, taken = run(*asked, "--look", "--format", "json"), run(*asked, "--take", "2", "--format", "json")
    looked, then = ([row["rho"] for row in json.loads(one.stdout)] for one in (look, taken))
    assert looked == [None, None]
    assert then[0] is None
    assert look.returncode == taken.returncode == 0
    free = run("query", "adult.toml", "--analyst", "ann", BY_RACE, "--set", "rho=0.001")
    assert "free: already known" in free.stderr
    assert "1.78 % of the budget" in price.stdout
    assert "left 98.22 %" in taken.stderr


def test_choose_passes_on_what_decides(run: Run) -> None:
    options = ("--snr", "9", "--fraction", "0.25", "--deviations", "2", "--weights", "1", "3", "--no-stop", "--explain")
    result = run("choose", BY_SEX, BY_RACE, "adult.toml", "--analyst", "ann", *options)
    assert "if 25% of its groups have a ratio of 9, 2 standard deviations clear of it" in result.stdout
    assert "stop" not in result.stdout


def test_choose_without_analyses_is_wrong_usage(run: Run) -> None:
    result = run("choose", "adult.toml")
    assert result.returncode == 2
    assert "SQL is missing" in result.stderr


# --- the other commands ------------------------------------------------------------------------------------


def break_policy(policy: Path) -> None:
    text = policy.read_text(encoding="utf-8")
    text = text.replace("epsilon = 2.0", "epsilon = -1").replace(", max = 90 }", " }")
    policy.write_text(text, encoding="utf-8")


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


def test_budget_shows_everyone_and_each_account(run: Run) -> None:
    run("query", "adult.toml", BY_SEX, "--analyst", "ann")
    result = run("budget", "adult.toml")
    assert result.returncode == 0
    lines = [[cell.strip() for cell in line.split("|")] for line in result.stdout.splitlines()]
    assert lines[0] == ["population", "analyst", "epsilon spent", "of", "rho spent", "of", "left"]
    everyone, ann, bob = lines[2:]
    assert [line[1] for line in (everyone, ann, bob)] == ["everyone", "ann", "bob"]
    assert bob[-1] == "100.00 %"
    assert float(ann[-1].split()[0]) < float(everyone[-1].split()[0]) < 100


def test_budget_has_formats_for_programs(run: Run) -> None:
    rows = json.loads(run("budget", "adult.toml", "--format", "json").stdout)
    assert [row["analyst"] for row in rows] == [None, "ann", "bob"]
    table = list(csv.DictReader(io.StringIO(run("budget", "adult.toml", "--format", "csv").stdout)))
    assert [row["analyst"] for row in table] == ["", "ann", "bob"]
    assert list(table[0]) == list(rows[0])


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


# --- how answers look --------------------------------------------------------------------------------------


def result_of(types: dict[str, str], row: tuple[object, ...], interval: tuple[float, float] | None = None) -> Result:
    columns = tuple(OutputColumn(name, kind) for name, kind in types.items())
    bounds = tuple(interval if kind != "VARCHAR" else None for kind in types.values())
    return Result(columns, [row], [bounds], Fraction(0), "SELECT 1", None)


def test_a_terminal_gets_signs_and_a_pipe_gets_ascii() -> None:
    result = result_of({"sex": "VARCHAR", "n": "BIGINT"}, ("Female", 10_771), (10_721.0, 10_821.0))
    texts = []
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal, no_color=True, legacy_windows=False)
        print_result(console, result)
        texts.append(console.file.getvalue())  # type: ignore[attr-defined]
    assert "10,771 ± 50" in texts[0]
    assert texts[1] == "sex    |             n\n-------+--------------\nFemale | 10,771 +/- 50\n"


def test_control_characters_never_reach_a_terminal() -> None:
    result = result_of({"a\x1b[2J": "VARCHAR"}, ("\x1b]0;x\x07[bold]",))
    for terminal in (True, False):
        console = Console(file=io.StringIO(), force_terminal=terminal, no_color=True, width=100)
        print_result(console, result)
        text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())  # type: ignore[attr-defined]
        assert "\x1b" not in text
        assert "\\x1b]0;x\\x07[bold]" in text


@pytest.mark.parametrize(
    ("value", "interval", "text"),
    [
        (413, (363.0, 463.0), "413 ± 50"),
        (413, (362.99999, 463.00001), "413 ± 50"),
        (-3, (-53.2, 47.2), "-3 ± 51"),
        (31_412_163, (21_612_163.0, 41_212_163.0), "31,412,163 ± 9,800,000"),
        (38.58164, (38.15164, 39.01164), "38.58 ± 0.43"),
        (0.000123456, (0.000113456, 0.000133456), "0.000123 ± 0.000010"),
        (5, (5.0, 5.0), "5 ± 0"),
        (37.0, (35.0, 48.0), "37.0 (35.0 … 48.0)"),
        (10, (0.4, 13.2), "10 (0 … 14)"),
        (1.5, (float("-inf"), float("inf")), "1.5 ± ∞"),
        (None, (0.0, 1.0), "NULL"),
        (1994, None, "1994"),
        ("Male", None, "Male"),
    ],
)
def test_a_number_stands_beside_its_interval(value: object, interval: tuple[float, float] | None, text: str) -> None:
    assert measured_text(value, interval) == text


def test_signs_are_spelt_out_in_ascii() -> None:
    assert measured_text(1.5, (1.0, 2.0), signs=ASCII) == "1.50 +/- 0.50"
    assert measured_text(37, (35.0, 48.0), signs=ASCII) == "37 (35 to 48)"


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "nan"), (1e20, "1e+20"), (0.1 + 0.2, "0.3")])
def test_a_float_is_shown_to_six_digits(value: float, text: str) -> None:
    assert value_text(value) == text


def test_repeated_names_stay_apart_for_programs() -> None:
    columns = (OutputColumn("count", "BIGINT"), OutputColumn("count", "BIGINT"))
    result = Result(columns, [(1, 2)], [((0.0, 2.0), None)], Fraction(0), "SELECT 1", None)
    assert json.loads(as_json(result, intervals=True)) == [
        {"count": 1, "count_low": 0.0, "count_high": 2.0, "count_2": 2}
    ]
    assert as_csv(result, intervals=False) == "count,count_2\n1,2\n"


def test_json_has_no_values_that_json_does_not_know() -> None:
    result = result_of({"a": "DOUBLE"}, (float("nan"),))
    assert json.loads(as_json(result, intervals=False)) == [{"a": None}]


def test_an_answer_without_rows_keeps_its_header() -> None:
    result = Result((OutputColumn("a", "BIGINT"),), [], [], Fraction(0), "SELECT 0", None)
    assert as_csv(result, intervals=True) == "a\n"
    assert as_json(result, intervals=True) == "[]"
    console = Console(file=io.StringIO())
    print_result(console, result)
    assert console.file.getvalue() == "a\n-\n"  # type: ignore[attr-defined]


def waiting_on(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what is written while something waits, with the first second taken as over at once."""
    monkeypatch.setattr("proxy.show.render.PATIENCE", 0.0)
    console = Console(file=io.StringIO(), force_terminal=terminal, no_color=True)
    with ProgressLine(console, "opening") as waiting:
        waiting.step("reading")
        deadline = time.monotonic() + 10
        while terminal and "reading" not in console.file.getvalue() and time.monotonic() < deadline:  # type: ignore[attr-defined]
            threading.Event().wait(0.01)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_progress_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "reading" in waiting_on(True, monkeypatch)
    assert waiting_on(False, monkeypatch) == ""


def test_what_is_quick_shows_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.show.render.PATIENCE", 3600.0)
    console = Console(file=io.StringIO(), force_terminal=True)
    with ProgressLine(console, "opening") as waiting:
        waiting.step("reading")
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]


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
