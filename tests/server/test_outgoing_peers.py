"""Targets of other makes and moods: originals, servers that fail, break off or talk nonsense."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.net.small_server import ScriptedServer, SmallServer
from tests.net.small_server import serving as serving_small
from tests.server.inside import TurnedClock, address_of
from tests.server.mailing import (
    hand_in,
    log_in,
    make_servers,
    open_account,
    post_to,
    queue_of,
    running,
    send_data,
    send_mail,
    settled,
    until,
)
from tests.server.users import data_lines, message, now

from sealmail_net.link import PeerLink
from sealmail_net.tls import server_context
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.bodies import BODY_ENDS
from sealmail_protocol.bundles import join_bundle
from sealmail_protocol.commands import AskVerdict, Capabilities, StoreProxy, StoreServer
from sealmail_protocol.conversation import ServerEvent
from sealmail_protocol.keys import BlockKey, KeyId, data_key, mailbox_key
from sealmail_protocol.replies import Banner, QueueRow, QueueState, Word
from sealmail_server.outgoing.roster import MAX_LINES


@pytest.fixture(scope="module")
def home_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a server."""
    return make_servers(tmp_path_factory.mktemp("servers"), 1)[0]


@pytest.fixture(scope="module")
def tls(home_directory: Path) -> ssl.SSLContext:
    """Return a context for small servers; another key than the home server's."""
    other = make_servers(home_directory.parent / "small", 1)[0]
    return server_context(other / "tls" / "server.crt", other / "tls" / "server.key")


@dataclass(slots=True)
class MoodyServer(SmallServer):
    """Answers FAILED to some blocks, and hangs up at others.

    ``gate`` keeps blocks waiting for their answer until it is set; ``peak`` is how many
    connections were open at the same time.
    """

    fails: set[BlockKey] = field(default_factory=set)
    breaks: set[BlockKey] = field(default_factory=set)
    most: int = 1000
    open: int = 0
    peak: int = 0
    turned_away: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        """Keep nobody waiting unless a test wants it."""
        self.gate.set()

    @property
    def stored(self) -> list[BlockKey]:
        """Return what a STORE named, in the order in which the commands came."""
        return [event.key for event in self.events if isinstance(event, StoreServer)]

    async def session(self, link: PeerLink) -> None:
        """Serve so many connections at a time, and greet others with BUSY."""
        if self.open >= self.most:
            self.turned_away += 1
            link.write(link.conversation.send(Banner(ending="BUSY")))
            await link.drain()
            return
        self.open += 1
        self.peak = max(self.peak, self.open)
        try:
            await SmallServer.session(self, link)
        finally:
            self.open -= 1

    async def _answer(self, link: PeerLink, event: ServerEvent) -> None:
        if isinstance(event, StoreServer):
            await self.gate.wait()
        match event:
            case StoreServer(key=key) if key in self.breaks:
                await link.hang_up()
            case StoreServer(key=key) if key in self.fails:
                while not isinstance(await link.next_event(), BODY_ENDS):
                    pass
                link.write(link.conversation.send(Word.FAILED))
                await link.drain()
            case _:
                await SmallServer._answer(self, link, event)


