"""STARTTLS, both roles: no plaintext crosses into TLS, and no secret leaves without it."""

import asyncio
import contextlib
import ssl

import pytest
from tests.net.conftest import Identity
from tests.net.small_server import (
    AUTH_KEY,
    LOOPBACK,
    READY,
    USERID,
    ScriptedServer,
    SmallServer,
    serving,
)

from sealmail_net.dialing import dial
from sealmail_net.errors import NetworkError, NoTls, TlsFailed
from sealmail_net.pins import MemoryPins
from sealmail_net.tls import client_context
from sealmail_protocol.commands import Login, Ping, StartTls
from sealmail_protocol.errors import ProtocolError

LOGIN = f"LOGIN {USERID} {AUTH_KEY}\r\n".encode()


def test_both_roles_meet_inside_tls(identity: Identity) -> None:
    """After the upgrade commands and answers travel inside TLS, and the pin is known."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with (
            serving(server) as (address, _),
            await dial(address, LOOPBACK, MemoryPins(), strict_pin=True) as remote,
        ):
            assert remote.pin == identity.pin
            assert remote.address == address
            assert await remote.ping("inside") == "inside"
        assert server.events == [StartTls(), Ping("inside")]
        assert server.errors == []

    asyncio.run(scene())


def test_plaintext_in_the_segment_of_starttls_is_refused(identity: Identity) -> None:
    """A LOGIN behind STARTTLS in one segment is not executed, and the connection ends."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server) as (address, _):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await reader.readline()
            writer.write(b"STARTTLS\r\n" + LOGIN)
            assert b"PROCEED" not in await _rest(reader)
            writer.close()
        assert server.events == []
        assert isinstance(server.errors[0], ProtocolError)

    asyncio.run(scene())


def test_plaintext_after_proceed_is_refused_by_the_server(identity: Identity) -> None:
    """A LOGIN in clear where the handshake belongs fails the handshake."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server) as (address, _):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await reader.readline()
            writer.write(b"STARTTLS\r\n")
            assert await reader.readline() == b"PROCEED\r\n"
            writer.write(LOGIN)
            assert b"DONE" not in await _rest(reader)
            writer.close()
        assert server.events == [StartTls()]
        assert isinstance(server.errors[0], TlsFailed)

    asyncio.run(scene())


def test_plaintext_injected_while_the_client_goes_on_with_tls(identity: Identity) -> None:
    """An injected line before an honest handshake never becomes a command of the client."""

    async def scene() -> None:
        server = SmallServer(identity.context())
        async with serving(server) as (address, _):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            await reader.readline()
            writer.write(b"STARTTLS\r\n")
            await writer.drain()
            writer.write(LOGIN + _client_hello())
            assert b"DONE" not in await _rest(reader)
            writer.close()
        assert not any(isinstance(event, Login) for event in server.events)
        assert isinstance(server.errors[0], ProtocolError | TlsFailed)

    asyncio.run(scene())


def test_plaintext_behind_proceed_is_refused_by_the_client() -> None:
    """Answers injected behind PROCEED are not taken for answers from inside TLS."""

    async def scene() -> None:
        fake = ScriptedServer(READY, b"PROCEED\r\nENCRYPTED\r\nDONE\r\n")
        async with fake.serving() as address:
            with pytest.raises(NoTls, match="plaintext"):
                await dial(address, LOOPBACK, MemoryPins(), strict_pin=True)
        assert bytes(fake.received) == b"STARTTLS\r\n"

    asyncio.run(scene())


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"INVALID COMMAND\r\n", id="unknown"),
        pytest.param(b"FAILED\r\n", id="refused"),
        pytest.param(b"DONE\r\n", id="another-word"),
        pytest.param(b"\x16\x03\x01 garbage\r\n", id="garbage"),
        pytest.param(b"ENCRYPTED\r\n", id="without-handshake"),
        pytest.param(b"x" * 20_000, id="endless-line"),
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_a_stripped_starttls_ends_the_connection(answer: bytes, strict: bool) -> None:
    """Without PROCEED the client hangs up; the server has seen STARTTLS and nothing else."""

    async def scene() -> None:
        fake = ScriptedServer(READY, answer)
        async with fake.serving() as address:
            with pytest.raises(NoTls, match="nothing was sent in clear"):
                async with await dial(
                    address, LOOPBACK, MemoryPins(), strict_pin=strict
                ) as remote:
                    await remote.login(USERID, AUTH_KEY)
        assert bytes(fake.received) == b"STARTTLS\r\n"

    asyncio.run(scene())


def test_proceed_without_a_handshake_sends_no_secret() -> None:
    """A server that talks on in clear after PROCEED gets a ClientHello and no LOGIN."""

    async def scene() -> None:
        fake = ScriptedServer(READY, b"PROCEED\r\n", b"ENCRYPTED\r\n")
        async with fake.serving() as address:
            with pytest.raises(NetworkError):
                async with await dial(address, LOOPBACK, MemoryPins(), strict_pin=True) as remote:
                    await remote.login(USERID, AUTH_KEY)
        assert b"LOGIN" not in fake.received
        assert AUTH_KEY.encode() not in fake.received

    asyncio.run(scene())


def _client_hello() -> bytes:
    """Return the first bytes of an honest handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        client_context().wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), 5)
    except ConnectionError:
        return b""
