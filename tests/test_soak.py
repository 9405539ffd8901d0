"""A short soak of a real server: kill -9, a full disk and restarts under load lose nothing and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("psycopg")
resource = pytest.importorskip("resource")

from benchmarks import soak  # noqa: E402 - it needs both
from planner.history.recall import KEPT_BYTES  # noqa: E402
from planner.shared import KEPT_READY  # noqa: E402
from proxy.conversation.answer_cache import MOST_BYTES  # noqa: E402
from proxy.server.shared import THREADS  # noqa: E402

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
    kept = (KEPT_READY + KEPT_BYTES + MOST_BYTES) / 2**20
    assert found.after.megabytes <= found.before.megabytes + kept + SLACK
