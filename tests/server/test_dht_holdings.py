"""What a node keeps when room is short: a part for each source, then what is nearest to it."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.server.dht_network import Network, data, mail, network
from tests.server.users import User, now

from sealmail_net.dialing import DialSettings
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import BlockKey, KeyId, address_key
from sealmail_protocol.replies import Accepted, Refused, Verdict
from sealmail_server.config import Config
from sealmail_server.dht import desk as desks
from sealmail_server.dht.datagrams import Place
from sealmail_server.dht.desk import EntangledDesk, Posted
from sealmail_server.dht.holdings import PART_OF_ONE_SOURCE, NoRoom
from sealmail_server.dht.neighbours import distance, network_of
from sealmail_server.dht.node import DhtNode
from sealmail_server.dht.peers import EntangledPeers
from sealmail_server.dht.turns import Asker
from sealmail_server.dht.values import MOST_UNDER_KEY, read_value, value_of
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


def desk_of(net: Network, node: DhtNode, posted: Posted = lambda *_: None) -> EntangledDesk:
    """Return a desk that gives its values to a node."""
    return EntangledDesk(
        node,
        net.stores[node.neighbourhood.key.id],
        lambda: net.time,
        lambda _, error: Refused(error.code, error.reason),
        posted,
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


def test_strangers_values_make_room_and_users_values_find_it(tmp_path: Path) -> None:
    """Both wait for others to keep them; only a user's stays, and enters though it is far."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add(room=ROOM)
            own = node.neighbourhood.key.id
            offered = [data(number.to_bytes(4) * (SIZE // 4), net.time) for number in range(30)]
            offered.sort(key=lambda each: distance(each[0].raw, own))
            strangers, users = offered.pop(), offered.pop()
            assert (await node.accept(*strangers, "a stranger", waits=True)).news
            assert await node.holdings.unspread() == (strangers[0],)
            for number, each in enumerate(reversed(offered)):
                await node.take(*each, f"source {number}")
            assert not await node.holdings.under(strangers[0])
            assert (await node.accept(*users, "a user", ours=True)).news
            assert await node.holdings.under(users[0])
            assert (await node.holdings.count()).bytes <= ROOM

    asyncio.run(scenario())


def test_nobody_pays_with_the_room_of_another(tmp_path: Path) -> None:
    """A value that is here already stays booked where it came from, or is paid for anew."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add(room=ROOM)
            store = net.stores[node.neighbourhood.key.id]

            async def used(source: str) -> int:
                return (await store.read(lambda view: view.dht.count(source))).bytes

            key, body = data(bytes(SIZE), net.time)
            await node.take(key, body, "one")
            await node.take(*data(b"x" * SIZE, net.time), "another")
            before = await used("one"), await used("another")
            assert not (await node.accept(key, body, "another", waits=True)).news
            with pytest.raises(NoRoom):
                await node.accept(key, body, "another", ours=True)
            # Nor does what another paid for make room for a newer form of it.
            with pytest.raises(NoRoom):
                await node.take(*data(bytes(SIZE), net.time + timedelta(seconds=1)), "another")
            assert (await used("one"), await used("another")) == before
            assert (await node.accept(key, body, "a third", ours=True)).news
            assert (await used("one"), await used("a third")) == (0, before[0])
            assert not (await node.accept(key, body, "a fourth", ours=True)).news

    asyncio.run(scenario())


def test_who_dates_a_users_value_anew_takes_nothing_from_him(tmp_path: Path) -> None:
    """It waits on for others to keep it, is paid for by him, and makes no room."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add(room=ROOM)
            key, body = data(bytes(SIZE), net.time)
            await node.take(key, body, "a user", ours=True)
            for seconds, user in ((1, False), (2, True)):
                later = net.time + timedelta(seconds=seconds)
                await node.take(*data(bytes(SIZE), later), "another", ours=user)
                (row,) = await node.holdings.under(key)
                assert (row.date, row.source) == (later, "a user")
                assert row.ours
                assert row.waits
            assert await node.holdings.unspread() == (key,)
            await node.holdings.release(key, [row.digest])
            await node.take(*data(bytes(SIZE), net.time + timedelta(seconds=3)), "another")
            (row,) = await node.holdings.under(key)
            assert (row.source, row.ours, row.waits) == ("another", False, False)

    asyncio.run(scenario())


def test_a_full_mailbox_keeps_what_a_user_posted_until_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Better stamps displace what waits for nobody."""
    monkeypatch.setitem(MOST_UNDER_KEY, BlockType.MESSAGE_ANNOUNCEMENT, 2)

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add()
            mails = [mail(number, KeyId(bytes(20)), net.time) for number in range(4)]
            values = [read_value(*each, net.time) for each in mails]
            *better, strangers, users = sorted(values, key=lambda each: each.rank)
            await node.take(users.key, users.body, "a user", ours=True)
            for value in (strangers, *better[::-1]):
                await node.take(value.key, value.body, "another")
            kept = {row.digest for row in await node.holdings.under(users.key)}
            assert kept == {users.digest, better[0].digest}

    asyncio.run(scenario())


def test_a_look_up_reads_what_is_here_once_there_is_a_turn_and_room(
    tmp_path: Path, ann: User
) -> None:
    """Whoever waits holds nothing; and what is kept was examined when it came."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node, told = await net.add(), list[int]()
            announced = ann.announcement(net.time)
            value = value_of(BlockKey(ann.key_id.raw), announced)
            await node.take(value.key, value.body, "one")
            await net.verifier.__aexit__(None, None, None)

            def refuse(size: int) -> None:
                told.append(size)
                raise NoRoom("none")

            async with AsyncExitStack() as stack:
                for number in range(8):
                    await stack.enter_async_context(node.turns.turn(Asker(str(number))))
                asking = asyncio.create_task(node.find(value.key, Asker("x"), refuse))
                await asyncio.sleep(0.1)
                assert not told
            with pytest.raises(NoRoom):
                await asking
            assert told == [len(value.body)]
            assert await node.find(value.key, Asker("x"), told.append) == (value,)

    asyncio.run(scenario())


def test_what_a_neighbour_lists_counts_as_if_he_had_brought_it(tmp_path: Path) -> None:
    """He fills his network's part of the room, and no more, by being asked."""

    async def scenario() -> None:
        async with network(tmp_path, 1) as net:
            (giver,) = net.nodes
            node = await net.add(room=ROOM)
            offered = [data(bytes((number,)) * SIZE, net.time) for number in range(3)]
            for key, body in offered:
                await giver.take(key, body, "somebody")
                await node.spread(key)
            count = await node.holdings.count()
            assert count.entries == 1
            store = net.stores[node.neighbourhood.key.id]
            source = network_of(net.place(giver))
            assert await store.read(lambda view: view.dht.count(source)) == count

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def ann() -> Iterator[User]:
    """Return a user with a key."""
    with tempfile.TemporaryDirectory() as place:
        user = User.create(Path(place) / "a", "ann")
        yield user
        user.close()


def test_a_claim_is_kept_no_longer_than_the_key_it_travels_with(tmp_path: Path, ann: User) -> None:
    """Nobody takes it then, so to give it would make its holder a liar."""
    date, address = now(), "ann@a.example"
    announced = ann.announcement(date - timedelta(days=30))
    value = value_of(address_key(address), ann.claim(address, date=date), announced)

    async def scenario() -> None:
        async with network(tmp_path) as net:
            net.time = date
            node = await net.add()
            assert (await node.take(value.key, value.body, "one")).until < date + timedelta(2)
            assert await node.holdings.page(value.key, b"") != (0, ())
            net.time += timedelta(days=2)
            assert not await node.holdings.under(value.key)
            assert await node.value(value.key, value.digest) is None
            assert await node.holdings.page(value.key, b"") == (0, ())
            assert await node.holdings.expire() == 1

    asyncio.run(scenario())


def test_a_replay_is_not_verified_again(tmp_path: Path, ann: User) -> None:
    """What is here held when it came."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add()
            announced = ann.announcement(net.time)
            value = value_of(BlockKey(ann.key_id.raw), announced)
            await node.take(value.key, value.body, "one")
            await net.verifier.__aexit__(None, None, None)
            assert await node.take(value.key, value.body, "another") == value

    asyncio.run(scenario())


def test_what_is_stored_again_is_posted_once(tmp_path: Path) -> None:
    """A replay starts no effort anew; a user's wish for what a stranger gave does."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add()
            posted: list[bool] = []
            desk = desk_of(net, node, lambda *told: posted.append(told[-1]))
            stranger = ANONYMOUS.at("198.51.100.1")
            user = replace(stranger, userid="ann", confirmed=True)
            key, body = mail(1, KeyId(bytes(20)), net.time)
            lines = tuple(body.removesuffix(b"\r\n").split(b"\r\n"))
            for by in (stranger, stranger, user, user, stranger):
                assert await desk.store_text(key, lines, by) == Accepted()
            assert posted == [True, False]

    asyncio.run(scenario())


def test_a_mailbox_that_is_too_large_is_told_by_its_best_stamps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the oldest: whoever fills it with much cheap mail hides no other."""

    async def scenario() -> None:
        async with network(tmp_path) as net:
            node = await net.add()
            recipient = KeyId(bytes(20))
            mails = [
                mail(number, recipient, net.time - timedelta(minutes=number))
                for number in range(5)
            ]
            for key, body in mails:
                await node.take(key, body, "one")
            monkeypatch.setattr(desks, "HARD_TEXT_BODY", 2 * len(mails[0][1]) + 50)
            key = mails[0][0]
            found = await desk_of(net, node).find(key, None, ANONYMOUS.at("198.51.100.1"))
            values = [read_value(key, body, net.time) for _, body in mails]
            best = sorted(values, key=lambda each: each.rank)[:2]
            assert found is not None
            assert [each.body in found for each in values] == [each in best for each in values]

    asyncio.run(scenario())


def test_a_covert_server_takes_no_part() -> None:
    """Datagrams go straight, and would show where it is."""
    hidden = {"covert": True, "hidden_listen": "127.0.0.1:1", "tor_control": "127.0.0.1:2"}
    with pytest.raises(BadConfig, match="datagrams"):
        Config.of({**hidden, "dht": True})
