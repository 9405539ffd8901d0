"""Values for placeholders, as PEP 249 has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.sql.statement import Parameters
from proxy.errors import ProgrammingError


def checked(parameters: object) -> Parameters:
    """Return the parameters; a lone text would otherwise pass for a sequence of characters."""
    if parameters is None or isinstance(parameters, Mapping):
        return parameters
    if isinstance(parameters, Sequence) and not isinstance(parameters, str | bytes | bytearray):
        return parameters
    given = type(parameters).__name__
    raise ProgrammingError(f"parameters must be a sequence or a mapping, got {given}", sqlstate="42601")
