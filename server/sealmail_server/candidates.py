"""A block on its way in: what it is, by which way it came, and all checks that need no store."""

import hashlib
from dataclasses import dataclass
from datetime import datetime

from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import (
    AddressClaim,
    BlockType,
    DataHeader,
    KeyAnnouncement,
    MessageAnnouncement,
    TextBlock,
)
from sealmail_protocol.canonical import canonical_form
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import decode_lines
from sealmail_protocol.keys import BlockKey, KeyId
from sealmail_protocol.merges import entry_identity
from sealmail_protocol.policy import BLOCK_POLICY, MAX_FUTURE, MAX_FUTURE_REPLICATED, Poster
from sealmail_protocol.validity import check_date, check_text_block
from sealmail_server.limits import Limits
from sealmail_server.visitor import Visitor
from sealmail_store import StoredEntry

# Whatever a partner sends is counted under one name, and limited where it was first taken.
PARTNER = "partner"


@dataclass(frozen=True, slots=True)
class Arrival:
    """By which way a block came. ``visitor`` is who may be asked for rights, if anybody is.

    A replicated block was decided by the partner: what depends on the state of a server is
    not asked again. What only waits at the partner is judged here like what came here first;
    ``waits_until`` is when it need not wait any more.
    """

    poster: str | None
    source: str
    replicated: bool = False
    visitor: Visitor | None = None
    waits_until: datetime | None = None

    @classmethod
    def stored(cls, visitor: Visitor) -> "Arrival":
        """Return the arrival of what a visitor stores."""
        source = visitor.userid if visitor.confirmed and visitor.userid else visitor.source
        return cls(visitor.userid, source, visitor=visitor)

    @classmethod
    def replicated_for(cls, poster: str | None) -> "Arrival":
        """Return the arrival of what the partner took from ``poster``."""
        return cls(poster, PARTNER, replicated=True)

    @classmethod
    def waiting_at_partner(cls, poster: str | None, until: datetime) -> "Arrival":
        """Return the arrival of what the partner took from ``poster``, and lets wait."""
        return cls(poster, PARTNER, waits_until=until)

    @property
    def by_partner(self) -> bool:
        """Whether the partner has it too."""
        return self.source == PARTNER


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text block that has passed all checks that need no store.

    ``verified_by`` is the digest of the key-announcement that a claim was verified by.
    """

    block: TextBlock
    key: BlockKey
    bits: int
    header: bytes
    digest: bytes
    identity: bytes
    revoked: bool = False
    verified_by: bytes | None = None

    def entry(self, arrival: Arrival, *, paid: bool = True) -> StoredEntry:
        """Return the block as the store keeps it."""
        block = self.block
        mail = block if isinstance(block, MessageAnnouncement) else None
        return StoredEntry(
            type=block.type,
            key=self.key,
            identity=self.identity,
            date=block.date,
            header=self.header,
            digest=self.digest,
            stamp_bits=self.bits,
            poster=arrival.poster,
            revoked=self.revoked,
            holder=mail.recipient.raw if mail else b"",
            paid=paid and mail is not None,
            source=arrival.source,
            names=mail.data_blocks if mail else (),
        )


def examine(
    lines: tuple[bytes, ...], key: BlockKey, arrival: Arrival, now: datetime, limits: Limits
) -> Candidate:
    """Check form, key, date, stamp and poster; raise ``InvalidBlock``. Costs CPU, no disk."""
    block = parse_text_block(decode_lines(lines))
    _check_poster(block, key, arrival)
    future = MAX_FUTURE_REPLICATED if arrival.by_partner else MAX_FUTURE
    bits = check_text_block(block, key, now, future)
    check_age(block, now, limits)
    if isinstance(block, KeyAnnouncement) and not arrival.replicated and block.expires < now:
        raise InvalidBlock(Refusal.DATE, "past its Expires date: post a new one")
    header = canonical_form(block)
    return Candidate(
        block, key, bits, header, hashlib.sha256(header).digest(), entry_identity(block)
    )


def examine_data(header: DataHeader, arrival: Arrival, now: datetime, limits: Limits) -> None:
    """Check what the lines of a data block say, before its bytes come."""
    policy = BLOCK_POLICY[BlockType.DATA]
    if header.size > policy.size:
        raise InvalidBlock(Refusal.SIZE, f"more than {policy.size} bytes")
    check_date(header, now, MAX_FUTURE_REPLICATED if arrival.replicated else MAX_FUTURE)
    check_age(header, now, limits)


def check_age(block: TextBlock | DataHeader, now: datetime, limits: Limits) -> None:
    """Refuse what is older than this server keeps its type."""
    if now - block.date >= limits.max_age[block.type]:
        raise InvalidBlock(Refusal.DATE, "older than blocks of this type are kept here")


def signed_by(block: KeyAnnouncement | AddressClaim, key: BlockKey) -> KeyId:
    """Return who must have signed the block."""
    return block.key_id if isinstance(block, AddressClaim) else KeyId(key.raw)


def _check_poster(block: TextBlock, key: BlockKey, arrival: Arrival) -> None:
    if arrival.visitor is None or BLOCK_POLICY[block.type].poster is not Poster.OWNER:
        return
    owner = signed_by(block, key) if isinstance(block, KeyAnnouncement | AddressClaim) else None
    if owner is None or arrival.visitor.key_id != owner:
        raise InvalidBlock(Refusal.PERMISSION, "only its owner, logged in, may post it")
