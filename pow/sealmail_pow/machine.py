"""What this machine and this installation search with."""

import hashlib
import os
import time
from functools import cache

try:
    from sealmail_pow import _native as native

    IMPLEMENTATION = "native"
except ImportError:
    # Built without a compiler: everything works, some fifty times slower, and there is no
    # ``native`` here.
    IMPLEMENTATION = "python"

# More would only wait for each other.
MOST_THREADS = 256

# From here on the calls of Python are no part of the time that a hash takes.
_LONG_DATA = 64 * 1024
# What a race is run over: a fraction of a millisecond for one hash.
_RACE_BYTES = 256 * 1024
_RACE_ROUNDS = 3
# Long data are asked few bits, found after some twenty tries; of the last lot half is in vain.
_USUAL_TRIES = 20

__all__ = [
    "IMPLEMENTATION",
    "MOST_THREADS",
    "fastest_kernel",
    "kernels",
    "native",
    "processors",
]


def kernels() -> list[str]:
    """Return the kernels that run on this machine; ``python`` is always the last."""
    compiled = native.kernels() if IMPLEMENTATION == "native" else []
    return [*compiled, "python"]


def fastest_kernel(data_length: int, threads: int = 1) -> str:
    """Return which kernel searches stamps over so many bytes; the first call is a short race.

    It is ``python`` where ``hashlib`` has SHA instructions that no kernel of ours knows, as on
    ARM, and the data are long; that search has one thread, others up to ``threads``.
    """
    if IMPLEMENTATION == "python" or (data_length >= _LONG_DATA and _lead_of_hashlib() > threads):
        return "python"
    return native.fastest(data_length)


@cache
def _lead_of_hashlib() -> float:
    """Return how many times as fast ``hashlib`` hashes long data as our fastest kernel does."""
    data = bytes(_RACE_BYTES)
    kernel = native.fastest(_RACE_BYTES)
    ours, theirs = [], []
    for _ in range(_RACE_ROUNDS):
        start = time.perf_counter()
        lanes = len(native.steps(kernel, data, 48, 1, 1))
        middle = time.perf_counter()
        hashlib.sha256(data).digest()
        theirs.append(time.perf_counter() - middle)
        ours.append((middle - start) / lanes * (1 + lanes / 2 / _USUAL_TRIES))
    return min(ours) / min(theirs)


def processors() -> int:
    """Return how many processors this process may use."""
    return min(MOST_THREADS, len(os.sched_getaffinity(0)))
