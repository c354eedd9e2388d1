"""What a stamp is worth over given bytes."""

import hashlib
from collections.abc import Callable, Iterable
from typing import Protocol

from sealmail_pow import machine
from sealmail_pow.difficulty import DIGEST_BITS, Difficulty
from sealmail_pow.stamp import Stamp

# What holds bytes: hashing copies none of them.
Buffer = bytes | bytearray | memoryview


class Weighing(Protocol):
    """What hashes the stamped bytes behind each nonce."""

    def update(self, chunk: Buffer, /) -> None:
        """Take the next stamped bytes."""

    def bits(self) -> int:
        """Return how many leading bits all digests share over the bytes so far."""


class HashlibWeighing:
    """One digest of ``hashlib`` for each nonce, one after the other."""

    __slots__ = ("_hashes",)

    def __init__(self, nonces: tuple[str, ...]) -> None:
        self._hashes = [hashlib.sha256(nonce.encode("ascii")) for nonce in nonces]

    def update(self, chunk: Buffer, /) -> None:
        """Take the next stamped bytes."""
        for running in self._hashes:
            running.update(chunk)

    def bits(self) -> int:
        """Return how many leading bits all digests share over the bytes so far."""
        first, *others = (int.from_bytes(running.digest(), "big") for running in self._hashes)
        return min(DIGEST_BITS - (first ^ other).bit_length() for other in others)


# The ways in which this machine weighs, the fastest last.
WEIGHINGS: dict[str, Callable[[tuple[str, ...]], Weighing]] = {"hashlib": HashlibWeighing}
try:
    # With SHA instructions, two digests side by side take little longer than one.
    from sealmail_pow._native import Weighing as _ShaWeighing
except ImportError:
    # Nothing compiled, or a processor without them: there hashlib is as fast as anything.
    pass
else:
    WEIGHINGS["shani"] = _ShaWeighing

_begin_weighing = list(WEIGHINGS.values())[-1]


class StampCheck:
    """Weighs a stamp while the stamped bytes stream in; none of them are kept.

    It is used by one thread at a time.
    """

    __slots__ = ("_weighing",)

    def __init__(self, stamp: Stamp) -> None:
        self._weighing = _begin_weighing(stamp.nonces)

    def update(self, chunk: Buffer) -> None:
        """Take the next stamped bytes."""
        self._weighing.update(chunk)

    def bits(self) -> int:
        """Return how many leading bits all digests share over the bytes so far."""
        return self._weighing.bits()


def level(data: Buffer, stamp: Stamp) -> int:
    """Return how many leading bits the nonces of ``stamp`` share over ``data``."""
    check = StampCheck(stamp)
    check.update(data)
    return check.bits()


def verify(data: Buffer, stamp: Stamp, difficulty: Difficulty) -> bool:
    """Tell whether ``stamp`` over ``data`` is worth at least ``difficulty``.

    More bits or more nonces than asked for are welcome, but every nonce that is there
    must share the bits.
    """
    # Too few nonces cost the verifier no hash at all.
    if len(stamp.nonces) < difficulty.nonces:
        return False
    return difficulty.met_by(level(data, stamp), len(stamp.nonces))


def verify_many(
    pairs: Iterable[tuple[Buffer, Stamp]], difficulty: Difficulty, *, kernel: str | None = None
) -> list[bool]:
    """Verify many pairs of data and stamp, with the verdicts that ``verify`` would give each.

    ``kernel`` is one of ``kernels()``, by default the fastest.
    """
    if machine.IMPLEMENTATION == "python" or kernel == "python":
        return [verify(data, stamp, difficulty) for data, stamp in pairs]
    return machine.native.verify_many(pairs, difficulty.bits, difficulty.nonces, level, kernel)
