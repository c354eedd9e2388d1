"""This server's part in the DHT: it keeps values for others, and finds and spreads them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from sealmail_net.errors import NetworkError
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.keys import BlockKey
from sealmail_server.dht.carrier import Carrier
from sealmail_server.dht.datagrams import (
    DIGEST_BYTES,
    SMALL_VALUE,
    Ask,
    BadDatagram,
    Held,
    Outcome,
    Place,
    Request,
    answer_room,
    encode_holdings,
    key_of,
    read_store_content,
    store_content,
)
from sealmail_server.dht.gathering import Gathering, Lists
from sealmail_server.dht.holdings import Holdings, NoRoom, Offer, source_of_taken_over
from sealmail_server.dht.lookup import Found
from sealmail_server.dht.neighbourhood import DhtSettings, Neighbourhood
from sealmail_server.dht.neighbours import distance, network_of
from sealmail_server.dht.node_key import NodeKey
from sealmail_server.dht.values import Examiner, Value, merged
from sealmail_store import BlockStore, DhtRow, StoreError
from sealmail_verify import BrokeVerifier, Undecided, VerifierPool

_log = logging.getLogger(__name__)

# Nodes that this one is connected to at a time.
_DIALLED_AT_ONCE = 64
# Look-ups for users at a time: a stranger's one question has some sixty nodes asked.
_FOUND_AT_ONCE = 8
# A look-up that takes longer gives what has come.
_FIND_SECONDS = 45.0
# What one effort to spread a key takes for what this node lacks, and gives each other one for
# what that lacks; the rest is for the next one.
_TAKE_OVER_SECONDS = 20.0
_GIVE_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Spread:
    """What became of an effort to have a key's values kept where they belong."""

    nearest: int
    holding: int

    @property
    def enough(self) -> bool:
        """Return whether half of those nearest to the key hold it all."""
        return self.holding > 0 and 2 * self.holding >= self.nearest


