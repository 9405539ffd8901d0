"""What was really run: every reading of protected rows, what it returned, and all random draws that went into it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mechanisms.deciders import deciders
from mechanisms.noise import sampling
from planner.sources.measure import Meter

READINGS = ("linear", "helmert", "distinct", "units", "quantiles", "decisions")


@dataclass
class Reading:
    """One call of the meter: `noise` is bits and draws, `choices` exponents and rate, `decided` who and about what."""

    kind: str
    table: str
    output: Any = None
    noise: list[tuple[int, list[int]]] = field(default_factory=list)
    choices: list[tuple[list[int], Fraction]] = field(default_factory=list)
    decided: list[tuple[Any, Any]] = field(default_factory=list)


@contextmanager
def watching() -> Iterator[list[Reading]]:
    """Yield the readings of all gates of this process, in order."""
    seen: list[Reading] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in READINGS:
            patch.setattr(Meter, name, _watched(getattr(Meter, name), name, seen))
        gaussian, choice, decide = sampling.rounded_gaussian, sampling.exponential_choice, deciders.decide

        def rounded_gaussian(size: int, *, bits: int) -> Any:
            drawn = gaussian(size, bits=bits)
            seen[-1].noise.append((bits, [int(draw) for draw in drawn]))
            return drawn

        def exponential_choice(exponents: np.ndarray[Any, Any], *, rate: Fraction) -> int:
            seen[-1].choices.append(([int(exponent) for exponent in exponents], rate))
            return choice(exponents, rate=rate)

        def decided(decider: Any, statistics: Any) -> bool:
            seen[-1].decided.append((decider, statistics))
            return decide(decider, statistics)

        patch.setattr(sampling, "rounded_gaussian", rounded_gaussian)
        patch.setattr(sampling, "exponential_choice", exponential_choice)
        patch.setattr(deciders, "decide", decided)
        yield seen


def _watched(method: Callable[..., Any], name: str, seen: list[Reading]) -> Callable[..., Any]:
    def call(self: Meter, *arguments: Any, **keywords: Any) -> Any:
        reading = Reading(name, self.table.name)
        seen.append(reading)
        reading.output = method(self, *arguments, **keywords)
        return reading.output

    return call
