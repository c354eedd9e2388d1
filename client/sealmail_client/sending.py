"""What moves a message through the outbox: seal, stamp and send. Every step may be repeated."""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

from sealmail_client.abreast import abreast
from sealmail_client.addressing import Addressing
from sealmail_client.channels import Channel, Route, route_to
from sealmail_client.data_blocks import DataBlocks, outdated
from sealmail_client.delivering import NotDelivered, deliver_to_group
from sealmail_client.desk import Desk
from sealmail_client.drafts import Addressee
from sealmail_client.early_blocks import EarlyBlocks
from sealmail_client.errors import ClientError
from sealmail_client.folders import Envelope, Folder, SignatureState
from sealmail_client.headers import Place
from sealmail_client.outbox import (
    OutgoingBlock,
    OutgoingMessage,
    OutgoingRecipient,
    Stage,
)
from sealmail_client.paying import MAX_CLIMB, Payment, asked_by, payment_for, secrets_for
from sealmail_client.posting import NotTaken, Peer
from sealmail_client.progress import mint_watched
from sealmail_client.proxying import NOT_SERVED, Proxy
from sealmail_client.quotes import MoreThanAgreed, TooDear
from sealmail_client.retrying import next_try
from sealmail_client.settings import Delivery
from sealmail_client.weighing import channel_of_copy, require_copy_fits, require_size
from sealmail_client.writing import SealedFiles, SealOrder
from sealmail_net.errors import NetworkError
from sealmail_pow import Difficulty, estimate, fits_memory
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.blocks import BlockType, KeyAnnouncement, MessageAnnouncement
from sealmail_protocol.compose import make_announcement
from sealmail_protocol.keys import BlockKey, KeyId, mailbox_key

# Some hours of a compiled minter; a price above it is a wish to hear from nobody.
MAX_HASHES = 2.0**36
NO_DHT = "he is reached through the DHT, in which {server} takes no part"
_CUT_LARGE = (
    "he is reached through the DHT now, for which it was cut too large: send it to him anew"
)
_MAKE_A_WAY = (
    "name a proxy by `sealmail identity set --tor` or `--i2p`, or let your home server deliver by "
    "`--send proxy`, and send it again"
)
# A demand that climbs while we pay it may climb again, but not for ever.
_MAX_PAYMENTS = 3

_log = logging.getLogger(__name__)


