"""Who is believed to be where: answers, askers who are asked back, and nodes that move."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest

from sealmail_server.dht.datagrams import (
    Answer,
    Ask,
    Peer,
    Place,
    Request,
    decode_request,
    encode_answer,
    encode_request,
    network_id,
    signed_bytes,
)
from sealmail_server.dht.endpoint import MAX_ANSWERING
from sealmail_server.dht.neighbourhood import DhtSettings, Neighbourhood
from sealmail_server.dht.node_key import NodeKey
from sealmail_server.dht.sightings import AGREEING, Sightings

SETTINGS = DhtSettings(
    network="test", allow_private=True, timeout=0.5, requests_per_second=1_000_000
)
NETWORK = network_id(SETTINGS.network)


class Stranger(asyncio.DatagramProtocol):
    """A socket; what comes to it is kept."""

    def __init__(self) -> None:
        self.came: asyncio.Queue[tuple[bytes, Place]] = asyncio.Queue()
        self.transport: asyncio.DatagramTransport | None = None

    @classmethod
    @asynccontextmanager
    async def at_hand(cls) -> AsyncIterator[tuple["Stranger", Place]]:
        """Open a port of loopback."""
        loop = asyncio.get_running_loop()
        transport, made = await loop.create_datagram_endpoint(cls, local_addr=("127.0.0.1", 0))
        made.transport = transport
        try:
            yield made, Place.of(*transport.get_extra_info("sockname")[:2])
        finally:
            transport.close()

    def send(self, datagram: bytes, place: Place) -> None:
        """Send a datagram."""
        assert self.transport is not None
        self.transport.sendto(datagram, (str(place.ip), place.port))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Keep a datagram."""
        self.came.put_nowait((data, Place.of(*addr[:2])))


@asynccontextmanager
async def node(key: NodeKey | None = None) -> AsyncIterator[tuple[Neighbourhood, Place]]:
    """Run a node that keeps no values."""
    made = Neighbourhood(key or NodeKey.make(), SETTINGS)
    place = Place.of("127.0.0.1", await made.open("127.0.0.1", 0))
    try:
        yield made, place
    finally:
        made.close()


def has_ipv6() -> bool:
    """Tell whether loopback has an IPv6 address here."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


async def until(well: Callable[[], bool]) -> None:
    """Wait until something has become true."""
    for _ in range(500):
        if well():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it has not become true")


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario to its end."""

    async def run() -> None:
        async with asyncio.timeout(60):
            await scenario()

    asyncio.run(run())


def answer_to(request: Request, key: NodeKey, seen: Place, signer: NodeKey) -> bytes:
    """Return an answer in the name of ``key``, signed by ``signer``."""
    answer = Answer(request.ask, request.rpc, key.public, seen, b"")
    return encode_answer(
        NETWORK, replace(answer, signature=signer.sign(signed_bytes(NETWORK, answer)))
    )


def test_an_answer_counts_from_the_address_that_was_asked_and_with_its_signature() -> None:
    """With the right nonce, from another port or with another's signature, it is none."""

    async def scenario() -> None:
        victim, liar = NodeKey.make(), NodeKey.make()
        async with (
            node() as (asking, _),
            Stranger.at_hand() as (asked, place),
            Stranger.at_hand() as (other, _),
        ):
            for sender, signer, well in (
                (other, victim, False),
                (asked, liar, False),
                (asked, victim, True),
            ):
                asking_now = asyncio.create_task(
                    asking.endpoint.ask_peer(Peer(victim.id, place), Ask.PING)
                )
                datagram, asker = await asked.came.get()
                request = decode_request(NETWORK, datagram)
                sender.send(answer_to(request, victim, asker, signer), asker)
                assert (await asking_now is not None) is well

    play(scenario)


