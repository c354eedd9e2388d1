"""The link itself: deadlines, back-pressure both ways, and ends of every kind."""

import asyncio
import socket
import struct
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.net.conftest import Identity
from tests.net.small_server import LOOPBACK, READY, SmallServer, serving
from tests.net.test_remote_server import DATE

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import NetworkError, Timeout
from sealmail_net.link import MAX_UNREAD, PeerLink
from sealmail_net.listening import Listener, SessionHandler, serve
from sealmail_net.pins import MemoryPins
from sealmail_pow import Stamp
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.commands import Ping, StartTls
from sealmail_protocol.compose import make_data_header
from sealmail_protocol.conversation import Closed
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Banner, Pong

MEBIBYTE = 1024 * 1024
# What asyncio may read at once, on top of what already waited.
LARGEST_READ = 256 * 1024


def test_a_peer_that_sends_a_byte_now_and_then_hits_the_deadline(identity: Identity) -> None:
    """Single bytes do not move the deadline: a command must come, or real progress."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server, idle_seconds=0.4) as (address, _):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await reader.readline()
            try:
                for _ in range(15):
                    writer.write(b"P")
                    await asyncio.sleep(0.1)
                    if server.errors:
                        break
            finally:
                writer.close()
        assert [type(error) for error in server.errors] == [Timeout]

    asyncio.run(scene())


def test_data_that_come_a_byte_now_and_then_hit_the_deadline(identity: Identity) -> None:
    """Each byte of a data block is handed on as it comes, and yet moves no deadline."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server, idle_seconds=0.4) as (address, _):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await reader.readline()
            writer.write(
                f"STORE SERVER {BlockKey(bytes(20))}\r\nType: data\r\nData: 99\r\n".encode()
            )
            try:
                for _ in range(15):
                    writer.write(b"x")
                    await asyncio.sleep(0.1)
                    if server.errors:
                        break
            finally:
                writer.close()
        assert [type(error) for error in server.errors] == [Timeout]

    asyncio.run(scene())


def test_data_at_the_pace_of_the_slowest_are_waited_for(identity: Identity) -> None:
    """A block may take many times the deadline, as long as it comes fast enough."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server, idle_seconds=0.4) as (address, _):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await reader.readline()
            writer.write(
                f"STORE SERVER {BlockKey(bytes(20))}\r\nType: data\r\nData: 6000\r\n".encode()
            )
            for _ in range(12):
                writer.write(bytes(500))
                await asyncio.sleep(0.1)
            assert await reader.readline() == b"DONE\r\n"
            writer.close()
        assert server.errors == []

    asyncio.run(scene())


def test_a_long_body_that_keeps_coming_is_waited_for(identity: Identity) -> None:
    """A text block may take longer than the deadline as long as it makes progress."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server, idle_seconds=0.4) as (address, _):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await reader.readline()
            writer.write(f"STORE SERVER {BlockKey(bytes(20))}\r\n".encode())
            for _ in range(8):
                writer.write(b"Padding: " + b"x" * 2000 + b"\r\n")
                await asyncio.sleep(0.1)
            writer.write(b"Type: acknowledgment\r\nEndBlock\r\n")
            assert await reader.readline() == b"DONE\r\n"
            writer.close()
        assert server.errors == []

    asyncio.run(scene())


def test_a_flood_is_not_read_while_nobody_handles_it() -> None:
    """A peer can send without end; only so much of it is taken."""
    unread: list[int] = []

    async def idle(link: PeerLink) -> None:
        await asyncio.sleep(0.5)
        unread.append(link.unread)

    async def scene() -> None:
        async with _listening(idle) as address:
            _, writer = await asyncio.open_connection(address.host, address.port)
            flood = asyncio.ensure_future(_flood(writer))
            await asyncio.sleep(0.3)
            assert not flood.done()
            await flood
            writer.close()

    asyncio.run(scene())
    assert MAX_UNREAD < unread[0] <= MAX_UNREAD + LARGEST_READ


def test_pipelined_commands_are_all_answered_in_order() -> None:
    """Pausing and resuming loses nothing."""

    async def echo(link: PeerLink) -> None:
        while isinstance(event := await link.next_event(), Ping):
            link.write(link.conversation.send(Pong(event.text)))
            await link.drain()
        assert isinstance(event, Closed)

    async def scene() -> None:
        count = 50_000
        async with _listening(echo) as address:
            reader, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(b"".join(b"PING %d\r\n" % number for number in range(count)))
            writer.write_eof()
            expected = b"".join(b"PONG %d\r\n" % number for number in range(count))
            assert await reader.read() == expected
            writer.close()

    asyncio.run(scene())


def test_memory_stays_small_when_a_server_stalls_in_a_large_block(identity: Identity) -> None:
    """Two ends of a stalled 16 MB upload over TLS hold less than 1 MiB each."""

    async def stall(link: PeerLink) -> None:
        link.write(link.conversation.send(Banner()))
        assert isinstance(await link.next_event(), StartTls)
        await link.start_tls_as_server(identity.context())
        await link.next_event()
        await asyncio.sleep(30)

    async def scene() -> int:
        hasty = DialSettings(allow_private_targets=True, answer_deadline=1.0)
        header = make_data_header(DATE, Stamp.parse("bd,2a,3b"), 16_000_000)
        chunk = bytes(1_000_000)
        async with _listening(stall) as address:
            # Before dialing, since the buffers of TLS are made in the handshake.
            tracemalloc.start()
            try:
                remote = await dial(address, hasty, MemoryPins(), strict_pin=True)
                with pytest.raises(Timeout):
                    await remote.store_data(BlockKey(bytes(20)), header, [chunk] * 16)
                await remote.quit()
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    assert asyncio.run(scene()) < 2 * MEBIBYTE


