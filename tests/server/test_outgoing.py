"""Blocks given to STORE PROXY: who gets them, in which order, and what QUEUE tells."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.net.socks_server import SocksServer
from tests.server.inside import TurnedClock, address_of, connect, live_on
from tests.server.mailing import (
    RECIPIENT,
    SENDER,
    hand_in,
    holds,
    log_in,
    make_servers,
    open_account,
    post_to,
    queue_of,
    running,
    send_data,
    send_mail,
    settled,
    states,
    until,
)
from tests.server.users import data_lines, message, now

from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.commands import GetServer, StoreProxy
from sealmail_protocol.keys import BlockKey, KeyId, data_key, mailbox_key
from sealmail_protocol.replies import QueueState, Refused, Word
from sealmail_server.config import CERTIFICATE_NAME
from sealmail_server.onion_key import OnionKey
from sealmail_server.operator import OperatorError
from sealmail_server.service import Server
from sealmail_server.tls_identity import pin_of
from sealmail_store import QueueKind, QueueRow

MAIL = "message-announcement"
ONION = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion:8081"


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Directories of two servers, used by one test after the other."""
    return make_servers(tmp_path_factory.mktemp("servers"), 2)


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario to its end."""
    asyncio.run(scenario())


def recipient(number: int) -> KeyId:
    """Return a recipient of a test's own, since the servers are shared."""
    return KeyId(number.to_bytes(20, "big"))


async def free_port() -> ServerAddress:
    """Return an address where nobody listens."""
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return ServerAddress("127.0.0.1", port)


def test_mail_reaches_the_recipients_server_data_first(homes: list[Path]) -> None:
    """Data and announcement are delivered, accepted there, and told as delivered by QUEUE."""

    async def scenario() -> None:
        async with running(*homes) as (home, target):
            await open_account(target, RECIPIENT)
            async with await log_in(home) as remote:
                mail = message(RECIPIENT, data=b"first mail")
                assert await send_data(remote, b"first mail", post_to(target)) is Word.DONE
                assert await send_mail(remote, mail, post_to(target)) is Word.DONE
                rows = await settled(remote, 2)
                assert states(rows) == [("data", 1, "delivered", "-"), (MAIL, 1, "delivered", "-")]
                assert rows[1].digest == block_digest(mail)
                assert await queue_of(remote, rows[0].queued + timedelta(seconds=1)) == []
            assert await holds(target, "data", data_key(b"first mail")) == 1
            assert await holds(target, MAIL, mailbox_key("0", RECIPIENT)) == 1
            left = await home.services.store.read(lambda view: view.counts())
            assert "proxied" not in left

    play(scenario)


def test_large_data_goes_from_its_file(homes: list[Path]) -> None:
    """A block of some MiB is delivered whole, and its file is gone afterwards."""
    data = bytes(range(256)) * 12_000

    async def scenario() -> None:
        async with running(*homes) as (home, target):
            async with await log_in(home, recipient(1)) as remote:
                assert await send_data(remote, data, post_to(target)) is Word.DONE
                assert states(await settled(remote)) == [("data", 1, "delivered", "-")]
            assert await holds(target, "data", data_key(data)) == 1
            name = data_key(data).hex
            assert not list((homes[0] / "store").rglob(name))

    play(scenario)


def test_what_the_target_refuses_comes_back_with_the_reason(homes: list[Path]) -> None:
    """A mailbox that the recipient does not have makes a dead letter; QUEUE is for its owner."""

    async def scenario() -> None:
        async with running(*homes) as (home, target):
            reader = recipient(2)
            await open_account(target, reader)
            async with await log_in(home, recipient(3)) as remote:
                mail = message(reader, mailbox="9")
                assert await send_mail(remote, mail, post_to(target)) is Word.DONE
                assert states(await settled(remote)) == [(MAIL, 1, "refused", "recipient")]
            async with await log_in(home, recipient(4)) as other:
                assert await queue_of(other) == []
            stored = await home.services.store.read(
                lambda view: view.queue.owned(recipient(3).hex, limit=9)
            )
            assert [(row.destination, row.entry) for row in stored] == [("", None)]

    play(scenario)


