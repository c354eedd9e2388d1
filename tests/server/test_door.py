"""The door: how many come in, who is slowed, what a flood costs, and how everybody leaves."""

import asyncio
import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.dialogues.server.playing import BANNER, Player
from tests.server.inside import TurnedClock, address_of, banner_of, connect, make_server, serving
from tests.server.starting import operate, started_server
from tests.server.users import User, data_lines, message, now

from sealmail_net.errors import NetworkError
from sealmail_protocol import commands
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.canonical import BodyDigest, block_digest
from sealmail_protocol.commands import (
    AskVerdict,
    Command,
    DnsTxt,
    GetDhtValue,
    GetEntangled,
    GetServer,
    ListDhtValues,
    Login,
    SelfTest,
    StoreDhtValue,
    StoreEntangled,
)
from sealmail_protocol.dates import format_date
from sealmail_protocol.keys import BlockKey, KeyId, mailbox_key
from sealmail_protocol.policy import RATE_LIMITED
from sealmail_protocol.replies import Accepted, Pending, Word
from sealmail_server.bundle_memory import MAX_IN_BUNDLE
from sealmail_server.doorkeeper import room_for
from sealmail_server.service import Server
from sealmail_server.session import MAX_DELAY
from sealmail_server.sources import Allowance

DIGEST, KEY = b"d" * 32, BlockKey(b"k" * 20)
# One of each that strangers may repeat only so often.
LIMITED: tuple[Command, ...] = (
    SelfTest(),
    DnsTxt("cmsvr.a.example"),
    AskVerdict(DIGEST),
    GetEntangled(KEY),
    StoreEntangled(KEY),
    GetDhtValue(KEY, DIGEST),
    ListDhtValues(KEY),
    StoreDhtValue(KEY),
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one server directory, for the tests that run it inside their process."""
    made = tmp_path_factory.mktemp("door") / "data"
    make_server(made, present())
    return made


@pytest.fixture(scope="module")
def owner() -> Iterator[User]:
    """Return a user with a GnuPG key."""
    with tempfile.TemporaryDirectory() as place:
        made = User.create(Path(place) / "o", "olga")
        yield made
        made.close()


def present() -> TurnedClock:
    """Return a clock that shows the present and stands still."""
    return TurnedClock(datetime.now(UTC))


def use_up(allowance: Allowance, source: str) -> None:
    """Let a source run into such debt that it will be sent away."""
    while allowance.wait(source, time.monotonic()) <= 2 * MAX_DELAY:
        allowance.charge(source, time.monotonic())


def answers_to(command: Command, server: Server) -> list[str]:
    """Return what a stranger hears who says something harmless, and then ``command``."""
    player = Player(address_of(server))
    try:
        player.enter("anonymous", {})
        answers = []
        for said in ("PING not limited", GetServer(KEY), command):
            player.say(str(said))
            answers.append(player.hear())
    finally:
        player.close()
    return answers


async def connected_from(host: str, server: Server) -> str:
    """Return the first line that a connection from another loopback address is given."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", server.status().listen.port, local_addr=(host, 0)
    )
    line = await reader.readline()
    writer.close()
    return line.decode().strip()


def test_connections_are_bounded_for_each_source_and_in_all(directory: Path) -> None:
    """Two from one address, three in all; who leaves makes room."""

    async def run() -> None:
        bounds = {"max_connections": 3, "max_connections_per_source": 2}
        async with serving(directory, present(), **bounds) as server:
            first = await connect(server)
            second = await connect(server)
            assert (await banner_of(server)).ending == "BUSY"
            assert (await connected_from("127.0.0.2", server)).endswith("READY")
            await second.quit()
            await asyncio.to_thread(wait_until, lambda: server.status().connections == 1)
            assert (await banner_of(server)).ready
            await first.quit()

    asyncio.run(run())


