"""Run every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import platform

from benchmarks import (
    cube,
    dashboard,
    fitness,
    gates,
    ladder,
    ledger,
    marginals,
    planning,
    query,
    rounds,
    sampling,
    sources,
    verify,
    wire,
)
from benchmarks.papers import common_mechanism, dp_pqd, fitness_for_use, multi_analyst

if __name__ == "__main__":
    print(f"{platform.machine()}, Python {platform.python_version()}, {platform.system()}")
    ours = (sampling, ledger, gates, query, sources, ladder, dashboard, planning, marginals, cube, fitness, rounds)
    ours += (verify, wire)
    papers = (common_mechanism, dp_pqd, fitness_for_use, multi_analyst)
    for module in ours + papers:
        print(f"\n{(module.__doc__ or '').splitlines()[0]}")
        module.main()
