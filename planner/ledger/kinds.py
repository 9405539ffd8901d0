"""The kinds of releases: one entry for each says what it tells, of what it is made, and which noise it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a release is. The values are what ledgers hold: they never change."""

    LINEAR = "linear"
    MARGINALS = "marginals"
    DISTINCT = "distinct"
    QUANTILE = "quantile"
    DECISION = "decision"
    SETTLED = "settled"
    CHOICE = "choice"
    ROUND = "round"
    SHARE = "share"


@dataclass(frozen=True)
class Traits:
    """What holds for all releases of a kind.

    reads: what of the rows it is drawn from; empty if it is made of other releases, or tells nothing.
    tells: what is stored.
    pays: on which cells it is charged; empty if it costs nothing by itself.
    is_gaussian: whether the exact curve of Gaussian noise holds for it, as it does for what reads no rows.
    is_history: whether it helps to answer other questions than its own.
    """

    reads: str
    tells: str
    pays: str
    is_gaussian: bool
    is_history: bool = False


KINDS: Mapping[Kind, Traits] = {
    Kind.LINEAR: Traits(
        "counts and sums on cells", "integer rows of them, noisy", "cells, by what the rows tell of them", True, True
    ),
    Kind.MARGINALS: Traits(
        "counts of whole marginals", "Helmert rows of their parts, noisy", "all cells alike", True, True
    ),
    Kind.DISTINCT: Traits("which values or units are present", "their number, noisy", "all cells that count", True),
    Kind.QUANTILE: Traits(
        "how many rows have each value", "one value, chosen at random", "all cells that count", False
    ),
    Kind.DECISION: Traits("what its decider looks at", "yes or no", "the cells of the group", False),
    Kind.SETTLED: Traits("", "decisions that earlier releases tell", "", True),
    Kind.CHOICE: Traits("", "which analysis was taken, and why", "", True),
    Kind.ROUND: Traits("", "that a round was released, how, and for whom", "", True),
    Kind.SHARE: Traits("", "nothing", "an account, for what releases beside it charged the population", True),
}

GAUSSIAN_KINDS = frozenset(kind.value for kind, traits in KINDS.items() if traits.is_gaussian)
"""Kinds of releases for which the exact Gaussian curve holds."""
