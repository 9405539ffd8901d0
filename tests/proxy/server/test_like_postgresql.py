"""The same messages to a real PostgreSQL and to the gate: the same kinds of answers, tags, types and SQLSTATEs.

Only statements without tables of the policy's, for PostgreSQL has no noise. Errors are compared by SQLSTATE.
One thing is known to differ: PostgreSQL looks up columns at Parse, the gate when a statement is described or run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.server.shared import policy_catalog
from proxy.wire import messages as m
from proxy.wire.messages import Message
from proxy.wire.values import Format
from tests.proxy import postgres
from tests.proxy.raw import RawClient, Reply
from tests.proxy.servers import Running, running

T = "(VALUES (1, 'a'), (2, NULL), (3, 'c')) AS t(n, s)"
TEXT, BINARY = (Format.TEXT,), (Format.BINARY,)
SYNC = m.Sync()


def query(*texts: str) -> list[Message]:
    return [m.Query(text) for text in texts]


CONVERSATIONS: dict[str, list[Message]] = {
    "one row": query("SELECT 1 AS one, 'a' AS two, NULL AS three, 1.50 AS four, true AS five"),
    "types": query("SELECT 1::int2, 2::int8, 1.5::float4, 0.1::float8, '2020-01-02'::date, '{1,2}'::int4[]"),
    "rows": query(f"SELECT * FROM {T} ORDER BY n"),
    "nothing": query("", ";;", "-- nothing"),
    "several": query("SELECT 1; SELECT 2", "SELECT 1; SELECT nonsense; SELECT 2"),
    "settings": query("SET application_name = 'x'", "SHOW application_name", "RESET application_name", "SHOW nonsense"),
    "wrong settings": query("SET nonsense = 1", "SET statement_timeout = 'soon'", "SET server_version = '1'"),
    "time zone": query("SET TIME ZONE 'UTC'", "SHOW TIME ZONE", "SHOW transaction isolation level"),
    "transaction": query("BEGIN", "SELECT 1", "COMMIT", "COMMIT", "BEGIN", "BEGIN", "ROLLBACK"),
    "failed transaction": query("BEGIN", "SELECT nonsense", "SELECT 1", "COMMIT"),
    "savepoints": query(
        "BEGIN", "SAVEPOINT a", "SELECT nonsense", "ROLLBACK TO a", "SELECT 1", "RELEASE a", "RELEASE a", "ROLLBACK"
    ),
    "settings of a transaction": query(
        "BEGIN", "SET application_name = 'in'", "SET LOCAL jit = on", "ROLLBACK", "SHOW application_name"
    ),
    "local settings": query("BEGIN", "SET LOCAL application_name = 'in'", "COMMIT", "SHOW application_name"),
    "cursor": query(
        f"BEGIN; DECLARE c SCROLL CURSOR FOR SELECT * FROM {T} ORDER BY n",
        "FETCH 2 FROM c",
        "FETCH 5 FROM c",
        "FETCH c",
        "FETCH PRIOR FROM c",
        "FETCH ABSOLUTE 2 FROM c",
        "FETCH RELATIVE -1 FROM c",
        "FETCH LAST FROM c",
        "FETCH FIRST FROM c",
        "MOVE FORWARD 1 IN c",
        "FETCH 0 FROM c",
        "MOVE ALL IN c",
        "FETCH BACKWARD ALL FROM c",
        "FETCH ABSOLUTE 9 FROM c",
        "FETCH -1 FROM c",
        "FETCH ABSOLUTE -3 FROM c",
        "FETCH RELATIVE 0 FROM c",
        "CLOSE c",
        "FETCH c",
        "ROLLBACK",
    ),
    "cursor without a transaction": query("DECLARE c CURSOR FOR SELECT 1", "CLOSE c"),
    "cursor that only goes forward": query(
        f"BEGIN; DECLARE c NO SCROLL CURSOR FOR SELECT * FROM {T} ORDER BY n",
        "FETCH 2 FROM c",
        "FETCH PRIOR FROM c",
        "ROLLBACK",
    ),
    "held cursor": query(
        f"BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT * FROM {T} ORDER BY n; COMMIT",
        "FETCH 1 FROM h",
        "FETCH ALL FROM h",
        "CLOSE h",
        "CLOSE h",
        "CLOSE ALL",
    ),
    "copy": query(
        f"COPY (SELECT * FROM {T} ORDER BY n) TO STDOUT",
        f"COPY (SELECT * FROM {T} ORDER BY n) TO STDOUT (FORMAT csv, HEADER, NULL 'none', FORCE_QUOTE (s))",
        f"COPY (SELECT * FROM {T} ORDER BY n) TO STDOUT (FORMAT binary)",
        f"COPY (SELECT * FROM {T} WHERE false) TO STDOUT (FORMAT binary)",
        "COPY (SELECT E'a\\tb\\\\', 'q\"', '') TO STDOUT",
        "COPY (SELECT 'a,b', 'q\"', '', NULL) TO STDOUT CSV",
        "COPY (SELECT nonsense) TO STDOUT",
    ),
    "discard": query(
        "DISCARD ALL", "BEGIN", "DISCARD ALL", "ROLLBACK", "DEALLOCATE ALL", "DEALLOCATE nobody", "UNLISTEN *"
    ),
    "extended": [
        m.Parse("", "SELECT 1 AS one, 'a' AS two"),
        m.Bind("", ""),
        m.Describe(m.PORTAL, ""),
        m.Execute(""),
        SYNC,
    ],
    "described": [
        m.Parse("s", "SELECT $1::int4 + 1 AS n, $2 || 'x' AS t", ()),
        m.Describe(m.STATEMENT, "s"),
        SYNC,
        m.Bind("", "s", (), (b"41", b"y"), BINARY),
        m.Execute(""),
        SYNC,
        m.Close(m.STATEMENT, "s"),
        SYNC,
    ],
    "binary values": [
        m.Parse("", "SELECT $1 AS n, $2 AS b", (23, 16)),
        m.Bind("", "", BINARY, (b"\0\0\0\7", b"\1"), BINARY),
        m.Execute(""),
        SYNC,
    ],
    "row limits": [
        m.Parse("", f"SELECT * FROM {T} ORDER BY n"),
        m.Bind("", ""),
        m.Execute("", 2),
        m.Execute("", 1),
        m.Execute("", 1),
        SYNC,
    ],
    "portals end with sync": [
        m.Parse("s", "SELECT 1"),
        m.Bind("p", "s"),
        SYNC,
        m.Execute("p"),
        SYNC,
        m.Close(m.STATEMENT, "s"),
        SYNC,
    ],
    "portals live in a transaction": [
        m.Query("BEGIN"),
        m.Parse("s", "SELECT 1"),
        m.Bind("p", "s"),
        SYNC,
        m.Execute("p"),
        SYNC,
        m.Execute("p"),
        SYNC,
        m.Query("COMMIT"),
        m.Execute("p"),
        SYNC,
        m.Query("DEALLOCATE ALL"),
    ],
    "skipping": [
        m.Bind("", "nobody"),
        m.Parse("", "SELECT 1"),
        m.Execute(""),
        SYNC,
        m.Query("SELECT 2"),
    ],
    "pipeline": [
        m.Parse("", "SELECT 1"),
        m.Bind("", ""),
        m.Execute(""),
        SYNC,
        m.Bind("", "nobody"),
        m.Execute(""),
        SYNC,
        m.Parse("", "SELECT 3"),
        m.Bind("", ""),
        m.Execute(""),
        SYNC,
    ],
    "names": [
        m.Parse("a", "SELECT 1"),
        m.Parse("a", "SELECT 1"),
        SYNC,
        m.Bind("p", "a"),
        m.Bind("p", "a"),
        SYNC,
        m.Describe(m.STATEMENT, "x"),
        SYNC,
        m.Describe(m.PORTAL, "x"),
        SYNC,
        m.Execute("x"),
        SYNC,
        m.Close(m.PORTAL, "x"),
        SYNC,
        m.Query("DEALLOCATE a"),
    ],
    "wrong values": [
        m.Parse("", "SELECT $1::int4", ()),
        m.Bind("", "", (), (b"old",)),
        m.Execute(""),
        SYNC,
        m.Parse("", "SELECT $1::int4", ()),
        m.Bind("", "", (), ()),
        SYNC,
        m.Parse("", "SELECT $1::int4", ()),
        m.Bind("", "", BINARY, (bytes(5),)),
        SYNC,
    ],
    "two statements in one": [m.Parse("", "SELECT 1; SELECT 2"), SYNC],
    "no rows to describe": [
        m.Parse("", "BEGIN"),
        m.Describe(m.STATEMENT, ""),
        m.Bind("", ""),
        m.Describe(m.PORTAL, ""),
        m.Execute(""),
        SYNC,
        m.Parse("", ""),
        m.Bind("", ""),
        m.Describe(m.PORTAL, ""),
        m.Execute(""),
        SYNC,
        m.Query("ROLLBACK"),
    ],
    "show": [m.Parse("", "SHOW application_name"), m.Describe(m.STATEMENT, ""), m.Bind("", ""), m.Execute(""), SYNC],
    "flush": [m.Parse("f", "SELECT 1"), m.Describe(m.STATEMENT, "f"), m.Flush(), SYNC, m.Query("DEALLOCATE f")],
    "copies that nobody asked for": [m.CopyData(b"x"), m.CopyDone(), m.CopyFail("no"), m.Query("SELECT 1")],
}


@pytest.fixture(scope="module")
def real() -> Iterator[int]:
    with postgres.running() as found:
        yield found.port


@pytest.fixture(scope="module")
def gate(shared_adult_policy: Path) -> Iterator[Running]:
    with running(shared_adult_policy, catalog=policy_catalog) as found:
        yield found


def told(port: int, messages: list[Message]) -> list[tuple[str, object]]:
    """Return what a server answers to the messages: kinds, and of each what both must agree on."""
    client = RawClient(port)
    try:
        client.login("ann", application_name="same")
        expected = sum(isinstance(message, m.Query | m.Sync) for message in messages)
        client.send(*messages)
        found: list[Reply] = []
        while sum(reply.kind == "Z" for reply in found) < expected:
            some = client.replies()
            assert some, "the connection was closed"
            found += some
        return [essence(reply) for reply in found]
    finally:
        client.close()


def essence(reply: Reply) -> tuple[str, object]:
    match reply.kind:
        case "E" | "N":
            return reply.kind, reply.fields["C"]
        case "D":
            return reply.kind, reply.cells
        case "T":
            return reply.kind, reply.columns
        case "t":
            return reply.kind, reply.types
        case _:
            return reply.kind, reply.body


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_gate_answers_as_postgresql_does(real: int, gate: Running, name: str) -> None:
    assert told(gate.port, CONVERSATIONS[name]) == told(real, CONVERSATIONS[name])
