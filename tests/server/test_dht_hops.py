"""How far a key is, by the number of nodes: many nodes without values, over real UDP."""

import asyncio
import resource
import secrets
from contextlib import ExitStack
from dataclasses import replace
from statistics import mean

import pytest
from tests.server.dht_network import SETTINGS

from sealmail_server.dht.datagrams import Place
from sealmail_server.dht.neighbourhood import Neighbourhood
from sealmail_server.dht.neighbours import distance
from sealmail_server.dht.node_key import NodeKey


async def mean_hops(count: int, looks: int) -> float:
    """Return how many hops away the nearest node was, and check that it was the nearest."""
    settings = replace(SETTINGS, replicas=8, timeout=5.0)
    with ExitStack() as stack:
        nodes: list[Neighbourhood] = []
        places: list[Place] = []
        for _ in range(count):
            node = Neighbourhood(NodeKey.make(), settings)
            port = await node.open("127.0.0.1", 0)
            stack.callback(node.close)
            if nodes:
                await node.join([secrets.choice(places)])
            nodes.append(node)
            places.append(Place.of("127.0.0.1", port))
        hops = []
        for _ in range(looks):
            key = secrets.token_bytes(20)
            asking = secrets.choice(nodes)
            found = await asking.walk(key)
            others = (node.key.id for node in nodes if node is not asking)
            assert found[0].peer.id == min(others, key=lambda each: distance(each, key))
            hops.append(found[0].hops)
        return mean(hops)


def test_a_key_is_found_among_sixty_nodes() -> None:
    """Always the nearest node, a few hops away."""
    assert asyncio.run(mean_hops(60, 20)) < 4


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_hops_grow_with_the_logarithm_of_a_thousand_nodes() -> None:
    """Eight times as many nodes cost at most three hops more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        few, many = asyncio.run(mean_hops(125, 50)), asyncio.run(mean_hops(1000, 50))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert many <= few + 3