@pytest.mark.parametrize(
    ("target", "private"),
    [
        ("Post-To: entangled", True),
        ("Post-To: server=10.0.0.1:8081", False),
        ("Post-To: server=[::1]:8081,127.0.0.1:8081", False),
        ("Post-To: server=mail.example", True),
        ("Post-To: nobody", True),
    ],
)
def test_a_target_that_is_never_served_is_failed_at_once(
    homes: list[Path], target: str, private: bool
) -> None:
    """Nothing is queued for it, nor for the other targets of the same block."""

    async def scenario() -> None:
        async with (
            running(homes[0], allow_private_targets=private) as (home,),
            await log_in(home, recipient(5)) as remote,
        ):
            served = "Post-To: server=mail.example:8081"
            mail = message(RECIPIENT)
            assert await send_mail(remote, mail, served, target) is Word.FAILED
            assert await send_data(remote, b"x" * 200_000, target) is Word.FAILED
            assert await queue_of(remote) == []

    play(scenario)


def test_after_holds_mail_back_for_up_to_three_days(homes: list[Path]) -> None:
    """Until then the row waits untried; a later time is FAILED."""
    clock = TurnedClock(now())

    async def scenario() -> None:
        async with running(*homes, clock=clock) as (home, target):
            reader = recipient(6)
            await open_account(target, reader)
            async with await log_in(home, recipient(7)) as remote:
                mail, line = message(reader), post_to(target)
                late = clock.moment + timedelta(days=3)
                too_late = late + timedelta(seconds=1)
                assert await send_mail(remote, mail, line, after=too_late) is Word.FAILED
                assert await send_mail(remote, mail, line, after=late) is Word.DONE
                await asyncio.sleep(0.3)
                [row] = await queue_of(remote)
                assert (row.state, row.last) == (QueueState.WAITING, None)
                clock.turn(days=3)
                assert states(await settled(remote)) == [(MAIL, 1, "delivered", "-")]

    play(scenario)


def test_of_a_group_one_server_that_works_is_enough(homes: list[Path]) -> None:
    """A dead server costs nothing but the attempt, and does not hold up another target."""

    async def scenario() -> None:
        dead = await free_port()
        async with running(*homes) as (home, target):
            reader = recipient(8)
            await open_account(target, reader)
            async with await log_in(home, recipient(9)) as remote:
                for price in range(6):
                    mail = message(reader, date=now() - timedelta(seconds=price))
                    await send_mail(remote, mail, post_to(dead), post_to(dead, target))

                async def delivered() -> bool:
                    rows = await queue_of(remote)
                    return [row.state for row in rows].count(QueueState.DELIVERED) == 6

                await until(delivered)
                rows = await queue_of(remote)
                assert {row.post_to for row in rows if row.state == "delivered"} == {2}
                assert "unreachable" in {row.code for row in rows if row.post_to == 1}
            assert home.office.postman.routes.down() == (dead,)
            assert await holds(target, MAIL, mailbox_key("0", reader)) == 6

    play(scenario)


def test_a_server_that_comes_back_gets_what_waited(homes: list[Path]) -> None:
    """A look at the down server finds it, and the rows go without waiting for their own time."""
    clock = TurnedClock(now())

    async def scenario() -> None:
        address = await free_port()
        async with running(homes[0], clock=clock) as (home,):
            remote = await log_in(home, recipient(10))
            data = b"for who comes back"
            assert await send_data(remote, data, post_to(address)) is Word.DONE

            async def is_down() -> bool:
                return home.office.postman.routes.is_down(address)

            await until(is_down)
            async with running(homes[1], clock=clock, listen=str(address)) as (target,):
                clock.turn(seconds=10)
                assert states(await settled(remote)) == [("data", 1, "delivered", "-")]
                assert await holds(target, "data", data_key(data)) == 1
            await remote.quit()

    play(scenario)


