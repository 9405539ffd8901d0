"""The harness of the fuzzer does what a server would do; its seeds, damaged in many ways, do no harm."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from proxy.wire.state import State
from tests.proxy.wire.fuzz import converse, one, seeds


def test_the_seeds_are_conversations_that_end_well() -> None:
    assert [converse(seed) for seed in seeds()] == [State.READY, State.READY, State.READY, State.CLOSED]


@given(st.binary(max_size=300))
def test_any_bytes_do_no_harm(data: bytes) -> None:
    one(data)


def test_damaged_seeds_do_no_harm() -> None:
    chance = random.Random(7)
    for _ in range(5_000):
        data = bytearray(chance.choice(seeds()))
        for _ in range(chance.randrange(1, 6)):
            place = chance.randrange(len(data))
            match chance.randrange(3):
                case 0:
                    data[place] = chance.randrange(256)
                case 1:
                    del data[place : place + chance.randrange(1, 9)]
                case _:
                    data[place:place] = chance.randbytes(chance.randrange(1, 9))
            if not data:
                break
        one(bytes(data))
