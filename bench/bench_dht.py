"""Look-ups in the DHT by the number of nodes, in one process over real UDP on loopback.

All nodes share this process, so a look-up costs what asking and answering cost together; what
is of interest are hops, datagrams and bytes, how they grow, and ratios to what the machine can
do at most: signatures, and bare datagrams sent back. ``--nodes N,N`` sets the sizes; the last
measure, with values, is of the smallest.
"""

import argparse
import asyncio
import resource
import secrets
import tempfile
import time
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import cast

from sealmail_pow import mint
from sealmail_protocol.block_codec import serialise_block
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.compose import make_acknowledgment
from sealmail_protocol.keys import AckHash, BlockKey, acknowledgment_key
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.stamps import acknowledgment_challenge
from sealmail_server.dht.datagrams import LEAST_REQUEST, Place
from sealmail_server.dht.neighbourhood import DhtSettings, Neighbourhood
from sealmail_server.dht.node import DhtNode
from sealmail_server.dht.node_key import NodeKey, is_signed
from sealmail_server.dht.turns import Asker
from sealmail_store import BlockStore
from sealmail_verify import VerifierPool

LOOKUPS = 40
ECHOES = 2000
ASKERS = 8
FINDS = 40
SETTINGS = DhtSettings(
    network="bench", allow_private=True, timeout=10.0, requests_per_second=1_000_000_000
)


def main() -> None:
    """Measure each size in turn, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", default="50,200")
    sizes = [int(each) for each in parser.parse_args().nodes.split(",")]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))
    signature, echo = signature_seconds(), asyncio.run(echo_seconds())
    print(f"a signature made and checked: {signature * 1e6:.0f} us")
    print(f"a bare datagram of 400 bytes sent and sent back: {echo * 1e6:.0f} us")
    for size in sizes:
        asyncio.run(measure(size, signature))
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(measure_values(Path(directory), min(sizes), signature, echo))


def signature_seconds() -> float:
    """Return what the signature of one answer costs both sides."""
    key, message = NodeKey.make(), bytes(1000)
    start = time.perf_counter()
    for _ in range(500):
        assert is_signed(message, key.public, key.sign(message))
    return (time.perf_counter() - start) / 500


class Echo(asyncio.DatagramProtocol):
    """Sends back what comes; as the one who asks, counts it."""

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self.came: asyncio.Queue[None] = asyncio.Queue()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note the socket."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Send back, or count."""
        if self._asks:
            self.came.put_nowait(None)
        else:
            self._transport.sendto(data, addr)


async def echo_seconds() -> float:
    """Return what one question and its answer cost without anything said in them."""
    loop = asyncio.get_running_loop()
    one, _ = await loop.create_datagram_endpoint(
        lambda: Echo(asks=False), local_addr=("127.0.0.1", 0)
    )
    other, asking = await loop.create_datagram_endpoint(
        lambda: Echo(asks=True), remote_addr=one.get_extra_info("sockname")
    )
    start = time.perf_counter()
    for _ in range(ECHOES):
        other.sendto(bytes(LEAST_REQUEST))
        await asking.came.get()
    seconds = (time.perf_counter() - start) / ECHOES
    one.close()
    other.close()
    return seconds


async def measure_values(directory: Path, size: int, signature: float, echo: float) -> None:
    """Ask as GET ENTANGLED does, values and all: as many askers at a time as a node has turns."""
    async with AsyncExitStack() as stack:
        verifier = await stack.enter_async_context(VerifierPool())
        nodes: list[DhtNode] = []
        places: list[Place] = []
        for number in range(size):
            opened = BlockStore.open(directory / str(number), create=True)
            store = await stack.enter_async_context(opened)
            node = DhtNode(store, verifier, now, NodeKey.make(), SETTINGS, 2**26)
            port = await node.neighbourhood.open("127.0.0.1", 0)
            stack.callback(node.neighbourhood.close)
            await node.neighbourhood.join(places[:1])
            nodes.append(node)
            places.append(Place.of("127.0.0.1", port))
        values = [acknowledgment(number) for number in range(ASKERS)]
        for key, body in values:
            await nodes[0].take(key, body, "a user", ours=True)
            spread = await nodes[0].spread(key)
            assert spread.enough, spread

        def sent() -> int:
            return sum(node.neighbourhood.endpoint.sent for node in nodes)

        asking, before, start = nodes[-1], sent(), time.perf_counter()

        async def ask(turn: int) -> None:
            for _ in range(FINDS // ASKERS):
                key, body = values[turn]
                (value,) = await asking.find(key, Asker(str(turn)))
                assert value.body == body

        await asyncio.gather(*map(ask, range(ASKERS)))
        seconds = (time.perf_counter() - start) / FINDS
        print(
            f"{size:5} nodes with values, {ASKERS} askers: {1 / seconds:6.1f} look-ups/s, each"
            f" {seconds / echo:.0f} bare datagrams' or {seconds / signature:.0f} signatures' time,"
            f" {(sent() - before) / FINDS / 1024:.0f} KiB sent in all"
        )


def now() -> datetime:
    """Return the time, as values are dated."""
    return datetime.now(UTC).replace(microsecond=0)


def acknowledgment(number: int) -> tuple[BlockKey, bytes]:
    """Return the key and the body of a small value at the DHT's price."""
    secret, date = AckHash(number.to_bytes(20)), now()
    price = BLOCK_POLICY[BlockType.ACKNOWLEDGMENT].dht_stamp
    stamp = mint(acknowledgment_challenge(date, secret), price)
    return acknowledgment_key(secret), serialise_block(make_acknowledgment(date, stamp, secret))


async def measure(size: int, signature: float) -> None:
    """Look up random keys among so many nodes."""
    with ExitStack() as stack:
        nodes: list[Neighbourhood] = []
        places: list[Place] = []
        for _ in range(size):
            node = Neighbourhood(NodeKey.make(), SETTINGS)
            port = await node.open("127.0.0.1", 0)
            stack.callback(node.close)
            if nodes:
                await node.join([secrets.choice(places)])
            nodes.append(node)
            places.append(Place.of("127.0.0.1", port))
        hops, asked = [], []
        before = sum(node.endpoint.sent for node in nodes)
        start = time.perf_counter()
        for _ in range(LOOKUPS):
            found = await secrets.choice(nodes).walk(secrets.token_bytes(20))
            hops.append(found[0].hops)
            asked.append(len(found))
        seconds = (time.perf_counter() - start) / LOOKUPS
        sent = (sum(node.endpoint.sent for node in nodes) - before) / LOOKUPS
        print(
            f"{size:5} nodes: {1 / seconds:6.1f} look-ups/s, {mean(hops):.1f} hops to the nearest,"
            f" {mean(asked):.0f} nodes kept of three paths, {sent / 1024:.0f} KiB sent in all,"
            f" {seconds / mean(asked) / signature:.1f} signatures' time for each of them"
        )


if __name__ == "__main__":
    main()
