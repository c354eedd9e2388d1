"""Word that a mail was opened: left by its reader, and found by its sender."""

from dataclasses import replace

from sealmail_client.answers import read_entries
from sealmail_client.channels import Channel, Route, channel_of, route_to
from sealmail_client.delivering import NotDelivered, deliver_to_group
from sealmail_client.desk import Desk
from sealmail_client.inbox import ArrivingMessage, DueAcknowledgment, Step
from sealmail_client.outbox import UNDER_WAY, OutgoingMessage, OutgoingRecipient
from sealmail_client.posting import NotTaken, Peer
from sealmail_client.progress import mint_watched
from sealmail_client.proxying import Proxy
from sealmail_client.servers import LoginRefused, shuffled
from sealmail_client.settings import Delivery, Place
from sealmail_net.errors import NetworkError
from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import Acknowledgment, BlockType
from sealmail_protocol.compose import make_acknowledgment
from sealmail_protocol.keys import BlockKey, acknowledgment_key
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.stamps import acknowledgment_challenge

_NOT_SERVED = (
    "the home server did not take it: there is no room now, or it will never deliver to {target}; "
    "`sealmail identity set --acknowledge direct` leaves it there from here"
)
_POLICY = BLOCK_POLICY[BlockType.ACKNOWLEDGMENT]


async def acknowledge(desk: Desk, message: ArrivingMessage, home: Peer) -> str | None:
    """Leave what is owed for a filed message with its sender; return why that must wait.

    The server at ``home`` does so where it can, unless the user will not have that.
    """
    due = message.due
    if due is None:
        desk.inbox.record_acknowledged(message.number)
        return None
    target, proxy = Transport.parse(due.servers), Proxy(desk, home)
    block = due.block or await _made(desk, message, due, channel_of(target))
    if desk.clock() - block.date >= _POLICY.max_age:
        given_up = "no server of its sender took the acknowledgment in time"
        desk.inbox.record_acknowledged(message.number, given_up)
        return None
    if proxy.reaches(target) and desk.settings.acknowledge is Delivery.PROXY:
        taken = await proxy.take_acknowledgment(message.mail, block, target)
        reason = None if taken else _NOT_SERVED.format(target=target)
    else:
        key, route = acknowledgment_key(due.secret), route_to(target, desk.settings)
        reason = await _post_anywhere(desk, route, key, block)
    if reason is None:
        desk.inbox.record_acknowledged(message.number)
    else:
        desk.inbox.record_step(message.number, Step.FILED, reason)
    return reason


async def _made(
    desk: Desk, message: ArrivingMessage, due: DueAcknowledgment, channel: Channel
) -> Acknowledgment:
    date = desk.servers.moment()
    challenge = acknowledgment_challenge(date, due.secret)
    price = channel.floor(BlockType.ACKNOWLEDGMENT)
    stamp = await mint_watched(challenge, price, "acknowledging", desk.watcher)
    block = make_acknowledgment(date, stamp, due.secret)
    desk.inbox.record_acknowledgment(message.number, block)
    return block


async def _post_anywhere(
    desk: Desk, route: Route, key: BlockKey, block: Acknowledgment
) -> str | None:
    """Leave an acknowledgment at one server of the route; return why none took it."""

    async def hand_over(peer: Peer) -> str | None:
        outcome = await peer.post(key, block)
        return outcome.reason if isinstance(outcome, NotTaken) else None

    try:
        await deliver_to_group(
            desk.servers, replace(route, servers=tuple(shuffled(route.servers))), hand_over
        )
    except NotDelivered as error:
        return str(error)
    return None


async def look_for_acknowledgments(desk: Desk, peer: Peer) -> None:
    """Ask a server where we are logged in about every message that is not acknowledged yet."""
    desk.outbox.expire(desk.clock())
    for message in desk.outbox.unfinished():
        for recipient in message.at(*UNDER_WAY):
            await _look_for(desk, peer, message, recipient)


async def look_at_old_server(desk: Desk) -> tuple[str, ...]:
    """Ask the old server too, where a reader may have left word; return why it cannot be asked."""
    under_way = any(message.at(*UNDER_WAY) for message in desk.outbox.unfinished())
    if not under_way or Place.OLD not in desk.settings.places:
        return ()
    try:
        async with desk.servers.at(Place.OLD) as old:
            await look_for_acknowledgments(desk, old)
    except (NetworkError, LoginRefused) as error:
        return (f"the old server was not asked for acknowledgments: {error}",)
    return ()


async def _look_for(
    desk: Desk, peer: Peer, message: OutgoingMessage, recipient: OutgoingRecipient
) -> None:
    """Record an acknowledgment that is there; its key proves that the secret was known."""
    key = recipient.ack_key
    lines = None if key is None else await peer.get(key)
    if key is None or lines is None:
        return
    entries = read_entries(lines, key, desk.clock(), [])
    dates = [entry.block.date for entry in entries if isinstance(entry.block, Acknowledgment)]
    if dates:
        desk.outbox.record_acknowledged(message.number, recipient.key_id, max(dates))
