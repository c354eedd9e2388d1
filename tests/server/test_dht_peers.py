"""``entangled_peers``: asked on a miss and posted to, and believed no more than other nodes."""

import asyncio
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.net.socks_server import SocksServer
from tests.server.dht_network import acknowledgment, data, mail
from tests.server.inside import TurnedClock, connect, make_server
from tests.server.mailing import running
from tests.server.original_peer import OriginalPeer
from tests.server.users import User, now

from sealmail_net.dialing import DialSettings
from sealmail_net.errors import Unavailable
from sealmail_net.socks import Proxies
from sealmail_net.ways import ProxyPolicy
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import serialise_block
from sealmail_protocol.commands import GetEntangled, ListDhtValues, StoreEntangled
from sealmail_protocol.keys import BlockKey, KeyId, address_key, announcement_key
from sealmail_protocol.replies import Listing, Word
from sealmail_server.config import CERTIFICATE_NAME, KEY_NAME, Config
from sealmail_server.dht import node as nodes
from sealmail_server.dht.holdings import Holdings
from sealmail_server.dht.peers import EntangledPeers
from sealmail_server.dht.turns import Asker
from sealmail_server.dht.values import Examiner
from sealmail_server.service import Server
from sealmail_server.setting_rules import BadConfig
from sealmail_server.tls_identity import TlsIdentity
from sealmail_verify import VerifierPool