def test_what_waits_survives_a_restart(homes: list[Path]) -> None:
    """Rows are taken up when the server starts; a row that cannot be read is a dead letter."""
    owner = recipient(11)

    async def scenario() -> None:
        address = await free_port()
        async with running(homes[0]) as (home,):
            async with await log_in(home, owner) as remote:
                await send_data(remote, b"kept over a restart", post_to(address))
            poison = QueueRow(
                kind=QueueKind.PROXY,
                digest=bytes(32),
                queued=now(),
                type="data",
                key=data_key(b""),
                owner=owner.hex,
                line=1,
                destination="server=:0",
                content=b"never a date",
            )
            broken = replace(poison, destination=f"server={address}", entry=10**6)
            await home.services.store.write(lambda view: view.queue.put(poison))
            await home.services.store.write(lambda view: view.queue.put(broken))
        async with (
            running(homes[1], listen=str(address)),
            running(homes[0]) as (home,),
            await log_in(home, owner) as remote,
        ):
            assert states(await settled(remote)) == [
                ("data", 1, "delivered", "-"),
                ("data", 1, "given-up", "internal"),
                ("data", 1, "given-up", "internal"),
            ]

    play(scenario)


def test_mail_for_this_server_is_admitted_without_a_connection(homes: list[Path]) -> None:
    """By any of its names; the verdict is its own, and the data is not copied."""

    async def scenario() -> None:
        async with running(homes[0], allow_private_targets=False) as (home,):
            reader = recipient(12)
            await open_account(home, reader)
            own = f"Post-To: server=localhost:{address_of(home).port},mail.example:8081"
            async with await log_in(home, recipient(13)) as remote:
                data = b"local" * 40_000
                await send_data(remote, data, own)
                await send_mail(remote, message(reader, data=data), own)
                await send_mail(remote, message(reader, mailbox="9"), own)
                rows = await settled(remote, 3)
                assert [row.state for row in rows] == ["delivered", "delivered", "refused"]
            assert await holds(home, "data", data_key(data)) == 1
            assert await holds(home, MAIL, mailbox_key("0", reader)) == 1
            assert home.services.store.directory.joinpath("data").exists()

    play(scenario)


def test_one_block_for_two_targets_with_a_common_server_is_sent_once(homes: list[Path]) -> None:
    """What is at the server already is delivered for the other target, too."""

    async def scenario() -> None:
        dead = await free_port()
        async with running(*homes) as (home, target), await log_in(home, recipient(14)) as remote:
            lines = [post_to(target), post_to(dead, target), post_to(target)]
            await send_data(remote, b"one copy", *lines)
            rows = await settled(remote, 2)
            assert [(row.post_to, row.state) for row in rows] == [
                (1, "delivered"),
                (2, "delivered"),
            ]

    play(scenario)


def test_a_block_that_nobody_may_take_is_a_dead_letter_at_once(homes: list[Path]) -> None:
    """It is answered DONE, so that an original client's queue goes on, and never sent."""

    async def scenario() -> None:
        async with running(*homes) as (home, target):
            async with await log_in(home, recipient(15)) as remote:
                key, lines = data_lines(b"good")
                bad_key = BlockKey(bytes(20))
                word = await remote.post_data(
                    StoreProxy(bad_key), (post_to(target), *lines), 4, (b"good",)
                )
                assert word is Word.DONE
                old = message(RECIPIENT, date=now() - timedelta(days=11))
                assert await send_mail(remote, old, post_to(target)) is Word.DONE
                rows = await settled(remote, 2)
                assert states(rows) == [
                    ("data", 1, "refused", "key"),
                    (MAIL, 1, "refused", "date"),
                ]
                verdict = await remote.verdict(rows[1].digest)
                assert isinstance(verdict, Refused)
            assert await holds(target, "data", key) == 0

    play(scenario)


