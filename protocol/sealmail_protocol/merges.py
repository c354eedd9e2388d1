"""Which of two blocks under one key stays. Every merge commutes and may be repeated.

So replicas agree whatever the order in which blocks reach them.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sealmail_protocol.blocks import (
    Acknowledgment,
    AddressClaim,
    Block,
    DataHeader,
    KeyAnnouncement,
    MessageAnnouncement,
)
from sealmail_protocol.canonical import block_digest, data_digest
from sealmail_protocol.keys import BlockKey, KeyId
from sealmail_protocol.stamps import stamp_bits


@dataclass(frozen=True, slots=True)
class Standing:
    """What a merge compares, computed once and kept beside the stored block."""

    date: datetime
    digest: bytes
    revoked: bool = False
    bits: int = 0

    def beats(self, other: "Standing") -> bool:
        """Return whether this block displaces the other: revoked, newer, then lower digest."""
        mine = (self.revoked, self.date)
        theirs = (other.revoked, other.date)
        return mine > theirs or (mine == theirs and self.digest < other.digest)

    def outbids(self, other: "Standing") -> bool:
        """Return whether this announcement stays for the other: more bits, then lower digest."""
        return self.bits > other.bits or (self.bits == other.bits and self.digest < other.digest)


def announcement_identity(entry: MessageAnnouncement) -> tuple[bytes, bytes]:
    """Return what makes two announcements the same mail: stamped bytes and token."""
    return entry.challenge, entry.token.raw if entry.token else b""


def entry_identity(block: Block) -> bytes:
    """Return what tells an entry from the others of its type under one key, in few bytes."""
    match block:
        case AddressClaim():
            return block.key_id.raw
        case MessageAnnouncement():
            stamped, token = announcement_identity(block)
            return hashlib.sha256(hashlib.sha256(stamped).digest() + token).digest()
        case _:
            return b""


def merge_acknowledgments(first: Acknowledgment, second: Acknowledgment) -> Acknowledgment:
    """Return which of two acknowledgments of one mail stays."""
    return second if _standing(second).beats(_standing(first)) else first


def merge_data(key: BlockKey, first: DataHeader, second: DataHeader) -> DataHeader:
    """Return which header of the same bytes stays: the one that lives longer."""
    one = Standing(first.date, data_digest(first, key))
    two = Standing(second.date, data_digest(second, key))
    return second if two.beats(one) else first


def merge_key_announcements(
    first: tuple[KeyAnnouncement, bool], second: tuple[KeyAnnouncement, bool]
) -> tuple[KeyAnnouncement, bool]:
    """Return which of two announcements of a key stays; the flag tells a revoked key."""
    one = Standing(first[0].date, block_digest(first[0]), revoked=first[1])
    two = Standing(second[0].date, block_digest(second[0]), revoked=second[1])
    return second if two.beats(one) else first


def merge_claims(
    first: Iterable[AddressClaim], second: Iterable[AddressClaim]
) -> dict[KeyId, AddressClaim]:
    """Return the claims for one address: the newest of each key."""
    merged: dict[KeyId, AddressClaim] = {}
    for claim in (*first, *second):
        held = merged.get(claim.key_id)
        if held is None or _standing(claim).beats(_standing(held)):
            merged[claim.key_id] = claim
    return merged


def merge_announcements(
    first: Iterable[MessageAnnouncement], second: Iterable[MessageAnnouncement]
) -> dict[tuple[bytes, bytes], MessageAnnouncement]:
    """Return the entries of a mailbox: a set, in which nobody overwrites another's mail."""
    merged: dict[tuple[bytes, bytes], MessageAnnouncement] = {}
    for entry in (*first, *second):
        identity = announcement_identity(entry)
        held = merged.get(identity)
        if held is None or _bid(entry).outbids(_bid(held)):
            merged[identity] = entry
    return merged


def _standing(block: AddressClaim | Acknowledgment) -> Standing:
    return Standing(block.date, block_digest(block))


def _bid(entry: MessageAnnouncement) -> Standing:
    return Standing(entry.date, block_digest(entry), bits=stamp_bits(entry))
