"""Logins: SCRAM as scramp and libpq speak it, channels bound, unknown names indistinguishable, failures slowed down."""

from __future__ import annotations

import base64
import re
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.basics.errors import SourceFailed
from planner.ledger.ledger import Ledger
from planner.policy.file import load
from planner.policy.passwords import Verifier, read_verifier, scram_verifier
from proxy.limits import ELSEWHERE_TRIES, FAMILIAR_WAIT, FREE_TRIES, LONGEST_WAIT, MAX_REMEMBERED
from proxy.login.auth import PLAIN, PLUS, BackOff, LoginFailed, Scram, Verifiers, new_salts
from proxy.server import tls
from proxy.wire import messages as m
from tests.proxy.raw import RawClient
from tests.proxy.servers import Running, running

PASSWORD = "sésame, ouvre-toi"
VERIFIER = read_verifier(scram_verifier(PASSWORD, salt=b"s" * 16))
BINDING = b"hash of the certificate"


@pytest.fixture
def with_password(adult_policy: Path) -> Path:
    text = adult_policy.read_text(encoding="utf-8")
    line = f'share = 0.6\npassword = "{scram_verifier(PASSWORD)}"'
    adult_policy.write_text(text.replace("share = 0.6", line), encoding="utf-8")
    return adult_policy


# --- the exchange ------------------------------------------------------------------------------------------


def exchange(
    password: str = PASSWORD,
    *,
    verifier: Verifier = VERIFIER,
    known: bool = True,
    binding: bytes | None = None,
    mechanism: str = PLAIN,
    channel: tuple[str, bytes] | None = None,
) -> None:
    """Log in with scramp's client, which nobody here wrote; raises LoginFailed, or what the client finds wrong."""
    scramp = pytest.importorskip("scramp")
    server = Scram(verifier, known=known, binding=binding)
    client = scramp.ScramClient([mechanism], "ann", password, channel_binding=channel)
    first = server.first(mechanism, client.get_client_first().encode())
    client.set_server_first(first.decode())
    client.set_server_final(server.final(client.get_client_final().encode()).decode())


def test_the_right_password_is_let_in_and_the_server_proves_itself() -> None:
    exchange()


def test_the_right_password_is_let_in_over_a_bound_channel() -> None:
    exchange(binding=BINDING, mechanism=PLUS, channel=("tls-server-end-point", BINDING))


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12))
def test_another_password_is_not_let_in(password: str) -> None:
    if password == PASSWORD or not password:
        return
    with pytest.raises(LoginFailed, match="wrong password"):
        exchange(password)


def test_someone_in_the_middle_of_a_bound_channel_is_noticed() -> None:
    with pytest.raises(LoginFailed):
        exchange(binding=BINDING, mechanism=PLUS, channel=("tls-server-end-point", b"another certificate"))


def test_a_client_that_was_talked_out_of_binding_is_refused() -> None:
    server = Scram(VERIFIER, known=True, binding=BINDING)
    with pytest.raises(LoginFailed, match="channel binding"):
        server.first(PLAIN, b"y,,n=,r=abcdefghijkl")
    assert Scram(VERIFIER, known=True, binding=None).first(PLAIN, b"y,,n=,r=abcdefghijkl")


def test_a_mechanism_that_was_not_offered_is_refused() -> None:
    assert Scram(VERIFIER, known=True, binding=None).mechanisms == (PLAIN,)
    with pytest.raises(LoginFailed, match="not offered"):
        Scram(VERIFIER, known=True, binding=None).first(PLUS, b"p=tls-server-end-point,,n=,r=abcdefghijkl")


def test_the_right_proof_for_a_name_that_is_not_known_is_worth_nothing() -> None:
    with pytest.raises(LoginFailed, match="no such analyst"):
        exchange(known=False)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_any_bytes_are_a_failed_login(first: bytes, final: bytes) -> None:
    server = Scram(VERIFIER, known=True, binding=None)
    with pytest.raises(LoginFailed):  # noqa: PT012 - whichever of the two notices it
        server.first(PLAIN, first)
        server.final(final)