def test_a_block_without_a_date_holds_up_nothing(homes: list[Path]) -> None:
    """What jams an original's queue for good, over restarts too: here the next block goes."""
    owner, dateless = recipient(23), ("Type: message-announcement", "Version: 1")

    async def scenario() -> None:
        async with running(homes[1]) as (target,):
            line = post_to(target)
            for number in range(2):
                async with running(homes[0]) as (home,), await log_in(home, owner) as remote:
                    for poison in (dateless, ("Type: acknowledgment", "Date: yesterday"), ()):
                        command = StoreProxy(mailbox_key("0", owner))
                        assert await remote.post(command, (line, *poison)) is Word.DONE
                    good = f"behind the poison {number}".encode()
                    assert await send_data(remote, good, line) is Word.DONE
                    rows = await settled(remote, 3 * (number + 1))
                    assert [row.state for row in rows].count(QueueState.DELIVERED) == number + 1
                    assert {row.code for row in rows} == {"-", "form"}
                assert await holds(target, "data", data_key(good)) == 1

    play(scenario)


def test_a_name_that_stands_for_loopback_is_never_dialled(homes: list[Path]) -> None:
    """The check is on what the name resolves to; nobody is connected to."""
    connections: list[object] = []

    async def scenario() -> None:
        inside = await asyncio.start_server(lambda *each: connections.append(each), "127.0.0.1", 0)
        port = inside.sockets[0].getsockname()[1]
        async with (
            inside,
            running(homes[0], allow_private_targets=False) as (home,),
            await log_in(home, recipient(16)) as remote,
        ):
            await send_data(remote, b"to loopback", f"Post-To: server=localhost:{port}")
            await send_data(remote, b"to an onion", f"Post-To: server={ONION}")
            assert states(await settled(remote, 2)) == [
                ("data", 1, "given-up", "forbidden"),
                ("data", 1, "given-up", "network"),
            ]
        assert connections == []

    play(scenario)