def play(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario to its end."""
    asyncio.run(scenario())


def user(number: int) -> KeyId:
    """Return a user of a test's own, since the server is shared."""
    return KeyId(number.to_bytes(20, "big"))


def test_an_original_is_believed_at_done_and_asked_once_what_it_can(
    home_directory: Path, tls: ssl.SSLContext
) -> None:
    """It knows no extension, and closes at the third command that it does not know."""
    original = SmallServer(tls, original=True)

    async def scenario() -> None:
        async with (
            serving_small(original) as (address, _),
            running(home_directory) as (home,),
            await log_in(home, user(1)) as remote,
        ):
            for number in range(9):
                await send_data(remote, b"block %d" % number, post_to(address))
            rows = await settled(remote, 9)
            assert {row.state for row in rows} == {QueueState.DELIVERED}
        assert len(original.blocks) == 9
        assert sum(isinstance(event, Capabilities) for event in original.events) <= 4

    play(scenario)


@pytest.mark.parametrize("mood", ["fails", "breaks"])
def test_a_block_that_its_target_cannot_bear_is_set_aside(
    home_directory: Path, tls: ssl.SSLContext, mood: str
) -> None:
    """It is tried again later; everything else of the same user and target goes on."""
    poison = b"nobody can bear this"
    moody = MoodyServer(tls)
    getattr(moody, mood).add(data_key(poison))

    async def scenario() -> None:
        async with (
            serving_small(moody) as (address, _),
            running(home_directory) as (home,),
            await log_in(home, user(2 + len(mood))) as remote,
        ):
            await send_data(remote, poison, post_to(address))
            for number in range(20):
                await send_data(remote, b"sound %d" % number, post_to(address))

            async def others_gone() -> bool:
                rows = await queue_of(remote)
                return [row.state for row in rows].count(QueueState.DELIVERED) == 20

            await until(others_gone)
            [row] = [r for r in await queue_of(remote) if r.state is QueueState.WAITING]
            assert (row.key, row.code) == (
                data_key(poison),
                {"fails": "failed", "breaks": "lost"}[mood],
            )

    play(scenario)


def test_a_target_with_one_place_is_not_down_because_a_second_worker_is_turned_away(
    home_directory: Path, tls: ssl.SSLContext
) -> None:
    """The connection that stands goes on until everything is delivered."""
    narrow = MoodyServer(tls, most=1)
    narrow.gate.clear()

    async def scenario() -> None:
        async with (
            serving_small(narrow) as (address, _),
            running(home_directory) as (home,),
            await log_in(home, user(50)) as remote,
        ):
            for number in range(40):
                await send_data(remote, b"narrow %d" % number * 900, post_to(address))
            await until(lambda: asyncio.sleep(0, narrow.turned_away > 0))
            narrow.gate.set()
            rows = await settled(remote, 40)
            assert {row.state for row in rows} == {QueueState.DELIVERED}
            assert home.office.postman.routes.down() == ()
        assert len(narrow.blocks) == 40
        assert narrow.peak == 1

    play(scenario)


def test_several_blocks_of_a_user_are_in_flight_to_one_target(
    home_directory: Path, tls: ssl.SSLContext
) -> None:
    """Up to four connections carry them, each one block at a time."""
    busy = MoodyServer(tls)
    busy.gate.clear()

    async def scenario() -> None:
        async with (
            serving_small(busy) as (address, _),
            running(home_directory) as (home,),
            await log_in(home, user(60)) as remote,
        ):
            for number in range(20):
                await send_data(remote, b"in flight %d" % number, post_to(address))
            await until(lambda: asyncio.sleep(0, len(busy.stored) == 4))
            busy.gate.set()
            rows = await settled(remote, 20)
            assert {row.state for row in rows} == {QueueState.DELIVERED}
        assert busy.peak == 4
        assert len(busy.stored) == len(busy.blocks) == 20

    play(scenario)


def test_a_server_that_hangs_for_many_users_does_not_keep_all_workers(
    home_directory: Path, tls: ssl.SSLContext
) -> None:
    """Of all users together it has a few connections, and the others wait for those."""
    hung, sound = MoodyServer(tls), SmallServer(tls)
    hung.gate.clear()

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            bad, _ = await stack.enter_async_context(serving_small(hung))
            good, _ = await stack.enter_async_context(serving_small(sound))
            (home,) = await stack.enter_async_context(running(home_directory))
            for number in range(30):
                await hand_in(home, user(200 + number), b"hung %d" % number, post_to(bad))
            await until(lambda: asyncio.sleep(0, len(hung.stored) == MAX_LINES))
            await hand_in(home, user(300), b"swift", post_to(good))
            async with asyncio.timeout(10):
                await until(lambda: asyncio.sleep(0, data_key(b"swift") in sound.blocks))
            assert hung.peak == MAX_LINES
            hung.gate.set()
            async with asyncio.timeout(30):
                await until(lambda: asyncio.sleep(0, len(hung.blocks) == 30))
            assert hung.peak == MAX_LINES

    play(scenario)


def test_no_verdict_is_asked_of_a_large_bundle(home_directory: Path, tls: ssl.SSLContext) -> None:
    """It would count as so many requests that the server sends us away, with what others sent."""
    small = SmallServer(tls)
    moment = now()
    mails = [message(user(330), date=moment, data=b"mail %d" % each) for each in range(65)]
    key = mailbox_key("0", user(330))

    async def scenario() -> None:
        async with (
            serving_small(small) as (address, _),
            running(home_directory) as (home,),
            await log_in(home, user(331)) as remote,
        ):
            for count, asked in ((65, 0), (64, 1)):
                body = (post_to(address), *join_bundle(mails[:count]))
                assert await remote.post(StoreProxy(key), body) is Word.DONE
                rows = await settled(remote)
                assert {row.state for row in rows} == {QueueState.DELIVERED}
                questions = [each for each in small.events if isinstance(each, AskVerdict)]
                assert len(questions) == asked

    play(scenario)


def test_a_server_at_which_three_users_break_off_is_down(
    home_directory: Path, tls: ssl.SSLContext
) -> None:
    """Whoever was sending: it is looked at apart from then on, and keeps no workers."""
    blocks = [b"break %d" % number for number in range(3)]
    moody = MoodyServer(tls, breaks={data_key(each) for each in blocks})

    async def scenario() -> None:
        async with (
            serving_small(moody) as (address, _),
            running(home_directory) as (home,),
        ):
            for number, data in enumerate(blocks):
                await hand_in(home, user(310 + number), data, post_to(address))
            await until(lambda: asyncio.sleep(0, home.office.postman.routes.is_down(address)))

    play(scenario)


def test_data_goes_before_the_mail_that_names_it_whatever_was_handed_in_first(
    home_directory: Path, tls: ssl.SSLContext
) -> None:
    """All is due at the same moment, and the mail is not sent while one of its blocks is."""
    target, clock = MoodyServer(tls), TurnedClock(now())
    blocks = [b"named %d" % number for number in range(3)]
    target.gate.clear()

    async def scenario() -> None:
        async with (
            serving_small(target) as (address, _),
            running(home_directory, clock=clock) as (home,),
            await log_in(home, user(61)) as remote,
        ):
            after, line = clock.moment + timedelta(hours=1), post_to(address)
            for data in blocks:
                mail = message(user(62), data=data)
                assert await send_mail(remote, mail, line, after=after) is Word.DONE
            for data in blocks:
                key, lines = data_lines(data, clock.moment)
                command = StoreProxy(key, after)
                word = await remote.post_data(command, (line, *lines), len(data), (data,))
                assert word is Word.DONE
            clock.turn(hours=1)
            await until(lambda: asyncio.sleep(0, len(target.stored) == 3))
            target.gate.set()
            rows = await settled(remote, 6)
            assert {row.state for row in rows} == {QueueState.DELIVERED}
        data_keys = [data_key(data) for data in blocks]
        assert sorted(target.stored[:3], key=str) == sorted(data_keys, key=str)
        assert set(target.stored[3:]) == {mailbox_key("0", user(62))}

    play(scenario)


def test_a_block_for_two_targets_with_a_common_server_is_sent_there_once_even_at_once(
    home_directory: Path, tls: ssl.SSLContext
) -> None:
    """Who finds it on its way leaves it alone, and takes what comes of it for its own target."""
    common, data = MoodyServer(tls), b"large" * 200_000
    common.gate.clear()

    async def scenario() -> None:
        dead = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        nobody = ServerAddress("127.0.0.1", dead.sockets[0].getsockname()[1])
        dead.close()
        await dead.wait_closed()
        async with (
            serving_small(common) as (address, _),
            running(home_directory) as (home,),
            await log_in(home, user(63)) as remote,
        ):
            await send_data(remote, data, post_to(address), post_to(nobody, address))
            await until(lambda: asyncio.sleep(0, common.open == 2))
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await until(lambda: asyncio.sleep(0, len(common.stored) > 1))
            common.gate.set()
            rows = await settled(remote, 2)
            assert {row.state for row in rows} == {QueueState.DELIVERED}
        assert common.stored == [data_key(data)]

    play(scenario)


def test_a_block_that_one_server_fails_is_taken_by_the_other(
    home_directory: Path, tls: ssl.SSLContext
) -> None:
    """Of a group, the second one is tried at once."""
    data = b"only for one of them"
    moody = MoodyServer(tls, fails={data_key(data)})
    sound = SmallServer(tls)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            first, _ = await stack.enter_async_context(serving_small(moody))
            second, _ = await stack.enter_async_context(serving_small(sound))
            (home,) = await stack.enter_async_context(running(home_directory))
            async with await log_in(home, user(20)) as remote:
                for number in range(4):
                    data_here = data if number == 0 else data + b"%d" % number
                    await send_data(remote, data_here, post_to(first, second))
                rows = await settled(remote, 4)
                assert {row.state for row in rows} == {QueueState.DELIVERED}
        assert data_key(data) in sound.blocks

    play(scenario)


@pytest.mark.parametrize(
    "banner",
    [
        b"220 mail.example ESMTP\r\n",
        b"\x00" * 40_000,
        b"CONFIDANT MAIL SERVER PROTOCOL 1 BUSY\r\n",
    ],
)
def test_a_target_that_is_no_mail_server_keeps_only_its_own_mail_waiting(
    home_directory: Path, tls: ssl.SSLContext, banner: bytes
) -> None:
    """Whatever it says, the row waits with a reason, and other targets are served."""
    nonsense, sound = ScriptedServer(banner), SmallServer(tls)

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            strange = await stack.enter_async_context(nonsense.serving())
            good, _ = await stack.enter_async_context(serving_small(sound))
            (home,) = await stack.enter_async_context(running(home_directory))
            async with await log_in(home, user(30 + len(banner) % 97)) as remote:
                await send_data(remote, b"to nobody", post_to(strange))
                await send_data(remote, b"to somebody", post_to(good))

                async def told() -> dict[BlockKey, QueueRow]:
                    return {row.key: row for row in await queue_of(remote)}

                async def both_tried() -> bool:
                    return all(row.last is not None for row in (await told()).values())

                await until(both_tried)
                rows = await told()
                assert rows[data_key(b"to somebody")].state is QueueState.DELIVERED
                assert rows[data_key(b"to nobody")].state is QueueState.WAITING
                assert rows[data_key(b"to nobody")].code == "busy"

    play(scenario)


def test_we_never_mail_ourselves_by_another_name(home_directory: Path) -> None:
    """A connection that shows our own key is left, and the block admitted here."""

    async def scenario() -> None:
        async with running(home_directory, listen="0.0.0.0:0") as (home,):
            async with await log_in(home, user(40)) as remote:
                mail = message(user(41), mailbox="9")
                await open_account(home, user(41))
                await send_data(remote, b"round about", post_to(home))
                await send_mail(remote, mail, post_to(home))
                rows = await settled(remote, 2)
                assert [row.code for row in rows] == ["-", "recipient"]
            assert home.office.postman.routes.is_known(address_of(home)) is False

    play(scenario)
