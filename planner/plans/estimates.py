"""From what was released to estimates: the value, the interval and the deviation of each aggregate, in every group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mechanisms.gaussian import ratios
from mechanisms.gaussian.ratios import Estimate, Noisy
from mechanisms.tolerances import FLOAT_SUM
from planner.cells.workload import Recipe
from planner.cells.workspace import Floats
from planner.ledger.accounts import Release
from planner.questions.body import decode
from planner.questions.labelled import Labelled
from planner.sql.aggregates import AggregateKind
from planner.sql.query import Aggregate, Combination, Measured

Columns = dict[str, np.ndarray[Any, Any]]
"""Columns of a noisy relation: one value for each group."""

COLUMNS = ("a", "low", "high", "sd")
"""What the columns of an aggregate are called, before its number."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """What is known of the groups of one grouping set: estimates (G, F) and covariances (G, F, F) of functionals."""

    values: Floats
    blocks: Floats

    def only(self, parts: Sequence[int]) -> tuple[Floats, Floats]:
        """Return estimates and covariances of some functionals."""
        return self.values[:, parts], self.blocks[:, parts][:, :, parts]


def linear_columns(
    measured: Measured, recipes: Sequence[Recipe], known: Estimates, points: Callable[[], Floats], s: int, z: float
) -> Columns:
    """Return all aggregates that are made of functionals, in every group of set s.

    Args:
        points: between which lies what one record can add to the functionals: for the ratios.
    """
    columns: Columns = {}
    slopes = {}
    for recipe in recipes:
        aggregate = measured.aggregates[recipe.aggregate]
        columns |= estimated(aggregate, recipe, known, s, z)
        slopes[recipe.aggregate] = _slopes(recipe, known)
    for i, j in measured.pairs:
        if i in slopes and j in slopes:
            columns[f"r{i}_{j}"] = _correlation(slopes[i], slopes[j], known.blocks)
    for k, (above, below) in enumerate(measured.ratios):
        N, D = (_coefficients(combination, recipes, known) for combination in (above, below))
        low, high = ratios.fieller(
            Noisy.of(N, D, values=known.values, blocks=known.blocks), z=z, **_possible(N, D, points(), known)
        )
        columns |= {f"ratio_low{k}": low, f"ratio_high{k}": high}
    return columns


def recipe_error(
    recipes: Sequence[Recipe], variances: Floats, number: int, aggregate: Aggregate, z: float
) -> float | None:
    """Return the largest half-width of a count or a sum, from the variances of functionals: (groups or 1, F)."""
    if not aggregate.traits.is_total:
        return None
    part = next(recipe.parts[0] for recipe in recipes if recipe.aggregate == number)
    each = max(place for recipe in recipes for place in recipe.parts) + 1
    return z * float(np.sqrt(variances[:, part::each].max(initial=0.0)))


def estimated(aggregate: Aggregate, recipe: Recipe, known: Estimates, s: int, z: float) -> Columns:
    """Return the columns of an aggregate: its value, its interval and its deviation."""
    number = recipe.aggregate
    found, sd = _estimate(aggregate, recipe, known, s, z)
    ends = {f"a{number}": found.value, f"low{number}": found.low, f"high{number}": found.high, f"sd{number}": sd}
    return {name: np.ma.masked_invalid(column) for name, column in ends.items()}


def _estimate(aggregate: Aggregate, recipe: Recipe, known: Estimates, s: int, z: float) -> tuple[Estimate, Floats]:
    """Return an aggregate in every group and the deviation of its error; NaN where no record can count."""
    if aggregate.traits.is_total:
        return _total(recipe, known, z)
    with np.errstate(all="ignore"):
        found = ESTIMATORS[aggregate.kind](aggregate, recipe, known, s, z)
    bottom, top = recipe.bounds[s]
    nobody = bottom > top
    found = Estimate(*(np.where(nobody, np.nan, part) for part in (found.value, found.low, found.high)))
    return found, (found.high - found.low) / (2 * z)


def _total(recipe: Recipe, known: Estimates, z: float) -> tuple[Estimate, Floats]:
    part = recipe.parts[0]
    value, sd = known.values[:, part], np.sqrt(np.maximum(known.blocks[:, part, part], 0.0))
    half = z * sd + FLOAT_SUM * np.abs(value)
    return Estimate(value, value - half, value + half), sd


def _mean(_: Aggregate, recipe: Recipe, known: Estimates, s: int, z: float) -> Estimate:
    bottom, top = recipe.bounds[s]
    return ratios.mean(*known.only(recipe.parts), centre=recipe.centre, bottom=bottom, top=top, z=z)


def _variance(aggregate: Aggregate, recipe: Recipe, known: Estimates, s: int, z: float) -> Estimate:
    bottom, top = (end - recipe.centre for end in recipe.bounds[s])
    return ratios.variance(*known.only(recipe.parts), bottom=bottom, top=top, z=z, sample=aggregate.sample)


def _deviation(aggregate: Aggregate, recipe: Recipe, known: Estimates, s: int, z: float) -> Estimate:
    return ratios.roots(_variance(aggregate, recipe, known, s, z))


ESTIMATORS: Mapping[AggregateKind, Callable[[Aggregate, Recipe, Estimates, int, float], Estimate]] = {
    AggregateKind.AVG: _mean,
    AggregateKind.VARIANCE: _variance,
    AggregateKind.STDDEV: _deviation,
}
"""How what is made of several counts and sums is estimated from them."""


def _slopes(recipe: Recipe, known: Estimates) -> Floats:
    """Return the derivative of a total, mean or variance by each functional, in every group, up to a factor: (G, F)."""
    parts, gradient = list(recipe.parts), np.zeros(known.values.shape)
    if len(parts) == 1:
        gradient[:, parts[0]] = 1.0
        return gradient
    n = np.maximum(known.values[:, parts[0]], 1.0)
    mean = known.values[:, parts[1]] / n
    if len(parts) == 2:
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


def _coefficients(combination: Combination, recipes: Sequence[Recipe], known: Estimates) -> Floats:
    """Return a combination of counts and sums as one of functionals, shape (F,)."""
    found = np.zeros(known.values.shape[1])
    for recipe in recipes:
        found[recipe.parts[0]] += combination.get(recipe.aggregate, 0.0)
    return found


def _possible(N: Floats, D: Floats, points: Floats, known: Estimates) -> dict[str, Floats]:
    """Return what a ratio of combinations is between in every group, whatever the data."""
    ends = zip(("bottom", "top"), ratios.possible(N @ points, D @ points), strict=True)
    return {name: np.broadcast_to(end, len(known.values)) for name, end in ends}


# --- others ------------------------------------------------------------------------------------------------


def distincts(question: Labelled, number: int, releases: Sequence[Release], z: float) -> Columns:
    """Return the number of different values: the releases of the same number, weighted by their precision."""
    groups = question.groups
    total, weight = np.zeros(groups), 0.0
    for release in releases:
        body = decode(release.body)
        precision = body["scale"] ** 2 / 4.0 ** body["bits"]
        total += precision * np.array([row[0] for row in body["y"]], dtype=float) / body["scale"]
        weight += precision
    sd = np.full(groups, weight**-0.5 if weight else 0.0)
    value, most = total / weight if weight else total, np.inf if question.units else question.size
    low, high = (np.clip(value + sign * z * sd, 0, most) for sign in (-1, 1))
    return {
        f"a{number}": np.clip(value, 0, most),
        f"sd{number}": sd,
        f"low{number}": low,
        f"high{number}": high,
    }


def quantiles(question: Labelled, number: int, releases: Sequence[Release]) -> tuple[Columns, str]:
    """Return the chosen labels, and the joins that turn them into values; NULL where none was drawn."""
    groups = question.groups
    rows = decode(releases[0].body)["y"] if releases else [[]] * groups
    columns: Columns = {f"sd{number}": np.ma.masked_invalid(np.full(groups, np.nan))}
    joins = ""
    for i in range(3):
        labels = np.array([row[i] if i < len(row) else -1 for row in rows], dtype=np.int64)
        columns[f"q{number}_{i}"] = labels
        joins += f" LEFT JOIN {question.values} AS q{number}_{i} ON q{number}_{i}.i = c.q{number}_{i}"
    return columns, joins
