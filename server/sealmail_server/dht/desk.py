"""STORE and GET ENTANGLED for users, DHT-VALUE for other nodes: blocks in, values out."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import AddressClaim, BlockType, KeyAnnouncement, TextBlock
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import decode_lines, split_lines
from sealmail_protocol.keys import BlockKey, announcement_key
from sealmail_protocol.policy import BLOCK_POLICY, HARD_TEXT_BODY
from sealmail_protocol.replies import Accepted, Verdict, worst
from sealmail_server.dht.neighbours import network_of_source
from sealmail_server.dht.node import DhtNode, MakeRoom
from sealmail_server.dht.peers import EntangledPeers, is_mailbox
from sealmail_server.dht.turns import Asker
from sealmail_server.dht.values import MAX_VALUE, Value, merged, value_of
from sealmail_server.visitor import Visitor
from sealmail_store import BlockData, BlockStore, StoredEntry
from sealmail_store import Verdict as StoredVerdict
from sealmail_verify import BrokeVerifier

VERDICT_KEPT = timedelta(days=14)
# The DHT has most of it; whoever asks waits a minute.
_FIND_SECONDS = 55.0
# Claims or mails in one body; a client posts one.
_MOST_ENTRIES = 64

Lines = tuple[bytes, ...]
RememberRefusal = Callable[[bytes, InvalidBlock], Verdict]
# Told of a value by key and digest, and whether a stranger gave it.
Posted = Callable[[BlockKey, bytes, bool], None]


class EntangledDesk:
    """Turns blocks into values of the DHT and back; ``posted`` is told of what was stored.

    ``peers`` are asked where the DHT has nothing.
    """

    def __init__(
        self,
        node: DhtNode,
        store: BlockStore,
        clock: Callable[[], datetime],
        remember_refusal: RememberRefusal,
        posted: Posted,
        peers: EntangledPeers,
    ) -> None:
        self._node = node
        self._store = store
        self._clock = clock
        self._remember_refusal = remember_refusal
        self._posted = posted
        self._peers = peers

    async def store_text(
        self,
        key: BlockKey,
        lines: Lines,
        visitor: Visitor,
        make_room: MakeRoom = lambda _: None,
    ) -> Verdict:
        """Keep what a user gives for the DHT, durable at return; spreading it comes after."""
        entries = list(split_bundle(lines))
        if len(entries) > _MOST_ENTRIES:
            many = InvalidBlock(Refusal.FORM, f"more than {_MOST_ENTRIES} entries in one body")
            return self._remember_refusal(_digest_of(lines), many)
        verdicts: list[Verdict] = []
        certificates: list[KeyAnnouncement] = []
        # What signed a claim may stand behind it, in the same body.
        for entry in reversed(entries):
            try:
                block = parse_text_block(decode_lines(entry))
                if isinstance(block, KeyAnnouncement) and len(entries) > 1:
                    certificates.append(block)
                    continue
                certificate = await self._certificate(block, certificates, visitor, make_room)
                value = value_of(key, block, certificate)
                verdicts.append(
                    await self._take(value.key, value.body, visitor, _digest_of(entry))
                )
            except InvalidBlock as error:
                verdicts.append(self._remember_refusal(_digest_of(entry), error))
        if not verdicts:
            alone = InvalidBlock(Refusal.FORM, "key-announcements stand alone")
            return self._remember_refusal(_digest_of(lines), alone)
        return worst(tuple(verdicts))

    def receive_data(self, key: BlockKey, lines: Lines, visitor: Visitor) -> "ValueReceiver":
        """Begin to take a data block of a user."""
        digest = _digest_of(lines, key)
        return ValueReceiver(lines, lambda body: self._take(key, body, visitor, digest))

    async def take_held(self, key: BlockKey, entry: StoredEntry, visitor: Visitor) -> Verdict:
        """Keep a block that a user gave to be delivered, as ``store_text`` does."""
        lines = tuple(entry.header.split(b"\r\n")[:-1])
        if entry.data is None:
            return await self.store_text(key, lines, visitor)
        receiver = self.receive_data(key, lines, visitor)
        await receiver.take(await asyncio.to_thread(_beginning, entry.data))
        return await receiver.finish()

    async def take_text(self, key: BlockKey, lines: Lines, source: str) -> Verdict:
        """Keep a value that another node gives."""
        body = _joined(lines)
        return await self._keep(key, body, source, _digest_of(_first_entry(body)))

    def receive_value(self, key: BlockKey, lines: Lines, source: str) -> "ValueReceiver":
        """Begin to take a data block that another node gives."""
        digest = _digest_of(lines, key)
        return ValueReceiver(lines, lambda body: self._keep(key, body, source, digest))

    async def value(self, key: BlockKey, digest: bytes) -> bytes | None:
        """Return one value that is kept here, as it is sent."""
        row = await self._node.value(key, digest)
        if row is None:
            return None
        return row.body + (b"" if row.type == BlockType.DATA else b"EndBlock\r\n")

    async def listing(self, key: BlockKey) -> tuple[str, ...]:
        """Return the digests of the values that are kept here under ``key``."""
        return tuple(row.digest.hex() for row in await self._node.holdings.listed(key))

    async def find(
        self,
        key: BlockKey,
        since: datetime | None,
        visitor: Visitor,
        make_room: MakeRoom = lambda _: None,
    ) -> bytes | None:
        """Return the answer to GET ENTANGLED; of mail only what is dated ``since`` or later.

        ``NoTurn`` if too many others look something up. ``make_room`` is told of large values
        before they are read.
        """
        values = await self._find(key, _asker(visitor), make_room, since)
        if since is not None:
            values = tuple(
                value
                for value in values
                if value.date >= since or value.type is not BlockType.MESSAGE_ANNOUNCEMENT
            )
        if not values:
            return None
        kind = values[0].type
        if kind is BlockType.DATA:
            return values[0].body
        blocks = _what_fits(value for value in values if value.type is kind)
        return _separator(kind).join(blocks) + b"EndBlock\r\n"

    async def _take(self, key: BlockKey, body: bytes, visitor: Visitor, digest: bytes) -> Verdict:
        """Judge and keep a user's value; a refusal is remembered under ``digest``."""
        try:
            asker = _asker(visitor)
            # What a stranger gives is spread as well, and yet makes room like any other.
            taken = await self._node.accept(
                key, body, asker.source, ours=not asker.stranger, waits=True
            )
        except InvalidBlock as error:
            return self._remember_refusal(digest, error)
        except BrokeVerifier as error:
            broken = InvalidBlock(Refusal.INTERNAL, str(error))
            return self._remember_refusal(digest, broken)
        verdict = Accepted()
        kept = StoredVerdict(taken.value.digest, str(verdict), self._clock() + VERDICT_KEPT)
        await self._store.write(lambda view: view.put_verdict(kept))
        if taken.news:
            self._posted(key, taken.value.digest, asker.stranger)
        return verdict

    async def _keep(self, key: BlockKey, body: bytes, source: str, digest: bytes) -> Verdict:
        try:
            await self._node.take(key, body, network_of_source(source))
        except InvalidBlock as error:
            return self._remember_refusal(digest, error)
        except BrokeVerifier as error:
            broken = InvalidBlock(Refusal.INTERNAL, str(error))
            return self._remember_refusal(digest, broken)
        return Accepted()

    async def _certificate(
        self,
        block: TextBlock,
        given: Sequence[KeyAnnouncement],
        visitor: Visitor,
        make_room: MakeRoom,
    ) -> KeyAnnouncement | None:
        """Return what a claim is to travel with: given with it, kept here, or in the DHT."""
        if not isinstance(block, AddressClaim):
            return None
        if given:
            return given[-1]
        key = announcement_key(block.key_id)
        stored = await self._store.read(lambda view: view.entry(BlockType.KEY_ANNOUNCEMENT, key))
        if stored is not None and not stored.revoked:
            found = parse_text_block(split_lines(stored.header))
            if isinstance(found, KeyAnnouncement):
                return found
        for value in await self._find(key, _asker(visitor), make_room):
            if value.type is BlockType.KEY_ANNOUNCEMENT and not value.standing.revoked:
                announced = value.block
                assert isinstance(announced, KeyAnnouncement)  # noqa: S101 - that is its type
                return announced
        raise InvalidBlock(Refusal.KEY, "the key that signed the claim is nowhere found")

    async def _find(
        self, key: BlockKey, asker: Asker, make_room: MakeRoom, since: datetime | None = None
    ) -> tuple[Value, ...]:
        """Look in the DHT, and beyond it if it has nothing, or mail, of which nobody has all."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _FIND_SECONDS
        values = await self._node.find(key, asker, make_room)
        if is_mailbox(values):
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    values = merged((*values, *await self._peers.find(key, since)))
        return values


class ValueReceiver:
    """Collects a data block that is small enough for the DHT, then has it judged."""

    def __init__(self, lines: Lines, judge: Callable[[bytes], Awaitable[Verdict]]) -> None:
        self._body = bytearray(_joined(lines))
        self._judge = judge
        self._most = MAX_VALUE

    async def take(self, chunk: bytes) -> None:
        """Take the next bytes; of a block that is too large no more is kept than shows it."""
        if len(self._body) <= self._most:
            self._body += chunk

    async def finish(self) -> Verdict:
        """Judge and keep what came."""
        return await self._judge(bytes(self._body))

    async def discard(self) -> None:
        """Forget what came."""
        self._body.clear()


def _what_fits(values: Iterator[Value]) -> list[bytes]:
    """Return blocks in their order, as many as one answer may hold: those with the best stamps."""
    found, room = list(values), HARD_TEXT_BODY
    chosen = set()
    for value in sorted(found, key=lambda each: each.rank):
        size = len(value.body) + len(_separator(value.type))
        if size <= room:
            room -= size
            chosen.add(value.digest)
    return [value.block_body for value in found if value.digest in chosen]


def _separator(kind: BlockType) -> bytes:
    """Return the line between two blocks of a type."""
    return f"{BLOCK_POLICY[kind].separator or ''}\r\n".encode()


def _asker(visitor: Visitor) -> Asker:
    """Return whose part of room and turns a visitor's wishes count against."""
    if visitor.confirmed and visitor.userid:
        return Asker(f"user {visitor.userid}")
    return Asker(network_of_source(visitor.source), stranger=True, shared=visitor.shared)


def _joined(lines: Lines) -> bytes:
    return b"".join(line + b"\r\n" for line in lines)


def _first_entry(body: bytes) -> Lines:
    return next(split_bundle(body.removesuffix(b"\r\n").split(b"\r\n")))


def _digest_of(lines: Lines, key: BlockKey | None = None) -> bytes:
    """Return the digest that a verdict is asked by; of data by its lines and its ``key``."""
    return hashlib.sha256(_joined(lines) + (key.raw if key else b"")).digest()


def _beginning(data: BlockData) -> bytes:
    """Return the bytes of a block, or as many as show that it is too large."""
    with data.open() as reader:
        return reader.read(MAX_VALUE + 1)
