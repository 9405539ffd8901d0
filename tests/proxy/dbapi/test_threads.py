"""Threads may share a connection, as the module declares."""

import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import noisegate
from tests.proxy.dbapi.questions import BY_SEX, COUNT, spent


def test_threads_share_a_connection(adult_policy: Path) -> None:
    ages = range(20, 36)
    with noisegate.connect(adult_policy, analyst="ann") as connection:
        connection.cursor().execute("SET noisegate.error = 500")

        def ask(age: int) -> tuple[int, int]:
            with connection.cursor() as cursor:
                cursor.execute("SELECT ? AS age, count(*) FROM adult WHERE age = ?", (age, age))
                [row] = cursor.fetchall()
            return row

        with ThreadPoolExecutor(8) as threads:
            answers = dict(threads.map(ask, ages))
        assert list(answers) == list(ages)
        again = dict(map(ask, ages))
        assert answers == again


def test_threads_with_the_same_question_pay_once(adult_policy: Path) -> None:
    start = threading.Barrier(6)

    def ask(connection: noisegate.Connection) -> tuple[Fraction, list[Any]]:
        with connection.cursor() as cursor:
            start.wait()
            return cursor.execute(BY_SEX).cost, cursor.fetchall()

    with (
        noisegate.connect(adult_policy, analyst="ann") as ann,
        noisegate.connect(adult_policy, analyst="bob") as bob,
        ThreadPoolExecutor(6) as threads,
    ):
        outcomes = list(threads.map(ask, [ann, bob] * 3))
        costs = [cost for cost, _ in outcomes]
        assert sum(cost > 0 for cost in costs) == 1
        assert sum(costs) == spent(ann)
        assert all(rows == outcomes[0][1] for _, rows in outcomes)


def test_closing_waits_for_the_question_of_another_thread(adult_policy: Path) -> None:
    connection = noisegate.connect(adult_policy, analyst="ann")
    entered, leave = threading.Event(), threading.Event()
    execute = connection._session.execute

    def slow(*arguments: Any, **options: Any) -> Any:
        entered.set()
        leave.wait(10)
        return execute(*arguments, **options)

    connection._session.execute = slow  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as threads:
        answer = threads.submit(lambda: connection.cursor().execute(COUNT).rowcount)
        entered.wait(10)
        closing = threads.submit(connection.close)
        leave.set()
        assert answer.result() == 1
        closing.result()
    with pytest.raises(noisegate.InterfaceError):
        connection.cursor()
