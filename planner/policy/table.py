"""A table of the policy, with its columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from planner.policy.domain import Domain
from planner.policy.location import Location, located


@dataclass(frozen=True)
class Column:
    """One declared column; without a domain it can't be asked about (a privacy unit can still be counted)."""

    name: str
    domain: Domain | None = None
    hidden: bool = False
    measure: bool = False
    type: str | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table of the policy; `unit` is the privacy-unit column, or None when each row is its own unit."""

    name: str
    source: str
    kind: str = "protected"
    synthetic_of: str | None = None
    population: str = "default"
    unit: str | None = None
    max_rows_per_unit: int = 1
    row_key: str | None = None
    size: int | None = None
    columns: dict[str, Column] = field(default_factory=dict)

    timeout: float = 600.0

    @cached_property
    def location(self) -> Location:
        return located(self.source)

    @property
    def file(self) -> Path:
        return Path(self.location.place)

    @property
    def inner(self) -> str | None:
        """Return the table inside a DuckDB file or on a server, as written after its `#`."""
        return self.location.inner
