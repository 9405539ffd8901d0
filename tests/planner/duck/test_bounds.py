"""What DuckDB neither interrupts nor counts in its memory: no function takes long or much, whatever it is given.

All of them are tried in a process that the system ends when it takes too much.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from planner.basics.errors import Refusal, TooLarge, Unsupported
from planner.basics.limits import MAX_MADE
from planner.gate import Gate
from planner.session import Session

POLICY = """
[budget]
epsilon = 10.0
delta = 1e-9

[analysts.ann]

[tables.people]
source = "people.parquet"
[tables.people.columns]
age = { type = "integer", min = 0, max = 9 }

[tables.towns]
source = "towns.parquet"
public = true
"""


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("bounded")
    with duckdb.connect() as memory:
        memory.execute(f"COPY (SELECT i % 10 AS age FROM range(100) AS r(i)) TO '{folder}/people.parquet'")
        towns = "SELECT 'town ' || i AS name, i, now()::TIMESTAMP AS t, DATE '2020-01-01' AS d FROM range(2048) AS r(i)"
        memory.execute(f"COPY ({towns}) TO '{folder}/towns.parquet'")
    found = folder / "noisegate.toml"
    found.write_text(POLICY, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def session(policy: Path) -> Iterator[Session]:
    gate = Gate.open(policy)
    yield gate.session()
    gate.close()


CHILD = """
import resource, sys, threading
from planner.basics.limits import MAX_MADE
from planner.basics.errors import Refusal
from planner.gate import Gate
from planner.basics.stopping import Stop, stoppable

CPU, MEMORY = 15, 3 << 30  # seconds for one call, bytes for all: the sandbox may have 2 GB of them

def values(kind):
    return {
        "VARCHAR": ["repeat(name, 900)", "repeat('9', 9999)", "'%A'"], "ANY": ["repeat(name, 900)", "i"],
        "BIGINT": ["i * 1000000000", "9223372036854775807"], "INTEGER": ["2147483647", "i"], "DOUBLE": ["1e300 * i"],
        "HUGEINT": ["170141183460469231731687303715884105727"], "DECIMAL": ["99999999999999999999.999999999999999999"],
        "DATE": ["d"], "TIMESTAMP": ["t"], "BOOLEAN": ["i = 3"], "INTERVAL": ["INTERVAL 1 MICROSECOND"],
        "TIME": ["TIME '23:59:59'"], "BLOB": ["CAST(repeat(name, 900) AS BLOB)"], "BIT": ["i"],
    }.get(kind, [])

def calls(gate):
    sql = "SELECT function_name, parameter_types, varargs FROM duckdb_functions() WHERE function_type = 'scalar'"
    for name, kinds, more in gate.sandbox._cursor().execute(sql).fetchall():
        if name.lower() in gate.sandbox.functions and name[0].isalpha() and "collate" not in name:
            kinds = [*kinds, *[more] * 2] if more else kinds
            for choice in range(2):
                found = [values(kind) for kind in kinds]
                if all(choice < len(options) or options for options in found):
                    yield f"{name}({', '.join(options[min(choice, len(options) - 1)] for options in found)})"

resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
gate = Gate.open(sys.argv[1])
session = gate.session()
tried = 0
for call in [*sys.argv[2:], *([] if sys.argv[2:] else dict.fromkeys(calls(gate)))]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + CPU
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    print(call, flush=True)
    stop = Stop()
    timer = threading.Timer(0.5, stop.stop)
    timer.start()
    try:
        with stoppable(stop):
            session.execute(f"SELECT count({call}) FROM towns")
        tried += 1
    except Refusal:
        pass
    timer.cancel()
