"""What became of mail that the home server delivers, and what is done about dead letters."""

from datetime import timedelta

from sealmail_client.addressing import Addressing
from sealmail_client.dead_letters import Remedy, meaning_of, told
from sealmail_client.desk import Desk
from sealmail_client.errors import ClientError
from sealmail_client.outbox import OutgoingMessage, OutgoingRecipient, Stage
from sealmail_client.posting import Peer
from sealmail_client.proxied import Proxied
from sealmail_client.proxying import Proxy
from sealmail_client.quotes import MoreThanAgreed
from sealmail_client.sending import Sender
from sealmail_protocol.commands import AskQueue
from sealmail_protocol.replies import Listing, QueueRow, QueueState

# Of two home servers one may have lost what it was given, and the other never had it.
_LOST_AFTER = timedelta(days=1)
# Each time that a mail comes back the reason is another, or it would have been mended.
_MAX_RETURNS = 5


async def follow_queue(desk: Desk, peer: Peer, sender: Sender) -> tuple[str, ...]:
    """Ask the home server about what it delivers, and record the answers.

    A dead letter is mended where that can be: ``sender`` then sends it anew, when it next works.
    Returns which acknowledgments came back.
    """
    since = desk.proxied.since()
    if since is None or not Proxy(desk, peer).serves:
        return ()
    answer = await peer.server.call(AskQueue(since))
    if not isinstance(answer, Listing):
        return ()
    desk.proxied.update(_rows(answer))
    for message in desk.outbox.unfinished():
        for recipient in message.at(Stage.QUEUED):
            await _Followed(desk, sender, message, recipient).settle()
    return tuple(
        f"mail {one.mail} stays without acknowledgment: {told(one.code)}"
        for one in desk.proxied.take_dead_acknowledgments()
    )


def something_queued(desk: Desk) -> bool:
    """Return whether the home server delivers mail of which the end is not known."""
    return any(message.at(Stage.QUEUED) for message in desk.outbox.unfinished())


def _rows(answer: Listing) -> list[QueueRow]:
    """Return the rows that can be read; a newer server may list more."""
    rows = []
    for line in answer.lines:
        try:
            rows.append(QueueRow.parse(line))
        except ValueError:
            continue
    return rows


class _Followed:
    """One recipient's copy of a message, on its way by the home server."""

    def __init__(
        self, desk: Desk, sender: Sender, message: OutgoingMessage, recipient: OutgoingRecipient
    ) -> None:
        self._desk = desk
        self._sender = sender
        self._message = message
        self._recipient = recipient

    async def settle(self) -> None:
        """Record how it stands, and do about a dead letter what can be done."""
        number, key_id, outbox = self._message.number, self._recipient.key_id, self._desk.outbox
        way = self._desk.proxied.announced(number, key_id)
        if way is None or (not way.seen and self._desk.clock() - way.handed > _LOST_AFTER):
            outbox.record_returned(number, key_id)
        elif way.state is QueueState.DELIVERED:
            sent = way.last or self._desk.clock()
            outbox.record_sent(number, key_id, str(way.target), sent)
        elif way.dead or (way.code == "price" and way.demand is not None):
            # A price need not be waited for: the queue only asks whether it falls again.
            await self._mend(way)
        else:
            # The announcement goes last, so it is mostly the data that is held up.
            held_up = self._desk.proxied.held_up(number, key_id, way.target)
            outbox.record_waiting(number, key_id, "" if held_up is None else told(held_up.code))

    async def _mend(self, way: Proxied) -> None:
        data = self._desk.proxied.dead_data(self._message.number, way.target)
        cause = data if way.code == "data" and data is not None else way
        if self._recipient.tries >= _MAX_RETURNS:
            self._fail(cause.code)
            return
        try:
            match meaning_of(cause.code).remedy:
                case Remedy.MINT if cause.demand is not None:
                    await self._sender.pay_demand(self._message, self._recipient, cause.demand)
                    self._give_again(way, told(cause.code), at_once=True)
                case Remedy.LOOK_UP if await self._moved():
                    self._give_again(way, told(cause.code), at_once=True)
                case Remedy.WAIT:
                    self._give_again(way, told(cause.code), at_once=False)
                case _:
                    self._fail(cause.code)
        except MoreThanAgreed as error:
            # The mailbox may ask for less again, and the user may agree to more.
            if way.dead:
                self._give_again(way, str(error), at_once=False)
            else:
                outbox, number = self._desk.outbox, self._message.number
                outbox.record_waiting(number, self._recipient.key_id, str(error))
        except ClientError as error:
            self._fail(cause.code, str(error))

    async def _moved(self) -> bool:
        """Look the recipient up again; return whether he has other servers or mailboxes now."""
        key_id, book = self._recipient.key_id, self._desk.correspondents
        held = book.announcement(key_id)
        await Addressing(self._desk).refresh(key_id)
        found = book.announcement(key_id)
        if held is None or found is None:
            return False
        announced = self._recipient.announcement
        gone = announced is not None and announced.mailbox not in found.mailboxes
        return gone or found.transport != held.transport

    def _give_again(self, way: Proxied, reason: str, *, at_once: bool) -> None:
        number, key_id = self._message.number, self._recipient.key_id
        self._desk.proxied.give_again(number, way.target)
        self._desk.outbox.record_returned(number, key_id)
        self._sender.note_return(number, self._recipient, reason, at_once=at_once)

    def _fail(self, code: str, further: str = "") -> None:
        way_out = meaning_of(code).way_out
        reason = "; ".join(filter(None, (told(code), further, way_out)))
        self._desk.outbox.record_failed(self._message.number, self._recipient.key_id, reason)
