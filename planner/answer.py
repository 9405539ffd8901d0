"""From releases to rows: estimates, their errors, and the noisy relations on which post-processing runs.

Everything here is a function of what was released, and of public things.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlglot import exp

from planner.accounts import Release
from planner.bodies import decode
from planner.marginal import MarginalTask
from planner.measured import Aggregate
from planner.plan import Part
from planner.sandbox import Workbench
from planner.tasks import DistinctTask, LinearTask, QuantileTask, of_task
from planner.workload import Floats, Recipe

Columns = dict[str, np.ndarray[Any, Any]]


@dataclass(frozen=True, eq=False)
class _Estimate:
    """One aggregate in every group: value, and its derivative by each functional of its task."""

    value: Floats  # (groups,), NaN where there is no answer
    gradient: Floats  # (groups, F)
    low: Floats
    high: Floats
    sd: Floats


def make_relation(part: Part, new: Sequence[Release] | None, bench: Workbench, *, z: float) -> None:
    """Create the noisy relation of a measured query, given what the statement newly released.

    None makes a relation of the right types, before anything is measured.
    """
    pieces = []
    for s, keys in enumerate(part.measured.sets):
        groups = part.placement.group_counts[s]
        name = f"{part.measured.name}_s{s}"
        columns: Columns = {"g": np.arange(groups, dtype=np.int64), "z": np.full(groups, z)}
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
        selected += [_typed(i, aggregate) for i, aggregate in enumerate(part.measured.aggregates)]
        selected += ["c.z", *(f"c.{name}" for name in columns if name.startswith("r"))]
        pieces.append(
            f"SELECT {', '.join(selected)} FROM {part.placement.keys[s]} AS k JOIN {name} AS c USING (g){joins}"
        )
    bench.run(f"CREATE OR REPLACE TEMP TABLE {part.measured.name} AS {' UNION ALL BY NAME '.join(pieces)}")


def _key(part: Part, number: int, keys: Sequence[int]) -> str:
    if number in keys:
        return f"k.k{number}"
    return f"CAST(NULL AS {part.placement.key_types[number]}) AS k{number}"


def _typed(number: int, aggregate: Aggregate) -> str:
    """Return the select list of one aggregate: its value in the type it has in SQL, and its errors."""
    if aggregate.kind == "quantile":
        return (
            ", ".join(f"q{number}_{i}.v AS {name}{number}" for i, name in enumerate(("a", "low", "high")))
            + f", c.sd{number}"
        )
    value = f"c.a{number}"
    if whole(aggregate):
        value = f"CAST(round({value}) AS BIGINT)"
    return f"{value} AS a{number}, c.low{number}, c.high{number}, c.sd{number}"


def whole(aggregate: Aggregate) -> bool:
    """Return whether the answer is a whole number: a count, or a sum of integers."""
    argument = aggregate.argument
    integral = aggregate.kind == "sum" and argument is not None and argument.is_type(*exp.DataType.INTEGER_TYPES)
    return aggregate.kind in ("count", "distinct") or integral


# --- linear ------------------------------------------------------------------------------------------------


def _linear(part: Part, task: LinearTask | MarginalTask, new: Sequence[Release] | None, s: int, z: float) -> Columns:
    values, blocks, reach = task.answers(new, s)
    groups = len(values)
    columns: Columns = {}
    estimates = {}
    for recipe in task.recipes:
        aggregate = part.measured.aggregates[recipe.aggregate]
        estimate = _estimate(aggregate, recipe, values, blocks, reach, z)
        estimates[recipe.aggregate] = (estimate.gradient, estimate.sd)
        number = recipe.aggregate
        columns |= {f"a{number}": estimate.value, f"sd{number}": estimate.sd}
        columns |= {f"low{number}": estimate.low, f"high{number}": estimate.high}
    for i, j in itertools.combinations(sorted(estimates), 2):
        (left, left_sd), (right, right_sd) = estimates[i], estimates[j]
        with np.errstate(invalid="ignore"):
            product = np.einsum("gf,gfh,gh->g", left, blocks, right)
            scale = left_sd * right_sd
            found = np.divide(product, scale, out=np.zeros(groups), where=scale > 0)
        columns[f"r{i}_{j}"] = np.nan_to_num(found)
    return columns


def _estimate(
    aggregate: Aggregate, recipe: Recipe, values: Floats, blocks: Floats, reach: Floats, z: float
) -> _Estimate:
    parts = list(recipe.parts)
    gradient = np.zeros(values.shape)
    n = values[:, parts[0]]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if aggregate.kind in ("count", "sum"):
            value = n
            gradient[:, parts[0]] = 1.0
        elif aggregate.kind == "avg":
            mean = values[:, parts[1]] / n
            value = recipe.centre + mean
            gradient[:, parts[0]], gradient[:, parts[1]] = -mean / n, 1 / n
        else:
            value, gradient = _spread(aggregate, parts, values)
        sd = np.sqrt(np.maximum(np.einsum("gf,gfh,gh->g", gradient, blocks, gradient), 0.0))
        low, high = value - z * sd, value + z * sd
    if aggregate.kind in ("count", "sum"):
        return _Estimate(value, gradient, low, high, sd)
    return _bounded(aggregate, recipe, _Estimate(value, gradient, low, high, sd), n, blocks, reach, z)


def _spread(aggregate: Aggregate, parts: Sequence[int], values: Floats) -> tuple[Floats, Floats]:
    """Return variance or standard deviation from (n, sum t, sum t^2), and its derivatives."""
    n, first, second = (values[:, part] for part in parts)
    spare = n - 1 if aggregate.sample else n
    value = np.maximum((second - first**2 / n) / spare, 0.0)
    gradient = np.zeros(values.shape)
    gradient[:, parts[0]] = (first / n) ** 2 / spare - value / spare
    gradient[:, parts[1]] = -2 * first / n / spare
    gradient[:, parts[2]] = 1 / spare
    if aggregate.kind == "variance":
        return value, gradient
    root = np.sqrt(value)
    return root, gradient / (2 * root)[:, None]


def _bounded(
    aggregate: Aggregate, recipe: Recipe, found: _Estimate, n: Floats, blocks: Floats, reach: Floats, z: float
) -> _Estimate:
    """Return an estimate kept inside what is possible; where n may be 0 its interval is all that is possible."""
    half = reach[:, recipe.parts[1]]
    bottom, top = recipe.centre - half, recipe.centre + half
    if aggregate.kind != "avg":
        bottom, top = np.zeros(len(n)), half**2 if aggregate.kind == "variance" else half
    deviation = np.sqrt(blocks[:, recipe.parts[0], recipe.parts[0]])
    firm = (n > z * deviation) & (n > 1) & np.isfinite(found.sd)
    value = np.where(firm, np.clip(found.value, bottom, top), np.nan)
    sd = np.where(firm, found.sd, top - bottom)
    low = np.where(firm, np.clip(found.low, bottom, top), bottom)
    high = np.where(firm, np.clip(found.high, bottom, top), top)
    gradient = np.where(firm[:, None], found.gradient, 0.0)
    return _Estimate(np.ma.masked_invalid(value), gradient, low, high, sd)


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
