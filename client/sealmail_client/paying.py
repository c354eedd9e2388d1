"""What a place in a mailbox costs: work at the recipient's price, or a token and the floor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sealmail_client.ack_files import GivenSecret
from sealmail_client.channels import channel_of
from sealmail_client.desk import Desk
from sealmail_client.outbox import OutgoingMessage, OutgoingRecipient
from sealmail_pow import Difficulty
from sealmail_pow.difficulty import DIGEST_BITS
from sealmail_protocol.blocks import BlockType, BypassToken, KeyAnnouncement
from sealmail_protocol.bypass import BypassSecret, bypass_token
from sealmail_protocol.keys import KeyId

# A mailbox that fills asks for up to eight bits more, bulk for a few; beyond that it is greed.
MAX_CLIMB = 12


@dataclass(frozen=True, slots=True)
class Payment:
    """A stamp to mint, and the token that goes with it if that is what really pays."""

    price: Difficulty
    token: BypassToken | None


def asked_by(announcement: KeyAnnouncement) -> Difficulty:
    """Return the owner's price, which nobody who keeps blocks lets be lower than its floor."""
    price, floor = announcement.price, _floor(announcement)
    return Difficulty(max(price.bits, floor.bits), max(price.nonces, floor.nonces))


def climbed(price: Difficulty) -> Difficulty:
    """Return the dearest that a mailbox with this price may ask where others fill it."""
    return Difficulty(min(price.bits + MAX_CLIMB, DIGEST_BITS), price.nonces)


def _floor(announcement: KeyAnnouncement) -> Difficulty:
    return channel_of(announcement.transport).floor(BlockType.MESSAGE_ANNOUNCEMENT)


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
    token = bypass_token(secret, message.stamped_bytes(recipient.key_id, date))
    return Payment(_floor(announcement), token)


def price_for(desk: Desk, key_id: KeyId, announcement: KeyAnnouncement) -> Difficulty:
    """Return the work that ``payment_for`` would ask now, before anything is sealed."""
    secret = _secret(desk, key_id, announcement)
    return asked_by(announcement) if secret is None else _floor(announcement)


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
