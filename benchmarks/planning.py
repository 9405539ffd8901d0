"""Planning time a query, against the length of the history and the size of the domain, beside one Cholesky factor.

    python -m benchmarks.planning [largest number of cells, 4096]

Random group-by/filter queries of at most 384 rows, each at a variance of 1, 1/2 or 1/4, planned one after the other by
the join to targets with prices. The time of a query is planning it and adding what it releases to what is
known; most queries late in a stream are free. Every size is a process of its own with one BLAS thread; times are CPU
milliseconds, and in brackets the ratio to one Cholesky factorisation of a d x d matrix, measured along the way.
"""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.linalg import cholesky

from benchmarks.ladder import Query, group_by
from mechanisms.gaussian.known import nothing_known
from mechanisms.least.residual import join_to_targets, prices

DOMAINS = {64: (4, 16), 256: (16, 16), 1024: (4, 16, 16), 4096: (16, 16, 16)}
HISTORY = {64: 1000, 256: 1000, 1024: 1000, 4096: 100}
CHECKPOINTS = (10, 30, 100, 300, 1000)
MOST_ROWS = 384


def queries(sizes: tuple[int, ...], count: int, rng: np.random.Generator) -> list[Query]:
    """Return that many random queries, none of them of too many rows."""
    found: list[Query] = []
    while len(found) < count:
        ((W, c),) = group_by(sizes, 1, rng)
        if len(W) <= MOST_ROWS:
            found.append((W, c * rng.choice([1.0, 0.5, 0.25])))
    return found


def milliseconds(work: Callable[[], object]) -> float:
    """Return the CPU time of the work."""
    start = time.process_time()
    work()
    return 1000 * (time.process_time() - start)


def measure(cells: int) -> None:
    """Print one line for each stretch of the history."""
    sizes = DOMAINS[cells]
    rows = np.random.default_rng(0).standard_normal((cells + 8, cells))
    matrix = rows.T @ rows
    known, times, free, reference = nothing_known(cells), [], [], []

    def step(W: np.ndarray, c: np.ndarray) -> None:
        nonlocal known
        plan = join_to_targets(known, W, c, weights=prices(known.profile))
        known = known.with_rows(plan.rows, np.zeros(len(plan.rows)))
        free.append(len(plan.rows) == 0)

    for number, (W, c) in enumerate(queries(sizes, HISTORY[cells], np.random.default_rng(1)), start=1):
        times.append(milliseconds(lambda W=W, c=c: step(W, c)))
        if number in CHECKPOINTS:
            reference.append(milliseconds(lambda: cholesky(matrix, check_finite=False)))
            unit = float(np.median(reference))
            print(
                f"  {cells:5d} cells, query {number:4d}: rank {known.rank:4d}, {100 * np.mean(free):3.0f} % free, "
                f"mean {np.mean(times):7.1f} ms ({np.mean(times) / unit:6.2f}), "
                f"95th percentile {np.quantile(times, 0.95):7.1f} ms ({np.quantile(times, 0.95) / unit:6.2f})",
                flush=True,
            )
            times, free = [], []
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(
        f"  {cells:5d} cells: one Cholesky factor {np.median(reference):.1f} ms, peak memory {peak:,.0f} MB", flush=True
    )


def main(largest: int = 4096) -> None:
    """Measure every size in a process of its own."""
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    for cells in DOMAINS:
        if cells <= largest:
            command = [sys.executable, "-m", "benchmarks.planning", "measure", str(cells)]
            subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
