"""Exactly which bytes the proof of work of each block type is computed over.

docs/formats.md §3. The two samples of the specification that were made by an older build
(key id as text, line ends kept) are refused on purpose.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from sealmail_pow import Difficulty, Stamp, level
from sealmail_protocol.dates import format_date
from sealmail_protocol.keys import AckHash, BlockKey, KeyId

__all__ = [
    "Difficulty",
    "Stamp",
    "Stamped",
    "acknowledgment_challenge",
    "claim_challenge",
    "data_challenge_prefix",
    "key_challenge",
    "message_challenge",
    "stamp_bits",
]


class Stamped(Protocol):
    """What carries a stamp: any block."""

    @property
    def stamp(self) -> Stamp:
        """The nonces."""

    @property
    def challenge(self) -> bytes:
        """The stamped bytes."""


def key_challenge(text_lines: Iterable[str]) -> bytes:
    """Return the stamped bytes of a key-announcement: its text after ``ProofOfWork:``, joined."""
    return "".join(text_lines).encode()


def claim_challenge(date: datetime, key_id: KeyId, address: str) -> bytes:
    """Return the stamped bytes of an address-claim."""
    return format_date(date).encode() + key_id.raw + address.encode()


def message_challenge(
    recipient: KeyId, message_hash: BlockKey, date: datetime, data_blocks: Sequence[BlockKey]
) -> bytes:
    """Return the stamped bytes of a message-announcement; bypass tokens sign the same."""
    ids = b"".join(block.raw for block in data_blocks)
    return recipient.raw + message_hash.raw + format_date(date).encode() + ids


def acknowledgment_challenge(date: datetime, secret: AckHash) -> bytes:
    """Return the stamped bytes of an acknowledgment."""
    return format_date(date).encode() + secret.raw


def data_challenge_prefix(date: datetime) -> bytes:
    """Return what stands before the bytes of a data block in its stamped bytes."""
    return format_date(date).encode()


def stamp_bits(block: Stamped) -> int:
    """Return how many bits the stamp of ``block`` is worth."""
    return level(block.challenge, block.stamp)
