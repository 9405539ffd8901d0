"""A connection shares its gate, belongs to one process, and ends for good."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import noisegate
from planner.basics import errors as refusals
from planner.gate import Gate
from proxy.dbapi.gates import GATES
from tests.proxy.dbapi.questions import COUNT, spent


def test_with_closes_the_connection_and_its_cursors(adult_policy: Path) -> None:
    with noisegate.connect(adult_policy, analyst="ann") as connection:
        cursor = connection.cursor()
    closed: list[Callable[[], object]] = [
        connection.cursor,
        connection.commit,
        connection.rollback,
        connection.__enter__,
        lambda: connection.explain(COUNT),
        lambda: cursor.execute(COUNT),
        lambda: cursor.executemany(COUNT, [()]),
        cursor.fetchone,
        cursor.fetchmany,
        cursor.fetchall,
        lambda: next(cursor),
        lambda: cursor.setinputsizes([]),
        lambda: cursor.setoutputsize(1),
    ]
    for use in closed:
        with pytest.raises(noisegate.InterfaceError, match="the connection is closed"):
            use()
    connection.close()  # a second time does no harm
    cursor.close()


def test_a_closed_cursor_is_refused_and_its_connection_is_not(connection: noisegate.Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW noisegate.error")
    for use in (cursor.fetchone, cursor.fetchall, lambda: cursor.execute(COUNT), cursor.__enter__):
        with pytest.raises(noisegate.InterfaceError, match="the cursor is closed"):
            use()
    cursor.close()
    connection.cursor().execute("SHOW noisegate.error")


def test_commit_and_rollback_do_nothing(connection: noisegate.Connection) -> None:
    connection.cursor().execute(COUNT)
    before = spent(connection)
    connection.commit()
    connection.rollback()
    assert spent(connection) == before


def test_explain_spends_nothing_and_names_the_price(adult_policy: Path) -> None:
    with noisegate.connect(adult_policy, analyst="ann") as connection:
        plan = connection.explain("SELECT count(*) FROM adult WHERE age = ?", [30])
        assert spent(connection) == 0
        cursor = connection.cursor().execute("SELECT count(*) FROM adult WHERE age = ?", [30])
        assert 0 < plan.rho == cursor.cost
        assert plan.path == "direct"
        assert list(plan.errors) == [column[0] for column in cursor.description or []]
        assert connection.explain("SELECT count(*) FROM adult WHERE age = ?", [30]).rho == 0


def test_connections_to_one_policy_share_a_gate_until_the_last_is_closed(
    adult_policy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, closed = [], []
    gate_open, gate_close = Gate.open, Gate.close

    def open_gate(path: Path) -> Gate:
        opened.append(path)
        return gate_open(path)

    def close_gate(gate: Gate) -> None:
        closed.append(gate)
        gate_close(gate)

    monkeypatch.setattr(Gate, "open", open_gate)
    monkeypatch.setattr(Gate, "close", close_gate)
    ann = noisegate.connect(adult_policy, analyst="ann")
    with noisegate.connect(adult_policy.parent / "." / adult_policy.name, analyst="bob"):
        assert len(opened) == 1
    assert closed == []
    ann.close()
    ann.close()
    assert len(closed) == 1
    noisegate.connect(adult_policy, analyst="ann").close()
    assert (len(opened), len(closed)) == (2, 2)


def test_a_failed_login_keeps_no_gate(adult_policy: Path) -> None:
    with pytest.raises(noisegate.OperationalError) as caught:
        noisegate.connect(adult_policy, analyst="mallory")
    assert caught.value.sqlstate == "28000"
    assert [path for _, path, _ in GATES._open if path == adult_policy.resolve()] == []


def test_the_analyst_may_be_left_out_only_where_there_is_one(policy_with: Callable[[str, str], Path]) -> None:
    policy = policy_with("[analysts.bob]\nshare = 0.4\n", "")
    with noisegate.connect(policy) as connection:
        connection.cursor().execute("SHOW noisegate.error")


def test_several_analysts_must_be_told_apart(adult_policy: Path) -> None:
    with pytest.raises(noisegate.OperationalError) as caught:
        noisegate.connect(adult_policy)
    assert caught.value.sqlstate == "28000"


def test_a_policy_with_mistakes_is_refused_with_all_of_them(policy_with: Callable[[str, str], Path]) -> None:
    policy = policy_with("epsilon = 2.0", "epsilon = -2.0\nfoo = 1")
    with pytest.raises(noisegate.ProgrammingError) as caught:
        noisegate.connect(policy, analyst="ann")
    assert caught.value.sqlstate == "F0000"
    assert len(str(caught.value).splitlines()) == 2
    assert isinstance(caught.value.__cause__, refusals.PolicyRefusal)


def test_a_missing_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(noisegate.ProgrammingError, match="can't be read: no such file"):
        noisegate.connect(tmp_path / "none.toml")


def _use_in_child(connection: noisegate.Connection, answers: Any) -> None:
    try:
        connection.cursor()
    except noisegate.InterfaceError as error:
        answers.put(str(error))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_connection_does_not_survive_a_fork(connection: noisegate.Connection) -> None:
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=_use_in_child, args=(connection, answers))
    child.start()
    assert answers.get() == "the connection belongs to another process; connect again"
    child.join()