def test_keys_of_other_servers_are_recorded_and_a_change_is_logged(
    homes: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Sealed mail goes on all the same; what was shown before a restart is known after it."""
    [impostor] = make_servers(tmp_path, 1)
    owner = recipient(24)

    async def scenario() -> None:
        address = await free_port()
        for place, data in ((homes[1], b"to the first"), (impostor, b"to the second")):
            async with (
                running(place, listen=str(address)) as (target,),
                running(homes[0]) as (home,),
                await log_in(home, owner) as remote,
            ):
                assert await send_data(remote, data, post_to(address)) is Word.DONE
                rows = await settled(remote)
                assert rows[-1].state is QueueState.DELIVERED
                assert await holds(target, "data", data_key(data)) == 1
        async with running(homes[0]) as (home,):
            known = await home.services.store.read(lambda view: view.server_keys.all())
        [key] = [each for each in known if str(address) in each.way]
        pins = [pin_of(place / CERTIFICATE_NAME) for place in (impostor, homes[1])]
        assert [key.pin, key.before] == pins
        assert caplog.text.count(f"{address} shows another key than before") == 1

    play(scenario)


def test_what_is_known_of_other_servers_is_told_to_nobody(homes: list[Path]) -> None:
    """An original keeps such records among its blocks, and its peers are anybody's to read."""
    owner = recipient(25)

    async def scenario() -> None:
        async with (
            running(homes[1]) as (target,),
            running(homes[0]) as (home,),
            await log_in(home, owner) as remote,
        ):
            address = address_of(target)
            await send_data(remote, b"to a peer", post_to(target))
            assert states(await settled(remote)) == [("data", 1, "delivered", "-")]
        async with running(homes[0]) as (home,):
            known = await home.services.store.read(lambda view: view.server_keys.all())
            [record] = [each for each in known if str(address) in each.way]
            names = (str(address), str(address).upper(), address.host, record.way)
            keys = {data_key(name.encode()) for name in names}
            keys |= {data_key(record.pin), BlockKey(record.pin[:20]), BlockKey(record.pin[-20:])}
            async with await connect(home) as stranger, await log_in(home, owner) as user:
                for key in keys:
                    assert await stranger.fetch(GetServer(key)) is None
                    assert await user.fetch(GetServer(key)) is None

    play(scenario)


def test_a_server_that_stalls_does_not_slow_the_others(homes: list[Path]) -> None:
    """Fifty targets that accept and say nothing leave workers for other users."""

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scenario() -> None:
        pits = [await asyncio.start_server(stall, "127.0.0.1", 0) for _ in range(50)]
        names = [f"Post-To: server=127.0.0.1:{p.sockets[0].getsockname()[1]}" for p in pits]
        async with running(*homes) as (home, target):
            attacker = await log_in(home, recipient(17))
            assert await send_data(attacker, b"stall", *names) is Word.DONE
            async with await log_in(home, recipient(18)) as remote:
                for number in range(20):
                    await send_data(remote, b"swift %d" % number, post_to(target))
                rows = await settled(remote, 20)
                assert {row.state for row in rows} == {"delivered"}
            waiting = await queue_of(attacker)
            assert {row.state for row in waiting} == {"waiting"}
            for pit in pits:
                pit.close()
            await attacker.quit()

    play(scenario)


def test_many_who_name_servers_that_stall_leave_workers_for_others(homes: list[Path]) -> None:
    """Five users with sixteen such targets each could have more workers than there are."""

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scenario() -> None:
        pits = [await asyncio.start_server(stall, "127.0.0.1", 0) for _ in range(80)]
        names = [f"Post-To: server=127.0.0.1:{p.sockets[0].getsockname()[1]}" for p in pits]
        async with running(*homes) as (home, target):
            for number in range(5):
                for each in names[number::5]:
                    await hand_in(home, recipient(100 + number), b"stall", each)
            await asyncio.sleep(0.2)
            await hand_in(home, recipient(99), b"swift", post_to(target))
            async with asyncio.timeout(10):
                await until(lambda: has_data(target, b"swift"))
            for pit in pits:
                pit.close()

    play(scenario)


async def has_data(server: Server, data: bytes) -> bool:
    """Tell whether a data block has arrived."""
    return await holds(server, "data", data_key(data)) == 1


def test_dead_onions_of_one_user_do_not_slow_the_others(homes: list[Path]) -> None:
    """Circuits that are built in vain, as many as he may, leave the proxy to other users."""
    onions = [OnionKey(bytes((number,)) * 32).host for number in range(61)]
    *pits, alive = onions

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            (target,) = await stack.enter_async_context(running(homes[1]))
            proxy = SocksServer({alive: address_of(target).port}, pits)
            at = await stack.enter_async_context(proxy.serving())
            (home,) = await stack.enter_async_context(running(homes[0], tor_proxy=str(at)))
            lost = [post_to(f"{host}:8081") for host in pits]
            for who in (40, 41, 42):
                attacker = await log_in(home, recipient(who))
                assert await send_data(attacker, b"lost %d" % who, *lost) is Word.DONE
                await attacker.quit()
            await until(lambda: asyncio.sleep(0, len(proxy.asked) >= 40))
            async with await log_in(home, recipient(43)) as remote, asyncio.timeout(20):
                await send_data(remote, b"found", post_to(f"{alive}:8081"))
                assert states(await settled(remote)) == [("data", 1, "delivered", "-")]

    play(scenario)


def test_the_preferred_network_is_tried_first(homes: list[Path]) -> None:
    """Groups with an address in each network are delivered to by Tor, where that is preferred."""
    onions = [OnionKey(bytes((number,)) * 32).host for number in range(100, 106)]

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            (target,) = await stack.enter_async_context(running(homes[1]))
            proxy = SocksServer(dict.fromkeys(onions, address_of(target).port))
            at = await stack.enter_async_context(proxy.serving())
            settings: dict[str, Any] = {"tor_proxy": str(at), "preferred_connection": "tor"}
            (home,) = await stack.enter_async_context(running(homes[0], **settings))
            groups = [post_to(target, f"{host}:8081") for host in onions]
            async with await log_in(home, recipient(44)) as remote:
                await send_data(remote, b"by Tor", *groups)
                rows = await settled(remote, len(groups))
                assert {row.state for row in rows} == {"delivered"}
        assert {one.host for one in proxy.asked} >= set(onions)

    play(scenario)


def test_each_user_has_his_share_of_the_queue(homes: list[Path]) -> None:
    """Rows, bytes and new servers beyond it are FAILED, and the others are served."""

    async def scenario() -> None:
        async with running(homes[0], proxy_rows_by_user=300, proxy_bytes_by_user=100_000) as (
            home,
        ):
            dead = await free_port()
            async with await log_in(home, recipient(19)) as greedy:
                assert await send_data(greedy, b"a" * 60_000, post_to(dead)) is Word.DONE
                assert await send_data(greedy, b"b" * 60_000, post_to(dead)) is Word.FAILED
                many = [f"Post-To: server=a{number}.example:8081" for number in range(256)]
                after = now() + timedelta(days=1)
                mail = message(RECIPIENT)
                assert await send_mail(greedy, mail, *many, after=after) is Word.DONE
                assert await send_mail(greedy, mail, *many, after=after) is Word.FAILED
            async with await log_in(home, recipient(20)) as other:
                assert await send_data(other, b"c" * 60_000, post_to(dead)) is Word.DONE
                mail = message(RECIPIENT, data=b"other")
                lines = [
                    "Post-To: server=" + ",".join(f"b{a}-{b}.example:1" for b in range(16))
                    for a in range(40)
                ]
                assert await send_mail(other, mail, *lines, after=after) is Word.DONE
                assert await send_mail(other, message(SENDER), *lines, after=after) is Word.DONE
                assert (
                    await send_mail(other, mail, "Post-To: server=c.example:1", after=after)
                    is Word.FAILED
                )

    play(scenario)


def test_the_operator_lists_retries_and_drops(homes: list[Path]) -> None:
    """Targets show only when asked for; a dropped row is a dead letter for its sender."""

    async def scenario() -> None:
        async with running(homes[0]) as (home,):
            dead = await free_port()
            async with await log_in(home, recipient(21)) as remote:
                await send_data(remote, b"to be dropped", post_to(dead))

                async def rows(server: Server, **more: object) -> list[dict[str, Any]]:
                    found = await server.operator.fulfil({"do": "queue list", **more})
                    return [row for row in found if row["user"] == recipient(21).hex]

                [row] = await rows(home)
                assert "target" not in row
                [row] = await rows(home, full=True)
                assert row["target"] == f"server={dead}"
                again = await home.operator.fulfil({"do": "queue retry", "number": row["number"]})
                assert again == {"retried": 1}
                await home.operator.fulfil({"do": "queue drop", "number": row["number"]})
                assert states(await settled(remote)) == [("data", 1, "given-up", "dropped")]
                [row] = await rows(home, full=True)
                assert row["target"] is None
                held_for_partner = QueueRow(QueueKind.REPLICATE, bytes(32), now())
                number = await home.services.store.write(
                    lambda view: view.queue.put(held_for_partner)
                )
                with pytest.raises(OperatorError):
                    await home.operator.fulfil({"do": "queue drop", "number": number})
                status = await home.operator.fulfil({"do": "status"})
                assert status["queue"]["given-up"] >= 1

    play(scenario)


def test_what_waits_too_long_is_given_up_and_forgotten(homes: list[Path]) -> None:
    """After its age a row is a dead letter with its last reason, and gone 14 days later."""
    clock = TurnedClock(now())

    async def scenario() -> None:
        async with running(homes[0], clock=clock) as (home,):
            dead = await free_port()
            remote = await log_in(home, recipient(22))
            await send_data(remote, b"never", post_to(dead))

            async def is_tried() -> bool:
                return (await queue_of(remote))[0].code != "-"

            async def is_forgotten() -> bool:
                return not await queue_of(remote)

            await until(is_tried)
            await live_on(home, clock, days=10)
            assert states(await settled(remote)) == [("data", 1, "given-up", "unreachable")]
            await live_on(home, clock, days=15)
            await until(is_forgotten)
            await remote.quit()

    play(scenario)
