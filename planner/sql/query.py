"""What the compiler makes of a query: names, measured queries, and the post-processing that is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from sqlglot import exp
from sqlglot.schema import MappingSchema

from planner.policy.table import Table
from planner.sql.aggregates import AGGREGATES, AggregateKind, AggregateTraits, Returns
from planner.sql.dialect import DIALECT

BASE = "__p"
"""Name of the protected table in every flattened expression."""

INTERVALS = {"dp_interval_low": "low", "dp_interval_high": "high", "dp_stddev": "sd"}

SYSTEM = "noisegate"
"""Schema of the system tables: they change from query to query, so no condition on rows can rest on them."""

RESERVED = "__"
"""Names that begin so are the gate's own."""

AUTO, PRESENT, ALL = "auto", "present", "all"
GROUPS = (AUTO, PRESENT, ALL)
"""Which groups of the domain count: those that are taken to have rows, or all of them.

With AUTO, all where the outermost SELECT only lists them, each with its error; those that are taken to have rows
wherever something is computed or picked across groups.
"""

AGGREGATES_HINT = "ask for an aggregate: count, sum, avg, variance, stddev, median or a quantile"


@dataclass(frozen=True)
class Catalog:
    """What names mean: protected tables, column types of every table, and the curator's views."""

    protected: Mapping[str, Table]
    types: Mapping[str, Mapping[str, str]]
    views: Mapping[str, exp.Query]

    @cached_property
    def schema(self) -> MappingSchema:
        """Return the column types as sqlglot has them: by schema, which is empty for tables without one."""
        found: dict[str, Any] = {}  # Any: dictionaries of dictionaries, in which sqlglot sees objects
        for name, columns in self.types.items():
            folder, _, table = name.rpartition(".")
            found.setdefault(folder, {})[table] = dict(columns)
        return MappingSchema(found, dialect=DIALECT, normalize=False)  # names are spelt as in the policy


@dataclass(frozen=True, kw_only=True)
class Aggregate:
    """One measured aggregate, its argument and condition in terms of base columns.

    `p` is a quantile's level; `continuous` says that it interpolates; `sample` that a variance divides by n - 1.
    """

    kind: AggregateKind
    argument: exp.Expr | None = None
    condition: exp.Expr | None = None
    p: Fraction | None = None
    continuous: bool = False
    sample: bool = True
    interval: bool = False
    span: tuple[int, int] | None = None

    @property
    def traits(self) -> AggregateTraits:
        return AGGREGATES[self.kind]

    @cached_property
    def is_whole(self) -> bool:
        """Return whether the answer is a whole number: a count, or a sum of integers."""
        if self.traits.returns is Returns.SUMMED:
            return self.argument is not None and self.argument.is_type(*exp.DataType.INTEGER_TYPES)
        return self.traits.returns is Returns.WHOLE

    @cached_property
    def key(self) -> tuple[object, ...]:
        texts = [node.sql("duckdb") if node is not None else None for node in (self.argument, self.condition)]
        return (self.kind, *texts, self.p, self.continuous, self.sample)


Combination = Mapping[int, float]
"""Counts and sums, by their numbers, each times a coefficient."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A flat aggregate query over one protected table joined with public ones.

    The noisy relation also has the correlation of each of the `pairs` of aggregates, and the interval of each of the
    `ratios` of two combinations. `present` is the number of the count that tells which groups are taken to have rows;
    None where every group of the domain counts.
    """

    name: str
    table: Table
    joins: tuple[exp.Join, ...]
    where: tuple[exp.Expr, ...]
    keys: tuple[exp.Expr, ...]
    sets: tuple[tuple[int, ...], ...]
    aggregates: tuple[Aggregate, ...]
    pairs: tuple[tuple[int, int], ...] = ()
    ratios: tuple[tuple[Combination, Combination], ...] = ()
    present: int | None = None


@dataclass(frozen=True)
class Compiled:
    """`post` runs in the sandbox once each measured relation is there. `names` are the visible columns; behind
    them, `post` has a low and a high column for each index in `intervals`."""

    post: exp.Query
    measured: tuple[Measured, ...]
    names: tuple[str, ...]
    intervals: tuple[int, ...] = ()
