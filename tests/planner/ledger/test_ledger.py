"""The ledger never overspends, never loses a charge, never gives one key two answers, never starts afresh."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.basics.errors import BudgetExceeded, LedgerFailed
from planner.cells.costs import Cost, constant, simplified, to_units
from planner.ledger.accounts import Caps, Charge, Draft, Quote, Release, joint_account
from planner.ledger.kinds import Kind
from planner.ledger.ledger import Ledger
from planner.ledger.stores import sqlite
from planner.ledger.stores.sqlite import SqliteStore
from planner.policy.ledger import Remote
from tests.planner.ledger_worker import draft, remote, written
from tests.proxy.postgres import MEMORY, Postgres, running

PLENTY = 2**60
ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.sqlite"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running(durable=True) as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, path: Path) -> Path | Remote:
    """Where a new ledger is kept: what holds for one engine holds for the other."""
    if request.param == "sqlite":
        return path
    return remote(request.getfixturevalue("server"), path.parent)


@pytest.fixture
def ledger(place: Path | Remote) -> Iterator[Ledger]:
    with Ledger.open(place) as opened:
        yield opened


@pytest.fixture
def in_file(path: Path) -> Iterator[Ledger]:
    with Ledger.open(path) as opened:
        yield opened


def pay(ledger: Ledger, release: Draft, cap: int = PLENTY, account_cap: int = PLENTY) -> Release:
    return ledger.commit([release], caps=Caps(cap, account_cap))[0]


def where_sex(index: int, units: int) -> Cost:
    return Cost(("sex#1",), (np.array([index == 0, index == 1]).astype(int),), np.array([0, units]))


def shared(key: str, analyst: str, cost: Cost, kind: str = Kind.SHARE.value) -> Draft:
    return Draft(
        key=key,
        question="q",
        population="everyone",
        table="people",
        version=1,
        analyst=analyst,
        sql="",
        kind=kind,
        body=b"",
        cost=cost,
    )


def worker(task: str, place: Path | Remote, *numbers: int) -> Any:  # Any: whatever JSON the task prints
    command = [sys.executable, "-m", "tests.planner.ledger_worker", task, written(place), *map(str, numbers)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def filled(path: Path | Remote, *, body: bytes = bytes(range(256))) -> list[Release]:
    """Make a ledger with five releases and return them."""
    with Ledger.open(path) as ledger:
        return [pay(ledger, draft(f"key {number}", body=body, units=10 + number)) for number in range(5)]


def edited(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


# What is stored


def test_a_release_is_stored_as_drafted_and_numbered_from_one(ledger: Ledger, place: Path | Remote) -> None:
    drafts = [
        Draft(
            key="k1",
            question="q",
            population="everyone",
            table="people",
            version=1,
            analyst="alice",
            sql="SELECT 'é'",
            kind="linear",
            body=b"\x00y",
            cost=where_sex(0, 3),
        ),
        Draft(
            key="k2",
            question="q",
            population="everyone",
            table="people",
            version=1,
            analyst="bob",
            sql="",
            kind="quantile",
            body=b"",
            cost=constant(4),
        ),
    ]
    stored = [pay(ledger, each) for each in drafts]
    assert [release.id for release in stored] == [1, 2]
    for each, release in zip(drafts, stored, strict=True):
        assert {**vars(release), **vars(each), "cost": simplified(each.cost)} == vars(release)
        assert release.created.endswith("+00:00")
        assert ledger.get(release.id) == release
    assert ledger.releases() == stored
    assert ledger.releases(after=1) == stored[1:]
    with Ledger.open(place) as again:
        assert again.releases() == stored


def test_a_text_with_a_zero_byte_is_kept_or_refused(ledger: Ledger, place: Path | Remote) -> None:
    odd = replace(draft("odd"), sql="SELECT 'a\x00b'")
    if isinstance(place, Remote):
        with pytest.raises(LedgerFailed, match="can't keep a text with a zero byte"):
            pay(ledger, odd)
        assert ledger.spent("everyone") == 0
    else:
        assert pay(ledger, odd) == ledger.get(1)


def test_a_release_that_does_not_exist_is_a_key_error(ledger: Ledger) -> None:
    with pytest.raises(KeyError, match="there is no release 1"):
        ledger.get(1)


def test_the_same_key_returns_the_first_draw_and_is_charged_once(ledger: Ledger) -> None:
    first = pay(ledger, draft("key", body=b"first", units=7))
    second = pay(ledger, draft("key", body=b"second", units=7))
    assert second == first
    assert ledger.spent("everyone") == 7
    assert pay(ledger, draft("key", body=b"third", units=7), cap=0, account_cap=0) == first


def test_find_gives_the_releases_of_a_question_newest_first(ledger: Ledger) -> None:
    one = pay(ledger, draft("1"))
    two = pay(ledger, draft("2"))
    pay(ledger, replace(draft("3"), question="another"))
    ledger.refresh("people", "new data")
    later = pay(ledger, replace(draft("4"), version=2))
    pay(ledger, replace(draft("5"), table="others"))
    assert ledger.find("question", table="people") == [later, two, one]
    assert ledger.find("unasked", table="people") == []


def test_the_files_are_for_their_owner_only(in_file: Ledger, path: Path) -> None:
    pay(in_file, draft("key"))
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "ledger.sqlite",
        "ledger.sqlite.born",
    ]


def test_versions_of_a_table_count_from_one_and_keep_their_fingerprint(ledger: Ledger, place: Path | Remote) -> None:
    assert ledger.version("people") == 1
    assert ledger.fingerprint("people") is None
    assert ledger.claim("people", "aa") == "aa"
    assert ledger.claim("people", "bb") == "aa"
    assert ledger.refresh("people", "bb") == 2
    assert ledger.claim("people", "cc") == "bb"
    assert ledger.refresh("others", "dd") == 2
    with Ledger.open(place) as again:
        assert (again.version("people"), again.fingerprint("people")) == (2, "bb")


def test_the_version_at_a_release_is_that_of_the_data_then(ledger: Ledger) -> None:
    assert ledger.version_at("people", 7) == 1
    pay(ledger, draft("before"))
    ledger.refresh("people", "new data")
    pay(ledger, replace(draft("after"), version=2))
    assert [ledger.version_at("people", number) for number in (0, 1, 2, 10**30)] == [1, 1, 2, 2]
    assert ledger.version_at("others", 2) == 1


def test_only_gaussian_until_another_kind_is_released(ledger: Ledger) -> None:
    assert ledger.only_gaussian("everyone")
    pay(ledger, replace(draft("1"), kind="linear"))
    pay(ledger, replace(draft("2"), kind="distinct"))
    pay(ledger, replace(draft("3"), kind="quantile", population="elsewhere"))
    assert ledger.only_gaussian("everyone")
    assert not ledger.only_gaussian("elsewhere")


# What is charged


def test_spending_adds_the_dearest_cells_of_a_populations_tables(ledger: Ledger) -> None:
    pay(ledger, replace(draft("1"), cost=where_sex(0, 100)))
    pay(ledger, replace(draft("2"), cost=constant(7), table="visits"))
    pay(ledger, replace(draft("3"), cost=where_sex(1, 90), analyst="bob"))
    pay(ledger, replace(draft("4"), cost=constant(1), population="elsewhere"))
    assert ledger.spent("everyone") == 107
    assert ledger.account_spent("everyone", "alice") == 107
    assert ledger.account_spent("everyone", "bob") == 90
    assert ledger.account_spent("everyone", "carol") == ledger.spent("nobody") == 0
    assert ledger.populations() == ["elsewhere", "everyone"]


def test_a_bundle_of_drafts_is_charged_whole_or_not_at_all(ledger: Ledger) -> None:
    bundle = [replace(draft(key), cost=constant(60)) for key in ("1", "2")]
    with pytest.raises(BudgetExceeded):
        ledger.commit(bundle, caps=Caps(100, 100))
    assert ledger.spent("everyone") == 0
    assert ledger.releases() == []
    first = ledger.commit(bundle[:1], caps=Caps(120, 120))
    both = ledger.commit(bundle, caps=Caps(120, 120))
    assert both[0] == first[0]
    assert [release.id for release in both] == [1, 2]
    assert ledger.spent("everyone") == 120


def test_a_quote_says_what_a_commit_would_charge_and_writes_nothing(ledger: Ledger) -> None:
    pay(ledger, replace(draft("1"), cost=where_sex(0, 100)))
    pay(ledger, replace(draft("2"), cost=where_sex(0, 20), analyst="bob"))
    dear, cheap = (
        Charge(population="everyone", table="people", version=1, cost=where_sex(1, units)) for units in (130, 50)
    )
    assert ledger.quote([dear], analyst="bob") == [
        Quote(population="everyone", analyst="bob", spent=120, after=130, account_spent=20, account_after=130)
    ]
    assert ledger.quote([cheap], analyst="bob") == [
        Quote(population="everyone", analyst="bob", spent=120, after=120, account_spent=20, account_after=50)
    ]
    assert ledger.quote([dear, cheap], analyst="bob") == [
        Quote(population="everyone", analyst="bob", spent=120, after=180, account_spent=20, account_after=180)
    ]
    assert ledger.quote([], analyst="bob") == []
    assert ledger.spent("everyone") == 120
    assert len(ledger.releases()) == 2


def test_charges_stay_when_the_data_is_refreshed(ledger: Ledger) -> None:
    pay(ledger, draft("1", units=10))
    version = ledger.refresh("people", "new")
    pay(ledger, replace(draft("2", units=10), version=version))
    assert ledger.spent("everyone") == 20


def test_the_last_unit_can_be_spent_and_one_more_is_refused(ledger: Ledger) -> None:
    pay(ledger, draft("1", units=90), cap=100)
    with pytest.raises(BudgetExceeded):
        pay(ledger, draft("2", units=11), cap=100)
    pay(ledger, draft("3", units=10), cap=100)
    assert ledger.spent("everyone") == 100
    assert [release.key for release in ledger.releases()] == ["1", "3"]


def test_a_refusal_names_what_is_short_in_rho(ledger: Ledger) -> None:
    def rho(text: str) -> int:
        return to_units(Fraction(text))

    pay(ledger, draft("1", units=rho("0.9")))
    with pytest.raises(BudgetExceeded) as of_everyone:
        pay(ledger, draft("2", units=rho("0.2")), cap=rho("1"))
    expected = r"the query costs rho=0.200001 but only rho=0.0999999 of the budget of everyone is left"
    assert of_everyone.value.message == expected
    assert of_everyone.value.hint is not None
    assert "nothing was charged" in of_everyone.value.hint
    with pytest.raises(BudgetExceeded, match=r"the account of alice is overspent by rho=0\.4"):
        pay(ledger, draft("2", units=rho("0.2")), account_cap=rho("0.5"))


def test_what_costs_nothing_is_stored_even_when_nothing_is_left(ledger: Ledger) -> None:
    pay(ledger, draft("1", units=10), cap=10)
    assert pay(ledger, draft("2", units=0), cap=5, account_cap=5).id == 2


def test_a_cost_that_does_not_fit_the_column_is_refused_before_it_is_stored(ledger: Ledger) -> None:
    pay(ledger, replace(draft("1"), cost=where_sex(0, 1)))
    wrong = Cost(("sex#1",), (np.array([0, 1, 1]),), np.array([0, 1]))
    with pytest.raises(ValueError, match="column sex#1 has 2 values"):
        pay(ledger, replace(draft("2"), cost=wrong))
    assert len(ledger.releases()) == 1


def test_two_open_ledgers_see_each_others_releases(ledger: Ledger, place: Path | Remote) -> None:
    with Ledger.open(place) as other:
        pay(ledger, draft("1", units=60), cap=100)
        assert other.spent("everyone") == 60
        with pytest.raises(BudgetExceeded):
            pay(other, draft("2", units=60), cap=100)
        assert pay(other, draft("1", body=b"other", units=60), cap=100).body == b"answer"
        pay(other, draft("3", units=40), cap=100)
        assert ledger.spent("everyone") == ledger.account_spent("everyone", "alice") == 100


# Races


def test_threads_racing_for_the_last_of_the_budget_win_exactly_what_fits(ledger: Ledger, place: Path | Remote) -> None:
    won: list[int] = []
    with Ledger.open(place) as other:
        start = threading.Barrier(8)

        def spend(name: int) -> None:
            start.wait()
            for number in range(6):
                mine = (ledger, other)[name % 2]
                try:
                    won.append(pay(mine, draft(f"{name}-{number}"), cap=20, account_cap=20).id)
                except BudgetExceeded:
                    continue

        threads = [threading.Thread(target=spend, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(won) == list(range(1, 21))
    assert ledger.spent("everyone") == 20


def test_threads_with_one_key_all_get_the_same_draw(ledger: Ledger) -> None:
    start, bodies = threading.Barrier(6), []

    def ask(name: int) -> None:
        start.wait()
        bodies.append(pay(ledger, draft("key", body=bytes([name]))).body)

    threads = [threading.Thread(target=ask, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(bodies) == 6
    assert len(set(bodies)) == 1
    assert ledger.spent("everyone") == 1


def test_processes_racing_for_the_last_of_the_budget_win_exactly_what_fits(place: Path | Remote) -> None:
    result = worker("race", place, 4, 20, 30)
    assert result["codes"] == [0] * 4
    assert sorted(result["lines"]) == sorted(["refused"] * 50 + [f"stored {number}" for number in range(1, 31)])
    with Ledger.open(place) as ledger:
        assert ledger.spent("everyone") == 30


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder whose disk is quick, for what is not about the disk."""
    folder = Path(tempfile.mkdtemp(prefix="noisegate-ledger-", dir=MEMORY))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_gates_racing_for_the_last_of_a_budget_thousands_of_times_win_it_once_each(
    kind: str, in_memory: Path, request: pytest.FixtureRequest
) -> None:
    races = 3000
    file = in_memory / "ledger.sqlite"
    place = file if kind == "sqlite" else remote(request.getfixturevalue("server"), in_memory)
    lines = [line.split() for line in worker("races", place, races)["lines"]]
    assert sorted(int(race) for word, race, _ in lines if word == "won") == list(range(races))
    assert sorted(int(race) for word, race, _ in lines if word == "refused") == list(range(races))
    assert {name for word, _, name in lines if word == "won"} == {"0", "1"}  # both had their share: they did race
    with Ledger.open(place) as ledger:
        assert sorted(release.population for release in ledger.releases()) == sorted(
            f"people {number}" for number in range(races)
        )
        assert {ledger._view.spent(f"people {number}") for number in range(races)} == {1}


