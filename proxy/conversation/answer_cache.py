"""Free answers that were given before, kept as long as nothing new is released: the same bytes without the planning.

Only answers that cost nothing are kept. Asked again on the same history and under the same settings, such a question
has the same answer for every analyst, and is free for every analyst.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Hashable, Sequence
from contextlib import suppress
from pathlib import Path

from planner.basics.cache import BoundedCache
from planner.basics.nodes import CLOCKS
from planner.plans.settings import Settings
from proxy.conversation.route import Outcome

MOST_BYTES = 64 * 2**20
"""About how many bytes all kept answers take, as rows and as they were sent."""

MOST_ROWS = 2_000
LONGEST_SQL = 10_000

_CLOCK = re.compile("|".join((*CLOCKS, "current_", "localtime", "clock", "timeofday", r"\bage\s*\(")), re.IGNORECASE)
"""Words in questions whose answer changes with time; another question that has one of them is merely not cached."""

Key = tuple[str, tuple[Hashable, ...], tuple[str, ...], Settings]


class AnswerCache:
    """The kept answers of one server. Belongs to the event loop, which alone may use it."""

    def __init__(self, ledger: Path | None) -> None:
        """Watch a ledger in SQLite. None turns the cache off: a ledger on a server can't be checked without waiting."""
        self._ledger = ledger
        self._watch: sqlite3.Connection | None = None
        self._stamp: int | None = None
        self._answers = BoundedCache[Outcome](MOST_BYTES)

    def stamp(self) -> int | None:
        """Return a number that changes with every write to the ledger, by any process; None if it can't be read."""
        if self._ledger is None:
            return None
        try:
            if self._watch is None:
                self._watch = sqlite3.connect(f"{self._ledger.as_uri()}?mode=ro", uri=True, timeout=0)
            (number,) = self._watch.execute("PRAGMA data_version").fetchone()
            return int(number)
        except sqlite3.Error:
            return None

    def get(self, key: Key | None, stamp: int | None) -> Outcome | None:
        """Return the cached answer, unless something was released since; `stamp` is the present one."""
        return self._answers.get(key) if key is not None and stamp is not None and stamp == self._stamp else None

    def put(self, key: Key | None, outcome: Outcome, *, stamp: int | None) -> None:
        """Keep a free answer, unless something was released since `stamp` was read, which was before the question."""
        if key is None or stamp is None or outcome.cost or outcome.price is None or len(outcome.rows) > MOST_ROWS:
            return
        if stamp != self.stamp() or not outcome.price.repeatable:
            return
        if stamp != self._stamp:  # something was released, and all that was kept is old
            self._stamp, self._answers = stamp, BoundedCache[Outcome](MOST_BYTES)
        self._answers.put(key, outcome, 2 * outcome.size)

    def close(self) -> None:
        if self._watch is not None:
            with suppress(sqlite3.Error):
                self._watch.close()


def key_of(sql: str, values: Sequence[object], settings: Settings) -> Key | None:
    """Return the cache key of a question; None if it mentions the time or is too long."""
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
    return len(sql) <= LONGEST_SQL and _CLOCK.search(sql) is None
