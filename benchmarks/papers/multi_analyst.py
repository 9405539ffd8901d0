"""Figures 3 to 5 of "Budget Sharing for Multi-Analyst Differential Privacy" (PVLDB 14(10), 2021), shape and order.

    python benchmarks/papers/multi_analyst.py [--full] [--instances 10] [--starts 3] [--migration migration_tworace.csv]

k analysts, k uniform in 2 to 20, each with a workload drawn from eight on 64 cells (six race bits): two tables by race,
one race, the total, all cells, prefixes, a binary tree, and random rows; or, on 256 cells, one of the eight one-way
marginals of bits. Strategies are p-identity as in the paper, for Laplace noise; beside them are our own selection, and
Gaussian noise. For each mechanism: total error over that of independent analysts (ratio of means), in how many cases
somebody would have been better off alone, and in how many somebody would have been better off without another. In
brackets what the authors' artifact gives for 100 instances. --full: 100 instances, 10 starts, and interference of
p-identity on marginals too ("-" otherwise): some hours.
Figure 4 (a mean, a median, quartiles) needs counts of 86 ages, lines "age,count"; without --migration they are a
STAND-IN with a similar shape. Noise there is numpy's: a simulation.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from mechanisms.linear import Matrix
from mechanisms.sharing import MECHANISMS, Analyst, Select, interference, p_identity, select_strategy, share

CELLS = 64
JOINT = ("identity", "utilitarian", "weighted_utilitarian", "waterfilling")
TOLERANCE = 1e-3
PUBLISHED = {"identity": 0.0072, "utilitarian": 0.0050, "weighted_utilitarian": 0.0063, "waterfilling": 0.0095}
PUBLISHED_MARGINALS = {"identity": 0.367, "utilitarian": 0.052, "weighted_utilitarian": 0.058, "waterfilling": 0.141}

Draw = Callable[[np.random.Generator], Matrix]


def by_race(rng: np.random.Generator) -> Matrix:
    """Return one of the eight workloads on six race bits."""
    bits = np.array([bin(cell).count("1") for cell in range(CELLS)])
    single = np.eye(CELLS)[bits == 1]
    exactly = np.array([bits == count for count in range(1, 7)], dtype=float)
    fixed = [
        np.vstack([single, bits != 1]),
        np.vstack([np.eye(CELLS)[1:], exactly, bits >= 2]),
        single[:1],
        np.ones((1, CELLS)),
        np.eye(CELLS),
        np.tril(np.ones((CELLS, CELLS))),
        np.vstack([np.kron(np.eye(2**level), np.ones((1, CELLS >> level))) for level in range(7)]),
    ]
    number = int(rng.integers(len(fixed) + 1))
    return custom(rng) if number == len(fixed) else fixed[number].astype(float)


def custom(rng: np.random.Generator) -> Matrix:
    """Return 1 to 2 n rows: ranges, single cells, random sets and random rows."""
    cells, rows = np.arange(CELLS), []
    for _ in range(rng.integers(1, 2 * CELLS + 1)):
        low, high = np.sort(rng.integers(0, CELLS, 2))
        choices = [
            (cells >= low) & (cells <= high),
            cells == low,
            rng.integers(0, 2, CELLS),
            rng.random(CELLS),
        ]
        rows.append(np.asarray(choices[rng.integers(4)], dtype=float))
    found = np.array(rows)
    return found if found.any() else np.eye(CELLS)


def one_way(rng: np.random.Generator, *, bits: int = 8) -> Matrix:
    """Return the marginal of one bit."""
    kept = int(rng.integers(bits))
    return np.kron(np.ones((1, 2**kept)), np.kron(np.eye(2), np.ones((1, 2 ** (bits - 1 - kept)))))


def instances(draw: Draw, count: int, seed: int) -> list[list[Analyst]]:
    """Return that many tables of 2 to 20 analysts of equal weight."""
    rng = np.random.default_rng(seed)
    return [[Analyst(draw(rng)) for _ in range(rng.integers(2, 21))] for _ in range(count)]


def remembered(select: Select) -> Select:
    """Return the selection, which does not do its work twice."""
    found: dict[bytes, Matrix] = {}

    def look(W: Matrix) -> Matrix:
        key = W.tobytes()
        if key not in found:
            found[key] = select(W)
        return found[key]

    return look


def figure_3(tables: list[list[Analyst]], starts: int, published: dict[str, float], *, quick: bool) -> None:
    """Print totals and violations for the paper's selection, for ours, and for Gaussian noise."""
    settings: dict[str, tuple[str, Select]] = {
        "p-identity": ("laplace", remembered(partial(p_identity, starts=starts))),
        "ours": ("laplace", remembered(partial(select_strategy, noise="laplace", starts=starts))),
        "gaussian": ("gaussian", remembered(partial(select_strategy, noise="gaussian"))),
    }
    print(f"  {'':22s}" + "".join(f"{name:>34s}" for name in settings))
    alone = {name: _totals(tables, "independent", *setting).mean() for name, setting in settings.items()}
    for mechanism in JOINT:
        text = f"  {mechanism:22s}"
        for name, (noise, select) in settings.items():
            total = _totals(tables, mechanism, noise, select).mean() / alone[name]
            figures = f"{total:.4f}"
            if name == "p-identity":
                figures += f" ({published[mechanism]:.4f})"
            if mechanism != "identity":
                figures += f"  alone {_worse(tables, mechanism, noise, select)}"
                hurt = "-" if quick and name == "p-identity" else _hurt(tables, mechanism, noise, select)
                figures += f"  without {hurt}"
            text += f"{figures:>34s}"
        print(text)


