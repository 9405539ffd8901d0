"""From releases to rows: estimates, their errors, and the noisy relations on which post-processing runs.

Everything here is a function of what was released, and of public things.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from planner.basics.limits import ROW_BITS
from planner.cells.workload import Recipe
from planner.duck.workbench import Workbench
from planner.ledger.accounts import Release
from planner.plans import presence
from planner.plans.estimates import COLUMNS, Columns, Estimates, estimated, quantiles
from planner.plans.plan import Part, variances_asked
from planner.plans.prepared import Prepared
from planner.plans.presence import Notice
from planner.plans.settings import Settings
from planner.questions import linear
from planner.questions.labelled import distinct_reach
from planner.sql.aggregates import Returns
from planner.sql.query import Aggregate

SURELY = 64.0
"""No noise is ever so many times its deviation."""


IMAGINED = (1, 0, -100, *(10**digits for digits in range(2, 13)))
"""Numbers on which post-processing is tried before it is paid for, one after the other until it succeeds."""


def make_relation(
    part: Part, new: Sequence[Release], bench: Workbench, *, settings: Settings, types: Mapping[int, str]
) -> tuple[Notice, ...]:
    """Create the noisy relation of a measured query, given what the statement newly released; return what to say of it.

    Which groups are taken to have rows, and which quantiles are of nobody, is decided here: from noisy counts.
    """
    times, left_out = presence.multiple(part.measured, part.placement, settings), []

    def measured(s: int) -> tuple[Columns, str]:
        columns, joins = Columns(), ""
        for task in part.tasks:
            found, more = task.columns(part.measured, new, s, settings.z)
            columns, joins = columns | found, joins + more
        columns = presence.without_nobody(part.measured, columns, times)
        if part.measured.present is not None and part.measured.sets[s]:
            columns["here"] = presence.has_rows(columns, part.measured.present, times)
            left_out.append(int((~columns["here"]).sum()))
        return columns, joins

    _create(part, measured, bench, z=settings.z, types=types)
    return tuple(presence.notices(part.measured, part.placement, left_out=sum(left_out), times=times))


def make_blank(part: Prepared, bench: Workbench, *, z: float, types: Mapping[int, str]) -> None:
    """Create the noisy relation of a measured query before anything is planned: of the right types, with every group.

    All that is measured is zero, and quantiles are NULL.
    """

    def blank(s: int) -> tuple[Columns, str]:
        groups, columns, joins = part.placement.group_counts[s], Columns(), ""
        width = max((place for recipe in part.recipes for place in recipe.parts), default=-1) + 1
        nothing = Estimates(np.zeros((groups, width)), np.zeros((groups, width, width)))
        for recipe in part.recipes:
            columns |= estimated(part.measured.aggregates[recipe.aggregate], recipe, nothing, s, z)
        for k in range(len(part.measured.ratios)):
            columns |= {f"ratio_low{k}": np.zeros(groups), f"ratio_high{k}": np.zeros(groups)}
        for number, set_, question in part.labelled:
            if set_ == s and question.aggregate.traits.returns is Returns.VALUE:
                extra, more = quantiles(question, number, ())
                columns, joins = columns | extra, joins + more
            elif set_ == s:
                columns |= {f"{name}{number}": np.zeros(groups) for name in COLUMNS}
        return columns, joins

    _create(part, blank, bench, z=z, types=types)


def _create(
    part: Part | Prepared,
    measured: Callable[[int], tuple[Columns, str]],
    bench: Workbench,
    *,
    z: float,
    types: Mapping[int, str],
) -> None:
    """Create the noisy relation, of what is measured in each grouping set and the joins that this needs."""
    pieces = []
    for s, keys in enumerate(part.measured.sets):
        groups = part.placement.group_counts[s]
        name = f"{part.measured.name}_s{s}"
        columns: Columns = {"g": np.arange(groups, dtype=np.int64), "z": np.full(groups, z)}
        columns |= {f"r{i}_{j}": np.zeros(groups) for i, j in part.measured.pairs}
        columns["here"] = np.ones(groups, dtype=bool)
        found, joins = measured(s)
        columns |= found
        bench.register(name, columns)
        selected = [f"{s} AS s", "c.g", "c.here", *(_key(part, i, keys) for i in range(len(part.measured.keys)))]
        selected += [f"{0 if i in keys else 1} AS g{i}" for i in range(len(part.measured.keys))]
        selected += [_typed(aggregate, i, types) for i, aggregate in enumerate(part.measured.aggregates)]
        selected += ["c.z", *(f"c.{name}" for name in columns if name.startswith("r"))]
        pieces.append(
            f"SELECT {', '.join(selected)} FROM {part.placement.keys[s]} AS k JOIN {name} AS c USING (g){joins}"
        )
    ordered = f"SELECT * EXCLUDE (s, g) FROM ({' UNION ALL BY NAME '.join(pieces)}) ORDER BY s, g"
    bench.run(f"CREATE OR REPLACE TEMP TABLE {part.measured.name} AS {ordered}")


def imagine(part: Part, bench: Workbench, number: int) -> None:
    """Put a number into the noisy relation, for all that is measured in every group."""
    numbers = [i for i, a in enumerate(part.measured.aggregates) if a.traits.returns is not Returns.VALUE]
    changes = ", ".join(f"{name}{i} = {number}" for i in numbers for name in COLUMNS)
    if changes:
        bench.run(f"UPDATE {part.measured.name} SET {changes}")


def _key(part: Part | Prepared, number: int, keys: Sequence[int]) -> str:
    if number in keys:
        return f"k.k{number}"
    return f"CAST(NULL AS {part.placement.key_types[number]}) AS k{number}"


def _typed(aggregate: Aggregate, number: int, types: Mapping[int, str]) -> str:
    """Return the select list of one aggregate: its value in the type it has in SQL, and its errors."""
    if aggregate.traits.returns is Returns.VALUE:
        return (
            ", ".join(f"q{number}_{i}.v AS {name}{number}" for i, name in enumerate(("a", "low", "high")))
            + f", c.sd{number}"
        )
    value = f"c.a{number}"
    if number in types:
        value = f"CAST(round({value}) AS {types[number]})"
    return f"{value} AS a{number}, c.low{number}, c.high{number}, c.sd{number}"


def whole_types(part: Prepared, settings: Settings, *, rho: Fraction | None) -> dict[int, str]:
    """Return the types of counts and sums of integers: BIGINT, unless the number may be too large for that.

    They hold it whatever the noise, and are the same before a query is planned and whatever is known by then.

    Args:
        rho: what the settings let each of the tasks spend, if they say that.
    """
    matches = int(np.bincount(part.placement.cell).max(initial=1))
    rows = 2.0**ROW_BITS
    found = {}
    for number, aggregate in enumerate(part.measured.aggregates):
        if aggregate.is_whole:
            reach, deviation = _largest(part, number, settings, rho=rho, matches=matches)
            size = reach * matches * rows + deviation * SURELY
            found[number] = "BIGINT" if size < 2.0**62 else "HUGEINT" if size < 2.0**126 else "DOUBLE"
    return found


def _largest(
    part: Prepared, number: int, settings: Settings, *, rho: Fraction | None, matches: int
) -> tuple[float, float]:
    """Return the most that a record adds to an aggregate, and the largest deviation that its noise may have."""
    error = settings.error * ((part.measured.table.size or 2.0**ROW_BITS) if settings.relative else 1.0)
    rows, most, deviations = part.measured.table.max_rows_per_unit, [1.0], [error / settings.z]
    for at, _, labelled in part.labelled:
        if at == number and rho is not None:
            deviations.append(math.sqrt(distinct_reach(labelled) / (2 * rho)))
    for question, sets in part.linear:
        reach = linear.reach(question)
        targets = variances_asked(question, settings, error)
        if rho is not None:  # what all functionals on their own would have for it: no strategy that is taken has more
            alone = float((reach**2 / targets).sum()) * len(sets) * (matches * rows) ** 2
            targets = targets * (4 * alone / (2 * rho))
        places = _places(part.recipes, number)
        most.append(float(reach[places].max(initial=0.0)))
        deviations.append(float(np.sqrt(targets[places].max(initial=0.0))))
    if rho is not None and part.marginals is not None:
        deviations.append(rows * math.sqrt(4 * len(part.measured.sets) / (2 * rho)))
    return max(most), max(deviations)


def _places(recipes: Sequence[Recipe], number: int) -> slice:
    """Return the functionals of a count or a sum, in all groups that are one problem."""
    each = max((place for recipe in recipes for place in recipe.parts), default=0) + 1
    first = next((recipe.parts[0] for recipe in recipes if recipe.aggregate == number), None)
    return slice(0, 0) if first is None else slice(first, None, each)