class Sender:
    """Works on the messages in the outbox of one desk."""

    def __init__(
        self,
        desk: Desk,
        *,
        dice: random.Random | None = None,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._desk = desk
        self._dice = dice or random.SystemRandom()
        self._random_bytes = random_bytes
        # Two copies of one mail may leave at the same time.
        self._filing = asyncio.Lock()

    async def work(self, *, hurry: bool = False) -> None:
        """Bring every message as far as it can get now; with a revoked key, nothing moves.

        What failed waits for its next try, and what is held back for its time, unless in a
        ``hurry``.
        """
        self._desk.outbox.expire(self._desk.clock())
        if self._desk.own_blocks.revoked:
            return
        await asyncio.to_thread(self._sweep, self._ended_directories())
        numbers = [message.number for message in self._desk.outbox.unfinished()]
        async with self._desk.servers.keeping_links():
            await abreast(numbers, partial(self.advance, hurry=hurry))

    async def advance(self, number: int, *, hurry: bool = False) -> OutgoingMessage:
        """Bring one message as far as it can get now; what fails is noted with it."""
        self._desk.require_valid_key()
        async with self._desk.servers.keeping_links():
            await self._advance(number, hurry=hurry)
            try:
                await self._file_copy(self._desk.outbox.one(number))
            except OSError as error:
                # It has left, and what is behind it in the outbox must leave too.
                _log.warning("mail %d is not among the sent mail yet: %s", number, error)
        return self._desk.outbox.one(number)

    async def _advance(self, number: int, *, hurry: bool) -> None:
        now = self._desk.clock()
        for stage, step in (
            (Stage.COMPOSED, self._seal),
            (Stage.SEALED, self._stamp),
            (Stage.STAMPED, self._send),
        ):
            message = self._desk.outbox.one(number)
            # Mail that is held back is made ready all the same.
            waiting = [
                one
                for one in message.at(stage)
                if hurry or one.due(now) or (one.tries == 0 and stage is not Stage.STAMPED)
            ]
            if not waiting:
                continue
            try:
                await step(message, waiting)
            except (ClientError, OSError) as error:
                for recipient in waiting:
                    self._note_trouble(number, recipient, str(error))
                return

    def _note_trouble(self, number: int, recipient: OutgoingRecipient, reason: str) -> None:
        again = next_try(recipient.tries + 1, self._desk.clock(), self._dice)
        self._desk.outbox.record_trouble(number, recipient.key_id, reason, again)

    # Sealing.

    async def _seal(self, message: OutgoingMessage, waiting: Sequence[OutgoingRecipient]) -> None:
        """Seal once for all; of a large mail, blocks leave as soon as they are sealed."""
        desk = self._desk
        addressees = [one for one in message.draft.addressees if one.key_id in _keys(message)]
        require_copy_fits(desk, message.draft, addressees)
        channel = self._channel(message)
        readers = {one.key_id: self._announcement(one) for one in message.recipients}
        order = SealOrder.of(
            desk.settings,
            message.draft,
            readers,
            desk.own_blocks.announcement(),
            desk.servers.moment(),
            self._random_bytes,
            secrets_for(desk, readers, self._random_bytes),
            self._transports(message.draft.named_to(readers)),
        )
        desk.outbox.record_resealing(message.number)
        files = self._files(message)
        early = EarlyBlocks(
            desk, message.number, files.sealed, self._early_servers(message, waiting)
        )
        try:
            sealed = await asyncio.to_thread(
                order.carry_out,
                files,
                desk.keyring,
                desk.passphrase,
                early.found,
                channel.piece_size,
                desk.watcher,
            )
            require_size(desk, sum(piece.size for piece in sealed.pieces), addressees)
            await early.finish()
        except BaseException:
            await early.abandon()
            raise
        blocks = tuple(
            OutgoingBlock(position, piece.key, piece.size, None)
            for position, piece in enumerate(sealed.pieces)
        )
        desk.outbox.record_sealed(
            message.number, order.date, sealed.message_hash, blocks, order.ack_keys
        )

    def _early_servers(
        self, message: OutgoingMessage, waiting: Sequence[OutgoingRecipient]
    ) -> list[ServerAddress]:
        """Return where blocks may go before the seal is whole: to one who is written to now.

        Nowhere, if the home server delivers: no other server is to see us. Nor into the DHT, where
        mail is short.
        """
        if self._by_proxy(message) or self._channel(message).in_dht:
            return []
        now = self._desk.clock()
        for recipient in waiting:
            if recipient.due(now):
                servers = self._announcement(recipient).transport.servers
                return self._dice.sample(servers, len(servers))
        return []

    def _transports(self, named: Sequence[Addressee]) -> dict[KeyId, Transport]:
        held = {one.key_id: self._desk.correspondents.newest(one.key_id) for one in named}
        return {key_id: one.transport for key_id, one in held.items() if one is not None}

    # Stamping.

    async def _stamp(self, message: OutgoingMessage, waiting: Sequence[OutgoingRecipient]) -> None:
        await self._blocks(message).stamp_first()
        for recipient in waiting:
            try:
                announcement = self._announcement(recipient)
                mailbox = self._dice.choice(announcement.mailboxes)
                date = self._date_for(message)
                payment = payment_for(self._desk, message, recipient, announcement, date)
                await self._pay(message, recipient, mailbox, payment, date)
            except ClientError as error:
                # One who cannot be written to must not keep the mail from the others.
                self._note_trouble(message.number, recipient, str(error))

    def _date_for(self, message: OutgoingMessage) -> datetime:
        """Return the date of the seal, or of today if servers would not keep that for long."""
        date, now = _dated(message), self._desk.servers.moment()
        return now if outdated(BlockType.MESSAGE_ANNOUNCEMENT, date, now) else date

    async def _pay(
        self,
        message: OutgoingMessage,
        recipient: OutgoingRecipient,
        mailbox: str,
        payment: Payment,
        date: datetime,
    ) -> MessageAnnouncement:
        """Mint what is asked for a place in ``mailbox``, and record the announcement.

        ``MoreThanAgreed`` if the user never said that he would pay as much.
        """
        price, limit = payment.price, recipient.max_price
        hashes = estimate(price, hashes_per_second=1.0).expected_hashes
        if hashes > MAX_HASHES or not fits_memory(price):
            raise TooDear(f"{recipient.address} asks for a stamp of {price}: nobody can pay that")
        if limit is not None and not price.met_by(limit.bits, limit.nonces):
            number = message.copy_of or message.number
            raise MoreThanAgreed(number, recipient.address, price, limit)
        stamped = message.stamped_bytes(recipient.key_id, date)
        label = f"stamping for {recipient.address}"
        stamp = await mint_watched(stamped, price, label, self._desk.watcher)
        announcement = make_announcement(
            date,
            stamp,
            recipient.key_id,
            mailbox,
            message.block_keys,
            _hashed(message),
            payment.token,
        )
        self._desk.outbox.record_stamped(message.number, recipient.key_id, announcement)
        return announcement

    # Sending.

    async def pay_demand(
        self, message: OutgoingMessage, recipient: OutgoingRecipient, demand: Difficulty
    ) -> None:
        """Mint what a mailbox asked for a mail that came back; ``TooDear`` if that is greed."""
        announcement, price = recipient.announcement, asked_by(self._announcement(recipient))
        assert announcement is not None  # noqa: S101 - it left this machine
        if demand.bits > price.bits + MAX_CLIMB:
            raise TooDear(f"a stamp of {demand} is asked, far above the price of {price}")
        payment = Payment(demand, announcement.token)
        await self._pay(message, recipient, announcement.mailbox, payment, announcement.date)

    def note_return(
        self, number: int, recipient: OutgoingRecipient, reason: str, *, at_once: bool
    ) -> None:
        """Note why a mail came back, and when it is to leave again."""
        if at_once:
            now = self._desk.clock()
            self._desk.outbox.record_trouble(number, recipient.key_id, reason, now)
        else:
            self._note_trouble(number, recipient, reason)

    def _by_proxy(self, message: OutgoingMessage) -> bool:
        """Return whether the home server is to deliver a message."""
        held = message.after is not None and message.after > self._desk.clock()
        return held or self._desk.settings.send is Delivery.PROXY

    async def _send_by_proxy(
        self, message: OutgoingMessage, waiting: Sequence[OutgoingRecipient]
    ) -> None:
        for recipient in waiting:
            if recipient.tries:
                await Addressing(self._desk).refresh(recipient.key_id)
        wanted = {one.key_id for one in waiting}

        def left() -> list[OutgoingRecipient]:
            stamped = self._desk.outbox.one(message.number).at(Stage.STAMPED)
            return [one for one in stamped if one.key_id in wanted]

        async def errand(peer: Peer) -> dict[KeyId, str]:
            return await self._hand_to_proxy(message, left(), Proxy(self._desk, peer))

        try:
            troubles = await self._desk.servers.at_home(errand)
        except NetworkError as error:
            troubles = {one.key_id: str(error) for one in left()}
        for recipient in waiting:
            if recipient.key_id in troubles:
                self._note_trouble(message.number, recipient, troubles[recipient.key_id])

    async def _hand_to_proxy(
        self, message: OutgoingMessage, waiting: Sequence[OutgoingRecipient], proxy: Proxy
    ) -> dict[KeyId, str]:
        """Give the home server the data once, and an announcement for each; return what failed."""
        if not proxy.serves:
            reason = f"{proxy.peer.server.address} does not deliver for its users"
            return dict.fromkeys((one.key_id for one in waiting), reason)
        after = message.after if message.after and message.after > self._desk.clock() else None
        ways = {one.key_id: self._announcement(one).transport for one in waiting}
        targets = [way for way in dict.fromkeys(ways.values()) if proxy.reaches(way)]
        refused = await proxy.take_data(message.number, self._blocks(message), targets, after)
        troubles: dict[KeyId, str] = {}
        for recipient in waiting:
            target = ways[recipient.key_id]
            if target not in targets:
                troubles[recipient.key_id] = NO_DHT.format(server=proxy.peer.server.address)
                continue
            try:
                announcement = await self._timely(message, recipient)
            except MoreThanAgreed as error:
                troubles[recipient.key_id] = str(error)
                continue
            if target in refused or not await proxy.take_announcement(
                message.number, recipient, announcement, target, after
            ):
                troubles[recipient.key_id] = NOT_SERVED.format(target=target)
                continue
            server = str(proxy.peer.server.address)
            self._desk.outbox.record_queued(message.number, recipient.key_id, server)
        return troubles

    async def _send(self, message: OutgoingMessage, waiting: Sequence[OutgoingRecipient]) -> None:
        if self._by_proxy(message):
            await self._send_by_proxy(message, waiting)
            return
        for recipient in waiting:
            try:
                if recipient.tries:
                    # He may have moved, or have other mailboxes or another price by now.
                    await Addressing(self._desk).refresh(recipient.key_id)
                route = route_to(self._announcement(recipient).transport, self._desk.settings)
                reasons = await self._send_to_group(message, recipient, route)
            except ClientError as error:
                reasons = [str(error)]
            if reasons:
                self._note_trouble(message.number, recipient, "; ".join(reasons))

    async def _send_to_group(
        self,
        message: OutgoingMessage,
        recipient: OutgoingRecipient,
        route: Route,
    ) -> list[str]:
        """Hand the message to one server of a route; return why none took it."""
        if any(block.size > route.channel.piece_size for block in message.blocks):
            return [_CUT_LARGE]

        async def hand_over(peer: Peer) -> str | None:
            return await self._hand_over(message, recipient, peer)

        try:
            order = self.order(message, route)
            server = await deliver_to_group(self._desk.servers, order, hand_over)
        except NotDelivered as error:
            if error.no_way:
                reason = f"{error}; {_MAKE_A_WAY}"
                self._desk.outbox.record_failed(message.number, recipient.key_id, reason)
                return []
            return list(error.reasons)
        self._desk.outbox.record_sent(
            message.number, recipient.key_id, route.channel.place(server), self._desk.clock()
        )
        return []

    def order(self, message: OutgoingMessage, route: Route) -> Route:
        """Return the servers in random order, those that hold data of the message first."""
        outbox, place = self._desk.outbox, route.channel.place
        servers = self._dice.sample(route.servers, len(route.servers))
        holding = {one for one in servers if outbox.taken(message.number, place(one))}
        servers.sort(key=lambda server: server not in holding)
        return replace(route, servers=tuple(servers))

    async def _hand_over(
        self, message: OutgoingMessage, recipient: OutgoingRecipient, peer: Peer
    ) -> str | None:
        """Give one server the data, then the announcement; return why it did not take them."""
        trouble = await self._blocks(message).hand_over(peer)
        if trouble is not None:
            return trouble
        return await self._post_announcement(message, recipient, peer)

    async def _post_announcement(
        self, message: OutgoingMessage, recipient: OutgoingRecipient, peer: Peer
    ) -> str | None:
        announcement = await self._timely(message, recipient)
        price = asked_by(self._announcement(recipient))
        reason = ""
        for _ in range(_MAX_PAYMENTS):
            key = mailbox_key(announcement.mailbox, recipient.key_id)
            outcome = await peer.post(key, announcement)
            if not isinstance(outcome, NotTaken):
                return None
            reason, demand = outcome.reason, outcome.demand
            if demand is None:
                return reason
            if demand.bits > price.bits + MAX_CLIMB:
                return f"{reason}, far above the price of {price}"
            payment = Payment(demand, announcement.token)
            try:
                announcement = await self._pay(
                    message, recipient, announcement.mailbox, payment, announcement.date
                )
            except MoreThanAgreed as error:
                # Another server of the group may have more room, and ask for less.
                return str(error)
        return reason

    async def _timely(
        self, message: OutgoingMessage, recipient: OutgoingRecipient
    ) -> MessageAnnouncement:
        """Return the announcement, stamped again if its mailbox is gone or its Date too old."""
        held = self._desk.outbox.one(message.number).recipient(recipient.key_id).announcement
        assert held is not None  # noqa: S101 - stamped before it is sent
        terms, now = self._announcement(recipient), self._desk.servers.moment()
        old = outdated(BlockType.MESSAGE_ANNOUNCEMENT, held.date, now)
        gone = held.mailbox not in terms.mailboxes
        if not gone and not old:
            return held
        mailbox = self._dice.choice(terms.mailboxes) if gone else held.mailbox
        date = now if old else held.date
        payment = payment_for(self._desk, message, recipient, terms, date)
        return await self._pay(message, recipient, mailbox, payment, date)

    # The user's own copy.

    async def _file_copy(self, message: OutgoingMessage) -> None:
        """File a mail among the sent ones as soon as a copy of it has left for anybody."""
        desk = self._desk
        async with self._filing:
            first = desk.outbox.one(message.copy_of or message.number)
            if first.filed or not message.left:
                return
            # The first copy names nobody who is hidden; it may not be sealed yet, or gone.
            copies = desk.outbox.copies(first.number)
            source = next(filter(self._is_here, (first, message, *copies)), None)
            if source is None:
                # Former versions let go of copies before one was filed.
                if all(copy.ended for copy in copies):
                    desk.outbox.record_filed(first.number)
                return
            files = self._files(source)
            signature = await asyncio.to_thread(files.signature.read_bytes)
            await desk.folders.file(
                self._envelope(source), files.zip_file, signature, desk.clock()
            )
            desk.outbox.record_filed(first.number)

    def _is_here(self, copy: OutgoingMessage) -> bool:
        files = self._files(copy)
        return copy.date is not None and files.zip_file.exists() and files.signature.exists()

    def _ended_directories(self) -> list[Path]:
        """Return the directories of messages that nobody will ask for any more."""
        ended = []
        for directory in self._desk.home.outgoing.iterdir():
            message = self._desk.outbox.one(int(directory.name))
            copies = self._desk.outbox.copies(message.copy_of or message.number)
            # The first copy knows whether the mail is filed.
            if message.ended and (copies[0].filed or not any(copy.left for copy in copies)):
                ended.append(directory)
        return ended

    def _sweep(self, directories: list[Path]) -> None:
        for directory in directories:
            SealedFiles(directory).remove()

    def _envelope(self, message: OutgoingMessage) -> Envelope:
        settings, date = self._desk.settings, _dated(message)
        addressees = message.draft.addressees
        return Envelope(
            folder=Folder.SENT,
            unique_id=message.draft.unique_id,
            message_hash=_hashed(message),
            sender=settings.user_id,
            sender_key=settings.key_id,
            recipients=tuple(one.user_id for one in addressees if one.place is not Place.BCC),
            subject=message.draft.subject,
            date=date,
            signature=SignatureState.VALID,
            remark="",
            checked=date,
            hidden=tuple(one.user_id for one in addressees if one.place is Place.BCC),
            signer=settings.key_id,
        )

    # What a message is made of.

    def _announcement(self, recipient: OutgoingRecipient) -> KeyAnnouncement:
        announcement = self._desk.correspondents.announcement(recipient.key_id)
        if announcement is None:
            raise ClientError(f"the key {recipient.key_id} is not in the address book any more")
        return announcement

    def _blocks(self, message: OutgoingMessage) -> DataBlocks:
        sealed, channel = self._files(message).sealed, self._channel(message)
        return DataBlocks(self._desk, message.number, sealed, channel)

    def _channel(self, message: OutgoingMessage) -> Channel:
        return channel_of_copy(self._desk, _keys(message))

    def _files(self, message: OutgoingMessage) -> SealedFiles:
        return SealedFiles(self._desk.home.outgoing / str(message.number))


def _dated(message: OutgoingMessage) -> datetime:
    assert message.date is not None  # noqa: S101 - recorded with the seal
    return message.date


def _keys(message: OutgoingMessage) -> frozenset[KeyId]:
    return frozenset(one.key_id for one in message.recipients)


def _hashed(message: OutgoingMessage) -> BlockKey:
    assert message.message_hash is not None  # noqa: S101 - recorded with the seal
    return message.message_hash
