"""The real server, with psycopg as a client: it gives what the DB-API gives, and ends in good order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import noisegate
from planner.basics.errors import PolicyRefusal, SourceFailed
from planner.session import Session
from tests.proxy.servers import Running, running

psycopg = pytest.importorskip("psycopg")

BY_SEX = "SELECT sex, count(*) AS n FROM adult GROUP BY sex ORDER BY sex"
SLOW = "SELECT count(*) FROM generate_series(1, 100000000000) AS t(i)"
Connection = Any  # psycopg may be missing where the types are checked


@pytest.fixture(scope="module")
def server(shared_adult_policy: Path) -> Iterator[Running]:
    with running(shared_adult_policy, metrics_port=0) as found:
        yield found


@pytest.fixture
def connection(server: Running) -> Iterator[Connection]:
    with psycopg.connect(server.dsn(), autocommit=True) as found:
        yield found


def releases(server: Running) -> int:
    [(number,)] = server.gate.session("ann").execute("SELECT count(*) FROM noisegate.releases").rows
    return int(number)


# --- answers -----------------------------------------------------------------------------------------------

QUESTIONS = [
    BY_SEX,
    "SELECT count(*), sum(hours), avg(hours), stddev(hours), median(age) FROM adult",
    "SELECT age / 10 * 10 AS decade, count(*) > 900 AS many FROM adult GROUP BY 1 ORDER BY 1",
    "SELECT workclass, count(*) AS n, dp_interval_low(n), dp_stddev(n) FROM adult GROUP BY workclass ORDER BY 1",
    "SELECT count(*) * 0.25 AS quarter, 'x' AS text, NULL AS nothing FROM adult",
    "SELECT population, rho_total FROM noisegate.budget",
    "EXPLAIN SELECT race, count(*) FROM adult GROUP BY race",
]


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize("prepare", [False, True], ids=["simple", "prepared"])
@pytest.mark.parametrize("sql", QUESTIONS)
def test_an_answer_is_what_the_dbapi_answers(
    connection: Connection, shared_adult_policy: Path, sql: str, prepare: bool, binary: bool
) -> None:
    found = connection.execute(sql, prepare=prepare, binary=binary)
    with noisegate.connect(shared_adult_policy, analyst="ann") as other:
        cursor = other.cursor().execute(sql)
        assert found.fetchall() == cursor.fetchall()
        assert [column.name for column in found.description] == [column[0] for column in cursor.description or []]


PARAMETERS: list[tuple[str, tuple[object, ...]]] = [
    ("SELECT count(*) FROM adult WHERE age > %s", (40,)),
    ("SELECT count(*) FROM adult WHERE age IN (%s,%s)", (40, 41)),
    ("SELECT count(*) FROM adult WHERE sex = %s AND age BETWEEN %s AND %s", ("Male", 20, 30)),
    ("SELECT count(*) FROM adult WHERE race = ANY(%s)", (["White", "Other"],)),
    ("SELECT count(*) FROM adult WHERE age = ANY(%s)", ([20, 21, 22],)),
    ("SELECT count(*) FROM adult WHERE workclass = %s", ("it's; -- not",)),
    ("SELECT count(*) FROM adult WHERE age > %s", (Decimal("40.5"),)),
    ("SELECT count(*) FROM adult WHERE age > %s", (2**40,)),
    ("SELECT count(*) FROM adult WHERE workclass = %s", (None,)),
]


@pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])
@pytest.mark.parametrize(("sql", "values"), PARAMETERS)
def test_parameters_are_values(
    connection: Connection, shared_adult_policy: Path, sql: str, values: tuple[object, ...], binary: bool
) -> None:
    found = connection.execute(sql, values, binary=binary).fetchall()
    with noisegate.connect(shared_adult_policy, analyst="ann") as other:
        assert found == other.cursor().execute(sql, values).fetchall()


def test_an_error_reaches_the_client_with_all_its_parts(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
        connection.execute("SELECT * FROM adult")
    found = refused.value.diag
    assert found.message_primary == "single rows are never shown"
    assert found.message_detail == "nothing was spent"
    assert found.message_hint.startswith("ask for an aggregate")
    assert found.statement_position == "15"
    assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_a_server_side_cursor_fetches_and_scrolls(connection: Connection) -> None:
    with connection.transaction(), connection.cursor("ages", scrollable=True) as cursor:
        cursor.execute("SELECT age, count(*) FROM adult WHERE hours > %s GROUP BY age ORDER BY age", (0,))
        assert [row[0] for row in cursor.fetchmany(3)] == [17, 18, 19]
        cursor.scroll(-1)
        assert cursor.fetchone()[0] == 19
        cursor.itersize = 10
        assert [row[0] for row in cursor] == list(range(20, 91))


def test_a_pipeline_answers_all_and_recovers_from_what_fails(connection: Connection) -> None:
    with connection.pipeline() as pipeline:
        first = connection.execute("SELECT 1")
        second = connection.execute(BY_SEX)
        pipeline.sync()
        with pytest.raises(psycopg.errors.UndefinedColumn):  # noqa: PT012 - it is raised when it is fetched
            connection.execute("SELECT nothing FROM adult")
            pipeline.sync()
        third = connection.execute("SELECT 3")
    assert (first.fetchall(), len(second.fetchall()), third.fetchall()) == ([(1,)], 2, [(3,)])


@pytest.mark.parametrize("form", ["text", "csv", "binary"])
def test_copy_gives_the_rows_of_the_answer(connection: Connection, form: str) -> None:
    expected = connection.execute(BY_SEX).fetchall()
    with connection.cursor().copy(f"COPY ({BY_SEX}) TO STDOUT (FORMAT {form})") as copy:
        if form == "csv":
            assert b"".join(copy).decode() == "".join(f"{sex},{n}\n" for sex, n in expected)
            return
        copy.set_types(["text", "int8"])
        assert list(copy.rows()) == expected


def test_a_large_result_arrives_whole_in_both_formats(connection: Connection) -> None:
    sql = "SELECT i, i * 0.5::float8 AS x, 'row ' || i AS t FROM generate_series(1, 30000) AS g(i)"
    for binary in (False, True):
        rows = connection.execute(sql, binary=binary).fetchall()
        assert len(rows) == 30_000
        assert rows[-1] == (30_000, 15_000.0, "row 30000")


def test_transactions_settings_and_startup_options(server: Running) -> None:
    options = "-c noisegate.error=75 -c statement_timeout=5000"
    with psycopg.connect(server.dsn(), options=options, application_name="tests") as connection:
        assert connection.execute("SHOW noisegate.error").fetchone() == ("75",)
        connection.execute("SET noisegate.error = 80")
        connection.rollback()
        assert connection.execute("SHOW noisegate.error").fetchone() == ("75",)
        assert connection.info.parameter_status("application_name") == "tests"
        assert connection.info.parameter_status("server_encoding") == "UTF8"
        with connection.transaction(), pytest.raises(psycopg.errors.UndefinedColumn), connection.transaction():
            connection.execute("SELECT nothing FROM adult")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS


@pytest.mark.parametrize(
    ("options", "message"),
    [("-c no_such_setting=1", "unrecognized"), ("-c noisegate.error=much", "must be a number"), ("-x", "like -c")],
)
def test_startup_options_that_can_not_be_are_refused(server: Running, options: str, message: str) -> None:
    with pytest.raises(psycopg.OperationalError, match=message):
        psycopg.connect(server.dsn(), options=options)


def test_notices_tell_the_cost(connection: Connection) -> None:
    told: list[str] = []
    connection.add_notice_handler(lambda notice: told.append(notice.message_primary))
    connection.execute("SET noisegate.notices = on")
    connection.execute("SELECT count(*) FROM adult WHERE age = 71 AND hours = 3")
    connection.execute("SELECT count(*) FROM adult WHERE age = 71 AND hours = 3")
    assert ", left " in told[0]
    assert told[1] == "free: already known"


# --- stopping ----------------------------------------------------------------------------------------------


def at_step(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], None]) -> None:
    """Have something happen when a question comes to a step of the gate's."""
    execute = Session.execute

    def hooked(self: Session, sql: str, parameters: Any = None, *, on_step: Any = None) -> Any:
        def step(found: str) -> None:
            if found == name:
                act()
            if on_step:
                on_step(found)

        return execute(self, sql, parameters, on_step=step)

    monkeypatch.setattr(Session, "execute", hooked)


