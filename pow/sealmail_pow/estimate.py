"""What a difficulty costs on this machine, in seconds."""

import itertools
import math
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from sealmail_pow.difficulty import DIGEST_BITS, MIN_NONCES, Difficulty
from sealmail_pow.odds import expected_hashes, hashes_for
from sealmail_pow.search import MintCancelled, solve, useful_threads

# An announcement of a short mail: recipient, message hash and date.
_USUAL_LENGTH = 60
_CALIBRATION_SECONDS = 0.05
_SHORTEST_TIME = 1e-9
# The first look comes before the first hash, the others every five milliseconds.
_WARM_LOOKS = 3
# No machine finds this: a search for it runs until it is cancelled.
_OUT_OF_REACH = Difficulty(DIGEST_BITS)
# More than two nonces are timed on a search of about so many hashes: its table, of 32 MiB, is
# beyond the fast memories as that of a dear price is, but can be had at once.
_LOG_TABLE_HASHES = 22


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a search will cost: on average, and at most in nine of ten cases."""

    expected_hashes: float
    seconds: float
    seconds_90: float


def estimate(
    difficulty: Difficulty,
    *,
    threads: int | None = None,
    hashes_per_second: float | None = None,
) -> Estimate:
    """Foretell the cost of ``difficulty`` at a hash rate, by default that of short mail here.

    Without a rate, so many threads of this machine are timed for 50 ms, as many as ``mint``
    would take. The bound is for luck: the load of a busy machine comes on top.
    """
    if hashes_per_second is None:
        rate = hash_rate(nonces=difficulty.nonces, threads=useful_threads(difficulty, threads))
    else:
        rate = hashes_per_second
    if not rate > 0:
        raise ValueError(f"a hash rate is above zero, not {rate}")
    mean = expected_hashes(difficulty)
    return Estimate(
        expected_hashes=mean,
        seconds=mean / rate,
        seconds_90=hashes_for(difficulty, 0.9) / rate,
    )


def hash_rate(
    data_length: int = _USUAL_LENGTH,
    *,
    nonces: int = MIN_NONCES,
    threads: int | None = None,
    kernel: str | None = None,
    seconds: float = _CALIBRATION_SECONDS,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Measure for about ``seconds`` how many nonces a second ``mint`` tries on such data.

    Stamps of more than two ``nonces`` are found in a large table, which makes each try slower.
    """
    elapsed = 0.0
    looks = 0

    def time_is_up() -> bool:
        nonlocal elapsed, looks
        looks += 1
        elapsed = clock() - start
        # The first look comes before the first hash.
        return elapsed >= seconds and looks > 1

    data = bytes(data_length)
    difficulty = _OUT_OF_REACH
    if nonces > MIN_NONCES:
        difficulty = _table_search(nonces)
        _warm_up(data, difficulty, kernel)
    hashes = 0
    start = clock()
    try:
        while True:
            hashes += solve(
                data, difficulty, threads=threads, kernel=kernel, cancel=time_is_up
            ).hashes
    except MintCancelled as stopped:
        return (hashes + stopped.hashes) / max(elapsed, _SHORTEST_TIME)


def _warm_up(data: bytes, difficulty: Difficulty, kernel: str | None) -> None:
    """Search for some milliseconds.

    The first table of a process may come from the system so late that the time would be up
    before anything was counted.
    """
    looks = itertools.count()
    with suppress(MintCancelled):
        solve(data, difficulty, kernel=kernel, cancel=lambda: next(looks) == _WARM_LOOKS)


def _table_search(nonces: int) -> Difficulty:
    """Return the difficulty that takes so many nonces about 2^22 hashes."""
    log_orders = math.lgamma(nonces + 1) / math.log(2)
    return Difficulty(int((_LOG_TABLE_HASHES * nonces - log_orders) / (nonces - 1)), nonces)
