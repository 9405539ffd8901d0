"""A statement is about one moment: the ledger is read once for it, and asked again only to commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.basics.errors import BudgetExceeded, SourceFailed
from planner.gate import Gate
from planner.ledger.stores.sqlite import SqliteStore
from planner.plans.plan import Planner
from planner.session import Session
from tests.planner.gates import open_gate, write

ROWS = "SELECT range % 90 AS age, CASE WHEN range % 2 = 0 THEN 'F' ELSE 'M' END AS sex FROM range(900)"
COLUMNS = 'age = { type = "integer", min = 0, max = 110 }\nsex = { values = ["F", "M"] }'
BY_SEX = "SELECT sex, count(*) FROM people GROUP BY sex"
YOUNG = "SELECT count(*) FROM people WHERE age < 30"
ONCE = {"read": 1, "write": 1}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a ledger was asked, to read and to write; a test empties it before what it counts."""
    counted, plain = Counter[str](), SqliteStore.transaction

    def counting(self: SqliteStore, *statements: Any, write: bool) -> Any:
        counted["write" if write else "read"] += 1
        return plain(self, *statements, write=write)

    monkeypatch.setattr(SqliteStore, "transaction", counting)
    return counted


@pytest.fixture
def gate(tmp_path: Path, asked: Counter[str]) -> Iterator[Gate]:
    found = open_gate(tmp_path, ROWS, columns=COLUMNS)
    asked.clear()
    yield found
    found.close()


@pytest.fixture
def session(gate: Gate) -> Session:
    return gate.session()


@pytest.mark.parametrize(
    "sql", [BY_SEX, "SELECT count(DISTINCT age) FROM people", "SELECT median(age), avg(age) FROM people"]
)
def test_a_first_query_reads_the_ledger_once_and_commits_once(session: Session, asked: Counter[str], sql: str) -> None:
    assert session.execute(sql).cost
    assert asked == ONCE


def test_a_repeat_and_an_explain_read_the_ledger_once(session: Session, asked: Counter[str]) -> None:
    session.execute(BY_SEX)
    for sql in (BY_SEX, f"EXPLAIN {BY_SEX}", f"EXPLAIN {YOUNG}", "SELECT * FROM noisegate.accounts LIMIT 0"):
        asked.clear()
        session.execute(sql)
        assert asked == {"read": 1}


@pytest.mark.parametrize("sql", ["SELECT 1", "SHOW noisegate.error", "BEGIN"])
def test_what_reads_no_protected_table_asks_no_ledger(session: Session, asked: Counter[str], sql: str) -> None:
    session.execute(sql)
    assert asked == {}


def test_a_round_of_three_reads_the_ledger_a_few_times_and_commits_once(session: Session, asked: Counter[str]) -> None:
    for sql in (BY_SEX, YOUNG, "SELECT age / 10, count(*) FROM people GROUP BY 1"):
        session.execute(f"SELECT * FROM noisegate.enlist('r', '{sql}', error => 5)")
    asked.clear()
    assert session.execute("SELECT * FROM noisegate.release('r')").cost
    assert asked["write"] == 1
    assert asked["read"] <= 4  # the moment, whether it was released before, who is enlisted, what was told


def test_describe_asks_no_ledger_and_plans_nothing(
    session: Session, asked: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [(column.name, column.type) for column in session.execute(BY_SEX).columns]
    asked.clear()
    monkeypatch.delattr(Planner, "plan")
    for sql in (BY_SEX, YOUNG, "SELECT median(age), stddev(age) FROM people", f"{BY_SEX} LIMIT 0"):
        assert session.describe(sql)
    assert [(column.name, column.type) for column in session.describe(BY_SEX)] == expected
    assert session.execute(f"{BY_SEX} LIMIT 0").rows == []
    assert asked == {}


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ("noisegate.error = 20", "BIGINT"),
        ("noisegate.error = '1%'", "BIGINT"),
        ("noisegate.rho = 0.0001", "BIGINT"),
        ("noisegate.error = 1e18", "HUGEINT"),
    ],
)
def test_described_types_are_those_of_the_answer_whatever_the_accuracy(
    session: Session, settings: str, kind: str
) -> None:
    session.execute("SELECT count(*) FROM people")
    session.execute(f"SET {settings}")
    sql = "SELECT sum(age), count(*) FILTER (WHERE age < 30) FROM people WHERE sex = 'F'"
    described = session.describe(sql)
    assert described[1].type == kind
    assert session.execute(sql).columns == described


# --- a plan is about one moment, and the commit checks that it still holds ---------------------------------


def test_a_refresh_between_planning_and_the_commit_is_seen(session: Session, gate: Gate) -> None:
    def refreshed(step: str) -> None:
        if step == "charging":
            gate.refresh("people")

    with pytest.raises(SourceFailed, match="refreshed while it was read"):
        session.execute(BY_SEX, on_step=refreshed)
    assert gate.ledger.releases() == []


def test_a_cap_that_another_gate_reaches_meanwhile_is_seen_by_the_commit(tmp_path: Path) -> None:
    one = open_gate(tmp_path, ROWS, columns=COLUMNS, epsilon=1.0)
    other = Gate.open(tmp_path / "policy.toml")
    dear = "SELECT age, count(*) FROM people GROUP BY age"
    for gate in (one, other):
        gate.session()

    def meanwhile(step: str) -> None:
        if step == "charging":
            session = other.session()
            session.execute(f"SET noisegate.rho = {float(other.cap) * 0.9}")
            session.execute(dear)

    session = one.session()
    session.execute(f"SET noisegate.rho = {float(one.cap) * 0.5}")
    with pytest.raises(BudgetExceeded):
        session.execute(BY_SEX, on_step=meanwhile)
    assert len(one.ledger.releases()) == 1
    one.close()
    other.close()


def test_two_gates_that_read_other_rows_at_first_can_not_both_charge(tmp_path: Path) -> None:
    """Nothing was recorded of the source when both began; the one that commits later has read other rows."""
    one = open_gate(tmp_path, ROWS, columns=COLUMNS)
    other = Gate.open(tmp_path / "policy.toml")

    def meanwhile(step: str) -> None:
        if step == "charging":
            write(tmp_path / "people.parquet", ROWS.replace("range(900)", "range(901)"))
            other.session().execute(YOUNG)

    with pytest.raises(SourceFailed, match="changed since it was first read"):
        one.session().execute(BY_SEX, on_step=meanwhile)
    assert len(one.ledger.releases()) == 1
    one.close()
    other.close()
