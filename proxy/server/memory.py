"""How a server asks the C library for memory: so that what a large array took is given back when it is forgotten."""

from __future__ import annotations

import ctypes
import os

LARGE = 128 * 2**10
"""Bytes from which an array has pages of its own, which go back to the system as soon as it is forgotten."""

SETTINGS = ("MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables by which whoever runs a server decides this instead."""

_M_MMAP_THRESHOLD = -3


def give_back_large() -> bool:
    """Have large arrays given back at once; return whether that was done.

    glibc begins with the same limit, and raises it to 32 MB by and by. From then on arrays of all threads lie between
    each other, and the holes that they leave are kept: some hundred megabytes after an hour of questions.
    """
    if any(name in os.environ for name in SETTINGS):
        return False
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE))
    except (AttributeError, OSError, TypeError):  # another C library, which has nothing of the kind
        return False
