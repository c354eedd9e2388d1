"""The first blocks of a large mail leave while its last ones are still being sealed.

Until the seal is whole nobody can announce the message, so what left early is worth something
only if this program lives that long; otherwise it is sealed anew, and what left is forgotten.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path

from sealmail_client.channels import BY_SERVER
from sealmail_client.cutting import PIECE_SIZE, Piece
from sealmail_client.data_blocks import DataBlocks
from sealmail_client.desk import Desk
from sealmail_client.errors import ClientError
from sealmail_client.outbox import OutgoingBlock
from sealmail_client.safe_files import sync_file
from sealmail_net.errors import NetworkError
from sealmail_protocol.addresses import ServerAddress


class EarlyBlocks:
    """Takes pieces from the thread that cuts them, and sends them to one of ``servers``.

    What fails here is nobody's loss: all that was not taken is sent when the seal is whole.
    """

    def __init__(
        self, desk: Desk, number: int, sealed: Path, servers: Sequence[ServerAddress]
    ) -> None:
        self._desk = desk
        self._servers = servers
        self._sealed = sealed
        self._blocks = DataBlocks(desk, number, sealed, BY_SERVER)
        self._loop = asyncio.get_running_loop()
        self._coming: asyncio.Queue[OutgoingBlock | None] = asyncio.Queue()
        self._found = 0
        self._task = asyncio.create_task(self._send())

    def found(self, piece: Piece) -> None:
        """Take a piece, in whatever thread; a short one is the last, and may wait for the row."""
        position, self._found = self._found, self._found + 1
        if self._servers and piece.size == PIECE_SIZE:
            block = OutgoingBlock(position, piece.key, piece.size, None)
            self._loop.call_soon_threadsafe(self._coming.put_nowait, block)

    async def finish(self) -> None:
        """Let the block that is on its way arrive, and leave the others for later."""
        while not self._coming.empty():
            self._coming.get_nowait()
        self._coming.put_nowait(None)
        with suppress(ClientError, NetworkError, OSError):
            await self._task

    async def abandon(self) -> None:
        """Stop at once: the message is not sealed."""
        self._task.cancel()
        with suppress(asyncio.CancelledError, ClientError, NetworkError, OSError):
            await self._task

    async def _send(self) -> None:
        first = await self._coming.get()
        if first is None:
            return
        async with self._desk.servers.deliver(self._servers) as peer:
            await self._blocks.hand_over_early(peer, self._durable(first))

    async def _durable(
        self, block: OutgoingBlock | None
    ) -> AsyncGenerator[tuple[OutgoingBlock, int], None]:
        """Yield each block once its bytes are on stable storage."""
        while block is not None:
            await asyncio.to_thread(sync_file, self._sealed)
            yield block, block.position * PIECE_SIZE
            block = await self._coming.get()
