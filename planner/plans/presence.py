"""Which groups are taken to have rows: decided from released counts and their errors, never from rows.

PostgreSQL's groups are those that have rows; here, those of the public domain are measured. One whose noisy count lies
so near to 0 that the noise alone may have made it can't be told from an empty one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.cells.workload import Placement
from planner.plans.estimates import Columns
from planner.plans.settings import Settings
from planner.plans.wording import number
from planner.sql.aggregates import AggregateKind
from planner.sql.query import Aggregate, Measured

LEAST = 0.5
"""A group of one person counts 1: what rounds to 0 is not taken to have rows, however exact it is."""


@dataclass(frozen=True)
class Notice:
    """Something that whoever reads an answer should know, and what can be done about it."""

    message: str
    hint: str


def multiple(measured: Measured, placement: Placement, settings: Settings) -> float:
    """Return beyond how many deviations a noisy count is taken to be of a group that has rows.

    Guarantee: whatever the data, the chance that any group without rows of the whole domain is taken to have some is
    at most 1 - confidence (the union bound over all groups, for normal errors).
    """
    counted = zip(measured.sets, placement.group_counts, strict=True)
    return multiple_of(sum(count for keys, count in counted if keys), confidence=settings.confidence)


def multiple_of(groups: int, *, confidence: float) -> float:
    """Return what one of so many standard normal numbers passes with a chance of 1 - confidence at most."""
    return NormalDist().inv_cdf(1 - (1 - confidence) / max(groups, 1))


def has_rows(found: Columns, count: int, times: float) -> NDArray[np.bool_]:
    """Return for each group whether a noisy count is so far beyond its error that somebody is taken to be there."""
    value, deviation = (np.ma.filled(np.ma.asarray(found[f"{name}{count}"]), 0.0) for name in ("a", "sd"))
    return np.asarray(value > np.maximum(times * deviation, LEAST))


def without_nobody(measured: Measured, found: Columns, times: float) -> Columns:
    """Return the choices of quantiles without those of groups that a count of the same rows can't tell from empty."""
    changed: dict[str, NDArray[Any]] = {}
    for i, aggregate in enumerate(measured.aggregates):
        counts = (
            list(_counts(measured, aggregate))
            if aggregate.kind is AggregateKind.QUANTILE and f"q{i}_0" in found
            else []
        )
        for name in (f"q{i}_{j}" for j in range(3) if counts):
            here = np.all([has_rows(found, count, times) for count in counts if f"a{count}" in found], axis=0)
            changed[name] = np.where(here, found[name], -1)
    return found | changed


def _counts(measured: Measured, quantile: Aggregate) -> Iterator[int]:
    """Yield the counts of the rows among which a quantile was chosen, or of more."""
    rows = Aggregate(kind=AggregateKind.COUNT)
    wider = (rows.key, replace(rows, condition=quantile.condition).key)
    return (i for i, aggregate in enumerate(measured.aggregates) if aggregate.key in wider)


def notices(measured: Measured, placement: Placement, *, left_out: int, times: float) -> Iterator[Notice]:
    """Yield what is to be said of the groups of one measured query."""
    keyed = [count for keys, count in zip(measured.sets, placement.group_counts, strict=True) if keys]
    if left_out:
        yield Notice(
            f"left out: {left_out:,} of {number(sum(keyed), 'group')} of {measured.table.name}, "
            f"whose noisy counts (up to {times:.2f} deviations) can't be told from 0",
            hint="SET noisegate.groups = 'all' keeps every group of the domain; a smaller noisegate.error tells more",
        )
    if keyed and measured.present is None:
        yield from _unseen(measured)


def _unseen(measured: Measured) -> Iterator[Notice]:
    """Yield what is said where groups are listed with nothing that tells whether anybody is in them."""
    uncounted = [a for a in measured.aggregates if a.kind is AggregateKind.QUANTILE and not list(_counts(measured, a))]
    if not measured.aggregates:
        yield Notice(
            "every group of the domain is listed, whether anybody is in it or not",
            hint="SET noisegate.groups = 'present' lists those that have rows, for the price of their counts",
        )
    elif uncounted:
        yield Notice(
            "a quantile of a group that nobody is in is a value of the domain like any other",
            hint="ask for count(*) as well: then it is NULL where the count can't be told from 0",
        )


def explained(measured: Measured, placement: Placement, settings: Settings, half: float | None) -> str | None:
    """Return what EXPLAIN says of the groups, given the half-width of the count that tells; None if all count."""
    if measured.present is None:
        return None
    times = multiple(measured, placement, settings)
    bound = "" if half is None else f" ({max(times * half / settings.z, LEAST):,.3g})"
    chance = f"{100 * (1 - settings.confidence):.3g}%"
    beyond = f"those with a noisy count beyond {times:.2f} deviations{bound}"
    return f"{beyond}; with {chance} at most an empty one is among them"
