"""One connection to the partner: what the feed gives is told to it, several things in flight."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import Unavailable
from sealmail_net.pipeline import Answer, Pipeline
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.commands import (
    REPLICATION,
    Command,
    PartnerAccount,
    PartnerDrop,
    PartnerQueued,
    Ping,
    Replicate,
    RepLogin,
)
from sealmail_protocol.replies import Word
from sealmail_server.outgoing.told import told_body
from sealmail_server.partner_feed import Item, PartnerFeed
from sealmail_server.partnership import UNBOUND, Partner, PartnerPin, tombstone_until
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


class KeyRefused(Unavailable):
    """The partner does not know the auth key that we log in with, or does not know it any more."""


async def call_on(partner: Partner, settings: DialSettings) -> RemoteServer:
    """Return a connection to the partner on which we are logged in, or raise ``NetworkError``."""
    remote = await dial(partner.address, settings, PartnerPin(partner.pin), strict_pin=True)
    try:
        if not await remote.login(REPLICATION, partner.auth_key):
            raise KeyRefused(partner.address, "it does not know the replication auth key")
    except BaseException:
        await remote.hang_up()
        raise
    return remote


async def is_original(remote: RemoteServer) -> bool:
    """Tell whether the partner has none of our extensions."""
    return CAPABILITY not in await remote.capabilities()


def errand_for(item: Item, *, original: bool) -> Errand | None:
    """Return what to tell; ``None`` if there is nothing (left) that this partner can be told."""
    row = item.row
    match row.kind:
        case QueueKind.ACCOUNT if original:
            userid, _, auth_key = row.content.decode().partition(" ")
            return Errand(RepLogin(userid, auth_key)) if auth_key else None
        case QueueKind.ACCOUNT:
            account = item.account
            if account is None:
                return None
            userid = account.userid or UNBOUND
            return Errand(PartnerAccount(account.auth_key_hash, userid, account.state))
        case QueueKind.TOMBSTONE:
            if original or row.key is None:
                return None
            return Errand(PartnerDrop(row.key, row.digest, tombstone_until(row)))
        case QueueKind.MIRROR:
            head = None if original else told_body(row.digest, item.proxied)
            if head is None or row.key is None:
                return None
            block, data = (item.entry.header, item.entry.data) if item.entry else (b"", None)
            return Errand(PartnerQueued(row.key), head + block, data)
        case _:
            entry = item.entry
            if entry is None:
                return None
            return Errand(Replicate(entry.key, entry.poster), entry.header, entry.data)


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
        errand = errand_for(item, original=self._original)
        if errand is None:
            self._feed.finish(item)
            return
        try:
            answer = await self._send(line, errand)
        except (DataGone, DamagedData) as error:
            _log.error("%s", error)
            self._feed.refuse(item, "data")
            return
        except BaseException:
            self._give_back(item)
            raise
        pending.add(answer)
        answer.add_done_callback(lambda done: self._answered(item, done))
        answer.add_done_callback(pending.discard)

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

    def _answered(self, item: Item, answer: "asyncio.Future[Answer]") -> None:
        if answer.cancelled() or answer.exception() is not None:
            self._give_back(item)
        elif answer.result() is Word.DONE:
            self._feed.finish(item)
        else:
            _log.info(
                "the partner answers %s to %s", answer.result(), item.row.key or "an account"
            )
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
