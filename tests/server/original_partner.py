"""A partner that behaves as an original does: no extensions, no opinion of what it gets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sealmail_net.link import PeerLink
from sealmail_net.listening import serve
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.bodies import DataChunk, DataStarted, TextBody
from sealmail_protocol.commands import (
    Capabilities,
    Login,
    PartnerList,
    Ping,
    Replicate,
    RepLogin,
    StartTls,
)
from sealmail_protocol.conversation import Closed, Invalid
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Banner, Listing, Pong, Word
from sealmail_server.tls_identity import TlsIdentity

AUTH_KEY = "OriginalsReplicationKey"


@dataclass
class OriginalPartner:
    """Keeps what it is told; refuses some keys, and hangs up at others.

    One that is ``modern`` has the extensions, of which it uses few: it lists nothing.
    ``seconds`` is what it takes for each block, ``logins`` are the auth keys that were tried,
    and ``others`` what is not for a partner.
    """

    identity: TlsIdentity
    told: list[str] = field(default_factory=list)
    refuses: set[BlockKey] = field(default_factory=set)
    hangs_up_at: set[BlockKey] = field(default_factory=set)
    stalls: bool = False
    modern: bool = False
    seconds: float = 0.0
    logins: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    async def session(self, link: PeerLink) -> None:
        """Serve one connection."""
        link.write(link.conversation.send(Banner()))
        while not isinstance(event := await link.next_event(), Closed):
            answer: Word | Pong | Listing = Word.DONE
            match event:
                case StartTls():
                    await link.start_tls_as_server(self.identity.context())
                    continue
                case Login(auth_key=key):
                    self.logins.append(key)
                    answer = Word.DONE if key == AUTH_KEY else Word.FAILED
                case Ping(text=text):
                    answer = Pong(text)
                case Capabilities() if self.modern:
                    answer = Listing(("PARTNER 1",))
                case PartnerList() if self.modern:
                    answer = Listing(())
                case Capabilities() | Invalid():
                    answer = Word.INVALID_COMMAND
                case RepLogin():
                    self.told.append(str(event))
                case Replicate(key=key):
                    await self._body(link)
                    if key in self.hangs_up_at:
                        return
                    if key in self.refuses:
                        answer = Word.FAILED
                    else:
                        self.told.append(str(event))
                case _:
                    self.others.append(str(event))
                    answer = Word.FAILED
            if isinstance(event, Replicate):
                await asyncio.sleep(self.seconds)
            if self.stalls:
                await asyncio.sleep(3600)
            link.write(link.conversation.send(answer))
            await link.drain()

    async def _body(self, link: PeerLink) -> None:
        event = await link.next_event()
        if isinstance(event, TextBody):
            return
        assert isinstance(event, DataStarted)
        while isinstance(await link.next_event(), DataChunk):
            pass

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[ServerAddress]:
        """Run it on a free port of loopback."""
        async with await serve("127.0.0.1", 0, self.session) as listener:
            yield ServerAddress("127.0.0.1", listener.port)
