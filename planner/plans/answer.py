"""From releases to rows: estimates, their errors, and the noisy relations on which post-processing runs.

Everything here is a function of what was released, and of public things.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlglot import exp

from mechanisms.gaussian import ratios
from mechanisms.gaussian.ratios import Estimate, Noisy
from mechanisms.tolerances import FLOAT_SUM
from planner.duck.sandbox import Workbench
from planner.ledger.accounts import Release
from planner.plans.marginals import MarginalTask
from planner.plans.plan import Part
from planner.plans.release import DistinctTask, LinearTask, QuantileTask, Task, of_task
from planner.questions import linear
from planner.questions.body import decode
from planner.sql.query import Aggregate, Combination
from planner.sql.workload import Floats, Recipe

Columns = dict[str, np.ndarray[Any, Any]]


MOST_ROWS_BITS = 40
"""A table is taken to have at most 2^40 rows."""

SURELY = 64.0
"""No noise is ever so many times its deviation."""


IMAGINED = (1, 0, -100, *(10**digits for digits in range(2, 13)))
"""Numbers on which post-processing is tried before it is paid for, one after the other until it succeeds."""

_COLUMNS = ("a", "low", "high", "sd")


@dataclass(frozen=True, eq=False)
class _Linear:
    """What is known of the groups of one grouping set: estimates (G, F) and covariances (G, F, F) of functionals."""

    values: Floats
    blocks: Floats

    def only(self, parts: Sequence[int]) -> tuple[Floats, Floats]:
        """Return estimates and covariances of some functionals."""
        return self.values[:, parts], self.blocks[:, parts][:, :, parts]


def make_relation(part: Part, new: Sequence[Release] | None, bench: Workbench, *, z: float) -> None:
    """Create the noisy relation of a measured query, given what the statement newly released.

    None makes a relation of the right types, before anything is measured.
    """
    pieces = []
    for s, keys in enumerate(part.measured.sets):
        groups = part.placement.group_counts[s]
        name = f"{part.measured.name}_s{s}"
        columns: Columns = {"g": np.arange(groups, dtype=np.int64), "z": np.full(groups, z)}
        columns |= {f"r{i}_{j}": np.zeros(groups) for i, j in part.measured.pairs}
        joins = ""
        for task in part.tasks:
            found = () if new is None else of_task(task, new)
            if isinstance(task, LinearTask | MarginalTask) and s in task.sets:
                columns |= _linear(part, task, new, s, z)
            elif isinstance(task, DistinctTask) and task.set == s:
                columns |= _distinct(task, found, z)
            elif isinstance(task, QuantileTask) and task.set == s:
                extra, more = _quantile(task, found)
                columns |= extra
                joins += more
        bench.register(name, columns)
        selected = [_key(part, i, keys) for i in range(len(part.measured.keys))]
        selected += [f"{0 if i in keys else 1} AS g{i}" for i in range(len(part.measured.keys))]
        selected += [_typed(part, i) for i in range(len(part.measured.aggregates))]
        selected += ["c.z", *(f"c.{name}" for name in columns if name.startswith("r"))]
        pieces.append(
            f"SELECT {', '.join(selected)} FROM {part.placement.keys[s]} AS k JOIN {name} AS c USING (g){joins}"
        )
    bench.run(f"CREATE OR REPLACE TEMP TABLE {part.measured.name} AS {' UNION ALL BY NAME '.join(pieces)}")


def imagine(part: Part, bench: Workbench, number: int) -> None:
    """Put a number into the noisy relation, for all that is measured in every group."""
    names = (f"{name}{i}" for i, a in enumerate(part.measured.aggregates) if a.kind != "quantile" for name in _COLUMNS)
    changes = ", ".join(f"{name} = {number}" for name in names)
    if changes:
        bench.run(f"UPDATE {part.measured.name} SET {changes}")


def _key(part: Part, number: int, keys: Sequence[int]) -> str:
    if number in keys:
        return f"k.k{number}"
    return f"CAST(NULL AS {part.placement.key_types[number]}) AS k{number}"


def _typed(part: Part, number: int) -> str:
    """Return the select list of one aggregate: its value in the type it has in SQL, and its errors."""
    aggregate = part.measured.aggregates[number]
    if aggregate.kind == "quantile":
        return (
            ", ".join(f"q{number}_{i}.v AS {name}{number}" for i, name in enumerate(("a", "low", "high")))
            + f", c.sd{number}"
        )
    value = f"c.a{number}"
    if whole(aggregate):
        value = f"CAST(round({value}) AS {_whole_type(part, number)})"
    return f"{value} AS a{number}, c.low{number}, c.high{number}, c.sd{number}"


def whole(aggregate: Aggregate) -> bool:
    """Return whether the answer is a whole number: a count, or a sum of integers."""
    argument = aggregate.argument
    integral = aggregate.kind == "sum" and argument is not None and argument.is_type(*exp.DataType.INTEGER_TYPES)
    return aggregate.kind in ("count", "distinct") or integral


def _whole_type(part: Part, number: int) -> str:
    """Return the type that holds a count or a sum whatever the noise: BIGINT unless it may be too large for that.

    It is decided before anything is measured, from what a record can add and from the deviation of the noise.
    """
    matches = int(np.bincount(part.placement.cell).max(initial=1))
    most = max((_reach(task, number) for task in part.tasks), default=0.0) * matches * 2.0**MOST_ROWS_BITS
    noise = max((_deviation(task, number) for task in part.tasks), default=0.0) * SURELY
    size = most + noise
    return "BIGINT" if size < 2.0**62 else "HUGEINT" if size < 2.0**126 else "DOUBLE"


def _places(task: LinearTask | MarginalTask, number: int) -> slice:
    """Return the functionals of a count or a sum, in all groups that are one problem."""
    each = max(place for recipe in task.recipes for place in recipe.parts) + 1
    first = next((recipe.parts[0] for recipe in task.recipes if recipe.aggregate == number), None)
    return slice(0, 0) if first is None else slice(first, None, each)


def _reach(task: Task, number: int) -> float:
    """Return the most that a record adds to an aggregate."""
    if isinstance(task, LinearTask):
        return float(linear.reach(task.question)[_places(task, number)].max(initial=0.0))
    return 1.0


def _deviation(task: Task, number: int) -> float:
    """Return the largest deviation that the noise of an aggregate has in a group."""
    if isinstance(task, LinearTask | MarginalTask):
        return float(np.sqrt(task.variances[:, _places(task, number)].max(initial=0.0)))
    return math.sqrt(task.noise.variance) if isinstance(task, DistinctTask) and task.number == number else 0.0


# --- linear ------------------------------------------------------------------------------------------------


def _linear(part: Part, task: LinearTask | MarginalTask, new: Sequence[Release] | None, s: int, z: float) -> Columns:
    known = _Linear(*task.answers(new, s))
    columns: Columns = {}
    slopes = {}
    for recipe in task.recipes:
        number, aggregate = recipe.aggregate, part.measured.aggregates[recipe.aggregate]
        found, sd = _estimate(aggregate, recipe, known, s, z)
        ends = {f"a{number}": found.value, f"low{number}": found.low, f"high{number}": found.high, f"sd{number}": sd}
        columns |= {name: np.ma.masked_invalid(column) for name, column in ends.items()}
        slopes[number] = _slopes(aggregate, recipe, known)
    for i, j in part.measured.pairs:
        if i in slopes and j in slopes:
            columns[f"r{i}_{j}"] = _correlation(slopes[i], slopes[j], known.blocks)
    for k, (above, below) in enumerate(part.measured.ratios):
        N, D = (_coefficients(combination, task.recipes, known) for combination in (above, below))
        low, high = ratios.fieller(
            Noisy.of(N, D, values=known.values, blocks=known.blocks), z=z, **_possible(N, D, task.points(s), known)
        )
        columns |= {f"ratio_low{k}": low, f"ratio_high{k}": high}
    return columns


def _estimate(aggregate: Aggregate, recipe: Recipe, known: _Linear, s: int, z: float) -> tuple[Estimate, Floats]:
    """Return an aggregate in every group and the deviation of its error; NaN where no record can count."""
    if aggregate.kind in ("count", "sum"):
        part = recipe.parts[0]
        value, sd = known.values[:, part], np.sqrt(np.maximum(known.blocks[:, part, part], 0.0))
        half = z * sd + FLOAT_SUM * np.abs(value)
        return Estimate(value, value - half, value + half), sd
    (bottom, top), (values, blocks) = recipe.bounds[s], known.only(recipe.parts)
    with np.errstate(all="ignore"):
        if aggregate.kind == "avg":
            found = ratios.mean(values, blocks, centre=recipe.centre, bottom=bottom, top=top, z=z)
        else:
            ends = {"bottom": bottom - recipe.centre, "top": top - recipe.centre}
            found = ratios.variance(values, blocks, **ends, z=z, sample=aggregate.sample)
            found = ratios.roots(found) if aggregate.kind == "stddev" else found
    nobody = bottom > top
    found = Estimate(*(np.where(nobody, np.nan, part) for part in (found.value, found.low, found.high)))
    return found, (found.high - found.low) / (2 * z)


def _slopes(aggregate: Aggregate, recipe: Recipe, known: _Linear) -> Floats:
    """Return the derivative of an aggregate by each functional, in every group, up to a factor; shape (G, F)."""
    parts, gradient = list(recipe.parts), np.zeros(known.values.shape)
    if aggregate.kind in ("count", "sum"):
        gradient[:, parts[0]] = 1.0
        return gradient
    n = np.maximum(known.values[:, parts[0]], 1.0)
    mean = known.values[:, parts[1]] / n
    if aggregate.kind == "avg":
        gradient[:, parts[0]], gradient[:, parts[1]] = -mean, 1.0
        return gradient
    spread = known.values[:, parts[2]] / n - mean**2
    gradient[:, parts[0]], gradient[:, parts[1]], gradient[:, parts[2]] = mean**2 - spread, -2 * mean, 1.0
    return gradient


def _correlation(left: Floats, right: Floats, blocks: Floats) -> Floats:
    both, one, other = (np.einsum("gf,gfh,gh->g", *pair) for pair in _pairs(left, right, blocks))
    scale = np.sqrt(np.maximum(one * other, 0.0))
    found: Floats = np.nan_to_num(np.divide(both, scale, out=np.zeros(len(both)), where=scale > 0))
    return found


def _pairs(left: Floats, right: Floats, blocks: Floats) -> Iterator[tuple[Floats, Floats, Floats]]:
    return ((a, blocks, b) for a, b in ((left, right), (left, left), (right, right)))


def _coefficients(combination: Combination, recipes: Sequence[Recipe], known: _Linear) -> Floats:
    """Return a combination of counts and sums as one of functionals, shape (F,)."""
    found = np.zeros(known.values.shape[1])
    for recipe in recipes:
        found[recipe.parts[0]] += combination.get(recipe.aggregate, 0.0)
    return found


def _possible(N: Floats, D: Floats, points: Floats, known: _Linear) -> dict[str, Floats]:
    """Return what a ratio of combinations is between in every group, whatever the data."""
    ends = zip(("bottom", "top"), ratios.possible(N @ points, D @ points), strict=True)
    return {name: np.broadcast_to(end, len(known.values)) for name, end in ends}


# --- others ------------------------------------------------------------------------------------------------


def _distinct(task: DistinctTask, releases: Sequence[Release], z: float) -> Columns:
    """Return the number of different values: the releases of the same number, weighted by their precision."""
    groups, number = task.question.groups, task.number
    total, weight = np.zeros(groups), 0.0
    for release in releases:
        body = decode(release.body)
        precision = body["scale"] ** 2 / 4.0 ** body["bits"]
        total += precision * np.array([row[0] for row in body["y"]], dtype=float) / body["scale"]
        weight += precision
    sd = np.full(groups, weight**-0.5 if weight else 0.0)
    value, most = total / weight if weight else total, np.inf if task.question.units else task.question.size
    low, high = (np.clip(value + sign * z * sd, 0, most) for sign in (-1, 1))
    return {
        f"a{number}": np.clip(value, 0, most),
        f"sd{number}": sd,
        f"low{number}": low,
        f"high{number}": high,
    }


def _quantile(task: QuantileTask, releases: Sequence[Release]) -> tuple[Columns, str]:
    """Return the chosen labels, and the joins that turn them into values; NULL where none was drawn."""
    groups, number = task.question.groups, task.number
    rows = decode(releases[0].body)["y"] if releases else [[]] * groups
    columns: Columns = {f"sd{number}": np.ma.masked_invalid(np.full(groups, np.nan))}
    joins = ""
    for i in range(3):
        labels = np.array([row[i] if i < len(row) else -1 for row in rows], dtype=np.int64)
        columns[f"q{number}_{i}"] = labels
        joins += f" LEFT JOIN {task.question.values} AS q{number}_{i} ON q{number}_{i}.i = c.q{number}_{i}"
    return columns, joins
