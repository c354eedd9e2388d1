"""What a sender must pay for a place in a mailbox."""

from dataclasses import dataclass
from fractions import Fraction

from sealmail_pow import Difficulty

FLOOR = Difficulty(8, 2)
# Above half full each sixteenth of the mailbox costs one bit more.
_STEPS = 16
_CLIMB_FROM = 8
_MAX_CLIMB = 8
# Text up to here is a mail like any other; more of it is storage, and pays for it.
FREE_BYTES = 4096
_BITS_PER_DOUBLING = 2


@dataclass(frozen=True, slots=True)
class Fill:
    """How full a mailbox is: itself (or the owner's quota, if fuller) and its token share."""

    mailbox: Fraction = Fraction(0)
    tokens: Fraction = Fraction(0)


def demand(price: Difficulty, token: bool, fill: Fill, size: int) -> Difficulty | None:
    """Return what an announcement must be stamped with, or ``None`` when the mailbox is full.

    ``price`` is the recipient's SenderProofOfWork, ``token`` whether a BypassToken line is
    there, ``size`` the bytes that are not DataBlock lines of blocks held here.
    """
    if _steps(fill.mailbox) >= _STEPS:
        return None
    bits = max(price.bits, FLOOR.bits) + _climb(fill.mailbox)
    if token:
        bits = _token_bits(bits, fill.tokens)
    nonces = FLOOR.nonces if token and fill.tokens < 1 else price.nonces
    return Difficulty(min(bits + _bulk_bits(size), 256), nonces)


def _steps(fill: Fraction) -> int:
    """Count the whole sixteenths; in integers, which is exact and cheap."""
    return fill.numerator * _STEPS // fill.denominator


def _climb(fill: Fraction) -> int:
    return max(0, min(_MAX_CLIMB, _steps(fill) - _CLIMB_FROM + 1))


def _token_bits(full_price: int, share: Fraction) -> int:
    """Climb from the floor to the price in even steps as the token share fills."""
    step = min(_STEPS, _steps(share))
    return FLOOR.bits + (full_price - FLOOR.bits) * step // _STEPS


def _bulk_bits(size: int) -> int:
    """Two bits for each begun doubling beyond the free bytes."""
    doublings = max(0, (max(size, 1) - 1) // FREE_BYTES).bit_length()
    return _BITS_PER_DOUBLING * doublings
