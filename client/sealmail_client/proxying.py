"""Giving blocks to the home server, which delivers them: STORE PROXY."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime

from sealmail_client.channels import channel_of
from sealmail_client.data_blocks import DataBlocks
from sealmail_client.desk import Desk
from sealmail_client.outbox import OutgoingRecipient
from sealmail_client.posting import Peer
from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import Acknowledgment, DataHeader, MessageAnnouncement
from sealmail_protocol.canonical import block_digest, data_digest
from sealmail_protocol.commands import StoreProxy
from sealmail_protocol.keys import BlockKey, acknowledgment_key, mailbox_key
from sealmail_protocol.replies import Word

QUEUE = "QUEUE"
NOT_SERVED = (
    "the home server did not take it: there is no room now, or it will never deliver to "
    "{target}; `sealmail identity set --send direct` sends from here"
)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A home server that we are logged in at, as a deliverer."""

    desk: Desk
    peer: Peer

    @property
    def serves(self) -> bool:
        """Return whether it delivers for its users."""
        return self.peer.account and QUEUE in self.peer.capabilities

    def reaches(self, target: Transport) -> bool:
        """Return whether it can leave blocks for ``target`` at all."""
        return self.serves and self.peer.by(channel_of(target)).lacks is None

    async def take_data(
        self,
        message: int,
        blocks: DataBlocks,
        targets: Sequence[Transport],
        after: datetime | None,
    ) -> frozenset[Transport]:
        """Hand over each data block once for all ``targets``; return those it does not serve."""
        proxied, refused = self.desk.proxied, set[Transport]()

        def wanted(key: BlockKey, header: DataHeader) -> bool:
            return bool(proxied.missing(data_digest(header, key), targets))

        server = self.peer.server.address
        with self.desk.watcher.task(f"handing over to {server}") as report:
            async with aclosing(blocks.ready(wanted, report)) as coming:
                async for block, header, data in coming:
                    digest = data_digest(header, block.key)
                    missing = proxied.missing(digest, targets)
                    parcel = _Parcel(message, block.key, digest, header, data, after)
                    left = [target for target in missing if target not in refused]
                    refused |= await self._take_parcel(parcel, left)
        return frozenset(refused)

    async def _take_parcel(
        self, parcel: "_Parcel", targets: Sequence[Transport]
    ) -> set[Transport]:
        """Hand over a data block for all at once; if that is refused, for each alone."""
        if not targets:
            return set()
        lines = (*map(_post_to, targets), *parcel.header.lines)
        word = await self.peer.server.post_data(
            StoreProxy(parcel.key, parcel.after), lines, parcel.header.size, (parcel.data,)
        )
        if word is Word.DONE:
            now = self.desk.clock()
            self.desk.proxied.record_data(parcel.message, parcel.digest, targets, now)
            return set()
        if len(targets) == 1:
            return set(targets)
        refused = [await self._take_parcel(parcel, (target,)) for target in targets]
        return set().union(*refused)

    async def take_announcement(
        self,
        message: int,
        recipient: OutgoingRecipient,
        announcement: MessageAnnouncement,
        target: Transport,
        after: datetime | None,
    ) -> bool:
        """Hand over the announcement for one recipient; return whether the server took it."""
        key = mailbox_key(announcement.mailbox, recipient.key_id)
        if not await self._post(key, announcement, target, after):
            return False
        digest, now = block_digest(announcement), self.desk.clock()
        self.desk.proxied.record_announcement(message, recipient.key_id, digest, target, now)
        return True

    async def take_acknowledgment(
        self, mail: int | None, block: Acknowledgment, target: Transport
    ) -> bool:
        """Hand over an acknowledgment; return whether the server took it."""
        if not await self._post(acknowledgment_key(block.secret), block, target, None):
            return False
        digest, now = block_digest(block), self.desk.clock()
        self.desk.proxied.record_acknowledgment(mail, digest, target, now)
        return True

    async def _post(
        self,
        key: BlockKey,
        block: MessageAnnouncement | Acknowledgment,
        target: Transport,
        after: datetime | None,
    ) -> bool:
        lines = (_post_to(target), *block.lines)
        return await self.peer.server.post(StoreProxy(key, after), lines) is Word.DONE


@dataclass(frozen=True, slots=True)
class _Parcel:
    """A data block of a message, stamped."""

    message: int
    key: BlockKey
    digest: bytes
    header: DataHeader
    data: memoryview = field(repr=False)
    after: datetime | None


def _post_to(target: Transport) -> str:
    return f"Post-To: {target}"
