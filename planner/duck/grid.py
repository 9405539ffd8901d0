"""Values of a grid, from their index, in DuckDB's SQL."""

from __future__ import annotations

from typing import Any

from planner.policy.domain import Domain


def grid_value(domain: Domain, i: str = "i") -> str:
    """Return the SQL of the i-th value of a grid domain."""
    low, step = domain.low, domain.step
    match domain.type:
        case "integer":
            return f"CAST({low} + {i} * {step} AS BIGINT)"
        case "float":
            # One division of exact integers, so that the grid is the same double everywhere.
            scale = 10 ** max(_decimals(low), _decimals(step))
            return f"CAST({int(low * scale)} + {i} * {int(step * scale)} AS DOUBLE) / {scale}.0"
        case "date":
            return f"CAST(DATE '{low}' + CAST({i} * {step} AS INTEGER) AS DATE)"
        case _:
            microseconds = int(step.total_seconds() * 1_000_000)  # type: ignore[union-attr]
            return f"TIMESTAMP '{low}' + to_microseconds({i} * {microseconds})"


def _decimals(number: Any) -> int:  # Any: a Decimal here, Domain's type is wider
    return max(0, -int(number.as_tuple().exponent))
