"""Bringing the blocks of one message home; it is already being opened while they come."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from sealmail_client.cutting import JoinedPieces, PieceFile
from sealmail_client.errors import BadPiece, ClientError
from sealmail_client.posting import Peer
from sealmail_client.progress import Watcher
from sealmail_client.sealing import OpenedSeal
from sealmail_net.errors import DamagedBlock
from sealmail_protocol.blocks import MessageAnnouncement
from sealmail_protocol.keys import BlockKey

# Opens a seal that is still coming, in a thread.
Opener = Callable[[JoinedPieces], OpenedSeal]


@dataclass(frozen=True, slots=True)
class Here:
    """All blocks are here; ``opened`` if they were opened on their way and fit the MessageHash."""

    opened: OpenedSeal | None


@dataclass(frozen=True, slots=True)
class Missing:
    """The server does not have this block, counted from 0."""

    position: int


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The blocks are more than the limit together."""


def pieces_in(directory: Path, announcement: MessageAnnouncement) -> list[PieceFile]:
    """Return the pieces of a message, in order, where they lie when they are here."""
    return [PieceFile(key, directory / key.hex) for key in announcement.data_blocks]


class Fetching:
    """The way home of one message; blocks that are here already are not asked for again."""

    def __init__(
        self,
        peer: Peer,
        announcement: MessageAnnouncement,
        directory: Path,
        *,
        watcher: Watcher,
        limit: int | None,
        doubts: list[str],
    ) -> None:
        self._peer = peer
        self._announcement = announcement
        self._pieces = pieces_in(directory, announcement)
        self._watcher = watcher
        self._limit = limit
        self._doubts = doubts

    async def bring(self, opener: Opener) -> Here | Missing | TooLarge:
        """Fetch what is missing, in order.

        A message of which nothing is here yet is handed to ``opener`` as it comes. If that fails,
        why is found out later, when all of it is here.
        """
        joined = JoinedPieces()
        fresh = not await asyncio.to_thread(_any_exists, self._pieces)
        opening = asyncio.create_task(asyncio.to_thread(opener, joined)) if fresh else None
        stopped: Missing | TooLarge | None = None
        try:
            stopped = await self._fetch(joined)
        finally:
            # The thread that opens must not wait for pieces that never come.
            joined.give_up()
            opened = None if opening is None else await _outcome(opening)
        if stopped is not None:
            return stopped
        if opened is not None:
            whole = await asyncio.to_thread(joined.message_hash)
            if whole != self._announcement.message_hash:
                opened = None
        return Here(opened)

    async def _fetch(self, joined: JoinedPieces) -> Missing | TooLarge | None:
        size, count = 0, len(self._pieces)
        with self._watcher.task(f"fetching a mail of {count} blocks") as report:
            for position, piece in enumerate(self._pieces):
                # The first that is missing ends the try: a list of thousands that nobody ever
                # stored must not cost a question for each, again and again.
                if not await self._fetch_block(piece.key, piece.path):
                    return Missing(position)
                size += piece.path.stat().st_size
                if self._limit is not None and size > self._limit:
                    return TooLarge()
                joined.append(piece)
                report((position + 1) / count)
        joined.end()
        return None

    async def _fetch_block(self, key: BlockKey, target: Path) -> bool:
        """Fetch one block unless it is here; it gets its name when it is whole and proven."""
        if await asyncio.to_thread(target.exists):
            return True
        partial = target.with_suffix(".part")
        try:
            with await asyncio.to_thread(partial.open, "wb") as file:
                header = await self._peer.get_data(key, file.write)
        except DamagedBlock as error:
            self._doubts.append(str(error))
            header = None
        if header is None:
            await asyncio.to_thread(partial.unlink)
            return False
        await asyncio.to_thread(partial.replace, target)
        return True


def fits(pieces: Sequence[PieceFile], message_hash: BlockKey) -> bool:
    """Return whether the pieces together are what was announced."""
    try:
        return JoinedPieces.of(pieces).message_hash() == message_hash
    except BadPiece:
        return False


async def _outcome(opening: "asyncio.Task[OpenedSeal]") -> OpenedSeal | None:
    with suppress(ClientError, OSError):
        return await opening
    return None


def _any_exists(pieces: Sequence[PieceFile]) -> bool:
    return any(piece.path.exists() for piece in pieces)
