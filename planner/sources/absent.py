"""The source of a table that is not here: what was released about it can be answered, nothing can be measured."""

from __future__ import annotations

from typing import NoReturn

from planner.basics.errors import SourceFailed
from planner.policy.table import Table


class AbsentSource:
    """No rows, and no fingerprint: the data are those that the ledger's releases were measured on."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def fingerprint(self) -> None:
        return None

    def columns(self) -> dict[str, str]:
        return {}

    def tally(self, *_: object, **__: object) -> NoReturn:
        raise SourceFailed(
            f"table {self.table.name} is not here, only what was released about it",
            hint="nothing was charged; ask what was asked before, or with a larger noisegate.error",
        )

    units = tally
    reading = tally

    def close(self) -> None: ...