def test_a_peer_that_does_not_read_stops_the_writer() -> None:
    """``drain`` waits for the peer, then gives up; what waits to be sent stays small."""
    sent: list[int] = []
    errors: list[Exception] = []
    given_up = asyncio.Event()

    async def pour(link: PeerLink) -> None:
        sent.append(0)
        try:
            while sent[0] < 64 * MEBIBYTE:
                link.write(bytes(65_536))
                sent[0] += 65_536
                await link.drain()
        except NetworkError as error:
            errors.append(error)
            given_up.set()
            raise

    async def scene() -> None:
        async with _listening(pour, idle_seconds=0.3) as address:
            with socket.socket() as deaf:
                deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
                deaf.setblocking(False)
                loop = asyncio.get_running_loop()
                await loop.sock_connect(deaf, (address.host, address.port))
                await given_up.wait()

    asyncio.run(asyncio.wait_for(scene(), 10))
    assert isinstance(errors[0], Timeout)
    assert sent[0] < 16 * MEBIBYTE


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="at-once"),
        pytest.param(READY[:20], id="in-the-banner"),
        pytest.param(READY, id="after-the-banner"),
        pytest.param(READY + b"PRO", id="in-the-answer"),
    ],
)
@pytest.mark.parametrize("reset", [True, False])
def test_a_server_that_goes_away_is_a_network_error(said: bytes, reset: bool) -> None:
    """Closed or reset at any moment of dialing: an error of this layer, and no waiting."""

    async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        await writer.drain()
        if said.startswith(READY):
            await reader.readline()
        if reset:
            option = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, option)
        writer.close()

    async def scene() -> None:
        async with await asyncio.start_server(leave, "127.0.0.1", 0) as server:
            address = ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
            with pytest.raises(NetworkError):
                await dial(address, LOOPBACK, MemoryPins(), strict_pin=True)

    asyncio.run(asyncio.wait_for(scene(), 3))


def test_a_handshake_cut_off_ends_the_session(identity: Identity) -> None:
    """A client that leaves after PROCEED leaves nothing behind on the server."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server) as (address, listener):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await reader.readline()
            writer.write(b"STARTTLS\r\n")
            assert await reader.readline() == b"PROCEED\r\n"
            writer.close()
            await _all_gone(listener)
        assert isinstance(server.errors[0], NetworkError)

    asyncio.run(asyncio.wait_for(scene(), 5))


def test_stopping_ends_open_sessions(identity: Identity) -> None:
    """``stop`` returns although clients are still connected, in clear and inside TLS."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server) as (address, listener):
            _, writer = await asyncio.open_connection(address.host, address.port)
            remote = await dial(address, LOOPBACK, MemoryPins(), strict_pin=True)
            assert listener.sessions == 2
            await listener.stop()
            assert listener.sessions == 0
            with pytest.raises(NetworkError):
                await remote.ping()
            await remote.quit()
            writer.close()

    asyncio.run(asyncio.wait_for(scene(), 5))


def test_a_session_that_fails_does_not_touch_the_others(
    identity: Identity, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug in one session is logged, its connection is cut, and the next one is served."""
    calls: list[PeerLink] = []

    async def stumble(link: PeerLink) -> None:
        calls.append(link)
        if len(calls) == 1:
            raise ZeroDivisionError
        link.write(b"hello\r\n")

    async def scene() -> None:
        async with _listening(stumble) as address:
            answers = []
            for _ in range(2):
                reader, writer = await asyncio.open_connection(address.host, address.port)
                answers.append(await reader.read())
                writer.close()
            assert answers == [b"", b"hello\r\n"]

    asyncio.run(scene())
    assert "ZeroDivisionError" in caplog.text


def test_listening_everywhere_takes_ipv4_and_names_it_so() -> None:
    """``::`` serves IPv4 peers too, and their address is the IPv4 one."""
    names: list[tuple[str, int]] = []

    async def note(link: PeerLink) -> None:
        names.append(link.peername)

    async def scene() -> None:
        async with await serve("::", 0, note) as listener:
            reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
            await reader.read()
            writer.close()

    asyncio.run(scene())
    assert names[0][0] == "127.0.0.1"


def test_an_endless_line_ends_the_session(identity: Identity) -> None:
    """A line past the limit is a ``ProtocolError`` before it fills any buffer."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server) as (address, listener):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await reader.readline()
            writer.write(b"x" * 20_000)
            await _all_gone(listener)
            writer.close()
        assert isinstance(server.errors[0], ProtocolError)

    asyncio.run(asyncio.wait_for(scene(), 5))


async def _all_gone(listener: Listener) -> None:
    """Give the session the few turns of the loop that it needs to end."""
    for _ in range(100):
        if listener.sessions == 0:
            return
        await asyncio.sleep(0.01)
    pytest.fail("a session was left behind")


@asynccontextmanager
async def _listening(
    handler: SessionHandler, idle_seconds: float = 10.0
) -> AsyncIterator[ServerAddress]:
    async with await serve("127.0.0.1", 0, handler, idle_seconds=idle_seconds) as listener:
        yield ServerAddress("127.0.0.1", listener.port)


async def _flood(writer: asyncio.StreamWriter) -> None:
    try:
        for _ in range(512):
            writer.write(b"PING flood\r\n" * 5_000)
            await writer.drain()
    except ConnectionError:
        pass
