"""What a machine remembers of its ledger, apart from it: the file `….born`.

Three lines: the identity of the ledger, a number of releases that it must hold at least, and the hash of the last of
them. A ledger that is missing, foreign, shorter, or that holds others in their place is an error and never a fresh
budget, and so is a marker that is not exactly these lines. Each machine that uses a ledger has a marker of its own,
which speaks of what that machine has seen.
"""

from __future__ import annotations

import os
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from planner.basics.errors import LedgerFailed
from planner.basics.files import publish
from planner.ledger.stores import RESTORE

WHOLE = re.compile(rb"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\n([0-9]{20})\n([0-9a-f]{64})\n")


@dataclass(frozen=True)
class Marker:
    """The marker as it was read."""

    path: Path
    identity: str
    acknowledged: int
    hash: str

    @classmethod
    def read(cls, path: Path) -> Marker | None:
        try:
            found = WHOLE.fullmatch(_read(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise LedgerFailed(f"{path.name} can't be read: {error.strerror or error}") from error
        if found is None:
            raise LedgerFailed(f"{path.name} is damaged: {RESTORE}")
        identity, acknowledged, row_hash = (part.decode() for part in found.groups())
        return cls(path, identity, int(acknowledged), row_hash)

    @classmethod
    def write(cls, path: Path, identity: str, first: str) -> Marker:
        """Make the marker, durably; if another process was faster, its marker is the same."""
        draft = path.with_name(f"{path.name}.{uuid.uuid4()}")
        try:
            with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                file.write(identity.encode() + b"\n" + _numbers(0, first))
                file.flush()
                os.fsync(file.fileno())
            publish(draft, path)
        except OSError as error:
            raise LedgerFailed(f"{path.name} can't be written: {error.strerror or error}") from error
        finally:
            draft.unlink(missing_ok=True)
        return cls(path, identity, 0, first)

    def acknowledge(self, number: int, row_hash: str) -> None:
        """Note that so many releases are durable, before one of them is answered.

        A later number may be overwritten by an earlier one, or lost in a power cut: it is a lower bound,
        and a failure to write it leaves one behind. The charge itself is durable without it.
        """
        with suppress(OSError), self.path.open("r+b", buffering=0) as file:
            file.seek(len(self.identity) + 1)
            file.write(_numbers(number, row_hash))  # one write of less than a sector


def _read(path: Path) -> bytes:
    """Return the bytes of a file that others may be writing to: the same twice, so not half one and half the next."""
    content = path.read_bytes()
    while content != (again := path.read_bytes()):
        content = again
    return content


def _numbers(number: int, row_hash: str) -> bytes:
    return b"%020d\n%s\n" % (number, row_hash.encode())
