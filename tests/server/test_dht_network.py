"""The DHT among many nodes in one process over real UDP: loss, lies, cuts and limits."""

import asyncio
import re
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.server.dht_network import (
    SETTINGS,
    Dripper,
    Forger,
    Liar,
    Network,
    Staller,
    acknowledgment,
    data,
    ids_near,
    listed,
    mail,
    network,
    signed_values,
)
from tests.server.users import User, now

from sealmail_pow import Difficulty
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import BlockKey, KeyId
from sealmail_server.dht import gathering
from sealmail_server.dht.datagrams import (
    LEAST_PING,
    SMALL_VALUE,
    Ask,
    Held,
    Outcome,
    Place,
    Request,
    decode_nearest,
    encode_holdings,
    encode_request,
    network_id,
    store_content,
)
from sealmail_server.dht.endpoint import Endpoint
from sealmail_server.dht.holdings import NoRoom
from sealmail_server.dht.node import DhtNode
from sealmail_server.dht.node_key import NodeKey
from sealmail_server.dht.values import MOST_UNDER_KEY, Value, read_value
from sealmail_server.sources import Allowance, Rate
from sealmail_store import DhtRow

RECIPIENT = KeyId(bytes(range(20)))


def play(directory: Path, count: int, scenario: Callable[[Network], Awaitable[None]]) -> None:
    """Play ``scenario`` in a network of so many honest nodes."""

    async def run() -> None:
        async with network(directory, count) as net:
            await scenario(net)

    asyncio.run(run())


async def publish(node: DhtNode, key: BlockKey, body: bytes) -> None:
    """Have a node keep and spread a value, as STORE ENTANGLED does."""
    await node.take(key, body, "a user", ours=True)
    assert (await node.spread(key)).enough


async def holders(net: Network, key: BlockKey) -> int:
    """Return how many nodes keep something under a key."""
    return sum([bool(await node.holdings.under(key)) for node in net.nodes])


async def finds(node: DhtNode, key: BlockKey, *bodies: bytes) -> bool:
    """Tell whether a node finds exactly these values."""
    return {value.body for value in await node.find(key)} == set(bodies)


def test_a_value_is_kept_by_those_nearest_and_survives_the_loss_of_half(tmp_path: Path) -> None:
    """Of twenty nodes ten leave without a word; each of the rest finds it."""

    async def scenario(net: Network) -> None:
        key, body = acknowledgment(1, net.time)
        await publish(net.nodes[3], key, body)
        assert SETTINGS.replicas <= await holders(net, key) <= SETTINGS.replicas + 1
        for node in net.nodes[:10]:
            node.neighbourhood.close()
        found = await asyncio.gather(*(finds(node, key, body) for node in net.nodes[10:]))
        assert all(found)

    play(tmp_path, 20, scenario)


LIES = pytest.mark.parametrize(
    ("sought", "kind"),
    [
        ("acknowledgment", Liar),
        ("key", Forger),
        ("claim", Staller),
        ("data", Staller),
    ],
)


@pytest.fixture(scope="module")
def values() -> dict[str, tuple[BlockKey, bytes]]:
    """Return a value of each sort: one that fits a datagram, and some that do not."""
    date = now()
    with tempfile.TemporaryDirectory() as place:
        ann = User.create(Path(place) / "a", "ann")
        announced, claim = signed_values(ann, "ann@a.example", date)
        ann.close()
    return {
        "acknowledgment": acknowledgment(2, date),
        "key": announced,
        "claim": claim,
        "data": data(bytes(range(250)) * 240, date),
    }


async def lie(net: Network, liars: Sequence[DhtNode], key: BlockKey, body: bytes) -> None:
    """Have liars know each other, and what is sought."""
    for liar in liars:
        assert isinstance(liar, Liar)
        liar.friends = [net.peer(each) for each in liars]
        liar.lure = listed(key, body, net.time)


@LIES
def test_with_a_third_of_the_nodes_lying_honest_readers_get_the_truth(
    tmp_path: Path, values: dict[str, tuple[BlockKey, bytes]], sought: str, kind: type[Liar]
) -> None:
    """Liars give forgeries or nothing, name each other and nodes that do not exist."""

    async def scenario(net: Network) -> None:
        key, body = values[sought]
        await lie(net, [await net.add(kind=kind) for _ in range(10)], key, body)
        honest = net.nodes[:20]
        await publish(honest[4], key, body)
        found = await asyncio.gather(*(finds(node, key, body) for node in honest[::4]))
        assert all(found)

    play(tmp_path, 20, scenario)


