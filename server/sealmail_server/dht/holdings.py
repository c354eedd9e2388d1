"""What this node keeps for the DHT: a bounded cache, in which nobody's values crowd out all."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.merges import Standing
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_server.dht.values import REVOCATION_AGE, Value
from sealmail_store import BlockStore, Count, DhtRow, StoreError, WriteView

# A native miner sells stamps cheap, so beside them a source has a part of the room only.
PART_OF_ONE_SOURCE = 16
# Entries of one mailbox, claims for one address: those with most stamp bits stay.
MOST_UNDER_KEY = {BlockType.MESSAGE_ANNOUNCEMENT: 256, BlockType.ADDRESS_CLAIM: 32}
# What this node has fetched because it is near counts under these names; distance bounds it.
_TAKEN_OVER = 64
_SLICE = 200


class NoRoom(StoreError):
    """A value that holds, for which there is no room here."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A value on its way in: from which network, and whether a user of ours posted it."""

    value: Value
    source: str
    ours: bool = False


class Holdings:
    """The kept values, merged by the rules of the block table."""

    def __init__(
        self, store: BlockStore, own_id: bytes, clock: Callable[[], datetime], room: int
    ) -> None:
        self._store = store
        self._own_id = own_id
        self._clock = clock
        self._room = room

    async def under(self, key: BlockKey) -> tuple[DhtRow, ...]:
        """Return what is kept under ``key`` and within its age, by digest."""
        now = self._clock()
        rows = await self._store.read(lambda view: view.dht.under(key))
        return tuple(row for row in rows if _is_alive(row, now))

    async def keys(self, after: bytes) -> tuple[BlockKey, ...]:
        """Return the next keys under which something is kept."""
        return await self._store.read(lambda view: view.dht.keys(after))

    async def keep(self, offer: Offer) -> bool:
        """Keep a value that was examined; ``False`` if a better one is here. Durable at return.

        ``NoRoom`` if what is here has more right to be.
        """
        return await self._store.write(partial(self._keep, offer=offer))

    async def unspread(self) -> tuple[BlockKey, ...]:
        """Return the keys of what users of ours posted and others do not keep yet."""
        return await self._store.read(lambda view: view.dht.unspread())

    async def count(self) -> Count:
        """Return how many values are kept, and their bytes."""
        return await self._store.read(lambda view: view.dht.count())

    async def release(self, key: BlockKey) -> None:
        """Note that others keep what is under ``key``."""
        await self._store.write(lambda view: view.dht.release(key))

    async def expire(self) -> int:
        """Forget what is beyond its age, and return how many values that were."""
        gone = 0
        for kind in BlockType:
            for revoked, age in ((False, BLOCK_POLICY[kind].max_age), (True, REVOCATION_AGE)):
                before = self._clock() - age
                work = partial(_expire, kind=kind, before=before, revoked=revoked)
                while removed := await self._store.write(work):
                    gone += removed
        return gone

    def _keep(self, view: WriteView, offer: Offer) -> bool:
        value, book = offer.value, view.dht
        held = book.one(value.key, value.type, value.identity)
        row = self._row(offer)
        if held is not None and not value.displaces(_standing(held)):
            if offer.ours and held.digest == value.digest:
                book.put(row)
            return held.digest == value.digest
        if held is None:
            self._make_place(view, row)
        self._make_room(view, row, len(held.body) if held else 0)
        book.put(row)
        return True

    def _make_place(self, view: WriteView, row: DhtRow) -> None:
        """Let the least stamped entry under the key go, if there are too many."""
        most = MOST_UNDER_KEY.get(BlockType(row.type))
        if most is None:
            return
        others = [each for each in view.dht.under(row.key) if each.type == row.type]
        if len(others) < most:
            return
        least = max(others, key=_rank)
        if _rank(least) <= _rank(row):
            raise NoRoom("the key has as many values as it may, with better stamps")
        view.dht.remove(least)

    def _make_room(self, view: WriteView, row: DhtRow, freed: int) -> None:
        """Let what is further from us go, unless a user of ours waits for others to take it."""
        size = len(row.body) - freed
        used = view.dht.count(row.source).bytes
        if used + size > self._room // PART_OF_ONE_SOURCE:
            raise NoRoom(f"{row.source} has used up its part")
        missing = view.dht.count().bytes + size - self._room
        if missing <= 0:
            return
        going = []
        for far in view.dht.furthest():
            if missing <= 0 or far.distance <= row.distance:
                break
            going.append(far)
            missing -= len(far.body)
        if missing > 0:
            raise NoRoom("all that is here is nearer to this node")
        for far in going:
            view.dht.remove(far)

    def _row(self, offer: Offer) -> DhtRow:
        value = offer.value
        apart = bytes(a ^ b for a, b in zip(value.key.raw, self._own_id, strict=True))
        return DhtRow(
            key=value.key,
            type=value.type,
            identity=value.identity,
            digest=value.digest,
            date=value.date,
            stamp_bits=value.standing.bits,
            revoked=value.standing.revoked,
            distance=apart,
            source=offer.source,
            ours=offer.ours,
            body=value.body,
        )


def source_of_taken_over(key: BlockKey) -> str:
    """Return what a value that this node itself asked for counts under."""
    return f"taken-over-{key.raw[-1] % _TAKEN_OVER}"


def _standing(row: DhtRow) -> Standing:
    return Standing(row.date, row.digest, row.revoked, row.stamp_bits)


def _rank(row: DhtRow) -> tuple[int, bytes]:
    """Order values by who stays: most stamp bits first, then the lower digest."""
    return -row.stamp_bits, row.digest


def _is_alive(row: DhtRow, now: datetime) -> bool:
    age = REVOCATION_AGE if row.revoked else BLOCK_POLICY[BlockType(row.type)].max_age
    return now - row.date < age


def _expire(view: WriteView, *, kind: BlockType, before: datetime, revoked: bool) -> int:
    return view.dht.remove_expired(kind, before, _SLICE, revoked=revoked)