def test_only_who_came_unasked_shows_that_a_node_is_reached() -> None:
    """Neither one who was asked first, and so comes through any router, nor one who is silent."""

    async def scenario() -> None:
        async with (
            node() as (first, place),
            node() as (second, _),
            Stranger.at_hand() as (silent, _),
        ):
            await second.join([place])
            await until(lambda: first.met_back == 1)
            silent.send(encode_request(NETWORK, Request(Ask.PING, bytes(16))), place)
            for _ in range(2):  # an answer, and a question that stays without one
                await silent.came.get()
            await asyncio.sleep(2 * SETTINGS.timeout)
            assert (first.met_back, second.met_back) == (1, 0)

    play(scenario)


def test_a_node_that_answers_elsewhere_is_asked_where_it_was_known() -> None:
    """It is known there as long as it answers there, then at its new address."""

    async def scenario() -> None:
        key = NodeKey.make()
        async with node() as (knows, _):
            async with node(key) as (_, first), node(key) as (_, second):
                await knows.join([first])
                await knows.join([second])
                await asyncio.sleep(3 * SETTINGS.timeout)
                assert knows.neighbours.peers() == [Peer(key.id, first)]
            async with node(key) as (_, third):
                await knows.join([third])
                await until(lambda: knows.neighbours.peers() == [Peer(key.id, third)])

    play(scenario)