@LIES
def test_ten_liars_nearest_to_a_key_hide_nothing(
    tmp_path: Path, values: dict[str, tuple[BlockKey, bytes]], sought: str, kind: type[Liar]
) -> None:
    """Ids are minted next to the key; the honest ones further out are still asked."""

    async def scenario(net: Network) -> None:
        key, body = values[sought]
        settings = replace(SETTINGS, replicas=20)
        for _ in range(20):
            await net.add(settings=settings)
        honest = list(net.nodes)
        near = ids_near(key, 10)
        await lie(
            net, [await net.add(each, settings=settings, kind=kind) for each in near], key, body
        )
        await publish(honest[4], key, body)
        found = await asyncio.gather(*(finds(node, key, body) for node in honest[::4]))
        assert all(found)

    play(tmp_path, 0, scenario)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_liars_nearest_to_a_key_hide_nothing_among_a_hundred(
    tmp_path: Path, values: dict[str, tuple[BlockKey, bytes]]
) -> None:
    """Where most nodes are far from the key, the honest ones near to it are still asked."""

    async def scenario() -> None:
        async with network(tmp_path, seconds=800) as net:
            key, body = values["key"]
            settings = replace(SETTINGS, replicas=20)
            for _ in range(100):
                await net.add(settings=settings)
            honest = list(net.nodes)
            near = ids_near(key, 10, among=6000)
            liars = [await net.add(each, settings=settings, kind=Forger) for each in near]
            await lie(net, liars, key, body)
            await publish(honest[4], key, body)
            found = [await finds(node, key, body) for node in honest[::10]]
            assert all(found)

    asyncio.run(scenario())


def test_one_node_that_lists_for_ever_hides_nothing(tmp_path: Path) -> None:
    """Its list has a deadline, and what the others list is fetched."""

    async def scenario(net: Network) -> None:
        key, body = acknowledgment(3, net.time)
        await publish(net.nodes[3], key, body)
        await net.add(ids_near(key, 1)[0], kind=Dripper)
        async with asyncio.timeout(20):
            found = await asyncio.gather(*(finds(node, key, body) for node in net.nodes[:-1]))
            assert all(found)
            assert (await net.nodes[3].spread(key)).enough

    play(tmp_path, 12, scenario)


def test_what_nobody_gives_is_given_up(tmp_path: Path) -> None:
    """A digest that one node lists, and then stalls, ends with what the others gave."""

    async def scenario(net: Network) -> None:
        key, body = data(bytes(3000), net.time)
        await publish(net.nodes[3], key, body)
        staller = await net.add(ids_near(key, 1)[0], kind=Staller)
        assert isinstance(staller, Staller)
        staller.lure = Held(BlockType.DATA, bytes(32), 3000)
        reader = await net.add(settings=replace(SETTINGS, fetch_seconds=0.5))
        async with asyncio.timeout(20):
            assert await finds(reader, key, body)
        assert net.place(staller) in net.fetched_from

    play(tmp_path, 4, scenario)


def test_who_gives_one_value_that_does_not_hold_is_asked_for_no_other(tmp_path: Path) -> None:
    """Not even for one that it may have."""

    async def scenario(net: Network) -> None:
        key, body = data(bytes(3000), net.time)
        await publish(net.nodes[3], key, body)
        liar = await net.add(ids_near(key, 1)[0], kind=Liar)
        assert isinstance(liar, Liar)
        liar.lure = listed(key, body, net.time)
        reader = await net.add()
        assert await finds(reader, key, body)
        assert net.fetched_from
        assert net.place(liar) not in net.fetched_from

    play(tmp_path, 4, scenario)


def test_a_long_list_is_read_to_its_end(tmp_path: Path) -> None:
    """Page by page: the first, then from anywhere to the end and round."""

    async def scenario(net: Network) -> None:
        bodies = [mail(number, RECIPIENT, net.time)[1] for number in range(30)]
        key = mail(0, RECIPIENT, net.time)[0]
        for node in net.nodes[:-1]:
            for body in bodies:
                await node.take(key, body, "a user")
        assert await finds(net.nodes[-1], key, *bodies)

    play(tmp_path, 6, scenario)


