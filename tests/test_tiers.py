"""Tests are sorted by what they can reach, and a quick one that starts a process after all is told so."""

import pytest

from tests.tiers import Watch, reaches_a_process


def is_slow(program: str) -> bool:
    """Return whether the function `test` of a program is slow; a text, since this file must not name what it starts."""
    names = {"__name__": "tests.example"}
    exec(program, names)
    return reaches_a_process([names["test"]])


@pytest.mark.parametrize(
    "program",
    [
        "import subprocess\ndef test(): subprocess.run(['true'])",
        "from subprocess import run\ndef test(): run(['true'])",
        "import os\ndef test(): os.fork()",
        "import psycopg\ndef ask(): psycopg.connect('')\ndef test(): ask()",
        "import psycopg\ndef test():\n    def ask(): psycopg.connect('')\n    ask()",
        "import psycopg\nclass Client:\n    def __init__(self): psycopg.connect('')\ndef test(): Client()",
        "import contextlib, psycopg\n@contextlib.contextmanager\ndef open(): yield psycopg\ndef test(): open()",
        "import psycopg, pytest\n@pytest.fixture\ndef client(): return psycopg\ndef test(): client",
        "from tests.proxy.servers import running\ndef test(): running()",
    ],
)
def test_what_reaches_a_process_or_a_server_is_slow(program: str) -> None:
    assert is_slow(program)


@pytest.mark.parametrize(
    "program",
    [
        "def test(): assert 1",
        "import subprocess\ndef test(): assert 1\ndef test_other(): subprocess.run(['true'])",
        "import duckdb\ndef test(): duckdb.connect()",
        "def test(): test()",
    ],
)
def test_everything_else_is_quick(program: str) -> None:
    assert not is_slow(program)


def test_a_quick_test_that_starts_a_process_is_told_so() -> None:
    watch = Watch()
    watch.hear("subprocess.Popen", ())
    watch.on = True
    try:
        with pytest.raises(RuntimeError, match=r"caused subprocess\.Popen: mark it slow"):
            watch.hear("subprocess.Popen", ())
        watch.hear("open", ())
    finally:
        watch.on = False
