"""A gate that was just opened: many threads ask their first questions at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from planner.gate import Gate
from proxy.catalog import Catalog

PEOPLE = 16

QUESTIONS = [
    "EXPLAIN SELECT strlen(sex), count(*) FROM adult GROUP BY 1",
    "EXPLAIN SELECT count(*) FROM adult WHERE bit_length(race) < 3",
    "EXPLAIN SELECT age, hours, count(*) FROM adult GROUP BY 1, 2",
    "EXPLAIN SELECT education, race, workclass, count(*) FROM adult GROUP BY 1, 2, 3",
    "SELECT sex, count(*) FROM adult GROUP BY sex",
    "SELECT * FROM noisegate.budget",
    "SELECT starts_with(relname, 'pg') FROM pg_class",
    "SELECT column_name FROM information_schema.columns",
]


def test_many_first_questions_at_once_are_all_answered(adult_policy: Path) -> None:
    """A connection of DuckDB's is one thread's at a time, and the first questions find out what there is."""
    for _ in range(3):
        gate, together = Gate.open(adult_policy), threading.Barrier(PEOPLE)

        def ask(i: int, gate: Gate = gate, together: threading.Barrier = together) -> int:
            analyst, sql = ("ann", "bob")[i % 2], QUESTIONS[i % len(QUESTIONS)]
            session = gate.session(analyst)
            together.wait()
            catalog = Catalog(gate, analyst, database="noisegate", settings=lambda _: None)
            return len(catalog.execute(sql, []).rows if catalog.handles(sql) else session.execute(sql).rows)

        with ThreadPoolExecutor(PEOPLE) as pool:
            found = list(pool.map(ask, range(PEOPLE)))
        gate.close()
        assert min(found) > 0
