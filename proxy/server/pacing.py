"""How soon strangers are heard: an address from which many fail to log in waits, so that nobody inside does."""

from __future__ import annotations

from collections import OrderedDict

FREE = 20
"""So many who do not log in cost their address nothing."""

RATE = 20.0
"""Failures a second that are forgiven."""

LONGEST = 1.0
"""Seconds that anybody waits at most: whoever shares the address gets in nevertheless."""

MOST_KEPT = 10_000
"""Addresses that are remembered."""


class Pace:
    """Counts by address those who came and did not log in, and forgets them at a steady rate."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, address: str, now: float) -> float:
        """Return how many seconds a newcomer from an address waits before its password is asked for."""
        return min(LONGEST, max(0.0, (self._left(address, now) - FREE) / RATE))

    def failed(self, address: str, now: float) -> None:
        """Note somebody who said who they are and is gone without having logged in."""
        self._failures[address] = self._left(address, now) + 1, now
        self._failures.move_to_end(address)
        while len(self._failures) > MOST_KEPT:
            self._failures.popitem(last=False)

    def _left(self, address: str, now: float) -> float:
        count, since = self._failures.get(address, (0.0, now))
        return max(0.0, count - RATE * (now - since))
