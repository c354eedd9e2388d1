"""What users posted is spread until others keep it: when again, when no more, and to whom."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.server.dht_network import SETTINGS, Network, acknowledgment, network
from tests.server.test_dht_neighbourhood import until

from sealmail_net.dialing import DialSettings
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Refused
from sealmail_server.dht.neighbourhood import Neighbourhood
from sealmail_server.dht.node import DhtNode, Spread
from sealmail_server.dht.node_key import NodeKey
from sealmail_server.dht.peers import EntangledPeers
from sealmail_server.dht.publishing import Publisher
from sealmail_server.dht.service import DhtService, Rhythm

NEVER = 3600.0


class Counting(DhtNode):
    """Counts its efforts to spread."""

    efforts = 0

    async def spread(self, key: BlockKey) -> Spread:
        """Make one more effort."""
        self.efforts += 1
        return await super().spread(key)


async def counting(net: Network) -> Counting:
    """Start a node that counts."""
    node = await net.add(kind=Counting)
    assert isinstance(node, Counting)
    return node


@asynccontextmanager
async def at_work(duty: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Have something done meanwhile."""
    task = asyncio.create_task(duty)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def post(net: Network, node: DhtNode, publisher: Publisher) -> None:
    """Have a node keep what a user posted, and spread it."""
    key, body = acknowledgment(1, net.time)
    await node.take(key, body, "a user", ours=True)
    publisher.post([key])


def test_a_node_alone_tries_again_less_and_less_often(tmp_path: Path) -> None:
    """Some times in a time of many pauses."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await counting(net)
            publisher = Publisher(node, pause=0.05, longest=NEVER)
            async with at_work(publisher.run()):
                await post(net, node, publisher)
                await asyncio.sleep(1.5)
                assert 2 <= node.efforts <= 6
                assert len(publisher) == 1

    asyncio.run(scenario())


def test_a_node_that_is_alone_no_more_spreads_at_once(tmp_path: Path) -> None:
    """It does not wait until it would have tried again."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await counting(net)
            publisher = Publisher(node, pause=NEVER, longest=NEVER)
            async with at_work(publisher.run()):
                await post(net, node, publisher)
                await until(lambda: node.efforts == 1)
                other = await net.add()
                await until(lambda: len(node.neighbourhood.neighbours) == 1)
                publisher.try_all()
                await until(lambda: len(publisher) == 0)
                assert await other.holdings.under(acknowledgment(1, net.time)[0])

    asyncio.run(scenario())


def test_what_is_beyond_its_age_is_no_more_spread(tmp_path: Path) -> None:
    """Though nobody has ever taken it."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await counting(net)
            publisher = Publisher(node, pause=0.05, longest=0.05)
            async with at_work(publisher.run()):
                await post(net, node, publisher)
                await until(lambda: node.efforts > 1)
                net.time += timedelta(days=20)
                await until(lambda: len(publisher) == 0)

    asyncio.run(scenario())


def test_a_server_that_moved_joins_again_at_once(tmp_path: Path) -> None:
    """It does not wait for its hour: who is on its list and was away is asked."""

    async def scenario() -> None:
        async with network(tmp_path, 4) as net:
            node = await net.add()
            late = Neighbourhood(NodeKey.make(), SETTINGS)
            port = await late.open("127.0.0.1", 0)
            late.endpoint.close()
            service = DhtService(
                net.stores[node.neighbourhood.key.id],
                node,
                lambda: net.time,
                lambda _, error: Refused(error.code, error.reason),
                (ServerAddress("127.0.0.1", port),),
                lambda: True,
                EntangledPeers((), DialSettings(), node.examiner, lambda: net.time),
                Rhythm(join=0.1, refresh=NEVER, spread=NEVER),
            )
            async with at_work(service.run()):
                await asyncio.sleep(2 * SETTINGS.timeout)
                await late.open("127.0.0.1", port)
                node.neighbourhood.endpoint.close()
                await node.neighbourhood.open("127.0.0.1", 0)
                assert not len(late.neighbours)
                await node.find(acknowledgment(1, net.time)[0])
                await until(lambda: len(late.neighbours) > 0)
            late.close()

    asyncio.run(scenario())
