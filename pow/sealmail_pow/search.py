"""Minting: the search for a stamp, in C where that was compiled, else in Python."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from sealmail_pow import machine, pure
from sealmail_pow.check import Buffer
from sealmail_pow.difficulty import MIN_NONCES, Difficulty
from sealmail_pow.odds import chance, expected_hashes
from sealmail_pow.stamp import Stamp

# Progress in steps of one per cent, so that a listener is not called a thousand times a second.
_PROGRESS_STEP = 0.01

# Fewer bits are counted: a walk among so few places may find no pair at all.
_WALK_FROM_BITS = 24
# Less work than this, over the announcement of a short mail, is done before a second thread has
# started. Over long data each hash is as much work as many.
_THREADS_FROM_HASHES = 500_000
_USUAL_LENGTH = 60
_SALT_BYTES = 8
_SEED_BYTES = 8


class MintCancelled(Exception):
    """The caller's ``cancel`` ended the search, after ``hashes``, before it found a stamp."""

    def __init__(self, difficulty: Difficulty, hashes: int) -> None:
        super().__init__(f"the search for {difficulty} was cancelled after {hashes} hashes")
        self.hashes = hashes


@dataclass(frozen=True, slots=True)
class Solution:
    """A stamp, and how many hashes its search took."""

    stamp: Stamp
    hashes: int


def mint(
    data: Buffer,
    difficulty: Difficulty,
    *,
    threads: int | None = None,
    deterministic: bool = False,
    progress: Callable[[float], None] | None = None,
    cancel: Callable[[], bool] | None = None,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
) -> Stamp:
    """Search a stamp over ``data`` that meets ``difficulty``.

    ``threads`` is how many may search at once, by default one for each processor; searches
    that count, and short ones, take one. ``deterministic`` counts the nonces 000000000,
    000000001 … and takes the first prefix that enough of them share: the same data always get
    the same stamp. ``progress`` is told the probability of being done by now, and 1.0 at the
    end. ``cancel`` is asked every few milliseconds; when it says yes, ``MintCancelled`` is
    raised. Both are called in the calling thread. While it searches in C, the interpreter is
    free for other threads.
    """
    return solve(
        data,
        difficulty,
        threads=threads,
        deterministic=deterministic,
        progress=progress,
        cancel=cancel,
        random_bytes=random_bytes,
    ).stamp


def solve(
    data: Buffer,
    difficulty: Difficulty,
    *,
    threads: int | None = None,
    deterministic: bool = False,
    progress: Callable[[float], None] | None = None,
    cancel: Callable[[], bool] | None = None,
    random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    kernel: str | None = None,
) -> Solution:
    """Search as ``mint`` does, and tell the work it took.

    ``kernel`` is one of ``kernels()``, by default the fastest.
    """
    if threads is not None and not 1 <= threads <= machine.MOST_THREADS:
        raise ValueError(f"a search has 1 to {machine.MOST_THREADS} threads, not {threads}")
    watch = _Watch(difficulty, progress, cancel)
    counts = deterministic or difficulty.nonces > MIN_NONCES or difficulty.bits < _WALK_FROM_BITS
    length = memoryview(data).nbytes
    pays = 1 if counts else useful_threads(difficulty, threads, length)
    if (kernel or machine.fastest_kernel(length, pays)) == "python":
        nonces, hashes = pure.search(
            data,
            difficulty,
            deterministic=deterministic,
            look=watch.look,
            random_bytes=random_bytes,
        )
    elif counts:
        nonces, hashes = machine.native.count(
            data,
            difficulty.bits,
            difficulty.nonces,
            expected_hashes(difficulty),
            None if deterministic else random_bytes(_SALT_BYTES).hex(),
            watch.look if watch.is_wanted else None,
            kernel,
        )
    else:
        nonces, hashes = machine.native.walk(
            data,
            difficulty.bits,
            random_bytes(_SALT_BYTES).hex(),
            int.from_bytes(random_bytes(_SEED_BYTES), "big"),
            pays,
            watch.look if watch.is_wanted else None,
            kernel,
        )
    watch.finished()
    return Solution(Stamp(nonces), hashes)


def useful_threads(
    difficulty: Difficulty, threads: int | None, data_length: int = _USUAL_LENGTH
) -> int:
    """Return how many threads pay for a search over so many bytes, of those allowed."""
    if expected_hashes(difficulty) * max(1.0, data_length / _USUAL_LENGTH) < _THREADS_FROM_HASHES:
        return 1
    return machine.processors() if threads is None else threads


class _Watch:
    """Tells the caller how far the search is, and whether the stamp is still wanted."""

    __slots__ = ("_cancel", "_difficulty", "_next_report", "_progress")

    def __init__(
        self,
        difficulty: Difficulty,
        progress: Callable[[float], None] | None,
        cancel: Callable[[], bool] | None,
    ) -> None:
        self._difficulty = difficulty
        self._progress = progress
        self._cancel = cancel
        self._next_report = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether anybody watches."""
        return self._progress is not None or self._cancel is not None

    def look(self, hashes: int) -> None:
        """Raise ``MintCancelled`` if so asked, and report progress that is worth it."""
        if self._cancel is not None and self._cancel():
            raise MintCancelled(self._difficulty, hashes)
        if self._progress is None:
            return
        done = chance(self._difficulty, hashes)
        if done >= self._next_report:
            self._next_report = done + _PROGRESS_STEP
            self._progress(done)

    def finished(self) -> None:
        """Report that a stamp was found."""
        if self._progress is not None:
            self._progress(1.0)
