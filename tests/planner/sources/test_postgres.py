"""A protected table in PostgreSQL: what is checked, what is never told, and what happens when the server fails."""

from __future__ import annotations

import datetime as dt
import os
import signal
import socket
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from planner.basics.errors import PolicyRefusal, SourceFailed
from planner.basics.stopping import Interrupted, Stop, stoppable
from planner.cells.workspace import Axis
from planner.curator.check import check
from planner.curator.proposal import propose
from planner.gate import Gate
from planner.policy.domain import Domain
from planner.sources.postgres import PostgresSource
from planner.sources.source import open_source
from tests.planner.engines import grid, owner, table, url
from tests.planner.gates import policy, switch_noise_off
from tests.proxy.postgres import Postgres, running

COLUMNS = """
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
sex = { values = ["F", "M"] }
"""
QUESTION = "SELECT sex, count(*) AS n, sum(age) AS years FROM people GROUP BY sex ORDER BY sex"


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with running() as found:
        yield found


@pytest.fixture
def people(server: Postgres) -> Postgres:
    """Make the table people: 300 rows, ages 0 to 99."""
    with owner(server) as connection:
        connection.execute("DROP TABLE IF EXISTS people CASCADE")
        connection.execute("CREATE TABLE people (id int, age int, sex varchar(1), note text)")
        connection.execute(
            "INSERT INTO people SELECT i, i % 100, CASE WHEN i % 3 = 0 THEN 'F' ELSE 'M' END "
            "FROM generate_series(1, 300) AS i"
        )
        connection.execute("GRANT SELECT ON people TO ann")
    return server


def make(folder: Path, source: str, *, entries: str = "", columns: str = COLUMNS) -> Path:
    return policy(folder, f'[tables.people]\nsource = "{source}"\n{entries}\n{columns}')


@contextmanager
def opened(file: Path) -> Iterator[Gate]:
    with closing(Gate.open(file)) as gate:
        yield gate


