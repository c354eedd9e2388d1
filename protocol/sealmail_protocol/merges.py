"""Which of two entries of one identity stays. Every merge commutes and may be repeated.

So replicas agree whatever the order in which blocks reach them. Admission and the DHT both
ask here; entries of different identity stay side by side.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any

from sealmail_protocol.blocks import AddressClaim, Block, BlockType, MessageAnnouncement
from sealmail_protocol.policy import BLOCK_POLICY, Merge


@dataclass(frozen=True, slots=True)
class Standing:
    """What a merge compares, computed once and kept beside the stored block."""

    date: datetime
    digest: bytes
    revoked: bool = False
    bits: int = 0


# What each merge looks at; where that ties, the lower digest stays.
_RANK: dict[Merge, Callable[[Standing], Any]] = {
    Merge.REVOKED_THEN_NEWEST: attrgetter("revoked", "date"),
    Merge.NEWEST_OF_EACH_KEYID: attrgetter("date"),
    Merge.SET: attrgetter("bits"),
    Merge.NEWEST: attrgetter("date"),
}


def displaces(kind: BlockType, new: Standing, held: Standing) -> bool:
    """Return whether ``new`` stays in the place of ``held``, by the merge of its type."""
    rank = _RANK[BLOCK_POLICY[kind].merge]
    mine, theirs = rank(new), rank(held)
    return bool(mine > theirs or (mine == theirs and new.digest < held.digest))


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
