"""The search in pure Python, for where no compiler was.

Two ways. The *table* remembers every prefix seen and finds any number of equal ones. The
*walk* feeds each prefix back as the next nonce and remembers only rare, distinguished
ones; two trails that end in the same place met at a collision on the way there. It finds
pairs only, in constant memory, so it serves the difficulties that need much work.
"""

import hashlib
import itertools
from binascii import hexlify
from collections.abc import Callable
from dataclasses import dataclass

from sealmail_pow.check import Buffer
from sealmail_pow.difficulty import MIN_NONCES, Difficulty
from sealmail_pow.stamp import MAX_NONCE_LENGTH

# Fewer bits are found before remembering few points pays.
_WALK_FROM_BITS = 24
# About 2^8 distinguished points are met in a walk: the table stays tiny and the detour
# to the next point costs some one per cent.
_LOG_POINTS = 8
# A trail this many times its mean length is caught in a cycle.
_LOST_AFTER = 20

# Up to here joining nonce and data is cheaper than a second call.
_JOIN_UP_TO = 4096
# The bytes hashed between two looks: a millisecond or so, and never more than one try on large
# data. A try costs like this many bytes beside its data.
_BYTES_A_LOOK = 1024 * 1024
_BYTES_A_TRY = 1024

# SHA-256 hashes blocks of 64 bytes, and its padding takes at least 9 of the last.
_BLOCK = 64
_PADDING = 9
_USUAL_NONCE = 16
# Random digits, so that two searches over the same data differ.
_MIN_SALT = 4
_SEED_BYTES = 16

Look = Callable[[int], None]


def search(
    data: Buffer,
    difficulty: Difficulty,
    *,
    deterministic: bool,
    look: Look,
    random_bytes: Callable[[int], bytes],
) -> tuple[tuple[str, ...], int]:
    """Return nonces that meet ``difficulty``, and how many hashes that took.

    ``look`` is told the hashes so far every millisecond or each try; it may raise.
    """
    prefixes = _Prefixes(data, difficulty.bits, look)
    if deterministic:
        nonces = _search_table(prefixes, b"%09x", difficulty.nonces)
    else:
        varying = _varying_digits(difficulty.bits)
        length = _nonce_length(memoryview(data).nbytes, varying)
        salt = random_bytes(length).hex()[:length].encode("ascii")
        if difficulty.nonces == MIN_NONCES and difficulty.bits >= _WALK_FROM_BITS:
            salt = salt[: length - 2 * prefixes.size]
            nonces = _search_walk(prefixes, salt, difficulty.bits, random_bytes)
        else:
            form = salt[: length - varying] + b"%%0%dx" % varying
            nonces = _search_table(prefixes, form, difficulty.nonces)
    return tuple(nonce.decode("ascii") for nonce in nonces), prefixes.hashes


