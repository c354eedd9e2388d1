"""Typed calls on a real server over real TLS."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest
from tests.net.conftest import Identity
from tests.net.small_server import AUTH_KEY, LOOPBACK, USERID, SmallServer, serving

from sealmail_net.dialing import dial
from sealmail_net.errors import BadAnswer, ConnectionLost, DamagedBlock, NetworkError
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_pow import Stamp
from sealmail_protocol.blocks import DataHeader
from sealmail_protocol.commands import Capabilities
from sealmail_protocol.compose import make_data_header
from sealmail_protocol.fields import join_lines
from sealmail_protocol.keys import BlockKey, data_key
from sealmail_protocol.replies import Accepted, Word

KEY = BlockKey(b"\x07" * 20)
DATE = datetime(2026, 1, 1, tzinfo=UTC)
TEXT = ("Version: 1", "Type: acknowledgment", "Date: 2026-01-01-00-00-00")


def talk(server: SmallServer, scene: Callable[[RemoteServer], Awaitable[None]]) -> None:
    """Run a scene with one connection to the server."""

    async def run() -> None:
        async with (
            serving(server) as (address, _),
            await dial(address, LOOPBACK, MemoryPins(), strict_pin=True) as remote,
        ):
            await scene(remote)

    asyncio.run(run())


def test_login_tells_success_from_failure(identity: Identity) -> None:
    """The right auth key logs in, another does not."""

    async def scene(remote: RemoteServer) -> None:
        assert not await remote.login(USERID, "wrongwrongwrong")
        assert await remote.login(USERID, AUTH_KEY)

    talk(SmallServer(identity.context()), scene)


def test_a_text_block_comes_back_as_it_was_stored(identity: Identity) -> None:
    """Lines stored are the lines read; what is not there is ``None``."""

    async def scene(remote: RemoteServer) -> None:
        assert await remote.get(KEY) is None
        assert await remote.store(KEY, TEXT) is Word.DONE
        assert await remote.get(KEY, since=DATE) == tuple(line.encode() for line in TEXT)

    talk(SmallServer(identity.context()), scene)


def test_a_bare_end_of_block_is_no_block(identity: Identity) -> None:
    """An original answers so when it has lost a block; text and data alike are ``None``."""

    async def scene(remote: RemoteServer) -> None:
        assert await remote.get(KEY) is None
        assert await remote.get_data(KEY, bytearray().extend) is None

    talk(SmallServer(identity.context(), blocks={KEY: b"EndBlock\r\n"}), scene)


def test_eight_mebibytes_go_there_and_back(identity: Identity) -> None:
    """A data block of the usual size is streamed both ways, in slices."""
    data = os.urandom(8 * 1024 * 1024)
    key, header = data_key(data), _header(len(data))
    sizes: list[int] = []
    got = bytearray()

    async def sink(chunk: bytes) -> None:
        sizes.append(len(chunk))
        got.extend(chunk)

    async def scene(remote: RemoteServer) -> None:
        pieces = (data[start : start + 1_000_000] for start in range(0, len(data), 1_000_000))
        assert await remote.store_data(key, header, pieces) is Word.DONE
        assert await remote.get_data(key, sink) == header
        assert await remote.ping("in step") == "in step"

    talk(SmallServer(identity.context()), scene)
    assert got == data
    assert max(sizes) <= 256 * 1024


def test_a_damaged_data_block_is_refused(identity: Identity) -> None:
    """Bytes of another key, or lines that are no header, are refused; the link goes on."""
    data = b"sealed bytes"
    key, lines = data_key(data), _header(len(data)).lines
    other = BlockKey(b"\x01" * 20)
    blocks = {
        key: join_lines(("Version: 1", "Type: data", f"Data: {len(data)}")) + data,
        other: join_lines(lines) + data,
        KEY: join_lines((*TEXT, "EndBlock")),
    }

    async def scene(remote: RemoteServer) -> None:
        for damaged in blocks:
            with pytest.raises(DamagedBlock):
                await remote.get_data(damaged, bytearray().extend)
        assert await remote.ping("in step") == "in step"

    talk(SmallServer(identity.context(), blocks=blocks), scene)


def test_data_where_text_was_asked_for_is_refused(identity: Identity) -> None:
    """The bytes are read to their end and dropped, and the link goes on."""
    whole = join_lines(_header(5).lines) + b"bytes"

    async def scene(remote: RemoteServer) -> None:
        with pytest.raises(BadAnswer, match="no text block"):
            await remote.get(KEY)
        assert await remote.ping("in step") == "in step"

    talk(SmallServer(identity.context(), blocks={KEY: whole}), scene)


@pytest.mark.parametrize("pieces", [[b"four"], [b"five!", b"more"], []])
def test_data_of_another_size_than_promised_is_not_sent(
    identity: Identity, pieces: list[bytes]
) -> None:
    """The caller's mistake ends the connection; the server never takes it for a block."""
    server = SmallServer(identity.context())

    async def run() -> None:
        async with serving(server) as (address, _):
            remote = await dial(address, LOOPBACK, MemoryPins(), strict_pin=True)
            with pytest.raises(ValueError, match="5 bytes"):
                await remote.store_data(KEY, _header(5), pieces)
            with pytest.raises(NetworkError):
                await remote.ping()
            await remote.quit()

    asyncio.run(run())


