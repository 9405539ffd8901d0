"""Where the policy says that the ledger is kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

SCHEMES = ("postgresql", "postgres")
DEFAULT_SCHEMA = "noisegate"


@dataclass(frozen=True)
class Remote:
    """A ledger in PostgreSQL: how to connect, without a password; its schema; this machine's marker file."""

    conninfo: str
    schema: str
    marker: Path
    name: str

    @classmethod
    def parse(cls, url: str, *, marker: Path) -> Remote:
        """Return the place that postgresql://[user@]host[:port]/database[?options][#schema] names, or ValueError.

        No part of the text is ever repeated in an error, since it may be a password.
        """
        from psycopg import ProgrammingError  # here, since whoever keeps the ledger in a file does not need it
        from psycopg.conninfo import conninfo_to_dict

        conninfo, _, schema = url.partition("#")
        try:
            parts = conninfo_to_dict(conninfo)
        except ProgrammingError:
            parts = {}
        ports = str(parts.get("port") or "0")
        understood = bool(parts or not conninfo.partition("://")[2]) and re.fullmatch(r"[0-9,]+", ports)
        if not understood or not re.fullmatch(r"([a-z_][a-z0-9_]{0,62})?", schema):
            raise ValueError("url must be postgresql://user@host:port/database#schema, in which much can be left out")
        if "password" in parts or conninfo.count("@") > 1:
            raise ValueError("url must not hold a password: put it into a passfile, a service file or PGPASSWORD")
        where = [str(parts[key]) for key in ("host", "service", "dbname") if parts.get(key)]
        schema = schema or DEFAULT_SCHEMA
        return cls(conninfo, schema, marker, "/".join([*where, schema]))


def is_remote(url: str) -> bool:
    return url.partition("://")[0] in SCHEMES and "://" in url
