"""The [server] section says what may be served: nothing unencrypted or unchecked beyond this machine by accident."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from planner.basics.errors import PolicyRefusal
from planner.policy.file import load
from planner.policy.server import COUNTS, KEYS, SPANS, Server, dangers, is_loopback

REST = """
[budget]
epsilon = 1
delta = 1e-9
[tables.people]
source = "people.csv"
[tables.people.columns]
age = { type = "integer", min = 0, max = 110 }
[server]
"""


def server(folder: Path, section: str) -> Server:
    (folder / "people.csv").touch()
    (folder / "policy.toml").write_text(REST + section, encoding="utf-8")
    return load(folder / "policy.toml").server


def mistakes(folder: Path, section: str) -> list[str]:
    with pytest.raises(PolicyRefusal) as refused:
        server(folder, section)
    return [mistake.text for mistake in refused.value.mistakes]


def test_nothing_said_is_this_machine_with_passwords_and_tls_on_offer(tmp_path: Path) -> None:
    found = server(tmp_path, "")
    assert found == Server()
    assert (found.host, found.auth, found.encryption) == ("127.0.0.1", "scram", "offered")


def test_another_address_requires_tls(tmp_path: Path) -> None:
    assert server(tmp_path, 'host = "0.0.0.0"').encryption == "required"
    assert replace(server(tmp_path, ""), host="10.0.0.1").encryption == "required"


@pytest.mark.parametrize("tls", ["offered", "off"])
def test_unencrypted_answers_beyond_this_machine_must_be_allowed_in_so_many_words(tmp_path: Path, tls: str) -> None:
    section = f'host = "0.0.0.0"\ntls = "{tls}"'
    assert mistakes(tmp_path, section) == [
        f'tls = "{tls}" lets answers travel unencrypted; on host 0.0.0.0 that needs allow_unencrypted = true'
    ]
    assert server(tmp_path, f"{section}\nallow_unencrypted = true").encryption == tls


def test_trust_beyond_this_machine_can_not_be_allowed(tmp_path: Path) -> None:
    section = 'host = "0.0.0.0"\nauth = "trust"\nallow_unencrypted = true'
    assert mistakes(tmp_path, section) == ['auth = "trust" lets anyone in; it needs a loopback host, got 0.0.0.0']


def test_dangers_are_found_whoever_made_them() -> None:
    assert dangers(Server()) == []
    assert [key for key, _ in dangers(Server(host="::", auth="trust", tls="off"))] == ["auth", "tls"]


def test_limits_and_times_are_read(tmp_path: Path) -> None:
    found = server(
        tmp_path,
        'max_connections = 7\nmax_message_bytes = 20_000\nstatement_timeout = "2 minutes"\n'
        'login_timeout = "5 seconds"\n'
        "metrics_port = 9000",
    )
    assert (found.max_connections, found.max_message_bytes, found.metrics_port) == (7, 20_000, 9000)
    assert (found.statement_timeout, found.login_timeout, found.idle_timeout) == (120.0, 5.0, 0.0)


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        ("max_connections = 0", "max_connections must be between 1 and 100000, got 0"),
        ("max_message_bytes = 5", "max_message_bytes must be between 10000 and 1073741824, got 5"),
        ('idle_timeout = "soon"', 'idle_timeout must be a duration like "30 seconds" or "5 minutes", got "soon"'),
        ("statement_timeout = 30", "statement_timeout must be a string, got an integer"),
        ('tls = "yes"', 'tls must be one of required, offered, off, got "yes"'),
        ("metrics_port = 70_000", "metrics_port must be between 0 and 65535, got 70000"),
        ("ports = 1", "unknown key ports; did you mean port?"),
        ('key = "none.pem"', "certificate and key are given together or not at all"),
    ],
)
def test_a_mistake_is_said_in_one_line(tmp_path: Path, section: str, mistake: str) -> None:
    assert mistake in mistakes(tmp_path, section)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("gate.example.org", False)],
)
def test_loopback_addresses_are_known(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_every_key_has_a_field() -> None:
    assert {*COUNTS, *SPANS} <= set(KEYS) == set(Server.__dataclass_fields__)
