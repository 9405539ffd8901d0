"""Free answers that were given before, kept as long as nothing new is released: the same bytes without the planning.

Only answers that cost nothing are kept. Asked again on the same history and under the same settings, such a question
has the same answer for every analyst, and is free for every analyst.
"""

from __future__ import annotations

import functools
import re
import sqlite3
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from contextlib import suppress
from pathlib import Path

from planner.sandbox import CLOCKS
from planner.settings import Settings
from proxy.answers import Outcome

MOST_ANSWERS = 1_000
MOST_ROWS = 2_000
LONGEST_SQL = 10_000

_CLOCK = re.compile("|".join((*CLOCKS, "current_", "localtime", "clock", "timeofday", r"\bage\s*\(")), re.IGNORECASE)
"""Words of questions whose answer changes by itself; it does no harm that other questions have them as well."""

Key = tuple[str, tuple[Hashable, ...], tuple[str, ...], Settings]


class Recall:
    """The kept answers of one server. Belongs to the event loop, which alone may use it."""

    def __init__(self, ledger: Path | None) -> None:
        """Watch an SQLite file; None keeps nothing: a server elsewhere can't be asked without waiting for it."""
        self._ledger = ledger
        self._watch: sqlite3.Connection | None = None
        self._answers: OrderedDict[Key, tuple[int, Outcome]] = OrderedDict()

    def stamp(self) -> int | None:
        """Return a number that changes with every write to the ledger, by any process; None if it can't be told."""
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
        """Return the answer to a question, if it is known and nothing was released since: `stamp` is of now."""
        found = self._answers.get(key) if key is not None else None
        if key is None or found is None:
            return None
        if found[0] != stamp:
            del self._answers[key]
            return None
        self._answers.move_to_end(key)
        return found[1]

    def put(self, key: Key | None, outcome: Outcome, *, stamp: int | None) -> None:
        """Keep an answer that was free, if the ledger is as it was at `stamp`, before it was asked for."""
        if key is None or stamp is None or outcome.cost or outcome.plan is None or len(outcome.rows) > MOST_ROWS:
            return
        if stamp != self.stamp() or not outcome.plan.repeatable:
            return
        self._answers[key] = stamp, outcome
        while len(self._answers) > MOST_ANSWERS:
            self._answers.popitem(last=False)

    def close(self) -> None:
        if self._watch is not None:
            with suppress(sqlite3.Error):
                self._watch.close()


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


@functools.lru_cache(maxsize=MOST_ANSWERS)
def _is_timeless(sql: str) -> bool:
    return len(sql) <= LONGEST_SQL and _CLOCK.search(sql) is None
