"""What a node keeps when room is short: a part for each source, then what is nearest to it."""

import asyncio
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
from tests.server.dht_network import Network, data, network

from sealmail_net.dialing import DialSettings
from sealmail_protocol.replies import Accepted, Refused, Verdict
from sealmail_server.config import Config
from sealmail_server.dht.datagrams import Place
from sealmail_server.dht.desk import EntangledDesk
from sealmail_server.dht.holdings import PART_OF_ONE_SOURCE, NoRoom
from sealmail_server.dht.neighbours import distance, network_of
from sealmail_server.dht.node import DhtNode
from sealmail_server.dht.peers import EntangledPeers
from sealmail_server.setting_rules import BadConfig
from sealmail_server.visitor import ANONYMOUS, Visitor

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


@pytest.mark.parametrize(
    ("first", "second", "other"),
    [
        ("198.51.100.1", "198.51.100.2", "198.51.101.1"),
        ("2001:db8:1:1::/64", "2001:db8:1:2::/64", "2001:db8:2:1::/64"),
    ],
)
def test_a_network_is_one_source_by_datagram_and_by_tls(
    tmp_path: Path, first: str, second: str, other: str
) -> None:
    """Strangers' values and those of nodes count under the /24 or /48 they come from."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add(room=ROOM)
            desk = desk_of(net, node)
            by_datagram = network_of(Place.of(other.partition("/")[0], 1))
            stranger = ANONYMOUS.at(second)
            assert await keep(desk, net.time, b"a", first) == Accepted()
            with pytest.raises(NoRoom):
                await keep(desk, net.time, b"b", second)
            with pytest.raises(NoRoom):
                await keep(desk, net.time, b"c", stranger)
            assert await keep(desk, net.time, b"d", other) == Accepted()
            with pytest.raises(NoRoom):
                await node.take(*data(b"e" * SIZE, net.time), by_datagram)
            user = replace(stranger, userid="ann", confirmed=True)
            assert await keep(desk, net.time, b"f", user) == Accepted()

    asyncio.run(scenario())


def desk_of(net: Network, node: DhtNode) -> EntangledDesk:
    """Return a desk that gives its values to a node."""
    return EntangledDesk(
        node,
        net.stores[node.neighbourhood.key.id],
        lambda: net.time,
        lambda _, error: Refused(error.code, error.reason),
        lambda *_: None,
        EntangledPeers((), DialSettings(), node.examiner, lambda: net.time),
    )


async def keep(desk: EntangledDesk, date: datetime, letter: bytes, by: Visitor | str) -> Verdict:
    """Give a data block to the desk, as another node or as a user does."""
    content = letter * SIZE
    key, body = data(content, date)
    lines = tuple(body[: -len(content)].removesuffix(b"\r\n").split(b"\r\n"))
    taking = (
        desk.receive_value(key, lines, by)
        if isinstance(by, str)
        else desk.receive_data(key, lines, by)
    )
    await taking.take(content)
    return await taking.finish()


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