def test_a_question_canceled_before_its_charge_costs_nothing(
    server: Running, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = releases(server)
    released = threading.Event()

    def cancel() -> None:
        connection.cancel_safe()
        released.wait(30)  # the client has its answer while the question still thinks it is measuring

    with monkeypatch.context() as patch:
        at_step(patch, "measuring", cancel)
        with pytest.raises(psycopg.errors.QueryCanceled) as canceled:
            connection.execute("SELECT count(*) FROM adult WHERE age = 61 AND hours = 4")
        released.set()
    assert canceled.value.diag.message_detail == "nothing was spent"
    assert connection.execute("SELECT 1").fetchall() == [(1,)]
    assert releases(server) == before


def test_a_question_canceled_after_its_charge_is_free_the_next_time(
    server: Running, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql, before = "SELECT count(*) FROM adult WHERE age = 62 AND hours = 4", releases(server)
    with monkeypatch.context() as patch:
        at_step(patch, "answering", connection.cancel_safe)
        with pytest.raises(psycopg.errors.QueryCanceled) as canceled:
            connection.execute(sql)
    assert "free the next time" in canceled.value.diag.message_detail
    assert releases(server) == before + 1
    assert len(connection.execute(sql).fetchall()) == 1
    assert releases(server) == before + 1


def test_a_statement_that_takes_too_long_is_stopped(connection: Connection) -> None:
    connection.execute("SET statement_timeout = '200ms'")
    with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
        connection.execute(SLOW)
    assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_the_policys_timeout_can_not_be_lifted(adult_policy: Path) -> None:
    with running(adult_policy, statement_timeout=2) as server, psycopg.connect(server.dsn()) as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("2s",)
        connection.execute("SET statement_timeout = 0")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(SLOW)


def test_a_question_whose_client_is_gone_costs_nothing(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    before = releases(server)
    gone = threading.Event()
    left = threading.Event()

    def leave() -> None:
        gone.set()
        left.wait(30)

    with monkeypatch.context() as patch:
        at_step(patch, "measuring", leave)
        connection = psycopg.connect(server.dsn(), autocommit=True)
        connection.pgconn.send_query(b"SELECT count(*) FROM adult WHERE age = 63 AND hours = 4")
        assert gone.wait(30)
        connection.close()
        wait_until(lambda: "disconnected" in server.log.getvalue().splitlines()[-1])
        left.set()
    assert releases(server) == before


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(3_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen within 30 seconds")


def test_an_idle_connection_is_closed_when_it_is_time(adult_policy: Path) -> None:
    with running(adult_policy, idle_timeout=0.2) as server:
        connection = psycopg.connect(server.dsn())
        wait_until(lambda: "disconnected" in server.log.getvalue())
        with pytest.raises(psycopg.OperationalError, match="idle-session timeout"):
            connection.execute("SELECT 1")
        connection.close()


def start_slow(connection: Connection, found: list[BaseException]) -> threading.Thread:
    """Run a statement that does not end by itself in a thread, which keeps what it raises."""

    def ask() -> None:
        try:
            connection.execute(SLOW)
        except psycopg.Error as error:
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_a_heavy_statement_does_not_stall_the_others(connection: Connection, server: Running) -> None:
    """While one statement is at work, another connection gets 20 answers; the first one is still at work then."""
    found: list[BaseException] = []
    thread = start_slow(connection, found)
    with psycopg.connect(server.dsn("bob"), autocommit=True) as other:
        for number in range(20):
            assert other.execute(f"SELECT {number}").fetchall() == [(number,)]
        assert thread.is_alive()
    connection.cancel_safe()
    thread.join(30)
    assert not thread.is_alive()


# --- limits ------------------------------------------------------------------------------------------------


def test_connections_are_limited_for_all_and_for_each_analyst(adult_policy: Path) -> None:
    with running(adult_policy, max_connections=3, max_connections_per_analyst=2) as server:
        anns = [psycopg.connect(server.dsn("ann")) for _ in range(2)]
        with pytest.raises(psycopg.OperationalError, match='too many connections for role "ann"'):
            psycopg.connect(server.dsn("ann"))
        bob = psycopg.connect(server.dsn("bob"))
        with pytest.raises(psycopg.OperationalError, match="too many clients"):
            psycopg.connect(server.dsn("bob"))
        anns[0].close()
        wait_until(lambda: server.server.shared.open == 2)
        psycopg.connect(server.dsn("bob")).close()
        for connection in (anns[1], bob):
            connection.close()


def test_what_is_not_safe_is_not_served(adult_policy: Path) -> None:
    for config, message in (
        ({"host": "0.0.0.0"}, "lets anyone in"),
        ({"host": "0.0.0.0", "auth": "scram", "tls": "offered"}, "allow_unencrypted = true"),
        ({"auth": "scram"}, "nobody could log in"),
    ):
        with pytest.raises(PolicyRefusal, match=message), running(adult_policy, **config):
            pass


def test_a_port_that_is_taken_is_said_so(server: Running, adult_policy: Path) -> None:
    with (
        pytest.raises(SourceFailed, match=f"can't listen on 127.0.0.1:{server.server.metrics_port}"),
        running(adult_policy, metrics_port=server.server.metrics_port),
    ):
        pass


# --- watching ----------------------------------------------------------------------------------------------


def page(server: Running, name: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.server.metrics_port}/{name}") as answer:
        return str(answer.read().decode())


def test_the_health_check_and_the_metrics_are_there(server: Running, connection: Connection) -> None:
    assert page(server, "health") == "ok\n"
    connection.execute(BY_SEX)
    with pytest.raises(psycopg.Error):
        connection.execute("SELECT * FROM adult")
    text = page(server, "metrics")
    for line in (
        'noisegate_refusals_total{analyst="ann",sqlstate="42501"}',
        'noisegate_queries_total{analyst="ann",by="gate"}',
        'noisegate_budget_spent_rho{population="default"}',
        'noisegate_account_spent_rho{analyst="bob",population="default"} 0',
        'noisegate_statement_seconds_bucket{le="+Inf"}',
    ):
        assert line in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        page(server, "secrets")


def test_the_log_has_who_and_when_but_never_what(server: Running, connection: Connection) -> None:
    with pytest.raises(psycopg.Error):
        connection.execute("SELECT count(*) FROM adult WHERE workclass = 'top secret' AND foo = %s", ("hush",))
    connection.execute("SELECT count(*) FROM adult WHERE workclass = %s", ("Wile E. Coyote",))
    log = server.log.getvalue()
    assert "answered analyst=ann" in log
    assert "sqlstate=42703" in log
    assert not any(word in log for word in ("secret", "hush", "Coyote", "workclass", "SELECT"))


# --- the end -----------------------------------------------------------------------------------------------


def test_shutting_down_tells_idle_clients_and_stops_what_is_not_charged(adult_policy: Path) -> None:
    with running(adult_policy) as server:
        idle, busy = psycopg.connect(server.dsn()), psycopg.connect(server.dsn("bob"))
        found: list[BaseException] = []
        thread = start_slow(busy, found)
        wait_until(lambda: any(c._work is not None for c in server.server.shared.connections.values()))
        server.shut_down()
        thread.join(30)
        assert "administrator command" in str(found[0])
        with pytest.raises(psycopg.OperationalError, match="administrator command"):
            idle.execute("SELECT 1")
        idle.close()
        busy.close()


def test_shutting_down_finishes_what_is_charged(adult_policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(adult_policy) as server, psycopg.connect(server.dsn(), autocommit=True) as connection:
        ending: list[threading.Thread] = []

        def shut_down() -> None:
            ending.append(threading.Thread(target=server.shut_down))
            ending[0].start()
            wait_until(lambda: all(c._closing for c in server.server.shared.connections.values()))

        with monkeypatch.context() as patch:
            at_step(patch, "answering", shut_down)
            assert len(connection.execute(BY_SEX).fetchall()) == 2
        ending[0].join(30)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_several_workers_share_a_port_a_budget_and_requests_to_cancel(adult_policy: Path) -> None:
    with serving(adult_policy, "--workers", "3") as (process, port):
        connections = [psycopg.connect(f"host=127.0.0.1 port={port} user=ann", autocommit=True) for _ in range(12)]
        assert len({connection.info.backend_pid % 3 for connection in connections}) > 1
        answers = {tuple(connection.execute(BY_SEX).fetchall()) for connection in connections}
        assert len(answers) == 1
        spent = connections[0].execute("SELECT count(*) FROM noisegate.releases").fetchone()
        assert spent == (1,)
        for connection in connections[:6]:  # whichever worker the request reaches
            timer = threading.Timer(0.2, connection.cancel_safe)
            timer.start()
            with pytest.raises(psycopg.errors.QueryCanceled):
                connection.execute("SELECT pg_sleep(60)")
            timer.join()
        for connection in connections:
            connection.close()
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=60)
    assert process.returncode == 0
    assert log.count(" ended ") == 3


@contextmanager
def serving(policy: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the command, and yield its process and its port."""
    command = [sys.executable, "-m", "noisegate", "serve", str(policy), "--port", "0", "--trust", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            address = process.stdout.readline()
            yield process, int(address.split("port=")[1].split()[0])
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_serves_until_a_signal_and_logs_json(adult_policy: Path, number: signal.Signals) -> None:
    with serving(adult_policy, "--log-format", "json") as (process, port):
        with psycopg.connect(f"host=127.0.0.1 port={port} user=ann", autocommit=True) as connection:
            assert len(connection.execute(BY_SEX).fetchall()) == 2
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    events = [json.loads(line)["event"] for line in errors.splitlines()]
    assert events == ["listening", "connected", "answered", "disconnected", "ending", "ended"]


# --- functions ---------------------------------------------------------------------------------------------


def test_verify_over_the_wire_has_types_groups_and_parameters(server: Running) -> None:
    """The gap is below 0.05 tau, and tau is above 20 / epsilon: a wrong decision has a probability below 1e-8."""
    sql = "SELECT * FROM noisegate.verify(%s, tau => %s, epsilon => %s)"
    question = "SELECT sex, count(*) FROM adult_synth GROUP BY sex"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        found = connection.execute(sql, [question, "10%", 0.1])
        names = [column.name for column in found.description]
        assert names[:3] == ["sex", "decision", "decider"]
        types = {column.name: column.type_code for column in found.description}
        assert (types["decision"], types["synthetic"], types["wrong"]) == (16, 701, 25)
        rows = found.fetchall()
        assert sorted(row[:2] for row in rows) == [("Female", True), ("Male", True)]
        again = connection.execute(
            f"SELECT decision FROM noisegate.verify($${question}$$, tau => '10%', epsilon => 0.1)"
        )
        assert again.fetchall() == [(True,), (True,)]
        with pytest.raises(psycopg.errors.UndefinedColumn) as refused:
            connection.execute(sql.replace("%s, ", "$$SELECT sum(x) FROM adult_synth$$, ", 1), [1, 1])
        assert refused.value.diag.statement_position == "45"
