"""What users posted is spread until others keep it: when again, when no more, and to whom."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

from tests.server.dht_network import SETTINGS, Network, acknowledgment, mail, network
from tests.server.test_dht_neighbourhood import until

from sealmail_net.dialing import DialSettings
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.keys import BlockKey, KeyId
from sealmail_protocol.policy import Role
from sealmail_protocol.replies import Accepted, Refused
from sealmail_server.dht.datagrams import Place
from sealmail_server.dht.endpoint import Endpoint
from sealmail_server.dht.holdings import Holdings
from sealmail_server.dht.neighbourhood import Neighbourhood
from sealmail_server.dht.neighbours import distance
from sealmail_server.dht.node import DhtNode, Spread
from sealmail_server.dht.node_key import NodeKey
from sealmail_server.dht.peers import EntangledPeers
from sealmail_server.dht.publishing import Publisher
from sealmail_server.dht.republishing import ALWAYS, SELDOM, Republisher
from sealmail_server.dht.service import DhtService, Rhythm
from sealmail_server.visitor import Visitor
from sealmail_store import StoreError

NEVER = 3600.0
RECIPIENT = KeyId(bytes(20))


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


class Hanging(Counting):
    """Spreads nothing under some keys, and takes for ever."""

    hang: frozenset[BlockKey] = frozenset()

    async def spread(self, key: BlockKey) -> Spread:
        """Count, and hang or not."""
        if key in self.hang:
            self.efforts += 1
            await asyncio.Event().wait()
        return await super().spread(key)


def test_strangers_do_not_keep_a_users_values_from_being_spread(tmp_path: Path) -> None:
    """However long theirs take; a few of them are tried at a time."""

    async def scenario() -> None:
        async with network(tmp_path, 1) as net:
            node = await net.add(kind=Hanging)
            assert isinstance(node, Hanging)
            strange = [acknowledgment(number, net.time) for number in range(2, 9)]
            for key, body in strange:
                await node.accept(key, body, "a stranger", waits=True)
            node.hang = frozenset(key for key, _ in strange)
            publisher = Publisher(node, pause=NEVER, longest=NEVER)
            publisher.post(node.hang, of_stranger=True)
            async with at_work(publisher.run()):
                await until(lambda: node.efforts > 1)
                await asyncio.sleep(0.05)
                assert node.efforts < len(strange)
                await post(net, node, publisher)
                await until(lambda: len(publisher) == len(strange))

    asyncio.run(scenario())


def test_what_was_posted_while_a_key_was_spread_still_waits(tmp_path: Path) -> None:
    """Only what was given to others is released."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add()
            key, first = mail(1, RECIPIENT, net.time)
            _, second = mail(2, RECIPIENT, net.time)
            given = await node.take(key, first, "a user", ours=True)
            await node.take(key, second, "a user", ours=True)
            await node.holdings.release(key, (given.digest,))
            waiting = [row.waits and row.ours for row in await node.holdings.listed(key)]
            assert sorted(waiting) == [False, True]
            assert await node.holdings.unspread() == (key,)

    asyncio.run(scenario())


def test_some_holders_spread_a_key_in_each_round(tmp_path: Path) -> None:
    """Those nearest to it, as far as they know, and of the others one now and then."""

    async def scenario() -> None:
        async with network(tmp_path, 9) as net:
            key = acknowledgment(1, net.time)[0]
            for node in net.nodes:
                await node.neighbourhood.refresh()
            far = [distance(node.neighbourhood.key.id, key.raw) for node in net.nodes]
            for node, each in zip(net.nodes, far, strict=True):
                turns = Republisher(node, every=NEVER, chance=Random(1))  # noqa: S311 - a test
                due = [turns.is_due(key) for _ in range(40 * SELDOM)]
                near = sorted(far).index(each) < ALWAYS
                assert all(due) if near else 0 < sum(due) < 80

    asyncio.run(scenario())


class Flaky(Holdings):
    """Cannot be read at first."""

    failures = 2

    async def unspread(self) -> tuple[BlockKey, ...]:
        """Fail some times."""
        self.failures -= 1
        if self.failures >= 0:
            raise StoreError("the disk is full")
        return await super().unspread()


