"""What a place in a mailbox costs: work at the recipient's price, or a token and the floor."""

from collections.abc import Callable, Mapping

from sealmail_client.ack_files import GivenSecret
from sealmail_client.desk import Desk
from sealmail_client.outbox import OutgoingMessage, OutgoingRecipient
from sealmail_pow import Difficulty
from sealmail_protocol.blocks import BlockType, BypassToken, KeyAnnouncement
from sealmail_protocol.bypass import bypass_token
from sealmail_protocol.keys import KeyId
from sealmail_protocol.policy import BLOCK_POLICY

FLOOR = BLOCK_POLICY[BlockType.MESSAGE_ANNOUNCEMENT].server_stamp


def asked_by(announcement: KeyAnnouncement) -> Difficulty:
    """Return the owner's price, which no server lets be lower than its floor."""
    price = announcement.price
    return Difficulty(max(price.bits, FLOOR.bits), max(price.nonces, FLOOR.nonces))


def token_for(
    desk: Desk,
    message: OutgoingMessage,
    recipient: OutgoingRecipient,
    announcement: KeyAnnouncement,
) -> BypassToken | None:
    """Return what pays instead of work, if the recipient gave us a secret that he honours."""
    since = announcement.tokens_accepted_since
    secret = desk.bypass.usable(recipient.key_id, since, desk.clock())
    if secret is None:
        return None
    return bypass_token(secret, message.stamped_bytes(recipient.key_id))


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
