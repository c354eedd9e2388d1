"""What a sender learns: which of his messages were opened, by whom."""

from sealmail_client.answers import read_entries
from sealmail_client.desk import Desk
from sealmail_client.outbox import OutgoingMessage, OutgoingRecipient, Stage
from sealmail_client.posting import Peer
from sealmail_protocol.blocks import Acknowledgment


async def look_for_acknowledgments(desk: Desk, peer: Peer) -> tuple[OutgoingMessage, ...]:
    """Ask the home server about every message that is not acknowledged yet.

    Returns the messages about which something new is known.
    """
    desk.outbox.expire(desk.clock())
    changed = []
    for message in desk.outbox.unfinished():
        news = [await _acknowledged(desk, peer, message, one) for one in message.at(Stage.SENT)]
        if any(news):
            changed.append(desk.outbox.one(message.number))
    return tuple(changed)


async def _acknowledged(
    desk: Desk, peer: Peer, message: OutgoingMessage, recipient: OutgoingRecipient
) -> bool:
    """Record an acknowledgment that is there; its key proves that the secret was known."""
    key = recipient.ack_key
    lines = None if key is None else await peer.server.get(key)
    if key is None or lines is None:
        return False
    entries = read_entries(lines, key, desk.clock(), [])
    dates = [entry.block.date for entry in entries if isinstance(entry.block, Acknowledgment)]
    if not dates:
        return False
    desk.outbox.record_acknowledged(message.number, recipient.key_id, max(dates))
    return True
