"""What a stream of queries costs, from one charge a query down to the clairvoyant optimum.

    python benchmarks/ladder.py [--seeds 5] [--first 100] [--out figures.json]

Every answer is asked at a fixed variance (1 for counts). Cost is max diag(C), twice the rho of the dearest cell:
  one charge      the dearest cell of every query, added up: what systems without a domain do
  per cell        every cell pays for the queries that touch it
  known is free   a query that the history answers well enough is free, another one is released as it is
  common          of every query the part shared with the history is free (arXiv 2212.00135)
  join            the positive part (C_wanted - C_known)_+
  to targets      the cheapest rows that meet the targets, cells that have paid more being dearer
  likely          the same, directions that other queries are likely to need being cheaper
  clairvoyant     all queries known in advance: the least cost to meet them all, and a bound below it
Streams: group-by/filter queries over a product domain, one with a measure (two cells, SUM and COUNT), random ranges.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.likely import join_to_likely, likely_queries, prior
from mechanisms.gaussian.common import common, residual
from mechanisms.gaussian.known import Known, nothing_known
from mechanisms.gaussian.linear import Matrix, Mechanism
from mechanisms.least.minimax import fit
from mechanisms.least.residual import join_residual, join_to_targets, prices

Query = tuple[Matrix, Matrix]
"""Rows and their largest variances."""

Step = Callable[[Known, Query], Matrix]
"""From what is known and a query to the rows that are released for it."""


def group_by(sizes: tuple[int, ...], count: int, rng: np.random.Generator, *, high: float | None = None) -> list[Query]:
    """Return random queries that group by, filter on a range of, or ignore each attribute.

    With `high` there is a measure in [0, high] as a last axis of two cells; half of the queries are SUMs, whose
    standard deviation may be high / 2 times that of a count.
    """
    queries = []
    for _ in range(count):
        W: Matrix = np.ones((1, 1))
        for size in sizes:
            W = np.asarray(np.kron(W, _axis(size, rng)), dtype=np.float64)
        c = np.ones(len(W))
        if high is not None:
            is_sum = rng.integers(2) == 1
            W = np.kron(W, np.array([[0.0, high]] if is_sum else [[1.0, 1.0]]))
            c = c * (high**2 / 4 if is_sum else 1.0)
        queries.append((W, c))
    return queries


def _axis(size: int, rng: np.random.Generator) -> Matrix:
    kind = rng.integers(3)
    if kind == 0:
        return np.eye(size)
    if kind == 1:
        return np.ones((1, size))
    return _range(size, rng)


def _range(size: int, rng: np.random.Generator) -> Matrix:
    low, high = np.sort(rng.integers(0, size, 2))
    cells = np.arange(size)
    row: Matrix = ((cells >= low) & (cells <= high)).astype(np.float64)[None, :]
    return row


def ranges(size: int, count: int, rng: np.random.Generator) -> list[Query]:
    """Return random ranges over one ordered axis."""
    return [(_range(size, rng), np.ones(1)) for _ in range(count)]


def standard(query: Query) -> Matrix:
    """Return the rows of the query as they would be released by themselves."""
    W, c = query
    return np.asarray(W / np.sqrt(c)[:, None], dtype=np.float64)


def known_is_free(known: Known, query: Query) -> Matrix:
    """Return the query's rows, or none if the history answers it."""
    W, c = query
    return standard(query)[:0] if (known.variances(W) <= c * (1 + 1e-9)).all() else standard(query)


def common_residual(known: Known, query: Query) -> Matrix:
    """Return what the query has beyond its common mechanism with the history."""
    rows = known_is_free(known, query)
    if not len(rows) or not known.rank:
        return rows
    history, wanted = (Mechanism(B, np.eye(len(B))) for B in (known.rows, rows))
    return residual(wanted, common(history, wanted)).B


def plain_join(known: Known, query: Query) -> Matrix:
    """Return the positive part of what is wanted beyond what is known."""
    rows = known_is_free(known, query)
    return join_residual(known, rows) if len(rows) else rows


