"""Planning a round to accuracy targets: time to a certified 1 % beside SM-II, what a round saves, the largest round.

    python -m benchmarks.fitness [--full] [--times 10]

SM-II (arXiv 2012.00135, with the right second derivative) runs until it reaches what ours costs, at most that many
times as long, or two seconds; then the cost that it has reached by then is shown. One BLAS thread, CPU seconds: compare
as ratios. A round of group-by/filter queries is compared with each query by itself, and after a history with a plan
that knows nothing of it. The largest round is the last one that is done within 10 CPU seconds, with --full within 60,
sizes growing by a half.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.ladder import group_by
from benchmarks.papers.fitness_for_use import marginals, prefix, ranges
from benchmarks.papers.softmax import soft_max_fit
from mechanisms.gaussian.known import nothing_known
from mechanisms.gaussian.linear import Matrix
from mechanisms.least.minimax import Strategy, even_join, fit
from mechanisms.least.residual import join_residual


def timed(work: Callable[[], Strategy]) -> tuple[Strategy, float]:
    """Return what is found, and the CPU seconds."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def beside_soft_max(times: float) -> None:
    """Print the time to a gap of 1 %, ours and SM-II's to the same cost."""
    rng = np.random.default_rng(0)
    for d in (64, 256, 1024):
        W = ranges(d, rng)
        cases = {
            "prefix": (prefix(d), np.ones(d)),
            "range": (W, np.ones(2 * d)),
            "range, random targets": (W, rng.uniform(1, 10, 2 * d)),
        }
        for name, (V, c) in cases.items():
            _print_case(f"{name}, d = {d}", V, c, times)


def _print_case(name: str, V: Matrix, c: Matrix, times: float) -> None:
    ours, spent = timed(lambda: fit(V, c, gap=0.01))
    limit = max(times * spent, 2.0)
    theirs, taken = timed(lambda: soft_max_fit(V, c, enough=ours.cost, seconds=limit, tolerance=1e-4))
    text = f"  {name:32s} ours {ours.cost:8.4f} gap {ours.cost / ours.bound - 1:.4f} {spent:7.3f} s   SM-II "
    if theirs.cost <= ours.cost:
        print(f"{text}{taken:8.3f} s, {taken / spent:.0f} times as long; gap {theirs.cost / theirs.bound - 1:.4f}")
    else:
        print(f"{text}after {limit / spent:.0f} times as long still at {theirs.cost / ours.cost:.3f} of our cost")


def rounds() -> None:
    """Print what planning together saves."""
    print("  30 group-by/filter queries over 4 x 4 x 8 cells, cost (twice the rho), mean of 5 draws:")
    figures = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        queries = group_by((4, 4, 8), 30, rng)
        half, W, c = queries[:15], *(np.concatenate(part) for part in zip(*queries, strict=True))
        together = fit(W, c)
        alone = sum(fit(*query).cost for query in queries)
        released = [fit(*query) for query in half]
        history = np.vstack([found.K @ query[0] for found, query in zip(released, half, strict=True)])
        known = nothing_known(128).with_rows(history, np.zeros(len(history)))
        paid = known.profile
        direct = even_join(known, W, c)
        planned = join_residual(known, together.K @ W)
        figures.append(
            [
                alone,
                together.cost,
                together.bound,
                float(paid.max()),
                float((planned**2).sum(axis=0).max()),
                direct.cost,
                direct.bound,
            ]
        )
    one, all_of_them, bound, before, joined, direct_cost, direct_bound = np.mean(figures, axis=0)
    print(f"    each by itself {one:.2f}   as one round {all_of_them:.3f}, least possible {bound:.3f}")
    print(
        f"    15 of them released before, one by one ({before:.2f}), all as a round then costs: planned afresh, joined"
        f" {joined:.2f}   planned on what is known {direct_cost:.2f}, least possible {direct_bound:.2f}"
    )


def largest(seconds: float) -> None:
    """Print the largest rounds that are planned to 1 % in that time."""
    shapes: dict[str, tuple[Callable[[int], Matrix], int]] = {
        "prefix sums": (prefix, 256),
        "prefix sums of 16 values in n groups, and in all": (_grouped, 16),
        "1- and 2-way marginals of three n-valued columns": (marginals, 8),
    }
    for name, (make, size) in shapes.items():
        best = ""
        while True:
            V = make(size)
            found, spent = timed(lambda V=V: fit(V, np.ones(len(V)), gap=0.01))  # type: ignore[misc]
            if spent > seconds or V.size > 2**27:
                break
            gap = found.cost / found.bound - 1
            best = f"n = {size}: {V.shape[1]:,} cells, {len(V):,} rows, {spent:.1f} s, gap {gap:.4f}"
            size += size // 2
        print(f"  {name:50s} {best}")


def _grouped(groups: int) -> Matrix:
    return np.vstack([np.kron(np.eye(groups), prefix(16)), np.kron(np.ones((1, groups)), prefix(16))])


def main() -> None:
    """Print all three parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the largest round in a minute")
    parser.add_argument("--times", type=float, default=10.0, help="how many times as long SM-II may take")
    options = parser.parse_args()
    print("Time to a certified gap of 1 %")
    beside_soft_max(options.times)
    print("\nWhat a round saves")
    rounds()
    print(f"\nLargest round in {60 if options.full else 10} CPU seconds, to a gap of 1 %")
    largest(60.0 if options.full else 10.0)


if __name__ == "__main__":
    main()
