"""A peer that behaves as an original with Entangled does: it checks little and says DONE."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sealmail_net.link import PeerLink
from sealmail_net.listening import serve
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.bodies import DataChunk, DataStarted, TextBody
from sealmail_protocol.commands import GetEntangled, Quit, StartTls, StoreEntangled
from sealmail_protocol.conversation import Closed
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Banner, Word
from sealmail_server.tls_identity import TlsIdentity


@dataclass
class OriginalPeer:
    """Gives what is under a key, and keeps what is stored; ``asked`` is how often it was asked."""

    identity: TlsIdentity
    values: dict[BlockKey, bytes] = field(default_factory=dict)
    stored: list[tuple[BlockKey, bytes]] = field(default_factory=list)
    asked: list[GetEntangled] = field(default_factory=list)
    stalls: bool = False

    async def session(self, link: PeerLink) -> None:
        """Serve one connection."""
        link.write(link.conversation.send(Banner()))
        while not isinstance(event := await link.next_event(), Closed | Quit):
            match event:
                case StartTls():
                    await link.start_tls_as_server(self.identity.context())
                    continue
                case GetEntangled(key=key):
                    self.asked.append(event)
                    if self.stalls:
                        await asyncio.sleep(3600)
                    if key in self.values:
                        link.write(self.values[key])
                        await link.drain()
                        continue
                    answer = Word.NOT_FOUND
                case StoreEntangled(key=key):
                    self.stored.append((key, await _body(link)))
                    answer = Word.DONE
                case _:
                    answer = Word.INVALID_COMMAND
            link.write(link.conversation.send(answer))
            await link.drain()

    @asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[ServerAddress]:
        """Run it on a port of loopback."""
        async with await serve("127.0.0.1", port, self.session) as listener:
            yield ServerAddress("127.0.0.1", listener.port)


async def _body(link: PeerLink) -> bytes:
    event = await link.next_event()
    if isinstance(event, TextBody):
        return b"".join(line + b"\r\n" for line in event.lines)
    assert isinstance(event, DataStarted)
    body = b"".join(line + b"\r\n" for line in event.lines)
    while isinstance(chunk := await link.next_event(), DataChunk):
        body += chunk.data
    return body