@pytest.mark.parametrize("line", ["EndBlock", "endblock", "a\r\nQUIT", "a\nb"])
def test_a_line_that_would_end_the_body_is_not_sent(identity: Identity, line: str) -> None:
    """Nothing in a block can become a command."""

    async def scene(remote: RemoteServer) -> None:
        with pytest.raises(ValueError, match="not a line"):
            await remote.store(KEY, (*TEXT, line))
        assert await remote.ping("in step") == "in step"

    talk(SmallServer(identity.context()), scene)


def test_verdict_and_capabilities(identity: Identity) -> None:
    """Extensions are read once and remembered on the object; verdicts are values."""
    server = SmallServer(identity.context())

    async def scene(remote: RemoteServer) -> None:
        for _ in range(2):
            assert await remote.capabilities() == {
                "VERDICT": "",
                "TIME": "2026-01-01-00-00-00",
                "PARTNER": "1",
            }
        assert await remote.verdict(b"\x05" * 32) == Accepted()

    talk(server, scene)
    assert server.events.count(Capabilities()) == 1


def test_an_original_server_has_no_capabilities(identity: Identity) -> None:
    """INVALID COMMAND to an extension means that there is none, not an error."""

    async def scene(remote: RemoteServer) -> None:
        assert await remote.capabilities() == {}
        assert await remote.verdict(b"\x05" * 32) is None

    talk(SmallServer(identity.context(), original=True), scene)


def test_calls_made_at_once_take_turns(identity: Identity) -> None:
    """Each caller gets the answer to its own question."""

    async def scene(remote: RemoteServer) -> None:
        texts = [str(number) for number in range(20)]
        assert await asyncio.gather(*map(remote.ping, texts)) == texts

    talk(SmallServer(identity.context()), scene)


@pytest.mark.parametrize("given", [0, 40, 100_000])
def test_a_connection_cut_in_an_answer_is_a_network_error(identity: Identity, given: int) -> None:
    """Before, in the lines and in the bytes of a block: always an error of this layer."""
    data = bytes(1_000_000)
    whole = join_lines(_header(len(data)).lines) + data
    server = SmallServer(identity.context(), blocks={data_key(data): whole}, cut_after=given)

    async def run() -> None:
        async with serving(server) as (address, _):
            remote = await dial(address, LOOPBACK, MemoryPins(), strict_pin=True)
            with pytest.raises(NetworkError):
                await remote.get_data(data_key(data), bytearray().extend)
            with pytest.raises(NetworkError):
                await remote.ping()
            await remote.quit()

    asyncio.run(run())


def test_a_server_that_goes_away_during_a_store_is_a_network_error(identity: Identity) -> None:
    """The writer notices, whatever was still unsent."""
    server = SmallServer(identity.context(), cut_stores=True)

    async def run() -> None:
        async with serving(server) as (address, _):
            remote = await dial(address, LOOPBACK, MemoryPins(), strict_pin=True)
            with pytest.raises(NetworkError) as caught:
                await remote.store_data(KEY, _header(16_000_000), [bytes(1_000_000)] * 16)
            assert isinstance(caught.value, ConnectionLost)
            await remote.quit()

    asyncio.run(run())


def _header(size: int) -> DataHeader:
    return make_data_header(DATE, Stamp.parse("bd,2a,3b"), size)
