"""The order of steps: nothing is told before its charge can be read by others, nor if it can't be charged."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.basics.errors import LedgerFailed
from planner.ledger.ledger import Ledger
from planner.session import Session
from tests.audit import accountant, books, streams, witness
from tests.audit.streams import World

STEPS = (
    streams.counts, streams.averages, streams.quantiles, streams.distincts, streams.units, streams.grouping_sets,
    streams.joins, streams.verdicts, streams.choices, streams.rounds, streams.marginal_tables,
)  # fmt: skip


def charged(world: World) -> int:
    """Return how many charged releases anybody sees who opens the ledger's file now."""
    return sum(entry.kind not in accountant.FREE for entry in books.entries(world.ledger))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_what_was_read_is_durable_before_an_answer_is_made(tmp_path: Path, step: Callable[[World], None]) -> None:
    """At the step `answering`, and when a statement returns, every reading is in the file, seen by another door."""
    checked = []
    with pytest.MonkeyPatch.context() as patch, witness.watching() as seen:
        execute = Session.execute

        def watched(self: Session, sql: str, *arguments: Any, **keywords: Any) -> Any:
            def on_step(name: str) -> None:
                if name == "answering":
                    assert charged(world) == len(seen)
                    checked.append(sql)

            found = execute(self, sql, *arguments, on_step=on_step, **keywords)
            assert charged(world) == len(seen)
            return found

        world = World(tmp_path, random.Random(step.__name__))
        patch.setattr(Session, "execute", watched)
        step(world)
    world.close()
    assert seen
    assert checked


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_what_can_not_be_charged_is_not_told(tmp_path: Path, step: Callable[[World], None]) -> None:
    """Draws were made, and are thrown away: the same words come whatever was drawn."""

    def broken(*_: Any, **__: Any) -> Any:
        raise LedgerFailed("the disk is full")

    with pytest.MonkeyPatch.context() as patch, witness.watching() as seen:
        world = World(tmp_path, random.Random(step.__name__))
        patch.setattr(Ledger, "commit", broken)
        step(world)
    assert seen
    assert charged(world) == 0
    assert set(world.answered) <= {"enlist"}  # which reads nothing
    assert all(": the disk is full: " in text for text in world.refused if "can't decide" not in text)
    world.close()
