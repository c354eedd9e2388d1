"""Larger values between nodes: by ``DHT-VALUE`` over TLS, on the port that answers datagrams.

The key that a node shows in TLS is not asked for: a value proves itself.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import parse_block
from sealmail_protocol.blocks import DataBlock
from sealmail_protocol.commands import GetDhtValue, StoreDhtValue, StoreEntangled
from sealmail_protocol.fields import SIGNED_BEGIN
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Word
from sealmail_server.dht.datagrams import Place
from sealmail_server.dht.values import MAX_VALUE


class Carrier:
    """Dials one node at a time for as many values as it is to give or take."""

    def __init__(self, settings: DialSettings) -> None:
        self._settings = settings

    async def fetch(
        self, place: Place, key: BlockKey, digests: Iterable[bytes]
    ) -> AsyncGenerator[bytes, None]:
        """Walk the bodies that a node gives, unchecked; digests are read in turn."""
        async with self._connected(place) as remote:
            for digest in digests:
                body = await remote.fetch_body(GetDhtValue(key, digest), MAX_VALUE)
                if body is not None:
                    yield body

    async def push(self, place: Place, key: BlockKey, bodies: Sequence[bytes]) -> int:
        """Give a node these values, and return how many it took."""
        taken = 0
        async with self._connected(place) as remote:
            for body in bodies:
                taken += await give(remote, StoreDhtValue(key), body) is Word.DONE
        return taken

    @asynccontextmanager
    async def _connected(self, place: Place) -> AsyncIterator[RemoteServer]:
        address = ServerAddress.parse(str(place))
        # Strangers by the thousand: their keys are no use to remember.
        async with await dial(address, self._settings, MemoryPins(), strict_pin=False) as remote:
            yield remote


async def give(remote: RemoteServer, command: StoreDhtValue | StoreEntangled, body: bytes) -> Word:
    """Hand a value, or a block, to a server that is connected, and return what it answers."""
    if not body.startswith(SIGNED_BEGIN.encode()):
        block = parse_block(body)
        if isinstance(block, DataBlock):
            header = block.header
            return await remote.post_data(command, header.lines, header.size, (block.data,))
    # A claim stands before its key-announcement: two blocks, and so no lines of one.
    return await remote.post(command, body.decode().removesuffix("\r\n").split("\r\n"))
