"""The gate: one for each policy. It opens what is needed, hands out sessions, and does what the curator asks.

What happens to a statement is in planner/session.py.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from planner.basics.errors import BadValue, Forbidden, UnknownAnalyst
from planner.calls.choose import choose
from planner.calls.rounds import rounds
from planner.calls.verify import verify
from planner.cells.costs import rho_of
from planner.ledger.ledger import Ledger
from planner.policy.file import load
from planner.session import Session
from planner.shared import Shared
from planner.sources.measure import Meter

FUNCTIONS = {function.name: function for function in (choose.FUNCTION, verify.FUNCTION, *rounds.FUNCTIONS)}
"""What can be called in FROM, as noisegate.name(…)."""


class Gate(Shared):
    """Guards the tables of one policy; threads may share it."""

    @classmethod
    def open(cls, path: str | Path) -> Gate:
        """Return the gate of a policy file; raises if the policy, the ledger or a source can't be used."""
        found = load(Path(path))
        ledger = Ledger.open(found.ledger)
        try:
            return cls(found, ledger, FUNCTIONS)
        except BaseException:
            ledger.close()
            raise

    def session(self, analyst: str | None = None) -> Session:
        """Return a session of an analyst; None stands for the only one that there is."""
        names = list(self.policy.analysts)
        if analyst is None and len(names) == 1:
            analyst = names[0]
        if analyst is None or analyst not in self.policy.analysts:
            who = f"there is no analyst {analyst}" if analyst else "an analyst is needed"
            raise UnknownAnalyst(who, hint=f"the policy has: {', '.join(names)}")
        return Session(self, analyst)

    def move(self, share: str, *, source: str, target: str) -> None:
        """Move a part of the budget from one analyst's account to another's, durably; the sum stays what it was."""
        try:
            amount = Fraction(share)
        except (ValueError, ZeroDivisionError):
            amount = Fraction(0)
        if not 0 < amount <= 1:
            raise BadValue(f"a share lies between 0 and 1, got {share}", hint="for example: --move 0.1 ann bob")
        for name in (source, target):
            if name not in self.policy.analysts:
                raise UnknownAnalyst(
                    f"there is no analyst {name}", hint=f"there are: {', '.join(self.policy.analysts)}"
                )
        if source == target:
            raise BadValue(f"{source} can't move a share to themselves", hint="name two analysts")
        self.ledger.move(amount, source=source, target=target, caps=self.caps(source))

    def refresh(self, table: str) -> int:
        """Start a new version of a table's data: history stays charged, and is neither reused nor shared by cells."""
        return self._meter(table).refresh()

    def paid(self, table: str) -> tuple[str, Fraction]:
        """Return the population of a protected table, and what it has paid in rho: a refresh gives nothing of it back.

        A cell of the table's present data that has paid less than the dearest one loses that lead at a refresh.
        """
        population = self._meter(table).table.population
        return population, rho_of(self.ledger.spent(population))

    def _meter(self, table: str) -> Meter:
        if table not in self.meters:
            raise Forbidden(f"there is no protected table {table}", hint=f"there are: {', '.join(self.meters)}")
        return self.meters[table]

    def close(self) -> None:
        for meter in self.meters.values():
            meter.close()
        self.ledger.close()
