"""Protected tables that Spark reads: grouped by Spark SQL, so that only the data vector comes back.

The table is made of files that Spark can list (Parquet, ORC, Hive and managed tables): their sizes and times tell when
it changes. An Iceberg table tells it by its snapshot. What Spark says when something fails may hold rows: that stays
here.
"""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import unquote
from uuid import uuid4

import numpy as np
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.utils import is_remote

from planner.basics.errors import SourceFailed
from planner.basics.limits import ROW_BITS
from planner.basics.stopping import elsewhere
from planner.cells.workspace import Ints
from planner.counting.sql import Fetched, SqlSource, meaning, where
from planner.policy.domain import Domain
from planner.policy.location import table_name
from planner.policy.table import Table

KINDS = {
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "integer"),
    "decimal": "decimal",
    **dict.fromkeys(("float", "double"), "double"),
    **dict.fromkeys(("string", "char", "varchar"), "text"),
    "boolean": "boolean",
    "date": "date",
    "timestamp_ntz": "timestamp",
    "timestamp": "timestamptz",
}
"""What each type of Spark is to a policy."""

STARTED = {
    "spark.ui.enabled": "false",  # it would show queries and plans to whoever reaches its port
    "spark.ui.showConsoleProgress": "false",
}
LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Settings of a Spark that the gate starts itself; a local one is reached from this machine only."""

SETTINGS = {
    "spark.sql.ansi.enabled": "true",  # what does not fit is an error, never another number
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    # Days before 1582 are read as they are; Spark 3 fails on a row that has one.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
}
"""Nothing that a cluster or another user of the session has set can change what our SQL means."""

CATALOGS = ("spark.sql.catalog.", "spark.sql.defaultCatalog")
"""How the settings begin that say where tables are."""

VIEW = "noisegate_rows"
"""The table as it was when a question began, in the session of its source."""

COUNTING = "noisegate_counting"
"""Of the rows of that table, those that count, where units have several."""

FAILURES = (PySparkException, Py4JError, OSError)
FILE = re.compile(r"path=(.*?); isDirectory=false; length=(\d+);.*?modification_time=(\d+);")
FORMATS = ("parquet", "orc", "json", "avro")
"""What can stand before a path in the place of a schema."""

MOST, LEAST = 2**63 - 1, -(2**63)


def session(master: str) -> SparkSession:
    """Return a session with settings of its own, in the Spark of this process, which is started if there is none."""
    if is_remote():
        raise SourceFailed("the gate can't use Spark Connect: it could not notice when a table changes")
    running = _running()
    if running is None:
        builder = SparkSession.builder.appName("noisegate")
        if master:
            builder = builder.master(master)
        for key, value in (STARTED | (LOCAL if master.startswith("local") else {})).items():
            builder = builder.config(key, value)
        running = builder.getOrCreate()
        # Spark's log quotes the rows on which something failed.
        running.sparkContext.setLogLevel("OFF")
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    own = running.newSession()
    for key, value in (_catalogs(running) | SETTINGS).items():
        own.conf.set(key, value)
    return own


def _running() -> SparkSession | None:
    """Return the session of this process, whichever thread made it."""
    try:
        found = SparkSession.active()
    except PySparkException:
        return None
    return found if found.sparkContext._jsc is not None else None


def _catalogs(running: SparkSession) -> dict[str, str]:
    """Return where a session finds tables: a new session would know only what was set when Spark was started."""
    everything = getattr(running.conf, "getAll", {})  # Spark 3.5 does not tell
    return {key: value for key, value in everything.items() if key.startswith(CATALOGS)}


class SparkSource(SqlSource):
    """One protected table that Spark reads."""

    dialect = "spark"
    huge = "DECIMAL(38, 0)"
    headroom = ROW_BITS  # Spark sums 64 bits into 64 bits
    _counting: object = None  # for which rows COUNTING was made

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._meaning = meaning(table)
        self._lock = threading.RLock()
        found = table_name(table.location)
        assert found is not None
        self._place, self._from = found.sql("spark", identify=True), VIEW
        self._named = len(found.parts) != 2 or found.db.lower() not in FORMATS
        with self._failing():
            self._session = session(table.location.place)
            if self._named and self._session.catalog.getTable(self._place).tableType in ("VIEW", "TEMPORARY"):
                raise SourceFailed(f"the source of table {table.name} is a view: its changes could not be noticed")
        with self.current():
            self._state()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Raise what can be acted on; whatever Spark said stays here."""
        try:
            yield
        except FAILURES:
            raise SourceFailed(
                f"the source of table {self.table.name} can't be read",
                hint="see that Spark runs, and can read the table",
            ) from None

    @contextmanager
    def current(self) -> Iterator[None]:
        """Hold the session, with the table's columns as they are now."""
        with self._lock, self._failing():
            frame = self._table()
            frame.createOrReplaceTempView(VIEW)
            self._spelled = {field.name: field.dataType.simpleString() for field in frame.schema}
            self._types = {name: KINDS.get(re.split(r"\W", kind)[0], kind) for name, kind in self._spelled.items()}
            self._check_present()
            self._check_kinds()
            yield

    def _table(self) -> DataFrame:
        """Return the table as it is now: its columns and its files, whatever Spark remembers of it."""
        if self._named:
            self._session.catalog.refreshTable(self._place)
        return self._session.table(self._place)

    def _state(self) -> list[tuple[str, ...]]:
        """Return what is another whenever the rows are: the files of the table, or its snapshot in Iceberg."""
        found = self._files() or self._snapshot()
        if not found:
            raise SourceFailed(
                f"the files of the source of table {self.table.name} can't be listed: its changes could not be noticed"
            )
        return found

    def _files(self) -> list[tuple[str, ...]]:
        """Return path, length and time of every file of the table."""
        jvm, frame = self._session._jvm, self._table()
        assert jvm is not None
        told = jvm.scala.runtime.ScalaRunTime.stringOf  # a whole array in one call
        listed = told(frame._jdf.inputFiles()).removeprefix("Array(").removesuffix(")")  # URLs: no blank is in them
        folders: dict[str, set[str]] = {}
        for name in listed.split(", ") if listed else ():
            folder, _, file = name.rpartition("/")
            folders.setdefault(folder, set()).add(unquote(file))
        settings = self._session._jsc.hadoopConfiguration()
        found = []
        for folder, files in folders.items():
            path = jvm.org.apache.hadoop.fs.Path(jvm.java.net.URI(f"{folder}/"))
            status = told(path.getFileSystem(settings).listStatus(path))
            found += [entry for entry in FILE.findall(status) if entry[0].rpartition("/")[2] in files]
        return sorted(found)

    def _snapshot(self) -> list[tuple[str, ...]]:
        """Return which table of Iceberg it is, its snapshot, and its columns: they can be renamed without a new one."""
        properties = dict(self._session.sql(f"SHOW TBLPROPERTIES {self._place}").collect()) if self._named else {}
        if not properties.get("format", "").startswith("iceberg/"):
            return []
        jvm = self._session._jvm
        assert jvm is not None
        table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(self._session._jsparkSession, self._place)
        snapshot = table.currentSnapshot()
        rows = "empty" if snapshot is None else str(snapshot.snapshotId())
        return [(table.uuid().toString(), rows, str(table.schema().schemaId()))]

    def fingerprint(self) -> str:
        """Return a text that changes when a file is added, removed, replaced or written, or read in another way."""
        with self._failing():
            state = self._state()
        return hashlib.sha256(f"{state}:{self._meaning}".encode()).hexdigest()

    @contextmanager
    def reading(self) -> Iterator[str]:
        """Hold the table, and give what its files or its snapshot are: as late as the file system is."""
        with self.current():
            found = hashlib.sha256(f"{self._state()}".encode()).hexdigest()
            with self.holding((found, self._spelled)):
                yield found

    def _rows(self, used: Collection[str], touched: Collection[str] = (), wanted: Sequence[str] = ()) -> str:
        """Return the rows that count; of a table that is held, those of units are chosen once, and kept by Spark."""
        if self._rows_held is None or self.table.unit is None:
            return super()._rows(used, touched, wanted)
        if self._counting != self._rows_held:
            chosen = f"SELECT * FROM {super()._rows(self._readable())}"
            with self._limited():
                # A plan that is cached would be run again whenever the table is looked at anew.
                self._session.sql(chosen).localCheckpoint().createOrReplaceTempView(COUNTING)
            self._counting = self._rows_held
        return f"(SELECT * FROM {COUNTING}{where(wanted)}) AS k"

    def _forget(self) -> None:
        super()._forget()
        self._counting = None
        with suppress(*FAILURES):
            self._session.catalog.dropTempView(COUNTING)

    def fetch(self, query: str, *, exact: bool = False) -> Fetched:
        with self._limited():
            frame = self._session.sql(query)
            rows, names = frame.collect(), frame.columns
        table = np.empty((len(rows), len(names)), dtype=object)
        for i, row in enumerate(rows):
            table[i] = [int(number) for number in row]
        return {name: table[:, i] if exact else table[:, i].astype(np.int64) for i, name in enumerate(names)}

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Cancel what takes too long."""
        context, group = self._session.sparkContext, str(uuid4())
        done, late = threading.Event(), threading.Event()

        def watch() -> None:
            wait = self.table.timeout
            while not done.wait(wait):
                late.set()
                context.cancelJobGroup(group)
                wait = 1.0  # again: what Spark is still planning has no job yet

        context.setJobGroup(group, "noisegate")
        threading.Thread(target=watch, daemon=True).start()
        try:
            with elsewhere(lambda: context.cancelJobGroup(group)):
                yield
        except FAILURES:
            self._forget()  # a worker may be gone, and what it kept with it
            if not late.is_set():
                raise
            limit = f"{self.table.timeout:g} seconds"
            raise SourceFailed(
                f"the source of table {self.table.name} took longer than {limit}", hint="raise timeout in the policy"
            ) from None
        finally:
            done.set()

    def relation(self, name: str, columns: Mapping[str, Ints]) -> str:
        arrays = (
            f"CAST(split('{','.join(map(str, array.tolist()))}', ',') AS ARRAY<BIGINT>)" for array in columns.values()
        )
        return f"(SELECT inline(arrays_zip({', '.join(arrays)})) AS ({', '.join(columns)})) AS {name}"

    def value(self, column: str, domain: Domain) -> str:
        name, kind = self.quoted(column), self._types[column]
        match domain.type, kind:
            case "integer", "decimal":
                ends = f"WHEN {name} > {MOST} THEN {MOST} WHEN {name} < {LEAST} THEN {LEAST}"
                return f"CASE {ends} ELSE CAST(round({name}, 0) AS BIGINT) END"
            case "integer", "double":
                top, bottom = self.double(2**63), self.double(LEAST)
                ends = f"WHEN {name} >= {top} THEN {MOST} WHEN {name} < {bottom} THEN {LEAST}"
                return f"CASE WHEN isnan({name}) THEN NULL {ends} ELSE CAST(rint({name}) AS BIGINT) END"
            case "float", "double":
                return f"CASE WHEN isnan({name}) THEN NULL ELSE CAST({name} AS DOUBLE) END"
            case "float", _:
                return f"CAST({name} AS DOUBLE)"
            case "text", "text":
                return self._bytewise(column)
            case "text", _:
                return f"CAST({name} AS STRING)"
            case "date", "timestamp" | "timestamptz":
                return f"CAST({name} AS DATE)"
            case "timestamp", "timestamp":
                return f"CAST({name} AS TIMESTAMP)"
            case "timestamp", "date":
                # A date that no timestamp reaches would be an error; it is beyond every bound.
                first, last = "DATE '0001-01-01'", "DATE '9999-12-31'"
                near = f"CASE WHEN {name} < {first} THEN {first} WHEN {name} > {last} THEN {last} ELSE {name} END"
                return f"CAST({near} AS TIMESTAMP)"
        return name

    def _bytewise(self, column: str) -> str:
        """Return a text compared by its bytes: a column may have another collation."""
        name = self.quoted(column)
        return name if self._spelled[column] == "string" else f"(CAST({name} AS STRING) COLLATE UTF8_BINARY)"

    def is_integer(self, column: str) -> bool:
        return self._types[column] == "integer"

    def key(self, column: str) -> str:
        return self._bytewise(column) if self._types[column] == "text" else self.quoted(column)

    def digest(self, parts: Sequence[str]) -> str:
        return f"md5(CAST(concat_ws('|', {', '.join(f'CAST({part} AS STRING)' for part in parts)}) AS BINARY))"

    def quotient(self, number: str, by: object, *, huge: bool = False) -> str:  # noqa: ARG002 - one word for all
        return f"(({number}) DIV {by})"

    def days(self, found: str, first: str) -> str:
        return f"datediff({found}, {first})"

    def microseconds(self, found: str, first: str) -> str:
        return f"unix_micros({found}) - unix_micros({first})"

    def close(self) -> None:
        """Drop what was kept. The Spark of this process goes on: others may use it, and it ends with the process."""
        self._forget()
