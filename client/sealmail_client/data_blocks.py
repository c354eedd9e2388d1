"""The data blocks of a sealed message on their way to one server after the other."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from pathlib import Path

from sealmail_client.channels import Channel
from sealmail_client.cutting import Piece, read_piece
from sealmail_client.desk import Desk
from sealmail_client.outbox import OutgoingBlock
from sealmail_client.posting import NotTaken, Peer
from sealmail_client.progress import mint_watched
from sealmail_pow import StampCheck
from sealmail_protocol.blocks import BlockType, DataHeader
from sealmail_protocol.compose import make_data_header
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.stamps import data_challenge_prefix

# A block that a server takes on its last day is gone before anybody has fetched it.
_LEAST_LIFE = timedelta(days=1)


def outdated(kind: BlockType, date: datetime, now: datetime) -> bool:
    """Return whether a block of this Date is too old to be worth sending."""
    return now - date >= BLOCK_POLICY[kind].max_age - _LEAST_LIFE


# A program that is killed sends so many blocks again, as they were; each commit is a sync.
_NOTED_TOGETHER = 8
# A stamped block: what it is, its lines and its bytes.
_Ready = tuple[OutgoingBlock, DataHeader, memoryview]


class DataBlocks:
    """All data blocks of one message; each is stamped, and recorded so, before it is sent.

    They are worth what ``channel`` asks, whichever way one of the recipients is reached.
    """

    def __init__(self, desk: Desk, number: int, sealed: Path, channel: Channel) -> None:
        self._desk = desk
        self._number = number
        self._sealed = sealed
        self._channel = channel

    async def stamp_first(self) -> None:
        """Stamp the first block ahead of the first server; of a short mail that is all."""
        blocks, now = self._desk.outbox.one(self._number).blocks, self._desk.servers.moment()
        if blocks and not _usable(blocks[0], now):
            await self._prepare(blocks[0], 0, now)

    async def hand_over(self, peer: Peer) -> str | None:
        """Give a server what it does not hold yet; return why it did not take a block."""
        outbox, place = self._desk.outbox, peer.place
        blocks = outbox.one(self._number).blocks
        held, now = outbox.taken(self._number, place), self._desk.servers.moment()
        places = zip(blocks, _offsets(blocks), strict=True)
        missing = (
            place
            for place in places
            if place[0].position not in held or not _usable(place[0], now)
        )

        async def coming() -> AsyncGenerator[tuple[OutgoingBlock, int], None]:
            for place in missing:
                yield place

        with self._desk.watcher.task(f"sending to {peer.server.address}") as report:
            return await self._hand_over(peer, coming(), now, lambda at: report(at / len(blocks)))

    async def hand_over_early(
        self, peer: Peer, coming: AsyncGenerator[tuple[OutgoingBlock, int], None]
    ) -> str | None:
        """Give a server what is there of a seal that is still being written, as it comes."""
        now = self._desk.servers.moment()
        return await self._hand_over(peer, coming, now, lambda _: None)

    async def _hand_over(
        self,
        peer: Peer,
        coming: AsyncGenerator[tuple[OutgoingBlock, int], None],
        now: datetime,
        report: Callable[[int], None],
    ) -> str | None:
        """Send blocks in turn; the next one is read and stamped while one is on its way."""
        taken: list[int] = []
        try:
            async with aclosing(self._prepared(coming, now)) as prepared:
                async for block, header, data in prepared:
                    label = f"posting block {block.position + 1}"
                    with self._desk.watcher.task(label, brief=True):
                        outcome = await peer.post_data(block.key, header, (data,))
                    if isinstance(outcome, NotTaken):
                        return outcome.reason
                    taken.append(block.position)
                    if len(taken) == _NOTED_TOGETHER:
                        self._note_taken(taken, peer)
                    report(block.position + 1)
                    del data
        finally:
            self._note_taken(taken, peer)
        return None

    def _note_taken(self, taken: list[int], peer: Peer) -> None:
        if taken:
            self._desk.outbox.record_taken(self._number, taken, peer.place)
            taken.clear()

    async def ready(
        self, wanted: Callable[[BlockKey, DataHeader], bool], report: Callable[[float], None]
    ) -> AsyncGenerator[tuple[OutgoingBlock, DataHeader, memoryview], None]:
        """Yield every block that is not stamped yet or is ``wanted``, stamped, with its bytes."""
        blocks, now = self._desk.outbox.one(self._number).blocks, self._desk.servers.moment()

        async def coming() -> AsyncGenerator[tuple[OutgoingBlock, int], None]:
            for block, offset in zip(blocks, _offsets(blocks), strict=True):
                header = block.header
                if header is None or not _usable(block, now) or wanted(block.key, header):
                    yield block, offset

        async with aclosing(self._prepared(coming(), now)) as prepared:
            async for block, header, data in prepared:
                yield block, header, data
                report((block.position + 1) / len(blocks))

    async def _prepared(
        self, coming: AsyncGenerator[tuple[OutgoingBlock, int], None], now: datetime
    ) -> AsyncGenerator[_Ready, None]:
        """Yield each block with its lines and bytes, preparing one ahead."""
        ahead: asyncio.Task[_Ready] | None = None
        try:
            async with aclosing(coming):
                async for block, offset in coming:
                    ready, ahead = ahead, asyncio.create_task(self._prepare(block, offset, now))
                    if ready is not None:
                        yield await ready
                    del ready
                if ahead is not None:
                    yield await ahead
        finally:
            if ahead is not None:
                ahead.cancel()
                with suppress(asyncio.CancelledError):
                    await ahead

    async def _prepare(self, block: OutgoingBlock, offset: int, now: datetime) -> _Ready:
        piece = Piece(block.key, offset, block.size)
        prefix = data_challenge_prefix(now)
        # Stamped and sent from one place in memory: a block is large.
        challenge = await asyncio.to_thread(read_piece, self._sealed, piece, prefix)
        data = memoryview(challenge)[len(prefix) :]
        header = block.header
        if (
            header is None
            or outdated(BlockType.DATA, header.date, now)
            or not self._is_paid(header, data)
        ):
            price = self._channel.floor(BlockType.DATA)
            label = f"stamping block {block.position + 1}"
            stamp = await mint_watched(challenge, price, label, self._desk.watcher)
            header = make_data_header(now, stamp, block.size)
            self._desk.outbox.record_data_stamp(self._number, block, header)
        return block, header, data

    def _is_paid(self, header: DataHeader, data: memoryview) -> bool:
        """Return whether a stamp of ours is enough; only the DHT asks more than any that we mint.

        One of the recipients may have moved there meanwhile.
        """
        if not self._channel.in_dht:
            return True
        check = StampCheck(header.stamp)
        check.update(data_challenge_prefix(header.date))
        check.update(data)
        floor = self._channel.floor(BlockType.DATA)
        return floor.met_by(check.bits(), len(header.stamp.nonces))


def _usable(block: OutgoingBlock, now: datetime) -> bool:
    return block.header is not None and not outdated(BlockType.DATA, block.header.date, now)


def _offsets(blocks: Sequence[OutgoingBlock]) -> list[int]:
    """Return where each block begins in the sealed file."""
    offsets, end = [], 0
    for block in blocks:
        offsets.append(end)
        end += block.size
    return offsets
