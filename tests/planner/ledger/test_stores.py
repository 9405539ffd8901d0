"""A ledger in PostgreSQL under faults: servers killed, connections cut, gates paused, clocks wrong, disks full.

After each: nothing is overspent, nothing is answered uncharged, and no answer is lost that was charged and stored.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import psycopg
import pytest

from planner.basics.errors import BudgetExceeded, LedgerFailed, SourceFailed
from planner.cells.costs import rho_of
from planner.gate import Gate
from planner.ledger import ledger as ledger_module
from planner.ledger.accounts import Caps
from planner.ledger.ledger import Ledger, opened
from planner.ledger.stores import postgres, schema, sqlite
from planner.policy.ledger import Remote
from tests.planner.cutting import FAULTS, Cutter, cutting
from tests.planner.ledger.test_crash import ANALYSTS, work, world
from tests.planner.ledger.test_ledger import ROOT, filled, pay, worker
from tests.planner.ledger_worker import draft, remote, written
from tests.proxy.postgres import Postgres, children, running

ONE = Caps(1, 1)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running(durable=True) as found:
        yield found


@pytest.fixture
def place(server: Postgres, tmp_path: Path) -> Remote:
    return remote(server, tmp_path)


def edited(server: Postgres, place: Remote, *statements: str) -> None:
    with psycopg.connect(f"host=127.0.0.1 port={server.port} dbname=noisegate user=noisegate") as connection:
        connection.execute(f"SET search_path = {place.schema}")
        for statement in statements:
            connection.execute(statement.encode())


# What is there


def test_two_gates_that_make_a_ledger_at_once_make_one(place: Remote, tmp_path: Path) -> None:
    start, identities = threading.Barrier(4), []

    def use(name: int) -> None:
        folder = tmp_path / f"machine {name}"
        folder.mkdir()
        start.wait()
        with Ledger.open(replace(place, marker=folder / "born")) as ledger:
            pay(ledger, draft(f"key {name}"))
        identities.append((folder / "born").read_text().splitlines()[0])

    threads = [threading.Thread(target=use, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(identities)) == 1
    with Ledger.open(place) as ledger:
        assert ledger.spent("everyone") == 4


def test_a_ledger_of_an_earlier_format_is_brought_up_to_date_once(
    place: Remote, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(schema, "_MIGRATIONS", schema._MIGRATIONS[:1])
        earlier.setattr(postgres, "FORMAT", 1)
        store = postgres.PostgresStore.open(place, new=str(uuid.uuid4()))
        identity = store.identity
        store.close()
    for _ in range(2):
        with Ledger.open(place) as ledger:
            assert ledger._store.identity == identity
            assert ledger.moved() == {}
            pay(ledger, draft("key"))
    assert place.marker.read_text().splitlines()[:2] == [identity, f"{1:020d}"]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_gates_that_bring_an_earlier_format_up_to_date_at_once_do_it_once(
    kind: str, server: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = folder / "ledger.sqlite" if kind == "sqlite" else remote(server, folder)
        with monkeypatch.context() as earlier:
            earlier.setattr(schema, "_MIGRATIONS", schema._MIGRATIONS[:1])
            for engine in (postgres, sqlite):
                earlier.setattr(engine, "FORMAT", 1)
            opened(found, str(uuid.uuid4())).close()
        result = worker("race", found, 4, 2, 8)
        assert result["codes"] == [0] * 4
        with Ledger.open(found) as ledger:
            assert ledger.spent("everyone") == 8
            assert ledger.moved() == {}


def test_a_ledger_of_a_newer_version_is_refused(place: Remote, server: Postgres) -> None:
    filled(place)
    edited(server, place, "UPDATE meta SET value = '9' WHERE name = 'format'")
    with pytest.raises(LedgerFailed, match="has format 9, this program knows those up to 3"):
        Ledger.open(place)


@pytest.mark.parametrize(
    "statement",
    ["UPDATE releases SET analyst = 'bob'", "DELETE FROM releases", "TRUNCATE releases", "DELETE FROM moves"],
)
def test_rows_can_not_be_edited_in_passing(place: Remote, server: Postgres, statement: str) -> None:
    filled(place)
    with pytest.raises(psycopg.errors.RaiseException, match="never changed or removed"):
        edited(server, place, statement)


UNLOCK = "ALTER TABLE releases DISABLE TRIGGER USER"


@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ([UNLOCK, "UPDATE releases SET cost = '\\x00' WHERE id = 3"], "hashes breaks after release 2"),
        ([UNLOCK, "UPDATE releases SET analyst = 'bob' WHERE id = 1"], "hashes breaks after release 0"),
        ([UNLOCK, "DELETE FROM releases WHERE id = 2"], "hashes breaks after release 1"),
        ([UNLOCK, "DELETE FROM releases WHERE id = 5"], "does not end with release 4"),
        ([UNLOCK, "TRUNCATE releases"], "does not end with release 0"),
        (["DROP TABLE releases"], r"undefined table \(42P01\)"),
        (["DROP TABLE meta"], "is missing: restore it from backup"),
        (["DELETE FROM meta WHERE name = 'identity'"], "it has no identity"),
        (["DELETE FROM meta WHERE name = 'head'"], "does not end with release 5"),
        (["DELETE FROM meta"], "it is not a noisegate ledger"),
    ],
)
def test_an_edited_ledger_is_refused(place: Remote, server: Postgres, statements: list[str], reason: str) -> None:
    filled(place)
    edited(server, place, *statements)
    with pytest.raises(LedgerFailed, match=reason):
        Ledger.open(place)


IGNORED = "CREATE RULE r AS ON {} DO INSTEAD NOTHING"


@pytest.mark.parametrize("event", ["INSERT TO releases", "UPDATE TO meta"])
def test_a_charge_that_a_rule_keeps_from_being_stored_is_no_answer(place: Remote, server: Postgres, event: str) -> None:
    with Ledger.open(place) as ledger:
        pay(ledger, draft("before"))
        edited(server, place, IGNORED.format(event))
        with pytest.raises(LedgerFailed, match=r"damaged \(what was written is not in it\)"):
            pay(ledger, draft("after"))


@pytest.mark.parametrize("share", ["nonsense", "1/0", ""])
def test_a_move_that_can_not_be_read_is_damage(place: Remote, server: Postgres, share: str) -> None:
    with Ledger.open(place) as ledger:
        pay(ledger, draft("before"))
        ledger.move(Fraction(1, 10), source="alice", target="bob", caps=Caps(1000, 1000))
        edited(server, place, "ALTER TABLE moves DISABLE TRIGGER USER", f"UPDATE moves SET share = '{share}'")
        for ask in (ledger.moved, lambda: pay(ledger, draft("after"))):
            with pytest.raises(LedgerFailed, match="a share that was moved can't be read"):
                ask()


def test_versions_that_were_deleted_are_noticed(place: Remote, server: Postgres) -> None:
    with Ledger.open(place) as ledger:
        ledger.refresh("people", "new data")
        pay(ledger, replace(draft("second"), version=2))
    edited(server, place, "ALTER TABLE versions DISABLE TRIGGER USER", "DELETE FROM versions")
    with pytest.raises(LedgerFailed, match="about versions of data that it does not know"):
        Ledger.open(place)


RIGHTS = {
    "all": ["REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {role}"],
    "INSERT": ["REVOKE INSERT ON releases FROM {role}"],
    "UPDATE": ["REVOKE UPDATE ON meta FROM {role}"],
    "the schema": ["REVOKE USAGE ON SCHEMA {schema} FROM {role}"],
}


@pytest.mark.parametrize("right", RIGHTS)
def test_rights_that_are_taken_away_meanwhile_charge_nothing(place: Remote, server: Postgres, right: str) -> None:
    filled(place)
    names = {"schema": place.schema, "role": f"gate_{uuid.uuid4().hex}"}
    granted = ["USAGE ON SCHEMA {schema}", "ALL ON ALL TABLES IN SCHEMA {schema}"]
    edited(server, place, f"CREATE ROLE {names['role']} LOGIN")
    grants = [f"GRANT {what} TO {{role}}".format(**names) for what in granted]
    edited(server, place, *grants)
    with Ledger.open(replace(place, conninfo=place.conninfo.replace("noisegate@", f"{names['role']}@"))) as ledger:
        pay(ledger, draft("before"))
        edited(server, place, *(statement.format(**names) for statement in RIGHTS[right]))
        with pytest.raises(LedgerFailed, match=r"insufficient privilege|damaged"):
            pay(ledger, draft("meanwhile"))
        edited(server, place, *grants)
        assert pay(ledger, draft("after")).id == 7
        assert [release.key for release in ledger.releases()][-2:] == ["before", "after"]


COLUMNS = ["body", "cost", "hash", "analyst", "version"]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_that_is_dropped_under_a_gate_is_damage(place: Remote, server: Postgres, column: str) -> None:
    with Ledger.open(place) as ledger:
        pay(ledger, draft("before"))
        edited(server, place, f"ALTER TABLE releases DROP COLUMN {column}")
        for ask in (ledger.releases, lambda: pay(ledger, draft("after"))):
            with pytest.raises(LedgerFailed, match=r"damaged \(undefined column"):
                ask()


def test_a_database_restored_from_an_older_backup_is_noticed_by_every_machine_that_saw_more(
    place: Remote, server: Postgres, tmp_path: Path
) -> None:
    """Also after a machine that saw less, or nothing, has gone on with it: the number alone would not tell."""
    other = replace(place, marker=tmp_path / "other.born")
    filled(place)
    copied = ["releases", "meta"]
    edited(server, place, *(f"CREATE TABLE {name}_copy AS SELECT * FROM {name}" for name in copied))
    with Ledger.open(place) as ledger:
        pay(ledger, draft("lost"))
    restored = [f"DELETE FROM {name}; INSERT INTO {name} SELECT * FROM {name}_copy" for name in copied]
    edited(server, place, UNLOCK, *restored)
    with pytest.raises(LedgerFailed, match="holds 5 releases but 6 were acknowledged"):
        Ledger.open(place)
    with Ledger.open(other) as ledger:
        pay(ledger, draft("a"))
        pay(ledger, draft("b"))
    with pytest.raises(LedgerFailed, match=r"release 6 of the ledger .* is not the one that was acknowledged here"):
        Ledger.open(place)


def test_a_missing_or_foreign_ledger_is_never_a_fresh_budget(place: Remote, server: Postgres) -> None:
    filled(place)
    edited(server, place, f"DROP SCHEMA {place.schema} CASCADE")
    with pytest.raises(LedgerFailed, match="is missing: restore it from backup"):
        Ledger.open(place)
    elsewhere = replace(place, marker=place.marker.with_name("elsewhere"))
    Ledger.open(elsewhere).close()
    with pytest.raises(LedgerFailed, match="is another ledger than the one born here"):
        Ledger.open(place)


def test_a_commit_waits_for_the_disk_whatever_the_server_says(server: Postgres, place: Remote) -> None:
    role = f"gate_{uuid.uuid4().hex}"
    edited(server, place, f"CREATE ROLE {role} LOGIN SUPERUSER", f"ALTER ROLE {role} SET synchronous_commit = off")
    edited(server, place, f"ALTER ROLE {role} SET search_path = pg_catalog")
    lax = replace(place, conninfo=place.conninfo.replace("noisegate@", f"{role}@"))
    with Ledger.open(lax) as ledger, ledger._transaction(write=True) as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


def test_a_server_that_does_not_wait_for_the_disk_is_refused(tmp_path: Path) -> None:
    with running() as careless, pytest.raises(LedgerFailed, match="the server has fsync = off, and loses charges"):
        Ledger.open(remote(careless, tmp_path))


def test_a_server_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    nowhere = Remote.parse("postgresql://someone@127.0.0.1:1/nothing", marker=tmp_path / "born")
    with pytest.raises(LedgerFailed, match=r"the ledger 127\.0\.0\.1/nothing/noisegate can't be reached"):
        Ledger.open(nowhere)
    assert list(tmp_path.iterdir()) == []


def test_a_role_that_may_not_write_is_refused(server: Postgres, place: Remote) -> None:
    filled(place)
    role = f"reader_{uuid.uuid4().hex}"
    edited(server, place, f"CREATE ROLE {role} LOGIN", f"GRANT USAGE ON SCHEMA {place.schema} TO {role}")
    edited(server, place, f"GRANT SELECT ON ALL TABLES IN SCHEMA {place.schema} TO {role}")
    reader = replace(place, conninfo=place.conninfo.replace("noisegate@", f"{role}@"))
    with pytest.raises(LedgerFailed, match=r"can't be read or written: insufficient privilege \(42501\)"):
        Ledger.open(reader)


def test_a_refresh_on_one_gate_is_seen_by_the_others_before_they_charge(place: Remote, tmp_path: Path) -> None:
    with Ledger.open(place) as one, Ledger.open(replace(place, marker=tmp_path / "other.born")) as other:
        assert one.version("people") == other.version("people") == 1
        one.refresh("people", "new data")
        with pytest.raises(SourceFailed, match="were refreshed while it was read"):
            pay(other, draft("measured before"))
        assert other.version("people") == 2
        assert other.spent("everyone") == 0
        assert pay(other, replace(draft("after"), version=2)).id == 1


# Connections


@pytest.fixture
def cutter(server: Postgres) -> Iterator[Cutter]:
    with cutting(server.port) as found:
        yield found


@pytest.fixture
def cut_off(cutter: Cutter, place: Remote, server: Postgres, monkeypatch: pytest.MonkeyPatch) -> Remote:
    """The place as a gate sees it through a bad network; it and the server are less patient than usual."""
    for name, seconds in {"SILENT_SECONDS": 2.5, "IDLE_SECONDS": 1}.items():
        monkeypatch.setattr(postgres, name, seconds)
    return replace(place, conninfo=place.conninfo.replace(str(server.port), str(cutter.port)))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_commit_whose_acknowledgement_is_lost_is_answered_as_it_is_stored_or_not_at_all(
    cutter: Cutter, cut_off: Remote, place: Remote, fault: str
) -> None:
    with Ledger.open(cut_off) as ledger:
        pay(ledger, draft("before"))
        cutter.armed = fault
        stored = FAULTS[fault][0]
        if stored:
            release = pay(ledger, draft("key", body=b"mine", units=3))
            assert (release.body, release.replayed) == (b"mine", False)
        else:
            with pytest.raises(LedgerFailed, match="was lost before it acknowledged") as failure:
                pay(ledger, draft("key", body=b"mine", units=3))
            assert failure.value.hint is not None
            assert "nothing was charged" in failure.value.hint
        assert cutter.met == 1
        with Ledger.open(place) as witness:
            assert witness.spent("everyone") == (4 if stored else 1)
        again = pay(ledger, draft("key", body=b"again", units=3))
        assert (again.body, again.replayed) == ((b"mine", True) if stored else (b"again", False))
        assert ledger.spent("everyone") == 4


@pytest.mark.parametrize("fault", ["cut after it was sent", "cut before it arrived"])
def test_a_commit_whose_outcome_can_not_be_known_is_not_answered_and_replayed_later(
    cutter: Cutter, cut_off: Remote, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "RECOVER_SECONDS", 0.5)
    with Ledger.open(cut_off) as ledger:
        cutter.armed, cutter.shut_after = fault, True
        with pytest.raises(LedgerFailed, match="whether the charge was stored can't be told now") as failure:
            pay(ledger, draft("key", body=b"mine"), cap=1)
        assert failure.value.hint is not None
        assert "nothing more is charged" in failure.value.hint
        with pytest.raises(LedgerFailed, match="can't be reached"):
            ledger.releases()
        cutter.shut = cutter.shut_after = False
        stored = FAULTS[fault][0]
        again = pay(ledger, draft("key", body=b"again"), cap=1)
        assert again.body == (b"mine" if stored else b"again")
        assert ledger.spent("everyone") == 1


def test_a_lost_connection_is_made_again_before_the_next_question(server: Postgres, place: Remote) -> None:
    with Ledger.open(place) as ledger:
        for number in range(3):
            edited(
                server,
                place,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'noise%'",
            )
            assert pay(ledger, draft(f"key {number}")).id == number + 1


def test_passwords_are_in_no_message(server: Postgres, tmp_path: Path) -> None:
    for url in (
        "postgresql://ann:hunter2@db/ledger",
        "postgresql://ann:hun@ter2@db/ledger",
        "postgresql://db/ledger?password=hunter2",
        "postgresql://ann:hunter2#@db/ledger",
        "postgresql://hunter2:x/y z",
    ):
        with pytest.raises(ValueError, match="url must") as refused:
            Remote.parse(url, marker=tmp_path / "born")
        assert "ter2" not in str(refused.value)


# Gates that pause, and have wrong clocks


def paused(place: Path | Remote, task: str) -> subprocess.Popen[str]:
    """Start a gate that stops itself while it charges; return it when it stands still."""
    command = [sys.executable, "-m", "tests.planner.ledger_worker", task, written(place)]
    found = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    _, status = os.waitpid(found.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return found


def resumed(gate: subprocess.Popen[str]) -> Any:  # Any: whatever JSON it prints
    gate.send_signal(signal.SIGCONT)
    out, _ = gate.communicate(timeout=60)
    assert gate.returncode == 0
    return json.loads(out)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_gate_paused_before_its_charge_gets_nothing_that_was_spent_meanwhile(
    kind: str, server: Postgres, tmp_path: Path
) -> None:
    place = tmp_path / "ledger.sqlite" if kind == "sqlite" else remote(server, tmp_path)
    gate = paused(place, "pause_before")
    with Ledger.open(place) as ledger:
        pay(ledger, draft("other"), cap=1)
        assert resumed(gate) == "BudgetExceeded"
        assert ledger.spent("everyone") == 1


def test_a_gate_paused_inside_its_charge_holds_others_up_only_shortly_and_gets_nothing(place: Remote) -> None:
    gate = paused(place, "pause_inside")
    with Ledger.open(replace(place, marker=place.marker.with_name("other"))) as ledger:
        pay(ledger, draft("other"), cap=1)
        assert resumed(gate) == "LedgerFailed"
        assert [release.key for release in ledger.releases()] == ["other"]


def test_gates_may_have_any_clock(place: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.open(place) as one, Ledger.open(replace(place, marker=place.marker.with_name("other"))) as other:
        for number, year in enumerate((2150, 1970, 2026, 1)):

            class Clock(dt.datetime):
                @classmethod
                def now(cls, tz: dt.tzinfo | None = None, *, _year: int = year) -> Clock:
                    return cls(_year, 1, 1, tzinfo=tz)

            monkeypatch.setattr(ledger_module, "datetime", Clock)
            gate = (one, other)[number % 2]
            assert pay(gate, draft(f"key {number}"), cap=4).id == number + 1
        with pytest.raises(BudgetExceeded):
            pay(one, draft("one too many"), cap=4)
        assert [release.created[:4] for release in other.releases()] == ["2150", "1970", "2026", "0001"]
        assert one.releases(after=2) == other.releases()[2:]
    Ledger.open(place).close()


# Whole gates


def policy(server: Postgres, folder: Path, *, epsilon: float = 1000.0) -> Path:
    """Return the policy of a small table with its ledger on the server."""
    ledger = f'[ledger]\nurl = "postgresql://noisegate@127.0.0.1:{server.port}/noisegate#gates_{uuid.uuid4().hex}"\n'
    return world(folder, rest=ANALYSTS + ledger, epsilon=epsilon)


def test_gates_on_one_ledger_that_race_for_the_budget_never_pass_it(server: Postgres, tmp_path: Path) -> None:
    path = policy(server, tmp_path, epsilon=1.1)
    found = work("race", path, 3)
    assert found["codes"] == [0] * 3
    answered = [json.loads(line) for line in found["lines"] if not line.startswith("refused")]
    gate = Gate.open(path)
    assert gate.cap / 10 < rho_of(gate.ledger.spent("default")) <= gate.cap
    assert len(gate.ledger.releases()) == sum(Fraction(line[3]) > 0 for line in answered) > 0
    gate.close()


def test_gates_come_and_go_while_others_answer(server: Postgres, tmp_path: Path) -> None:
    path = policy(server, tmp_path)
    lines = [json.loads(line) for line in work("come_and_go", path, 6)]
    gate = Gate.open(path)
    releases = gate.ledger.releases()
    assert {release.analyst for release in releases} == {"ann", "bob"}
    assert len({release.key for release in releases}) == len(releases) >= max(last for *_, last in lines)
    spent = gate.ledger.spent("default")
    for sql in {sql for sql, *_ in lines}:
        assert gate.session("ann").execute(sql).cost == 0
    assert gate.ledger.spent("default") == spent
    gate.close()


def test_a_gate_sees_what_another_released_refreshed_and_moved(server: Postgres, tmp_path: Path) -> None:
    path, sql = policy(server, tmp_path), "SELECT sex, count(*) FROM people GROUP BY sex ORDER BY sex"
    one, other = Gate.open(path), Gate.open(path)
    try:
        paid = one.session("ann").execute(sql)
        free = other.session("bob").execute(sql)
        assert paid.cost > free.cost == 0
        assert free.rows == paid.rows
        one.refresh("people")
        again = other.session("bob").execute(sql)
        assert again.cost > 0
        assert one.session("ann").execute(sql).rows == again.rows
        one.move("0.25", source="ann", target="bob")
        rows = other.session("bob").execute("SELECT analyst, share FROM noisegate.accounts ORDER BY analyst").rows
        assert rows == [("ann", 0.25), ("bob", 0.75)]
        one.session("ann").execute(f"SELECT * FROM noisegate.enlist('q3', $${sql}$$, error => 10)")
        other.session("ann").execute("SELECT * FROM noisegate.release('q3')")
        assert one.session("ann").execute("SELECT state FROM noisegate.rounds").rows == [("released",)]
    finally:
        one.close()
        other.close()


# Servers that are killed, and run full


def killed(server: Postgres) -> None:
    """Kill PostgreSQL, all of it, at once; then start it again."""
    postmaster = int((server.log.parent / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGSTOP)  # so that it starts no others meanwhile
    for process in (*children(postmaster), postmaster):
        os.kill(process, signal.SIGKILL)
    for lock in (server.log.parent / "postmaster.pid", *server.log.parent.glob(".s.PGSQL.*")):
        lock.unlink()  # where nobody buries the dead, it would seem to run
    server.control("start")


def test_a_server_killed_in_mid_commit_loses_no_answer_and_gives_none_away(tmp_path: Path) -> None:
    with running(durable=True) as server:
        place, log = remote(server, tmp_path), tmp_path / "answers.log"
        command = [sys.executable, "-m", "tests.planner.ledger_worker", "endure", written(place), "2", "400"]
        gates = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for number in range(4):
            assert gates.poll() is None
            enough = (len(log.read_text().splitlines()) if log.exists() else 0) + 20
            while gates.poll() is None and (not log.exists() or len(log.read_text().splitlines()) < enough):
                time.sleep(0.005)
            if number % 2:
                killed(server)
            else:
                server.control("-m", "immediate", "restart")
        out, _ = gates.communicate(timeout=300)
        assert gates.returncode == 0
        answers, failures = json.loads(out)["answers"], json.loads(out)["failures"]
        with Ledger.open(place) as ledger:
            stored = {release.key: release for release in ledger.releases()}
            assert len(stored) == len(ledger.releases()) == ledger.spent("everyone") == 400
            assert {stored[key].body.hex() == body for key, body in answers} == {True}
        assert failures > 0


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """Mount a disk that can run full, for real."""
    disk = Path(tempfile.mkdtemp())
    command = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "none", disk]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        disk.rmdir()
        pytest.skip("no small disk can be mounted here: that needs root")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
        disk.rmdir()


def run_full(ledger: Ledger, disk: Path) -> tuple[int, list[LedgerFailed]]:
    """Fill up the disk and charge until that fails twice; return how many releases were stored, and the failures."""
    pay(ledger, draft("first"))
    with (disk / "ballast").open("wb") as ballast:
        os.posix_fallocate(ballast.fileno(), 0, shutil.disk_usage(disk).free - 100_000)
    stored, failures = 1, list[LedgerFailed]()
    while len(failures) < 2:
        try:
            pay(ledger, draft(f"full {stored}", body=os.urandom(200_000 if stored > 1 else 1000)))
            stored += 1
        except LedgerFailed as failure:
            failures.append(failure)
    (disk / "ballast").unlink()
    return stored, failures


def assert_room_again(ledger: Ledger, stored: int) -> None:
    assert ledger.spent("everyone") == len(ledger.releases())
    assert {release.key for release in ledger.releases()} >= {"first", *(f"full {n}" for n in range(1, stored))}
    pay(ledger, draft("room again"))


def test_a_full_disk_is_a_clear_error_and_later_commits_work(tmp_path: Path) -> None:
    with (
        small_disk("96m") as disk,
        running(durable=True, folder=disk) as server,
        Ledger.open(remote(server, tmp_path)) as ledger,
    ):
        stored, failures = run_full(ledger, disk)
        known = ("can't be", "was lost", "ended with")
        assert all(any(words in failure.message for words in known) for failure in failures)
        server.control("restart")
        assert_room_again(ledger, stored)


def test_a_full_disk_under_a_file_is_a_clear_error_and_later_commits_work() -> None:
    with small_disk("2m") as disk, Ledger.open(disk / "ledger.sqlite") as ledger:
        stored, failures = run_full(ledger, disk)
        for failure in failures:
            assert failure.message == "the ledger ledger.sqlite can't be read or written: database or disk is full"
        assert len(ledger.releases()) == stored
        assert_room_again(ledger, stored)
