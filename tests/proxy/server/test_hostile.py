"""Clients that do not play by the rules: one connection ends with a protocol error, and nobody else notices."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.limits import MAX_WAITING_LINES
from proxy.server import connection as connections
from proxy.server.journal import Journal
from proxy.wire import messages as m
from tests.proxy.raw import RawClient, kinds, raw, split
from tests.proxy.server.test_server import wait_until
from tests.proxy.servers import Running, running


@pytest.fixture(scope="module")
def server(shared_adult_policy: Path) -> Iterator[Running]:
    with running(shared_adult_policy, max_message_bytes=100_000) as found:
        yield found


@pytest.fixture
def bystander(server: Running) -> Iterator[RawClient]:
    """Somebody else, who must not notice anything."""
    with raw(server.port) as client:
        client.login("bob")
        yield client
        assert kinds(client.ask(m.Query("SELECT 1"))) == "TDCZ"


def length(number: int) -> bytes:
    return struct.pack("!I", number)


FIRST = {
    "too long": length(10_001),
    "too short": length(4),
    "negative": length(2**32 - 1),
    "version 2": m.framed(b"", m.int32(2 << 16) + b"user\0ann\0\0"),
    "version 4": m.framed(b"", m.int32(4 << 16) + b"user\0ann\0\0"),
    "no end": m.framed(b"", m.int32(m.PROTOCOL_3) + b"user\0ann"),
    "twice": m.framed(b"", m.int32(m.PROTOCOL_3) + b"user\0ann\0user\0bob\0\0"),
    "not UTF-8": m.framed(b"", m.int32(m.PROTOCOL_3) + b"user\0\xff\xfe\0\0"),
    "HTTP": b"GET / HTTP/1.1\r\nHost: gate\r\n\r\n",
    "TLS without asking": bytes.fromhex("16030100a5010000a1"),
}


@pytest.mark.parametrize("data", FIRST.values(), ids=FIRST)
def test_a_first_message_that_is_none_ends_the_connection(server: Running, bystander: RawClient, data: bytes) -> None:
    with raw(server.port) as client:
        client.send(data)
        [reply] = client.replies()
        assert reply.kind == "E"
        assert reply.fields["C"] == "08P01"
        assert reply.fields["S"] == "FATAL"
        assert client.is_closed()


LATER = {
    "unknown type": b"@" + length(4),
    "too long": b"Q" + length(100_001),
    "too short": b"Q" + length(3),
    "no end": m.framed(b"Q", b"SELECT 1"),
    "bytes left": m.framed(b"Q", b"SELECT 1\0;"),
    "not UTF-8": m.framed(b"Q", b"SELECT '\xff'\0"),
    "bind of more values than there are": m.framed(b"B", b"\0\0\0\0\xff\xff\0\0"),
    "negative length of a value": m.framed(b"B", b"\0\0\0\0\0\1\xff\xff\xff\xfe\0\0"),
    "format code 7": m.framed(b"B", b"\0\0\0\1\0\7\0\0\0\0"),
    "describe of neither": m.framed(b"D", b"X\0"),
    "a password after the login": m.framed(b"p", b"secret\0"),
    "a second startup": m.Startup(m.PROTOCOL_3, {"user": "ann"}).write(),
}


@pytest.mark.parametrize("data", LATER.values(), ids=LATER)
def test_a_message_that_is_none_ends_the_connection(server: Running, bystander: RawClient, data: bytes) -> None:
    with raw(server.port) as client:
        client.login()
        client.send(data)
        reply = client.replies()[-1]
        assert reply.kind == "E"
        assert reply.fields["C"] == "08P01"
        assert client.is_closed()


def test_statements_before_the_login_end_the_connection(server: Running) -> None:
    with raw(server.port) as client:
        client.send(m.Query("SELECT 1"))
        assert client.replies()[0].fields["C"] == "08P01"


@pytest.mark.parametrize(
    ("parameters", "sqlstate"),
    [({}, "28000"), ({"user": "ann", "replication": "database"}, "0A000"), ({"user": "eve"}, "28000")],
)
def test_who_is_nobody_is_not_let_in(server: Running, parameters: dict[str, str], sqlstate: str) -> None:
    with raw(server.port) as client:
        client.send(m.Startup(m.PROTOCOL_3, parameters))
        assert client.replies()[0].fields["C"] == sqlstate
        assert client.is_closed()


def test_a_later_version_and_unknown_extensions_are_negotiated(server: Running) -> None:
    with raw(server.port) as client:
        client.send(m.Startup(m.PROTOCOL_3 + 2, {"user": "ann", "_pq_.compress": "1"}))
        found = client.replies()
    assert found[0].kind == "v"
    assert found[0].body == struct.pack("!ii", 0, 1) + b"_pq_.compress\0"
    assert kinds(found).endswith("KZ")


def test_tls_and_gss_are_declined_where_there_is_none(server: Running) -> None:
    with raw(server.port) as client:
        client.send(m.GssRequest())
        assert client.socket.recv(1) == b"N"
        client.send(m.SslRequest())
        assert client.socket.recv(1) == b"N"
        assert kinds(client.login()).endswith("KZ")


def test_bytes_that_come_before_the_handshake_are_refused(adult_policy: Path) -> None:
    """Else someone in between could slip a statement in before the encryption begins (CVE-2021-23214)."""
    with running(adult_policy, tls="offered") as server, raw(server.port) as client:
        client.send(m.SslRequest(), m.Startup(m.PROTOCOL_3, {"user": "ann"}))
        assert b"before the TLS handshake" in client.socket.recv(1_000)
        assert client.is_closed()


def test_a_handshake_that_fails_and_one_that_never_comes_end_the_connection(adult_policy: Path) -> None:
    with running(adult_policy, tls="offered", login_timeout=3) as server:
        for noise in (b"\x16\x03\x01\x00\x05hello", b""):
            with raw(server.port) as client:
                client.send(m.SslRequest())
                assert client.socket.recv(1) == b"S"
                client.send(noise)
                assert client.is_closed()
        wait_until(lambda: not server.server.shared.connections)


def test_cancel_works_over_tls_and_needs_the_secret(adult_policy: Path) -> None:
    with running(adult_policy, tls="offered") as server, raw(server.port) as client:
        key = next(reply for reply in client.login() if reply.kind == "K").body
        process, secret = struct.unpack("!I", key[:4])[0], key[4:]
        client.send(m.Query("SELECT count(*) FROM generate_series(1, 100000000000) AS t(i)"))
        wait_until(lambda: any(c._work is not None for c in server.server.shared.connections.values()))
        for guess in (b"\0\0\0\0", secret + b"x"):
            with raw(server.port) as stranger:
                stranger.send(m.CancelRequest(process, guess))
                assert stranger.is_closed()
        with raw(server.port) as friend:
            friend.send(m.SslRequest())
            assert friend.socket.recv(1) == b"S"
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with context.wrap_socket(friend.socket) as secured:
                secured.sendall(m.CancelRequest(process, secret).write())
                assert secured.recv(1) == b""
        [failed, _] = client.replies()
        assert failed.fields["C"] == "57014"
        assert server.log.getvalue().count("canceled") == 1


def test_a_login_that_dawdles_is_ended(adult_policy: Path) -> None:
    with running(adult_policy, login_timeout=0.3) as server, raw(server.port) as client:
        client.send(b"\0")
        assert client.replies()[0].fields["M"] == "the login took too long"
        assert client.is_closed()


def test_a_message_that_dawdles_is_ended(
    server: Running, bystander: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "MESSAGE_SECONDS", 0.3)
    with raw(server.port) as client:
        client.login()
        client.send(b"Q" + length(50) + b"SELECT")
        assert client.is_closed()


def test_a_client_that_does_not_read_is_ended(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_SECONDS", 0.3)
    client = RawClient(server.port)
    client.login()
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.send(m.Query("SELECT repeat('x', 1000) FROM generate_series(1, 50000) AS t(i)"))
    wait_until(lambda: "disconnected" in server.log.getvalue().splitlines()[-1])
    client.close()


def test_what_a_client_sends_meanwhile_is_not_taken_in_without_limit(server: Running) -> None:
    """While a statement runs, the server stops reading; the rest waits in the client's socket."""
    with raw(server.port) as client:
        client.login()
        client.send(m.Query("SELECT count(*) FROM generate_series(1, 100000000000) AS t(i)"))
        client.socket.settimeout(1.0)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 100_000_000:
                sent += client.socket.send(m.Query("SELECT 1").write() * 1_000)
        assert sent < 100_000_000
        [found] = [c for c in server.server.shared.connections.values() if c._work is not None]
        assert found._decoder.waiting <= connections.MAX_UNREAD + 2**18
        server.loop.call_soon_threadsafe(found.abort)


