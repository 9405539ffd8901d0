"""Places: nobody can have all of them, those who wait are taken in turn, and who leaves is not waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from planner.basics.stopping import holding, sleep
from proxy.server.places import LONG, MOST_AT_ONCE, Places


@contextmanager
def opened(count: int, clock: Callable[[], float] = time.monotonic) -> Iterator[tuple[Places, threading.Event]]:
    """Yield places, and an event that ends what waits for it in them."""
    places, go_on = Places(count, clock=clock), threading.Event()
    try:
        yield places, go_on
    finally:
        go_on.set()
        assert places.close(60)


def occupy(places: Places, go_on: threading.Event, whose: str, *, resting: bool = True) -> Future[bool]:
    """Have somebody take a place, to wait there or as if they computed, and return when they have it."""
    began = threading.Event()

    def run() -> bool:
        began.set()
        return rest(go_on) if resting else go_on.wait()

    future = places.submit(run, whose=whose)
    assert began.wait()
    return future


def rest(go_on: threading.Event) -> bool:
    """Wait as a statement does for a lock: it is known to compute nothing meanwhile."""
    while not go_on.is_set():
        sleep(0.01)
    return True


@pytest.mark.parametrize(("count", "most"), [(2, 1), (3, 2), (16, 12)])
def test_one_analyst_leaves_places_to_others(count: int, most: int) -> None:
    with opened(count) as (places, go_on):
        anns = [occupy(places, go_on, "ann") for _ in range(most)]
        anns += [places.submit(lambda: rest(go_on), whose="ann") for _ in range(2 * count)]
        assert places.submit(lambda: "bob's", whose="bob").result() == "bob's"
        assert sum(future.running() for future in anns) == most
        go_on.set()
        assert all(future.result() for future in anns)


def test_every_newcomer_finds_a_place_while_the_others_keep_theirs() -> None:
    with opened(16) as (places, go_on):
        for analyst in ("ann", "bob", "carl"):
            occupy(places, go_on, analyst)
            for _ in range(20):
                places.submit(go_on.wait, whose=analyst)


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_of_one_analyst_one_computes_at_a_time() -> None:
    clock = Clock()
    with opened(16, clock) as (places, go_on):
        occupy(places, go_on, "ann", resting=False)
        second = places.submit(go_on.wait, whose="ann")
        assert places.submit(lambda: "bob's", whose="bob").result() == "bob's"
        assert places.running == 1
        assert not second.running()


def test_what_takes_long_keeps_few_others_of_the_same_analyst_waiting() -> None:
    clock = Clock()
    with opened(16, clock) as (places, go_on):
        for number in range(1, MOST_AT_ONCE + 1):
            occupy(places, go_on, "ann", resting=False)
            clock.now += LONG
            assert places.running == number
        last = places.submit(go_on.wait, whose="ann")
        assert places.submit(lambda: "bob's", whose="bob").result() == "bob's"
        assert not last.running()


def test_what_begins_to_wait_lets_the_next_one_compute() -> None:
    with opened(16, Clock()) as (places, _):
        lock, held = threading.Lock(), threading.Event()

        def wait_for_lock() -> str:
            held.set()
            with holding(lock):
                return "had it"

        with lock:
            waiting = places.submit(wait_for_lock, whose="ann")
            assert held.wait()
            assert places.submit(lambda: "computed", whose="ann").result() == "computed"
            assert not waiting.done()
        assert waiting.result() == "had it"


def test_those_who_wait_are_taken_in_turn() -> None:
    order: list[str] = []
    with opened(1) as (places, go_on):
        first = occupy(places, go_on, "dora")
        wanted = ["ann 1", "ann 2", "ann 3", "bob 1", "carl 1", "carl 2"]
        later = [places.submit(lambda name=name: order.append(name), whose=name.split()[0]) for name in wanted]
        go_on.set()
        for future in (first, *later):
            future.result()
    assert order == ["ann 1", "bob 1", "carl 1", "ann 2", "carl 2", "ann 3"]


def test_what_is_canceled_while_it_waits_leaves_the_queue() -> None:
    ran: list[int] = []
    with opened(1) as (places, go_on):
        occupy(places, go_on, "ann")
        waiting = [places.submit(lambda i=i: ran.append(i), whose="ann") for i in range(5)]
        assert all(future.cancel() for future in waiting[1:4])
        assert places.waiting == 2
        go_on.set()
        waiting[4].result()
    assert ran == [0, 4]


def test_what_fails_gives_its_place_back() -> None:
    with opened(1) as (places, _):
        with pytest.raises(ZeroDivisionError):
            places.submit(lambda: 1 / 0, whose="ann").result()
        assert places.submit(lambda: 2, whose="ann").result() == 2


def test_places_close_without_what_never_ends() -> None:
    go_on = threading.Event()
    places = Places(2)
    stuck = occupy(places, go_on, "ann")
    waiting = places.submit(go_on.wait, whose="ann")
    assert not places.close(0.0)
    assert waiting.cancelled()
    assert not stuck.done()
    assert places.submit(lambda: 1, whose="bob").cancelled()
    go_on.set()
    assert places.close(60)