def _totals(
    tables: list[list[Analyst]], mechanism: str, noise: str, select: Select, tolerance: float = TOLERANCE
) -> Matrix:
    return np.array(
        [
            share(table, budget=1.0, mechanism=mechanism, noise=noise, select=select, tolerance=tolerance).joint.sum()
            for table in tables
        ]
    )


def _worse(
    tables: list[list[Analyst]], mechanism: str, noise: str, select: Select, tolerance: float = TOLERANCE
) -> int:
    """Return in how many instances somebody has more error than alone."""
    return sum(
        bool(
            share(table, budget=1.0, mechanism=mechanism, noise=noise, select=select, tolerance=tolerance).ratios.max()
            > 1 + 1e-6
        )
        for table in tables
    )


def _hurt(tables: list[list[Analyst]], mechanism: str, noise: str, select: Select) -> int:
    """Return in how many instances somebody has more error than without some other."""
    found = [
        interference(table, mechanism=mechanism, noise=noise, select=select, tolerance=TOLERANCE) for table in tables
    ]
    return sum(bool(np.nanmax(each) > 1 + 1e-6) for each in found)


def figure_4(ages: Matrix, count: int, starts: int, seed: int) -> None:
    """Print the errors of means, medians and quartiles, by simulation at epsilon 0.01."""
    size = len(ages)
    prefix, values = np.tril(np.ones((size, size))), np.arange(size, dtype=float)
    workloads = [np.vstack([np.ones(size), values]), prefix, prefix, prefix]
    quantiles = [None, 0.5, 0.25, 0.75]
    select = remembered(partial(p_identity, starts=starts))
    rng = np.random.default_rng(seed)
    totals: dict[str, list[float]] = {mechanism: [] for mechanism in MECHANISMS}
    for _ in range(count):
        kinds = rng.integers(0, 4, rng.integers(2, 21))
        table = [Analyst(workloads[kind]) for kind in kinds]
        for mechanism in MECHANISMS:
            errors = [
                _simulated(ages, table, mechanism, workloads[kind], quantiles[kind], select, rng)
                for kind in np.unique(kinds)
            ]
            asked = [int((kinds == kind).sum()) for kind in np.unique(kinds)]
            totals[mechanism].append(float(np.dot(errors, asked)))
    base = np.median(totals["independent"])
    for mechanism in MECHANISMS[2:] + MECHANISMS[:1]:
        print(f"  {mechanism:22s} median total error over independent {np.median(totals[mechanism]) / base:.4f}")


def _simulated(
    ages: Matrix,
    table: list[Analyst],
    mechanism: str,
    W: Matrix,
    quantile: float | None,
    select: Select,
    rng: np.random.Generator,
) -> float:
    """Return the mean squared error of one kind of answer, over 50 releases."""
    budget = 0.01
    if mechanism == "independent":
        mechanism, table, budget = "waterfilling", [Analyst(W)], budget / len(table)
    rows = share(table, budget=budget, mechanism=mechanism, noise="laplace", select=select, tolerance=TOLERANCE).rows
    noise = rng.laplace(size=(50, len(rows)))
    estimates = ages + noise @ np.linalg.pinv(rows).T
    found = np.array([_statistic(each, quantile) for each in estimates])
    return float(((found - _statistic(ages, quantile)) ** 2).mean())


def _statistic(counts: Matrix, quantile: float | None) -> float:
    values = np.arange(len(counts))
    if quantile is None:
        return float(np.clip(values @ counts / max(float(counts.sum()), 1.0), 0, len(counts) - 1))
    ranks = np.cumsum(counts)
    return float(np.argmin(np.abs(ranks - quantile * ranks[-1])))


def figure_5(tables: list[list[Analyst]], starts: int) -> None:
    """Print what the tolerance of the buckets does, on one-way marginals."""
    select = remembered(partial(p_identity, starts=starts))
    alone = _totals(tables, "independent", "laplace", select).mean()
    for tolerance in (0.1, 0.01, 1e-3, 1e-4, 0.0):
        total = _totals(tables, "waterfilling", "laplace", select, tolerance).mean() / alone
        worse = _worse(tables, "waterfilling", "laplace", select, tolerance)
        print(f"  tolerance {tolerance:<7g} total {total:.4f}   better off alone in {worse} of {len(tables)}")


def stand_in(size: int = 86) -> Matrix:
    """Return counts by age that fall from the young to the old, about as many as the published."""
    return np.round(400 * np.exp(-np.arange(size) / 25.0))


def main() -> None:
    """Print all three figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="100 instances, 10 starts")
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--migration", type=Path, help="counts by age, lines of age,count")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count, starts = (100, 10) if options.full else (options.instances, options.starts)
    print(f"Figure 3 above, practical settings, {count} instances")
    figure_3(instances(by_race, count, options.seed), starts, PUBLISHED, quick=False)
    print("  (the artifact, of 100: utilitarian alone 3, without 37; weighted 0, 34; waterfilling 0, 0)")
    marginals = instances(one_way, count, options.seed)
    print(f"\nFigure 3 below, one-way marginals of eight bits, {count} instances")
    figure_3(marginals, starts, PUBLISHED_MARGINALS, quick=not options.full)
    ages = (
        stand_in()
        if options.migration is None
        else np.loadtxt(options.migration, delimiter=",", encoding="utf-8-sig")[:, 1]
    )
    print(
        f"\nFigure 4, means and quantiles of {'STAND-IN ' if options.migration is None else ''}ages, {count} instances"
    )
    figure_4(ages, count, starts, options.seed)
    print(f"\nFigure 5, tolerance of the buckets, one-way marginals, {count} instances")
    figure_5(marginals, starts)


if __name__ == "__main__":
    main()
