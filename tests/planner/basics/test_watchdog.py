"""What takes too long is stopped, by one thread for all."""

from __future__ import annotations

import threading

from planner.basics.watchdog import Watchdog


def test_what_takes_too_long_is_stopped_once() -> None:
    dog, stopped, calls = Watchdog(), threading.Event(), list[int]()

    def stop() -> None:
        calls.append(1)
        stopped.set()

    with dog.limit(3600, lambda: calls.append(2)), dog.limit(0.01, stop):  # the shorter one comes later, and is first
        assert stopped.wait(60)
    assert calls == [1]


def test_what_has_ended_is_not_stopped_and_a_thousand_limits_take_one_thread() -> None:
    dog, calls, stopped = Watchdog(), list[int](), threading.Event()
    before = threading.active_count()
    for _ in range(1000):
        with dog.limit(0.0001, lambda: None):
            pass
        with dog.limit(3600, lambda: calls.append(1)):
            assert threading.active_count() == before + 1
    with dog.limit(0.0, stopped.set):  # it still watches
        assert stopped.wait(60)
    assert not calls