NOW = now()
END = b"EndBlock\r\n"
NEXT = b"NextMessage\r\n"
RECIPIENT = KeyId(bytes(range(20)))
LOCAL = DialSettings(allow_private_targets=True, connect_deadline=2.0, answer_deadline=2.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a server that never ran."""
    directory = tmp_path_factory.mktemp("peers") / "made"
    make_server(directory, TurnedClock(NOW))
    return directory


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """Return the directory of a server with a store of its own."""
    return Path(shutil.copytree(made, tmp_path / "a"))


@pytest.fixture
def original(made: Path) -> OriginalPeer:
    """Return an original."""
    return OriginalPeer(TlsIdentity(made / CERTIFICATE_NAME, made / KEY_NAME))


@pytest.fixture(scope="module")
def users() -> Iterator[tuple[User, User]]:
    """Return two users with keys, in a place short enough for GnuPG's sockets."""
    with tempfile.TemporaryDirectory() as place:
        ann, bob = (User.create(Path(place) / name, name) for name in ("a", "b"))
        yield ann, bob
        ann.close()
        bob.close()


@pytest.fixture
def free_ports() -> tuple[int, int]:
    """Return two ports of loopback that are free now."""
    with socket.create_server(("127.0.0.1", 0)) as one, socket.socket() as two:
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


@pytest.fixture
def free_port(free_ports: tuple[int, int]) -> int:
    """Return a port of loopback that is free now."""
    return free_ports[0]


@asynccontextmanager
async def beside(directory: Path, *peers: ServerAddress, **settings: Any) -> AsyncIterator[Server]:
    """Run a server of the DHT with these peers, alone in its network."""
    network = {"dht": True, "dht_network": "alone", "entangled_peers": [str(p) for p in peers]}
    async with running(directory, clock=TurnedClock(NOW), **{**network, **settings}) as servers:
        yield servers[0]


async def find(server: Server, key: BlockKey) -> bytes | None:
    """Return what GET ENTANGLED answers."""
    async with await connect(server) as remote:
        return await remote.fetch_body(GetEntangled(key), 2**20)


async def store(server: Server, key: BlockKey, body: bytes) -> None:
    """Have a server keep a text block by STORE ENTANGLED."""
    async with await connect(server) as remote:
        assert await remote.post(StoreEntangled(key), lines_of(body)) is Word.DONE


def lines_of(body: bytes) -> list[str]:
    """Return the lines of a value, those between a claim and its key among them."""
    return body.decode().removesuffix("\r\n").split("\r\n")


async def soon(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something is so."""
    for _ in range(1000):
        if await true():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it never became so")


def test_what_an_original_has_is_given_if_it_holds_and_is_not_kept(
    place: Path, original: OriginalPeer, users: tuple[User, User]
) -> None:
    """Of every type; an original checks neither signature nor the price of mail."""
    ann, bob = users
    announced, claim = ann.announcement(NOW), ann.claim("ann@a.example", date=NOW)
    key, claimed = announcement_key(ann.key_id), address_key("ann@a.example")
    forged = bob.claim("ann@b.example", ann.key_id, NOW)
    mails = sorted(mail(number, RECIPIENT, NOW)[1] for number in (1, 2))
    mailbox, cheap = mail(3, RECIPIENT, NOW, Difficulty(8, 2))
    acked, ack = acknowledgment(1, NOW)
    late, old = acknowledgment(2, NOW - timedelta(days=11))
    named, content = data(b"\r\nNextMessage\r\nType: data\r\n" + bytes(900), NOW)

    async def scenario() -> None:
        async with original.serving() as address, beside(place, address) as server:
            original.values = {
                key: serialise_block(announced) + END,
                claimed: serialise_block(claim) + END,
                mailbox: NEXT.join((mails[0], cheap, b"Type: none\r\n", mails[1])) + END,
                acked: ack + END,
                late: old + END,
                named: content,
                address_key("ann@b.example"): serialise_block(forged) + END,
                address_key("bob@a.example"): serialise_block(claim) + END,
            }
            for asked in (key, claimed, acked, named):
                assert await find(server, asked) == original.values[asked].removesuffix(END)
            found = await find(server, mailbox)
            assert found is not None
            assert sorted(found.split(NEXT)) == mails
            wrong = (late, address_key("ann@b.example"), address_key("bob@a.example"))
            for asked in (*wrong, BlockKey(bytes(20))):
                assert await find(server, asked) is None
            assert server.dht is not None
            assert (await server.dht.status())["values"] == 0

    asyncio.run(scenario())


def test_who_waits_for_others_in_vain_is_told_that_nobody_was_asked(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FAILED, not NOT FOUND; strangers wait for each other only."""
    monkeypatch.setattr(nodes, "_FIND_SECONDS", 0.1)

    async def scenario() -> None:
        async with beside(place) as server, AsyncExitStack() as stack:
            assert server.dht is not None
            turns, key = server.dht.node.turns, BlockKey(bytes(20))
            assert await find(server, key) is None
            for number in range(4):
                asker = Asker(str(number), stranger=True)
                await stack.enter_async_context(turns.turn(asker))
            async with await connect(server) as remote:
                with pytest.raises(Unavailable):
                    await remote.fetch(GetEntangled(key))
            assert await server.dht.node.find(key, Asker("user ann")) == ()

    asyncio.run(scenario())


def test_a_hit_asks_no_peer_and_mail_of_both_networks_is_united(
    place: Path, original: OriginalPeer
) -> None:
    """Of a mailbox nobody has all; of the rest what is here is enough."""
    acked, ack = acknowledgment(3, NOW)
    mailbox, here = mail(4, RECIPIENT, NOW)
    _, there = mail(5, RECIPIENT, NOW)

    async def scenario() -> None:
        async with original.serving() as address, beside(place, address) as server:
            original.values = {acked: ack + END, mailbox: there + END}
            await store(server, acked, ack)
            await store(server, mailbox, here)
            assert await find(server, acked) == ack
            assert not original.asked
            found = await find(server, mailbox)
            assert found is not None
            assert sorted(found.split(NEXT)) == sorted((here, there))

    asyncio.run(scenario())


def test_what_users_store_is_posted_to_an_original_once_it_is_there(
    place: Path, original: OriginalPeer, users: tuple[User, User], free_port: int
) -> None:
    """It was away, and has it later; a claim goes as two blocks, the key first."""
    ann, _ = users
    announced, claim = ann.announcement(NOW), ann.claim("ann@a.example", date=NOW)
    acked, ack = acknowledgment(6, NOW)
    claimed = address_key("ann@a.example")
    both = serialise_block(claim) + b"NextClaim\r\n" + serialise_block(announced)

    async def scenario() -> None:
        peer = ServerAddress("127.0.0.1", free_port)
        async with beside(place) as server:
            assert server.dht is not None
            await store(server, acked, ack)
            await store(server, claimed, both)
        # It was restarted meanwhile; what nobody else keeps is posted again.
        async with (
            original.serving(free_port),
            beside(place, peer) as server,
        ):
            await soon(lambda: has(original, 3))
        assert (acked, ack) in original.stored
        given = [each for each in original.stored if each[0] != acked]
        assert given == [
            (announcement_key(ann.key_id), serialise_block(announced)),
            (claimed, serialise_block(claim)),
        ]

    asyncio.run(scenario())


def test_strangers_flush_out_nothing_that_a_user_posted(original: OriginalPeer) -> None:
    """However much of theirs waits for a peer, his goes first."""

    async def scenario() -> None:
        read: list[bytes] = []

        async def note(_: BlockKey, digest: bytes) -> None:
            read.append(digest)

        async with VerifierPool() as verifier, original.serving() as address:
            peers = EntangledPeers([address], LOCAL, Examiner(verifier), lambda: NOW)
            key = BlockKey(bytes(20))
            peers.post([(key, b"a user's")])
            peers.post(((key, b"%d" % each) for each in range(12_000)), of_stranger=True)
            assert peers.status()[0]["waiting"] == 2001
            running = asyncio.create_task(peers.run(note))
            await soon(lambda: is_so(len(read) == 2001))
            running.cancel()
        assert (read[0], read[-1]) == (b"a user's", b"11999")

    asyncio.run(scenario())


async def is_so(fact: bool) -> bool:
    """Tell whether something is so."""
    return fact


def test_another_server_is_asked_and_posted_to_by_dht_value_and_nothing_loops(
    place: Path, made: Path, tmp_path: Path, free_ports: tuple[int, int]
) -> None:
    """Two networks that are each other's peers: each finds what the other keeps, and no more."""
    other = Path(shutil.copytree(made, tmp_path / "b"))
    addresses = [ServerAddress("127.0.0.1", port) for port in free_ports]
    acked, ack = acknowledgment(7, NOW)
    named, content = data(bytes(60_000), NOW)

    async def scenario() -> None:
        first = beside(place, addresses[1], listen=str(addresses[0]), dht_network="one")
        second = beside(other, addresses[0], listen=str(addresses[1]), dht_network="two")
        async with first as one, second as two:
            assert one.dht is not None
            assert two.dht is not None
            await two.dht.node.take(named, content, "somebody")
            assert await find(one, named) == content
            assert not await one.dht.node.holdings.under(named)
            started = time.monotonic()
            assert await find(one, BlockKey(bytes(20))) is None
            assert await find(two, BlockKey(bytes(20))) is None
            assert time.monotonic() - started < 5
            await store(one, acked, ack)
            holdings = two.dht.node.holdings
            await soon(lambda: kept(holdings, acked))
            async with await connect(two) as remote:
                (row,) = await holdings.under(acked)
                assert await remote.call(ListDhtValues(acked)) == Listing((row.digest.hex(),))
                assert await remote.call(ListDhtValues(named)) != Listing()
                assert await remote.call(ListDhtValues(BlockKey(bytes(20)))) is Word.NOT_FOUND

    asyncio.run(scenario())


async def has(peer: OriginalPeer, count: int) -> bool:
    """Tell whether a peer was given so many blocks."""
    return len(peer.stored) == count


async def kept(holdings: Holdings, key: BlockKey) -> bool:
    """Tell whether something is kept under a key."""
    return bool(await holdings.under(key))


@asynccontextmanager
async def asking(
    *addresses: ServerAddress, settings: DialSettings = LOCAL, pause: float = 60.0
) -> AsyncIterator[EntangledPeers]:
    """Have peers without a server around them."""
    async with VerifierPool(1) as verifier:
        pauses = (timedelta(seconds=pause),)
        yield EntangledPeers(addresses, settings, Examiner(verifier), lambda: NOW, pauses=pauses)


def test_a_peer_that_is_dead_or_says_nothing_costs_one_question_in_a_while(
    original: OriginalPeer, free_port: int
) -> None:
    """The next ones are answered at once by the others; later it is asked again."""
    acked, ack = acknowledgment(8, NOW)
    silent = OriginalPeer(original.identity, stalls=True)
    original.values = {acked: ack + END}

    async def scenario() -> None:
        dead = ServerAddress("127.0.0.1", free_port)
        async with (
            silent.serving() as mute,
            original.serving() as address,
            asking(dead, mute, pause=2.0) as peers,
        ):
            assert not await peers.find(acked)
            assert [each["reason"] is None for each in peers.status()] == [False, False]
            started = time.monotonic()
            for _ in range(20):
                assert not await peers.find(acked)
            assert time.monotonic() - started < 0.5
            assert len(silent.asked) == 1
            silent.stalls, silent.values = False, original.values
            await asyncio.sleep(2.5)
            assert [value.body for value in await peers.find(acked)] == [ack]
            assert peers.status()[1]["reason"] is None
        async with original.serving() as address, asking(dead, address) as peers:
            started = time.monotonic()
            assert [value.body for value in await peers.find(acked)] == [ack]
            assert time.monotonic() - started < 1.5

    asyncio.run(scenario())


def test_a_peer_goes_by_the_rules_of_outgoing_targets(original: OriginalPeer) -> None:
    """No private address unless allowed; onion services by the proxy, and not without one."""
    acked, ack = acknowledgment(9, NOW)
    onion = "p53lf57qovyuvwsc6xnrppyply3vtqm7l6pcobkmyqsiofyeznfu5uqd.onion"
    original.values = {acked: ack + END}

    async def scenario() -> None:
        async with original.serving() as address:
            async with asking(
                address, ServerAddress(onion, 8081), settings=DialSettings()
            ) as peers:
                assert not await peers.find(acked)
                private, hidden = (each["reason"] for each in peers.status())
                assert "no public address" in private
                assert "no proxy" in hidden
            assert not original.asked
            proxy = SocksServer({onion: address.port})
            async with proxy.serving() as at:
                settings = DialSettings(proxies=Proxies(ProxyPolicy(at)))
                async with asking(ServerAddress(onion, 8081), settings=settings) as peers:
                    assert [value.body for value in await peers.find(acked)] == [ack]
            assert [each.host for each in proxy.asked] == [onion]

    asyncio.run(scenario())


def test_a_hostile_peer_is_read_no_further_than_a_value_may_be_long(
    original: OriginalPeer,
) -> None:
    """Megabytes without an end, in one line or in many, padding or not."""
    key = BlockKey(bytes(20))

    async def scenario() -> None:
        async with original.serving() as address:
            for line in (b"Type: acknowledgment\r\n", b"Padding: " + b"x" * 90 + b"\r\n"):
                original.values = {key: line * (3 * 2**20 // len(line))}
                async with asking(address) as peers:
                    assert not await peers.find(key)
                    assert "more than" in peers.status()[0]["reason"]

    asyncio.run(scenario())


def test_peers_need_the_dht_and_so_a_covert_server_has_none() -> None:
    """They belong to ENTANGLED, which answers FAILED there."""
    with pytest.raises(BadConfig, match="dht"):
        Config.of({"entangled_peers": ["host.example:8081"]})
    with pytest.raises(BadConfig, match="entangled_peers"):
        Config.of({"dht": True, "entangled_peers": ["nothing"]})
