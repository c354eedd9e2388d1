"""This server's part in the DHT: it keeps values for others, and finds and spreads them."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
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
from sealmail_server.dht.holdings import Holdings, NoRoom, Offer
from sealmail_server.dht.lookup import Found, choose
from sealmail_server.dht.neighbourhood import DhtSettings, Neighbourhood
from sealmail_server.dht.neighbours import distance, network_of
from sealmail_server.dht.node_key import NodeKey
from sealmail_server.dht.turns import OURS, Asker, NoTurn, Turns
from sealmail_server.dht.values import Examiner, Value, merged, read_value
from sealmail_store import BlockStore, DhtRow, StoreError
from sealmail_verify import BrokeVerifier, Undecided, VerifierPool

_log = logging.getLogger(__name__)

# Nodes that this one is connected to at a time.
_DIALLED_AT_ONCE = 64
# Look-ups at a time: one question has some sixty nodes asked. Half of them is for users only.
_FOUND_AT_ONCE = 8
_FOUND_FOR_STRANGERS = 4
_FOUND_FOR_ONE = 3
# A look-up that takes longer gives what has come.
_FIND_SECONDS = 45.0
# What one effort to spread a key takes for what this node lacks, and gives each other one for
# what that lacks; the rest is for the next one.
_TAKE_OVER_SECONDS = 20.0
_GIVE_SECONDS = 30.0
# Values for which a node may leave us without an answer before it is left.
_SILENT_AT_MOST = 2
# Keys that are spread at a time when all are.
_SPREAD_AT_ONCE = 4

# Told of bytes that will be held in memory; raises a ``StoreError`` if there is no room for them.
MakeRoom = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Spread:
    """What became of an effort to have a key's values kept where they belong.

    ``nearest`` nodes were asked to; ``holding`` of them have it all, and ``refusing`` said of a
    value that they do not take it.
    """

    nearest: int
    holding: int
    refusing: int = 0

    @property
    def enough(self) -> bool:
        """Return whether half of those nearest to the key hold it all."""
        return self.holding > 0 and 2 * self.holding >= self.nearest


@dataclass(frozen=True, slots=True)
class Taken:
    """A value that holds and is kept, or a better one; ``news`` if that changed what is kept."""

    value: Value
    news: bool


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
        self.clock = clock
        self._carrier = carrier
        self._dialling = asyncio.Semaphore(_DIALLED_AT_ONCE)
        self.turns = Turns(
            _FOUND_AT_ONCE, of_strangers=_FOUND_FOR_STRANGERS, of_one=_FOUND_FOR_ONE
        )

    # What others ask.

    async def value(self, key: BlockKey, digest: bytes) -> DhtRow | None:
        """Return one value that is kept here; nobody else is asked."""
        return await self.holdings.value(key, digest)

    async def take(self, key: BlockKey, body: bytes, source: str, *, ours: bool = False) -> Value:
        """Examine and keep a value; ``InvalidBlock``, ``NoRoom`` or ``Undecided`` if not."""
        return (await self.accept(key, body, source, ours=ours)).value

    async def accept(
        self, key: BlockKey, body: bytes, source: str, *, ours: bool = False, waits: bool = False
    ) -> Taken:
        """Do as ``take``, and tell whether it was news. What is here already is not verified.

        What ``waits`` was posted here, by a user of ``ours`` or by a stranger.
        """
        value = read_value(key, body, self.clock())
        held = await self.holdings.value(key, value.digest)
        if held is not None and held.body == body:
            value = replace(value, standing=replace(value.standing, revoked=held.revoked))
        else:
            value = await self.examiner.verified(value, self.clock())
        return Taken(value, await self.holdings.keep(Offer(value, source, ours, waits)))

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
        total, page = await self.holdings.page(key, after)
        held = (Held(BlockType(row.type), row.digest, row.size, row.body) for row in page)
        return encode_holdings(total, held, answer_room())

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

    async def find(
        self, key: BlockKey, asker: Asker = OURS, make_room: MakeRoom = lambda _: None
    ) -> tuple[Value, ...]:
        """Return all values under ``key`` that can be found and hold; merged by the table.

        ``make_room`` is told of the bytes of those that are here before they are read. ``NoTurn``
        if nobody could be asked for want of a turn.
        """
        here: tuple[Value, ...] = ()
        gathering = None
        with suppress(TimeoutError):
            # Who waits for a turn holds nothing meanwhile.
            async with asyncio.timeout(_FIND_SECONDS), self.turns.turn(asker):
                make_room(sum(row.size for row in await self.holdings.listed(key)))
                here = tuple(map(Value.of, await self.holdings.under(key)))
                gathering = self._gathering(key, (value.digest for value in here))
                found = await self.neighbourhood.walk(key.raw)
                await gathering.fetch(await gathering.lists(found))
        if gathering is None:
            raise NoTurn("too many look-ups are under way")
        return merged((*here, *gathering.values))

    async def spread(self, key: BlockKey) -> Spread:
        """Have the values of ``key`` kept by the nodes nearest to it, and by us if we are one.

        One and the same effort publishes, republishes, hands over to new nodes and unites the
        parts of a network that was cut.
        """
        found = choose(
            await self.neighbourhood.walk(key.raw),
            self.settings.replicas,
            diverse=not self.settings.allow_private,
        )
        held = await self.holdings.listed(key)
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
        full = len(found) - len(efforts) + given.count(Given())
        refusing = sum(each.refused > 0 for each in given)
        spread = Spread(len(found), full if rows else 0, refusing)
        if spread.enough:
            # What was posted meanwhile is not spread yet.
            await self.holdings.release(key, digests)
        return spread

    async def spread_all(self, is_due: Callable[[BlockKey], bool] = lambda _: True) -> None:
        """Spread every key that is kept here and due, a few at a time."""
        after = b""
        while keys := await self.holdings.keys(after):
            due = iter([key for key in keys if is_due(key)])
            async with asyncio.TaskGroup() as group:
                for _ in range(_SPREAD_AT_ONCE):
                    group.create_task(self._spread_each(due))
            after = keys[-1].raw

    async def _spread_each(self, keys: Iterable[BlockKey]) -> None:
        for key in keys:
            try:
                await self.spread(key)
            except Exception:  # one value must not keep the others from being spread
                _log.exception("the values under %s could not be spread", key)

    def _belongs_here(self, key: BlockKey, found: Sequence[Found]) -> bool:
        if len(found) < self.settings.replicas:
            return True
        own = distance(self.neighbourhood.key.id, key.raw)
        return own < distance(found[-1].peer.id, key.raw)

    async def _take_over(self, gathering: Gathering, lists: Lists) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_TAKE_OVER_SECONDS):
                await gathering.fetch(lists)
        for peer, value in gathering.given:
            # As if he had brought it himself: what a network lists has its part of the room.
            with suppress(StoreError):
                await self.holdings.keep(Offer(value, network_of(peer.place)))

    async def _examine(self, key: BlockKey, body: bytes) -> Value:
        return await self.examiner.examine(key, body, self.clock())

    def _gathering(self, key: BlockKey, known: Iterable[bytes]) -> Gathering:
        return Gathering(
            key, known, self.neighbourhood, self._examine, self._carrier, self._dialling
        )

    async def _give(self, key: BlockKey, to: Found, bodies: Sequence[bytes]) -> "Given":
        """Give a node what it lacks: one value that it does not take keeps no other back."""
        given = Given()
        try:
            async with asyncio.timeout(_GIVE_SECONDS):
                for give in (self._give_small, self._give_large):
                    given += await give(key, to, bodies)
        except (NetworkError, TimeoutError) as error:
            _log.info("%s takes no values: %s", to.peer.place, error)
            return given + Given(silent=1)
        return given

    async def _give_small(self, key: BlockKey, to: Found, bodies: Sequence[bytes]) -> "Given":
        given = Given()
        for body in bodies:
            if len(body) > SMALL_VALUE:
                continue
            content = store_content(to.token, body)
            answer = await self.neighbourhood.ask(to.peer, Ask.STORE, key.raw, content)
            if answer is None:
                given += Given(silent=1)
                if given.silent >= _SILENT_AT_MOST:
                    break
            elif answer.content != bytes((Outcome.TAKEN,)):
                given += Given(refused=1)
        return given

    async def _give_large(self, key: BlockKey, to: Found, bodies: Sequence[bytes]) -> "Given":
        large = [body for body in bodies if len(body) > SMALL_VALUE]
        if not large:
            return Given()
        if self._carrier is None:
            return Given(refused=len(large))
        async with self._dialling:
            taken = await self._carrier.push(to.peer.place, key, large)
        return Given(refused=len(large) - taken)


@dataclass(frozen=True, slots=True)
class Given:
    """How many values a node did not take, and how many it did not answer for."""

    refused: int = 0
    silent: int = 0

    def __add__(self, other: "Given") -> "Given":
        return Given(self.refused + other.refused, self.silent + other.silent)