def test_a_store_that_fails_at_the_start_does_not_end_it(tmp_path: Path) -> None:
    """What waits is taken up as soon as it can be read, and what is too old is forgotten."""

    async def scenario() -> None:
        async with network(tmp_path, 1) as net:
            node = await counting(net)
            own, store = node.neighbourhood.key.id, net.stores[node.neighbourhood.key.id]
            node.holdings = Flaky(store, own, lambda: net.time, 2**20)
            await node.take(*acknowledgment(1, net.time), "a user", ours=True)
            rhythm = Rhythm(refresh=NEVER, spread=NEVER, retry=0.05, expire=0.05)
            service = service_of(net, node, (), rhythm)
            async with at_work(service.run()):
                await until(lambda: node.efforts > 0)
                net.time += timedelta(days=11)
                for _ in range(100):
                    if not (await node.holdings.count()).entries:
                        return
                    await asyncio.sleep(0.02)
                raise AssertionError("it is kept though it is too old")

    asyncio.run(scenario())


def service_of(
    net: Network, node: DhtNode, bootstrap: tuple[ServerAddress, ...], rhythm: Rhythm
) -> DhtService:
    """Return what keeps a node busy."""
    return DhtService(
        net.stores[node.neighbourhood.key.id],
        node,
        lambda: net.time,
        lambda _, error: Refused(error.code, error.reason),
        bootstrap,
        lambda: True,
        EntangledPeers((), DialSettings(), node.examiner, lambda: net.time),
        rhythm,
    )


def test_a_server_that_moved_joins_again_at_once(tmp_path: Path) -> None:
    """It does not wait for its hour: who is on its list and was away is asked."""

    async def scenario() -> None:
        async with network(tmp_path, 4) as net:
            node = await net.add()
            late = Neighbourhood(NodeKey.make(), SETTINGS)
            port = await late.open("127.0.0.1", 0)
            late.endpoint.close()
            rhythm = Rhythm(join=0.1, refresh=NEVER, spread=NEVER)
            service = service_of(net, node, (ServerAddress("127.0.0.1", port),), rhythm)
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


class Severable(Endpoint):
    """Does not hear some places, as if a line were cut."""

    deaf_to: frozenset[Place] = frozenset()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Hear all others."""
        if Place.of(addr[0], addr[1]) not in self.deaf_to:
            super().datagram_received(data, addr)


def sever(net: Network, nodes: Sequence[DhtNode], others: Sequence[DhtNode]) -> None:
    """Have nodes hear nothing of others; of nobody, they hear all again."""
    for node in nodes:
        endpoint = node.neighbourhood.endpoint
        endpoint.__class__ = Severable
        assert isinstance(endpoint, Severable)
        endpoint.deaf_to = frozenset(net.place(each) for each in others)


def test_a_network_that_was_cut_heals_by_itself(tmp_path: Path) -> None:
    """Mail is posted on both sides meanwhile; once the line is whole, all find all of it."""
    settings = replace(SETTINGS, timeout=0.2)
    rhythm = Rhythm(join=0.2, refresh=0.5, spread=1.0, retry=0.2)

    async def scenario() -> None:
        async with network(tmp_path) as net, AsyncExitStack() as stack:
            nodes = [await net.add(settings=settings) for _ in range(6)]
            one, other = nodes[:3], nodes[3:]
            bootstrap = (ServerAddress("127.0.0.1", net.place(nodes[0]).port),)
            services = [service_of(net, node, bootstrap, rhythm) for node in nodes]
            for service in services:
                await stack.enter_async_context(at_work(service.run()))
            await until(lambda: all(len(node.neighbourhood.neighbours) == 5 for node in nodes))
            sever(net, one, other)
            sever(net, other, one)
            # Each side has lost the other.
            await until(lambda: all(len(node.neighbourhood.neighbours) == 2 for node in nodes))
            user = Visitor(Role.USER, "ann", confirmed=True)
            bodies = []
            for number, service in ((1, services[1]), (2, services[4])):
                key, body = mail(number, RECIPIENT, net.time)
                lines = tuple(body.removesuffix(b"\r\n").split(b"\r\n"))
                assert await service.desk.store_text(key, lines, user) == Accepted()
                bodies.append(body)
            for node, theirs in ((one[2], bodies[0]), (other[2], bodies[1])):
                assert {value.body for value in await node.find(key)} == {theirs}
            sever(net, nodes, ())
            for _ in range(300):
                if all([len(await node.holdings.listed(key)) == 2 for node in nodes]):
                    return
                await asyncio.sleep(0.1)
            raise AssertionError("the two sides have not united what they keep")

    asyncio.run(scenario())
