"""The [server] section of a policy: where the wire server listens, who gets in, and how much of what.

The planner never listens; it reads the section so that `noisegate check` finds every mistake of the file.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from planner.policy.domain import duration
from planner.policy.toml import Section, basic_string

TLS = ("required", "offered", "off")
SPANS = ("login_timeout", "statement_timeout", "idle_timeout")
COUNTS = {
    "max_connections": (1, 100_000),
    "max_connections_per_analyst": (1, 100_000),
    "max_message_bytes": (10_000, 2**30),
}
KEYS = ("host", "port", "auth", "certificate", "key", "tls", "allow_unencrypted", "metrics_port", *COUNTS, *SPANS)


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where the wire server listens, how clients log in, and its limits; times are in seconds, 0 for none."""

    host: str = "127.0.0.1"
    port: int = 5433
    auth: str = "scram"
    certificate: Path | None = None
    key: Path | None = None
    tls: str | None = None
    allow_unencrypted: bool = False
    metrics_port: int | None = None
    max_connections: int = 100
    max_connections_per_analyst: int = 50
    max_message_bytes: int = 16 * 2**20
    login_timeout: float = 30.0
    statement_timeout: float = 0.0
    idle_timeout: float = 0.0

    @property
    def encryption(self) -> str:
        """Return "required", "offered" or "off": what `tls` says, or what the address asks for."""
        return self.tls or ("offered" if is_loopback(self.host) else "required")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_server(section: Section, base: Path) -> Server:
    """Return what the section says; paths are taken from `base`."""
    section.only(KEYS)
    host = section.text("host") or Server.host
    auth = section.choice("auth", ("scram", "trust")) or Server.auth
    certificate, key = _read_file(section, "certificate", base), _read_file(section, "key", base)
    if ("certificate" in section) != ("key" in section):
        section.wrong("certificate and key are given together or not at all")
    found = Server(
        host=host,
        port=_read_port(section, "port", Server.port),
        auth=auth,
        certificate=certificate,
        key=key,
        tls=section.choice("tls", TLS),
        allow_unencrypted=section.flag("allow_unencrypted"),
        metrics_port=_read_port(section, "metrics_port", None),
        **{name: _read_count(section, name) for name in COUNTS},  # by name
        **{name: _read_span(section, name) for name in SPANS},  # type: ignore[arg-type]  # the same
    )
    for where, why in dangers(found):
        section.wrong(why, where)
    return found


def dangers(server: Server) -> list[tuple[str, str]]:
    """Return what must not be served like this: the key that is wrong, and why."""
    if is_loopback(server.host):
        return []
    found = []
    if server.auth == "trust":
        found.append(("auth", f'auth = "trust" lets anyone in; it needs a loopback host, got {server.host}'))
    if server.encryption != "required" and not server.allow_unencrypted:
        why = f'tls = "{server.encryption}" lets answers travel unencrypted; on host {server.host}'
        found.append(("tls", f"{why} that needs allow_unencrypted = true"))
    return found


def _read_port(section: Section, key: str, default: int | None) -> int:
    found = section.integer(key, least=0, most=65_535)
    return default if found is None else found  # type: ignore[return-value]  # None is metrics_port's default only


def _read_count(section: Section, key: str) -> int:
    least, most = COUNTS[key]
    found = section.integer(key, least=least, most=most)
    return getattr(Server, key) if found is None else found


def _read_span(section: Section, key: str) -> float:
    text = section.text(key)
    if text is None:
        return float(getattr(Server, key))
    found = duration(text)
    if found is None:
        section.wrong(f'{key} must be a duration like "30 seconds" or "5 minutes", got {basic_string(text)}', key)
        return 0.0
    return found.total_seconds()


def _read_file(section: Section, key: str, base: Path) -> Path | None:
    name = section.text(key)
    if name is None:
        return None
    if not (base / name).is_file():
        section.wrong(f"{key} is not a file: {name}", key)
    return base / name