def test_the_parts_of_a_cut_network_unite_their_sets(tmp_path: Path) -> None:
    """Two networks that never met hold mail for one mailbox; one introduction unites them."""

    async def scenario(net: Network) -> None:
        bodies = [mail(number, RECIPIENT, net.time)[1] for number in range(4)]
        key = mail(0, RECIPIENT, net.time)[0]
        first = list(net.nodes)
        net.nodes = []
        await net.grow(8)
        second = list(net.nodes)
        for number, body in enumerate(bodies):
            await publish((first, second)[number % 2][number], key, body)
        assert await finds(first[5], key, bodies[0], bodies[2])
        assert await finds(second[5], key, bodies[1], bodies[3])
        await first[0].neighbourhood.join([net.place(second[0])])
        for node in (*first, *second):
            await node.neighbourhood.refresh()
        for node in (*first, *second):
            await node.spread_all()
        for node in (first[1], first[7], second[1], second[7]):
            assert await finds(node, key, *bodies)

    play(tmp_path, 8, scenario)


def test_all_nodes_stop_and_start_and_keep_their_values(tmp_path: Path) -> None:
    """What is kept is on disk, and so is who the node is."""
    keys: list[NodeKey] = []
    placed: list[tuple[BlockKey, bytes]] = []

    async def before(net: Network) -> None:
        keys.extend(node.neighbourhood.key for node in net.nodes)
        placed.append(acknowledgment(4, net.time))
        await publish(net.nodes[2], *placed[0])

    async def after(net: Network) -> None:
        for key in keys:
            await net.add(key)
        for node in net.nodes:
            assert await finds(node, *placed[0])

    play(tmp_path, 10, before)
    play(tmp_path, 0, after)


def test_a_hostile_peer_gets_nothing_bad_into_any_node(tmp_path: Path) -> None:
    """Forged, old, ahead of time, under another key, under-priced, over-sized and cut values."""

    async def scenario(net: Network) -> None:
        good_key, good = acknowledgment(5, net.time)
        bad = [
            (good_key, good[:-3] + b"0\r\n"),
            (good_key, good.replace(b"Date: 2", b"Date: 3")),
            (BlockKey(bytes(20)), good),
            acknowledgment(6, net.time - timedelta(days=11)),
            acknowledgment(7, net.time + timedelta(days=2)),
            acknowledgment(8, net.time, Difficulty(12, 2)),
            (good_key, good[:-10]),
            (good_key, b"\xff" * 300),
            (good_key, good + b"Padding: x\r\n"),
            data(b"x" * 300, net.time, Difficulty(10, 2)),
            (good_key, redated(good, net.time + timedelta(minutes=1))),
        ]
        large = data(b"y" * 850, net.time)
        assert SMALL_VALUE < len(large[1]) < 1000
        hasty = Hostile(patience=0.1)
        await hasty.endpoint.open("127.0.0.1", 0)
        hostile = Hostile()
        await hostile.endpoint.open("127.0.0.1", 0)
        for node in net.nodes:
            token = await hostile.token_of(net.place(node), good_key)
            for key, body in bad:
                assert await hostile.store(net.place(node), key, body, token) != Outcome.TAKEN
            # Larger than a datagram may carry: no answer at all, though it holds.
            its = await hasty.token_of(net.place(node), large[0])
            assert not await hasty.store(net.place(node), *large, its)
            # The same value holds where it belongs: it is the content that was refused.
            without = bytes(len(token))
            assert await hostile.store(net.place(node), good_key, good, without) != Outcome.TAKEN
            assert not await node.holdings.under(good_key)
            taken = await hostile.store(net.place(node), good_key, good, token)
            assert taken == Outcome.TAKEN
            for key in {each for each, _ in (*bad, large)} - {good_key}:
                assert not await node.holdings.under(key)
        hostile.endpoint.close()
        hasty.endpoint.close()

    play(tmp_path, 5, scenario)


def redated(body: bytes, date: datetime) -> bytes:
    """Return a text block with another Date."""
    return re.sub(rb"Date: [^\r]+", f"Date: {date:%Y-%m-%dT%H:%M:%SZ}".encode(), body)


class Picky(DhtNode):
    """Has no room for the value of one body."""

    but: bytes = b""

    async def take(self, key: BlockKey, body: bytes, source: str, *, ours: bool = False) -> Value:
        """Take all others."""
        if body == self.but:
            raise NoRoom("not this one")
        return await super().take(key, body, source, ours=ours)


def test_one_value_that_is_not_taken_keeps_no_other_back(tmp_path: Path) -> None:
    """Small or large; and it is told that some refuse."""

    async def scenario(net: Network) -> None:
        picky = await net.add(kind=Picky)
        assert isinstance(picky, Picky)
        named = [BlockKey(number.to_bytes(20)) for number in range(100, 130)]
        mails = [mail(number, RECIPIENT, net.time) for number in range(3)]
        mails.append(mail(3, RECIPIENT, net.time, more=named))
        assert len(mails[-1][1]) > SMALL_VALUE
        values = [await net.nodes[0].take(*each, "a user") for each in mails]
        picky.but = min(values[:3], key=lambda each: each.digest).body
        spread = await net.nodes[0].spread(mails[0][0])
        assert (spread.nearest, spread.holding, spread.refusing) == (1, 0, 1)
        kept = {row.body for row in await picky.holdings.under(mails[0][0])}
        assert kept == {each.body for each in values} - {picky.but}

    play(tmp_path, 1, scenario)


