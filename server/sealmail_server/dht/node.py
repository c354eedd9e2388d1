"""This server's part in the DHT: it keeps values for others, and finds and spreads them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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
    Peer,
    Place,
    Request,
    answer_room,
    decode_holdings,
    encode_holdings,
    key_of,
    read_store_content,
    store_content,
)
from sealmail_server.dht.holdings import Holdings, NoRoom, Offer, source_of_taken_over
from sealmail_server.dht.lookup import Found
from sealmail_server.dht.neighbourhood import DhtSettings, Neighbourhood
from sealmail_server.dht.neighbours import distance, network_of
from sealmail_server.dht.node_key import NodeKey
from sealmail_server.dht.values import MAX_VALUE, Examiner, Value, merged
from sealmail_store import BlockStore, DhtRow, StoreError
from sealmail_verify import BrokeVerifier, Undecided, VerifierPool

_log = logging.getLogger(__name__)

# Pages of one node's list under one key, of which each holds at least one value.
_MAX_PAGES = 300
# Values fetched from one node for one look-up, and nodes dialled at a time by this one.
_MAX_FETCHED = 300
_DIALLED_AT_ONCE = 8
# Look-ups for users at a time: a stranger's one question has some sixty nodes asked.
_FOUND_AT_ONCE = 8
_FETCH_SECONDS = 8.0
# A look-up that takes longer gives what is here.
_FIND_SECONDS = 45.0


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
        value = await self.examiner.examine(key, body, self._clock())
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
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIND_SECONDS), self._finding:
                found = await self.neighbourhood.walk(key.raw)
                lists = await self._ask_holdings(key, found)
                values += await self._fetch(key, lists, {value.digest for value in values})
        return merged(values)

    async def spread(self, key: BlockKey) -> Spread:
        """Have the values of ``key`` kept by the nodes nearest to it, and by us if we are one.

        One and the same effort publishes, republishes, hands over to new nodes and unites the
        parts of a network that was cut.
        """
        found = (await self.neighbourhood.walk(key.raw))[: self.settings.replicas]
        lists = await self._ask_holdings(key, found)
        if self._belongs_here(key, found):
            await self._take_over(key, lists)
        rows = await self.holdings.under(key)
        digests = {row.digest for row in rows}
        efforts = [
            self._give(key, each, [row.body for row in rows if row.digest not in theirs])
            for each in found
            for theirs in [{held.digest for held in lists.get(each.peer, ())}]
            if digests - theirs
        ]
        given = await asyncio.gather(*efforts)
        full = len(found) - len(efforts) + sum(given)
        spread = Spread(len(found), full if rows else 0)
        if spread.enough:
            await self.holdings.release(key)
        return spread

    async def spread_all(self) -> int:
        """Spread every key that is kept here, in turn; return how many there are."""
        count, after = 0, b""
        while keys := await self.holdings.keys(after):
            for key in keys:
                try:
                    await self.spread(key)
                except Exception:  # one value must not keep the others from being spread
                    _log.exception("the value under %s could not be spread", key)
                count += 1
            after = keys[-1].raw
        return count

    def _belongs_here(self, key: BlockKey, found: Sequence[Found]) -> bool:
        if len(found) < self.settings.replicas:
            return True
        own = distance(self.neighbourhood.key.id, key.raw)
        return own < distance(found[-1].peer.id, key.raw)

    async def _take_over(self, key: BlockKey, lists: "_Lists") -> None:
        rows = await self.holdings.under(key)
        for value in await self._fetch(key, lists, {row.digest for row in rows}):
            # It counts against nobody: this node asked for it itself.
            with suppress(NoRoom, StoreError):
                await self.keep(value, source_of_taken_over(key))

    async def _held_here(self, key: BlockKey) -> AsyncIterator[Value]:
        for row in await self.holdings.under(key):
            with suppress(InvalidBlock, Undecided, BrokeVerifier):
                yield await self.examiner.examine(key, row.body, self._clock())

    async def _ask_holdings(self, key: BlockKey, found: Iterable[Found]) -> "_Lists":
        peers = [each.peer for each in found]
        lists = await asyncio.gather(*(self._holdings_of(peer, key) for peer in peers))
        return dict(zip(peers, lists, strict=True))

    async def _holdings_of(self, peer: Peer, key: BlockKey) -> tuple[Held, ...]:
        """Return what a node says it holds under ``key``, page by page."""
        listed: dict[bytes, Held] = {}
        after = b""
        for _ in range(_MAX_PAGES):
            answer = await self.neighbourhood.ask(peer, Ask.HOLDINGS, key.raw, after)
            if answer is None:
                break
            try:
                total, page = decode_holdings(answer.content)
            except BadDatagram:
                break
            page = tuple(held for held in page if held.digest > after)
            listed |= {held.digest: held for held in page}
            if not page or len(listed) >= total:
                break
            after = max(held.digest for held in page)
        return tuple(listed.values())

    async def _fetch(self, key: BlockKey, lists: "_Lists", known: set[bytes]) -> list[Value]:
        """Return the values that nodes list and that hold: each from the first who gives it.

        Whoever gives one value that does not hold is not asked for another.
        """
        fetching = _Fetching(set(known))
        for peer, listed in lists.items():
            await self._examine(key, fetching, peer, [held.body for held in listed if held.body])
        holders: dict[bytes, list[Peer]] = {}
        for peer, listed in lists.items():
            for held in listed[:_MAX_FETCHED]:
                if not held.body and held.size <= MAX_VALUE:
                    holders.setdefault(held.digest, []).append(peer)
        while turns := fetching.next_turns(holders):
            await asyncio.gather(
                *(self._fetch_from(key, fetching, *turn) for turn in turns.items())
            )
        return [value for value in fetching.values if value.digest not in known]

    async def _fetch_from(
        self, key: BlockKey, fetching: "_Fetching", peer: Peer, digests: Sequence[bytes]
    ) -> None:
        if self._carrier is None:
            return
        try:
            async with self._dialling, asyncio.timeout(_FETCH_SECONDS):
                bodies = await self._carrier.fetch(peer.place, key, digests)
        except (NetworkError, TimeoutError) as error:
            fetching.liars.add(peer)
            _log.info("%s gives no values: %s", peer.place, error)
            return
        await self._examine(key, fetching, peer, bodies)

    async def _examine(
        self, key: BlockKey, fetching: "_Fetching", peer: Peer, bodies: Iterable[bytes]
    ) -> None:
        for body in bodies:
            if body in fetching.seen:
                continue
            try:
                value = await self.examiner.examine(key, body, self._clock())
            except InvalidBlock as error:
                _log.info("%s gave no good value: %s", peer.place, error.reason)
                fetching.liars.add(peer)
                return
            except (Undecided, BrokeVerifier) as error:
                _log.warning("a value could not be verified: %s", error)
                continue
            fetching.seen.add(body)
            fetching.known.add(value.digest)
            fetching.values.append(value)

    async def _give(self, key: BlockKey, to: Found, bodies: Sequence[bytes]) -> bool:
        """Give a node what it lacks, and tell whether it took it all."""
        small = [body for body in bodies if len(body) <= SMALL_VALUE]
        large = [body for body in bodies if len(body) > SMALL_VALUE]
        for body in small:
            content = store_content(to.token, body)
            answer = await self.neighbourhood.ask(to.peer, Ask.STORE, key.raw, content)
            if answer is None or answer.content != bytes((Outcome.TAKEN,)):
                return False
        if not large:
            return True
        if self._carrier is None:
            return False
        try:
            async with self._dialling, asyncio.timeout(_FETCH_SECONDS):
                return await self._carrier.push(to.peer.place, key, large) == len(large)
        except (NetworkError, TimeoutError) as error:
            _log.info("%s takes no values: %s", to.peer.place, error)
            return False


_Lists = dict[Peer, tuple[Held, ...]]


@dataclass(slots=True)
class _Fetching:
    """What one look-up has got so far, and from whom it wants nothing more."""

    known: set[bytes]
    values: list[Value] = field(default_factory=list)
    seen: set[bytes] = field(default_factory=set)
    liars: set[Peer] = field(default_factory=set)

    def next_turns(self, holders: dict[bytes, list[Peer]]) -> dict[Peer, list[bytes]]:
        """Return whom to ask next for what, and ask nobody twice for the same."""
        turns: dict[Peer, list[bytes]] = {}
        for digest, peers in holders.items():
            while digest not in self.known and peers:
                peer = peers.pop(0)
                if peer not in self.liars:
                    turns.setdefault(peer, []).append(digest)
                    break
        return turns


def _inline(body: bytes) -> bytes:
    return body if len(body) <= SMALL_VALUE else b""
