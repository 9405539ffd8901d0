"""Free answers that were given before, kept while nothing new speaks of their tables: the same bytes without planning.

Only answers that cost nothing are kept. Asked again on the same history and under the same settings, such a question
has the same answer for every analyst, and is free for every analyst. Its history is what was released about the tables
that it is about, and the version of their data; what is told of the ledger itself changes with every write to it.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from planner.basics.cache import BoundedCache
from planner.basics.nodes import CLOCKS
from planner.plans.settings import Settings
from proxy.conversation.route import Outcome
from proxy.limits import ANSWER_BYTES, MAX_CACHED_ROWS, MAX_CACHED_SQL

_CLOCK = re.compile("|".join((*CLOCKS, "current_", "localtime", "clock", "timeofday", r"\bage\s*\(")), re.IGNORECASE)
"""Words of questions whose answer changes by itself; it does no harm that other questions have them as well."""

Key = tuple[str, tuple[Hashable, ...], tuple[str, ...], Settings]

NEW = 'SELECT id, "table", hash FROM releases WHERE id > ? ORDER BY id'
VERSIONS = 'SELECT "table", max(version) FROM versions GROUP BY "table"'
HEAD = "SELECT value FROM meta WHERE name = 'head'"


@dataclass(frozen=True)
class Stamp:
    """What a ledger held at a moment, as far as answers depend on it.

    Args:
        number: changes with every write to the ledger, by any process.
        last: number and hash of the last release.
        head: what the ledger says its last hash is, or that it was moved.
        releases: of every table the number of its last release.
        versions: of every table the version of its data.
    """

    number: int
    last: tuple[int, str]
    head: str
    releases: Mapping[str, int]
    versions: Mapping[str, int]

    def of(self, tables: Collection[str] | None) -> Hashable:
        """Return what changes whenever an answer about these tables may; None stands for all that is in the ledger."""
        if tables is None or self.head != self.last[1]:
            return self.number
        return tuple((self.releases.get(table), self.versions.get(table)) for table in sorted(tables))


class AnswerCache:
    """The kept answers of one server. Belongs to the event loop, which alone may use it."""

    def __init__(self, ledger: Path | None) -> None:
        """Watch an SQLite file; None keeps nothing: a server elsewhere can't be asked without waiting for it."""
        self._ledger = ledger
        self._watch: sqlite3.Connection | None = None
        self._stamp: Stamp | None = None
        self._answers = BoundedCache[tuple[Outcome, Hashable]](ANSWER_BYTES)

    @property
    def bytes(self) -> int:
        """About how many bytes are kept."""
        return self._answers.bytes

    def stamp(self) -> Stamp | None:
        """Return what the ledger holds now; None if it can't be told at once."""
        if self._ledger is None:
            return None
        try:
            if self._watch is None:
                uri = f"{self._ledger.as_uri()}?mode=ro"
                self._watch = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)
            if self._stamp is None or self._stamp.number != _number(self._watch):
                self._stamp = _read(self._watch, self._stamp)
            return self._stamp
        except sqlite3.Error:
            return None

    def get(self, key: Key | None, stamp: Stamp | None) -> Outcome | None:
        """Return the answer to a question, if it is known and nothing it depends on has changed: `stamp` is of now."""
        found = self._answers.get(key) if key is not None and stamp is not None else None
        if found is None or stamp is None or found[0].price is None:
            return None
        outcome, then = found
        return outcome if stamp.of(found[0].price.tables) == then else None

    def put(self, key: Key | None, outcome: Outcome, *, stamp: Stamp | None) -> None:
        """Keep an answer that was free, if its tables are as they were at `stamp`, before it was asked for."""
        if key is None or stamp is None or outcome.cost or outcome.price is None or len(outcome.rows) > MAX_CACHED_ROWS:
            return
        now, then = self.stamp(), stamp.of(outcome.price.tables)
        if now is None or now.of(outcome.price.tables) != then or not outcome.price.repeatable:
            return
        self._answers.put(key, (outcome, then), 2 * outcome.size)

    def close(self) -> None:
        if self._watch is not None:
            with suppress(sqlite3.Error):
                self._watch.close()


def _number(watch: sqlite3.Connection) -> int:
    (number,) = watch.execute("PRAGMA data_version").fetchone()
    return int(number)


def _read(watch: sqlite3.Connection, before: Stamp | None) -> Stamp:
    """Return what a ledger holds, all of it at one moment; of the releases only the new ones are read."""
    last, releases = (before.last, dict(before.releases)) if before is not None else ((0, ""), {})
    watch.execute("BEGIN")
    try:
        for number, table, row_hash in watch.execute(NEW, (last[0],)):
            last, releases[table] = (number, row_hash), number
        (head,) = watch.execute(HEAD).fetchone() or ("",)
        return Stamp(_number(watch), last, head, releases, dict(watch.execute(VERSIONS)))
    finally:
        watch.execute("ROLLBACK")


def key_of(sql: str, values: Sequence[object], settings: Settings) -> Key | None:
    """Return under which key an answer is kept; None for questions about the time, and those that are too long."""
    if not values:
        return (sql.strip(), (), (), settings) if _is_timeless(sql) else None
    if not _is_timeless(sql):
        return None
    kinds = tuple(type(value).__name__ for value in values)  # 1, 1.0 and true are equal, and mean different things
    try:
        hash(tuple(values))
    except TypeError:
        return None
    return sql.strip(), tuple(values), kinds, settings


@functools.lru_cache(maxsize=1_000)
def _is_timeless(sql: str) -> bool:
    return len(sql) <= MAX_CACHED_SQL and _CLOCK.search(sql) is None