def test_a_stranger_who_asks_too_much_is_sent_away_and_a_user_is_not(directory: Path) -> None:
    """The limit is the source's; other sources, known users and mail are not touched by it."""

    async def run() -> None:
        async with serving(directory, present(), dht=True, dht_network="a door") as server:
            made = await server.operator.fulfil({"do": "account add", "userid": "BUSYUSER"})
            use_up(server.services.requests, "127.0.0.1")
            async with await connect(server) as user:
                assert await user.login("BUSYUSER", made["auth_key"])
                assert await user.verdict(DIGEST) is None
            for each in LIMITED:
                assert await asyncio.to_thread(answers_to, each, server) == [
                    "PONG not limited",
                    "NOT FOUND",
                    "(closed)",
                ], each
            assert server.services.requests.wait("127.0.0.2", time.monotonic()) == 0

    asyncio.run(run())


def test_every_limited_command_is_tried_at_the_door() -> None:
    """None is left out of the list above."""
    assert {type(command) for command in LIMITED} == RATE_LIMITED


def test_the_verdict_of_a_bundle_counts_by_its_entries(directory: Path) -> None:
    """A lookup for each of 4096 entries is worth more than one command, also to a user."""
    texts = [line for number in range(MAX_IN_BUNDLE) for line in ("NextMessage", f"No: {number}")]
    texts[0] = "Type: message-announcement"
    digest = BodyDigest.of(text.encode() for text in texts)

    async def run() -> None:
        async with (
            serving(directory, present(), stranger_requests_per_second=1) as server,
            await connect(server) as stranger,
        ):
            assert await stranger.store(KEY, texts) is Word.DONE
            assert await stranger.verdict(DIGEST) is None
            with pytest.raises(NetworkError):
                await stranger.call(AskVerdict(digest))
            made = await server.operator.fulfil({"do": "account add", "userid": "BUSYUSER"})
            async with await connect(server) as user:
                assert await user.login("BUSYUSER", made["auth_key"])
                with pytest.raises(NetworkError):
                    await user.call(AskVerdict(digest))

    asyncio.run(run())


def test_wrong_keys_slow_their_source_and_lock_no_userid(directory: Path) -> None:
    """Failures are counted where they come from; the user himself logs in from elsewhere."""

    async def run() -> None:
        async with serving(directory, present()) as server:
            made = await server.operator.fulfil({"do": "account add", "userid": "CALMUSER"})
            async with await connect(server) as guesser:
                assert await guesser.call(Login("CALMUSER", "W" * 40)) is Word.FAILED
            failed = server.services.failed_logins
            assert len(failed) == 1
            use_up(failed, "127.0.0.1")
            async with await connect(server) as guesser:
                with pytest.raises(NetworkError):
                    await guesser.login("CALMUSER", made["auth_key"])
            assert await asyncio.to_thread(log_in_from, "127.0.0.3", server, made["auth_key"])

    asyncio.run(run())


def log_in_from(host: str, server: Server, auth_key: str) -> bool:
    """Log in from another loopback address."""
    player = Player(address_of(server), host)
    try:
        player.enter("calm", {"calm": ("CALMUSER", auth_key)})
    finally:
        player.close()
    return True


def test_who_is_removed_is_cut_off(directory: Path) -> None:
    """Removing an account ends the sessions that it has open."""

    async def run() -> None:
        async with serving(directory, present()) as server:
            made = await server.operator.fulfil({"do": "account add", "userid": "LEAVINGUSER"})
            async with await connect(server) as remote:
                assert await remote.login("LEAVINGUSER", made["auth_key"])
                await server.operator.fulfil({"do": "account remove", "userid": "LEAVINGUSER"})
                with pytest.raises(NetworkError):
                    await remote.ping()

    asyncio.run(run())


