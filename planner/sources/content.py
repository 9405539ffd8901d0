"""What is in a file, whatever its size and time say: a digest of its bytes, read again only if it may have changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path

TICK = 3 * 10**9
"""Nanoseconds after which a write gives a file another time: no file system counts coarser than two seconds."""

Sign = tuple[int, int, int, int, int]


class Content:
    """The content of some files, of which all but the first may be missing."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._known: tuple[tuple[Sign | None, ...], str] | None = None

    def signs(self) -> tuple[Sign | None, ...]:
        """Return what changes when a file here is replaced, or written: also where its size and time stay the same."""
        return _sign(self._paths[0]), *(_sign(path) if path.exists() else None for path in self._paths[1:])

    def digest(self) -> str:
        """Return the SHA-256 of the bytes, in hex. OSError if they can't be read.

        They are read unless they were read before under the same signs, and so long after the files were last written
        that another write would have changed these.
        """
        signs, now = self.signs(), time.time_ns()
        if self._known is None or self._known[0] != signs:
            found = hashlib.sha256("".join(map(_digest, self._paths)).encode()).hexdigest()
            settled = all(max(sign[-2:]) + TICK < now for sign in signs if sign is not None)
            self._known = (signs, found) if settled else None
            return found
        return self._known[1]


def _sign(path: Path) -> Sign:
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _digest(path: Path) -> str:
    if not path.exists():
        return "none "
    with path.open("rb") as file:
        return f"{hashlib.file_digest(file, 'sha256').hexdigest()} "
