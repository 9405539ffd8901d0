"""What is said to a client, until it is sent: rows among it, written piece by piece."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from planner.plans.result import Columns
from proxy.catalog.types import Column
from proxy.conversation import columnar, copying
from proxy.conversation.portals import Portal, spread
from proxy.conversation.route import Outcome, size_of
from proxy.conversation.statements import Copy
from proxy.conversation.steps import SEND, Steps, StepsTo, Work
from proxy.wire import replies, rows
from proxy.wire.text import Encoder
from proxy.wire.values import Format, encoder

CHUNK, CHUNK_BYTES = 1_000, 2**18
"""Rows, and about how many bytes of memory they take, that are encoded at once; more goes out piece by piece."""

FEW, FEW_BYTES = 200, 2**16
"""Rows, and their bytes, that are encoded without another thread: in less than a millisecond."""


class Outbox:
    """The bytes that wait to be sent to one client."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []

    def say(self, data: bytes) -> None:
        """Have bytes sent, after all that was said before."""
        self._waiting.append(data)

    def take(self) -> bytes:
        """Return what is to be sent, once."""
        data = b"".join(self._waiting)
        self._waiting.clear()
        return data

    @property
    def size(self) -> int:
        """Return how many bytes wait to be sent."""
        return sum(map(len, self._waiting))

    def say_columns(self, columns: Sequence[Column], formats: Sequence[Format]) -> None:
        """Say which columns the rows will have, or that there will be none."""
        self.say(row_description(columns, spread(formats, len(columns))) if columns else replies.NO_DATA)

    def say_result(self, portal: Portal, *, most: int, describe: bool) -> StepsTo[int]:
        """Say the rows of a portal that has run, or the next `most` of them, and its tag; return how many."""
        outcome, statement = portal.outcome, portal.prepared.statement
        assert outcome is not None
        if isinstance(statement, Copy):
            return (yield from self._copy(statement, outcome))
        if outcome.columns:
            return (yield from self._rows(portal, outcome, most=most, describe=describe))
        self.say(replies.complete(outcome.tag))
        return 0

    def _rows(self, portal: Portal, outcome: Outcome, *, most: int, describe: bool) -> StepsTo[int]:
        count = len(outcome.columns)
        formats = [Format.BINARY] * count if portal.binary else spread(portal.formats, count)
        if describe:
            self.say(row_description(outcome.columns, formats))
        taken = portal.take(most)
        if _is_small(taken) and len(taken) == len(outcome.rows):
            self.say(_written(outcome, formats))
        else:
            encoders = _encoders(outcome.columns, formats)
            yield from self._chunks(taken, functools.partial(_data_rows, encoders=encoders))
        self._end_rows(portal, outcome, len(taken), most)
        return len(taken)

    def _end_rows(self, portal: Portal, outcome: Outcome, count: int, most: int) -> None:
        if most and count == most:
            self.say(replies.PORTAL_SUSPENDED)
            return
        verb = outcome.tag.partition(" ")[0]
        self.say(replies.complete(f"{verb} {count}" if " " in outcome.tag else verb))
        if portal.is_spent:
            portal.end()

    def _copy(self, copy: Copy, outcome: Outcome) -> StepsTo[int]:
        writer = copying.Writer(copy, outcome.columns)
        self.say(writer.start())
        yield from self._chunks(outcome.rows, writer.some)
        self.say(writer.end() + replies.complete(f"COPY {len(outcome.rows)}"))
        return len(outcome.rows)

    def _chunks(self, all_rows: Sequence[tuple[object, ...]], write: Callable[[Sequence[Any]], bytes]) -> Steps:
        """Encode rows piece by piece; a long result in another thread, and no faster than the client reads."""
        if _is_small(all_rows):
            self.say(write(all_rows))
            return
        count = _rows_at_once(all_rows)
        for start in range(0, len(all_rows), count):
            chunk = all_rows[start : start + count]
            self.say((yield Work("encode", functools.partial(write, chunk))))
            yield SEND


def _is_small(some: Sequence[tuple[object, ...]]) -> bool:
    return len(some) <= FEW and size_of(some) <= FEW_BYTES


def _rows_at_once(some: Sequence[tuple[object, ...]]) -> int:
    """Return how many rows of a result are encoded at once: fewer if they are long."""
    return max(1, min(CHUNK, CHUNK_BYTES * len(some) // max(1, size_of(some))))


def _data_rows(some: Sequence[Any], *, encoders: Sequence[Encoder]) -> bytes:
    return columnar.data_rows(some, encoders) if isinstance(some, Columns) else rows.data_rows(some, encoders)


def _encoders(columns: Sequence[Column], formats: Sequence[Format]) -> list[Encoder]:
    return [encoder(column.oid, form) for column, form in zip(columns, formats, strict=True)]


def _written(outcome: Outcome, formats: Sequence[Format]) -> bytes:
    """Return all rows of an outcome as bytes, written once: a free answer is sent many times."""
    key = tuple(formats)
    if key not in outcome.written:
        outcome.written[key] = rows.data_rows(outcome.rows, _encoders(outcome.columns, formats))
    return outcome.written[key]


def row_description(columns: Sequence[Column], formats: Sequence[Format]) -> bytes:
    """Return the RowDescription of columns in these formats."""
    return _row_description(tuple(columns), tuple(formats))


@functools.lru_cache(maxsize=1_000)
def _row_description(columns: tuple[Column, ...], formats: tuple[Format, ...]) -> bytes:
    fields = [
        replies.Field(column.name, column.oid, column.typlen, column.typmod, form)
        for column, form in zip(columns, formats, strict=True)
    ]
    return replies.row_description(fields)
