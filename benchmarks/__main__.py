"""Run every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import platform

from benchmarks import cube, dashboard, ladder, ledger, marginals, planning, query, sampling, verify, wire
from benchmarks.papers import common_mechanism, dp_pqd

if __name__ == "__main__":
    print(f"{platform.machine()}, Python {platform.python_version()}, {platform.system()}")
    modules = (
        sampling,
        ledger,
        query,
        ladder,
        dashboard,
        planning,
        marginals,
        cube,
        verify,
        common_mechanism,
        dp_pqd,
        wire,
    )
    for module in modules:
        print(f"\n{(module.__doc__ or '').splitlines()[0]}")
        module.main()
