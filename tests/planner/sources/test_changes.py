"""Whatever changes which rows count, or as what, starts a new version: no two states of the data share one."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from planner.basics.errors import SourceFailed
from planner.cells.workspace import Axis
from planner.counting.tally import Tally
from planner.gate import Gate
from planner.policy.domain import Domain
from planner.policy.file import COLUMN_KEYS, TABLE_KEYS, load
from planner.sources.content import TICK, Content
from planner.sources.duckdb import DuckdbSource
from planner.sources.source import Source, open_source
from tests.planner.engines import grid, table
from tests.planner.gates import KINDS, policy, write

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


# --- what is found out about rows once -----------------------------------------------------------------------

KEPT = {
    "plain": {},
    "units": {"unit": "id", "max_rows_per_unit": 2, "row_key": "age"},
    "places": {"unit": "id", "max_rows_per_unit": 2},
}
STAGES = {
    "all count": "SELECT i // 2 AS id, i AS age, 'F' AS sex, 'x' AS a, 'x' AS b, 'x' AS c FROM range(600) AS r(i)",
    "some are outside": "SELECT i // 2 AS id, i AS age, CASE WHEN i % 5 THEN 'F' END AS sex, "
    "CASE WHEN i % 7 THEN 'x' ELSE 'y' END AS a, CASE WHEN i < 400 THEN 'x' END AS b, 'x' AS c FROM range(700) AS r(i)",
    "units are full": "SELECT i % 50 AS id, i AS age, 'F' AS sex, 'x' AS a, 'x' AS b, nullif('x', '') AS c "
    "FROM range(600) AS r(i)",
    "others are outside": "SELECT i % 90 AS id, i AS age, 'F' AS sex, CASE WHEN i % 3 THEN 'x' END AS a, "
    "CASE WHEN i % 4 THEN 'x' END AS b, CASE WHEN i % 5 THEN 'x' END AS c FROM range(600) AS r(i)",
}
"""Tables one after the other in one file: what is true of the rows of one is false of the next."""

TEXT = Domain(type="text", values=("x",))
KEPT_DOMAINS = {"age": grid("integer", 0, 700, 1), "sex": Domain(type="text", values=("F", "M"))}
KEPT_DOMAINS |= dict.fromkeys("abc", TEXT)


def ages_of(source: Source) -> dict[int, int]:
    """Return how many rows have each age, of rows that are held."""
    cells = np.arange(KEPT_DOMAINS["age"].cells)
    with source.reading():
        found = source.tally([Axis("age", KEPT_DOMAINS["age"], cells, cells)], [])
    return dict(zip(found.codes[:, 0].tolist(), found.sums[:, 0].tolist(), strict=True))


def counting_ages(select: str, rest: dict[str, Any]) -> dict[int, int]:
    """Return the same by the rules of the policy, in Python."""
    rows = duckdb.execute(select).fetchall()
    places: dict[int, int] = {}
    units: dict[int, list[tuple[str, int]]] = {}
    for id_, age, sex, *texts in rows:
        places[id_] = places.get(id_, 0) + 1
        if sex == "F" and texts == ["x"] * 3:
            key = age if rest.get("row_key") else places[id_]
            units.setdefault(id_, []).append((hashlib.md5(f"noisegate|{id_}|{key}".encode()).hexdigest(), age))
    most = rest.get("max_rows_per_unit", len(rows))
    return {age: 1 for found in units.values() for _, age in sorted(found)[:most]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("kept", KEPT)
def test_what_is_known_of_rows_is_forgotten_with_them(tmp_path: Path, kind: str, kept: str) -> None:
    file = tmp_path / f"people.{kind}"
    write(file, STAGES["all count"])
    place = f"{file}#t" if kind == "duckdb" else str(file)
    with closing(open_source(table(place, KEPT_DOMAINS, **KEPT[kept]))) as source:
        for select in STAGES.values():
            write(tmp_path / f"next.{kind}", select)
            (tmp_path / f"next.{kind}").replace(file)
            expected = counting_ages(select, KEPT[kept])
            assert expected
            assert [ages_of(source) for _ in range(2)] == [expected] * 2


@pytest.mark.parametrize("kept", KEPT)
def test_rows_that_were_deleted_from_a_database_file_leave_the_others_in_their_places(
    tmp_path: Path, kept: str
) -> None:
    file, select = tmp_path / "people.duckdb", STAGES["units are full"].replace("range(600)", "range(300_000)")
    with duckdb.connect(str(file)) as connection:
        connection.execute(f"CREATE TABLE t AS {select.replace('i AS age', 'i % 700 AS age')}")
        connection.execute("DELETE FROM t WHERE rowid % 3 = 1 OR rowid BETWEEN 500 AND 125_000")
        connection.execute("UPDATE t SET a = 'y' WHERE rowid % 11 = 1")
    with closing(open_source(table(f"{file}#t", KEPT_DOMAINS, **KEPT[kept]))) as source:
        held = [ages_of(source) for _ in range(2)]
        cells = np.arange(KEPT_DOMAINS["age"].cells)
        plain = source.tally([Axis("age", KEPT_DOMAINS["age"], cells, cells)], [])
    assert held == [dict(zip(plain.codes[:, 0].tolist(), plain.sums[:, 0].tolist(), strict=True))] * 2


def test_rows_are_looked_at_once_in_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plain = DuckdbSource.fetch
    monkeypatch.setattr(
        DuckdbSource, "fetch", lambda self, query, **rest: asked.append(query) or plain(self, query, **rest)
    )
    for name, rest in KEPT.items():
        for stage, select in STAGES.items():
            write(tmp_path / f"{name} {stage}.parquet", select)
            with closing(open_source(table(str(tmp_path / f"{name} {stage}.parquet"), KEPT_DOMAINS, **rest))) as source:
                ages_of(source)
                asked.clear()
                ages_of(source)
            (only,) = asked
            assert "md5" not in only
            assert "ENUM" not in only or (name, stage) == ("plain", "some are outside")
