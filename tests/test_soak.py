"""Short soaks: faults under load lose nothing and leave nothing behind, and what is kept stays within its bounds."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from pathlib import Path

import pytest

from planner.basics.limits import HISTORY_BYTES, READY_BYTES
from proxy.limits import ANSWER_BYTES, THREADS

pytest.importorskip("psycopg")
resource = pytest.importorskip("resource")

from benchmarks import soak  # noqa: E402 - it needs both
from planner.basics.cache import BoundedCache  # noqa: E402
from planner.calls.call import READY  # noqa: E402
from planner.gate import Gate  # noqa: E402
from planner.history.chart import Shelved  # noqa: E402
from planner.history.recall import Releases  # noqa: E402

SLACK = 128
"""Megabytes that a server may hold more of than what it keeps on purpose: engines and allocators give back late."""


@pytest.mark.skipif(not hasattr(resource, "prlimit") or not Path("/proc/self/status").exists(), reason="needs Linux")
def test_under_faults_no_answer_is_lost_and_nothing_is_left_behind(tmp_path: Path) -> None:
    found = soak.short(tmp_path)
    assert not found.lost
    assert found.answers >= 8
    assert found.ends["free"] > 50
    assert found.ends["failed connection"] + found.ends["failed 57P01"] > 0  # those who were thrown out
    assert found.after.descriptors <= found.before.descriptors
    assert found.after.threads <= found.before.threads + THREADS
    kept = (READY_BYTES + HISTORY_BYTES + ANSWER_BYTES) / 2**20
    assert found.after.megabytes <= found.before.megabytes + kept + SLACK


def light(found: Releases) -> int:
    """Return how many bytes of numbers releases hold in memory, by what they tell apart: each axis once."""
    axes = {id(axis): axis for each in found.evidence for axis in each.workspace.axes}
    return sum(axis.atoms.nbytes + axis.first.nbytes for axis in axes.values())


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_what_a_gate_keeps_stays_within_its_bounds_however_much_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With bounds that a few statements pass: bytes of all caches, connections to the sandbox, threads, descriptors."""
    known, ready = 2 * 2**20, 6 * READY
    monkeypatch.setattr("planner.shared.HISTORY_BYTES", known)
    monkeypatch.setattr("planner.shared.READY_BYTES", ready)
    largest = watch_entries(monkeypatch)
    chance = random.Random(1)
    with closing(Gate.open(soak.policy(tmp_path, 1))) as gate:
        session, history = gate.session("ann"), gate.histories["adult"]
        for sql in soak.DASHBOARD:
            session.execute(sql)
        before = threads(), descriptors()
        for _ in range(15):
            session.execute(soak.new_question(chance))
            session.execute(f"EXPLAIN {soak.new_question(chance)}")
            session.execute(chance.choice(soak.DASHBOARD))
            assert gate._ready.bytes <= ready + largest[gate._ready]
            assert history._kept.bytes <= known + largest[history._kept]
        assert len(gate._ready) <= ready // READY + 1  # each with a connection of its own
        assert (threads(), descriptors()) == before
        found = history.found(1)
        told = sum(pool.sum.nbytes for pool in found.pools.values())
        assert found.count > 15
        assert all(isinstance(member, Shelved) for pool in found.pools.values() for member in pool.members)
        assert light(found) < told / 10  # the rest lies in the ledger
        assert history._forms.bytes <= history._forms.most


def watch_entries(monkeypatch: pytest.MonkeyPatch) -> dict[object, int]:
    """Return by cache the largest entry that was put there: a single one may be larger than the bound."""
    largest: dict[object, int] = {}
    put = BoundedCache.put

    def watched(kept: BoundedCache[object], key: object, value: object, size: int) -> None:
        largest[kept] = max(largest.get(kept, 0), size + 1_000)
        put(kept, key, value, size)

    monkeypatch.setattr(BoundedCache, "put", watched)
    return largest


def threads() -> int:
    return threading.active_count()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
