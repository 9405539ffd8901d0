"""Damage inside a login exchange, and ways around TLS: each ends in one clean refusal, and nobody is let in by it."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import random
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from planner.policy.passwords import scram_verifier
from proxy.login import auth
from proxy.login.auth import BINDING, PLAIN, PLUS
from proxy.wire import messages as m
from tests.conftest import copy_adult
from tests.proxy.raw import RawClient, Reply, kinds, raw, split
from tests.proxy.server.test_server import wait_until
from tests.proxy.servers import Running, running

PASSWORD = "correct horse"
CLIENT_NONCE = "0123456789abcdefghij"


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a policy in which ann has a password, and bob one with other iterations and another salt's length."""
    found = copy_adult(tmp_path_factory.mktemp("login"))
    text = found.read_text(encoding="utf-8")
    for share, verifier in (
        ("0.6", scram_verifier(PASSWORD)),
        ("0.4", scram_verifier("bob's", iterations=5000, salt=b"s" * 20)),
    ):
        assert f"share = {share}" in text
        text = text.replace(f"share = {share}", f'share = {share}\npassword = "{verifier}"')
    found.write_text(text, encoding="utf-8")
    return found


@pytest.fixture(scope="module")
def server(policy: Path) -> Iterator[Running]:
    with running(policy, auth="scram", tls="offered") as found:
        yield found


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for another try, so that each one is judged."""
    monkeypatch.setattr(auth, "FREE_TRIES", 10**9)
    monkeypatch.setattr(auth, "ELSEWHERE_TRIES", 10**9)


# --- a client of our own, each message of which can be damaged ----------------------------------------------


def startup(user: str = "ann") -> bytes:
    return m.Startup(m.PROTOCOL_3, {"user": user, "database": "noisegate"}).write()


def first_message(*, mechanism: str = PLAIN, header: str = "n,,", nonce: str = CLIENT_NONCE) -> bytes:
    data = f"{header}n=,r={nonce}".encode()
    return m.framed(b"p", mechanism.encode() + b"\0" + struct.pack("!i", len(data)) + data)


def final_message(challenge: str, *, password: str = PASSWORD, channel: bytes = b"n,,", nonce: str = "") -> bytes:
    fields = dict(part.split("=", 1) for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c={base64.b64encode(channel).decode()},r={nonce or fields['r']}"
    message = f"n=,r={CLIENT_NONCE},{challenge},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    return m.framed(b"p", f"{without_proof},p={proof}".encode())


def challenged(client: RawClient) -> str:
    """Return the server's challenge, which is the last thing it has said."""
    return client.replies("R")[-1].body[4:].decode()


Damage = Callable[[bytes], bytes]


def spoken(port: int, damages: dict[int, Damage], *, user: str = "ann") -> list[Reply]:
    """Return all that is said to a client whose messages 0, 1, 2 are damaged; it hangs up when it is done."""
    same: Damage = lambda data: data  # noqa: E731 - shorter so
    with raw(port) as client:
        client.socket.settimeout(20)
        found: list[Reply] = []
        for number in range(3):
            data = startup(user) if number == 0 else first_message() if number == 1 else b""
            if number == 2:
                if not found or found[-1].body[:4] != struct.pack("!i", 11):
                    break
                data = final_message(found[-1].body[4:].decode())
            client.send(damages.get(number, same)(data))
            if number in damages or number == 2:
                with contextlib.suppress(OSError):  # it may be closed already
                    client.socket.shutdown(socket.SHUT_WR)  # a message cut short would be waited for
                return found + client.replies("no such message")
            some = client.replies("R")
            found += some
            if not some or some[-1].kind == "E":
                break
        return found


def assert_clean(found: list[Reply]) -> None:
    """Check that the client was told nothing but what belongs there, and then one error that ends it, if any."""
    assert set(kinds(found)) <= set("RESKZv"), kinds(found)
    errors = [reply for reply in found if reply.kind == "E"]
    assert len(errors) <= 1
    for error in errors:
        assert error is found[-1]
        assert error.fields["S"] == "FATAL"
        assert error.fields["C"] in ("08P01", "28P01", "28000", "0A000", "22023", "42601", "42704"), error.fields