class DhtNode:
    """Keeps values for others, and looks up and spreads those of this server's users.

    ``carrier`` moves larger values; without one only those that fit a datagram travel.
    """

    def __init__(
        self,
        store: BlockStore,
        verifier: VerifierPool,
        clock: Callable[[], datetime],
        key: NodeKey,
        settings: DhtSettings,
        room: int,
        carrier: Carrier | None = None,
    ) -> None:
        self.settings = settings
        self.holdings = Holdings(store, key.id, clock, room)
        self.neighbourhood = Neighbourhood(key, settings, self._answer)
        self.examiner = Examiner(verifier)
        self._clock = clock
        self._carrier = carrier
        self._dialling = asyncio.Semaphore(_DIALLED_AT_ONCE)
        self._finding = asyncio.Semaphore(_FOUND_AT_ONCE)

    # What others ask.

    async def value(self, key: BlockKey, digest: bytes) -> DhtRow | None:
        """Return one value that is kept here; nobody else is asked."""
        rows = await self.holdings.under(key)
        return next((row for row in rows if row.digest == digest), None)

    async def take(self, key: BlockKey, body: bytes, source: str, *, ours: bool = False) -> Value:
        """Examine and keep a value; ``InvalidBlock``, ``NoRoom`` or ``Undecided`` if not."""
        value = await self._examine(key, body)
        await self.keep(value, source, ours=ours)
        return value

    async def keep(self, value: Value, source: str, *, ours: bool = False) -> bool:
        """Keep a value that was examined, or a better one that is here already."""
        return await self.holdings.keep(Offer(value, source, ours))

    async def _answer(self, request: Request, place: Place) -> bytes | None:
        if request.ask is Ask.HOLDINGS:
            return await self._list(key_of(request), request.content)
        token, body = read_store_content(request.content)
        if not self.neighbourhood.is_good_token(token, place):
            return bytes((Outcome.REFUSED,))
        return bytes((await self._outcome(key_of(request), body, place),))

    async def _list(self, key: BlockKey, after: bytes) -> bytes:
        if len(after) not in (0, DIGEST_BYTES):
            raise BadDatagram("not a place in a list")
        rows = await self.holdings.under(key)
        page = (
            Held(BlockType(row.type), row.digest, len(row.body), _inline(row.body))
            for row in rows
            if row.digest > after
        )
        return encode_holdings(len(rows), page, answer_room())

    async def _outcome(self, key: BlockKey, body: bytes, place: Place) -> Outcome:
        try:
            await self.take(key, body, network_of(place))
        except InvalidBlock as error:
            _log.info("%s offered no good value: %s", place, error.reason)
            return Outcome.REFUSED
        except (NoRoom, StoreError, Undecided, BrokeVerifier) as error:
            _log.info("no room for a value of %s: %s", place, error)
            return Outcome.NO_ROOM
        return Outcome.TAKEN

    # What this server's users ask.

    async def find(self, key: BlockKey) -> tuple[Value, ...]:
        """Return all values under ``key`` that can be found and hold; merged by the table."""
        values = [value async for value in self._held_here(key)]
        gathering = self._gathering(key, (value.digest for value in values))
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIND_SECONDS), self._finding:
                found = await self.neighbourhood.walk(key.raw)
                await gathering.fetch(await gathering.lists(found))
        return merged((*values, *gathering.values))

    async def spread(self, key: BlockKey) -> Spread:
        """Have the values of ``key`` kept by the nodes nearest to it, and by us if we are one.

        One and the same effort publishes, republishes, hands over to new nodes and unites the
        parts of a network that was cut.
        """
        found = (await self.neighbourhood.walk(key.raw))[: self.settings.replicas]
        held = await self.holdings.under(key)
        gathering = self._gathering(key, (row.digest for row in held))
        lists = await gathering.lists(found)
        if self._belongs_here(key, found):
            await self._take_over(gathering, lists)
        rows = await self.holdings.under(key)
        digests = {row.digest for row in rows}
        efforts = [
            self._give(key, each, [row.body for row in rows if row.digest not in theirs])
            for each in found
            for theirs in [{held.digest for held in lists[each.peer]}]
            if digests - theirs
        ]
        given = await asyncio.gather(*efforts)
        full = len(found) - len(efforts) + sum(given)
        spread = Spread(len(found), full if rows else 0)
        if spread.enough:
            await self.holdings.release(key)
        return spread

    async def spread_all(self) -> None:
        """Spread every key that is kept here, in turn."""
        after = b""
        while keys := await self.holdings.keys(after):
            for key in keys:
                try:
                    await self.spread(key)
                except Exception:  # one value must not keep the others from being spread
                    _log.exception("the value under %s could not be spread", key)
            after = keys[-1].raw

    def _belongs_here(self, key: BlockKey, found: Sequence[Found]) -> bool:
        if len(found) < self.settings.replicas:
            return True
        own = distance(self.neighbourhood.key.id, key.raw)
        return own < distance(found[-1].peer.id, key.raw)

    async def _take_over(self, gathering: Gathering, lists: Lists) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_TAKE_OVER_SECONDS):
                await gathering.fetch(lists)
        for value in gathering.values:
            # It counts against nobody: this node asked for it itself.
            with suppress(NoRoom, StoreError):
                await self.keep(value, source_of_taken_over(value.key))

    async def _held_here(self, key: BlockKey) -> AsyncIterator[Value]:
        for row in await self.holdings.under(key):
            with suppress(InvalidBlock, Undecided, BrokeVerifier):
                yield await self._examine(key, row.body)

    async def _examine(self, key: BlockKey, body: bytes) -> Value:
        return await self.examiner.examine(key, body, self._clock())

    def _gathering(self, key: BlockKey, known: Iterable[bytes]) -> Gathering:
        return Gathering(
            key, known, self.neighbourhood, self._examine, self._carrier, self._dialling
        )

    async def _give(self, key: BlockKey, to: Found, bodies: Sequence[bytes]) -> bool:
        """Give a node what it lacks, and tell whether it took it all."""
        try:
            async with asyncio.timeout(_GIVE_SECONDS):
                return await self._give_small(key, to, bodies) and await self._give_large(
                    key, to, bodies
                )
        except (NetworkError, TimeoutError) as error:
            _log.info("%s takes no values: %s", to.peer.place, error)
            return False

    async def _give_small(self, key: BlockKey, to: Found, bodies: Sequence[bytes]) -> bool:
        for body in bodies:
            if len(body) > SMALL_VALUE:
                continue
            content = store_content(to.token, body)
            answer = await self.neighbourhood.ask(to.peer, Ask.STORE, key.raw, content)
            if answer is None or answer.content != bytes((Outcome.TAKEN,)):
                return False
        return True

    async def _give_large(self, key: BlockKey, to: Found, bodies: Sequence[bytes]) -> bool:
        large = [body for body in bodies if len(body) > SMALL_VALUE]
        if not large:
            return True
        if self._carrier is None:
            return False
        async with self._dialling:
            return await self._carrier.push(to.peer.place, key, large) == len(large)


def _inline(body: bytes) -> bytes:
    return body if len(body) <= SMALL_VALUE else b""
