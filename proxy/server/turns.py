"""How threads take turns at Python's interpreter lock: short ones, so that known answers wait for no plan."""

from __future__ import annotations

import ctypes
import sys

SWITCH_INTERVAL = 5e-5
"""Seconds after which a thread that computes gives way to one that waits, as the event loop with an answer to give.

Python's own is 5 ms, thirty times as long as a free answer takes.
"""

TIMER_SLACK = 1_000
"""Nanoseconds by which the kernel may be late in ending a wait; its own is 50,000, as long as a turn."""

_PR_SET_TIMERSLACK = 29


def take_short_turns() -> None:
    """Have this thread, and those that it starts from now on, wait for no longer than a short turn of another."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(TIMER_SLACK), 0, 0, 0)
