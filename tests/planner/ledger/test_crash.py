"""A gate that is killed, raced, robbed of its ledger or given other data: no answer without its charge, ever."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from planner.basics.errors import BadValue, LedgerFailed, Refusal, SourceFailed
from planner.cells.costs import rho_of
from planner.gate import Gate
from tests.planner.gate_worker import QUESTIONS
from tests.planner.gates import KINDS, open_gate, source, write

pytestmark = pytest.mark.slow  # gates that fail at every step

COLUMNS = 'age = { type = "integer", min = 0, max = 110 }\nsex = { values = ["F", "M"] }\n'
ROWS = "SELECT range % 90 AS age, CASE WHEN range % 3 = 0 THEN 'F' ELSE 'M' END AS sex FROM range({n})"
COPY = '[tables.copy]\nsource = "{source}"\nsynthetic_of = "people"\n'
ANALYSTS = "[analysts.ann]\nshare = 0.5\n[analysts.bob]\nshare = 0.5\n"


def world(folder: Path, *, kind: str = "parquet", rest: str = "", epsilon: float = 1000.0, n: int = 900) -> Path:
    """Return the policy of a small table."""
    rest += COPY.format(source=source(kind))
    gate = open_gate(folder, ROWS.format(n=n), columns=COLUMNS, kind=kind, rest=rest, epsilon=epsilon)
    gate.close()
    return gate.policy.path


def work(task: str, path: Path, *numbers: int) -> Any:
    """Run a task of the worker in a process of its own."""
    command = [sys.executable, "-m", "tests.planner.gate_worker", task, str(path), *map(str, numbers)]
    run = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[3], timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def told(gate: Gate, sql: str, analyst: str | None = None) -> list[Any]:
    """Return an answer as the worker tells it."""
    result = gate.session(analyst).execute(sql)
    return json.loads(json.dumps([result.rows, result.intervals]))  # type: ignore[no-any-return]


# --- kill -9 -----------------------------------------------------------------------------------------------


def test_after_kill_9_every_answer_is_charged_and_is_given_again_for_nothing(tmp_path: Path) -> None:
    path = world(tmp_path)
    lines = [json.loads(line) for line in work("kill", path, 12)]
    assert len({sql for sql, *_ in lines}) > 10
    gate = Gate.open(path)
    spent = gate.ledger.spent("default")
    paid = {release.sql for release in gate.ledger.releases()}
    for sql, *_ in lines:
        # A part of it may have been released by another question: then that one was charged.
        assert sql in paid or gate.session().explain(sql).path == "free"
        session = gate.session()
        assert session.explain(sql).rho == 0
        result = session.execute(sql)
        assert result.cost == 0
    assert gate.ledger.spent("default") == spent
    gate.close()


def test_after_kill_9_the_answers_that_got_out_can_be_made_again_to_the_digit(tmp_path: Path) -> None:
    """With one worker at a time, every answer was made from all releases there were, which as_of goes back to."""
    path = world(tmp_path)
    lines = [json.loads(line) for line in work("kill_one", path, 12)]
    gate = Gate.open(path)
    session = gate.session()
    for sql, rows, intervals, _, last in lines:
        session.execute(f"SET noisegate.as_of = {last}")
        result = session.execute(sql)
        assert json.loads(json.dumps([result.rows, result.intervals])) == [rows, intervals]
    gate.close()


def test_after_kill_9_no_key_has_two_releases_and_nothing_is_paid_twice(tmp_path: Path) -> None:
    path = world(tmp_path)
    work("kill", path, 5)
    gate = Gate.open(path)
    keys = [release.key for release in gate.ledger.releases()]
    assert len(keys) == len(set(keys))
    for sql in QUESTIONS:
        gate.session().execute(sql)
    before = gate.ledger.spent("default")
    for sql in QUESTIONS:
        assert gate.session().execute(sql).cost == 0
    assert gate.ledger.spent("default") == before
    gate.close()


# --- races -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(6))
def test_processes_that_ask_the_same_at_once_get_one_answer_and_pay_once(tmp_path: Path, number: int) -> None:
    path = world(tmp_path)
    found = work("together", path, 5, number)
    assert found["codes"] == [0] * 5
    lines = [json.loads(line) for line in found["lines"]]
    assert len(lines) == 5
    assert all(line[1:3] == lines[0][1:3] for line in lines)
    gate = Gate.open(path)
    releases = gate.ledger.releases()
    assert len({release.question for release in releases}) == len(releases)
    if not any(release.kind in ("quantile", "decision") for release in releases):  # two draws may be the same
        # What was charged to all of them together is what is in the ledger: each release to one.
        assert sum(Fraction(line[3]) for line in lines) == sum(rho_of(release.cost.highest) for release in releases)
    gate.close()


def test_threads_that_ask_the_same_at_once_get_one_answer_and_pay_once(tmp_path: Path) -> None:
    gate = Gate.open(world(tmp_path))
    barrier, answers, failures = threading.Barrier(8), list[Any](), list[BaseException]()

    def ask() -> None:
        try:
            found = []
            for sql in QUESTIONS[:8]:
                barrier.wait()  # so that nobody is ahead, and knows more
                found.append(told(gate, sql))
            answers.append(found)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert all(answer == answers[0] for answer in answers)
    questions = [release.question for release in gate.ledger.releases()]
    assert len(questions) == len(set(questions))
    gate.close()


def test_threads_that_share_a_session_do_not_mix_their_answers(tmp_path: Path) -> None:
    gate = Gate.open(world(tmp_path))
    session = gate.session()
    for sql in QUESTIONS[:10]:
        session.execute(sql)
    expected = {sql: session.execute(sql).rows for sql in QUESTIONS[:10]}  # from now on nothing is released
    failures: list[BaseException] = []

    def ask(seed: int) -> None:
        order = list(expected)
        random.Random(seed).shuffle(order)
        try:
            for sql in order:
                assert session.execute(sql).rows == expected[sql]
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    gate.close()


def test_processes_that_race_for_the_budget_never_pass_it(tmp_path: Path) -> None:
    path = world(tmp_path, rest=ANALYSTS, epsilon=1.1)
    found = work("race", path, 4)
    assert found["codes"] == [0] * 4
    refused = [line for line in found["lines"] if line.startswith("refused")]
    answered = [json.loads(line) for line in found["lines"] if not line.startswith("refused")]
    assert set(refused) == {"refused 53400"}
    assert answered
    gate = Gate.open(path)
    assert rho_of(gate.ledger.spent("default")) <= gate.cap
    for analyst in ("ann", "bob"):
        assert rho_of(gate.ledger.account_spent("default", analyst)) <= gate.cap / 2
    stored = {release.sql for release in gate.ledger.releases()}
    assert {line[0] for line in answered if Fraction(line[3]) > 0} == stored
    assert len(gate.ledger.releases()) == sum(Fraction(line[3]) > 0 for line in answered)
    # Each answer is 1 / 0.36 times as dear as the one before, so that the last one refused was not far away.
    assert rho_of(gate.ledger.spent("default")) > gate.cap * Fraction(1, 10)
    gate.close()


# --- the ledger is lost ------------------------------------------------------------------------------------


def removed(ledger: Path) -> None:
    for path in ledger.parent.glob(f"{ledger.name}*"):
        path.unlink()


def file_removed(ledger: Path) -> None:
    ledger.unlink()


def replaced_by_an_older_copy(ledger: Path) -> None:
    shutil.copy(ledger, ledger.with_suffix(".old"))
    os.replace(ledger.with_suffix(".old"), ledger)


def emptied(ledger: Path) -> None:
    os.truncate(ledger, 0)


def overwritten(ledger: Path) -> None:
    size = ledger.stat().st_size
    with ledger.open("r+b") as file:
        file.write(random.Random(1).randbytes(size))


def folder_removed(ledger: Path) -> None:
    shutil.move(ledger.parent, ledger.parent.with_name("elsewhere"))


MORE = ("SELECT sex, count(*) FROM people GROUP BY sex", "SELECT count(*) FROM people", "SELECT sum(age) FROM people")


@pytest.mark.parametrize(
    "harm", [removed, file_removed, replaced_by_an_older_copy, folder_removed], ids=lambda harm: harm.__name__
)
def test_a_gate_whose_ledger_is_gone_answers_nothing(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """Neither new questions nor old ones, until the ledger is back."""
    gate = Gate.open(world(tmp_path / "gate"))
    session = gate.session()
    session.execute("SELECT count(*) FROM people")
    harm(gate.policy.ledger)
    for sql in MORE:
        with pytest.raises(LedgerFailed if harm is not folder_removed else Refusal):
            session.execute(sql)
        with pytest.raises(LedgerFailed if harm is not folder_removed else Refusal):
            session.explain(sql)


@pytest.mark.parametrize("harm", [file_removed, emptied, overwritten], ids=lambda harm: harm.__name__)
def test_a_damaged_ledger_is_never_a_fresh_budget(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """What a running gate can't see (SQLite has its pages in memory) the next start refuses."""
    path = world(tmp_path)
    gate = Gate.open(path)
    session = gate.session()
    session.execute("SELECT count(*) FROM people")
    harm(gate.policy.ledger)
    for sql in MORE:
        with suppress(LedgerFailed):
            session.execute(sql)
    with pytest.raises(LedgerFailed):
        Gate.open(path)


