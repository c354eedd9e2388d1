"""Whether a block fits its key and its time: all that needs neither a store nor a verifier."""

from datetime import datetime, timedelta

from sealmail_protocol.blocks import (
    Acknowledgment,
    AddressClaim,
    DataHeader,
    MessageAnnouncement,
    TextBlock,
)
from sealmail_protocol.canonical import text_size
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.keys import BlockKey, acknowledgment_key, address_key, mailbox_key
from sealmail_protocol.policy import BLOCK_POLICY, MAX_FUTURE
from sealmail_protocol.stamps import Difficulty, stamp_bits


def own_key(block: TextBlock) -> BlockKey | None:
    """Return the key that the content of ``block`` asks for.

    ``None`` for a key-announcement: its key is a fingerprint, which a verifier tells.
    """
    match block:
        case AddressClaim():
            return address_key(block.address)
        case MessageAnnouncement():
            return mailbox_key(block.mailbox, block.recipient)
        case Acknowledgment():
            return acknowledgment_key(block.secret)
        case _:
            return None


def check_text_block(
    block: TextBlock, key: BlockKey, now: datetime, max_future: timedelta = MAX_FUTURE
) -> int:
    """Check size, key, date and the stamp's floor; return the bits of the stamp."""
    policy = BLOCK_POLICY[block.type]
    if text_size(block) > policy.size:
        raise InvalidBlock(Refusal.SIZE, f"more than {policy.size} bytes")
    expected = own_key(block)
    if expected is not None and expected != key:
        raise InvalidBlock(Refusal.KEY, f"its content belongs under {expected}")
    check_date(block, now, max_future)
    bits = stamp_bits(block)
    check_stamp(bits, len(block.stamp.nonces), policy.server_stamp)
    return bits


def check_date(
    block: TextBlock | DataHeader, now: datetime, max_future: timedelta = MAX_FUTURE
) -> None:
    """Refuse what is older than its type may be, or dated too far ahead."""
    if now - block.date >= BLOCK_POLICY[block.type].max_age:
        raise InvalidBlock(Refusal.DATE, "older than blocks of this type are kept")
    if block.date - now > max_future:
        raise InvalidBlock(Refusal.DATE, f"dated more than {max_future} ahead")


def check_stamp(bits: int, nonces: int, floor: Difficulty) -> None:
    """Refuse a stamp below ``floor``."""
    if bits < floor.bits or nonces < floor.nonces:
        raise InvalidBlock(Refusal.STAMP, f"bd,{bits},{nonces} where {floor} is asked")