Prior = tuple[Matrix, Matrix]


def to_targets(likely: Prior | None, strength: float) -> Step:
    """Return the step that releases the cheapest rows to meet the targets."""

    def step(known: Known, query: Query) -> Matrix:
        weights = prices(known.profile, strength=strength)
        if likely is None:
            return join_to_targets(known, *query, weights=weights).rows
        return join_to_likely(known, *query, weights=weights, likely=likely).rows

    return step


def run(queries: list[Query], step: Step) -> tuple[float, list[float]]:
    """Return max diag(C) at the end of the stream, and the CPU milliseconds each query took."""
    known, times = nothing_known(queries[0][0].shape[1]), []
    for query in queries:
        start = time.process_time()
        new = step(known, query)
        times.append(1000 * (time.process_time() - start))
        known = known.with_rows(new, np.zeros(len(new)))
        if not (known.variances(query[0]) <= query[1] * (1 + 1e-6)).all():
            raise AssertionError("a query was not answered as accurately as it was asked")
    return float(known.profile.max()), times


def ladder(queries: list[Query], likely: Prior) -> dict[str, float]:
    """Return the cost of each way, and the mean milliseconds a query of those that plan."""
    rows = [standard(query) for query in queries]
    found = {
        "one charge": sum(float((B**2).sum(axis=0).max()) for B in rows),
        "per cell": float(sum((B**2).sum(axis=0) for B in rows).max()),
    }
    steps: dict[str, Step] = {
        "known is free": known_is_free,
        "common": common_residual,
        "join": plain_join,
        "to targets, even": to_targets(None, 0.0),
        "to targets": to_targets(None, 3.0),
        "likely": to_targets(likely, 3.0),
    }
    for name, step in steps.items():
        found[name], times = run(queries, step)
        found[f"{name}, ms"] = float(np.mean(times))
        found[f"{name}, ms 95%"] = float(np.quantile(times, 0.95))
    W, c = np.vstack([W for W, _ in queries]), np.concatenate([c for _, c in queries])
    best = fit(W, c, gap=2e-3, max_steps=1000)
    found["clairvoyant"], found["bound"] = best.cost, best.bound
    return found


def streams() -> dict[str, tuple[Callable[[np.random.Generator], list[Query]], Prior]]:
    """Return the streams by name, each with the prior that fits its axes."""
    measure = [*likely_queries([False, True], [3, 8]), np.eye(2) + 0.5]
    return {
        "group-by 2x5x9, 100 queries": (
            lambda rng: group_by((2, 5, 9), 100, rng),
            prior(likely_queries([False, True, True], [2, 5, 9])),
        ),
        "group-by 4x4x8, 100 queries": (
            lambda rng: group_by((4, 4, 8), 100, rng),
            prior(likely_queries([True, True, True], [4, 4, 8])),
        ),
        "SUM and COUNT 3x8, 100 queries": (lambda rng: group_by((3, 8), 100, rng, high=10.0), prior(measure)),
        "ranges over 64, 120 queries": (lambda rng: ranges(64, 120, rng), prior(likely_queries([True], [64]))),
    }


def main() -> None:
    """Print one line a stream and way, the mean over seeds, and the ratio to the clairvoyant optimum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=100, help="first seed; 0 to 3 were used to set the two constants")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    figures = {}
    seeds = range(options.first, options.first + options.seeds)
    for name, (make, likely) in streams().items():
        runs = [ladder(make(np.random.default_rng(seed)), likely) for seed in seeds]
        figures[name] = runs
        print(f"\n{name}, {options.seeds} seeds")
        for way in runs[0]:
            if "ms" in way:
                continue
            costs = np.array([one[way] for one in runs])
            ratios = costs / np.array([one["clairvoyant"] for one in runs])
            took = f"{np.mean([one[f'{way}, ms'] for one in runs]):7.1f} ms" if f"{way}, ms" in runs[0] else ""
            print(
                f"  {way:18s} {costs.mean():8.2f} {ratios.mean():7.3f} x (worst {ratios.max():.3f}) {took}", flush=True
            )
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