@given(st.data())
def test_a_proof_with_any_bit_flipped_is_refused(data: st.DataObject) -> None:
    scramp = pytest.importorskip("scramp")
    server = Scram(VERIFIER, known=True, binding=None)
    client = scramp.ScramClient([PLAIN], "ann", PASSWORD)
    client.set_server_first(server.first(PLAIN, client.get_client_first().encode()).decode())
    head, _, proof = client.get_client_final().rpartition(",p=")
    flipped = bytearray(base64.b64decode(proof))
    flipped[data.draw(st.integers(0, len(flipped) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(LoginFailed):
        server.final(f"{head},p={base64.b64encode(flipped).decode()}".encode())


def test_a_nonce_of_another_exchange_is_refused() -> None:
    scramp = pytest.importorskip("scramp")
    server, other = Scram(VERIFIER, known=True, binding=None), Scram(VERIFIER, known=True, binding=None)
    client = scramp.ScramClient([PLAIN], "ann", PASSWORD)
    first = client.get_client_first().encode()
    other.first(PLAIN, first)
    client.set_server_first(server.first(PLAIN, first).decode())
    with pytest.raises(LoginFailed):
        other.final(client.get_client_final().encode())


# --- names -------------------------------------------------------------------------------------------------


def test_a_name_that_is_not_known_has_a_salt_of_its_own_that_stays(with_password: Path) -> None:
    verifiers = Verifiers.of(load(with_password), b"secret")
    text = with_password.read_text(encoding="utf-8")
    other_password = text.replace(re.findall('SCRAM[^"]+', text)[0], scram_verifier("another"))
    with_password.write_text(other_password, encoding="utf-8")
    again = Verifiers.of(load(with_password), b"secret")
    assert again.of_user("ann")[0].salt != verifiers.of_user("ann")[0].salt
    (one, known), (other, _) = verifiers.of_user("mallory"), verifiers.of_user("trent")
    assert not known
    assert one.salt != other.salt
    assert len(one.salt) == len(verifiers.of_user("ann")[0].salt)
    assert one.iterations == verifiers.of_user("ann")[0].iterations
    assert again.of_user("mallory")[0].salt == one.salt


def test_all_gates_of_a_ledger_make_up_the_same_salts_and_other_ledgers_others(tmp_path: Path) -> None:
    secrets = []
    for name in ("one", "one", "two"):
        with Ledger.open(tmp_path / f"{name}.sqlite") as ledger:
            secrets.append(ledger.kept("salts", new_salts()))
    assert secrets[0] == secrets[1] != secrets[2]


def test_nobody_logs_in_as_one_to_be_another() -> None:
    server = Scram(VERIFIER, known=True, binding=None)
    with pytest.raises(LoginFailed, match="authorization identity") as failed:
        server.first(PLAIN, b"n,a=bob,n=ann,r=abcdefghijkl")
    assert failed.value.sqlstate == "0A000"


def test_an_analyst_without_a_password_is_not_known(with_password: Path) -> None:
    verifiers = Verifiers.of(load(with_password), b"secret")
    assert verifiers.of_user("ann")[1]
    assert not verifiers.of_user("bob")[1]


# --- back-off ----------------------------------------------------------------------------------------------


def test_failed_logins_wait_twice_as_long_each_time_up_to_a_limit() -> None:
    back_off, key = BackOff(), ("10.0.0.1", "ann")
    waits = []
    for _ in range(FREE_TRIES + 9):
        waits.append(back_off.wait(key, 0.0))
        back_off.failed(key, 0.0)
    assert waits[:FREE_TRIES] == [0.0] * FREE_TRIES
    assert waits[FREE_TRIES:] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_WAIT, LONGEST_WAIT, LONGEST_WAIT]


def test_waiting_ends_and_a_success_forgets() -> None:
    back_off, key = BackOff(), ("10.0.0.1", "ann")
    for _ in range(FREE_TRIES):
        back_off.failed(key, 0.0)
    assert back_off.wait(key, 0.5) == 0.5
    assert back_off.wait(key, 2.0) == 0.0
    back_off.succeeded(key)
    back_off.failed(key, 3.0)
    assert back_off.wait(key, 3.0) == 0.0


def test_nobody_is_locked_out_from_elsewhere() -> None:
    back_off = BackOff()
    for _ in range(FREE_TRIES + 5):
        back_off.failed(("6.6.6.6", "ann"), 0.0)
    assert back_off.wait(("10.0.0.1", "ann"), 0.0) == 0.0


def test_guessing_one_name_from_many_addresses_is_slow_and_locks_nobody_out_who_was_there_before() -> None:
    back_off = BackOff()
    back_off.succeeded(("10.0.0.1", "ann"))
    tried = 0
    for number in range(1000):
        if back_off.wait((f"6.6.{number}", "ann"), 0.0) == 0:
            back_off.failed((f"6.6.{number}", "ann"), 0.0)
            tried += 1
    assert tried == ELSEWHERE_TRIES
    assert back_off.wait(("7.7.7.7", "ann"), 0.0) > 0
    assert back_off.wait(("10.0.0.1", "ann"), 0.0) == 0
    assert back_off.wait(("7.7.7.7", "bob"), 0.0) == 0


def test_somebody_at_the_same_address_delays_an_analyst_by_seconds_at_most() -> None:
    back_off, key = BackOff(), ("10.0.0.1", "ann")
    back_off.succeeded(key)
    for _ in range(100):
        back_off.failed(key, 0.0)
    assert back_off.wait(key, 0.0) == FAMILIAR_WAIT


def test_old_failures_are_forgotten_and_their_number_is_bounded() -> None:
    back_off = BackOff()
    for _ in range(FREE_TRIES):
        back_off.failed(("a", "ann"), 0.0)
    back_off.failed(("a", "ann"), 10_000.0)
    assert back_off.wait(("a", "ann"), 10_000.0) == 0.0
    for number in range(MAX_REMEMBERED + 10):
        back_off.failed((str(number), "x"), 0.0)
    assert len(back_off._failures) == MAX_REMEMBERED


def test_many_made_up_names_do_not_make_failures_at_a_real_one_forgotten() -> None:
    back_off, key = BackOff(), ("a", "ann")
    for _ in range(FREE_TRIES + 3):
        back_off.failed(key, 0.0)
    for number in range(MAX_REMEMBERED + 10):
        back_off.failed(("a", str(number)), 0.0)
    assert back_off.wait(key, 0.0) == 8.0
    assert len(back_off._failures) == MAX_REMEMBERED


# --- certificates ------------------------------------------------------------------------------------------


def test_a_certificate_is_made_once_and_its_key_is_private(tmp_path: Path) -> None:
    certificate, key = tls.self_signed(tmp_path / "policy.toml", "127.0.0.1")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    before = certificate.read_bytes()
    assert tls.self_signed(tmp_path / "policy.toml", "127.0.0.1")[0].read_bytes() == before
    found = tls.load(certificate, key)
    assert found.binding is not None
    assert len(found.binding) == 32


def test_a_certificate_that_can_not_be_used_is_refused_by_name(tmp_path: Path) -> None:
    certificate, key = tls.self_signed(tmp_path / "policy.toml", "127.0.0.1")
    _, other = tls.self_signed(tmp_path / "other.toml", "127.0.0.1")
    with pytest.raises(SourceFailed, match=r"policy.tls.crt with the key other.tls.key can't be used"):
        tls.load(certificate, other)
    key.write_text("no key", encoding="utf-8")
    with pytest.raises(SourceFailed, match="can't be used"):
        tls.load(certificate, key)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    certificate, key = tls.self_signed(tmp_path / "policy.toml", "127.0.0.1")
    key.chmod(0o644)
    with pytest.raises(SourceFailed, match=r"others can read the key policy\.tls\.key: its mode is 0644") as failure:
        tls.load(certificate, key)
    assert failure.value.hint == "chmod 600 policy.tls.key"


def test_many_gates_that_start_at_once_agree_on_one_certificate(tmp_path: Path) -> None:
    for number in range(20):
        start, policy = threading.Barrier(8), tmp_path / f"{number}.toml"

        def make(start: threading.Barrier = start, policy: Path = policy) -> str:
            start.wait()
            return tls.load(*tls.self_signed(policy, "127.0.0.1")).fingerprint

        with ThreadPoolExecutor(8) as pool:
            found = [pool.submit(make) for _ in range(8)]
        assert all(future.result() for future in found)
        assert tls.load(*tls.self_signed(policy, "127.0.0.1")).fingerprint
    assert {file.suffix for file in tmp_path.iterdir()} == {".crt", ".key"}


def test_a_certificate_left_of_another_key_is_made_anew(tmp_path: Path) -> None:
    _, key = tls.self_signed(tmp_path / "policy.toml", "127.0.0.1")
    key.unlink()
    tls.load(*tls.self_signed(tmp_path / "policy.toml", "127.0.0.1"))


# --- over the wire -----------------------------------------------------------------------------------------


@pytest.fixture
def server(with_password: Path) -> Iterator[Running]:
    with running(with_password, auth="scram", tls="offered") as found:
        yield found


Connect = Callable[..., object]


@pytest.fixture
def connect(server: Running) -> Connect:
    psycopg = pytest.importorskip("psycopg")

    def connected(user: str = "ann", password: str = PASSWORD, **more: object) -> object:
        return psycopg.connect(server.dsn(user), password=password, **more)

    return connected


@pytest.mark.parametrize(
    ("sslmode", "binding"), [("disable", "disable"), ("require", "require"), ("require", "disable")]
)
def test_libpq_logs_in(connect: Connect, sslmode: str, binding: str) -> None:
    with connect(sslmode=sslmode, channel_binding=binding) as connection:  # type: ignore[attr-defined]
        assert connection.pgconn.ssl_in_use == (sslmode == "require")
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_libpq_verifies_the_certificate_that_signs_itself(connect: Connect, with_password: Path) -> None:
    root = with_password.with_suffix(".tls.crt")
    with connect(sslmode="verify-full", sslrootcert=str(root)) as connection:  # type: ignore[attr-defined]
        assert connection.pgconn.ssl_in_use


@pytest.mark.parametrize("user", ["ann", "bob", "nobody"])
def test_a_wrong_password_and_an_unknown_name_are_told_the_same(connect: Connect, server: Running, user: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with pytest.raises(psycopg.OperationalError) as refused:
        connect(user, "wrong", sslmode="disable")
    assert f'password authentication failed for user "{user}"' in str(refused.value)
    assert refused.value.sqlstate is None or refused.value.sqlstate == "28P01"
    assert "wrong" not in server.log.getvalue().replace("wrong password", "")


def test_many_failures_are_made_to_wait_even_with_the_right_password(connect: Connect) -> None:
    psycopg = pytest.importorskip("psycopg")
    for _ in range(FREE_TRIES + 1):
        with pytest.raises(psycopg.OperationalError):
            connect(password="wrong", sslmode="disable")
    with pytest.raises(psycopg.OperationalError, match="too many failed logins"):
        connect(sslmode="disable")


def test_of_many_guesses_at_once_no_more_are_judged_than_one_after_the_other(server: Running) -> None:
    scramp = pytest.importorskip("scramp")
    guessers = []
    for number in range(40):
        client, guess = RawClient(server.port), scramp.ScramClient([PLAIN], "ann", f"guess {number}")
        client.send(m.Startup(m.PROTOCOL_3, {"user": "ann"}))
        client.replies("R")
        data = guess.get_client_first().encode()
        client.send(m.Password(b"%s\0%s%s" % (PLAIN.encode(), struct.pack("!i", len(data)), data)))
        guess.set_server_first(client.replies("R")[-1].body[4:].decode())
        guessers.append((client, guess))
    for client, guess in guessers:
        client.send(m.Password(guess.get_client_final().encode()))
    said = [client.replies("E")[-1].fields["M"] for client, _ in guessers]
    for client, _ in guessers:
        client.close()
    assert sum("password authentication failed" in text for text in said) == FREE_TRIES
    assert sum("too many failed logins" in text for text in said) == 40 - FREE_TRIES


def test_plain_connections_are_refused_where_tls_is_required(with_password: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    with running(with_password, auth="scram", tls="required") as server:
        with pytest.raises(psycopg.OperationalError, match="must be encrypted"):
            psycopg.connect(server.dsn(), password=PASSWORD, sslmode="disable")
        psycopg.connect(server.dsn(), password=PASSWORD, sslmode="require").close()


def test_trust_lets_in_analysts_only(adult_policy: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    with running(adult_policy) as server:
        psycopg.connect(server.dsn("bob")).close()
        with pytest.raises(psycopg.OperationalError, match='trust authentication failed for user "eve"'):
            psycopg.connect(server.dsn("eve"))
