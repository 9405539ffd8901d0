"""Samples a second of our rounded Gaussian beside OpenDP's discrete Gaussian, in one run.

    python benchmarks/sampling.py

Both are exact and draw with a standard deviation of 2^20. The two take turns, and the best of several turns
counts, so that other work on the machine disturbs the ratio less. Times are CPU seconds of this process.
"""

import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

import opendp.prelude as dp

sys.path.insert(0, str(Path(__file__).parent.parent))

from mechanisms.noise import sampling

BITS = 20
TURNS = 5
OURS, THEIRS = 2_000_000, 50_000


def opendp_gaussian() -> Callable[[list[int]], object]:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=2.0**BITS)


def seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    gaussian, zeros = opendp_gaussian(), [0] * THEIRS
    ours, theirs = [], []
    for _ in range(TURNS):
        ours.append(OURS / seconds(lambda: sampling.rounded_gaussian(OURS, bits=BITS)))
        theirs.append(THEIRS / seconds(lambda: gaussian(zeros)))
    print(f"machine            {platform.machine()}, {platform.system()}, Python {platform.python_version()}")
    print(f"rounded_gaussian   {max(ours):14,.0f} samples a CPU second")
    print(f"OpenDP Gaussian    {max(theirs):14,.0f} samples a CPU second")
    print(f"ratio              {max(ours) / max(theirs):14,.0f}")


if __name__ == "__main__":
    main()