print(f"{tried} of them gave an answer")
"""


def tried(policy: Path, *calls: str) -> list[str]:
    """Have calls made in a process of its own, or all that can be; return what it said."""
    found = subprocess.run([sys.executable, "-c", CHILD, str(policy), *calls], capture_output=True, text=True)
    lines = found.stdout.splitlines()
    assert found.returncode == 0, f"it was ended by {-found.returncode} at {lines[-1:]}: {found.stderr[-300:]}"
    return lines


def test_no_function_takes_long_or_much_whatever_it_is_given(policy: Path) -> None:
    lines = tried(policy)
    assert len(lines) > 200
    assert int(lines[-1].split()[0]) > 100


HEAVY = [
    "levenshtein(repeat(name, 900), repeat('x', 9999))",
    "damerau_levenshtein(repeat(name, 900), repeat('x', 9999))",
    "jaro_winkler_similarity(repeat(name, 900), repeat('x', 9999))",
    "regexp_replace(repeat(name, 900), '[a-z]', repeat('x', 9999), 'g')",
    "repeat(name || 'x', 1000000)",
    "hex(hex(hex(hex(hex(hex(hex(hex(hex(hex(repeat(name, 900)))))))))))",
    "replace(" * 25 + "name" + ", 't', 'tt')" * 25,
    " || ".join(["repeat(name, 100)"] * 60),
]


def test_what_is_more_than_linear_or_grows_is_bounded(policy: Path) -> None:
    assert tried(policy, *HEAVY)[:-1] == HEAVY


REFUSED = [
    "SELECT regexp_matches(name, name) FROM towns",
    "SELECT name ~ (name || 'x') FROM towns",
    f"SELECT name SIMILAR TO '{'x' * 1001}' FROM towns",
    "SELECT [name, name] FROM towns",
    "SELECT length(string_split(name, 'o')[1]) FROM towns",
    "SELECT to_json(name) FROM towns",
    "SELECT CAST(name AS BIGNUM) FROM towns",
    "SELECT length(string_agg(name, ',')) FROM towns",
    "SELECT upper(x) FROM (SELECT string_agg(name, ',') AS x FROM towns) AS t",
]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_could_go_on_growing_is_refused(session: Session, sql: str) -> None:
    with pytest.raises(Unsupported) as refused:
        session.execute(sql)
    assert refused.value.hint


def test_a_long_constant_is_refused(session: Session) -> None:
    with pytest.raises(TooLarge, match="10,000 characters"):
        session.execute(f"SELECT name = '{'x' * 10_001}' FROM towns")


def test_long_texts_are_not_compared_and_short_ones_are(session: Session) -> None:
    sql = "SELECT levenshtein(name, 'town'), jaro_similarity(name, name) FROM towns WHERE name = 'town 7'"
    assert session.execute(sql).rows == [(2, 1.0)]
    with pytest.raises(Refusal, match="more than 255 characters"):
        session.execute("SELECT levenshtein(repeat(name, 100), name) FROM towns")


def test_what_is_ordinary_is_answered(session: Session) -> None:
    sql = """SELECT name || '!', concat(name, i, NULL), concat_ws('-', name, i), regexp_matches(name, '^town'),
        i IN (1, 7), i = ANY([1, 7]), list_contains([1, 7], i), hex(i), strftime(d, '%Y') FROM towns WHERE i = 7"""
    assert session.execute(sql).rows == [("town 7!", "town 77", "town 7-7", True, True, True, True, "7", "2020")]
    assert session.execute("SELECT string_agg(name, ',' ORDER BY name) FROM towns WHERE i < 2").rows == [
        ("town 0,town 1",)
    ]


def test_many_places_that_make_texts_are_refused_together(session: Session) -> None:
    joined = " || ".join(["name"] * (MAX_MADE + 1))
    assert session.execute(f"SELECT max({joined}) FROM towns").rows
    with pytest.raises(TooLarge, match="makes texts in"):
        session.execute(f"SELECT max({joined} || name) FROM towns")
    half = " || ".join(["name"] * (MAX_MADE // 2 + 2))
    with pytest.raises(TooLarge, match="makes texts in"):
        session.execute(f"SELECT max({half}), min({half}) FROM towns")


@pytest.mark.parametrize("levels", [2, 3, 20])
def test_what_can_not_be_written_for_duckdb_is_refused(session: Session, levels: int) -> None:
    """Each level of initcap is three copies of what is in it, where sqlglot can write it at all."""
    call = "initcap(" * levels + "name" + ")" * levels
    for sql in (
        f"SELECT max({call}) FROM towns",
        f"SELECT initcap(x) FROM (SELECT {call} AS x FROM towns) AS t LIMIT 1",
    ):
        with pytest.raises(Unsupported, match="can't be written"):
            session.execute(sql)
    assert session.execute("SELECT max(initcap(name)) FROM towns").rows
