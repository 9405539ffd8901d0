"""The releases of a ledger as a Parquet file, and back: for whoever recomputes or audits answers elsewhere.

A release is public by construction: noisy numbers, what they are about, what they cost, who asked, and the SQL of the
question, all of which every analyst sees in the system tables. Nothing else goes out: no rows, no passwords, and no
fingerprint of the data. The chain of hashes covers every column, so a file in which anything was changed, left out or
added is refused, as long as its last hash is the one that the gate told when it was written.

A ledger made from such a file is an archive. It answers what its releases tell, and never charges: the budget is where
the original is.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from planner.basics.errors import BadValue, LedgerFailed
from planner.ledger.accounts import chained, first_hash
from planner.ledger.ledger import Ledger, Row
from planner.policy.ledger import Remote

FORMAT = 1
META = "noisegate"
BATCH = 200
COLUMNS = {
    "id": "BIGINT", "key": "VARCHAR", "question": "VARCHAR", "population": "VARCHAR", "table": "VARCHAR",
    "version": "BIGINT", "analyst": "VARCHAR", "sql": "VARCHAR", "kind": "VARCHAR", "body": "BLOB", "cost": "BLOB",
    "created": "VARCHAR", "hash": "VARCHAR",
}  # fmt: skip


@dataclass(frozen=True)
class Archive:
    """All releases of a ledger with their hashes, its identity, and the current version of each table's data."""

    identity: str
    versions: Mapping[str, int]
    rows: Sequence[tuple[*Row, str]]

    @property
    def head(self) -> str:
        """Return the hash of the last release, which stands for all of them."""
        return self.rows[-1][-1] if self.rows else first_hash(self.identity)


def export(ledger: Ledger, path: Path) -> Archive:
    """Write all releases into a Parquet file, which appears whole or not at all; return them."""
    identity, versions, rows = ledger.dump()
    archive = Archive(identity, versions, rows)
    meta = {"format": FORMAT, "identity": identity, "releases": len(rows), "head": archive.head, "versions": versions}
    draft = path.with_name(f".{path.name}.{uuid.uuid4()}")
    try:
        with duckdb.connect() as connection:
            columns = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items())
            connection.execute(f"CREATE TABLE releases ({columns})")
            marks = f"({', '.join('?' * len(COLUMNS))})"
            for start in range(0, len(rows), BATCH):
                batch = rows[start : start + BATCH]
                values = [value for row in batch for value in row]
                connection.execute(f"INSERT INTO releases VALUES {', '.join([marks] * len(batch))}", values)
            options = f"FORMAT parquet, COMPRESSION zstd, KV_METADATA {{{META}: {_literal(json.dumps(meta))}}}"
            connection.execute(f"COPY (FROM releases ORDER BY id) TO {_literal(str(draft))} ({options})")
        os.replace(draft, path)
    except (duckdb.Error, OSError):
        raise BadValue(f"{path.name} can't be written", hint="name a file in a folder that can be written") from None
    finally:
        draft.unlink(missing_ok=True)
    return archive


def read(path: Path) -> Archive:
    """Return what a file holds, with every hash checked; BadValue if anything in it was changed."""
    try:
        with duckdb.connect() as connection:
            found = connection.execute("SELECT value FROM parquet_kv_metadata(?) WHERE key = ?", [str(path), META])
            meta = json.loads((found.fetchone() or (b"",))[0])
            names = ", ".join(f'"{name}"::{kind}' for name, kind in COLUMNS.items())
            rows = connection.execute(f"SELECT {names} FROM read_parquet(?) ORDER BY id", [str(path)]).fetchall()
        archive = Archive(str(uuid.UUID(meta["identity"])), dict(meta["versions"]), rows)
        made = meta["format"], meta["releases"], meta["head"]
    except (duckdb.Error, ValueError, KeyError, TypeError, AttributeError):
        raise BadValue(f"{path.name} is not an export of releases", hint="make one with `noisegate export`") from None
    if made[0] != FORMAT:
        raise BadValue(f"{path.name} has format {made[0]}, expected {FORMAT}", hint="use the version that made it")
    _check(path, archive)
    if made[1:] != (len(rows), archive.head):
        raise _changed(path, len(rows))
    return archive


def _check(path: Path, archive: Archive) -> None:
    previous = first_hash(archive.identity)
    for number, row in enumerate(archive.rows):
        if row[0] != number + 1 or row[-1] != chained(previous, row[:-1]):
            raise _changed(path, number)
        previous = row[-1]


def _changed(path: Path, number: int) -> BadValue:
    return BadValue(
        f"{path.name} was changed: the chain of hashes breaks after release {number}", hint="export the releases again"
    )


def load(place: Path | Remote, path: Path, *, head: str | None = None) -> Archive:
    """Make an archive out of a file, where there is no ledger yet; return what it holds.

    Args:
        head: the last hash as the original gate told it; a file with another one is refused.
    """
    archive = read(path)
    if head is not None and head != archive.head:
        raise BadValue(f"{path.name} ends with another hash than the one given", hint="ask where the file comes from")
    with Ledger.open(place, identity=archive.identity) as ledger:
        if ledger.dump() != (archive.identity, {}, []):
            raise LedgerFailed(
                "there is a ledger already: releases are imported into a new one only",
                hint="name another place under [ledger] in the policy",
            )
        ledger.fill(archive.rows, archive.versions)
    Ledger.open(place).close()  # with every cost read
    return archive


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
