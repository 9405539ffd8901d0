"""Whatever changes which rows count, or as what, starts a new version: no two states of the data share one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from planner.basics.errors import SourceFailed
from planner.counting.tally import Tally
from planner.gate import Gate
from planner.policy.file import COLUMN_KEYS, TABLE_KEYS, load
from planner.sources.content import TICK, Content
from planner.sources.duckdb import DuckdbSource
from planner.sources.source import open_source
from tests.planner.gates import policy, write

UNIT = 'privacy_unit = "id"\nmax_rows_per_unit = 2\nrow_key = "day"\n'
COLUMNS = """
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
weight = { type = "float", min = 0, max = 200, step = 0.5 }
sex = { values = ["F", "M"] }
"""
ROWS = "SELECT range AS id, range AS day, range % 90 AS age, 70.0 AS weight, 'F' AS sex FROM range({n})"
QUESTION = "SELECT count(*) FROM people WHERE age = 30"

CHANGES: dict[str, list[tuple[str, str]]] = {
    "source": [('"people.parquet"', '"others.parquet"'), ('"people.parquet"', '"people.duckdb#t"')],
    "privacy_unit": [('privacy_unit = "id"', 'privacy_unit = "day"'), (UNIT, "")],
    "max_rows_per_unit": [("max_rows_per_unit = 2", "max_rows_per_unit = 3")],
    "row_key": [('row_key = "day"', 'row_key = "id"'), ('row_key = "day"\n', "")],
    "columns": [('sex = { values = ["F", "M"] }', ""), ("[tables.people.columns]", "[tables.people.columns]\nid = 3")],
    "type": [('type = "integer", min = 0', 'type = "float", step = 1, min = 0')],
    "min": [("min = 0, max = 110", "min = 1, max = 110")],
    "max": [("max = 110", "max = 100")],
    "step": [("step = 0.5", "step = 0.25"), ('"integer", min = 0', '"integer", step = 10, min = 0')],
    "values": [('["F", "M"]', '["F", "M", "D"]'), ('["F", "M"]', '["M", "F"]'), ('["F", "M"]', '["F"]')],
    "other": [('["F", "M"] }', '["F", "M"], other = "else" }')],
    "nullable": [("max = 110 }", "max = 110, nullable = true }"), ('["F", "M"] }', '["F", "M"], nullable = true }')],
    "hidden": [('sex = { values = ["F", "M"] }', "sex = { hidden = true }")],
}
"""For every key of a protected table or a column of it, what a curator may write in the place of what."""

EXEMPT = {
    "timeout": ("", 'timeout = "1 minute"\n', "how long a server may take"),
    "rows": ("", "rows = 900\n", "what a relative error is relative to"),
    "population": ("", 'population = "others"\n', "who pays from now on: the limits say that a new name is new budget"),
    "role": ("max = 110 }", 'max = 110, role = "measure" }', "what is said about a column to people who look at it"),
}
"""Keys that say nothing about which rows count, and as what: why not."""

CASES = [(key, *change) for key, changes in CHANGES.items() for change in changes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("changes")
    write(found / "people.parquet", ROWS.format(n=900))
    write(found / "others.parquet", ROWS.format(n=901))
    write(found / "people.duckdb", ROWS.format(n=900))
    return found


def text(entries: str = UNIT, source: str = "people.parquet") -> str:
    return f'[tables.people]\nsource = "{source}"\n{entries}{COLUMNS}'


def fingerprint(folder: Path, declared: str) -> str | None:
    declared = declared.replace("id = 3", 'id = { type = "integer", min = 0, max = 9 }')
    with closing(open_source(load(policy(folder, declared)).tables["people"])) as source:
        return source.fingerprint()


@pytest.mark.parametrize(("key", "before", "after"), CASES)
def test_a_key_that_changes_which_rows_count_makes_a_new_version(
    folder: Path, key: str, before: str, after: str
) -> None:
    assert before in text()
    assert fingerprint(folder, text().replace(before, after)) != fingerprint(folder, text())


@pytest.mark.parametrize("key", [key for key in EXEMPT if key != "timeout"])
def test_a_key_that_does_not_is_no_new_version(folder: Path, key: str) -> None:
    before, after, _ = EXEMPT[key]
    changed = text().replace(before, after) if before else text(UNIT + after)
    assert fingerprint(folder, changed) == fingerprint(folder, text())


def test_every_key_of_a_protected_table_is_thought_of() -> None:
    assert {*CHANGES, *EXEMPT} == {"source", *TABLE_KEYS["protected"], *COLUMN_KEYS}


def test_another_table_of_the_same_file_is_another_version(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute(f"CREATE TABLE t AS {ROWS.format(n=900)}; CREATE TABLE u AS {ROWS.format(n=900)}")
    found = {fingerprint(tmp_path, text(source=f"people.duckdb#{name}")) for name in ("t", "u")}
    assert len(found) == 2


# --- several policies --------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write(tmp_path / "people.parquet", ROWS.format(n=900))
    return policy(tmp_path, text(""))


@pytest.fixture
def gate(path: Path) -> Iterator[Gate]:
    with closing(Gate.open(path)) as found:
        yield found


def refused(gate: Gate, sql: str = QUESTION) -> None:
    with pytest.raises(SourceFailed, match="changed since it was first read"):
        gate.session().execute(sql)


def test_a_policy_that_is_changed_and_changed_back_is_two_new_versions(path: Path) -> None:
    plain = path.read_text()
    for number, declared in enumerate((plain, plain.replace("max = 110", "max = 50"), plain), start=1):
        path.write_text(declared)
        with closing(Gate.open(path)) as gate:
            if number > 1:
                refused(gate)
                assert gate.refresh("people") == number
            gate.session().execute(QUESTION)
            spent = gate.ledger.spent("default")
    with closing(Gate.open(path)) as gate:
        one = gate.ledger.releases()[0].cost.highest
        assert [release.version for release in gate.ledger.releases()] == [1, 2, 3]
        assert spent == sum(release.cost.highest for release in gate.ledger.releases()) >= 2 * one


def test_two_gates_with_different_policies_never_share_a_version(path: Path, gate: Gate) -> None:
    other_path = path.with_name("other.toml")
    other_path.write_text(path.read_text().replace("max = 110", "max = 50"))
    with closing(Gate.open(other_path)) as other:
        assert other.policy.ledger == gate.policy.ledger
        gate.session().execute(QUESTION)
        refused(other)
        other.refresh("people")
        other.session().execute(QUESTION)
        refused(gate)
        gate.refresh("people")
        refused(other, "SELECT count(*) FROM people WHERE age = 31")
        gate.session().execute(QUESTION)
        assert [release.version for release in gate.ledger.releases()] == [1, 2, 3]
        assert gate.ledger.spent("default") == sum(release.cost.highest for release in gate.ledger.releases())


# --- files -------------------------------------------------------------------------------------------------


def ages(file: Path, age: int) -> None:
    """Write a CSV file of one length and one time, whatever the age."""
    file.write_text("age\n" + f"{age}\n" * 900)
    os.utime(file, ns=(10**18, 10**18))


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_with_its_old_size_and_time_is_noticed_when_it_is_read(tmp_path: Path, *, replaced: bool) -> None:
    ages(tmp_path / "people.csv", 30)
    declared = '[tables.people]\nsource = "people.csv"\n[tables.people.columns]\n'
    path = policy(tmp_path, declared + 'age = { type = "integer", min = 0, max = 110 }\n')
    with closing(Gate.open(path)) as gate, closing(Gate.open(path)) as other:
        gate.session().execute(QUESTION)
        if replaced:
            (tmp_path / "people.csv").unlink()
        ages(tmp_path / "people.csv", 31)
        for each in (other, gate):
            refused(each, "SELECT sum(age) FROM people")
        gate.refresh("people")
        for each in (other, gate):
            each.session().execute("SET noisegate.error = 5")
            assert abs(each.session().execute("SELECT count(*) FROM people WHERE age = 31").rows[0][0] - 900) < 400


def test_what_lies_in_the_log_of_a_database_file_is_noticed(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute(f"CREATE TABLE t AS {ROWS.format(n=900)}")
    with closing(Gate.open(policy(tmp_path, text("", source="people.duckdb#t")))) as gate:
        gate.session().execute(QUESTION)
        before = (tmp_path / "people.duckdb").stat()
    with duckdb.connect(str(tmp_path / "people.duckdb")) as connection:
        connection.execute("PRAGMA disable_checkpoint_on_shutdown; DELETE FROM t WHERE age = 30")
    assert (tmp_path / "people.duckdb.wal").exists()
    assert (tmp_path / "people.duckdb").stat().st_mtime_ns == before.st_mtime_ns
    with closing(Gate.open(tmp_path / "policy.toml")) as gate:
        refused(gate)


def test_a_file_is_read_again_while_its_time_can_not_vouch_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writes in one tick of the clock: the second is seen, unless the first is so long ago that a time changes."""
    file, signs = tmp_path / "people.csv", ((1, 1, 4, 10**18, 10**18),)
    content = Content([file])
    monkeypatch.setattr(content, "signs", lambda: signs)
    for late, seen in ((TICK, True), (TICK + 1, False)):
        monkeypatch.setattr("time.time_ns", lambda late=late: 10**18 + late)
        file.write_text("old\n")
        before = content.digest()
        file.write_text("new\n")
        assert (content.digest() != before) is seen


