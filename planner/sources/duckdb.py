"""Protected files read by DuckDB."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import threading
import weakref
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

from planner.basics.errors import SourceFailed
from planner.counting.sql import SqlSource, meaning, where
from planner.duck.quoting import literal
from planner.duck.reader import Reader, attach
from planner.policy.table import Table
from planner.sources.content import Content, Sign

COUNTING = "noisegate_counting"
"""The table that says of each row of the file whether it counts."""

DROPPED = "noisegate_dropped"
"""The places of rows beyond their unit's bound, while COUNTING is made."""

FEW_TESTS = 2
"""Columns whose values are tested in every scan if rows are outside of no more: that takes less than COUNTING does."""


class DuckdbSource(Reader):
    """One protected table in a file."""

    _counting: tuple[object, bool] | None = None  # for which rows COUNTING was made, and whether all count

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
            self._placeable = not table.inner or _has_places(self._connection, self._from)
        except (duckdb.Error, OSError):
            raise SourceFailed(f"the source of table {table.name} can't be opened") from None
        self._types = {row[0]: row[1] for row in described}
        self._check_present()
        self._seen = now
        self._forget()

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
            with self.holding(before):
                yield before
            if self._digest() != before:
                self._forget()
                raise SourceFailed(f"the source of table {self.table.name} changed while it was read", hint="ask again")

    def _rows(self, used: Collection[str], touched: Collection[str] = (), wanted: Sequence[str] = ()) -> str:
        """Return the rows that count; of a file that is held, which these are is found out once."""
        if self._rows_held is None or not self._placeable or self._few_tests(touched):
            return super()._rows(used, touched, wanted)
        if self._counting is None or self._counting[0] != self._rows_held:
            self._counting = self._rows_held, self._find_counting()
        tests, there = [*wanted], self._from
        if not self._counting[1]:
            tests, there = ["__counts", *wanted], f"{self._from} POSITIONAL JOIN {COUNTING}"
        return f"(SELECT {self._listed(used)} FROM {there}{where(tests)}) AS k"

    def _few_tests(self, touched: Collection[str]) -> bool:
        """Return whether a scan does less if it tests the values of rows than if it looks up which count."""
        return self.table.unit is None and len(self._with_outside().difference(touched)) <= FEW_TESTS

    def _find_counting(self) -> bool:
        """Note of each row, in the order of the file, whether it counts: a byte each. Return whether all do.

        All rows of a unit that has no more than k count: only the others need an order.
        """
        if self.table.unit is None:
            tests, beyond = self._tests(self._with_outside()), "false"
        else:
            unit, most = self.key(self.table.unit), self.table.max_rows_per_unit
            tests = self._unit_tests()
            inside = " AND ".join(tests)
            full = f"SELECT {unit} FROM {self._from} WHERE {inside} GROUP BY {unit} HAVING count(*) > {most}"
            numbered = self._numbered(
                tests,
                f"(SELECT * FROM {self._placed()} WHERE {unit} IN ({full})) AS f",
                f"{self.quoted(self.table.unit)}, __place",
            )
            dropped = f"SELECT __place FROM ({numbered}) AS n WHERE __n > {most}"
            # By itself, since it takes most of the memory, which is free again for what follows.
            self.fetch(f"CREATE OR REPLACE TEMP TABLE {DROPPED} AS {dropped}")
            beyond = f"__place IN (FROM {DROPPED})"
        counts = " AND ".join([*tests, f"NOT {beyond}"])
        noted = f"SELECT COALESCE({counts}, false) AS __counts FROM {self._placed()} ORDER BY __place"
        self.fetch(f"CREATE OR REPLACE TEMP TABLE {COUNTING} AS {noted}")
        self.fetch(f"DROP TABLE IF EXISTS {DROPPED}")
        return not self.fetch(f"SELECT count(*) AS n FROM {COUNTING} WHERE NOT __counts")["n"][0]

    def _forget(self) -> None:
        super()._forget()
        self._counting = None

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


def _has_places(connection: duckdb.DuckDBPyConnection, relation: str) -> bool:
    """Return whether a relation of a database file is a table: the rows of a view have no place."""
    try:
        connection.execute(f"SELECT rowid FROM {relation} LIMIT 0")
    except duckdb.BinderException:
        return False
    return True