def is_in(found: list[Reply]) -> bool:
    return "Z" in kinds(found)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def flipped(data: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped": flipped,
    "cut": lambda data, chance: data[: chance.randrange(len(data))],
    "repeated": lambda data, _: data + data,
    "with a zero": lambda data, _: data[:-1].replace(b"r=", b"r=\0", 1) + data[-1:] if b"r=" in data else data[:9],
    "longer than it says": lambda data, chance: data + bytes(chance.randrange(256) for _ in range(9)),
    "of the greatest length": lambda data, _: data[:1] + b"\xff\xff\xff\xff" + data[5:],
    "huge": lambda *_: m.framed(b"p", b"x" * 70_000),
    "the largest that is read": lambda *_: m.framed(b"p", b"SCRAM-SHA-256\0" + b"=" * 65_000),
    "another": lambda _, chance: chance.choice(OTHERS),
    "before another": lambda data, chance: data + chance.choice(OTHERS),
    "after another": lambda data, chance: chance.choice(OTHERS) + data,
}
OTHERS = [
    startup(),
    startup("bob"),
    m.SslRequest().write(),
    m.GssRequest().write(),
    m.CancelRequest(1, b"abcd").write(),
    m.Query("SELECT 1").write(),
    m.Sync().write(),
    m.Terminate().write(),
    m.Password(b"").write(),
    m.Password(b"secret\0").write(),
    first_message(),
    first_message(mechanism=PLUS, header=f"p={BINDING},,"),
    first_message(mechanism="PLAIN"),
    bytes(64),
]
TRIES = 8


@pytest.fixture
def bystander(server: Running) -> Iterator[RawClient]:
    """Somebody who was in before, and notices nothing."""
    with raw(server.port) as client:
        client.send(startup())
        client.replies("R")
        client.send(first_message())
        client.send(final_message(challenged(client)))
        assert kinds(client.replies()).endswith("KZ")
        yield client
        assert kinds(client.ask(m.Query("SELECT 1"))) == "TDCZ"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_damaged_exchange_ends_cleanly(server: Running, bystander: RawClient, place: int, damage: str) -> None:
    """A damage can leave the exchange whole, as what follows the last message is read later; else nobody is in."""
    chance = random.Random(f"{place} {damage}")
    before, ends = descriptors(), []
    for _ in range(TRIES):
        found = spoken(server.port, {place: lambda data: DAMAGES[damage](data, chance)})
        if is_in(found):
            assert place == 2
            ends.append("in")
            continue
        assert_clean(found)
        ends.append(found[-1].fields["C"] if found and found[-1].kind == "E" else "closed")
    assert "error:" not in server.log.getvalue()
    wait_until(lambda: len(server.server.house.connections) == 1)
    wait_until(lambda: descriptors() <= before)
    if damage not in ("repeated", "longer than it says", "before another", "flipped"):
        assert "in" not in ends


def finals(challenge: str) -> dict[str, bytes]:
    right = final_message(challenge)[5:].decode()
    head, proof = right.split(",p=")
    channel, nonce = head.split(",")
    texts = {
        "no proof": head,
        "an empty proof": f"{head},p=",
        "a proof that is no base64": f"{head},p=!!!!",
        "a short proof": f"{head},p={proof[:-8]}",
        "a proof of zeros": f"{head},p={base64.b64encode(bytes(32)).decode()}",
        "another proof before it": f"{head},p=AAAA,p={proof}",
        "an extension": f"{head},x=1,p={proof}",
        "fields the other way around": f"{nonce},{channel},p={proof}",
        "no nonce": f"{channel},p={proof}",
        "only the client's nonce": f"{channel},r={CLIENT_NONCE},p={proof}",
        "a nonce that goes on": f"{channel},{nonce}x,p={proof}",
        "a nonce in other letters": f"{channel},{nonce.upper()},p={proof}",
        "no channel": f"c=,{nonce},p={proof}",
        "a channel that is no base64": f"c=#,{nonce},p={proof}",
        "commas": "," * 5000,
        "letters of elsewhere": f"{channel},r=é²🙂,p=é",
    }
    signed = {
        "the nonce of another exchange": final_message(challenge, nonce=CLIENT_NONCE + "AAAAAAAAAAAAAAAAAAAAAAAA"),
        "a channel that was not offered": final_message(challenge, channel=b"y,,"),
        "a bound channel without one": final_message(challenge, channel=f"p={BINDING},,".encode() + bytes(32)),
        "another identity": final_message(challenge, channel=b"n,a=bob,"),
        "another password": final_message(challenge, password="wrong"),
    }
    return {name: m.framed(b"p", text.encode()) for name, text in texts.items()} | signed


EXAMPLE = "r=0123456789abcdefghijXYZ,s=c2FsdHNhbHRzYWx0c2E=,i=4096"


