"""One connection: its events turned into calls of the services, by a table of commands."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sealmail_net.link import PeerLink
from sealmail_protocol import commands
from sealmail_protocol.bodies import BODY_ENDS, DataChunk, DataEnded, DataStarted, TextBody
from sealmail_protocol.commands import BodyCommand, Command
from sealmail_protocol.conversation import Closed, Invalid
from sealmail_protocol.dates import format_date
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.policy import COMMAND_POLICY
from sealmail_protocol.replies import Accepted, Banner, LineReply, Listing, Pong, Word
from sealmail_server.accounts import is_user, log_in
from sealmail_server.intake import Intake
from sealmail_server.reading import block_slices, find_block, whole_answer
from sealmail_server.visitor import ANONYMOUS, STRANGER
from sealmail_store import BlockStore, DamagedData, DataGone, StoredEntry, StoreError
from sealmail_verify import Undecided

_log = logging.getLogger(__name__)

# Guessing auth keys is hopeless; a pause keeps it from being loud too.
LOGIN_PAUSE = 0.5


@dataclass(frozen=True, slots=True)
class Services:
    """What sessions share."""

    store: BlockStore
    intake: Intake
    tls: ssl.SSLContext
    clock: Callable[[], datetime]


class Session:
    """Serves one connection until either side ends it."""

    def __init__(self, link: PeerLink, services: Services) -> None:
        self._link = link
        self._services = services
        self._visitor = STRANGER
        self._open = True

    async def run(self) -> None:
        """Greet, then answer commands in their order."""
        await self._answer(Banner())
        while self._open:
            event = await self._link.next_event()
            match event:
                case Closed():
                    return
                case Invalid():
                    await self._answer(Word.INVALID_COMMAND)
                    self._open = not event.last
                case _:
                    await self._serve(event)

    async def _serve(self, command: Any) -> None:
        handler = HANDLERS.get(type(command))
        if handler is None or self._visitor.role not in COMMAND_POLICY[type(command)]:
            await self._decline(command)
            return
        try:
            await handler(self, command)
        except (StoreError, Undecided) as error:
            # No room now, on disk or for verifying: the sender keeps the block and tries again.
            _log.error("%s", error)
            await self._answer(Word.FAILED)

    async def _decline(self, command: Command) -> None:
        if isinstance(command, BodyCommand):
            while not isinstance(await self._link.next_event(), (*BODY_ENDS, Closed)):
                pass
        await self._answer(Word.FAILED)

    async def _answer(self, reply: LineReply | Listing) -> None:
        self._link.write(self._link.conversation.send(reply))
        await self._link.drain()

    async def _start_tls(self, _: commands.StartTls) -> None:
        if self._visitor is not STRANGER:
            await self._answer(Word.FAILED)
            return
        await self._link.start_tls_as_server(self._services.tls)
        self._visitor = ANONYMOUS

    async def _quit(self, _: commands.Quit) -> None:
        await self._answer(Word.GOODBYE)
        self._open = False

    async def _ping(self, command: commands.Ping) -> None:
        await self._answer(Pong(command.text))

    async def _capabilities(self, _: commands.Capabilities) -> None:
        now = format_date(self._services.clock())
        await self._answer(Listing((f"TIME {now}", "VERDICT")))

    async def _self_test(self, _: commands.SelfTest) -> None:
        await self._services.store.write(lambda view: view.note_time(self._services.clock()))
        await self._answer(Listing(("PASS",)))

    async def _login(self, command: commands.Login) -> None:
        now = self._services.clock()
        visitor = await self._services.store.write(
            lambda view: log_in(view, command.userid, command.auth_key, now)
        )
        if visitor is None:
            await asyncio.sleep(LOGIN_PAUSE)
            await self._answer(Word.FAILED)
            return
        self._visitor = visitor
        await self._answer(Word.DONE)

    async def _verdict(self, command: commands.AskVerdict) -> None:
        verdict = await self._services.intake.verdict(command.digest)
        await self._answer(verdict or Word.NOT_FOUND)

    async def _get(self, command: commands.GetServer) -> None:
        visitor, now = self._visitor, self._services.clock()
        entries = await self._services.store.read(
            lambda view: find_block(view, command.key, command.since, visitor, now)
        )
        if not entries:
            await self._answer(Word.NOT_FOUND)
        else:
            await self._send_block(entries)

    async def _send_block(self, entries: tuple[StoredEntry, ...]) -> None:
        whole = whole_answer(entries)
        if whole is not None:
            self._link.write(whole)
            await self._link.drain()
            return
        begun = False
        try:
            async for piece in block_slices(entries):
                begun = True
                self._link.write(piece)
                await self._link.drain()
        except (DataGone, DamagedData) as error:
            if begun:
                raise
            _log.error("%s", error)
            await self._answer(Word.NOT_FOUND)

    async def _store(self, command: commands.StoreServer) -> None:
        event = await self._link.next_event()
        match event:
            case TextBody():
                await self._store_text(command, event)
            case DataStarted():
                await self._store_data(command, event)
            case Closed():
                return
        await self._answer(Word.DONE)

    async def _store_text(self, command: commands.StoreServer, body: TextBody) -> None:
        visitor = self._visitor
        verdict = await self._services.intake.take_text(command.key, body.lines, visitor)
        _log.info("STORE %s: %s", command.key, verdict)
        if isinstance(verdict, Accepted) and not visitor.confirmed and visitor.userid:
            userid = visitor.userid
            confirmed = await self._services.store.read(lambda view: is_user(view, userid))
            self._visitor = replace(visitor, confirmed=confirmed)

    async def _store_data(self, command: commands.StoreServer, started: DataStarted) -> None:
        intake = self._services.intake.receive_data(command.key, started.lines, self._visitor)
        try:
            while not isinstance(event := await self._link.next_event(), DataEnded):
                if not isinstance(event, DataChunk):
                    raise ProtocolError("the connection ended inside a data block")
                await intake.take(event.data)
            verdict = await intake.finish()
        except BaseException:
            await intake.discard()
            raise
        _log.info("STORE %s: %s", command.key, verdict)


Handler = Callable[[Session, Any], Awaitable[None]]

# What is not here is not built, and is answered FAILED.
HANDLERS: dict[type[Command], Handler] = {
    commands.StartTls: Session._start_tls,
    commands.Quit: Session._quit,
    commands.Ping: Session._ping,
    commands.Capabilities: Session._capabilities,
    commands.SelfTest: Session._self_test,
    commands.Login: Session._login,
    commands.AskVerdict: Session._verdict,
    commands.GetServer: Session._get,
    commands.StoreServer: Session._store,
}
