"""Protected files read by DuckDB."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from planner.basics.errors import SourceFailed
from planner.counting.sql import SqlSource, meaning
from planner.duck.quoting import literal
from planner.duck.reader import Reader, attach
from planner.policy.table import Table
from planner.sources.content import Content, Sign


class DuckdbSource(Reader):
    """One protected table in a file."""

    def __init__(self, table: Table) -> None:
        SqlSource.__init__(self, table)
        self._lock = threading.RLock()
        self._meaning = meaning(table)
        # Beside a database file, what was written last may still lie in its log.
        self._content = Content([table.file, *([Path(f"{table.file}.wal")] if table.inner else [])])
        # What does not fit into memory is written out: protected rows, so nobody else may read them.
        self._spill = tempfile.mkdtemp(prefix="noisegate-")
        weakref.finalize(self, shutil.rmtree, self._spill, ignore_errors=True)
        self._open()

    def _open(self) -> None:
        """Connect to the file as it is now, and see which columns it has."""
        table, now = self.table, self._signs()
        try:
            self._connection = duckdb.connect(config={"python_enable_replacements": False})
            self._connection.execute(f"SET TimeZone='UTC'; SET temp_directory={literal(self._spill)}")
            self._from = attach(self._connection, table, text=True)
            described = self._connection.execute(f"DESCRIBE SELECT * FROM {self._from}").fetchall()
        except (duckdb.Error, OSError):
            raise SourceFailed(f"the source of table {table.name} can't be opened") from None
        self._types = {row[0]: row[1] for row in described}
        self._check_present()
        self._seen = now

    @contextmanager
    def current(self) -> Iterator[None]:
        """Hold the connection, which is made anew if the file was replaced: a database file stays open."""
        with self._lock:
            if self._signs() != self._seen:
                self._connection.close()
                self._open()
            yield

    @contextmanager
    def reading(self) -> Iterator[str]:
        """Hold the file, and give a digest of its bytes: it is looked at before and after."""
        with self.current():
            before = self._digest()
            yield before
            if self._digest() != before:
                raise SourceFailed(f"the source of table {self.table.name} changed while it was read", hint="ask again")

    def fingerprint(self) -> str:
        """Return a text that changes when the file gets another size or time, or is read in another way."""
        files = [f"{size}:{written}" for _, _, size, written, _ in filter(None, self._signs())]
        return hashlib.sha256(":".join([*files, self._meaning]).encode()).hexdigest()

    def _signs(self) -> tuple[Sign | None, ...]:
        with self._readable_file():
            return self._content.signs()

    def _digest(self) -> str:
        with self._readable_file():
            return self._content.digest()

    @contextmanager
    def _readable_file(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            raise SourceFailed(f"the source of table {self.table.name} can't be read") from None

    def close(self) -> None:
        self._connection.close()
