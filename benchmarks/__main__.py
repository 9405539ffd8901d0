"""Run every benchmark: `python -m benchmarks`."""

from __future__ import annotations

import platform

from benchmarks import ledger, query, sampling

if __name__ == "__main__":
    print(f"{platform.machine()}, Python {platform.python_version()}, {platform.system()}")
    for module in (sampling, ledger, query):
        print(f"\n{(module.__doc__ or '').splitlines()[0]}")
        module.main()
