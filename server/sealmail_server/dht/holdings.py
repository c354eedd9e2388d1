"""What this node keeps for the DHT: a bounded cache, in which nobody's values crowd out all."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.merges import Standing
from sealmail_server.dht.datagrams import SMALL_VALUE
from sealmail_server.dht.values import MOST_UNDER_KEY, Value
from sealmail_store import BlockStore, Count, DhtListed, DhtRow, StoreError, WriteView

# A native miner sells stamps cheap, so beside them a source has a part of the room only.
PART_OF_ONE_SOURCE = 16
# Values of one page; a datagram has no room for more, however small they are.
_PAGE = 32
_SLICE = 200


class NoRoom(StoreError):
    """A value that holds, for which there is no room here."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A value on its way in: from which network, and whether a user of ours posted it.

    What is not in the keeping of others ``waits`` for them: whatever was posted here.
    """

    value: Value
    source: str
    ours: bool = False
    waits: bool = False


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
        return await self._store.read(lambda view: view.dht.under(key, now))

    async def value(self, key: BlockKey, digest: bytes) -> DhtRow | None:
        """Return one value that is kept and within its age."""
        now = self._clock()
        return await self._store.read(lambda view: view.dht.value(key, digest, now))

    async def listed(self, key: BlockKey) -> tuple[DhtListed, ...]:
        """Return what is kept under ``key`` without its bodies, by digest."""
        now = self._clock()
        return await self._store.read(lambda view: view.dht.listed(key, now))

    async def page(self, key: BlockKey, after: bytes) -> tuple[int, tuple[DhtListed, ...]]:
        """Return how many values are kept under ``key``, and the next ones, small ones whole."""
        now = self._clock()
        return await self._store.read(
            lambda view: (
                view.dht.count_under(key, now),
                view.dht.listed(key, now, after, _PAGE, SMALL_VALUE),
            )
        )

    async def keys(self, after: bytes) -> tuple[BlockKey, ...]:
        """Return the next keys under which something is kept."""
        return await self._store.read(lambda view: view.dht.keys(after))

    async def keep(self, offer: Offer) -> bool:
        """Keep a value that was examined, and tell whether that is news. Durable at return.

        ``NoRoom`` if what is here has more right to be.
        """
        return await self._store.write(partial(self._keep, offer=offer))

    async def unspread(self) -> tuple[BlockKey, ...]:
        """Return the keys of what was posted here and others do not keep yet."""
        return await self._store.read(lambda view: view.dht.unspread())

    async def count(self) -> Count:
        """Return how many values are kept, and their bytes."""
        return await self._store.read(lambda view: view.dht.count())

    async def release(self, key: BlockKey, digests: Iterable[bytes]) -> None:
        """Note that others keep these values."""
        known = tuple(digests)
        await self._store.write(lambda view: view.dht.release(key, known))

    async def expire(self) -> int:
        """Forget what is beyond its age, and return how many values that were."""
        now, gone = self._clock(), 0
        while removed := await self._store.write(
            lambda view: view.dht.remove_expired(now, _SLICE)
        ):
            gone += removed
        return gone

    def _keep(self, view: WriteView, offer: Offer) -> bool:
        value = offer.value
        held = view.dht.one(value.key, value.type, value.identity)
        if held is not None and held.digest == value.digest:
            # Whoever wants it kept for him pays for its room from then on.
            if not offer.ours or held.ours:
                return False
        elif held is not None and not value.displaces(_standing(held)):
            return False
        row = self._row(offer)
        if held is None:
            self._make_place(view, row)
        elif held.waits:
            row = _in_place_of(held, row)
        self._make_room(view, row, held)
        view.dht.put(row)
        return True

    def _make_place(self, view: WriteView, row: DhtRow) -> None:
        """Let the least stamped entry under the key go, if there are too many.

        What a user of ours gave stays, until others keep it.
        """
        most = MOST_UNDER_KEY.get(BlockType(row.type))
        if most is None:
            return
        others = view.dht.of_type(row.key, row.type)
        if len(others) < most:
            return
        going = [each for each in others if not each.ours]
        least = max(going, key=_rank, default=None)
        if least is None or _rank(least) <= _rank(row):
            raise NoRoom("the key has as many values as it may, with better stamps")
        view.dht.remove(least.number)

    def _make_room(self, view: WriteView, row: DhtRow, held: DhtListed | None) -> None:
        """Let what is further from us go, unless a user of ours waits for others to take it.

        What a user of ours gives is no further than anything: here it waits for others.
        """
        size, freed = len(row.body), held.size if held else 0
        used = view.dht.count(row.source).bytes
        used -= freed if held and held.source == row.source else 0
        if used + size > self._room // PART_OF_ONE_SOURCE:
            raise NoRoom(f"{row.source} has used up its part")
        missing = view.dht.count().bytes + size - freed - self._room
        if missing <= 0:
            return
        going = []
        for far in view.dht.furthest():
            if missing <= 0 or (far.distance <= row.distance and not row.ours):
                break
            if held is None or far.number != held.number:
                going.append(far.number)
                missing -= far.size
        if missing > 0:
            raise NoRoom("all that is here is nearer to this node")
        for number in going:
            view.dht.remove(number)

    def _row(self, offer: Offer) -> DhtRow:
        value = offer.value
        apart = bytes(a ^ b for a, b in zip(value.key.raw, self._own_id, strict=True))
        return DhtRow(
            key=value.key,
            type=value.type,
            identity=value.identity,
            digest=value.digest,
            date=value.date,
            until=value.until,
            stamp_bits=value.standing.bits,
            revoked=value.standing.revoked,
            distance=apart,
            source=offer.source,
            ours=offer.ours,
            waits=offer.ours or offer.waits,
            body=value.body,
        )


def _standing(row: DhtListed) -> Standing:
    return Standing(row.date, row.digest, row.revoked, row.stamp_bits)


def _in_place_of(held: DhtListed, row: DhtRow) -> DhtRow:
    """Return a newer form of what waits for others, which waits in its stead.

    Anybody can date what is only stamped anew: that takes nothing from whoever posted it.
    """
    stays = held.ours or not row.ours
    return replace(
        row, source=held.source if stays else row.source, ours=held.ours or row.ours, waits=True
    )


def _rank(row: DhtListed | DhtRow) -> tuple[int, bytes]:
    """Order values by who stays, as ``Value.rank`` does."""
    return -row.stamp_bits, row.digest
