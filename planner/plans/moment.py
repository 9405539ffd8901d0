"""The moment at which a statement began: what a plan is about, and what the commit checks still to hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from planner.history.recall import History
from planner.ledger.accounts import Charge, Edition, Quote, Release
from planner.ledger.ledger import Ledger
from planner.ledger.snapshot import Snapshot
from planner.policy.table import Table
from planner.sources.measure import Meter


class Moment:
    """What was true when a statement began, read once: versions of the data, the history, and what was spent.

    Guarantee: a plan about it is only paid for if the versions of the data are still these and no cap is passed by
    then. Of the history it may know more than this, never less.
    """

    def __init__(self, snapshot: Snapshot, meters: Mapping[str, Meter], histories: Mapping[str, History]) -> None:
        self._snapshot, self._meters, self._histories = snapshot, meters, histories
        self._versions: dict[tuple[str, int | None], int] = {}

    def table(self, name: str) -> Table:
        return self._meters[name].table

    def edition(self, table: str) -> Edition:
        """Return the version of a table's data, and what is recorded about it."""
        return self._snapshot.edition(table)

    def version(self, table: str, *, as_of: int | None = None) -> int:
        """Return the version of the data that answers are about: today's, or that of an earlier release.

        Today's is refused if the source has changed without a refresh.
        """
        if (table, as_of) not in self._versions:
            here = self._meters[table].at(self.edition(table))
            found = here.version() if as_of is None else self._snapshot.version_at(table, as_of)
            self._versions[table, as_of] = found
        return self._versions[table, as_of]

    def history(self, table: str) -> History:
        """Return what was released about a table, as far as it was by then."""
        return self._histories[table].read(self._snapshot)

    def find(self, question: str, *, table: str | None = None) -> list[Release]:
        """Return the releases that answer a question, on whatever version of the data, newest first."""
        return self._snapshot.find(question, table=table)

    def after(self, ledger: Ledger) -> Moment:
        """Return the same with what was spent here since: what others did meanwhile may be missing."""
        return Moment(ledger.now(self._snapshot), self._meters, self._histories)

    @property
    def moved(self) -> Mapping[str, Fraction]:
        """Return by how much each account's share of the budget was changed."""
        return self._snapshot.moved

    def quote(self, charges: Sequence[Charge], *, analyst: str, populations: Sequence[str] = ()) -> list[Quote]:
        """Return, for each population concerned, what is spent before and after the charges."""
        return self._snapshot.quote(charges, analyst=analyst, populations=populations)