def test_one_holder_is_read_no_further_than_an_honest_one_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor are more values believed than a node keeps: those with the best stamps."""

    async def scenario(net: Network) -> None:
        mails = [mail(number, RECIPIENT, net.time) for number in range(9)]
        key = mails[0][0]
        values = [await net.nodes[0].take(*each, "a user") for each in mails]
        monkeypatch.setattr(gathering, "MOST_BYTES_OF_ONE", 4 * len(mails[0][1]) + 50)
        assert len(await net.nodes[1].find(key)) == 4
        monkeypatch.undo()
        monkeypatch.setitem(MOST_UNDER_KEY, BlockType.MESSAGE_ANNOUNCEMENT, 5)
        found = await net.nodes[1].find(key)
        assert {each.digest for each in found} == {
            each.digest for each in sorted(values, key=lambda each: each.rank)[:5]
        }

    play(tmp_path, 2, scenario)


def test_what_has_just_grown_too_old_makes_nobody_a_liar(tmp_path: Path) -> None:
    """Who gives it is asked for the rest as well: his clock may be another."""

    async def scenario(net: Network) -> None:
        key, old = mail(1, RECIPIENT, net.time - timedelta(days=9, hours=23))
        fresh = [mail(number, RECIPIENT, net.time)[1] for number in range(2, 6)]
        for body in (old, *fresh):
            await net.nodes[0].take(key, body, "a user")
        # The reader's clock is ahead of the holder's.
        ahead = net.nodes[1]
        time = net.time + timedelta(hours=2)
        ahead.clock = lambda: time
        assert await finds(ahead, key, *fresh)

    play(tmp_path, 2, scenario)


class Stale(Liar):
    """Lists much that nobody else has, and gives nothing but what is too old."""

    old = b""
    gave = 0

    async def list_falsely(self, request: Request) -> bytes:
        """List what is not there."""
        made_up = [Held(BlockType.DATA, bytes((each,)) * 32, 3000) for each in range(1, 13)]
        return encode_holdings(len(made_up), made_up, 1000)

    async def value(self, key: BlockKey, digest: bytes) -> DhtRow | None:
        """Give it."""
        self.gave += 1
        date = self.clock()
        return DhtRow(key, "data", b"", digest, date, date, 0, False, key.raw, "", False, self.old)


def test_what_is_too_old_keeps_nothing_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who gives it again and again is left, and it is no part of what is read of all."""

    async def scenario(net: Network) -> None:
        key, body = data(bytes(3000), net.time)
        await publish(net.nodes[0], key, body)
        stale = await net.add(ids_near(key, 1)[0], kind=Stale)
        assert isinstance(stale, Stale)
        stale.old = data(bytes(3000), net.time - timedelta(days=20))[1]
        monkeypatch.setattr(gathering, "MOST_BYTES", 2 * len(body))
        reader = await net.add()
        assert await finds(reader, key, body)
        assert stale.gave == 3

    play(tmp_path, 3, scenario)


def test_a_date_is_never_renewed_by_spreading(tmp_path: Path) -> None:
    """Spread on its last day, a value is gone from every node on the next."""

    async def scenario(net: Network) -> None:
        key, body = acknowledgment(9, net.time)
        await publish(net.nodes[0], key, body)
        net.time += timedelta(days=9, hours=23)
        for node in net.nodes:
            await node.spread(key)
        assert await finds(net.nodes[4], key, body)
        net.time += timedelta(hours=2)
        assert await finds(net.nodes[4], key)
        for node in net.nodes:
            await node.holdings.expire()
            assert (await node.holdings.count()).entries == 0

    play(tmp_path, 6, scenario)


