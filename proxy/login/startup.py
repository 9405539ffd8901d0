"""From a startup message to a session: which analyst, which settings. Knows no sockets."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from planner.basics.errors import Refusal
from planner.gate import Gate
from planner.session import Session
from proxy.catalog.variables import Variables, is_gates
from proxy.wire import replies
from proxy.wire.messages import PROTOCOL_3, Startup
from proxy.wire.replies import Complaint, Severity

NOT_SETTINGS = ("user", "database", "options", "replication")


class Refused(Exception):
    """The client is not let in; carries what it is told."""

    def __init__(self, sqlstate: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.complaint = Complaint(message=message, sqlstate=sqlstate, severity=Severity.FATAL, hint=hint)


@dataclass(frozen=True)
class Caller:
    """Who a client says it is, and what it wants set."""

    user: str
    database: str
    settings: dict[str, str]


def read_startup(startup: Startup) -> Caller:
    """Return who calls; Refused if the message does not say."""
    found = startup.parameters
    user = found.get("user", "")
    if not user:
        raise Refused("28000", "no PostgreSQL user name specified in startup packet")
    if found.get("replication", "false").lower() not in ("false", "off", "no", "0"):
        raise Refused("0A000", "there is no replication here")
    settings = _options(found.get("options", ""))
    given = {name.lower(): value for name, value in found.items() if name not in NOT_SETTINGS}
    settings |= {name: value for name, value in given.items() if not _is_extension(name)}
    return Caller(user, (found.get("database") or user)[:63], settings)


def _is_extension(name: str) -> bool:
    return name.startswith("_pq_.")


def negotiation(startup: Startup) -> bytes:
    """Return what is said to a client that speaks a later version of the protocol, or knows extensions."""
    unknown = [name for name in startup.parameters if _is_extension(name)]
    return replies.negotiate(0, unknown) if startup.version > PROTOCOL_3 or unknown else b""


def _options(text: str) -> dict[str, str]:
    """Return the settings of `options=-c name=value --name=value`."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise Refused("22023", "the startup options can't be read") from None
    found = {}
    while words:
        word = words.pop(0)
        setting = words.pop(0) if word == "-c" and words else re.sub(r"^(-c|--)", "", word)
        name, equals, value = setting.partition("=")
        if not equals:
            raise Refused("42601", "the startup options must be like -c name=value")
        found[name.replace("-", "_").lower()] = value
    return found


def open_session(gate: Gate, caller: Caller, *, timeouts: dict[str, str]) -> tuple[Session, Variables]:
    """Return the session of an analyst and its settings; Refused if a setting is not allowed."""
    session = gate.session(caller.user)
    variables = Variables().forced("session_authorization", caller.user)
    for name, value in timeouts.items():
        variables = variables.started_with(name, value)
    try:
        for name, value in caller.settings.items():
            if is_gates(name):
                session.settings = session.settings.with_value(name, value, session.defaults)
            else:
                variables = variables.started_with(name, value)
    except Refusal as refusal:
        raise Refused(refusal.sqlstate, refusal.message, hint=refusal.hint) from None
    session.defaults = session.settings
    return session, variables
