"""The gate works with one BLAS thread, and the program around it gets back the number it had."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from threadpoolctl import ThreadpoolController

from proxy.threads import one_blas_thread

ROOT = Path(__file__).parents[2]
QUESTION = "SELECT sex, count(*) AS n FROM adult WHERE age BETWEEN 30 AND 59 GROUP BY sex"
WATCHED = """
import os, sys
import numpy as np, scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits

def numbers():
    return [found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"]

def watched(function):
    def call(*arguments, **named):
        os.write(2, f"inside {numbers()}\\n".encode())
        return function(*arguments, **named)
    return call

for name in ("eigh", "cholesky", "solve", "svd", "norm"):
    setattr(np.linalg, name, watched(getattr(np.linalg, name)))
import noisegate
"""
"""The start of a program that writes how many BLAS threads there are whenever the gate uses some function of numpy."""


def environment() -> dict[str, str]:
    """Return the environment of a user who has set nothing about threads."""
    unset = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {name: value for name, value in os.environ.items() if name not in unset} | {"PYTHONPATH": str(ROOT)}


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WATCHED + program]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=True)


def inside(text: str) -> list[int]:
    """Return all numbers of threads that were seen, of every library."""
    lines = [line.removeprefix("inside ") for line in text.splitlines() if line.startswith("inside ")]
    return [number for line in lines for number in json.loads(line)]


def test_a_program_that_connects_gets_its_threads_back(adult_policy: Path) -> None:
    program = f"""
before = numbers()
with noisegate.connect("adult.toml", "ann") as connection:
    connection.cursor().execute({QUESTION!r})
print(before)
print(numbers())
"""
    result = run(program, adult_policy.parent)
    assert set(inside(result.stderr)) == {1}
    before, after = result.stdout.splitlines()
    assert before == after


def test_a_program_gets_the_threads_back_that_it_had_set(adult_policy: Path) -> None:
    program = f"""
threadpool_limits(3)
with noisegate.connect("adult.toml", "ann") as connection:
    connection.cursor().execute({QUESTION!r})
    print(set(numbers()))
    try:
        connection.cursor().execute("SELECT * FROM adult")
    except noisegate.Error:
        print(set(numbers()))
"""
    result = run(program, adult_policy.parent)
    assert set(inside(result.stderr)) == {1}
    assert result.stdout.splitlines() == ["{3}", "{3}"]


def test_a_program_may_keep_its_threads(adult_policy: Path) -> None:
    program = f"""
threadpool_limits(3)
with noisegate.connect("adult.toml", "ann", limit_threads=False) as connection:
    connection.cursor().execute({QUESTION!r})
"""
    assert set(inside(run(program, adult_policy.parent).stderr)) == {3}


def test_the_command_line_works_with_one_thread(adult_policy: Path) -> None:
    program = f"threadpool_limits(3)\nnoisegate.main(['query', 'adult.toml', '--analyst', 'ann', {QUESTION!r}])"
    assert set(inside(run(program, adult_policy.parent).stderr)) == {1}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_and_its_workers_work_with_one_thread(adult_policy: Path, workers: int) -> None:
    options = ["serve", "adult.toml", "--trust", "--port", "0", "--workers", str(workers)]
    with served(f"threadpool_limits(3)\nnoisegate.main({options!r})", adult_policy.parent) as (process, client):
        with psycopg.connect(client) as connection:
            connection.execute(QUESTION).fetchall()
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert set(inside(process.stderr.read())) == {1}


@contextmanager
def served(program: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a server's process and how to connect to it."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-c", WATCHED + program]
    with subprocess.Popen(command, cwd=folder, env=environment(), **pipes) as process:
        try:
            assert process.stdout is not None
            [line] = [next(line for line in process.stdout if line.startswith("connect: "))]
            yield process, line.split('"')[1]
        finally:
            process.terminate()


BLAS = ThreadpoolController().select(user_api="blas")


def numbers() -> list[int]:
    return [library.get_num_threads() for library in BLAS.lib_controllers]


@pytest.fixture
def before() -> Iterator[list[int]]:
    """Two threads, as far as the libraries have them: those that packages for tests bring along may have one only."""
    with BLAS.limit(limits=2):
        assert 2 in numbers()
        yield numbers()


def test_the_number_comes_back_when_the_last_of_several_has_left(before: list[int]) -> None:
    with one_blas_thread():
        with one_blas_thread():
            assert set(numbers()) == {1}
        assert set(numbers()) == {1}
    assert numbers() == before


def test_statements_that_overlap_in_any_order_give_the_number_back(before: list[int]) -> None:
    entered, may_leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread():
            entered.set()
            may_leave.wait()

    thread = threading.Thread(target=other)
    with one_blas_thread():
        thread.start()
        entered.wait()
    assert set(numbers()) == {1}  # the other is still at work
    may_leave.set()
    thread.join()
    assert numbers() == before


def test_the_number_comes_back_after_an_error(before: list[int]) -> None:
    with pytest.raises(ZeroDivisionError), one_blas_thread():
        _ = 1 / 0
    assert numbers() == before
