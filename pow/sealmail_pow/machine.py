"""What this machine and this installation search with."""

import os

try:
    from sealmail_pow import _native as native

    IMPLEMENTATION = "native"
except ImportError:
    # Built without a compiler: everything works, some fifty times slower, and there is no
    # ``native`` here.
    IMPLEMENTATION = "python"

# More would only wait for each other.
MOST_THREADS = 256

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


def fastest_kernel(data_length: int) -> str:
    """Return which kernel searches stamps over so many bytes; the first call is a short race."""
    return native.fastest(data_length) if IMPLEMENTATION == "native" else "python"


def processors() -> int:
    """Return how many processors this process may use."""
    return min(MOST_THREADS, len(os.sched_getaffinity(0)))