# --- the data changes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_data_is_refused_until_refresh_and_history_is_charged_but_not_reused(
    tmp_path: Path, kind: str
) -> None:
    path = world(tmp_path, kind=kind)
    gate, other = Gate.open(path), Gate.open(path)
    sql, error = "SELECT count(*) FROM people", "SET noisegate.error = 3"
    sessions = [gate.session(), other.session()]
    for session in sessions:
        session.execute(error)
    first = sessions[0].execute(sql)
    assert abs(first.rows[0][0] - 900) < 30
    write(tmp_path / f"new.{kind}", ROWS.format(n=5000))
    os.replace(tmp_path / f"new.{kind}", tmp_path / f"people.{kind}")
    for session in sessions:
        for asked in (sql, "SELECT sum(age) FROM people"):
            with pytest.raises(SourceFailed, match="changed"):
                session.execute(asked)
    spent = gate.ledger.spent("default")
    assert gate.refresh("people") == 2
    for session in reversed(sessions):  # the other gate first: it must see the new data, too
        again = session.execute(sql)
        assert abs(again.rows[0][0] - 5000) < 30
    assert gate.ledger.spent("default") > spent
    assert rho_of(gate.ledger.spent("default")) == 2 * first.cost
    assert [release.version for release in gate.ledger.releases()] == [1, 2]
    gate.close()
    other.close()


