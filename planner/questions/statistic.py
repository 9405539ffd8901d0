"""What is asked of a synthetic table and of its original alike: which rows count in each group, and as which integers.

Everything here is public. Values are integers on a grid: a value is `unit` times its integer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mechanisms.deciders import claims
from planner.basics.errors import Unsupported
from planner.cells.workspace import Ints
from planner.counting.tally import Cut
from planner.questions.labelled import Labelled
from planner.questions.linear import Question, row_counts
from planner.sql.aggregates import AggregateKind

LARGEST_DENOMINATOR = 10**8
FINE = Fraction(1, 2**40)
"""Values that are no short decimals are rounded to this part of the largest one."""

ROUNDED = "round them, for example: median(round(x, 2))"


@dataclass(frozen=True, eq=False)
class Summed:
    """A count, a sum or an average: the last functional of a linear question, times `scale`, plus `shift` a row.

    Each cell has at most one place, so a row counts in one group, once. Where a pattern adds nothing to the first
    functional, its rows are absent: they count nowhere.
    """

    kind: AggregateKind  # count, sum or avg
    question: Question
    unit: Fraction
    scale: int = 1
    shift: int = 0
    p = Fraction(1, 2)  # no level is asked about: any will do

    @property
    def groups(self) -> int:
        return self.question.groups

    @cached_property
    def present(self) -> NDArray[np.bool_]:
        """Return for each pattern whether its rows count, shape (S,)."""
        return np.asarray(np.any(self.question.E[0] != 0, axis=1), np.bool_)

    @property
    def counted(self) -> tuple[Ints, Ints]:
        """Return the cells whose rows count, and the group of each."""
        places = self.present[self.question.pattern]
        return self.question.cell[places], self.question.group[places]

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that values are made of, beside the cell; single values are known for at most one."""
        return tuple(dict.fromkeys(column for column, _ in self.question.features))

    def affine(self, pattern: int) -> tuple[int, int]:
        """Return the value of a row at index 0 of the column, and by how much it grows with the index."""
        first, *more = self.question.E[-1, pattern]
        return self.scale * int(first) + self.shift, self.scale * int(more[0]) if more else 0

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """Return the least and the largest value that a row can add, exactly."""
        _, phi, pattern = self.question.points
        here = self.present[pattern]
        doubled = (self.question.E[-1][pattern] * phi).sum(axis=1)[here].tolist()
        values = [self.scale * (int(value) // 2) + self.shift for value in doubled] or [0]
        return min(values), max(values)

    @property
    def most(self) -> int:
        """Return the largest magnitude that a row can add."""
        return max(abs(end) for end in self.bounds)

    def total(self, functionals: Sequence[int]) -> tuple[int, int]:
        """Return the sum of the values and (0 for a sum) the number of rows, from what the functionals add up to."""
        rows = 0 if self.kind == AggregateKind.SUM else int(functionals[0])
        return self.scale * int(functionals[-1]) + self.shift * rows, rows

    @cached_property
    def cut(self) -> Cut | None:
        """Return ranges of the index in each of which, for every pattern, all values lie in one bucket of `claims`."""
        if not self.columns:
            return None
        domain = self.question.workspace.table.columns[self.columns[0]].domain
        assert domain is not None
        ends = [sign << power for power in range(claims.buckets_for(self.most)) for sign in (1, -1)]
        edges: set[int] = set()
        for constant, slope in {self.affine(pattern) for pattern in np.flatnonzero(self.present).tolist()}:
            for end in ends if slope else ():
                place = Fraction(end - constant, slope)  # where a value is 2^power or -2^power, still in its bucket
                leaving = (slope > 0) == (end > 0)  # with growing index, magnitudes grow beyond it, or fall to it
                edges.add(math.floor(place) + 1 if leaving else math.ceil(place))
        return Cut(self.columns[0], tuple(sorted(edge for edge in edges if 0 < edge < domain.size)))


@dataclass(frozen=True, eq=False)
class Ranked:
    """A quantile: label i of the question stands for unit * values[i], which increase."""

    question: Labelled
    unit: Fraction
    values: Ints
    kind: AggregateKind = AggregateKind.QUANTILE

    @property
    def groups(self) -> int:
        return self.question.groups

    @property
    def counted(self) -> tuple[Ints, Ints]:
        """Return the cells whose rows count, and the group of each."""
        places = self.question.label >= 0
        return self.question.cell[places], self.question.group[places]

    @property
    def p(self) -> Fraction:
        """Return the level of the quantile."""
        assert self.question.aggregate.p is not None
        return self.question.aggregate.p


Asked = Summed | Ranked


def sizes(asked: Asked) -> Question:
    """Return the question of how many rows count in each group."""
    return row_counts(asked.question.workspace, *asked.counted, groups=asked.groups)


def summed(kind: AggregateKind, question: Question, *, centre: float) -> Summed:
    """Return a count, a sum or an average of rows; an average's question is (number, sum around the centre)."""
    unit = _short(float(question.units[-1]))
    if kind != AggregateKind.AVG:
        return Summed(kind, question, unit)
    shift = _short(centre) / unit
    if shift.denominator > LARGEST_DENOMINATOR:
        shift = Fraction(round(shift))
    return Summed(kind, question, unit / shift.denominator, shift.denominator, shift.numerator)


def ranked(question: Labelled, values: Sequence[Any]) -> Ranked:
    """Return a quantile of numbers: the value of every label, in increasing order.

    Different labels stay different integers, or the query is refused, whatever the data: a statistic of labels that
    were merged could fail on some tables and not on others, which would tell of the rows.
    """
    if not all(math.isfinite(value) for value in values):
        raise Unsupported("a quantile of values that are not finite can't be verified", hint=ROUNDED)
    exact = [Fraction(str(value)) for value in values]  # a float is the short decimal that it is written as
    unit = Fraction(1)
    for value in exact:
        unit = Fraction(1, math.lcm(unit.denominator, value.denominator))
        if unit.denominator > LARGEST_DENOMINATOR:
            unit = max(map(abs, exact)) * FINE
            break
    integers = [round(value / unit) for value in exact]
    if any(after <= before for before, after in pairwise(integers)) or max(map(abs, integers), default=0) >= 2**62:
        raise Unsupported("the values of this quantile are too many digits apart to be told exactly", hint=ROUNDED)
    return Ranked(question, unit, np.array(integers, dtype=np.int64))


def _short(number: float) -> Fraction:
    """Return the short decimal, or other simple fraction, that a float stands for; else the float itself.

    >>> _short(0.1), _short(1 / 3 * 3), _short(2.0**-70) == 2.0**-70
    (Fraction(1, 10), Fraction(1, 1), True)
    """
    exact = Fraction(number)
    near = exact.limit_denominator(LARGEST_DENOMINATOR)
    return near if abs(near - exact) <= abs(exact) * Fraction(1, 10**14) else exact
