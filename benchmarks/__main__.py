"""Run every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import platform

from benchmarks import cube, dashboard, ladder, ledger, marginals, planning, query, sampling, sources, wire
from benchmarks.papers import common_mechanism

if __name__ == "__main__":
    print(f"{platform.machine()}, Python {platform.python_version()}, {platform.system()}")
    for module in (
        sampling,
        ledger,
        query,
        sources,
        ladder,
        dashboard,
        planning,
        marginals,
        cube,
        common_mechanism,
        wire,
    ):
        print(f"\n{(module.__doc__ or '').splitlines()[0]}")
        module.main()
