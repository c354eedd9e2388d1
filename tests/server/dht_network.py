"""Many nodes of the DHT in one process, over real UDP on loopback, and liars among them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.server.users import now

from sealmail_pow import Difficulty, mint
from sealmail_protocol.block_codec import serialise_block
from sealmail_protocol.blocks import BlockType, DataBlock, MessageAnnouncement
from sealmail_protocol.compose import make_acknowledgment, make_announcement, make_data_header
from sealmail_protocol.keys import AckHash, BlockKey, KeyId, acknowledgment_key, data_key
from sealmail_protocol.stamps import (
    acknowledgment_challenge,
    data_challenge_prefix,
    message_challenge,
)
from sealmail_server.dht.datagrams import (
    MAX_CONTACTS,
    Ask,
    Held,
    Peer,
    Place,
    Request,
    encode_holdings,
    encode_nearest,
    network_id,
)
from sealmail_server.dht.endpoint import Endpoint
from sealmail_server.dht.neighbourhood import DhtSettings
from sealmail_server.dht.neighbours import distance
from sealmail_server.dht.node import DhtNode
from sealmail_server.dht.node_key import NodeKey
from sealmail_server.sources import Allowance, Rate
from sealmail_store import BlockStore
from sealmail_verify import VerifierPool

ROOM = 64 * 1024**2
DHT_PRICE = Difficulty(20, 2)
# Timeouts are short, since nothing on loopback takes long; one source is all of loopback.
SETTINGS = DhtSettings(
    network="test", allow_private=True, replicas=8, timeout=0.8, requests_per_second=1_000_000
)


@dataclass
class Network:
    """The nodes that were started, and a clock that the test turns."""

    directory: Path
    verifier: VerifierPool
    stack: AsyncExitStack
    time: datetime = field(default_factory=now)
    nodes: list[DhtNode] = field(default_factory=list)
    places: dict[bytes, Place] = field(default_factory=dict)
    stores: dict[bytes, BlockStore] = field(default_factory=dict)

    async def add(
        self,
        key: NodeKey | None = None,
        settings: DhtSettings = SETTINGS,
        kind: Callable[..., DhtNode] = DhtNode,
        room: int = ROOM,
    ) -> DhtNode:
        """Start a node, and let it join by the first one."""
        key = key or NodeKey.make()
        store = await asyncio.to_thread(
            BlockStore.open, self.directory / key.id.hex(), create=True
        )
        await self.stack.enter_async_context(store)
        node = kind(store, self.verifier, lambda: self.time, key, settings, room)
        port = await node.neighbourhood.open("127.0.0.1", 0)
        self.stack.callback(node.neighbourhood.close)
        self.stores[key.id], self.places[key.id] = store, Place.of("127.0.0.1", port)
        if self.nodes:
            await node.neighbourhood.join([self.place(self.nodes[0])])
        self.nodes.append(node)
        return node

    async def grow(self, count: int) -> None:
        """Start so many honest nodes."""
        for _ in range(count):
            await self.add()

    def place(self, node: DhtNode) -> Place:
        """Return where a node is."""
        return self.places[node.neighbourhood.key.id]

    def peer(self, node: DhtNode) -> Peer:
        """Return a node as others name it."""
        return Peer(node.neighbourhood.key.id, self.place(node))


@asynccontextmanager
async def network(directory: Path, count: int = 0) -> AsyncIterator[Network]:
    """Run a network of so many honest nodes, for two minutes at most."""
    async with AsyncExitStack() as stack, asyncio.timeout(120):
        verifier = await stack.enter_async_context(VerifierPool())
        made = Network(directory, verifier, stack)
        await made.grow(count)
        yield made


def acknowledgment(
    number: int, date: datetime, price: Difficulty = DHT_PRICE
) -> tuple[BlockKey, bytes]:
    """Return the key and the body of an acknowledgment."""
    secret = AckHash(number.to_bytes(20))
    stamp = mint(acknowledgment_challenge(date, secret), price)
    return acknowledgment_key(secret), serialise_block(make_acknowledgment(date, stamp, secret))


def mail(
    number: int, recipient: KeyId, date: datetime, price: Difficulty = DHT_PRICE
) -> tuple[BlockKey, bytes]:
    """Return the key and the body of a message-announcement."""
    named = BlockKey(number.to_bytes(20))
    stamp = mint(message_challenge(recipient, named, date, (named,)), price)
    block = make_announcement(date, stamp, recipient, "0", (named,), named)
    assert isinstance(block, MessageAnnouncement)
    return block.own_key, serialise_block(block)


def data(content: bytes, date: datetime, price: Difficulty = DHT_PRICE) -> tuple[BlockKey, bytes]:
    """Return the key and the body of a data block."""
    stamp = mint(data_challenge_prefix(date) + content, price)
    block = DataBlock(make_data_header(date, stamp, len(content)), content)
    return data_key(content), serialise_block(block)


class Liar(DhtNode):
    """Takes everything and keeps nothing, lists what does not hold, and knows liars only.

    Beside its ``friends`` it names nodes that do not exist, all of them nearer to the key.
    """

    friends: Sequence[Peer] = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        key, settings = arguments[3], arguments[4]
        self.neighbourhood.endpoint = Endpoint(
            key,
            network_id(settings.network),
            self._lie,
            Allowance(Rate(1_000_000, 1_000_000)),
            timeout=settings.timeout,
        )

    async def _lie(self, request: Request, place: Place) -> bytes:
        match request.ask:
            case Ask.PING:
                return b""
            case Ask.NEAREST:
                made_up = [
                    Peer(request.key[:-1] + bytes((number,)), Place.of("127.0.0.1", 9 + number))
                    for number in range(MAX_CONTACTS // 2 if self.friends else 0)
                ]
                return encode_nearest(bytes(8), [*self.friends[:10], *made_up])
            case Ask.STORE:
                return b"\x01"
            case _:
                false = b"Type: acknowledgment\r\nVersion: 1\r\nDate: 2020-01-01T00:00:00Z\r\n"
                held = Held(BlockType.ACKNOWLEDGMENT, bytes(32), len(false), false)
                return encode_holdings(1, [held], 1000)


def ids_near(key: BlockKey, count: int, among: int = 600) -> list[NodeKey]:
    """Return keys of nodes that are nearer to ``key`` than others: minting ids is cheap."""
    made = [NodeKey.make() for _ in range(among)]
    return sorted(made, key=lambda each: distance(each.id, key.raw))[:count]
