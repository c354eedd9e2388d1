"""Many nodes of the DHT in one process, over real UDP on loopback, and liars among them."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.server.users import User, now

from sealmail_net.dialing import DialSettings
from sealmail_net.errors import Unreachable
from sealmail_pow import Difficulty, mint
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import serialise_block
from sealmail_protocol.blocks import BlockType, DataBlock, MessageAnnouncement
from sealmail_protocol.compose import make_acknowledgment, make_announcement, make_data_header
from sealmail_protocol.keys import (
    AckHash,
    BlockKey,
    KeyId,
    acknowledgment_key,
    address_key,
    announcement_key,
    data_key,
)
from sealmail_protocol.stamps import (
    acknowledgment_challenge,
    data_challenge_prefix,
    message_challenge,
)
from sealmail_server.dht.carrier import Carrier
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
from sealmail_server.dht.values import Value, read_value, value_of
from sealmail_server.sources import Allowance, Rate
from sealmail_store import BlockStore, DhtRow
from sealmail_verify import VerifierPool

ROOM = 64 * 1024**2
DHT_PRICE = Difficulty(20, 2)
# Timeouts are short, since nothing on loopback takes long; one source is all of loopback.
SETTINGS = DhtSettings(
    network="test",
    allow_private=True,
    replicas=8,
    timeout=0.8,
    requests_per_second=1_000_000,
    list_seconds=1.0,
    hedge_seconds=0.1,
    fetch_seconds=30.0,
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
    fetched_from: set[Place] = field(default_factory=set)

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
        carrier = LocalCarrier(self)
        node = kind(store, self.verifier, lambda: self.time, key, settings, room, carrier)
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


class LocalCarrier(Carrier):
    """Carries larger values between the nodes of one process, without TLS."""

    def __init__(self, net: Network) -> None:
        super().__init__(DialSettings())
        self._net = net

    async def fetch(
        self, place: Place, key: BlockKey, digests: Iterable[bytes]
    ) -> AsyncGenerator[bytes, None]:
        """Give what a node keeps, as it would by DHT-VALUE."""
        self._net.fetched_from.add(place)
        for digest in digests:
            row = await self._node_at(place).value(key, digest)
            if row is not None:
                yield row.body

    async def push(self, place: Place, key: BlockKey, bodies: Sequence[bytes]) -> int:
        """Have a node take values."""
        for body in bodies:
            await self._node_at(place).take(key, body, "a neighbour")
        return len(bodies)

    def _node_at(self, place: Place) -> DhtNode:
        for node in self._net.nodes:
            if self._net.place(node) == place:
                return node
        raise Unreachable(ServerAddress.parse(str(place)), "nobody is there")


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
    number: int,
    recipient: KeyId,
    date: datetime,
    price: Difficulty = DHT_PRICE,
    more: Sequence[BlockKey] = (),
) -> tuple[BlockKey, bytes]:
    """Return the key and the body of a message-announcement, a large one if it names ``more``."""
    named = BlockKey(number.to_bytes(20))
    stamp = mint(message_challenge(recipient, named, date, (named, *more)), price)
    block = make_announcement(date, stamp, recipient, "0", (named, *more), named)
    assert isinstance(block, MessageAnnouncement)
    return block.own_key, serialise_block(block)


def data(content: bytes, date: datetime, price: Difficulty = DHT_PRICE) -> tuple[BlockKey, bytes]:
    """Return the key and the body of a data block."""
    stamp = mint(data_challenge_prefix(date) + content, price)
    block = DataBlock(make_data_header(date, stamp, len(content)), content)
    return data_key(content), serialise_block(block)


def signed_values(
    user: User, address: str, date: datetime
) -> tuple[tuple[BlockKey, bytes], tuple[BlockKey, bytes]]:
    """Return a user's key and a claim, each with the key it is under."""
    announced, claim = user.announcement(date), user.claim(address, date=date)
    claimed = value_of(address_key(address), claim, announced)
    return (announcement_key(user.key_id), serialise_block(announced)), (claimed.key, claimed.body)


def listed(key: BlockKey, body: bytes, date: datetime) -> Held:
    """Return a value as a node lists it, the body left out."""
    value = read_value(key, body, date)
    return Held(value.type, value.digest, len(body))


FALSE = b"Type: acknowledgment\r\nVersion: 1\r\nDate: 2020-01-01T00:00:00Z\r\n"


class Liar(DhtNode):
    """Takes everything and keeps nothing, lists what does not hold, and knows liars only.

    Beside its ``friends`` it names nodes that do not exist, all of them nearer to the key.
    """

    friends: Sequence[Peer] = ()
    lure: Held | None = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        key, settings = arguments[3], arguments[4]
        self.neighbourhood.endpoint = Endpoint(
            key,
            network_id(settings.network),
            self._lie,
            Allowance(Rate(1_000_000, 1_000_000)),
            Allowance(Rate(1_000_000, 1_000_000)),
            timeout=settings.timeout,
        )

    async def take(self, key: BlockKey, body: bytes, source: str, *, ours: bool = False) -> Value:
        """Say that it was kept."""
        return await self.examiner.examine(key, body, self.clock())

    async def list_falsely(self, request: Request) -> bytes:
        """List a small value that does not hold."""
        held = Held(BlockType.ACKNOWLEDGMENT, bytes(32), len(FALSE), FALSE)
        lure = [self.lure] if self.lure else []
        return encode_holdings(1 + len(lure), [held, *lure], 1000)

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
                return await self.list_falsely(request)


class Forger(Liar):
    """Lists what is sought, and gives something else."""

    async def list_falsely(self, request: Request) -> bytes:
        """List the true digest."""
        assert self.lure is not None
        return encode_holdings(1, [self.lure], 1000)

    async def value(self, key: BlockKey, digest: bytes) -> DhtRow | None:
        """Give an acknowledgment that belongs elsewhere."""
        date = self.clock()
        return DhtRow(key, "data", b"", digest, date, date, 0, False, key.raw, "", False, FALSE)


class Staller(Forger):
    """Lists what is sought, and never gives it."""

    async def value(self, key: BlockKey, digest: bytes) -> DhtRow | None:
        """Hold the line."""
        await asyncio.Event().wait()
        return None


class Dripper(Liar):
    """Lists one value after the other, for ever and a little slower than nobody would."""

    async def list_falsely(self, request: Request) -> bytes:
        """List one made-up digest more."""
        await asyncio.sleep(self.settings.timeout * 0.7)
        digest = (int.from_bytes(request.content) + 1).to_bytes(32)
        return encode_holdings(0xFFFF, [Held(BlockType.DATA, digest, 60_000)], 1000)


def ids_near(key: BlockKey, count: int, among: int = 600) -> list[NodeKey]:
    """Return keys of nodes that are nearer to ``key`` than others: minting ids is cheap."""
    made = [NodeKey.make() for _ in range(among)]
    return sorted(made, key=lambda each: distance(each.id, key.raw))[:count]
