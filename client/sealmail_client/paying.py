"""What a place in a mailbox costs: work at the recipient's price, or a token and the floor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sealmail_client.ack_files import GivenSecret
from sealmail_client.desk import Desk
from sealmail_client.outbox import OutgoingMessage, OutgoingRecipient
from sealmail_pow import Difficulty
from sealmail_protocol.blocks import BlockType, BypassToken, KeyAnnouncement
from sealmail_protocol.bypass import BypassSecret, bypass_token
from sealmail_protocol.keys import KeyId
from sealmail_protocol.policy import BLOCK_POLICY

FLOOR = BLOCK_POLICY[BlockType.MESSAGE_ANNOUNCEMENT].server_stamp


@dataclass(frozen=True, slots=True)
class Payment:
    """A stamp to mint, and the token that goes with it if that is what really pays."""

    price: Difficulty
    token: BypassToken | None


def asked_by(announcement: KeyAnnouncement) -> Difficulty:
    """Return the owner's price, which no server lets be lower than its floor."""
    price = announcement.price
    return Difficulty(max(price.bits, FLOOR.bits), max(price.nonces, FLOOR.nonces))


def payment_for(
    desk: Desk,
    message: OutgoingMessage,
    recipient: OutgoingRecipient,
    announcement: KeyAnnouncement,
    date: datetime,
) -> Payment:
    """Return what pays for an announcement of ``date``, which a token is bound to."""
    secret = _secret(desk, recipient.key_id, announcement)
    if secret is None:
        return Payment(asked_by(announcement), None)
    return Payment(FLOOR, bypass_token(secret, message.stamped_bytes(recipient.key_id, date)))


def price_for(desk: Desk, key_id: KeyId, announcement: KeyAnnouncement) -> Difficulty:
    """Return the work that ``payment_for`` would ask now, before anything is sealed."""
    return asked_by(announcement) if _secret(desk, key_id, announcement) is None else FLOOR


def secrets_for(
    desk: Desk,
    readers: Mapping[KeyId, KeyAnnouncement],
    random_bytes: Callable[[int], bytes],
) -> dict[KeyId, GivenSecret]:
    """Return what lets each reader answer without work, but for those we block.

    Who does not speak of tokens himself may have a client too old to read them.
    """
    return {
        key_id: desk.bypass.give(key_id, desk.clock(), random_bytes)
        for key_id, announcement in readers.items()
        if announcement.tokens_accepted_since and not desk.blocklist.holds(key_id)
    }


def _secret(desk: Desk, key_id: KeyId, announcement: KeyAnnouncement) -> BypassSecret | None:
    """Return what makes tokens, if the recipient gave us such a secret and honours it."""
    return desk.bypass.usable(key_id, announcement.tokens_accepted_since, desk.clock())
