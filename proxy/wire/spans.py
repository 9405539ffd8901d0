"""Two kinds of value that Python has no class for."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass


class Named(int):
    """An oid that stands for something with a name: a regclass, a regtype."""

    name: str

    def __new__(cls, oid: int, name: str) -> Named:
        found = super().__new__(cls, oid)
        found.name = name
        return found

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Interval:
    """A span of time whose months and days have no fixed length."""

    months: int = 0
    days: int = 0
    microseconds: int = 0

    @classmethod
    def of(cls, span: dt.timedelta) -> Interval:
        return cls(0, span.days, span.seconds * 1_000_000 + span.microseconds)