def test_a_node_that_moved_learns_it_and_is_known_there() -> None:
    """Several who answer see it elsewhere; it looks around, and they know its new address."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            moving, _ = await stack.enter_async_context(node())
            others = [await stack.enter_async_context(node()) for _ in range(AGREEING)]
            await moving.join(place for _, place in others)
            assert not moving.moved.is_set()
            moving.endpoint.close()
            new = Place.of("127.0.0.1", await moving.open("127.0.0.1", 0))
            await moving.refresh()
            assert moving.moved.is_set()
            assert moving.sightings.place == new
            moved = Peer(moving.key.id, new)
            await until(lambda: all(moved in each.neighbours.peers() for each, _ in others))

    play(scenario)


def test_most_of_those_who_answered_last_tell_where_a_node_is() -> None:
    """A network has one word, and few liars move nobody; IPv4 and IPv6 are told apart."""
    old, new = Place.of("20.0.0.1", 1), Place.of("20.0.0.2", 1)
    sightings = Sightings(diverse=True)
    honest = [Place.of(f"30.0.{number}.1", 1) for number in range(8)]
    assert sightings.place is None
    assert not any(sightings.note(each, old) for each in honest)
    assert not any(sightings.note(Place.of(f"40.0.0.{n}", 1), new) for n in range(99))
    assert not any(sightings.note(each, Place.of("2001:db8::1", 1)) for each in honest)
    assert sightings.place == old
    assert sightings.is_own(old)
    assert not sightings.is_own(new)
    told = [sightings.note(each, new) for each in honest]
    assert told.count(True) == 1
    assert told.index(True) >= AGREEING - 1
    assert sightings.place == new


class YoungLoop(asyncio.SelectorEventLoop):
    """A loop of a machine that was started a second ago."""

    started = 0.0

    def time(self) -> float:
        """Count from the start."""
        moment = super().time()
        self.started = self.started or moment
        return moment - self.started + 1.0


def test_a_wrong_token_is_refused_soon_after_the_machine_was_started() -> None:
    """There is a time before the first one."""

    async def scenario() -> None:
        async with node() as (asked, place):
            assert not asked.is_good_token(bytes(8), place)

    with asyncio.Runner(loop_factory=YoungLoop) as runner:
        runner.run(scenario())


def test_all_addresses_that_have_proven_nothing_share_one_allowance() -> None:
    """Made-up ones are many; who has answered goes on being heard, and others soon after."""

    async def scenario() -> None:
        limited = replace(SETTINGS, requests_per_second=4, burst_seconds=5)
        async with AsyncExitStack() as stack:
            asked = Neighbourhood(NodeKey.make(), limited)
            place = Place.of("127.0.0.1", await asked.open("127.0.0.1", 0))
            stack.callback(asked.close)
            known, _ = await stack.enter_async_context(node())
            await known.join([place])
            await until(lambda: len(asked.neighbours) == 1)
            loop, answers = asyncio.get_running_loop(), 0
            crowd = []
            for number in range(2, 42):
                transport, made = await loop.create_datagram_endpoint(
                    Stranger, local_addr=(f"127.0.0.{number}", 0)
                )
                stack.callback(transport.close)
                crowd.append((transport, made))
            for transport, _ in crowd:
                for _ in range(15):
                    request = encode_request(NETWORK, Request(Ask.PING, bytes(16)))
                    transport.sendto(request, (str(place.ip), place.port))
            await asyncio.sleep(0.3)
            for _, made in crowd:
                while not made.came.empty():
                    answers += len(made.came.get_nowait()[0]) > len(request)
            # All sources together: two hundred at once, and some that time has paid for.
            assert 180 <= answers <= 240
            assert await known.greet(Peer(asked.key.id, place))
            # What was refused is not paid for by who comes next.
            newcomer, _ = await stack.enter_async_context(node())
            assert await newcomer.greet(Peer(asked.key.id, place))

    play(scenario)


def test_private_addresses_are_neither_asked_nor_answered_unless_that_is_allowed() -> None:
    """Whoever names one has nothing sent into the network of a server."""

    async def scenario() -> None:
        strict = Neighbourhood(NodeKey.make(), replace(SETTINGS, allow_private=False))
        place = Place.of("127.0.0.1", await strict.open("127.0.0.1", 0))
        async with Stranger.at_hand() as (stranger, where), node() as (other, _):
            private = [where, *(Place.of(host, 8081) for host in ("10.0.0.1", "fe80::1", "::1"))]
            assert await strict.join(private) == 0
            stranger.send(encode_request(NETWORK, Request(Ask.PING, bytes(16))), place)
            assert await other.join([place]) == 0
            assert stranger.came.empty()
            assert strict.endpoint.sent == 0
        strict.close()

    play(scenario)


@pytest.mark.skipif(not has_ipv6(), reason="no IPv6 on loopback here")
@pytest.mark.parametrize("host", ["::1", "::"])
def test_nodes_meet_over_ipv6(host: str) -> None:
    """Also one that listens on all addresses, which IPv4 reaches as well."""

    async def scenario() -> None:
        listening = Neighbourhood(NodeKey.make(), SETTINGS)
        port = await listening.open(host, 0)
        joining = Neighbourhood(NodeKey.make(), SETTINGS)
        await joining.open("::1", 0)
        assert await joining.join([Place.of("::1", port)]) == 1
        assert joining.sightings.place is not None
        assert joining.sightings.place.ip.version == 6
        await until(lambda: len(listening.neighbours) == 1)
        if host == "::":
            async with node() as (third, _):
                assert await third.join([Place.of("127.0.0.1", port)]) >= 1
        listening.close()
        joining.close()

    play(scenario)


def test_so_many_questions_are_answered_at_a_time_and_so_many_askers_met() -> None:
    """More are dropped, as a full wire would."""

    async def scenario() -> None:
        held, asked = asyncio.Event(), 0

        async def slowly(request: Request, place: Place) -> bytes | None:
            nonlocal asked
            asked += 1
            await held.wait()
            return None

        made = Neighbourhood(NodeKey.make(), SETTINGS, slowly)
        place = Place.of("127.0.0.1", await made.open("127.0.0.1", 0))
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            stack.callback(made.close)
            strangers = []
            for _ in range(60):
                transport, stranger = await loop.create_datagram_endpoint(
                    Stranger, local_addr=("127.0.0.1", 0)
                )
                stack.callback(transport.close)
                strangers.append((transport, stranger))
            for number in range(MAX_ANSWERING + 60):
                request = encode_request(NETWORK, Request(Ask.HOLDINGS, number.to_bytes(16)))
                strangers[number % 60][0].sendto(request, (str(place.ip), place.port))
            await asyncio.sleep(0.3)
            assert asked == MAX_ANSWERING
            met = sum(not stranger.came.empty() for _, stranger in strangers)
            assert met == 32
            held.set()

    play(scenario)
