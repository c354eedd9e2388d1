"""Look-ups in the DHT by the number of nodes, in one process over real UDP on loopback.

All nodes share this process, so a look-up costs what asking and answering cost together; what
is of interest are hops, datagrams and bytes, and how they grow. ``--nodes N,N`` sets the sizes.
"""

import argparse
import asyncio
import resource
import secrets
import time
from contextlib import ExitStack
from statistics import mean

from sealmail_server.dht.datagrams import Place
from sealmail_server.dht.neighbourhood import DhtSettings, Neighbourhood
from sealmail_server.dht.node_key import NodeKey, is_signed

LOOKUPS = 40
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
    signature = signature_seconds()
    print(f"a signature made and checked: {signature * 1e6:.0f} us")
    for size in sizes:
        asyncio.run(measure(size, signature))


def signature_seconds() -> float:
    """Return what the signature of one answer costs both sides."""
    key, message = NodeKey.make(), bytes(1000)
    start = time.perf_counter()
    for _ in range(500):
        assert is_signed(message, key.public, key.sign(message))
    return (time.perf_counter() - start) / 500


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
