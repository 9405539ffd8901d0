"""Whole marginals planned together: what CUBE of columns like Adult's costs, beside each grouping set on its own.

Run with `python -m benchmarks.cube`. Costs are profiles at variance 1 (rho is half of that); the second table
asks the same columns one set after the other, from coarse to fine and from fine to coarse, each topping up the last.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from mechanisms.least import marginals as helmert
from mechanisms.least.marginals import Subset, subsets

ADULT = {
    "age": 74, "education": 16, "occupation": 15, "workclass": 9, "marital_status": 7, "relationship": 6, "race": 5,
    "sex": 2, "income": 2,
}  # fmt: skip

CHOICES = (
    ("sex", "race"),
    ("education", "sex", "race"),
    ("education", "workclass", "sex", "race"),
    ("age", "education", "occupation"),
    ("age", "education", "workclass", "sex", "race"),
    ("education", "occupation", "workclass", "marital_status", "race", "sex"),
    ("education", "workclass", "marital_status", "relationship", "race", "sex", "income"),
)


def cube(columns: Sequence[str]) -> tuple[float, float, float]:
    """Return the cost of CUBE planned together, that of its sets one by one, and the seconds to plan it."""
    sizes, start = tuple(ADULT[column] for column in columns), time.perf_counter()
    wanted = subsets(tuple(range(len(sizes))))
    found = helmert.top_up(sizes, {}, dict.fromkeys(wanted, 1.0))
    return found.cost, float(len(wanted)), time.perf_counter() - start


def stream(columns: Sequence[str], asked: Sequence[Subset]) -> float:
    """Return the cost of the sets asked one after the other, each paying for what the others have not told."""
    sizes = tuple(ADULT[column] for column in columns)
    known: dict[Subset, float] = {}
    total = 0.0
    for A in asked:
        found = helmert.top_up(sizes, known, {A: 1.0})
        known |= found.precisions
        total += found.cost
    return total


def main() -> None:
    print(f"{'columns of CUBE':<72} {'cells':>9} {'sets':>5} {'own':>6} {'joint':>6} {'ratio':>6} {'plan ms':>8}")
    for columns in CHOICES:
        joint, own, seconds = cube(columns)
        cells = math.prod(ADULT[column] for column in columns)
        ratio = own / joint
        print(
            f"{', '.join(columns):<72} {cells:>9,} {2 ** len(columns):>5} {own:>6.0f} {joint:>6.2f} {ratio:>6.2f}"
            f" {seconds * 1e3:>8.1f}"
        )
    print(f"\n{'the same one after the other':<72} {'own':>6} {'joint':>6} {'coarse first':>13} {'fine first':>11}")
    for columns in CHOICES:
        asked = subsets(tuple(range(len(columns))))
        joint, own, _ = cube(columns)
        up, down = stream(columns, asked), stream(columns, asked[::-1])
        print(f"{', '.join(columns):<72} {own:>6.0f} {joint:>6.2f} {up:>13.2f} {down:>11.2f}")


if __name__ == "__main__":
    main()
