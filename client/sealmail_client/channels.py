"""The two ways to reach a user: among the blocks of a server, or in the DHT behind any server.

They differ in commands, in what a block must pay and in how large it may be. All of that is said
here; who posts and who polls is given a channel and asks no further.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from sealmail_client.cutting import PIECE_SIZE
from sealmail_client.settings import Settings
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.commands import GetEntangled, GetServer, StoreEntangled, StoreServer
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import BLOCK_POLICY, MIB, BlockPolicy

StoreBlock = StoreServer | StoreEntangled
GetBlock = GetServer | GetEntangled


@dataclass(frozen=True, slots=True)
class Channel:
    """By which commands blocks go and come, and what they must be like.

    A mail is cut into pieces of ``piece_size``, and may have ``most_sealed`` bytes, if there is
    a bound; ``in_dht`` is whether a server must take part in the DHT.
    """

    store: Callable[[BlockKey], StoreBlock]
    get: Callable[[BlockKey, datetime | None], GetBlock]
    price: Callable[[BlockPolicy], Difficulty]
    piece_size: int
    most_sealed: int | None
    in_dht: bool

    def floor(self, kind: BlockType) -> Difficulty:
        """Return the least stamp with which a block is taken."""
        return self.price(BLOCK_POLICY[kind])

    def place(self, server: ServerAddress) -> str:
        """Return what blocks are said to be at that ``server`` took by this channel."""
        return f"{Transport()} by {server}" if self.in_dht else str(server)


BY_SERVER = Channel(
    StoreServer, GetServer, lambda policy: policy.server_stamp, PIECE_SIZE, None, in_dht=False
)
BY_DHT = Channel(
    StoreEntangled,
    GetEntangled,
    lambda policy: policy.dht_stamp,
    BLOCK_POLICY[BlockType.DATA].dht_size,
    1 * MIB,
    in_dht=True,
)


def channel_of(transport: Transport) -> Channel:
    """Return how somebody with this transport is reached."""
    return BY_DHT if transport.entangled else BY_SERVER


def channel_for(transports: Iterable[Transport]) -> Channel:
    """Return whose rules one sealed mail keeps to that goes to all of these.

    What the DHT takes, a server takes too.
    """
    return BY_DHT if any(one.entangled for one in transports) else BY_SERVER


@dataclass(frozen=True, slots=True)
class Route:
    """Servers, any of which will do, and the channel that is used there."""

    channel: Channel
    servers: tuple[ServerAddress, ...]


def route_to(transport: Transport, settings: Settings) -> Route:
    """Return where blocks for a transport are left; the DHT has doors of one's own."""
    return Route(channel_of(transport), transport.servers or settings.dht_servers)