def test_bytes_one_at_a_time_are_a_conversation_like_any_other(server: Running) -> None:
    with raw(server.port) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in m.Startup(m.PROTOCOL_3, {"user": "ann"}).write() + m.Query("SELECT 1").write():
            client.send(bytes([byte]))
        assert kinds(client.replies(until="C")).endswith("TDCZ")


SESSION = (
    m.Query("SELECT sex, count(*) FROM adult GROUP BY sex"),
    m.Parse("s", "SELECT count(*) FROM adult WHERE age > $1 AND sex = $2", (23, 0)),
    m.Describe(m.STATEMENT, "s"),
    m.Bind("p", "s", (), (b"40", b"Male"), ()),
    m.Execute("p", 1),
    m.Close(m.PORTAL, "p"),
    m.Sync(),
    m.Query("BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH c; COMMIT"),
)


@pytest.mark.parametrize("seed", range(4))
def test_flipped_and_cut_bytes_disturb_nobody(server: Running, bystander: RawClient, seed: int) -> None:
    """25 damaged sessions each: the server answers, refuses or ends every one of them, and nothing crashes."""
    chance = random.Random(seed)
    clean = m.Startup(m.PROTOCOL_3, {"user": "ann"}).write() + b"".join(message.write() for message in SESSION)
    for _ in range(25):
        damaged = bytearray(clean)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
        with raw(server.port) as client:
            client.socket.settimeout(10)
            client.send(bytes(damaged[: chance.randrange(len(damaged))]))
            client.socket.shutdown(socket.SHUT_WR)
            found = b""
            while data := client._receive():
                found += data
            replies, left = split(found)
            assert left in (b"", b"N")
            assert all(reply.fields["C"] != "XX000" for reply in replies if reply.kind == "E")
    assert "error:" not in server.log.getvalue()
    wait_until(lambda: server.server.shared.open == 1)


