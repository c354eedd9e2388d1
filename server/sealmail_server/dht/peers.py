"""Servers beside the DHT, ``entangled_peers``: asked over TCP on a miss, and posted to.

An original is asked by ``GET ENTANGLED`` and asks its own network on; a Sealmail server by
``DHT-VALUE``, which answers from what it keeps. So no question comes back to who asked it.
What they give is examined like any other value, and is passed on without being kept here.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import BadAnswer, NetworkError
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import parse_block, serialise_block
from sealmail_protocol.blocks import AddressClaim, Block, BlockType, DataBlock, KeyAnnouncement
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.commands import (
    GetDhtValue,
    GetEntangled,
    ListDhtValues,
    StoreDhtValue,
    StoreEntangled,
)
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.keys import BlockKey, KeyId, announcement_key
from sealmail_protocol.replies import Listing
from sealmail_server.dht.carrier import give
from sealmail_server.dht.datagrams import DIGEST_BYTES
from sealmail_server.dht.values import MAX_VALUE, Examiner, Value, merged, split_value, value_of
from sealmail_server.outgoing.schedule import Schedule
from sealmail_store import DhtRow
from sealmail_verify import BrokeVerifier, Undecided

_log = logging.getLogger(__name__)

DHT_VALUE = "DHT-VALUE"
# An original looks around in its own network before it answers.
ASK_SECONDS = 20.0
_POST_SECONDS = 60.0
# Questions to one peer at a time; the others wait for their turn.
_AT_ONCE = 8
# A mailbox of so many bytes is read of an original; no other value is as large.
_MOST_BYTES = 1024**2
# Values under one key that are taken from one peer; claims are dear to check.
_MOST_VALUES = 300
_MOST_CLAIMS = 8
# Values that wait to be posted to one peer, by whether strangers gave them; beyond that the
# eldest is given up. So strangers, who are many, flush out no user's values.
_MOST_WAITING = {False: 8_000, True: 2_000}
# How long a peer is left alone after its first, second, … failure in a row; the last repeats.
PAUSES = tuple(timedelta(seconds=each) for each in (30, 60, 300, 900, 1800))

# What one value is known by: the key it is under, and its digest.
ValueName = tuple[BlockKey, bytes]
# Returns the value of this name, if it is still kept here.
ReadValue = Callable[[BlockKey, bytes], Awaitable[DhtRow | None]]


@dataclass(slots=True)
class _Peer:
    """One of the servers, and how it goes with it."""

    address: ServerAddress
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))
    # By whether strangers gave them.
    waiting: dict[bool, dict[ValueName, None]] = field(
        default_factory=lambda: {False: {}, True: {}}
    )
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    failures: int = 0
    retry_at: float = 0.0
    reason: str | None = None

    def __len__(self) -> int:
        return sum(map(len, self.waiting.values()))

    def keep(self, names: Iterable[ValueName], *, of_stranger: bool) -> None:
        """Have values posted to it, by and by."""
        waiting = self.waiting[of_stranger]
        waiting.update(dict.fromkeys(names))
        while len(waiting) > _MOST_WAITING[of_stranger]:
            del waiting[next(iter(waiting))]
        self.woken.set()

    def next(self) -> ValueName:
        """Return what is to be posted next: what users gave goes before what strangers did."""
        return next(iter(self.waiting[False] or self.waiting[True]))

    def drop(self, name: ValueName) -> None:
        """Have a value posted no more."""
        for waiting in self.waiting.values():
            waiting.pop(name, None)


class EntangledPeers:
    """Asks all peers at once, but for those that failed a little while ago."""

    def __init__(
        self,
        addresses: Sequence[ServerAddress],
        settings: DialSettings,
        examiner: Examiner,
        clock: Callable[[], datetime],
        *,
        pauses: Sequence[timedelta] = PAUSES,
        moment: Callable[[], float] = time.monotonic,
    ) -> None:
        self._peers = [_Peer(address) for address in dict.fromkeys(addresses)]
        self._settings = settings
        self._examiner = examiner
        self._clock = clock
        self._moment = moment
        self._schedule = Schedule(pauses, random.SystemRandom())
        self._pins = MemoryPins()

    def status(self) -> list[dict[str, Any]]:
        """Return how it goes with each peer, for the operator."""
        return [
            {"peer": str(peer.address), "reason": peer.reason, "waiting": len(peer)}
            for peer in self._peers
        ]

    # Asking.

    async def find(self, key: BlockKey, since: datetime | None = None) -> tuple[Value, ...]:
        """Return what the peers have under ``key`` and what holds, merged by the table.

        The first who has something will do, but of a mailbox each may have a part.
        """
        asked = [asyncio.create_task(self._ask(peer, key, since)) for peer in self._peers]
        values: list[Value] = []
        try:
            for answer in asyncio.as_completed(asked):
                values += await answer
                if values and not is_mailbox(values):
                    break
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return merged(values)

    async def _ask(self, peer: _Peer, key: BlockKey, since: datetime | None) -> list[Value]:
        async with peer.turns:
            if peer.retry_at > self._moment():
                return []
            values: list[Value] = []
            try:
                async with asyncio.timeout(ASK_SECONDS), await self._dial(peer) as remote:
                    capabilities = await remote.capabilities()
                    if DHT_VALUE in capabilities:
                        await self._ask_sealmail(remote, values, key)
                    elif not capabilities:
                        await self._ask_original(remote, values, key, since)
                    # Others are Sealmail servers that take no part.
            except (NetworkError, TimeoutError) as error:
                self._failed(peer, error)
            else:
                peer.failures, peer.reason = 0, None
            return values

    async def _ask_sealmail(
        self, remote: RemoteServer, values: list[Value], key: BlockKey
    ) -> None:
        """Take what a node of our kind keeps; after one value that does not hold no other."""
        listing = await remote.call(ListDhtValues(key))
        for line in listing.lines[:_MOST_VALUES] if isinstance(listing, Listing) else ():
            try:
                command = GetDhtValue(key, _digest(line))
            except ValueError as error:
                raise BadAnswer(remote.address, f"no digest: {error}") from None
            body = await remote.fetch_body(command, MAX_VALUE)
            if body is not None and not await self._examine(remote, values, key, body):
                break

    async def _ask_original(
        self, remote: RemoteServer, values: list[Value], key: BlockKey, since: datetime | None
    ) -> None:
        """Take what holds of an answer: an original checks no signature, so much may not."""
        body = await remote.fetch_body(GetEntangled(key, since), _MOST_BYTES)
        certificates: dict[KeyId, KeyAnnouncement | None] = {}
        for block in _blocks_of(body or b""):
            certificate = None
            if isinstance(block, AddressClaim):
                if block.key_id not in certificates:
                    if len(certificates) == _MOST_CLAIMS:
                        continue
                    certificates[block.key_id] = await _certificate(remote, block.key_id)
                certificate = certificates[block.key_id]
            await self._examine(remote, values, key, value_of(key, block, certificate).body)

    async def _examine(
        self, remote: RemoteServer, values: list[Value], key: BlockKey, body: bytes
    ) -> bool:
        """Take a value in if it holds; tell whether the peer gave what it should."""
        try:
            values.append(await self._examiner.examine(key, body, self._clock()))
        except InvalidBlock as error:
            _log.info("%s gave no good value: %s", remote.address, error.reason)
            return False
        except (Undecided, BrokeVerifier) as error:
            _log.warning("a value could not be verified: %s", error)
        return True

    # Posting.

    def post(self, names: Iterable[ValueName], *, of_stranger: bool = False) -> None:
        """Have every peer given these values, by and by: ``run`` does it."""
        named = tuple(names)
        for peer in self._peers:
            peer.keep(named, of_stranger=of_stranger)

    async def run(self, read: ReadValue) -> None:
        """Post what waits, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for peer in self._peers:
                group.create_task(self._keep_posting(peer, read))

    async def _keep_posting(self, peer: _Peer, read: ReadValue) -> None:
        while True:
            await peer.woken.wait()
            peer.woken.clear()
            await asyncio.sleep(max(0.0, peer.retry_at - self._moment()))
            try:
                async with await self._dial(peer) as remote:
                    await _post_all(peer, remote, read)
                peer.failures, peer.reason = 0, None
            except (NetworkError, TimeoutError) as error:
                self._failed(peer, error)
            except Exception as error:  # one value must not keep the others from being posted
                _log.exception("a value could not be posted to %s", peer.address)
                self._failed(peer, error)
            if len(peer):
                peer.woken.set()

    async def _dial(self, peer: _Peer) -> RemoteServer:
        return await dial(peer.address, self._settings, self._pins, strict_pin=False)

    def _failed(self, peer: _Peer, error: Exception) -> None:
        """Leave a peer alone for a while, the longer the more often it failed."""
        peer.failures += 1
        peer.reason = str(error) or "it did not answer in time"
        peer.retry_at = self._moment() + self._schedule.pause(peer.failures).total_seconds()
        _log.warning("%s is left alone for a while: %s", peer.address, peer.reason)


