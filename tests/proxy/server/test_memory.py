"""Large arrays have pages of their own in a server, and give them back: asked of the C library itself."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from proxy.server import memory

LOOK = """
import ctypes, sys
import numpy as np
from proxy.server import memory

class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena a b c mapped d e f g h".split()]

mallinfo = ctypes.CDLL(None).mallinfo2
mallinfo.restype = Info
if "bounded" in sys.argv:
    assert memory.give_back_large()
large = np.ones(20 * 2**20, dtype=np.uint8)
del large  # from now on glibc takes what is smaller from its heaps, unless it was told not to
before = mallinfo().mapped
smaller = np.ones(2**20, dtype=np.uint8)
print(mallinfo().mapped - before >= smaller.nbytes)
"""


def has_its_own_pages(*arguments: str) -> bool:
    ended = subprocess.run(
        [sys.executable, "-c", LOOK, *arguments], capture_output=True, text=True, check=True, timeout=120
    )
    return ended.stdout.split() == ["True"]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs glibc 2.33")
def test_a_large_array_has_pages_of_its_own_even_after_a_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in memory.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    assert not has_its_own_pages()
    assert has_its_own_pages("bounded")


@pytest.mark.parametrize("name", memory.SETTINGS)
def test_whoever_runs_a_server_may_decide_otherwise(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "")
    assert not memory.give_back_large()
