"""Small gates for tests: a table written by DuckDB in any kind of file, a policy beside it, noise switched off."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from mechanisms.noise import sampling
from planner.gate import Gate

KINDS = ("parquet", "csv", "duckdb")

BUDGET = """
[budget]
epsilon = {epsilon}
delta = 1e-9
"""


def write(path: Path, select: str) -> None:
    """Write the rows of a SELECT into a file; a .duckdb file gets a table t."""
    with duckdb.connect() as connection:
        if path.suffix == ".duckdb":
            connection.execute(f"ATTACH '{path}' AS f; CREATE TABLE f.t AS {select}; DETACH f")
        else:
            options = "FORMAT csv, HEADER" if path.suffix == ".csv" else "FORMAT parquet"
            connection.execute(f"COPY ({select}) TO '{path}' ({options})")


def source(kind: str, name: str = "people") -> str:
    return f"{name}.{kind}#t" if kind == "duckdb" else f"{name}.{kind}"


def policy(folder: Path, text: str, *, epsilon: float = 1000.0) -> Path:
    path = folder / "policy.toml"
    path.write_text(BUDGET.format(epsilon=epsilon) + text, encoding="utf-8")
    return path


def open_gate(
    folder: Path,
    select: str,
    *,
    columns: str,
    kind: str = "parquet",
    table: str = "",
    rest: str = "",
    epsilon: float = 1000.0,
) -> Gate:
    """Return the gate of one protected table `people`; `table` holds its other entries, `rest` other sections."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / f"people.{kind}", select)
    head = f'[tables.people]\nsource = "{source(kind)}"\n{table}\n[tables.people.columns]\n{columns}\n'
    return Gate.open(policy(folder, head + rest, epsilon=epsilon))


def no_noise(size: int, *, bits: int) -> np.ndarray[Any, Any]:
    return np.zeros(size, dtype=np.int64)


def best_choice(exponents: np.ndarray[Any, Any], *, rate: Fraction) -> int:
    return int(np.argmin(exponents))


def switch_noise_off(patch: pytest.MonkeyPatch) -> None:
    """Make answers exact, and quantiles the best choice: inside a test only."""
    patch.setattr(sampling, "rounded_gaussian", no_noise)
    patch.setattr(sampling, "exponential_choice", best_choice)
