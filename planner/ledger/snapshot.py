"""What a ledger held at one moment: versions of the data, shares that were moved, what was spent, and what was told.

Releases are never changed or removed, so what is looked up later with a number up to `last` is what stood there then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from planner.ledger.accounts import Charge, Content, Edition, Quote, Release, View


class Book(Protocol):
    """Where more is looked up, and quotes are worked out: the ledger."""

    def find(self, question: str, *, table: str | None = None) -> list[Release]: ...
    def contents(self, table: str, *, after: int) -> tuple[int, list[Content]]: ...
    def version_at(self, table: str, number: int) -> int: ...
    def quoted(
        self, view: View, charges: Sequence[Charge], *, analyst: str, populations: Sequence[str], moved: Fraction
    ) -> list[Quote]: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """One moment of a ledger, read in one transaction; what was not asked for then is looked up when it is needed."""

    book: Book
    view: View
    editions: Mapping[str, Edition]
    moved: Mapping[str, Fraction]
    told: Mapping[str, tuple[int, Sequence[Content]]] = field(default_factory=dict)  # by table, with where it begins
    found: dict[tuple[str, str | None], list[Release]] = field(default_factory=dict)  # by question and table

    @property
    def last(self) -> int:
        """Return the number of the last release."""
        return self.view.last_id

    def edition(self, table: str) -> Edition:
        """Return the version of a table's data that is current; they count from 1."""
        return self.editions.get(table, Edition(1))

    def version_at(self, table: str, number: int) -> int:
        """Return the last version of the table's data that releases up to this one were about."""
        return self.book.version_at(table, number)

    def find(self, question: str, *, table: str | None = None) -> list[Release]:
        """Return the releases that answer a question, on whatever version of the data, newest first."""
        if (question, table) not in self.found:
            found = self.book.find(question, table=table)
            self.found[question, table] = [release for release in found if release.id <= self.last]
        return self.found[question, table]

    def contents(self, table: str, *, after: int) -> list[Content]:
        """Return what the releases about a table told, those with larger numbers than `after`."""
        if after >= self.last:
            return []
        begins, found = self.told.get(table, (self.last, ()))
        if begins > after:
            _, found = self.book.contents(table, after=after)
        return [content for content in found if after < content.id <= self.last]

    def quote(self, charges: Sequence[Charge], *, analyst: str, populations: Sequence[str] = ()) -> list[Quote]:
        """Return, for each population concerned, what is spent before and after the charges."""
        moved = self.moved.get(analyst, Fraction(0))
        return self.book.quoted(self.view, charges, analyst=analyst, populations=populations, moved=moved)