@pytest.mark.parametrize("kind", KINDS)
def test_data_that_changes_while_no_gate_runs_is_refused_too(tmp_path: Path, kind: str) -> None:
    path = world(tmp_path, kind=kind)
    gate = Gate.open(path)
    gate.session().execute("SELECT count(*) FROM people")
    gate.close()
    (tmp_path / f"people.{kind}").unlink()
    write(tmp_path / f"people.{kind}", ROWS.format(n=901))
    gate = Gate.open(path)
    with pytest.raises(SourceFailed, match="changed"):
        gate.session().execute("SELECT count(*) FROM people")
    gate.close()


def test_a_policy_that_reads_the_data_in_another_way_is_refused_until_refresh(tmp_path: Path) -> None:
    """History speaks of other rows than the new policy would count."""
    path = world(tmp_path)
    gate = Gate.open(path)
    gate.session().execute("SELECT count(*) FROM people")
    gate.close()
    path.write_text(path.read_text().replace("max = 110", "max = 50"))
    gate = Gate.open(path)
    with pytest.raises(SourceFailed, match="changed"):
        gate.session().execute("SELECT count(*) FROM people")
    gate.refresh("people")
    assert gate.session().execute("SELECT count(*) FROM people").cost > 0
    gate.close()


def test_a_missing_source_is_a_refusal_without_engine_text(tmp_path: Path) -> None:
    path = world(tmp_path)
    gate = Gate.open(path)
    (tmp_path / "people.parquet").unlink()
    with pytest.raises(SourceFailed, match=r"^the source of table people can't be read$"):
        gate.session().execute("SELECT count(*) FROM people")
    gate.close()


def test_two_tables_with_equal_columns_are_two_questions(tmp_path: Path) -> None:
    write(tmp_path / "others.parquet", ROWS.format(n=9000))
    rest = f'[tables.others]\nsource = "{source("parquet", "others")}"\n[tables.others.columns]\n{COLUMNS}'
    gate = open_gate(tmp_path, ROWS.format(n=900), columns=COLUMNS, rest=rest)
    session = gate.session()
    session.execute("SET noisegate.error = 3")
    [(one, other)] = session.execute("SELECT (SELECT count(*) FROM people), (SELECT count(*) FROM others)").rows
    assert abs(one - 900) < 30
    assert abs(other - 9000) < 30
    assert abs(session.execute("SELECT count(*) FROM others").rows[0][0] - 9000) < 30
    gate.close()


# --- as of -------------------------------------------------------------------------------------------------


def test_as_of_a_release_answers_as_it_did_then_and_spends_nothing(tmp_path: Path) -> None:
    gate = open_gate(tmp_path, ROWS.format(n=900), columns=COLUMNS)
    session, sql = gate.session(), "SELECT sex, count(*), sum(age) FROM people GROUP BY sex ORDER BY sex"
    session.execute("SET noisegate.error = 60")
    first = session.execute(sql)
    number = gate.ledger.releases()[-1].id
    session.execute("SET noisegate.error = 20")
    better = session.execute(sql)
    assert better.cost > 0
    assert better.rows != first.rows
    spent = gate.ledger.spent("default")
    session.execute(f"SET noisegate.as_of = {number}")
    session.execute("SET noisegate.error = 60")
    then = session.execute(sql)
    assert (then.rows, then.intervals, then.cost) == (first.rows, first.intervals, 0)
    with pytest.raises(BadValue, match="do not answer this"):
        session.execute("SELECT count(*) FROM people WHERE age > 7")
    assert gate.ledger.spent("default") == spent
    session.execute("RESET noisegate.as_of")
    assert session.execute(sql).rows == better.rows
    gate.close()


def test_as_of_a_release_of_older_data_still_answers_as_it_did(tmp_path: Path) -> None:
    gate = open_gate(tmp_path, ROWS.format(n=900), columns=COLUMNS)
    session, sql = gate.session(), "SELECT sex, count(*), median(age) FROM people GROUP BY sex ORDER BY sex"
    first = session.execute(sql)
    last = gate.ledger.releases()[-1].id
    gate.refresh("people")
    assert session.execute(sql).rows != first.rows
    session.execute(f"SET noisegate.as_of = {last}")
    assert session.execute(sql).rows == first.rows
    gate.close()
