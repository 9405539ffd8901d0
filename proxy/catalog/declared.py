"""What the catalog is made from: all that it sees of a gate, so that no row and no release can come into it."""

from __future__ import annotations

from typing import Protocol

from planner.duck.sandbox import Sandbox
from planner.policy.file import Policy
from planner.sql.query import Catalog


class Declared(Protocol):
    """The policy, what names mean under it, and the DuckDB in which public tables lie."""

    @property
    def policy(self) -> Policy: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def sandbox(self) -> Sandbox: ...
