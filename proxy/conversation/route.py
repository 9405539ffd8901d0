"""Where a question goes: to the catalog, if it names no table of the policy's, or through the gate.

Everything here may take its time, and is called in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from sys import getsizeof
from typing import Protocol

from planner.basics.errors import Refusal
from planner.plans.explain import Explanation
from planner.plans.presence import Notice
from planner.plans.result import Columns
from planner.plans.wording import percent
from planner.session import Session
from planner.sql import statement
from proxy.catalog.types import Column, Description, Table, column_of
from proxy.conversation.parameters import parameter_types, sample
from proxy.conversation.ticket import Ticket
from proxy.show.render import cost_text


class Answers(Protocol):
    """What answers questions about the catalog, and SELECTs without a table."""

    def handles(self, sql: str) -> bool: ...

    def describe(self, sql: str, declared: Sequence[int] = ()) -> Description: ...

    def execute(self, sql: str, parameters: Sequence[object], declared: Sequence[int] = ()) -> Table: ...


@dataclass(frozen=True)
class Price:
    """What a client and the log are told of the way of an answer; the plan itself holds all that was known for it.

    `tables` as in Explanation.
    """

    path: str
    repeatable: bool
    tables: frozenset[str] | None
    notice: str
    detail: str | None = None

    @classmethod
    def of(cls, plan: Explanation, cost: Fraction) -> Price:
        """Return what an answer cost, as a notice and its detail."""
        if not cost:
            return cls(plan.path, plan.repeatable, plan.tables, cost_text(plan))
        left = percent(1 - plan.rho_after / plan.budget)
        detail = f"rho {float(cost):.6g} was charged on the dearest cell"
        return cls(plan.path, plan.repeatable, plan.tables, f"{cost_text(plan)}, left {left}", detail)


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a statement gave: a tag, rows if it has columns, and a price if the gate answered it.

    `written` keeps the rows as bytes, by the formats that they were asked for in.
    """

    tag: str
    columns: tuple[Column, ...] = ()
    rows: Sequence[tuple[object, ...]] = field(default_factory=list)
    price: Price | None = None
    cost: Fraction = Fraction(0)
    notices: tuple[Notice, ...] = ()
    written: dict[tuple[int, ...], bytes] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def size(self) -> int:
        """About how many bytes of memory the rows take."""
        return size_of(self.rows)


SAMPLE = 100
"""How many rows, spread evenly over all of them, are measured to estimate the size of all."""


def size_of(rows: Sequence[tuple[object, ...]]) -> int:
    """Return about how many bytes of memory rows take.

    >>> 50_000 < size_of([(1, "x" * 1000)] * 50) < 70_000
    True
    """
    if not rows:
        return 0
    if isinstance(rows, Columns) and not any(array.dtype.hasobject for array in rows.arrays):
        return sum(array.nbytes for array in rows.arrays)
    some = [rows[place] for place in range(0, len(rows), -(-len(rows) // SAMPLE))]
    return sum(getsizeof(row) + sum(map(getsizeof, row)) for row in some) * len(rows) // len(some)


class Router:
    """Sends each question of a session to the catalog or to the gate."""

    def __init__(self, session: Session, make_catalog: Callable[[], Answers]) -> None:
        self.session = session
        self._make_catalog = make_catalog

    @cached_property
    def catalog(self) -> Answers:
        return self._make_catalog()

    def check(self, sql: str) -> None:
        """Raise if the text is not a statement that can be run; tables and columns are not looked at."""
        if not self.catalog.handles(sql):
            statement.read(sql)

    def describe(self, sql: str, stated: Sequence[int]) -> Description:
        """Return parameters and columns of a question, before any value is known; spends nothing."""
        if self.catalog.handles(sql):
            found = self.catalog.describe(sql, stated)
            return Description(found.columns, _merged(stated, found.parameters))
        types = parameter_types(sql, stated, self.session.gate.catalog.types)
        return Description(self._columns(sql, [sample(oid) for oid in types]), types)

    def types(self, sql: str, stated: Sequence[int]) -> tuple[int, ...]:
        """Return the types of the parameters only."""
        if self.catalog.handles(sql):
            return _merged(stated, self.catalog.describe(sql, stated).parameters)
        return parameter_types(sql, stated, self.session.gate.catalog.types)

    def _columns(self, sql: str, values: Sequence[object]) -> tuple[Column, ...]:
        """Return the columns, with some values for the parameters; with NULL where those do not fit."""
        try:
            return self.columns(sql, values)
        except Refusal:
            if not values:
                raise
            try:
                return self.columns(sql, [None] * len(values))
            except Refusal:
                pass
            raise

    def columns(self, sql: str, values: Sequence[object], types: Sequence[int] = ()) -> tuple[Column, ...]:
        """Return the columns of a question with its values; spends nothing."""
        if self.catalog.handles(sql):
            return self.catalog.describe(sql, types).columns
        return tuple(column_of(column) for column in self.session.describe(sql, values))

    def ask(self, sql: str, values: Sequence[object], types: Sequence[int], ticket: Ticket) -> Outcome:
        """Return the answer; what it newly releases is charged."""
        ticket.step("planning")
        if self.catalog.handles(sql):
            table = self.catalog.execute(sql, values, types)
            return Outcome(tag=f"SELECT {len(table.rows)}", columns=table.columns, rows=table.rows)
        result = self.session.execute(sql, values, on_step=ticket.step)
        columns = tuple(column_of(column) for column in result.columns)
        price = None if result.plan is None else Price.of(result.plan, result.cost)
        return Outcome(
            tag=result.tag, columns=columns, rows=result.rows, price=price, cost=result.cost, notices=result.notices
        )


def _merged(stated: Sequence[int], found: Sequence[int]) -> tuple[int, ...]:
    longer = max(len(stated), len(found))
    pairs = ((stated[i] if i < len(stated) else 0, found[i] if i < len(found) else 25) for i in range(longer))
    return tuple(mine or theirs for mine, theirs in pairs)