def is_mailbox(values: Iterable[Value]) -> bool:
    """Tell whether values are mail, of which nobody has all."""
    return all(value.type is BlockType.MESSAGE_ANNOUNCEMENT for value in values)


async def _post_all(peer: _Peer, remote: RemoteServer, read: ReadValue) -> None:
    capabilities = await remote.capabilities()
    while len(peer):
        name = peer.next()
        row = await read(*name)
        async with asyncio.timeout(_POST_SECONDS):
            if row is not None and DHT_VALUE in capabilities:
                await give(remote, StoreDhtValue(row.key), row.body)
            elif row is not None and not capabilities:
                await _give_original(remote, row)
        # Whatever it answered, it would answer the same another time.
        peer.drop(name)


async def _give_original(remote: RemoteServer, row: DhtRow) -> None:
    """Store a block with an original; a claim and the key that signed it are two of them."""
    block, certificate = split_value(row.body)
    if certificate is not None and isinstance(block, AddressClaim):
        own = StoreEntangled(announcement_key(block.key_id))
        await give(remote, own, serialise_block(certificate))
    await give(remote, StoreEntangled(row.key), serialise_block(block))


async def _certificate(remote: RemoteServer, signer: KeyId) -> KeyAnnouncement | None:
    """Return the key-announcement that an original has of whom a claim names, unchecked."""
    body = await remote.fetch_body(GetEntangled(announcement_key(signer)), MAX_VALUE)
    blocks = _blocks_of(body or b"")
    return next((each for each in blocks if isinstance(each, KeyAnnouncement)), None)


def _blocks_of(body: bytes) -> list[Block]:
    """Return the blocks of an answer that can be read, as many as there may be."""
    entries = [body]
    if not _is_data(body):
        entries = [
            b"".join(line + b"\r\n" for line in entry)
            for entry in split_bundle(body.removesuffix(b"\r\n").split(b"\r\n"))
        ]
    blocks: list[Block] = []
    for entry in entries[:_MOST_VALUES]:
        with suppress(InvalidBlock):
            blocks.append(parse_block(entry))
    return blocks


def _is_data(body: bytes) -> bool:
    """Tell whether a body is a data block, which may look like anything inside."""
    with suppress(InvalidBlock):
        return isinstance(parse_block(body), DataBlock)
    return False


def _digest(line: str) -> bytes:
    digest = bytes.fromhex(line)
    if len(digest) != DIGEST_BYTES:
        raise ValueError(f"{len(digest)} bytes")
    return digest