def test_a_stop_lets_a_running_command_end(tmp_path: Path) -> None:
    """Idle connections end at once; a body on its way is taken and answered DONE."""
    data = b"on its way " * 20_000
    key, lines = data_lines(data)
    with started_server(tmp_path / "data") as server:
        idle, busy = Player(server.address), Player(server.address)
        for player in (idle, busy):
            player.enter("anonymous", {})
        for line in (f"STORE SERVER {key}", *lines):
            busy.say(line)
        busy.send(data[:-1])
        # The command runs when its bytes reach the disk.
        wait_until(lambda: any((server.directory / "store" / "incoming").iterdir()))
        server.process.terminate()
        idle.expect("(closed)", "idle")
        idle.close()
        with pytest.raises(OSError, match="refused"):
            Player(server.address)
        busy.send(data[-1:])
        busy.expect("DONE", "busy")
        busy.expect("(closed)", "busy")
        busy.close()
        assert server.process.wait(20) == 0


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for something that is bound to happen."""
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


def test_mail_that_waits_for_an_account_is_taken_when_it_comes(
    directory: Path,
) -> None:
    """PENDING for somebody unknown, ACCEPTED once the operator has made the account."""
    stranger = KeyId(b"a stranger's key id."[:20])
    mail = message(stranger)

    async def run() -> None:
        async with serving(directory, present()) as server, await connect(server) as remote:
            assert await remote.store(mailbox_key("0", stranger), mail.lines) is Word.DONE
            assert await remote.verdict(block_digest(mail)) == Pending()
            await server.operator.fulfil({"do": "account add", "userid": stranger.hex})
            assert await remote.verdict(block_digest(mail)) == Accepted()

    asyncio.run(run())


def test_no_room_is_said_after_the_body_and_the_connection_goes_on(directory: Path) -> None:
    """Data beyond the share of one source is FAILED once, whatever follows it."""
    data = b"more than there is room for " * 10_000
    key, lines = data_lines(data)

    async def run() -> None:
        room = {"loose_bytes": 100_000, "loose_bytes_by_source": 100_000}
        async with (
            serving(directory, present(), **room) as server,
            await connect(server) as remote,
        ):
            answer = await remote.store_data(key, parse_data_header(lines), [data])
            assert answer is Word.FAILED
            assert await remote.ping("still in step") == "still in step"

    asyncio.run(run())


def test_room_is_made_for_open_files() -> None:
    """More connections than files is noticed before the files run out."""
    assert room_for(10) == 10
    assert 1 <= room_for(10**9) < 10**9


def test_a_flood_of_connections_costs_a_bounded_number_of_files(tmp_path: Path) -> None:
    """Four hundred connections, half-open handshakes among them, leave the server at its bound."""
    settings = (
        "max_connections = 50",
        "max_connections_per_source = 50",
        'direct_tls_listen = "127.0.0.1:0"',
    )
    with started_server(tmp_path / "data", *settings) as server, ExitStack() as stack:
        pid = server.process.pid
        before, memory_before = open_files(pid), memory_of(pid)
        status = operate("status", "--data", str(server.directory), "--json")
        found = re.search(r'"direct_tls_listen": "127\.0\.0\.1:([0-9]+)"', status)
        assert found is not None
        for number in range(400):
            port = int(found[1]) if number % 2 else server.address.port
            wire = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            if not number % 2:
                assert wire.recv(100).endswith((b"READY\r\n", b"BUSY\r\n"))
        assert open_files(pid) <= before + 50 + 5
        assert memory_of(pid) <= memory_before + 40 * 1024
        stack.close()
        wait_until(lambda: open_files(pid) <= before + 5)
        player = Player(server.address)
        player.expect(BANNER, "after the flood")
        player.close()


def open_files(pid: int) -> int:
    """Count the files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def memory_of(pid: int) -> int:
    """Return the KiB of memory that a process has."""
    found = re.search(r"VmRSS:\s+([0-9]+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def test_the_log_of_a_whole_session_holds_no_secret(tmp_path: Path) -> None:
    """Everything is logged that can be; no auth key, right, wrong or mistyped, is among it."""
    with (tmp_path / "log").open("w+") as log:
        with started_server(tmp_path / "data", log=log, verbose="-vv") as server:
            made = operate("account", "add", "LOGGEDUSER", "--data", str(server.directory)).strip()
            short = "SHORTKEY12"
            said = [
                made,
                short,
                server.administrator,
                "WRONGKEY" * 4,
                "MISTYPED-KEY",
                "NEWKEY" * 5,
            ]
            player = Player(server.address)
            player.enter("anonymous", {})
            for line, answer in (
                (f"LOGIN LOGGEDUSER {'WRONGKEY' * 4}", "FAILED"),
                ("LOGIN LOGGEDUSER MISTYPED-KEY", "INVALID COMMAND"),
                (f"ADDLOGIN LOGGEDUSER {'NEWKEY' * 5}", "FAILED"),
                (f"LOGIN administrator {server.administrator}", "DONE"),
                (f"ADDLOGIN LOGGEDUSER {short}", "DONE"),
                (f"ADDLOGIN LOGGEDUSER {'NEWKEY' * 5}", "DONE"),
                (f"RMLOGIN {short}", "DONE"),
                ("GENLOGIN 1", "..."),
            ):
                player.say(line)
                heard = player.hear()
                assert heard == answer or answer == "...", (line, heard)
                said += [heard] if answer == "..." else []
            player.close()
            player = Player(server.address)
            player.enter("logged", {"logged": ("LOGGEDUSER", made)})
            server.process.send_signal(signal.SIGHUP)
            player.say("SHUTDOWN")
            player.expect("FAILED", "SHUTDOWN")
            player.close()
        log.seek(0)
        text = log.read()
    assert "Login(userid='LOGGEDUSER')" in text
    assert "took up the certificate" in text
    assert "fewer than 20 characters" in text
    assert [secret for secret in said if secret.lower() in text.lower()] == []


def test_a_public_announcement_takes_no_userid_over(directory: Path, owner: User) -> None:
    """Who replays another's announcement from a fresh login is not confirmed by it."""
    clock = present()
    userid = owner.key_id.hex
    old = owner.announcement(now() - timedelta(hours=2))

    async def run() -> None:
        async with serving(directory, clock) as server:
            (undefined,) = await server.operator.fulfil({"do": "account generate", "count": 1})
            async with await connect(server) as thief:
                assert await thief.login(userid, undefined)
                assert await thief.store(BlockKey(owner.key_id.raw), old.lines) is Word.DONE
                assert await thief.call(commands.Drop(mailbox_key("0", owner.key_id), DIGEST)) is (
                    Word.FAILED
                )
                rows = await server.operator.fulfil({"do": "account list"})
                assert [row["state"] for row in rows if row["userid"] == userid] == ["provisional"]
            # The owner comes with a key of the operator's; the thief then replays the newest.
            given = await server.operator.fulfil({"do": "account add", "userid": userid})
            newest = owner.announcement(clock().replace(microsecond=0) + timedelta(minutes=1))
            async with await connect(server) as remote, await connect(server) as thief:
                assert await thief.login(userid, undefined)
                assert await remote.login(userid, given["auth_key"])
                for each in (remote, thief):
                    assert await each.store(BlockKey(owner.key_id.raw), newest.lines) is Word.DONE
                drop = commands.Drop(mailbox_key("0", owner.key_id), DIGEST)
                assert await thief.call(drop) is Word.FAILED
                assert await remote.call(drop) is Word.NOT_FOUND
            clock.turn(hours=2)
            async with await connect(server) as remote:
                assert not await remote.login(userid, undefined)
                rows = await server.operator.fulfil({"do": "account list"})
                states = sorted(row["state"] for row in rows if row["userid"] == userid)
                assert states == ["confirmed", "provisional"], format_date(clock())

    asyncio.run(run())
