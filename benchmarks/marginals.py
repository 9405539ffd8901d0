"""All marginals up to three-way on 20, 50 and 100 attributes of ten values: plan time, and the largest thing in memory.

    python -m benchmarks.marginals

Two plans each: least total variance, which has a closed form, and targets for every marginal, within 1 % of a certified
bound. Domains have 10^20, 10^50 and 10^100 cells; no vector of cells and no d x d matrix is ever formed. Times are CPU
seconds, beside a product of two 1,000 x 1,000 matrices in the same run.
"""

from __future__ import annotations

import platform
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from benchmarks.papers.residual_planner import plan_total, up_to
from mechanisms.least.marginals import top_up

ATTRIBUTES = (20, 50, 100)


Planned = tuple[int, float]
"""How many numbers a plan has, and by how much it may be above the optimum, in percent."""


def measured(work: Callable[[], Planned]) -> tuple[float, float, Planned]:
    """Return the CPU seconds of the work, the peak of what it holds in MB (in a second run), and the plan."""
    start = time.process_time()
    plan = work()
    seconds = time.process_time() - start
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    return seconds, peak, plan


def of_total(sizes: tuple[int, ...], cells: dict[tuple[int, ...], float]) -> Planned:
    """Return the plan of least total variance: a closed form."""
    return len(plan_total(sizes, cells, cost=1.0).information), 0.0


def of_targets(sizes: tuple[int, ...], cells: dict[tuple[int, ...], float]) -> Planned:
    """Return the plan for a target of one on every marginal."""
    plan = top_up(sizes, {}, dict.fromkeys(cells, 1.0), gap=0.01)
    return len(plan.precisions), 100 * (plan.cost / plan.bound - 1)


def main() -> None:
    """Print one line a plan."""
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, numpy {np.__version__}")
    square = np.random.default_rng(0).standard_normal((1000, 1000))
    start = time.process_time()
    _ = square @ square
    unit = time.process_time() - start
    print(f"  one product of 1,000 x 1,000 matrices takes {1000 * unit:.0f} ms")
    for attributes in ATTRIBUTES:
        sizes, wanted = (10,) * attributes, up_to(attributes, 3)
        cells = {A: float(prod(sizes[i] for i in A)) for A in wanted}
        for name, plan in {"total variance": of_total, "targets": of_targets}.items():
            seconds, peak, (vector, above) = measured(partial(plan, sizes, cells))
            print(
                f"  {attributes:3d} attributes, {len(wanted):7,} marginals, {name:14s}: {seconds:6.2f} s "
                f"({seconds / unit:4.0f} products), peak {peak:4.0f} MB, longest vector {vector:,}, "
                f"at most {above:.2f} % above the optimum",
                flush=True,
            )


if __name__ == "__main__":
    main()