def test_answers_come_from_postgresql(people: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    switch_noise_off(monkeypatch)
    with opened(make(tmp_path, f"{url(people)}#public.people")) as gate:
        rows = gate.session().execute(QUESTION).rows
    assert [tuple(map(str, row)) for row in rows] == [("F", "100", "4950"), ("M", "200", "9900")]


def test_a_public_table_is_joined_to_one_in_postgresql(
    people: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_noise_off(monkeypatch)
    (tmp_path / "names.csv").write_text("letter,name\nF,women\nM,men\n")
    names = '[tables.names]\nsource = "names.csv"\npublic = true\n'
    sql = (
        "SELECT name, count(*) AS n FROM people JOIN names ON sex = letter WHERE age >= 50 GROUP BY name ORDER BY name"
    )
    with opened(make(tmp_path, f"{url(people)}#public.people", columns=COLUMNS + names)) as gate:
        rows = gate.session().execute(sql).rows
    assert [tuple(map(str, row)) for row in rows] == [("men", "100"), ("women", "50")]


def test_a_service_file_says_where_the_server_is(
    people: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = tmp_path / "services.conf"
    service.write_text(f"[clinic]\nhost=127.0.0.1\nport={people.port}\ndbname=noisegate\nuser=ann\n")
    monkeypatch.setenv("PGSERVICEFILE", str(service))
    with opened(make(tmp_path, "postgresql:///?service=clinic#people")) as gate:
        assert len(gate.session().execute(QUESTION).rows) == 2


def test_a_stopped_statement_is_canceled_in_postgresql(people: Postgres, tmp_path: Path) -> None:
    """It waits for a lock that nobody gives back, and has no time limit of its own that would end it."""
    stop = Stop()
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with (
        opened(make(tmp_path, f"{url(people)}#public.people", entries='timeout = "60 minutes"')) as gate,
        ThreadPoolExecutor(1) as pool,
    ):

        def ask() -> None:
            with stoppable(stop):
                gate.session().execute(QUESTION)

        with owner(people) as locking, owner(people) as watching:
            locking.execute("BEGIN")
            locking.execute("LOCK TABLE people IN ACCESS EXCLUSIVE MODE")
            asked = pool.submit(ask)
            while watching.execute(waiting).fetchone() == (0,):
                time.sleep(0.01)
            stop.stop()
            with pytest.raises(Interrupted):
                asked.result(60)
            assert watching.execute(waiting).fetchone() == (0,)
            locking.execute("ROLLBACK")
        assert gate.ledger.spent("people") == 0
        assert len(gate.session().execute(QUESTION).rows) == 2


@pytest.mark.parametrize("place", ["postgresql://ann:hunter2@db/x", "postgresql://db/x?password=hunter2"])
def test_a_password_in_the_policy_is_refused_and_not_repeated(tmp_path: Path, place: str) -> None:
    with pytest.raises(PolicyRefusal, match="must not hold a password") as refused:
        Gate.open(make(tmp_path, f"{place}#public.people"))
    assert "hunter2" not in str(refused.value)


def test_a_server_that_is_not_there_is_named_by_its_table_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2")
    caplog.set_level("DEBUG")
    with pytest.raises(SourceFailed) as refused:
        Gate.open(make(tmp_path, "postgresql://secretary@127.0.0.1:1/ledger?connect_timeout=2#public.people"))
    told = f"{refused.value.message} {refused.value.hint} {caplog.text} {capfd.readouterr()}"
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
    assert not [word for word in ("hunter2", "secretary", "127.0.0.1", "ledger") if word in told]


def test_the_text_of_an_engine_error_stays_inside(people: Postgres, tmp_path: Path) -> None:
    """A column changes its type between the look at the catalog and the question: here, by force."""
    source = open_source(table(f"{url(people)}#people", {"age": grid("integer", 0, 110, 1)}))
    with closing(source), pytest.raises(SourceFailed) as refused, source.current():  # type: ignore[attr-defined]
        source.fetch("SELECT CAST(sex AS integer) FROM public.people")  # type: ignore[attr-defined]
    assert refused.value.message == "the source of table people can't be read"


# --- what is checked ---------------------------------------------------------------------------------------


def mistakes(file: Path) -> dict[str, str]:
    with pytest.raises(PolicyRefusal) as refused:
        check(file)
    return {mistake.where: mistake.text for mistake in refused.value.mistakes}


def test_columns_are_checked_without_reading_a_row(people: Postgres, tmp_path: Path) -> None:
    columns = (
        COLUMNS + 'town = { values = ["Ghent"] }\nnote = { type = "date", min = "2024-01-01", max = "2024-12-31" }'
    )
    file = make(tmp_path, f"{url(people)}#people", columns=columns)
    assert mistakes(file) == {"tables.people.columns.town": "the source has no such column"}
    file.write_text(file.read_text().replace("town =", "id ="))
    assert mistakes(file) == {
        "tables.people.columns.note": "is text in the source, which can't be read as date",
    }
    with owner(people) as connection:
        [(scans,)] = connection.execute("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'people'")
    assert not scans


@pytest.mark.parametrize(
    ("statement", "relation", "told"),
    [
        ("SELECT 1", "nobody", "does not exist in that database"),
        ("CREATE VIEW shown AS SELECT * FROM people", "shown", "is no table"),
        ("ALTER TABLE people ENABLE ROW LEVEL SECURITY", "people", "is seen in part only"),
    ],
)
def test_what_could_not_be_read_faithfully_is_refused(
    people: Postgres, tmp_path: Path, statement: str, relation: str, told: str
) -> None:
    with owner(people) as connection:
        connection.execute(statement)
    assert told in mistakes(make(tmp_path, f"{url(people)}#{relation}"))["tables.people.source"]


def test_the_right_to_the_declared_columns_is_enough_and_needed(people: Postgres, tmp_path: Path) -> None:
    file = make(tmp_path, f"{url(people)}#people")
    with owner(people) as connection:
        connection.execute("REVOKE ALL ON people FROM ann")
        assert mistakes(file) == {
            "tables.people.columns.age": "the gate's role may not read it",
            "tables.people.columns.sex": "the gate's role may not read it",
        }
        connection.execute("GRANT SELECT (age, sex) ON people TO ann")
        assert mistakes(file)["tables.people.source"].endswith("changes could not be noticed")
        connection.execute("GRANT SELECT (tableoid, ctid, xmin) ON people TO ann")
    with opened(file) as gate:
        assert len(gate.session().execute(QUESTION).rows) == 2


def test_init_proposes_a_policy_for_a_table(people: Postgres) -> None:
    text = propose(f"{url(people)}#people")
    assert tomllib.loads(text)["tables"]["people"] == {
        "source": f"{url(people)}#people",
        "privacy_unit": "row",
        "columns": {
            "id": {"type": "integer"},
            "age": {"type": "integer"},
            "sex": {"type": "text"},
            "note": {"type": "text"},
        },
    }
    with pytest.raises(SourceFailed, match="must not hold a password"):
        propose("postgresql://ann:hunter2@127.0.0.1/noisegate#people")


def test_a_unit_needs_a_row_key_of_a_kind_that_all_engines_write_alike(people: Postgres, tmp_path: Path) -> None:
    entries = 'privacy_unit = "id"\nmax_rows_per_unit = 2'
    with pytest.raises(PolicyRefusal, match="row_key is missing"):
        check(make(tmp_path, f"{url(people)}#people", entries=entries))
    with owner(people) as connection:
        connection.execute("ALTER TABLE people ADD COLUMN seen timestamptz")
    file = make(tmp_path, f"{url(people)}#people", entries=f'{entries}\nrow_key = "seen"')
    [told] = mistakes(file).values()
    assert told == "is timestamptz in the source; a row key must be one of integer, text, boolean, date"


# --- values that only PostgreSQL has -----------------------------------------------------------------------


def counts(server: Postgres, column: str, values: list[str], domain: Domain) -> list[int]:
    """Return how many of the values, written as SQL, are in each cell."""
    with owner(server) as connection:
        connection.execute("DROP TABLE IF EXISTS odd")
        connection.execute(f"CREATE TABLE odd (x {column})")
        for value in values:
            connection.execute(f"INSERT INTO odd VALUES ({value})")
        connection.execute("GRANT SELECT ON odd TO ann")
    atoms = np.arange(domain.cells)
    with closing(open_source(table(f"{url(server)}#odd", {"x": domain}))) as source:
        tally = source.tally([Axis("x", domain, atoms, atoms)], [])
    found = np.zeros(domain.cells, dtype=np.int64)
    found[tally.codes[:, 0]] = tally.sums[:, 0]
    return found.tolist()


FLOAT = grid("float", Decimal(0), Decimal(2), Decimal("0.5"), nullable=True)
WHOLE = grid("integer", 0, 4, 1, nullable=True)
DAYS = grid("date", dt.date(2024, 1, 1), dt.date(2024, 1, 3), 1)
MOMENTS = grid("timestamp", dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 3), dt.timedelta(days=1))


@pytest.mark.parametrize(
    ("column", "values", "domain", "expected"),
    [
        ("numeric", ["1e400", "-1e400", "1e-400", "'NaN'", "'Infinity'", "'-Infinity'"], FLOAT, [3, 0, 0, 0, 2, 1]),
        ("numeric", ["1e400", "-1e400", "1e-400", "'NaN'", "'Infinity'", "2.5", "NULL"], WHOLE, [2, 0, 0, 1, 2, 2]),
        ("double precision", ["1e300", "'-Infinity'", "2.5", "3.5", "'NaN'"], WHOLE, [1, 0, 1, 0, 2, 1]),
        ("char(3)", ["'a'", "'a '", "'b'"], Domain(type="text", values=("a", "b")), [2, 1]),
        (
            "uuid",
            ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"],
            Domain(type="text", values=("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",)),
            [1],
        ),
        ("date", ["'infinity'", "'-infinity'", "'5000000-01-01'"], DAYS, [1, 0, 2]),
        ("date", ["'infinity'", "'-infinity'", "'5000000-01-01'", "NULL"], MOMENTS, [1, 0, 2]),
        ("timestamp", ["'infinity'", "'-infinity'", "'200000-01-01'"], DAYS, [1, 0, 2]),
        ("timestamptz", ["'infinity'", "'2024-01-02 23:30-01'", "'2024-01-02 23:30+00'"], MOMENTS, [0, 1, 2]),
    ],
)
def test_no_value_is_an_error(
    server: Postgres, column: str, values: list[str], domain: Domain, expected: list[int]
) -> None:
    assert counts(server, column, values, domain) == expected


def test_text_is_compared_by_its_bytes_in_every_type_that_is_text(server: Postgres) -> None:
    """Where PostgreSQL has ICU, a column's collation may take F for f; this build of it has none to try that with."""
    with owner(server) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('F', 'f')")
        connection.execute('CREATE DOMAIN sex AS text COLLATE "POSIX"')
    domain = Domain(type="text", values=("F", "f", "é"), other="else")
    values = ["'F'", "'f'", "'f'", "'é'", "'e'", "'É'"]
    for column in ('text COLLATE "POSIX"', "varchar(9)", "name", "sex"):
        assert counts(server, column, values, domain) == [1, 2, 1, 2]
    assert counts(server, "mood", values[:3], domain) == [1, 2, 0, 0]


# --- changes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO people VALUES (0, 1, 'F')",
        "UPDATE people SET age = 5 WHERE id = 1",
        "DELETE FROM people WHERE id = 1",
        "TRUNCATE people",
    ],
)
def test_a_change_of_the_rows_is_noticed(people: Postgres, tmp_path: Path, statement: str) -> None:
    with opened(make(tmp_path, f"{url(people)}#people")) as gate:
        gate.session().execute(QUESTION)
        with owner(people) as connection:
            connection.execute(statement)  # the counters are written when the connection ends
        with pytest.raises(SourceFailed, match="changed since it was first read"):
            wait_for(lambda: gate.session().execute(QUESTION + " LIMIT 1") and None)
        gate.refresh("people")
        assert len(gate.session().execute(QUESTION).rows) == 2


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO people VALUES (0, 1, 'F')",
        "UPDATE people SET age = age WHERE id = 1",
        "UPDATE people SET age = CASE age WHEN 1 THEN 2 ELSE 1 END WHERE id IN (1, 2)",  # two who change places
        "DELETE FROM people WHERE id = 1",
        "DELETE FROM people",
    ],
)
def test_a_reading_notices_what_the_counters_have_not_told_yet(
    people: Postgres, tmp_path: Path, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counters may be late for as long as a session likes. Here they never come; and another gate reads the change."""
    monkeypatch.setattr(PostgresSource, "fingerprint", lambda _: "nothing is told")
    file = make(tmp_path, f"{url(people)}#people")
    with opened(file) as gate, opened(file) as other:
        before = gate.session().execute(QUESTION)
        with owner(people) as connection:
            connection.execute(statement)
        spent = gate.ledger.spent("default")
        for each in (other, gate):
            with pytest.raises(SourceFailed, match="changed since it was first read"):
                each.session().execute("SELECT median(age) FROM people")
            with pytest.raises(SourceFailed, match="changed since it was first read"):
                each.session().execute("SELECT count(*) FROM people WHERE age < 7")
            assert each.session().execute(QUESTION).rows == before.rows  # it was told before, about the rows of then
        assert gate.ledger.spent("default") == spent
        other.refresh("people")
        assert gate.session().execute("SELECT count(*) FROM people WHERE age < 7").cost > 0


def test_what_leaves_the_rows_alone_is_no_change_to_a_reading(people: Postgres) -> None:
    with closing(open_source(table(f"{url(people)}#people", {"age": grid("integer", 0, 110, 1)}))) as source:
        with source.reading() as before:
            pass
        with owner(people) as connection:
            for statement in ("VACUUM (FREEZE, ANALYZE) people", "BEGIN", "DELETE FROM people", "ROLLBACK"):
                connection.execute(statement.encode())
        with source.reading() as after:
            pass
        assert after == before


def test_a_reading_and_its_rows_are_of_one_snapshot(people: Postgres) -> None:
    with closing(open_source(table(f"{url(people)}#people", {"age": grid("integer", 0, 110, 1)}))) as source:
        with source.reading() as before:
            with owner(people) as connection:
                connection.execute("DELETE FROM people")
            assert source.tally([], []).sums.tolist() == [[300]]
        with source.reading() as after:
            assert source.tally([], []).sums.tolist() == [[0]]
        assert after != before


def test_what_is_known_of_rows_is_forgotten_with_them(people: Postgres) -> None:
    """At first all rows are inside the domains; then some are not, then other columns have them; then nobody's."""
    domains = {"age": grid("integer", 0, 110, 1), "sex": Domain(type="text", values=("F", "M"))}
    changes = {
        "SELECT": 300,
        "UPDATE people SET sex = 'x' WHERE id <= 50": 250,
        "UPDATE people SET sex = 'F', age = nullif(age, 7)": 297,
        "ALTER TABLE people RENAME age TO old; ALTER TABLE people ADD age int": 0,
    }
    limited = table(f"{url(people)}#people", domains, unit="id", max_rows_per_unit=1, row_key="id")
    with (
        closing(open_source(table(f"{url(people)}#people", domains))) as source,
        closing(open_source(limited)) as units,
        owner(people) as connection,
    ):
        for change, count in changes.items():
            connection.execute(change.encode())
            for each in (source, units, source, units):
                with each.reading():
                    assert each.tally([], []).sums.tolist() == [[count]]


def test_a_change_of_one_partition_is_noticed(server: Postgres, tmp_path: Path) -> None:
    with owner(server) as connection:
        connection.execute("CREATE TABLE parted (age int, sex text) PARTITION BY LIST (sex)")
        connection.execute("CREATE TABLE parted_f PARTITION OF parted FOR VALUES IN ('F')")
        connection.execute("GRANT SELECT ON parted TO ann")
    with closing(open_source(table(f"{url(server)}#parted", {"age": grid("integer", 0, 9, 1)}))) as source:
        before = source.fingerprint()
        with source.reading() as rows:
            pass
        with owner(server) as connection:
            connection.execute("INSERT INTO parted VALUES (1, 'F')")
        with source.reading() as now:
            assert now != rows
        wait_for(lambda: source.fingerprint() != before)


def wait_for(found: Callable[[], Any]) -> None:
    """Wait until something is true; counters and restarts take their time."""
    for _ in range(600):
        if found():
            return
        time.sleep(0.05)
    raise AssertionError("it never came")


# --- faults ------------------------------------------------------------------------------------------------


class Proxy:
    """Passes bytes on to PostgreSQL, until it is told to cut every connection."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [client, server]
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)

    def cut(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._sockets.clear()

    def close(self) -> None:
        self._listener.close()
        self.cut()


WAITING = "SELECT pid FROM pg_stat_activity WHERE application_name = 'noisegate' AND wait_event_type = 'Lock'"


def interrupted(server: Postgres, gate: Gate, interrupt: Callable[[int], object]) -> SourceFailed:
    """Return how a question fails that is interrupted while PostgreSQL works on it: a lock holds it there."""
    with ThreadPoolExecutor(1) as pool, psycopg.connect(url(server, user="noisegate")) as holder:
        holder.execute("LOCK TABLE people IN ACCESS EXCLUSIVE MODE")
        asked = pool.submit(gate.session().execute, QUESTION)
        with owner(server) as connection:
            wait_for(lambda: connection.execute(WAITING).fetchone())
            [(pid,)] = connection.execute(WAITING).fetchall()
        interrupt(pid)
        failure = asked.exception(timeout=60)
        with suppress(psycopg.OperationalError):  # the whole server may have gone down
            holder.rollback()
    assert isinstance(failure, SourceFailed)
    return failure


def nothing_spent(gate: Gate) -> bool:
    return not gate.ledger.releases() and not gate.ledger.spent("default")


def test_a_backend_that_is_ended_costs_nothing_and_the_next_question_reconnects(
    people: Postgres, tmp_path: Path
) -> None:
    def end(pid: int) -> None:
        with owner(people) as connection:
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])

    with opened(make(tmp_path, f"{url(people)}#people")) as gate:
        failure = interrupted(people, gate, end)
        assert failure.message == "the source of table people can't be reached, or was cut off"
        assert nothing_spent(gate)
        assert len(gate.session().execute(QUESTION).rows) == 2
        assert not nothing_spent(gate)


def test_a_connection_that_is_cut_costs_nothing_and_the_next_question_reconnects(
    people: Postgres, tmp_path: Path
) -> None:
    with closing(Proxy(people.port)) as proxy, opened(make(tmp_path, f"{url(people, port=proxy.port)}#people")) as gate:
        failure = interrupted(people, gate, lambda _: proxy.cut())
        assert failure.message == "the source of table people can't be reached, or was cut off"
        assert nothing_spent(gate)
        assert len(gate.session().execute(QUESTION).rows) == 2
        proxy.cut()  # while nothing is asked: not even noticed
        assert gate.session().execute(QUESTION + " LIMIT 1").rows


def test_a_question_that_takes_too_long_is_stopped_by_the_server_and_costs_nothing(
    people: Postgres, tmp_path: Path
) -> None:
    file = make(tmp_path, f"{url(people)}#people", entries='timeout = "800 milliseconds"')
    with opened(file) as gate:
        failure = interrupted(people, gate, lambda _: None)
        assert failure.message == "the source of table people took longer than 0.8 seconds"
        assert nothing_spent(gate)
        assert len(gate.session().execute(QUESTION).rows) == 2


def test_a_server_killed_in_mid_query_costs_nothing_and_asks_for_a_refresh(people: Postgres, tmp_path: Path) -> None:
    """kill -9 of one backend makes PostgreSQL restart; its counters begin anew, so that changes can't be excluded."""
    with opened(make(tmp_path, f"{url(people)}#people")) as gate:
        gate.ledger.claim("people", gate.meters["people"]._source.fingerprint() or "")
        failure = interrupted(people, gate, lambda pid: os.kill(pid, signal.SIGKILL))
        assert failure.message == "the source of table people can't be reached, or was cut off"
        assert nothing_spent(gate)
        wait_for(lambda: answers(gate))
        assert nothing_spent(gate)
        gate.refresh("people")
        assert len(gate.session().execute(QUESTION).rows) == 2


def answers(gate: Gate) -> bool:
    """Return whether the server is back; the gate then says that the source changed."""
    try:
        gate.session().execute(QUESTION)
    except SourceFailed as failure:
        return "changed since" in failure.message
    return False
