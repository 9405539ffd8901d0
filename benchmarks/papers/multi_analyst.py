"""Figures 3 to 5 of "Budget Sharing for Multi-Analyst Differential Privacy" (PVLDB 14(10), 2021), shape and order.

    python benchmarks/papers/multi_analyst.py [folder] [--instances 10] [--starts 3] [--full]

k analysts, k uniform in 2 to 20, each with a workload drawn from eight on 64 cells (six race bits): two tables by race,
one race, the total, all cells, prefixes, a binary tree, and random rows; or, on 256 cells, one of the eight one-way
marginals of bits; or, on the 86 ages of data/migration_by_age.csv, a mean, a median or a quartile. Laplace noise,
epsilon 1, for means and quantiles 0.01; those errors are simulated, the others exact. tau is 1e-3.

Strategies are p-identity as in the paper, the best of some starts; beside them are our own selection, and Gaussian
noise. For each mechanism: the total error, the worst ratio to what somebody has alone (sharing incentive: at most 1),
and the worst ratio to what somebody has without another (non-interference: at most 1). As in the paper, waterfilling
keeps its strategies when somebody leaves, and the utilitarian mechanisms select anew. In brackets what the authors'
artifact gives for 100 instances.
Marginals that differ in the names of their bits only have one strategy, up to these names. So all of them cost the same
alone, all weights are equal, and there weighted utilitarian is utilitarian. In the artifact the two differ.
Figure 5 is shown twice: with one strategy for each marginal, and, since that has not the published shape, with one for
each analyst, as from random starts; whether the authors did so, the paper does not say.

--full: 100 instances, 10 starts; 4 on 256 cells, where one takes half a second. That is not as good: on three workloads
tried the best of 10 was 0, 5 and 18 % below the best of 3. So some of the interference there may be luck of the starts;
that of the Gaussian strategies, which are certified, is not. What it prints is kept in multi_analyst/tables.txt, and
the plots beside it: lines are medians, boxes quartiles, triangles means, whiskers the least and the most.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.papers import svg
from benchmarks.papers.sharing import POWERS, p_identity, select_strategy, share
from mechanisms.gaussian.linear import Matrix
from mechanisms.sharing import Analyst, Select

CELLS, BITS = 64, 8
COLOURS = {
    "independent": "#7f7f7f",
    "identity": "#1f77b4",
    "utilitarian": "#d62728",
    "weighted_utilitarian": "#ff7f0e",
    "waterfilling": "#2ca02c",
}
ADAPTIVE = ("utilitarian", "weighted_utilitarian", "waterfilling")
TOLERANCE = 1e-3
TOLERANCES = (0.1, 0.01, 1e-3, 1e-4, 0.0)
PUBLISHED = {"identity": 0.0072, "utilitarian": 0.0050, "weighted_utilitarian": 0.0063, "waterfilling": 0.0095}
PUBLISHED_MARGINALS = {"identity": 0.367, "utilitarian": 0.052, "weighted_utilitarian": 0.058, "waterfilling": 0.141}
EPSILON_SIMULATED = 0.01
AGES = Path(__file__).resolve().parent / "data" / "migration_by_age.csv"

_WORSE = 1 + 1e-6
"""A ratio above this is a violation, below it rounding."""

Draw = Callable[[np.random.Generator], Matrix]


@dataclass(frozen=True, eq=False)
class Measured:
    """What a mechanism does in each instance; `regrets` are nan where they were not measured."""

    totals: Matrix
    ratios: Matrix
    regrets: Matrix


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


def one_way(rng: np.random.Generator) -> Matrix:
    """Return the marginal of one bit."""
    return marginal(int(rng.integers(BITS)))


def marginal(bit: int) -> Matrix:
    """Return the two rows that tell how many records have the bit, the last bit being number 0."""
    has_it = (np.arange(2**BITS) >> bit) & 1
    return np.array([has_it == 0, has_it == 1], dtype=float)


def by_weight(table: list[Analyst]) -> list[Analyst]:
    """Return the analysts of one-way marginals with the bits called 0, 1, ... by how many ask for them."""
    asked = [next(bit for bit in range(BITS) if analyst.W[0, 1 << bit] == 0) for analyst in table]
    order = np.argsort(-np.bincount(asked, minlength=BITS), kind="stable")
    return [Analyst(marginal(int(np.flatnonzero(order == bit)[0]))) for bit in asked]


def as_it_is(table: list[Analyst]) -> list[Analyst]:
    """Return the table."""
    return table


def instances(draw: Draw, count: int, seed: int) -> list[list[Analyst]]:
    """Return that many tables of 2 to 20 analysts of equal weight."""
    rng = np.random.default_rng(seed)
    return [[Analyst(draw(rng)) for _ in range(rng.integers(2, 21))] for _ in range(count)]


def remembered(select: Select) -> Select:
    """Return the selection, which does not do its work twice: what is best depends on W^T W up to a factor only."""
    found: dict[bytes, Matrix] = {}

    def look(W: Matrix) -> Matrix:
        G = W.T @ W
        key = bytes(np.round(G / G.max(), 10).tobytes())
        if key not in found:
            found[key] = select(W)
        return found[key]

    return look


def renamed(select: Select) -> Select:
    """Return the selection for one-way marginals of bits, which calls the bits by how much they weigh."""
    cells = np.arange(2**BITS)

    def look(W: Matrix) -> Matrix:
        G = W.T @ W
        weights = np.array([G[0, cells[-1] ^ (1 << bit)] for bit in range(BITS)])
        order = np.argsort(-np.round(weights / weights.max(), 10), kind="stable")
        place = sum(((cells >> bit) & 1) << i for i, bit in enumerate(order))
        turned = np.empty_like(W)
        turned[:, place] = W
        return select(turned)[:, place]

    return look


def measured(
    tables: Sequence[list[Analyst]],
    mechanism: str,
    noise: str,
    select: Select,
    *,
    tolerance: float = TOLERANCE,
    leaves: bool = True,
    form: Callable[[list[Analyst]], list[Analyst]] = as_it_is,
) -> Measured:
    """Return totals, worst ratios and, if anybody is to leave, worst regrets.

    Tables that have the same form, in any order, are served alike.
    """
    own, found = _alone(noise, select), dict[tuple[bytes, ...], Matrix]()

    def errors(table: list[Analyst], budget: float) -> Matrix:
        formed = sorted(enumerate(form(table)), key=lambda pair: pair[1].W.tobytes())
        key = tuple(analyst.W.tobytes() for _, analyst in formed)
        if key not in found:
            found[key] = share(
                [analyst for _, analyst in formed],
                budget=1.0,
                mechanism=mechanism,
                noise=noise,
                tolerance=tolerance,
                select=select,
            ).joint
        joint = np.empty(len(table))
        joint[[i for i, _ in formed]] = found[key]
        return np.asarray(joint * budget ** (-2 / POWERS[noise]))

    rows = []
    for table in tables:
        alone = np.array([own(analyst.W, len(table)) for analyst in table])
        joint = alone if mechanism == "independent" else errors(table, 1.0)
        regret = _regret(table, joint, errors) if leaves else np.nan
        rows.append((joint.sum(), (joint / alone).max(), regret))
    totals, ratios, regrets = np.array(rows).T
    return Measured(totals, ratios, regrets)


def _alone(noise: str, select: Select) -> Callable[[Matrix, int], float]:
    """Return the error of W with a k-th of the budget, all rows of the strategy as they stand."""
    found: dict[bytes, float] = {}

    def look(W: Matrix, k: int) -> float:
        key = W.tobytes()
        if key not in found:
            one = share([Analyst(W)], budget=1.0, mechanism="utilitarian", noise=noise, select=select)
            found[key] = float(one.joint[0])
        return found[key] * float(k ** (2 / POWERS[noise]))

    return look


def _regret(table: list[Analyst], together: Matrix, errors: Callable[[list[Analyst], float], Matrix]) -> float:
    """Return the largest error with everybody over that without one, who takes an equal part of the budget along.

    Those who ask the same are missed alike.
    """
    worst, seen = 0.0, set()
    for i, analyst in enumerate(table):
        if analyst.W.tobytes() in seen:
            continue
        seen.add(analyst.W.tobytes())
        rest = [j for j in range(len(table)) if j != i]
        without = errors([table[j] for j in rest], len(rest) / len(table))
        worst = max(worst, float((together[rest] / without).max()))
    return worst


def figure_3(
    tables: Sequence[list[Analyst]],
    settings: Mapping[str, tuple[str, Select]],
    published: Mapping[str, float],
    form: Callable[[list[Analyst]], list[Analyst]] = as_it_is,
) -> dict[str, Measured]:
    """Print all three measures for the paper's selection, for ours, and for Gaussian noise; return the paper's."""
    kept: dict[str, Measured] = {}
    for name, (noise, select) in settings.items():
        found = {
            mechanism: measured(tables, mechanism, noise, select, leaves=mechanism in ADAPTIVE, form=form)
            for mechanism in COLOURS
        }
        print(f"\n  {name}")
        print_measures(found, published if name.startswith("p-identity") else {})
        kept = kept or found
    return kept


def print_measures(found: Mapping[str, Measured], published: Mapping[str, float]) -> None:
    """Print one line a mechanism: quartiles and mean of each measure, and how often it is above one."""
    print(
        f"  {'':22s}{'total error: quartiles, mean':>42s}{'mean over independent':>24s}"
        f"{'worst ratio: quartiles, most, > 1':>42s}{'worst regret: quartiles, most, > 1':>42s}"
    )
    base = found["independent"].totals.mean()
    for mechanism, each in found.items():
        over = f"{each.totals.mean() / base:.4f}"
        over += f" ({published[mechanism]:.4f})" if mechanism in published else ""
        totals = "".join(f"{value:10.4g}" for value in [*_quartiles(each.totals), each.totals.mean()])
        is_compared = mechanism != "independent"
        print(
            f"  {mechanism:22s}{totals:>42s}{over:>24s}"
            f"{_ratios(each.ratios) if is_compared else '-':>42s}"
            f"{_ratios(each.regrets) if mechanism in ADAPTIVE else '-':>42s}",
            flush=True,
        )


def _quartiles(values: Matrix) -> list[float]:
    return [float(value) for value in np.quantile(values, [0.25, 0.5, 0.75])]


def _ratios(values: Matrix) -> str:
    """Return quartiles, the most and the number above one."""
    if np.isnan(values).all():
        return "-"
    figures = "".join(f"{value:8.3f}" for value in [*_quartiles(values), float(values.max())])
    return f"{figures}{int((values > _WORSE).sum()):6d}"


def verdict(text: str, *claims: bool) -> None:
    """Print whether what the paper says is found."""
    print(f"  -> {text}: {'confirmed' if all(claims) else 'NOT confirmed'}")


def _violations(found: Mapping[str, Measured], measure: str) -> list[int]:
    return [int((getattr(found[mechanism], measure) > _WORSE).sum()) for mechanism in ADAPTIVE]


def _means(found: Mapping[str, Measured]) -> dict[str, float]:
    return {mechanism: float(each.totals.mean()) for mechanism, each in found.items()}


# Figure 4


def figure_4(ages: Matrix, count: int, starts: int, *, runs: int, seed: int) -> dict[str, Measured]:
    """Print and return the errors of means, medians and quartiles, by simulation."""
    rng = np.random.default_rng(seed)
    tables = [np.bincount(rng.integers(0, 4, rng.integers(2, 21)), minlength=4) for _ in range(count)]
    select = remembered(partial(p_identity, starts=starts))
    errors = _simulation(ages, select, runs, seed)
    found = {mechanism: _measured_ages(tables, mechanism, errors) for mechanism in COLOURS}
    print_measures(found, {})
    return found


def _measured_ages(tables: Sequence[NDArray[np.intp]], mechanism: str, errors: Callable[..., Matrix]) -> Measured:
    rows = []
    for asked in tables:
        k, means, kinds = int(asked.sum()), int(asked[0]), np.flatnonzero(asked)
        alone = np.array([errors("waterfilling", int(kind == 0), int(kind > 0), 1 / k)[kind] for kind in range(4)])
        if mechanism == "independent":
            rows.append((float(asked @ alone), 1.0, np.nan))
            continue
        joint = errors(mechanism, means, k - means, 1.0)
        regrets = [np.nan]
        for leaver in kinds:
            rest = asked - np.eye(4, dtype=int)[leaver]
            without = errors(mechanism, int(rest[0]), int(rest[1:].sum()), (k - 1) / k)
            regrets.append(float((joint / without)[rest > 0].max()))
        rows.append((float(asked @ joint), float((joint / alone)[kinds].max()), np.nanmax(regrets)))
    totals, ratios, regret = np.array(rows).T
    return Measured(totals, ratios, regret)


def _simulation(ages: Matrix, select: Select, runs: int, seed: int) -> Callable[..., Matrix]:
    """Return the mean squared errors of a mean and three quantiles, (4,), always from the same draws.

    So many analysts ask for a mean, so many for a quantile, and this is their part of the budget.
    """
    size = len(ages)
    workloads = np.vstack([np.ones(size), np.arange(size, dtype=float)]), np.tril(np.ones((size, size)))
    truth = statistics(ages[None])[0]

    @cache
    def reconstruction(mechanism: str, means: int, others: int) -> Matrix:
        table = [Analyst(workloads[0])] * means + [Analyst(workloads[1])] * others
        rows = share(table, budget=1.0, mechanism=mechanism, noise="laplace", tolerance=TOLERANCE, select=select).rows
        return np.asarray(np.linalg.pinv(rows).T, dtype=np.float64)

    @cache
    def errors(mechanism: str, means: int, others: int, part: float) -> Matrix:
        back = reconstruction(mechanism, means, others)
        noise = np.random.default_rng(seed).laplace(size=(len(back), runs)).T
        noisy = ages + noise @ back / (part * EPSILON_SIMULATED)
        return np.asarray(((statistics(noisy) - truth) ** 2).mean(axis=0))

    return errors


def statistics(counts: Matrix) -> Matrix:
    """Return mean, median and quartiles of each row of counts by age, (r, 4)."""
    values = np.arange(counts.shape[1])
    ranks = counts.cumsum(axis=1)
    totals = ranks[:, -1:]
    means = np.clip(counts @ values / np.maximum(totals[:, 0], 1.0), 0, values[-1])
    places = [np.abs(ranks - part * totals).argmin(axis=1) for part in (0.5, 0.25, 0.75)]
    return np.column_stack([means, *places])


def figure_5(
    tables: Sequence[list[Analyst]], select: Select, form: Callable[[list[Analyst]], list[Analyst]]
) -> dict[str, Measured]:
    """Print what the tolerance of the buckets does, on one-way marginals."""
    found = {"independent": measured(tables, "independent", "laplace", select, leaves=False)}
    for tolerance in TOLERANCES:
        found[f"tau = {tolerance:g}"] = measured(
            tables, "waterfilling", "laplace", select, tolerance=tolerance, leaves=False, form=form
        )
    print_measures(found, {})
    return found


def shuffled(select: Select, rng: np.random.Generator) -> Select:
    """Return the selection from other starts: cells that W does not tell apart change places at random.

    That turns the best of some starts into the best of as many others, of the same error.
    """

    def look(W: Matrix) -> Matrix:
        A = select(W).copy()
        _, groups = np.unique(np.round(W, 6), axis=1, return_inverse=True)
        for group in range(int(groups.max()) + 1):
            cells = np.flatnonzero(groups.ravel() == group)
            A[:, cells] = A[:, rng.permutation(cells)]
        return A

    return look


def distinct(table: list[Analyst]) -> list[Analyst]:
    """Return the same analysts, no two of whom ask exactly the same: then each gets a strategy of the own."""
    return [Analyst(analyst.W * (1 + 1e-9 * i)) for i, analyst in enumerate(table)]


# All of it


def plot(path: Path, title: str, found: Mapping[str, Measured], *, zoomed: bool = False) -> None:
    """Write total errors, worst ratios and worst regrets as boxes; `zoomed` repeats the first without independent."""
    spare = iter(("#00441b", "#1b7837", "#5aae61", "#a6dba0", "#9970ab"))
    colours = {name: COLOURS.get(name) or next(spare) for name in found}
    others = [name for name in found if name != "independent"]
    last = [name for name in others if not np.isnan(found[name].regrets).all()]
    totals = {name: each.totals for name, each in found.items()}
    panels = [
        svg.Boxes("total error", totals, colours),
        svg.Boxes("worst ratio to alone", {name: found[name].ratios for name in others}, colours, mark=1.0),
    ]
    if zoomed:
        panels.insert(1, svg.Boxes("total error, zoomed", {name: totals[name] for name in others}, colours))
    if last:
        regrets = {name: found[name].regrets for name in last}
        panels.append(svg.Boxes("worst ratio to without another", regrets, colours, mark=1.0))
    svg.write_boxes(path, title, panels)


def practical(count: int, starts: int, seed: int) -> dict[str, Measured]:
    """Print Figure 3 above."""
    print(f"Figure 3 above, practical settings, {count} instances")
    settings = {
        f"p-identity, Laplace noise, best of {starts}": (
            "laplace",
            remembered(partial(p_identity, starts=starts)),
        ),
        "our selection, Laplace noise, best of 3": (
            "laplace",
            remembered(partial(select_strategy, noise="laplace", starts=3)),
        ),
        "our selection, Gaussian noise": ("gaussian", remembered(partial(select_strategy, noise="gaussian"))),
    }
    found = figure_3(instances(by_race, count, seed), settings, PUBLISHED)
    mean = _means(found)
    print("  (the artifact, of 100: utilitarian worse than alone 3, regrets 37; weighted 0, 34; waterfilling 0, 0)")
    verdict(
        "a: utilitarian < weighted < identity and waterfilling << independent, by their means",
        mean["utilitarian"] < mean["weighted_utilitarian"],
        mean["weighted_utilitarian"] < min(mean["identity"], mean["waterfilling"]),
        10 * max(mean["identity"], mean["waterfilling"]) < mean["independent"],
    )
    _judge(found)
    return found


def of_marginals(count: int, starts: int, seed: int, select: Select) -> dict[str, Measured]:
    """Print Figure 3 below."""
    print(f"\nFigure 3 below, one-way marginals of eight bits, {count} instances")
    settings = {
        f"p-identity, Laplace noise, best of {starts}": ("laplace", select),
        "our selection, Gaussian noise": ("gaussian", remembered(partial(select_strategy, noise="gaussian"))),
    }
    found = figure_3(instances(one_way, count, seed), settings, PUBLISHED_MARGINALS, by_weight)
    mean = _means(found)
    verdict(
        "d: utilitarian and weighted < waterfilling < identity < independent, by their means",
        max(mean["utilitarian"], mean["weighted_utilitarian"]) < mean["waterfilling"],
        mean["waterfilling"] < mean["identity"] < mean["independent"],
    )
    _judge(found)
    return found


def _judge(found: Mapping[str, Measured]) -> None:
    worse, regrets = _violations(found, "ratios"), _violations(found, "regrets")
    verdict("b, e: utilitarian is worse than alone for some", worse[0] > 0)
    verdict("b, e: weighted and waterfilling never are", not worse[1], not worse[2])
    verdict("c, f: both utilitarian ones interfere, waterfilling never", regrets[0] > 0, regrets[1] > 0, not regrets[2])


def of_ages(count: int, starts: int, runs: int, seed: int) -> dict[str, Measured]:
    """Print Figure 4."""
    ages = np.loadtxt(AGES, delimiter=",", comments="#")[:, 1]
    print(f"\nFigure 4, means and quantiles of {len(ages)} ages, {count} instances, {runs} releases each, simulated")
    found = figure_4(ages, count, starts, runs=runs, seed=seed)
    mean, middle = _means(found), {name: float(np.median(each.totals)) for name, each in found.items()}
    verdict(
        "a: independent is far worse than all others",
        3 * max(mean[n] for n in found if n != "independent") < mean["independent"],
    )
    verdict("b: weighted < utilitarian, by their medians", middle["weighted_utilitarian"] < middle["utilitarian"])
    verdict("b: waterfilling < identity, by their medians", middle["waterfilling"] < middle["identity"])
    worse, regrets = _violations(found, "ratios"), _violations(found, "regrets")
    verdict("c: nobody is worse than alone", not any(worse))
    verdict("d: both utilitarian ones interfere", regrets[0] > 0, regrets[1] > 0)
    verdict("d: waterfilling does not by more than 1 %", bool(found["waterfilling"].regrets.max() <= 1.01))
    return found


def of_tolerances(count: int, seed: int, select: Select) -> dict[str, Measured]:
    """Print Figure 5, with one strategy for each marginal, and with one for each analyst."""
    print(f"\nFigure 5, tolerance of the buckets, one-way marginals, {count} instances, p-identity")
    tables = instances(one_way, count, seed)
    rng = np.random.default_rng(seed)
    found: dict[str, Measured] = {}
    few = [distinct(table) for table in tables[:30]]
    for name, these, chosen, form in (
        ("who asks the same has the same strategy", tables, select, by_weight),
        (
            f"every analyst's strategy from starts of its own, {len(few)} instances",
            few,
            shuffled(select, rng),
            as_it_is,
        ),
    ):
        print(f"\n  {name}")
        found = figure_5(these, chosen, form)
        each = [found[f"tau = {tolerance:g}"] for tolerance in TOLERANCES]
        mean = [float(one.totals.mean()) for one in each]
        worse = [int((one.ratios > _WORSE).sum()) for one in each]
        verdict("a: the error is larger at 0.1 than at 1e-3 and 1e-4", mean[0] > 1.02 * max(mean[2:4]))
        verdict("a: it is larger at 0 than at 1e-3 and 1e-4", mean[4] > 1.02 * max(mean[2:4]))
        verdict("a: it is least at 0.01", int(np.argmin(mean)) == 1)
        verdict("b: somebody is worse than alone at 0.1 and 0.01", bool(worse[0]), bool(worse[1]))
        verdict("b: nobody from 1e-3 on", not any(worse[2:]))
    return found


def main(folder: Path | None = None, *, count: int = 10, starts: int = 3, full: bool = False, seed: int = 0) -> None:
    """Print all three figures, and write their plots into the folder."""
    count, starts, runs = (100, 10, 5000) if full else (count, starts, 200)
    print(
        f"Seed {seed}, one thread; {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()},"
        f" numpy {np.__version__}\n"
    )
    wide = min(starts, 4)
    select = renamed(remembered(partial(p_identity, starts=wide)))
    work: dict[str, tuple[str, Callable[[], dict[str, Measured]]]] = {
        "figure_3_practical": ("Figure 3 a to c, practical settings", lambda: practical(count, starts, seed)),
        "figure_3_marginals": (
            "Figure 3 d to f, one-way marginals",
            lambda: of_marginals(count, wide, seed, select),
        ),
        "figure_4": ("Figure 4, means and quantiles of ages", lambda: of_ages(count, starts, runs, seed)),
        "figure_5": (
            "Figure 5, tolerance of the buckets",
            lambda: of_tolerances(count, seed, select),
        ),
    }
    for name, (title, figure) in work.items():
        start = time.process_time()
        found = figure()
        print(f"  {time.process_time() - start:.0f} CPU seconds", flush=True)
        if folder is not None:
            plot(folder / f"{name}.svg", title, found, zoomed=name == "figure_4")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where the plots are written")
    parser.add_argument("--full", action="store_true", help="100 instances, 10 starts")
    parser.add_argument("--instances", type=int, default=10)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.folder, count=options.instances, starts=options.starts, full=options.full, seed=options.seed)