@pytest.mark.parametrize("name", finals(EXAMPLE))
def test_nobody_is_let_in_with_any_other_final_message(server: Running, name: str) -> None:
    for user in ("ann", "nobody"):
        with raw(server.port) as client:
            client.send(startup(user))
            client.replies("R")
            client.send(first_message())
            client.send(finals(challenged(client))[name])
            [error] = client.replies("E")
            assert error.fields["C"] in ("28P01", "08P01")
            assert error.fields["M"] == f'password authentication failed for user "{user}"'
            assert client.is_closed()


FIRSTS = {
    "an identity": first_message(header="n,a=bob,"),
    "bound without TLS": first_message(mechanism=PLUS, header=f"p={BINDING},,"),
    "bound by another rule": first_message(mechanism=PLUS, header="p=tls-unique,,"),
    "bound in the wrong mechanism": first_message(header=f"p={BINDING},,"),
    "an old mechanism": first_message(mechanism="SCRAM-SHA-1"),
    "no mechanism": first_message(mechanism=""),
    "a short nonce": first_message(nonce="short"),
    "no nonce": m.framed(b"p", PLAIN.encode() + b"\0" + struct.pack("!i", 6) + b"n,,n=,"),
    "no data": m.framed(b"p", PLAIN.encode() + b"\0\xff\xff\xff\xff"),
    "a negative length": m.framed(b"p", PLAIN.encode() + b"\0\xff\xff\xff\xfe"),
    "a mandatory extension": first_message(header="n,,m=x,"),
    "a plain password": m.Password(PASSWORD.encode() + b"\0").write(),
}


@pytest.mark.parametrize("name", FIRSTS)
def test_known_and_unknown_names_are_told_the_same_of_a_bad_first_message(server: Running, name: str) -> None:
    said = []
    for user in ("ann", "nobody"):
        with raw(server.port) as client:
            client.send(startup(user))
            client.replies("R")
            client.send(FIRSTS[name])
            [error] = client.replies("E")
            assert error.fields["C"] in ("08P01", "0A000")
            said.append({letter: text.replace(user, "?") for letter, text in error.fields.items()})
            assert client.is_closed()
    assert said[0] == said[1]


def test_challenges_do_not_tell_who_exists(server: Running) -> None:
    """Made-up ones have iterations and lengths of salts that real ones have; each stays, and the nonce does not."""

    def challenge(user: str) -> tuple[str, str, int]:
        with raw(server.port) as client:
            client.send(startup(user))
            client.replies("R")
            client.send(first_message())
            fields = dict(part.split("=", 1) for part in challenged(client).split(","))
            return fields["r"], fields["s"], int(fields["i"])

    shape = lambda found: (len(base64.b64decode(found[1])), found[2])  # noqa: E731 - shorter so
    real = {shape(challenge(user)) for user in ("ann", "bob")}
    made_up = {name: [challenge(name) for _ in range(2)] for name in (f"nobody {number}" for number in range(40))}
    # 40 names fall on both shapes, by a fair and fixed draw, but for a chance of 2 ** -39 for each new ledger.
    assert {shape(found) for pair in made_up.values() for found in pair} == real
    for one, other in made_up.values():
        assert one[1:] == other[1:]
        assert one[0] != other[0]


def test_names_of_any_length_and_letters_are_logged_on_one_line(server: Running) -> None:
    before = len(server.log.getvalue().splitlines())
    users = ["x\nerror: forged", "\x1b[2Jx", "n" * 9000, "'; DROP", "\u202eann", "ann "]
    for user in users:
        found = spoken(server.port, {2: lambda data: data}, user=user)
        assert found[-1].fields["C"] == "28P01"
    lines = server.log.getvalue().splitlines()
    assert len(lines) == before + len(users)
    assert all(line.isprintable() for line in lines)


def test_a_cancel_in_the_middle_of_an_exchange_stops_nobody(server: Running, bystander: RawClient) -> None:
    with raw(server.port) as client:
        client.send(startup())
        client.replies("R")
        for number in range(1, 20):
            with raw(server.port) as other:
                other.send(m.CancelRequest(number, struct.pack("!I", number)))
                assert other.is_closed()
        client.send(first_message())
        client.send(final_message(challenged(client)))
        assert kinds(client.replies()).endswith("KZ")


# --- where TLS is required ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def required(policy: Path) -> Iterator[Running]:
    with running(policy, auth="scram", tls="required") as found:
        yield found


def secured(client: RawClient, **versions: ssl.TLSVersion) -> None:
    """Turn the client's connection into one over TLS."""
    client.send(m.SslRequest())
    assert client.socket.recv(1) == b"S"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    for name, version in versions.items():
        setattr(context, name, version)
    client.socket = context.wrap_socket(client.socket)


