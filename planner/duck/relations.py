"""Relations: the columns of a result, and rows of values as a table of a workbench."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.duck.quoting import quoted
from planner.duck.workbench import Workbench

SCHEMA = "noisegate"
"""The schema of the system tables, and of what can be called in FROM."""

Row = tuple[Any, ...]


@dataclass(frozen=True)
class OutputColumn:
    """Name and DuckDB type of one column of a result."""

    name: str
    type: str


def create(name: str, rows: Sequence[Row], types: Mapping[str, str], bench: Workbench) -> None:
    """Create a relation in the workbench from rows of values."""
    arrays = {column: _array([row[i] for row in rows], kind) for i, (column, kind) in enumerate(types.items())}
    bench.register(f"{name}_arrays", arrays)
    casts = ", ".join(f"CAST({quoted(column)} AS {kind}) AS {quoted(column)}" for column, kind in types.items())
    bench.run(f"CREATE OR REPLACE TEMP VIEW {name} AS SELECT {casts} FROM {name}_arrays")


def _array(values: list[Any], kind: str) -> np.ndarray[Any, Any]:
    plain: dict[str, type] = {"DOUBLE": float, "BIGINT": int, "BOOLEAN": bool}
    if kind in plain:
        missing = [value is None for value in values]
        return np.ma.array([plain[kind](value or 0) for value in values], mask=missing, dtype=plain[kind])
    return np.array([value if value is None else str(value) for value in values], dtype=object)  # to be cast