class _Prefixes:
    """The first bits of SHA-256(nonce + data), for one nonce after the other."""

    __slots__ = ("_digest", "_last_byte", "_look", "_look_every", "_whole", "hashes", "size")

    def __init__(self, data: Buffer, bits: int, look: Look) -> None:
        length = memoryview(data).nbytes
        self._digest = _digester(data, length)
        self._look = look
        self._look_every = max(1, _BYTES_A_LOOK // (_BYTES_A_TRY + length))
        # The last byte may count in part: its other bits are masked by looking it up.
        self._whole = max(0, bits - 1) // 8
        mask = 0xFF & ~(0xFF >> (bits - 8 * self._whole))
        self._last_byte = [bytes([byte & mask]) for byte in range(256)]
        self.size = self._whole + 1
        self.hashes = 0

    def of(self, nonce: bytes) -> bytes:
        """Return the prefix for ``nonce``: ``size`` bytes, bits beyond the prefix zero."""
        if self.hashes % self._look_every == 0:
            self._look(self.hashes)
        self.hashes += 1
        digest = self._digest(nonce)
        return digest[: self._whole] + self._last_byte[digest[self._whole]]


def _digester(data: Buffer, length: int) -> Callable[[bytes], bytes]:
    """Return the function from a nonce to its digest; it never copies large data."""
    sha256 = hashlib.sha256
    if length <= _JOIN_UP_TO:
        joined = bytes(data)
        return lambda nonce: sha256(nonce + joined).digest()

    def digest(nonce: bytes) -> bytes:
        running = sha256(nonce)
        running.update(data)
        return running.digest()

    return digest


def _search_table(prefixes: _Prefixes, form: bytes, wanted: int) -> list[bytes]:
    """Count nonces from 0 until ``wanted`` of them share a prefix; return them in order."""
    # A dictionary of millions grows, and is let go, in one piece that takes seconds and lets no
    # other thread run. So there is one for each first byte.
    first: list[dict[bytes, int]] = [{} for _ in range(256)]
    repeated: dict[bytes, list[int]] = {}
    numbers = itertools.count()
    try:
        while True:
            count = next(numbers)
            prefix = prefixes.of(form % count)
            earliest = first[prefix[0]].setdefault(prefix, count)
            if earliest == count:
                continue
            sharing = repeated.setdefault(prefix, [earliest])
            sharing.append(count)
            if len(sharing) == wanted:
                return [form % each for each in sharing]
    finally:
        for each_byte in first:
            each_byte.clear()


@dataclass(frozen=True, slots=True)
class _Trail:
    """A walk from ``start`` to a distinguished point, so many steps away."""

    start: bytes
    steps: int


def _search_walk(
    prefixes: _Prefixes, salt: bytes, bits: int, random_bytes: Callable[[int], bytes]
) -> list[bytes]:
    """Walk from point to point until two trails end in the same one; return where they met."""
    theta = bits // 2 - _LOG_POINTS
    point_below = _point_bound(theta)
    longest = _LOST_AFTER << theta
    trails: dict[bytes, _Trail] = {}

    def step(place: bytes) -> bytes:
        return prefixes.of(salt + hexlify(place))

    def fresh_start() -> bytes:
        return prefixes.of(hexlify(random_bytes(_SEED_BYTES)))

    start = fresh_start()
    while True:
        place = start
        steps = 0
        while steps < longest:
            place = step(place)
            steps += 1
            if place < point_below:
                break
        else:
            start = fresh_start()
            continue
        trail = _Trail(start, steps)
        earlier = trails.setdefault(place, trail)
        if earlier is trail:
            start = place
            continue
        pair = _meeting(step, trail, earlier)
        if pair is not None:
            return [salt + hexlify(place) for place in sorted(pair)]
        start = fresh_start()


def _point_bound(theta: int) -> bytes:
    """Return what sorts above exactly the byte strings that begin with ``theta`` zero bits."""
    size = theta // 8 + 1
    return (1 << (8 * size - theta)).to_bytes(size, "big")


def _meeting(
    step: Callable[[bytes], bytes], one: _Trail, other: _Trail
) -> tuple[bytes, bytes] | None:
    """Return the two places just before two trails with the same end become one.

    There are none when one trail begins on the other.
    """
    longer, shorter = (one, other) if one.steps >= other.steps else (other, one)
    place = longer.start
    for _ in range(longer.steps - shorter.steps):
        place = step(place)
    partner = shorter.start
    while place != partner:
        before = (place, partner)
        place, partner = step(place), step(partner)
        if place == partner:
            return before
    return None


def _varying_digits(bits: int) -> int:
    """Return how many hex digits must vary.

    One digit more than the prefix has gives sixteen nonces to each prefix, so some
    sixteen share one whatever the digests are.
    """
    return min(MAX_NONCE_LENGTH, -(-bits // 4) + 1)


def _nonce_length(data_length: int, varying: int) -> int:
    """Choose a length that costs no further block of SHA-256 where one can."""
    room = (_BLOCK - _PADDING - data_length) % _BLOCK
    needed = min(MAX_NONCE_LENGTH, varying + _MIN_SALT)
    usual = max(_USUAL_NONCE, needed)
    return min(usual, room) if room >= needed else usual