PLAINTEXT = {
    "a startup": [startup()],
    "a startup that asks for another version": [m.Startup(m.PROTOCOL_3 + 2, {"user": "ann"}).write()],
    "a startup of somebody unknown": [startup("nobody")],
    "a startup and an exchange": [startup(), first_message()],
    "after GSS was declined": [m.GssRequest().write(), startup()],
    "a query": [m.Query("SELECT 1").write()],
}


@pytest.mark.parametrize("name", PLAINTEXT)
def test_plaintext_is_refused_and_no_exchange_begins(required: Running, name: str) -> None:
    with raw(required.port) as client:
        client.send(*PLAINTEXT[name])
        data = b""
        while some := client._receive():
            data += some
        replies, left = split(data.removeprefix(b"N"))
        assert left == b""
        assert kinds(replies) in ("E", "vE")
        assert replies[-1].fields["C"] in ("28000", "08P01")
    assert "error:" not in required.log.getvalue()


def test_plaintext_after_the_request_for_tls_is_refused(required: Running) -> None:
    for data in (startup(), first_message(), m.CancelRequest(1, b"abcd").write(), bytes(300), b"\x16\x03\x01\0\0"):
        with raw(required.port) as client:
            client.send(m.SslRequest())
            assert client.socket.recv(1) == b"S"
            client.send(data)
            client.socket.shutdown(socket.SHUT_WR)
            answer = b""
            while some := client._receive():
                answer += some
            assert answer[:1] in (b"", b"\x15"), "a TLS alert, or nothing"
    assert "error:" not in required.log.getvalue()
    wait_until(lambda: not required.server.house.connections)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_of_tls_are_refused(required: Running, version: ssl.TLSVersion) -> None:
    with raw(required.port) as client, pytest.raises((ssl.SSLError, ConnectionError)):
        secured(client, minimum_version=version, maximum_version=version)
    assert "error:" not in required.log.getvalue()


@pytest.mark.parametrize(
    ("mechanism", "header", "channel", "state"),
    [
        (PLAIN, "y,,", b"y,,", "08P01"),  # somebody in between took the bound mechanism off the list
        (PLUS, f"p={BINDING},,", f"p={BINDING},,".encode(), "28P01"),  # bound to nothing
        (PLUS, f"p={BINDING},,", f"p={BINDING},,".encode() + bytes(32), "28P01"),  # to another certificate
        (PLUS, "p=tls-unique,,", b"p=tls-unique,,", "08P01"),
        (PLUS, "n,,", b"n,,", "08P01"),
    ],
)
def test_a_channel_that_is_not_bound_as_it_should_be_is_refused(
    required: Running, mechanism: str, header: str, channel: bytes, state: str
) -> None:
    with raw(required.port) as client:
        secured(client)
        client.send(startup())
        assert PLUS.encode() in client.replies("R")[-1].body
        client.send(first_message(mechanism=mechanism, header=header))
        found = client.replies("R" if state == "28P01" else "E")
        if state == "28P01":
            client.send(final_message(found[-1].body[4:].decode(), channel=channel))
            found = client.replies("E")
        assert found[-1].fields["C"] == state


def test_a_second_handshake_and_a_second_startup_end_the_connection(required: Running) -> None:
    for again in (m.SslRequest().write(), startup() + startup("bob")):
        with raw(required.port) as client:
            secured(client)
            client.send(again)
            assert client.replies("E")[-1].fields["C"] == "08P01"
            assert client.is_closed()


def test_a_cancel_request_in_plaintext_is_obeyed_only_with_its_secret(required: Running) -> None:
    """libpq before version 17 sends them so, whatever its connection has; they hold no data and are told nothing."""
    with raw(required.port) as client:
        secured(client)
        client.send(startup())
        client.replies("R")
        client.send(first_message())
        client.send(final_message(challenged(client)))
        key = next(reply for reply in client.replies() if reply.kind == "K").body
        client.send(m.Query("SELECT count(*) FROM generate_series(1, 100000000000) AS t(i)"))
        wait_until(lambda: any(c._work is not None for c in required.server.house.connections.values()))
        for secret in (bytes(4), b"", key[4:] + b"\0", key[4:]):
            with raw(required.port) as other:
                other.send(m.CancelRequest(struct.unpack("!I", key[:4])[0], secret))
                other.socket.shutdown(socket.SHUT_WR)
                assert other.is_closed()
                assert other._left in (b"",) or secret == b""
        assert client.replies()[0].fields["C"] == "57014"
        assert required.log.getvalue().count("canceled") == 1