def test_a_file_that_changes_in_the_middle_of_a_reading_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, plain = tmp_path / "people.csv", DuckdbSource.tally
    ages(file, 30)
    declared = '[tables.people]\nsource = "people.csv"\n[tables.people.columns]\n'
    path = policy(tmp_path, declared + 'age = { type = "integer", min = 0, max = 110 }\n')

    def meanwhile(*arguments: Any, **named: Any) -> Tally:
        found = plain(*arguments, **named)
        ages(file, 31)
        return found

    with closing(Gate.open(path)) as gate:
        monkeypatch.setattr(DuckdbSource, "tally", meanwhile)
        with pytest.raises(SourceFailed, match="changed while it was read"):
            gate.session().execute(QUESTION)
        assert gate.ledger.releases() == []


# --- what is kept of a version -----------------------------------------------------------------------------


def test_counts_of_a_version_that_is_over_are_not_kept_for_the_next(
    gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread reads, another refreshes and asks; what the first one read must not answer for the new version."""
    plain, read = DuckdbSource.tally, list[int]()

    def refreshed(*arguments: Any, **named: Any) -> Tally:
        found = plain(*arguments, **named)
        read.append(gate.ledger.version("people"))
        if len(read) == 1:
            gate.refresh("people")
            gate.session().execute("SELECT count(*) FROM people WHERE sex = 'F'")
        return found

    monkeypatch.setattr(DuckdbSource, "tally", refreshed)
    with pytest.raises(SourceFailed, match="refreshed while it was read"):
        gate.session().execute(QUESTION)
    gate.session().execute(QUESTION)
    assert read == [1, 2, 2]


def test_threads_that_read_at_once_do_not_wait_for_each_other_for_ever(gate: Gate) -> None:
    costs: list[object] = []

    def ask(age: int) -> Callable[[], None]:
        return lambda: costs.append(gate.session().execute(f"SELECT count(*) FROM people WHERE age = {age}").cost)

    threads = [threading.Thread(target=ask(age)) for age in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(costs) == 6
