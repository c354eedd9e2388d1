"""A SOCKS5 server of the tests, which leads names to ports of loopback and notes what is asked.

It misbehaves where a test wants that.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

from sealmail_protocol.addresses import ServerAddress

_OK, _UNREACHABLE = 0, 4
_NO_LOGIN, _LOGIN = 0, 2
_IPV4, _NAME, _IPV6 = 1, 3, 4
_PIECE = 65_536


class Mood(Enum):
    """What a proxy does when it is asked for something."""

    HONEST = auto()
    SILENT = auto()  # takes the connection and never answers
    DRIPPING = auto()  # answers a byte now and then
    GARBLED = auto()  # speaks another language
    REFUSING = auto()  # says that there is no way
    CUTTING = auto()  # hangs up in the middle
    SELECTIVE = auto()  # wants an authentication that nobody has


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: whom it named, and as whom it came."""

    host: str
    port: int
    user: str = ""
    password: str = ""


@dataclass
class SocksServer:
    """Serves SOCKS5; ``hosts`` says which port, of loopback if alone, stands for a name.

    Who asks for one of ``pits`` waits for ever, as for an onion service that has gone; for one
    of ``far_off``, so many seconds, as while a circuit is built.
    """

    hosts: Mapping[str, int | tuple[str, int]] = field(default_factory=dict)
    pits: Collection[str] = ()
    far_off: Mapping[str, float] = field(default_factory=dict)
    mood: Mood = Mood.HONEST
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0

    @asynccontextmanager
    async def serving(
        self, host: str = "127.0.0.1", port: int = 0
    ) -> AsyncIterator[ServerAddress]:
        """Serve on a free port of loopback, or as told."""
        server = await asyncio.start_server(self._serve, host, port)
        try:
            yield ServerAddress(host, server.sockets[0].getsockname()[1])
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._shake(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _shake(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match self.mood:
            case Mood.SILENT:
                await reader.read()
                return
            case Mood.DRIPPING:
                for byte in b"\x05\x00\x05\x00\x00\x01" + bytes(60):
                    writer.write(bytes((byte,)))
                    await asyncio.sleep(0.2)
                return
            case Mood.GARBLED:
                writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                await reader.read()
                return
            case Mood.SELECTIVE:
                writer.write(b"\x05\xff")
                await reader.read()
                return
        user, password = await _login(reader, writer)
        asked = await _request(reader, user, password)
        self.asked.append(asked)
        if self.mood is Mood.CUTTING:
            writer.write(b"\x05\x00\x00")
            return
        if asked.host in self.pits:
            await reader.read()
            return
        await asyncio.sleep(self.far_off.get(asked.host, 0))
        far = self.hosts.get(asked.host)
        if self.mood is Mood.REFUSING or far is None:
            writer.write(_answer(_UNREACHABLE))
            return
        far_host, far_port = far if isinstance(far, tuple) else ("127.0.0.1", far)
        far_reader, far_writer = await asyncio.open_connection(far_host, far_port)
        writer.write(_answer(_OK))
        async with asyncio.TaskGroup() as group:
            group.create_task(_pass_on(reader, far_writer))
            group.create_task(_pass_on(far_reader, writer))


async def _login(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, str]:
    version, count = await reader.readexactly(2)
    assert version == 5
    methods = await reader.readexactly(count)
    if _LOGIN not in methods:
        writer.write(bytes((5, _NO_LOGIN)))
        return "", ""
    writer.write(bytes((5, _LOGIN)))
    await reader.readexactly(1)
    user = await reader.readexactly((await reader.readexactly(1))[0])
    password = await reader.readexactly((await reader.readexactly(1))[0])
    writer.write(b"\x01\x00")
    return user.decode(), password.decode()


async def _request(reader: asyncio.StreamReader, user: str, password: str) -> Asked:
    _, command, _, kind = await reader.readexactly(4)
    assert command == 1
    match kind:
        case int() if kind == _NAME:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        case int() if kind == _IPV4:
            host = ".".join(map(str, await reader.readexactly(4)))
        case _:
            assert kind == _IPV6
            host = (await reader.readexactly(16)).hex(":", 2)
    port = int.from_bytes(await reader.readexactly(2))
    return Asked(host, port, user, password)


def _answer(code: int) -> bytes:
    return bytes((5, code, 0, _IPV4)) + bytes(6)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
