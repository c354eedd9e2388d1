"""Whether a block fits its key and its time: all that needs neither a store nor a verifier."""

from datetime import datetime, timedelta

from sealmail_protocol.blocks import DataHeader, TextBlock
from sealmail_protocol.canonical import text_size
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import BLOCK_POLICY, MAX_FUTURE
from sealmail_protocol.stamps import Difficulty, stamp_bits


def check_text_block(
    block: TextBlock, key: BlockKey, now: datetime, max_future: timedelta = MAX_FUTURE
) -> int:
    """Check size, key, date and the stamp's floor; return the bits of the stamp.

    That the key of a key-announcement is its fingerprint is left to a verifier.
    """
    policy = BLOCK_POLICY[block.type]
    if text_size(block) > policy.size:
        raise InvalidBlock(Refusal.SIZE, f"more than {policy.size} bytes")
    own_key = block.own_key
    if own_key is not None and own_key != key:
        raise InvalidBlock(Refusal.KEY, f"its content belongs under {own_key}")
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
    if not floor.met_by(bits, nonces):
        raise InvalidBlock(Refusal.STAMP, f"bd,{bits},{nonces} where {floor} is asked")
