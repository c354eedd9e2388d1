"""One connection: its events turned into calls of the services, by a table of commands."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from sealmail_net.link import PeerLink
from sealmail_net.txt_resolver import LookupFailed
from sealmail_protocol import commands
from sealmail_protocol.bodies import (
    FREE_BODY,
)
from sealmail_protocol.commands import BodyCommand, Command
from sealmail_protocol.conversation import Closed, Invalid
from sealmail_protocol.dates import format_date
from sealmail_protocol.dns_records import txt_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import RATE_LIMITED
from sealmail_protocol.replies import (
    Accepted,
    Banner,
    LineReply,
    Listing,
    Pending,
    Pong,
    Verdict,
    Word,
)
from sealmail_server.accounts import AccountRefused
from sealmail_server.body_reading import BodyReader, DataReceiver, Lines
from sealmail_server.clock_guard import ClockState
from sealmail_server.dht.desk import EntangledDesk
from sealmail_server.memory import Crowded
from sealmail_server.outgoing.accepting import NotServed
from sealmail_server.outgoing.fetching import NotFetched
from sealmail_server.reading import block_slices, find_block, find_small_block, whole_answer
from sealmail_server.services import Services
from sealmail_server.visitor import ANONYMOUS, Visitor
from sealmail_store import DamagedData, DataGone, StoredEntry, StoreError, Tombstone, WriteView
from sealmail_verify import Undecided

_log = logging.getLogger(__name__)

# Guessing auth keys is hopeless; a pause keeps it from being loud too.
LOGIN_PAUSE = 0.25
# A source that would have to wait longer than this is sent away instead.
MAX_DELAY = 10.0
# A bundle's verdict costs one lookup for each entry; so many are as cheap as a command.
_AT_ONCE = 64
# How often SELFTEST has written to the store.
_SELF_TESTS = "self-tests"


class _Overused(Exception):
    """A source has used up its allowance; its connection ends without an answer."""


class Session:
    """Serves one connection until either side ends it.

    At a ``shared`` door all who come are one source until they have logged in, and then sources of
    their own: what strangers use up there, or fail at, must not keep users out.
    """

    def __init__(
        self, link: PeerLink, services: Services, visitor: Visitor, *, shared: bool = False
    ) -> None:
        self.visitor = visitor
        self._source = visitor.source
        self._shared = shared
        self._link = link
        self._services = services
        self._share = link.conversation.room = services.memory.share(visitor.source)
        refuse = partial(services.intake.remember_refusal, source=visitor.source)
        self._bodies = BodyReader(link, visitor.source, refuse)
        self._open = True
        self._between_commands = False

    async def run(self) -> None:
        """Greet, then answer commands in their order."""
        await self._answer(Banner())
        while self._open:
            self._between_commands = True
            event = await self._link.next_event()
            self._between_commands = False
            match event:
                case Closed():
                    return
                case Invalid():
                    _log.debug("%s: no command: %s", self._link.peer, event.reason)
                    await self._answer(Word.INVALID_COMMAND)
                    if event.last:
                        self._open = False
                case _:
                    await self._serve(event)

    def end_soon(self) -> None:
        """End after the command that is running; at once if none is."""
        self._open = False
        if self._between_commands:
            self._link.close()

    def cut_off(self) -> None:
        """End now, whatever is under way."""
        self._open = False
        self._link.abort()

    async def _serve(self, command: Any) -> None:
        _log.debug("%s: %r", self._link.peer, command)
        if self._services.guard.state() is not ClockState.RIGHT:
            _log.warning("the clock is in doubt: hanging up on %s", self._link.peer)
            self._open = False
            return
        try:
            if self._is_off(command) or not self.visitor.may_use(type(command)):
                await self._decline(command)
                return
            await self._wait_for_turn(type(command))
            await HANDLERS[type(command)](self, command)
        except _Overused:
            _log.info("%s asks too much and is sent away", self._link.peer)
            self._open = False
        except (StoreError, Undecided) as error:
            # No room now, on disk or for verifying: the sender keeps the block and tries again.
            _log.error("%s", error)
            await self._answer(Word.FAILED)
        finally:
            self._share.release()

    def _is_off(self, command: Command) -> bool:
        return type(command) in DHT_HANDLERS and self._services.dht is None

    async def _decline(self, command: Command) -> None:
        if isinstance(command, BodyCommand):
            await self._bodies.skip()
        await self._answer(Word.FAILED)

    async def _wait_for_turn(self, command: type[Command]) -> None:
        """Delay a stranger who repeats himself."""
        if command in RATE_LIMITED and self.visitor.is_stranger:
            moment = self._services.steady_clock()
            await self._delay(self._services.requests.charge(self.visitor.source, moment))

    async def _wait_for_more(self, uses: int) -> None:
        """Delay somebody whose one command costs as much as several: users too, by themselves."""
        if uses:
            visitor, moment = self.visitor, self._services.steady_clock()
            payer = visitor.source if visitor.is_stranger else visitor.userid or visitor.source
            await self._delay(self._services.requests.charge(payer, moment, uses))

    async def _delay(self, seconds: float) -> None:
        if seconds > MAX_DELAY:
            raise _Overused
        if seconds > 0:
            await asyncio.sleep(seconds)

    async def _answer(self, reply: LineReply | Listing) -> None:
        self._link.write(self._link.conversation.send(reply))
        await self._link.drain()

    # Commands of the connection itself.

    async def _start_tls(self, _: commands.StartTls) -> None:
        if self._link.conversation.encrypted:
            await self._answer(Word.FAILED)
            return
        await self._link.start_tls_as_server(self._services.identity.context())
        # What was said in clear anybody could have said, a LOGIN too.
        self._welcome(ANONYMOUS, self._source, shared=self._shared)

    async def _quit(self, _: commands.Quit) -> None:
        await self._answer(Word.GOODBYE)
        self._open = False

    async def _ping(self, command: commands.Ping) -> None:
        await self._answer(Pong(command.text))

    async def _capabilities(self, _: commands.Capabilities) -> None:
        now = format_date(self._services.clock())
        off = DHT_HANDLERS if self._services.dht is None else {}
        names = (name for kind, name in CAPABILITIES.items() if kind not in off)
        await self._answer(Listing((f"TIME {now}", *names)))

    async def _self_test(self, _: commands.SelfTest) -> None:
        try:
            await self._services.store.write(_count_self_test)
        except StoreError as error:
            _log.error("%s", error)
            await self._answer(Listing(("FAIL STORE",)))
        else:
            await self._answer(Listing(("PASS",)))

    async def _shutdown(self, _: commands.Shutdown) -> None:
        _log.warning("SHUTDOWN by an administrator at %s", self._link.peer)
        await self._answer(Word.GOODBYE)
        self._open = False
        self._services.stop()

    async def _dns_txt(self, command: commands.DnsTxt) -> None:
        services, source = self._services, self.visitor.source
        if services.lookups is None:
            await self._answer(Word.FAILED)
            return
        # Users too: what a question costs is paid by name servers that know nothing of accounts.
        await self._delay(services.lookup_requests.charge(source, services.steady_clock()))
        try:
            texts = await services.lookups.texts(command.name)
        except LookupFailed as error:
            _log.info("%s", error)
            texts = ()
        await self._answer(Listing(txt_lines(texts)) if texts else Word.NOT_FOUND)

    # Accounts.

    async def _login(self, command: commands.Login) -> None:
        source, failed = self._source, self._services.failed_logins
        if not self._shared:
            await self._delay(failed.wait(source, self._services.steady_clock()))
        visitor = await self._services.desk.log_in(command.userid, command.auth_key)
        if visitor is None:
            debt = failed.charge(source, self._services.steady_clock())
            _log.info("a login failed from %s", source)
            await self._delay(max(LOGIN_PAUSE, debt))
            await self._answer(Word.FAILED)
            return
        self._welcome(visitor, f"{source} {visitor.userid}" if self._shared else source)
        await self._answer(Word.DONE)

    def _welcome(self, visitor: Visitor, source: str, *, shared: bool = False) -> None:
        """Take somebody for another visitor than before, and count him under ``source``."""
        self.visitor = visitor.at(source, shared=shared)
        self._share.release()
        self._share = self._link.conversation.room = self._services.memory.share(source)

    async def _add_login(self, command: commands.AddLogin) -> None:
        try:
            await self._services.desk.add(command.userid, command.auth_key)
        except AccountRefused as error:
            _log.info("ADDLOGIN: %s", error)
            await self._answer(Word.FAILED)
        else:
            await self._answer(Word.DONE)

    async def _rm_login(self, command: commands.RmLogin) -> None:
        removed = await self._services.desk.remove_key(command.auth_key)
        await self._answer(Word.DONE if removed else Word.FAILED)

    async def _gen_login(self, command: commands.GenLogin) -> None:
        await self._answer(Listing(await self._services.desk.generate(command.count)))

    async def _rep_login(self, command: commands.RepLogin) -> None:
        await self._services.desk.take_from_partner(command.userid, command.auth_key)
        await self._answer(Word.DONE)

    # Blocks.

    async def _verdict(self, command: commands.AskVerdict) -> None:
        await self._wait_for_more(self._services.intake.questions(command.digest) // _AT_ONCE)
        verdict = await self._services.intake.verdict(command.digest)
        await self._answer(verdict or Word.NOT_FOUND)

    async def _drop(self, command: commands.Drop) -> None:
        dropped = await self._services.intake.drop(command.key, command.digest, self.visitor)
        await self._answer(Word.DONE if dropped else Word.NOT_FOUND)

    async def _get(self, command: commands.GetServer) -> None:
        entries = await self._find(command.key, command.since)
        if not entries:
            await self._answer(Word.NOT_FOUND)
        else:
            await self._send_block(entries)

    async def _find(self, key: BlockKey, since: datetime | None) -> tuple[StoredEntry, ...]:
        """Return what GET is answered with; large text is read once there is room for it."""
        read, limits = self._services.store.read, self._services.limits
        asked = key, since, self.visitor, self._services.clock(), limits
        found = await read(lambda view: find_small_block(view, *asked))
        if not isinstance(found, int):
            return found
        self._make_room(found)
        entries = await read(lambda view: find_block(view, *asked))
        more = sum(len(entry.header) for entry in entries) - found
        if more > 0:
            self._make_room(more)
        return entries

    def _make_room(self, size: int) -> None:
        """Count so many bytes as held by this connection until its command is served."""
        if not self._share.take(size):
            raise Crowded(self.visitor.source)

    def _make_room_if_large(self, size: int) -> None:
        """Count what is large as held by this connection until its command is served."""
        if size > FREE_BODY:
            self._make_room(size)

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
        intake, key, visitor = self._services.intake, command.key, self.visitor
        verdict = await self._bodies.read(
            command,
            lambda lines: intake.take_text(key, lines, visitor),
            lambda lines: intake.receive_data(key, lines, visitor),
        )
        if isinstance(verdict, Accepted) and visitor.userid and not visitor.confirmed:
            confirmed = await self._services.desk.is_confirmed(visitor)
            self.visitor = replace(visitor, confirmed=confirmed)
        await self._answer(Word.DONE)

    async def _store_proxy(self, command: commands.StoreProxy) -> None:
        desk, owner = self._services.office.acceptance, self.visitor.userid or ""
        verdict = await self._hand_in(
            command,
            lambda lines: desk.take_text(command, lines, owner),
            lambda lines: desk.receive_data(command, lines, owner),
        )
        await self._answer(Word.FAILED if verdict is None else Word.DONE)

    async def _hand_in(
        self,
        command: Command,
        take_text: Callable[[Lines], Awaitable[Verdict]],
        receive_data: Callable[[Lines], DataReceiver],
    ) -> Verdict | None:
        """Read a body that is queued; ``None`` for one that is never served."""
        try:
            return await self._bodies.read(command, take_text, receive_data)
        except NotServed as error:
            _log.info("%s: %s", command, error)
            return None

    async def _queue(self, command: commands.AskQueue) -> None:
        owner = self.visitor.userid or ""
        rows = await self._services.office.desk.told(owner, command.since)
        self._make_room_if_large(sum(map(len, rows)))
        await self._answer(Listing(rows))

    async def _get_proxy(self, command: commands.GetProxy) -> None:
        fetcher = self._services.office.fetcher
        if fetcher.is_here(command.transport):
            await self._get(commands.GetServer(command.key))
            return
        try:
            lines = await fetcher.fetch(command.key, command.transport, self.visitor.userid or "")
        except NotFetched as error:
            _log.info("%s: %s", command, error)
            await self._answer(Word.FAILED)
            return
        if lines is None:
            await self._answer(Word.NOT_FOUND)
        else:
            self._link.write(b"".join(line + b"\r\n" for line in (*lines, b"EndBlock")))
            await self._link.drain()

    async def _get_entangled(self, command: commands.GetEntangled) -> None:
        room = self._make_room_if_large
        answer = await self._dht.find(command.key, command.since, self.visitor, room)
        await self._send_answer(answer)

    async def _get_dht_value(self, command: commands.GetDhtValue) -> None:
        await self._send_answer(await self._dht.value(command.key, command.digest))

    async def _list_dht_values(self, command: commands.ListDhtValues) -> None:
        lines = await self._dht.listing(command.key)
        await self._answer(Listing(lines) if lines else Word.NOT_FOUND)

    async def _send_answer(self, answer: bytes | None) -> None:
        if answer is None:
            await self._answer(Word.NOT_FOUND)
            return
        self._make_room_if_large(len(answer))
        self._link.write(answer)
        await self._link.drain()

    async def _store_entangled(self, command: commands.StoreEntangled) -> None:
        desk, key, visitor = self._dht, command.key, self.visitor
        await self._bodies.read(
            command,
            lambda lines: desk.store_text(key, lines, visitor, self._make_room_if_large),
            lambda lines: desk.receive_data(key, lines, visitor),
        )
        await self._answer(Word.DONE)

    async def _store_dht_value(self, command: commands.StoreDhtValue) -> None:
        desk, key, source = self._dht, command.key, self.visitor.source
        verdict = await self._bodies.read(
            command,
            lambda lines: desk.take_text(key, lines, source),
            lambda lines: desk.receive_value(key, lines, source),
        )
        await self._answer(Word.DONE if isinstance(verdict, Accepted) else Word.FAILED)

    @property
    def _dht(self) -> EntangledDesk:
        desk = self._services.dht
        assert desk is not None  # noqa: S101 - asked before any of its commands is served
        return desk

    async def _replicate(self, command: commands.Replicate) -> None:
        intake, key, poster = self._services.intake, command.key, command.userid
        await self._bodies.read(
            command,
            lambda lines: intake.replicate_text(key, lines, poster),
            lambda lines: intake.replicate_data(key, lines, poster),
        )
        await self._answer(Word.DONE)

    # The partner.

    async def _partner_queued(self, command: commands.PartnerQueued) -> None:
        mirror = self._services.office.mirror
        verdict = await self._hand_in(
            command,
            lambda lines: mirror.take_text(command.key, lines),
            lambda lines: mirror.receive_data(command.key, lines),
        )
        await self._answer(Word.DONE if isinstance(verdict, Accepted) else Word.FAILED)

    async def _partner_waiting(self, command: commands.PartnerWaiting) -> None:
        async def take(lines: Lines) -> Verdict:
            poster, until = command.userid, command.until
            intake = self._services.intake
            if not await intake.wait_with_partner(command.key, lines, poster, until):
                raise NotServed("what waits at the partner is not kept here")
            return Pending()

        verdict = await self._hand_in(command, take, _take_no_data)
        await self._answer(Word.DONE if isinstance(verdict, Pending) else Word.FAILED)

    async def _partner_account(self, command: commands.PartnerAccount) -> None:
        taken = await self._services.partner.merge_account(command)
        await self._answer(Word.DONE if taken else Word.FAILED)

    async def _partner_drop(self, command: commands.PartnerDrop) -> None:
        stone = Tombstone(command.key, command.digest, command.identity, command.date)
        await self._services.intake.take_tombstone(stone)
        await self._answer(Word.DONE)

    async def _partner_list(self, command: commands.PartnerList) -> None:
        await self._answer(Listing(await self._services.partner.list_names(command)))

    async def _partner_sync(self, _: commands.PartnerSync) -> None:
        await self._services.partner.begin_comparing()
        await self._answer(Word.DONE)

    async def _partner_pair(self, command: commands.PartnerPair) -> None:
        paired = await self._services.partner.accept(command, self.visitor)
        await self._answer(Word.DONE if paired else Word.FAILED)


def _take_no_data(_: Lines) -> DataReceiver:
    """Leave data to others: only text waits for an account, a price or a key."""
    raise NotServed("data that waits for a key")


def _count_self_test(view: WriteView) -> None:
    """Write what was never written before: of what is there already nothing reaches the disk."""
    view.put_setting(_SELF_TESTS, str(int(view.setting(_SELF_TESTS) or 0) + 1))


Handler = Callable[[Session, Any], Awaitable[None]]

# Served only where the DHT is switched on.
DHT_HANDLERS: dict[type[Command], Handler] = {
    commands.GetEntangled: Session._get_entangled,
    commands.StoreEntangled: Session._store_entangled,
    commands.GetDhtValue: Session._get_dht_value,
    commands.ListDhtValues: Session._list_dht_values,
    commands.StoreDhtValue: Session._store_dht_value,
}

# Every command of COMMAND_POLICY.
HANDLERS: dict[type[Command], Handler] = {
    commands.StartTls: Session._start_tls,
    commands.Quit: Session._quit,
    commands.Ping: Session._ping,
    commands.Capabilities: Session._capabilities,
    commands.SelfTest: Session._self_test,
    commands.DnsTxt: Session._dns_txt,
    commands.Login: Session._login,
    commands.AskVerdict: Session._verdict,
    commands.GetServer: Session._get,
    commands.StoreServer: Session._store,
    commands.StoreProxy: Session._store_proxy,
    commands.GetProxy: Session._get_proxy,
    commands.AskQueue: Session._queue,
    commands.Drop: Session._drop,
    commands.Replicate: Session._replicate,
    commands.RepLogin: Session._rep_login,
    commands.PartnerQueued: Session._partner_queued,
    commands.PartnerWaiting: Session._partner_waiting,
    commands.PartnerAccount: Session._partner_account,
    commands.PartnerDrop: Session._partner_drop,
    commands.PartnerList: Session._partner_list,
    commands.PartnerSync: Session._partner_sync,
    commands.PartnerPair: Session._partner_pair,
    commands.AddLogin: Session._add_login,
    commands.RmLogin: Session._rm_login,
    commands.GenLogin: Session._gen_login,
    commands.Shutdown: Session._shutdown,
    **DHT_HANDLERS,
}

# How CAPABILITIES names the extensions, of which it lists those that are on.
CAPABILITIES: dict[type[Command], str] = {
    commands.AskVerdict: "VERDICT",
    commands.AskQueue: "QUEUE",
    commands.GetProxy: "GET-PROXY",
    commands.Drop: "DROP",
    commands.PartnerList: "PARTNER 1",
    commands.GetDhtValue: "DHT-VALUE",
}
