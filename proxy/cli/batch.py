"""A file of queries to verify: reading it, and reporting on all of them at the end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from planner.basics.errors import BadValue, Refusal
from planner.calls.verify.verify import COLUMNS
from planner.duck.relations import OutputColumn
from planner.plans.result import Result
from planner.sql.statement import split, tokens_of

OPTIONS = ("tau", "epsilon", "decider", "delta")
OPTION = re.compile(rf"--[ \t]*({'|'.join(OPTIONS)})[ \t]*[:=][ \t]*([^\s,;]+)")
SHOWN = ("decision", "decider", "synthetic", "low", "high", "effective_tau")
"""The columns of a decision that a table for people shows."""


@dataclass(frozen=True)
class Query:
    """One query of a file, with the options that a comment gives it."""

    sql: str
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a query came to: its result, or why it was refused."""

    query: Query
    result: Result | None = None
    refusal: Refusal | None = None


def read(text: str) -> list[Query]:
    """Return the queries of a file, separated by semicolons; `-- tau: 5%` before or in a query is meant for it alone.

    >>> read("-- tau: 10\\nSELECT count(*) FROM s; SELECT 1")
    [Query(sql='SELECT count(*) FROM s', options={'tau': '10'}), Query(sql='SELECT 1', options={})]
    """
    pieces, start = split(tokens_of(text)), 0
    found = []
    for piece in pieces:
        first, last = piece[0].start, piece[-1].end
        inside = [(token.start, token.end) for token in piece]
        notes = [
            match
            for match in OPTION.finditer(text, start, last + 1)
            if not any(begin <= match.start() <= end for begin, end in inside)  # a text may hold two dashes
        ]
        found.append(Query(text[first : last + 1], {match[1]: match[2] for match in notes}))
        start = last + 1
    if not found:
        raise BadValue("the file has no queries", hint="write SELECTs, separated by semicolons")
    return found


def visible(result: Result, *, without: str = "") -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows that a table for people shows; columns without any value are left out."""
    names = [column.name for column in result.columns]
    hidden = {without, *COLUMNS} - {*SHOWN}
    kept = [i for i, name in enumerate(names) if name not in hidden and any(row[i] is not None for row in result.rows)]
    return [names[i] for i in kept], [tuple(row[i] for i in kept) for row in result.rows]


def notes(result: Result, columns: Sequence[str]) -> list[str]:
    """Return what some columns say, each text once: the reason as it is, others after the name of their column."""
    names = [column.name for column in result.columns]
    found = [(name, row[names.index(name)]) for name in columns for row in result.rows]
    return list(dict.fromkeys(text if name == "why" else f"{name}: {text}" for name, text in found if text))


def combined(outcomes: Sequence[Outcome]) -> Result:
    """Return all decisions as one result: number and text of the query, its group as text, and the decision."""
    head = (OutputColumn("query", "BIGINT"), OutputColumn("sql", "VARCHAR"), OutputColumn("group", "VARCHAR"))
    tail = (OutputColumn("error", "VARCHAR"),)
    columns = (*head, *(OutputColumn(name, kind) for name, kind in COLUMNS.items()), *tail)
    rows = [row for number, outcome in enumerate(outcomes, start=1) for row in _rows(number, outcome)]
    cost = sum((outcome.result.cost for outcome in outcomes if outcome.result is not None), Fraction(0))
    return Result(columns=columns, rows=rows, intervals=[(None,) * len(columns)] * len(rows), cost=cost)


def _rows(number: int, outcome: Outcome) -> Iterator[tuple[Any, ...]]:
    sql = " ".join(outcome.query.sql.split())
    if outcome.result is None:
        assert outcome.refusal is not None
        yield (number, sql, None, *(None for _ in COLUMNS), outcome.refusal.message)
        return
    names = [column.name for column in outcome.result.columns]
    for row in outcome.result.rows:
        values = dict(zip(names, row, strict=True))
        keys = [f"{name} = {values[name]}" for name in names if name not in COLUMNS]
        yield (number, sql, ", ".join(keys) or None, *(values[name] for name in COLUMNS), None)


def verdict(rows: Sequence[tuple[Any, ...]], columns: Sequence[OutputColumn]) -> str:
    """Return in words how many decisions are yes, no, or not made."""
    place = [column.name for column in columns].index("decision")
    found = [row[place] for row in rows]
    parts = [(found.count(True), "within tau"), (found.count(False), "not"), (found.count(None), "undecided")]
    return ", ".join(f"{count} {text}" for count, text in parts if count) or "nothing to decide"
