"""What the server says about itself: one line an event, for people or as JSON.

Never in it: SQL text, values of parameters, passwords, or the text of an exception that is not ours. What an analyst
asks is in the ledger, for those who may read that; here stand who, when, how long, at which cost, and SQLSTATEs.

Nobody waits for the log: lines are written by a thread of their own. If it can't keep up, because a disk is full or
nobody reads the pipe, lines are left out, and the next one that can be written says how many.
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
from typing import TextIO

from proxy.errors import printable
from proxy.limits import MAX_WAITING_LINES

Value = str | int | float | bool | None


class Journal:
    """Writes events to a stream; threads may share it.

    Guarantee: no call but `close` waits for the stream, and none fails because of it.
    """

    def __init__(self, stream: TextIO, *, form: str = "text", process: int | None = None) -> None:
        self._stream, self._form, self._process = stream, form, process
        self._waiting: queue.Queue[str | None] = queue.Queue(MAX_WAITING_LINES)
        self._left_out = 0
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

    def _write(self, level: str, event: str, details: dict[str, Value]) -> None:
        seconds = time.time()
        now = f"{_second(int(seconds))}.{int(seconds * 1000) % 1000:03d}Z"
        known = {name: value for name, value in (*details.items(), ("worker", self._process)) if value is not None}
        line = self._as_json(now, level, event, known) if self._form == "json" else as_text(now, level, event, known)
        try:
            self._waiting.put_nowait(line + "\n")
        except queue.Full:
            self._left_out += 1

    def close(self, patience: float = 2.0) -> None:
        """Write the lines that wait, for at most `patience` seconds."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=patience)
        self._writer.join(patience)

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            if self._left_out:
                missing, self._left_out = self._left_out, 0
                self.warn("lines left out", number=missing)
            try:
                _write_out(self._stream, line)
            except (OSError, ValueError):  # the disk is full, nobody reads it any more, or it was closed
                self._left_out += 1
            self._waiting.task_done()

    @staticmethod
    def _as_json(now: str, level: str, event: str, details: Mapping[str, Value]) -> str:
        return json.dumps({"time": now, "level": level, "event": event, **details})


def _write_out(stream: TextIO, line: str) -> None:
    """Write a line to a stream, past its buffer if it is a file: whoever waits there holds no lock of Python's."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        stream.write(line)
        return
    data = line.encode("utf-8", "backslashreplace")
    while data:
        data = data[os.write(descriptor, data) :]


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
