"""May this block enter? The rules of the policy table, for every way a block can come.

What needs the state of the store is decided inside the transaction that stores the block, so
that nothing changes between the decision and the commit.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import (
    AddressClaim,
    BlockType,
    KeyAnnouncement,
    MessageAnnouncement,
    TextBlock,
)
from sealmail_protocol.canonical import block_digest, canonical_form
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import split_lines
from sealmail_protocol.keys import BlockKey, KeyId, announcement_key
from sealmail_protocol.merges import Standing, announcement_identity
from sealmail_protocol.policy import BLOCK_POLICY, MAILBOX_SIZE, Poster
from sealmail_protocol.pricing import FLOOR, Fill, demand
from sealmail_protocol.stamps import Difficulty
from sealmail_protocol.validity import check_text_block
from sealmail_server.accounts import is_user
from sealmail_server.visitor import Visitor
from sealmail_store import ReadView, StoredEntry, WriteView

# Before a user's first announcement, mail for these mailboxes is taken at the floor price.
FIRST_MAILBOXES: tuple[str, ...] = ("0", "1", "2", "3")
# Entries that pay by token may take a quarter of a mailbox, since no server can check tokens.
TOKEN_SHARE = MAILBOX_SIZE // 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """A block that has passed all checks that need no store."""

    block: TextBlock
    key: BlockKey
    bits: int
    revoked: bool = False

    def entry(self, poster: str | None) -> StoredEntry:
        """Return the block as the store keeps it."""
        return StoredEntry(
            type=self.block.type,
            key=self.key,
            identity=_identity(self.block),
            date=self.block.date,
            header=canonical_form(self.block),
            digest=block_digest(self.block),
            stamp_bits=self.bits,
            poster=poster,
            revoked=self.revoked,
        )


def examine(block: TextBlock, key: BlockKey, visitor: Visitor, now: datetime) -> Candidate:
    """Check form, key, date, stamp and poster; raise ``InvalidBlock``. Costs CPU, no disk."""
    if BLOCK_POLICY[block.type].poster is Poster.OWNER and visitor.key_id != _owner(block, key):
        raise InvalidBlock(Refusal.PERMISSION, "only its owner, logged in, may post it")
    bits = check_text_block(block, key, now)
    if isinstance(block, KeyAnnouncement) and block.expires < now:
        raise InvalidBlock(Refusal.DATE, "past its Expires date: post a new one")
    return Candidate(block, key, bits)


def signed_by(block: KeyAnnouncement | AddressClaim, key: BlockKey) -> KeyId:
    """Return who must have signed the block."""
    return block.key_id if isinstance(block, AddressClaim) else KeyId(key.raw)


def certificate_for(view: ReadView, block: KeyAnnouncement | AddressClaim) -> bytes:
    """Return the armored key to verify ``block`` by: its own, or its owner's stored one."""
    if isinstance(block, KeyAnnouncement):
        return block.signed.armored_key
    stored = view.entry(BlockType.KEY_ANNOUNCEMENT, announcement_key(block.key_id))
    if stored is None:
        raise InvalidBlock(
            Refusal.KEY, "the key that claims the address is not here: post it first"
        )
    if stored.revoked:
        raise InvalidBlock(Refusal.KEY, "the key that claims the address is revoked")
    return _announcement(stored).signed.armored_key


def admit(view: WriteView, candidate: Candidate, visitor: Visitor) -> bool:
    """Store the candidate if it beats what is held; return whether anything changed.

    Raises ``InvalidBlock`` where the state of the store speaks against it.
    """
    if isinstance(candidate.block, MessageAnnouncement):
        _check_mailbox(view, candidate, candidate.block)
    entry = candidate.entry(visitor.userid)
    held = view.entry(entry.type, entry.key, entry.identity)
    if held is not None and not _displaces(entry, held):
        return False
    view.put_entry(entry)
    return True


def displaces_data(entry: StoredEntry, held: StoredEntry) -> bool:
    """Return whether a data block's newer header replaces the one held."""
    return _standing(entry).beats(_standing(held))


def _owner(block: TextBlock, key: BlockKey) -> KeyId | None:
    if isinstance(block, KeyAnnouncement | AddressClaim):
        return signed_by(block, key)
    return None


def _identity(block: TextBlock) -> bytes:
    match block:
        case AddressClaim():
            return block.key_id.raw
        case MessageAnnouncement():
            stamped, token = announcement_identity(block)
            return hashlib.sha256(hashlib.sha256(stamped).digest() + token).digest()
        case _:
            return b""


_WINS: dict[BlockType, Callable[[Standing, Standing], bool]] = {
    BlockType.MESSAGE_ANNOUNCEMENT: Standing.outbids,
}


def _displaces(entry: StoredEntry, held: StoredEntry) -> bool:
    wins = _WINS.get(BlockType(entry.type), Standing.beats)
    return wins(_standing(entry), _standing(held))


def _standing(entry: StoredEntry) -> Standing:
    return Standing(entry.date, entry.digest, entry.revoked, entry.stamp_bits)


def _check_mailbox(view: ReadView, candidate: Candidate, block: MessageAnnouncement) -> None:
    if not is_user(view, block.recipient.hex):
        raise InvalidBlock(Refusal.RECIPIENT, "the recipient has no account here")
    stored = view.entry(BlockType.KEY_ANNOUNCEMENT, announcement_key(block.recipient))
    mailboxes, price = FIRST_MAILBOXES, FLOOR
    if stored is not None:
        announced = _announcement(stored)
        mailboxes, price = announced.mailboxes, announced.price
    if block.mailbox not in mailboxes:
        raise InvalidBlock(Refusal.RECIPIENT, f"the recipient has no mailbox {block.mailbox}")
    asked = demand(price, block.token is not None, *_room(view, candidate, price))
    if asked is None:
        raise InvalidBlock(Refusal.FULL, "the mailbox is full")
    if candidate.bits < asked.bits or len(block.stamp.nonces) < asked.nonces:
        raise InvalidBlock(Refusal.PRICE, f"{asked} is asked")


def _room(view: ReadView, candidate: Candidate, price: Difficulty) -> tuple[Fill, int]:
    """Return how full the mailbox is with this entry in it, and the bytes it adds."""
    size = len(canonical_form(candidate.block))
    held = view.entries(BlockType.MESSAGE_ANNOUNCEMENT, candidate.key)
    by_token = sum(len(entry.header) for entry in held if entry.stamp_bits < price.bits)
    used = sum(len(entry.header) for entry in held)
    fill = Fill(Fraction(used + size, MAILBOX_SIZE), Fraction(by_token, TOKEN_SHARE))
    return fill, size - _held_data_bytes(view, candidate.block)


def _held_data_bytes(view: ReadView, block: TextBlock) -> int:
    """Count the bytes of lines that name data held here: they are paid for by the data."""
    if not isinstance(block, MessageAnnouncement):
        return 0
    line = len("DataBlock: \r\n") + 40
    kinds = (BlockType.DATA,)
    return sum(line for key in block.data_blocks if view.types_under(key, kinds))


def _announcement(entry: StoredEntry) -> KeyAnnouncement:
    block = parse_text_block(split_lines(entry.header))
    if not isinstance(block, KeyAnnouncement):
        raise InvalidBlock(Refusal.INTERNAL, "the stored announcement is none")
    return block
