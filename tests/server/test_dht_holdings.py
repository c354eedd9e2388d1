"""What a node keeps when room is short: a part for each source, then what is nearest to it."""

import asyncio
from pathlib import Path

import pytest
from tests.server.dht_network import data, network

from sealmail_server.config import Config
from sealmail_server.dht.holdings import PART_OF_ONE_SOURCE, NoRoom
from sealmail_server.dht.neighbours import distance
from sealmail_server.setting_rules import BadConfig

ROOM = 64 * 1024
SIZE = 3000


def test_one_source_has_a_part_of_the_room(tmp_path: Path) -> None:
    """Good stamps or not; others still have theirs."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add(room=ROOM)
            await node.take(*data(bytes(SIZE), net.time), "one")
            with pytest.raises(NoRoom):
                await node.take(*data(b"x" * SIZE, net.time), "one")
            await node.take(*data(b"y" * SIZE, net.time), "another")
            assert (await node.holdings.count()).bytes <= 2 * ROOM // PART_OF_ONE_SOURCE

    asyncio.run(scenario())


def test_a_full_node_keeps_what_is_nearest_and_what_its_users_gave(tmp_path: Path) -> None:
    """What is nearer displaces the furthest; what waits for others to take it stays."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add(room=ROOM)
            own = node.neighbourhood.key.id
            offered = [data(number.to_bytes(4) * (SIZE // 4), net.time) for number in range(30)]
            offered.sort(key=lambda each: distance(each[0].raw, own))
            furthest = offered.pop()
            await node.take(*furthest, "a user", ours=True)
            for number, each in enumerate(reversed(offered)):
                await node.take(*each, f"source {number}")
            kept = [key for key, _ in offered if await node.holdings.under(key)]
            assert kept == [key for key, _ in offered[: len(kept)]]
            assert len(kept) >= ROOM // (SIZE + 400) - 1
            assert await node.holdings.under(furthest[0])
            with pytest.raises(NoRoom):
                await node.take(*offered[-1], "late")
            assert (await node.holdings.count()).bytes <= ROOM

    asyncio.run(scenario())


def test_a_covert_server_takes_no_part() -> None:
    """Datagrams go straight, and would show where it is."""
    hidden = {"covert": True, "hidden_listen": "127.0.0.1:1", "tor_control": "127.0.0.1:2"}
    with pytest.raises(BadConfig, match="datagrams"):
        Config.of({**hidden, "dht": True})
