"""A small mail server: the real listener and conversation over a dictionary of blocks."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sealmail_net.dialing import DialSettings
from sealmail_net.link import PeerLink
from sealmail_net.listening import Listener, serve
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.bodies import DataChunk, DataStarted, OversizedBody, TextBody
from sealmail_protocol.commands import (
    AskVerdict,
    Capabilities,
    DnsTxt,
    GetServer,
    Login,
    Ping,
    Quit,
    StartTls,
    StoreServer,
)
from sealmail_protocol.conversation import Closed, Invalid, ServerEvent
from sealmail_protocol.dns_records import txt_lines
from sealmail_protocol.fields import join_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Accepted, Banner, Listing, Pong, Word

LOOPBACK = DialSettings(allow_private_targets=True, connect_deadline=5.0, answer_deadline=5.0)
USERID = "C3202B03EB24B1A156DD2F2BB4F5C41CE3E5967D"
READY = b"CONFIDANT MAIL SERVER PROTOCOL 1 READY\r\n"
AUTH_KEY = "CorrectHorseBatteryStaple"


@dataclass(slots=True)
class SmallServer:
    """Serves what the tests ask for; ``events`` is what it was told, in order.

    ``original``: it knows no extensions. ``cut_after``: it ends within the answer to a GET.
    ``cut_stores``: it ends within the body of a STORE. ``texts`` are what DNS says.
    """

    tls: ssl.SSLContext
    banner: Banner = field(default_factory=Banner)
    blocks: dict[BlockKey, bytes] = field(default_factory=dict)
    events: list[ServerEvent] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)
    original: bool = False
    cut_after: int | None = None
    cut_stores: bool = False
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    async def session(self, link: PeerLink) -> None:
        """Serve one connection, and keep the error that ends it."""
        try:
            link.write(link.conversation.send(self.banner))
            await link.drain()
            while not isinstance(event := await link.next_event(), Closed | Quit):
                self.events.append(event)
                await self._answer(link, event)
            if isinstance(event, Quit):
                link.write(link.conversation.send(Word.GOODBYE))
        except Exception as error:
            self.errors.append(error)
            raise

    async def _answer(self, link: PeerLink, event: ServerEvent) -> None:
        send = link.conversation.send
        match event:
            case StartTls():
                await link.start_tls_as_server(self.tls)
            case Login(auth_key=key):
                link.write(send(Word.DONE if key == AUTH_KEY else Word.FAILED))
            case Ping(text=text):
                link.write(send(Pong(text)))
            case AskVerdict() | Capabilities() if self.original:
                link.write(send(Word.INVALID_COMMAND))
            case AskVerdict():
                link.write(send(Accepted()))
            case Capabilities():
                link.write(send(Listing(("VERDICT", "TIME 2026-01-01-00-00-00", "PARTNER 1"))))
            case DnsTxt(name=name):
                texts = self.texts.get(name)
                link.write(send(Listing(txt_lines(texts)) if texts else Word.NOT_FOUND))
            case StoreServer() if self.cut_stores:
                await link.next_event()
                await link.hang_up()
            case StoreServer(key=key):
                self.blocks[key] = await _body(link)
                link.write(send(Word.DONE))
            case GetServer(key=key):
                await _write(link, self.blocks.get(key, send(Word.NOT_FOUND))[: self.cut_after])
                if self.cut_after is not None:
                    await link.finish()
            case Invalid():
                link.write(send(Word.INVALID_COMMAND))
        await link.drain()


async def _body(link: PeerLink) -> bytes:
    """Read a body and return it as it will be sent to who asks for it."""
    first = await link.next_event()
    if isinstance(first, TextBody):
        return b"".join(line + b"\r\n" for line in (*first.lines, b"EndBlock"))
    if isinstance(first, OversizedBody):
        return join_lines(("EndBlock",))
    assert isinstance(first, DataStarted)
    whole = bytearray(b"".join(line + b"\r\n" for line in first.lines))
    while isinstance(event := await link.next_event(), DataChunk):
        whole += event.data
    return bytes(whole)


async def _write(link: PeerLink, whole: bytes) -> None:
    for start in range(0, len(whole), 65_536):
        link.write(whole[start : start + 65_536])
        await link.drain()


@asynccontextmanager
async def serving(
    server: SmallServer, idle_seconds: float = 10.0
) -> AsyncIterator[tuple[ServerAddress, Listener]]:
    """Run a small server on a free port of loopback."""
    async with await serve("127.0.0.1", 0, server.session, idle_seconds=idle_seconds) as listener:
        yield ServerAddress("127.0.0.1", listener.port), listener


class ScriptedServer:
    """A fake server that plays a script and records every byte it was sent."""

    def __init__(self, *lines: bytes) -> None:
        self._lines = lines
        self.received = bytearray()
        self.connections = 0

    async def play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send the first line at once, and each further one when something has come."""
        self.connections += 1
        try:
            for number, line in enumerate(self._lines):
                if number:
                    self.received += await reader.read(65_536)
                writer.write(line)
                await writer.drain()
            while data := await reader.read(65_536):
                self.received += data
        except ConnectionError:
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[ServerAddress]:
        """Play on a free port of loopback."""
        server = await asyncio.start_server(self.play, "127.0.0.1", 0)
        async with server:
            yield ServerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