@pytest.mark.parametrize("ask", [Ask.PING, Ask.NEAREST])
def test_other_networks_and_noise_are_not_answered(tmp_path: Path, ask: Ask) -> None:
    """And nobody is sent more than three times what he sent, a PING to him included."""

    async def scenario(net: Network) -> None:
        node = net.nodes[0]
        watcher = Watcher()
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: watcher, remote_addr=("127.0.0.1", net.place(node).port)
        )
        known = network_id(SETTINGS.network)
        for request in (
            encode_request(network_id("another"), Request(Ask.PING, bytes(16))),
            encode_request(known, Request(Ask.NEAREST, bytes(16)))[:200],
            encode_request(known, Request(Ask.NEAREST, bytes(16))) + b"\0" * 1000,
            known + b"\x01" + b"\xff" * 60,
            b"",
        ):
            transport.sendto(request)
        await asyncio.sleep(0.2)
        assert watcher.seen == 0
        request = encode_request(known, Request(ask, bytes(16)))
        transport.sendto(request)
        await asyncio.sleep(0.5)
        assert len(request) < watcher.seen <= 3 * len(request)
        transport.close()

    play(tmp_path, 8, scenario)


def test_nor_is_who_asks_for_a_full_mailbox_or_offers_a_value(tmp_path: Path) -> None:
    """The largest page there is, or a refusal, and a PING."""

    async def scenario(net: Network) -> None:
        (node,) = net.nodes
        key, known = mail(0, RECIPIENT, net.time)[0], network_id(SETTINGS.network)
        for number in range(6):
            await node.take(*mail(number, RECIPIENT, net.time), "a user")
        content = store_content(bytes(8), acknowledgment(1, net.time)[1])
        for ask, told in ((Ask.HOLDINGS, b""), (Ask.STORE, content)):
            transport, watcher = await asyncio.get_running_loop().create_datagram_endpoint(
                Watcher, remote_addr=("127.0.0.1", net.place(node).port)
            )
            request = encode_request(known, Request(ask, bytes(16), key.raw, told))
            transport.sendto(request)
            await asyncio.sleep(0.3)
            assert LEAST_PING < watcher.seen <= 3 * len(request)
            transport.close()

    play(tmp_path, 1, scenario)


def test_a_source_that_asks_too_much_is_not_answered(tmp_path: Path) -> None:
    """Beyond its burst; a moment later it is again."""

    async def scenario(net: Network) -> None:
        limited = replace(SETTINGS, requests_per_second=2, burst_seconds=5)
        node = await net.add(settings=limited)
        hostile = Hostile(patience=1.0)
        await hostile.endpoint.open("127.0.0.1", 0)
        asking = (hostile.endpoint.ask(net.place(node), Ask.PING) for _ in range(30))
        answers = await asyncio.gather(*asking)
        assert 10 <= sum(answer is not None for answer in answers) <= 14
        hostile.endpoint.close()

    play(tmp_path, 0, scenario)


@pytest.mark.parametrize("more", [2, 6])
def test_a_full_mailbox_keeps_the_best_stamps(tmp_path: Path, more: int) -> None:
    """Whoever paid less makes room, then whoever has the higher digest."""

    async def scenario(net: Network) -> None:
        node = net.nodes[0]
        most = {**MOST_UNDER_KEY}
        key = mail(0, RECIPIENT, net.time)[0]
        offered = []
        MOST_UNDER_KEY.update(dict.fromkeys(most, 4))
        try:
            for number in range(4 + more):
                body = mail(number, RECIPIENT, net.time)[1]
                try:
                    offered.append(await node.take(key, body, f"source {number}"))
                except NoRoom:
                    offered.append(read_value(key, body, net.time))
        finally:
            MOST_UNDER_KEY.update(most)
        best = sorted(offered, key=lambda each: (-each.standing.bits, each.digest))[:4]
        kept = {row.digest for row in await node.holdings.under(key)}
        assert kept == {each.digest for each in best}

    play(tmp_path, 1, scenario)


class Hostile:
    """A stranger with a socket, who is no node."""

    def __init__(self, patience: float = 10.0) -> None:
        self.endpoint = Endpoint(
            NodeKey.make(),
            network_id(SETTINGS.network),
            self._nothing,
            Allowance(Rate(1, 1)),
            Allowance(Rate(1, 1)),
            timeout=patience,
        )

    async def token_of(self, place: Place, key: BlockKey) -> bytes:
        """Ask as a node does before it may store."""
        answer = await self.endpoint.ask(place, Ask.NEAREST, key.raw)
        assert answer is not None
        return decode_nearest(answer.content)[0]

    async def store(self, place: Place, key: BlockKey, body: bytes, token: bytes) -> int:
        """Offer a value, and return what became of it."""
        content = store_content(token, body)
        answer = await self.endpoint.ask(place, Ask.STORE, key.raw, content)
        return answer.content[0] if answer else 0

    async def _nothing(self, request: Request, place: Place) -> bytes | None:
        return None


class Watcher(asyncio.DatagramProtocol):
    """Counts what comes."""

    seen = 0

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Count one datagram."""
        self.seen += len(data)
