"""One connection to the partner: what the feed gives is told to it, several things in flight."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import LoginFailed
from sealmail_net.pipeline import Answer, Pipeline
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.commands import (
    REPLICATION,
    Command,
    PartnerAccount,
    PartnerDrop,
    PartnerQueued,
    PartnerWaiting,
    Ping,
    Replicate,
    RepLogin,
)
from sealmail_protocol.replies import Word
from sealmail_server.outgoing.told import told_heads
from sealmail_server.partner_feed import Item, PartnerFeed
from sealmail_server.partnership import UNBOUND, Partner, PartnerPin, tombstone_of
from sealmail_server.reading import SLICE
from sealmail_store import BlockData, DamagedData, DataGone, QueueKind

_log = logging.getLogger(__name__)

# Commands in flight on one connection: enough to fill the time that an answer takes.
WINDOW = 16
# A partner that serves answers a PING sooner than it would hang up for idleness.
PING_SECONDS = 15.0
CAPABILITY = "PARTNER"


@dataclass(frozen=True, slots=True)
class Errand:
    """A command with its body, and the bytes behind it."""

    command: Command
    body: bytes = b""
    data: BlockData | None = None


class KeyRefused(LoginFailed):
    """The partner does not know the auth key that we log in with, or does not know it any more."""


async def call_on(partner: Partner, settings: DialSettings) -> RemoteServer:
    """Return a connection to the partner on which we are logged in, or raise ``NetworkError``."""
    remote = await dial(partner.address, settings, PartnerPin(partner.pin), strict_pin=True)
    try:
        if not await remote.login(REPLICATION, partner.auth_key):
            raise KeyRefused(partner.address)
    except BaseException:
        await remote.hang_up()
        raise
    return remote


async def is_original(remote: RemoteServer) -> bool:
    """Tell whether the partner has none of our extensions."""
    return CAPABILITY not in await remote.capabilities()


def errands_for(item: Item, *, original: bool) -> tuple[Errand, ...]:
    """Return what to tell, in this order; nothing that is left, or that this partner can be told.

    Only what mirrors a block for many targets takes more than one command.
    """
    row = item.row
    match row.kind:
        case QueueKind.ACCOUNT if original:
            userid, _, auth_key = row.content.decode().partition(" ")
            return (Errand(RepLogin(userid, auth_key)),) if auth_key else ()
        case QueueKind.ACCOUNT:
            account = item.account
            if account is None:
                return ()
            userid = account.userid or UNBOUND
            return (Errand(PartnerAccount(account.auth_key_hash, userid, account.state)),)
        case QueueKind.TOMBSTONE:
            stone = tombstone_of(row)
            if original or stone is None:
                return ()
            command = PartnerDrop(stone.key, stone.digest, stone.identity, stone.until)
            return (Errand(command),)
        case QueueKind.MIRROR:
            if original or row.key is None:
                return ()
            heads = told_heads(row.digest, item.proxied)
            errands = [Errand(PartnerQueued(row.key), head) for head in heads]
            if errands and item.entry is not None:
                whole = errands[0].body + item.entry.header
                errands[0] = Errand(errands[0].command, whole, item.entry.data)
            return tuple(errands)
        case QueueKind.PENDING:
            waiting = item.waiting
            if original or waiting is None:
                return ()
            told = PartnerWaiting(waiting.key, waiting.poster, waiting.until)
            return (Errand(told, waiting.header),)
        case _:
            entry = item.entry
            if entry is None:
                return ()
            return (Errand(Replicate(entry.key, entry.poster), entry.header, entry.data),)


class Lane:
    """Tells items on one connection until it ends.

    One that is ``careful`` begins with one item at a time: a connection that ends may take with
    it the answers to all that were in flight, and then nobody knows at which one it ended.
    """

    def __init__(
        self, remote: RemoteServer, feed: PartnerFeed, *, original: bool, careful: bool = False
    ) -> None:
        self._remote = remote
        self._feed = feed
        self._original = original
        self._careful = careful
        self._told_before = feed.told
        self._ended = False

    async def run(self, idle_seconds: float | None = None) -> None:
        """Tell what comes; raises ``NetworkError`` when the connection ends.

        With ``idle_seconds`` it returns by itself when nothing has come for so long.
        """
        async with self._remote.pipeline(1 if self._careful else WINDOW) as line:
            pending: set[asyncio.Future[Answer]] = set()
            while True:
                if self._careful and self._feed.told - self._told_before >= WINDOW:
                    line.widen(WINDOW - 1)
                    self._careful = False
                item = self._feed.take()
                if item is not None:
                    await self._tell(line, item, pending)
                    continue
                if await self._wait(line, idle_seconds or PING_SECONDS):
                    continue
                if idle_seconds is not None:
                    if pending:
                        await asyncio.wait(pending)
                    return
                await (await line.send(Ping()))

    async def _tell(
        self, line: Pipeline, item: Item, pending: "set[asyncio.Future[Answer]]"
    ) -> None:
        errands = errands_for(item, original=self._original)
        if not errands:
            self._feed.finish(item)
            return
        answers: list[asyncio.Future[Answer]] = []
        try:
            for errand in errands:
                answers.append(await self._send(line, errand))
        except (DataGone, DamagedData) as error:
            _log.error("%s", error)
            self._feed.refuse(item, "data")
            return
        except BaseException:
            self._give_back(item)
            raise
        # Answers come in the order of the commands: with the last one all are there.
        last = answers[-1]
        pending.add(last)
        last.add_done_callback(lambda _: self._answered(item, answers))
        last.add_done_callback(pending.discard)

    async def _send(self, line: Pipeline, errand: Errand) -> "asyncio.Future[Answer]":
        data = errand.data
        if data is None:
            return await line.send(errand.command, errand.body)
        if isinstance(data.content, bytes):
            return await line.send(errand.command, errand.body, _whole(data.content))
        reader = await asyncio.to_thread(data.open)
        reader.close()
        return await line.send(errand.command, errand.body, _slices(data))

    async def _wait(self, line: Pipeline, seconds: float) -> bool:
        """Wait for an item; ``False`` if none came in time. Raises if the connection ends."""
        coming = asyncio.ensure_future(self._feed.wait())
        ending = asyncio.ensure_future(line.lost())
        try:
            done, _ = await asyncio.wait(
                (coming, ending), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            coming.cancel()
            ending.cancel()
        if ending in done:
            raise ending.result()
        return coming in done

    def _answered(self, item: Item, answers: "Sequence[asyncio.Future[Answer]]") -> None:
        if any(each.cancelled() or each.exception() is not None for each in answers):
            self._give_back(item)
            return
        others = [each.result() for each in answers if each.result() is not Word.DONE]
        if not others:
            self._feed.finish(item)
        else:
            _log.info("the partner answers %s to %s", others[0], item.row.key or "an account")
            self._feed.refuse(item, "failed")

    def _give_back(self, item: Item) -> None:
        """Return an item; the first one that was not answered may be why the connection ended."""
        self._feed.give_back(item, ended_here=not self._ended)
        self._ended = True


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def _slices(data: BlockData) -> AsyncIterator[bytes]:
    """Read a data file off the loop, a slice at a time."""
    reader = await asyncio.to_thread(data.open)
    try:
        while chunk := await asyncio.to_thread(reader.read, SLICE):
            yield chunk
    finally:
        reader.close()