# Crashes


def test_a_commit_waits_for_the_disk(in_file: Ledger) -> None:
    """No test here can cut the power, so the settings that SQLite documents for it are checked instead."""
    extra = 3
    assert in_file._store._connection.execute("PRAGMA synchronous").fetchone() == (extra,)
    assert in_file._store._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_what_another_process_stored_is_synced_before_it_is_used(
    in_file: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been killed between the removal of its journal and the sync of the folder."""
    synced: list[Path] = []
    monkeypatch.setattr(sqlite, "sync_folder", synced.append)
    in_file.spent("everyone")
    with Ledger.open(path) as other:
        pay(other, draft("theirs"))
    synced.clear()
    assert in_file.find("question", table="people")[0].key == draft("theirs").key
    assert synced == [path.parent]
    in_file.find("question", table="people")
    assert synced == [path.parent]


def test_kill_at_any_moment_leaves_no_answer_without_its_charge_and_no_key_with_two_answers(
    place: Path | Remote,
) -> None:
    answers = worker("kill", place, 20, 700)
    assert len(answers) > 20
    with Ledger.open(place) as ledger:
        stored = {release.key: release for release in ledger.releases()}
        assert len(stored) == len(ledger.releases()) == ledger.spent("everyone") <= 700
    for key, body in answers:
        assert stored[key].body.hex() == body


def test_kill_while_a_ledger_is_made_leaves_none_or_a_sound_one(path: Path) -> None:
    assert worker("born", path, 25) == [1] * 25


def test_a_ledger_that_cannot_be_made_whole_for_lack_of_room_is_not_made(path: Path) -> None:
    found, files = worker("births", path, 1024)
    assert sum(failure is not None for failure, _ in found) > 20  # so many were too small
    assert found[-1][0] is None  # and the last was not
    assert [later for _, later in found if later is not None] == []
    assert {file.rpartition(".sqlite")[2] for file in files} <= {"", ".born"}


def test_a_journal_left_by_a_crash_is_rolled_back(path: Path) -> None:
    assert worker("cut_short", path, 5) > 0
    with Ledger.open(path) as ledger:
        assert ledger.spent("everyone") == 5
        with ledger.beside(write=False) as connection:
            assert connection.execute("SELECT count(*) FROM meta WHERE name LIKE 'half%'").fetchone() == (0,)


@pytest.mark.parametrize("harm", ["removed", "overwritten", "cut"])
def test_a_journal_that_was_harmed_after_a_crash_loses_no_charge_unnoticed(path: Path, harm: str) -> None:
    harmed(path.with_name(path.name + "-journal"), worker("cut_short", path, 5), harm)
    with suppress(LedgerFailed), Ledger.open(path) as ledger:
        assert ledger.spent("everyone") == 5


def test_the_write_ahead_log_of_an_earlier_version_is_read_and_ends(path: Path) -> None:
    assert worker("abandon", path, 5) > 0
    with Ledger.open(path) as ledger:
        assert ledger.spent("everyone") == 5
        assert ledger._store._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)  # type: ignore[attr-defined]
    assert not path.with_name(path.name + "-wal").exists()


@pytest.mark.parametrize("harm", ["removed", "overwritten", "cut"])
def test_charges_lost_with_the_write_ahead_log_are_noticed(path: Path, harm: str) -> None:
    harmed(path.with_name(path.name + "-wal"), worker("abandon", path, 5), harm)
    path.with_name(path.name + "-shm").unlink()
    with pytest.raises(LedgerFailed, match=r"holds \d releases but 5 were acknowledged, so charges are lost"):
        Ledger.open(path)


def harmed(file: Path, size: int, harm: str) -> None:
    if harm == "removed":
        file.unlink()
    elif harm == "overwritten":
        content = bytearray(file.read_bytes())
        content[size // 2 : size // 2 + 100] = bytes(100)
        file.write_bytes(content)
    else:
        os.truncate(file, size // 2)


class Faulty:
    """A connection whose COMMIT reports a failure, with or without having worked."""

    def __init__(self, connection: sqlite3.Connection, *, commits: bool) -> None:
        self.connection, self.commits = connection, commits

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:  # Any: handed on as it is
        if sql != "COMMIT":
            return self.connection.execute(sql, *parameters)
        if self.commits:
            self.connection.execute(sql)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    def close(self) -> None:
        self.connection.close()


def faulty(ledger: Ledger, *, commits: bool) -> Ledger:
    store = ledger._store
    assert isinstance(store, SqliteStore)
    store._connection = Faulty(store._connection, commits=commits)  # type: ignore[assignment]
    return ledger


def test_a_commit_that_worked_but_reported_failure_is_answered_with_what_is_stored(in_file: Ledger) -> None:
    ledger = faulty(in_file, commits=True)
    release = pay(ledger, draft("key", units=3))
    assert release.body == b"answer"
    assert ledger.get(1) == release
    assert pay(ledger, draft("next", units=4)).id == 2
    assert ledger.spent("everyone") == 7


def test_a_commit_that_failed_charges_nothing_and_can_be_tried_again(in_file: Ledger) -> None:
    ledger = faulty(in_file, commits=False)
    with pytest.raises(LedgerFailed, match="can't be read or written: disk I/O error"):
        pay(ledger, draft("key", units=3))
    assert ledger.spent("everyone") == 0
    assert pay(ledger, draft("key", body=b"again", units=3)).body == b"again"


def test_a_full_disk_is_a_clear_error_and_later_commits_work(path: Path) -> None:
    result = worker("full", path)
    assert result["stored"] > 3
    for message in result["failures"]:
        assert "the ledger ledger.sqlite can't be read or written: " in message
    assert result["spent"] == result["stored"]
    assert result["after"] == result["stored"] + 1
    with Ledger.open(path) as ledger:
        assert ledger.spent("everyone") == result["stored"] + 1


def test_a_ledger_can_not_be_used_across_a_fork(path: Path) -> None:
    (line,) = worker("fork", path)
    assert line == "the ledger was opened before a fork: open it again in the new process"


def test_a_closed_ledger_answers_nothing(path: Path) -> None:
    ledger = Ledger.open(path)
    ledger.close()
    with pytest.raises(LedgerFailed, match="closed"):
        pay(ledger, draft("key"))


# A ledger that can't be trusted is never a fresh budget


def test_corrupted_bytes_anywhere_are_noticed_or_change_nothing(path: Path) -> None:
    releases = filled(path, body=bytes(range(256)) * 50)
    sound = path.read_bytes()
    places = random.Random(3)
    noticed = 0
    for _ in range(120):
        start = places.randrange(len(sound) - 16)
        path.write_bytes(sound[:start] + places.randbytes(16) + sound[start + 16 :])
        try:
            with Ledger.open(path) as ledger:
                assert ledger.releases() == releases
                assert [pay(ledger, release) for release in releases] == releases
                assert ledger.spent("everyone") == 60
        except LedgerFailed:
            noticed += 1
    assert noticed > 60


def test_one_flipped_bit_in_a_stored_answer_is_noticed(path: Path) -> None:
    filled(path)
    content = bytearray(path.read_bytes())
    content[content.index(bytes(range(256))) + 100] ^= 1
    path.write_bytes(content)
    with pytest.raises(LedgerFailed, match=r"is damaged \(the chain of hashes breaks after release \d\)"):
        Ledger.open(path)


@pytest.mark.parametrize("size", [0, 50, 100, 4096, 10_000])
def test_a_truncated_file_is_refused(path: Path, size: int) -> None:
    filled(path)
    os.truncate(path, size)
    with pytest.raises(LedgerFailed, match=r"is damaged .* restore it from backup"):
        Ledger.open(path)


@pytest.mark.parametrize("marked", [True, False])
def test_a_text_file_in_its_place_is_refused_and_left_as_it_is(path: Path, marked: bool) -> None:
    filled(path)
    if not marked:
        path.with_name("ledger.sqlite.born").unlink()
    path.write_text("this is no database, and it is longer than the head of one would be: " * 20)
    with pytest.raises(LedgerFailed, match=r"is damaged \(file is not a database\)"):
        Ledger.open(path)
    assert path.read_text().startswith("this is no database")


def test_another_database_in_its_place_is_refused_and_left_as_it_is(path: Path) -> None:
    edited(path, "CREATE TABLE other (x)")
    before = path.read_bytes()
    with pytest.raises(LedgerFailed, match=r"is damaged \(it is not a noisegate ledger\)"):
        Ledger.open(path)
    assert path.read_bytes() == before
    assert not path.with_name("ledger.sqlite.born").exists()


def test_a_deleted_ledger_is_missed(path: Path) -> None:
    filled(path)
    path.unlink()
    with pytest.raises(LedgerFailed, match=r"the ledger ledger\.sqlite is missing: restore it") as failure:
        Ledger.open(path)
    assert failure.value.hint == "deleting ledger.sqlite.born as well gives up the record of what was spent"
    assert not path.exists()
    path.with_name("ledger.sqlite.born").unlink()
    with Ledger.open(path) as ledger:
        assert ledger.spent("everyone") == 0


def test_a_deleted_marker_is_made_again_from_the_ledger(path: Path) -> None:
    filled(path)
    marker = path.with_name("ledger.sqlite.born")
    before = marker.read_text()
    marker.unlink()
    with Ledger.open(path) as ledger:
        assert ledger.spent("everyone") == 60
    assert marker.read_text() == before


def test_a_damaged_marker_is_refused(path: Path) -> None:
    filled(path)
    path.with_name("ledger.sqlite.born").write_text("nonsense")
    with pytest.raises(LedgerFailed, match=r"ledger\.sqlite\.born is damaged"):
        Ledger.open(path)


def test_a_marker_that_is_cut_or_changed_in_one_byte_lets_no_older_ledger_in(path: Path) -> None:
    with Ledger.open(path) as ledger:
        pay(ledger, draft("old"))
    older = path.read_bytes()
    with Ledger.open(path) as ledger:
        for number in range(11):
            pay(ledger, draft(f"new {number}"))
    path.write_bytes(older)
    marker = path.with_name("ledger.sqlite.born")
    whole = marker.read_bytes()
    changed = [whole[:i] + bytes([byte]) + whole[i + 1 :] for i in range(len(whole)) for byte in b"\x00\n +-_019ag"]
    for content in [whole, *(whole[:size] for size in range(len(whole))), whole + b"\n", *changed]:
        marker.write_bytes(content)
        with pytest.raises(LedgerFailed, match=r"damaged|acknowledged|born here"):
            Ledger.open(path)


def test_a_marker_that_says_nothing_was_acknowledged_must_know_the_beginning(path: Path) -> None:
    filled(path)
    marker = path.with_name("ledger.sqlite.born")
    identity, _, row_hash = marker.read_text().splitlines()
    marker.write_text(f"{identity}\n{0:020}\n{row_hash}\n")
    with pytest.raises(LedgerFailed, match=r"release 0 of the ledger ledger\.sqlite is not the one"):
        Ledger.open(path)


def test_a_second_name_of_the_file_is_refused_and_removing_it_is_enough(in_file: Ledger, path: Path) -> None:
    pay(in_file, draft("1"))
    link = path.with_name("linked.sqlite")
    os.link(path, link)
    for use in (lambda: pay(in_file, draft("2")), lambda: Ledger.open(path), lambda: Ledger.open(link)):
        with pytest.raises(LedgerFailed, match="has another name"):
            use()
    link.unlink()
    assert pay(in_file, draft("2")).id == 2


def test_the_draft_of_a_ledger_whose_maker_was_killed_is_no_second_name(path: Path) -> None:
    filled(path)
    draft_left = path.with_name(f"{path.name}.{uuid.uuid4()}")
    os.link(path, draft_left)
    with Ledger.open(path) as ledger:
        assert ledger.spent("everyone") == 60
    assert not draft_left.exists()


def test_a_file_that_is_mounted_by_itself_is_refused(path: Path) -> None:
    """As a container does with a volume of one file; mounted for real, in a namespace of its own."""
    filled(path)
    target = path.with_name("a folder") / "ledger.sqlite"
    target.parent.mkdir()
    target.touch()
    program = f"from planner.ledger.ledger import Ledger; from pathlib import Path; Ledger.open(Path({str(target)!r}))"
    mounted = f"mount --bind '{path}' '{target}' && exec '{sys.executable}' -c \"{program}\""
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", mounted]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if "Operation not permitted" in done.stderr or "must be superuser" in done.stderr:
        pytest.skip("this machine lets nobody mount")
    assert "is mounted as a single file" in done.stderr


def test_two_gates_keep_one_history_whatever_beside_the_ledger_is_deleted(in_file: Ledger, path: Path) -> None:
    with Ledger.open(path) as other:
        for number in range(6):
            pay((in_file, other)[number % 2], draft(f"{number}"))
            for file in path.parent.iterdir():
                if file.name not in ("ledger.sqlite", "ledger.sqlite.born"):
                    file.unlink()
            assert pay((other, in_file)[number % 2], draft(f"{number}", body=b"another draw")).id == number + 1
        assert in_file.spent("everyone") == other.spent("everyone") == 6


def test_a_foreign_ledger_is_refused(path: Path) -> None:
    filled(path)
    Ledger.open(path.with_name("fresh.sqlite")).close()
    shutil.copy(path.with_name("fresh.sqlite"), path)
    with pytest.raises(LedgerFailed, match="another ledger than the one born here"):
        Ledger.open(path)


def test_an_older_copy_is_refused(path: Path) -> None:
    filled(path)
    shutil.copy(path, path.with_name("copy"))
    with Ledger.open(path) as ledger:
        pay(ledger, draft("later"))
    shutil.copy(path.with_name("copy"), path)
    with pytest.raises(LedgerFailed, match="holds 5 releases but 6 were acknowledged"):
        Ledger.open(path)


def test_a_log_left_of_a_deleted_ledger_is_not_given_to_a_new_one(path: Path) -> None:
    worker("abandon", path, 3)
    path.unlink()
    path.with_name("ledger.sqlite.born").unlink()
    with pytest.raises(LedgerFailed, match=r"ledger\.sqlite-wal is left of a ledger that is missing"):
        Ledger.open(path)


def test_a_ledger_replaced_or_deleted_while_open_is_noticed(in_file: Ledger, path: Path) -> None:
    pay(in_file, draft("1"))
    aside = path.rename(path.with_name("aside"))
    with pytest.raises(LedgerFailed, match="is missing"):
        pay(in_file, draft("2"))
    shutil.copy(aside, path)
    with pytest.raises(LedgerFailed, match="was replaced while it was open"):
        pay(in_file, draft("2"))
    path.unlink()
    aside.rename(path)
    assert pay(in_file, draft("2")).id == 2


UNLOCK = ("DROP TRIGGER releases_are_never_changed", "DROP TRIGGER releases_are_never_removed")


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ([*UNLOCK, "UPDATE releases SET cost = x'00' WHERE id = 3"], "hashes breaks after release 2"),
        ([*UNLOCK, "UPDATE releases SET analyst = 'bob' WHERE id = 1"], "hashes breaks after release 0"),
        ([*UNLOCK, "UPDATE releases SET version = '1x' WHERE id = 1"], "hashes breaks after release 0"),
        ([*UNLOCK, "DELETE FROM releases WHERE id = 2"], "hashes breaks after release 1"),
        ([*UNLOCK, "DELETE FROM releases WHERE id = 5"], "does not end with release 4"),
        ([*UNLOCK, "DELETE FROM releases"], "does not end with release 0"),
        (["DROP TABLE releases"], "no such table: releases"),
        (["DROP TABLE meta"], "no such table: meta"),
        (["DELETE FROM meta"], "it has no identity"),
        (["DELETE FROM meta WHERE name = 'head'"], "does not end with release 5"),
        (["PRAGMA application_id = 5"], "not a noisegate ledger"),
        (["PRAGMA user_version = 9"], "has format 9, this program knows those up to 3"),
    ],
)
def test_an_edited_ledger_is_refused(path: Path, statements: list[str], reason: str) -> None:
    filled(path)
    edited(path, *statements)
    with pytest.raises(LedgerFailed, match=reason):
        Ledger.open(path)


@pytest.mark.parametrize("statement", ["UPDATE releases SET analyst = 'bob'", "DELETE FROM releases"])
def test_releases_can_not_be_edited_in_passing(path: Path, statement: str) -> None:
    filled(path)
    with pytest.raises(sqlite3.IntegrityError, match="releases are never"):
        edited(path, statement)


def test_a_read_only_ledger_is_refused() -> None:
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to the user that root turns into
    try:
        filled(folder / "ledger.sqlite")
        message = worker("readonly", folder / "ledger.sqlite")
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)
    assert message == "ledger.sqlite.born can't be read: Permission denied"


def test_a_ledger_where_none_can_be_made_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerFailed, match="can't be read or written: No such file or directory"):
        Ledger.open(tmp_path / "nowhere" / "ledger.sqlite")


def test_opening_twice_at_once_makes_one_ledger(path: Path) -> None:
    start, opened = threading.Barrier(6), itertools.count()

    def use() -> None:
        start.wait()
        with Ledger.open(path) as ledger:
            pay(ledger, draft(f"key {next(opened)}"))

    threads = [threading.Thread(target=use) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Ledger.open(path) as ledger:
        assert ledger.spent("everyone") == 6
    assert sorted(file.name for file in path.parent.iterdir()) == ["ledger.sqlite", "ledger.sqlite.born"]


# --- who bears a release -----------------------------------------------------------------------------------


def test_a_release_charges_the_population_and_its_shares_the_accounts(place: Path | Remote) -> None:
    drafts = [
        shared("k1", joint_account(["ann", "bob"]), where_sex(0, 6), "linear"),
        shared("k2", "ann", where_sex(0, 4)),
        shared("k3", "bob", where_sex(0, 3)),
    ]
    with Ledger.open(place) as ledger:
        pay(ledger, shared("k0", "bob", where_sex(1, 5), "linear"))
        ledger.commit(drafts, caps=Caps(PLENTY, PLENTY))
        spent = [ledger.spent("everyone"), *(ledger.account_spent("everyone", name) for name in ("ann", "bob"))]
        assert spent == [6, 4, 5]  # for each the dearest cell of all that was charged
    with Ledger.open(place) as again:
        assert [again.spent("everyone"), *(again.account_spent("everyone", n) for n in ("ann", "bob"))] == spent
        assert again.only_gaussian("everyone")


def test_a_share_beyond_its_account_is_refused_with_all_that_it_belongs_to(ledger: Ledger) -> None:
    drafts = [
        shared("k1", joint_account(["ann", "bob"]), constant(6), "linear"),
        shared("k2", "ann", constant(1)),
        shared("k3", "bob", constant(5)),
    ]
    with pytest.raises(BudgetExceeded, match="account of bob"):
        ledger.commit(drafts, caps=Caps(10, 4))
    with pytest.raises(BudgetExceeded, match="budget of everyone"):
        ledger.commit(drafts, caps=Caps(5, 10))
    with pytest.raises(BudgetExceeded, match="budget of everyone"):  # also where nobody is charged for it
        ledger.commit(drafts[:1], caps=Caps(5, 10))
    assert (ledger.spent("everyone"), ledger.releases()) == (0, [])


def test_parts_that_an_older_gate_wrote_are_read_as_before(place: Path | Remote) -> None:
    text = json.dumps({"ann": 2**18, "bob": 3 * 2**18})
    with Ledger.open(place) as ledger:
        pay(ledger, shared("k1", text, constant(9), "linear"))
        assert [ledger.account_spent("everyone", name) for name in ("ann", "bob")] == [3, 7]  # rounded up
        assert ledger.spent("everyone") == 9