def test_sockets_that_say_nothing_keep_nobody_out(adult_policy: Path) -> None:
    with running(adult_policy, max_connections=2) as server:
        with raw(server.port) as inside:
            assert kinds(inside.login()).endswith("KZ")
            silent = [RawClient(server.port) for _ in range(50)]
            with raw(server.port) as client:
                assert kinds(client.login()).endswith("KZ")
                assert kinds(inside.ask(m.Query("SELECT 1"))).endswith("Z")
                wait_until(lambda: len(server.server.shared.connections) <= 4)
        assert sum(client.is_closed() for client in silent[:-2]) == 48, "the oldest are ended first"
        for client in silent:
            client.close()
        wait_until(lambda: not server.server.shared.connections)


# --- a log that can't be written ---------------------------------------------------------------------------


def test_a_journal_never_waits_and_says_what_it_left_out() -> None:
    reader, writer = os.pipe()
    stream = os.fdopen(writer, "w")
    journal = Journal(stream)
    noted = 2 * MAX_WAITING_LINES
    for number in range(noted):
        journal.info("event", number=number)  # nobody reads the pipe
    journal.close(patience=0.1)
    os.set_blocking(reader, False)
    text = ""
    while "lines left out" not in text:  # now somebody does, but not fast enough for what still comes
        with contextlib.suppress(BlockingIOError):
            text += os.read(reader, 2**20).decode()
        for _ in range(1_000):
            journal.info("more")
        noted += 1_000
    while "the last" not in text:
        journal.info("the last")
        noted += 1
        time.sleep(0.01)
        with contextlib.suppress(BlockingIOError):
            text += os.read(reader, 2**20).decode()
    journal.close(patience=30)
    with contextlib.suppress(BlockingIOError):
        text += os.read(reader, 2**20).decode()
    said = sum(int(number) for number in re.findall(r"lines left out number=(\d+)", text))
    assert sum(text.count(event) for event in ("event", "more", "the last")) + said == noted
    os.close(reader)
    stream.close()


def test_a_journal_that_nobody_reads_any_more_goes_on() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        journal = Journal(stream)
        journal.info("nobody is there")
        journal.close()


@pytest.mark.parametrize("log", ["/dev/full", "a pipe that nobody reads", "a pipe whose reader is gone"])
def test_a_log_that_can_not_be_written_stops_no_answer_and_no_signal(adult_policy: Path, log: str) -> None:
    reader, writer = os.pipe()
    if log == "a pipe whose reader is gone":
        os.close(reader)
    if log == "a pipe that nobody reads":
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)
    target = os.open(log, os.O_WRONLY) if log == "/dev/full" else writer
    command = [sys.executable, "-m", "noisegate", "serve", str(adult_policy), "--port", "0", "--trust"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=target, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        port = int(process.stdout.readline().split("port=")[1].split()[0])
        for _ in range(3):
            with raw(port) as client:
                client.login()
                answer = client.ask(m.Query("SELECT sex, count(*) FROM adult GROUP BY sex"))
                assert kinds(answer).count("D") == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    for descriptor in {target, writer} | ({reader} if log != "a pipe whose reader is gone" else set()):
        os.close(descriptor)


def test_what_comes_while_a_slow_reader_catches_up_is_answered(server: Running) -> None:
    """A client that sends its next statement before it has read the last answer gets both."""
    with raw(server.port) as client:
        client.login()
        client.send(m.Query("SELECT repeat('x', 1000) FROM generate_series(1, 10000) AS t(i)"))
        wait_until(lambda: any(c._writable is not None for c in server.server.shared.connections.values()))
        client.send(m.Query("SELECT 1"))
        found = client.replies()
        while sum(reply.kind == "Z" for reply in found) < 2:
            found += client.replies()
        assert sum(reply.kind == "D" for reply in found) == 10_001
