"""What the server says about itself: one line an event, for people or as JSON.

Never in it: SQL text, values of parameters, passwords, or the text of an exception that is not ours. What an analyst
asks is in the ledger, for those who may read that; here stand who, when, how long, at which cost, and SQLSTATEs.

Nobody waits for the log: lines are written by a thread of their own. If it can't keep up, because a disk is full or
nobody reads the pipe, lines are left out, and the next one that can be written says how many. That thread rests between
two looks at what there is to write: woken for each line, it would take the interpreter from whoever answers next.
"""

from __future__ import annotations

import functools
import json
import os
import queue
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

from proxy.errors import printable
from proxy.limits import MAX_WAITING_LINES

Value = str | int | float | bool | None

PAUSE = 0.02
"""Seconds that the writer rests once all is written; what is noted meanwhile it then writes in one go."""

BATCH = 200
"""Most lines that are written in one go."""


@dataclass(frozen=True)
class Entry:
    """Something that happened, and when."""

    seconds: float
    level: str
    event: str
    details: Mapping[str, Value]


class Journal:
    """Writes events to a stream; threads may share it.

    Guarantee: no call but `close` waits for the stream, and none fails because of it.
    """

    def __init__(self, stream: TextIO, *, form: str = "text", process: int | None = None) -> None:
        self._stream, self._form, self._process = stream, form, process
        self._waiting: queue.Queue[Entry | None] = queue.Queue(MAX_WAITING_LINES)
        self._left_out, self._counting = 0, threading.Lock()
        self._writer = threading.Thread(target=self._write_all, name="journal", daemon=True)
        self._writer.start()

    def info(self, event: str, **details: Value) -> None:
        """Note what happened."""
        self._write("info", event, details)

    def warn(self, event: str, **details: Value) -> None:
        """Note what an operator should look at."""
        self._write("warning", event, details)

    def crash(self, event: str, error: BaseException) -> None:
        """Note an error of ours: its class and where it was raised, never its text."""
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        place = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
        self._write("error", event, {"error": type(error).__name__, "at": place})

    def _write(self, level: str, event: str, details: Mapping[str, Value]) -> None:
        try:
            self._waiting.put_nowait(Entry(time.time(), level, event, details))
        except queue.Full:
            self._leave_out(1)

    def close(self, patience: float = 2.0) -> None:
        """Write the lines that wait, for at most `patience` seconds."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=patience)
        self._writer.join(patience)

    def _write_all(self) -> None:
        closed = False
        while not closed:
            found = self._some()
            closed = None in found
            self._write_some([entry for entry in found if entry is not None])
            for _ in found:
                self._waiting.task_done()
            if self._waiting.empty() and not closed:
                time.sleep(PAUSE)

    def _write_some(self, entries: list[Entry]) -> None:
        """Write entries, and before them how many were left out: past the queue, where there may be no room for it."""
        missing = self._left_out
        if missing:
            entries = [Entry(time.time(), "warning", "lines left out", {"number": missing}), *entries]
        lost = _write_out(self._stream, "".join(map(self._line, entries)))
        said = missing if lost < len(entries) else min(missing, 1)  # what says so is no line that was left out
        self._leave_out(lost - said)

    def _leave_out(self, lines: int) -> None:
        with self._counting:
            self._left_out += lines

    def _some(self) -> list[Entry | None]:
        """Return what is to be written next, at least one; None among it is the end."""
        found = [self._waiting.get()]
        with suppress(queue.Empty):
            while len(found) < BATCH:
                found.append(self._waiting.get_nowait())
        return found

    def _line(self, entry: Entry) -> str:
        now = f"{_second(int(entry.seconds))}.{int(entry.seconds * 1000) % 1000:03d}Z"
        given = (*entry.details.items(), ("worker", self._process))
        known = {name: value for name, value in given if value is not None}
        write = _as_json if self._form == "json" else as_text
        return write(now, entry.level, entry.event, known) + "\n"


def _as_json(now: str, level: str, event: str, details: Mapping[str, Value]) -> str:
    return json.dumps({"time": now, "level": level, "event": event, **details})


def _write_out(stream: TextIO, text: str) -> int:
    """Write lines to a stream and return how many of them could not be.

    If it is a file, they are written past its buffer: whoever waits there holds no lock of Python's.
    """
    data = text.encode("utf-8", "backslashreplace")
    try:
        descriptor = _descriptor(stream)
        if descriptor is None:
            stream.write(text)
            return 0
        while data:
            data = data[os.write(descriptor, data) :]
    except (OSError, ValueError):  # the disk is full, nobody reads it any more, or it was closed
        return data.count(b"\n")
    return 0


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


@functools.lru_cache(maxsize=1)
def _second(number: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(number))


def as_text(now: str, level: str, event: str, details: Mapping[str, Value]) -> str:
    """Return an event as a line for people.

    >>> as_text("12:00:00Z", "info", "answered", {"analyst": "ann", "seconds": 0.0123, "cost": 0.00041})
    '12:00:00Z answered analyst=ann seconds=0.0123 cost=0.00041'
    """
    words = [now, *([f"{level}:"] if level != "info" else []), event]
    line = " ".join([*words, *(f"{name}={_shown(value)}" for name, value in details.items())])
    return line if line.isprintable() else printable(line)


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    return json.dumps(text) if " " in text or not text else text
