"""What other nodes hold under a key: listed, then fetched, though some of them lie or stall.

Nobody's slowness costs more than his own part: each list has a deadline, and where a holder is
slow to give a value another one is asked beside him.
"""

import asyncio
import hashlib
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing, suppress
from random import SystemRandom

from sealmail_net.errors import NetworkError
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.keys import BlockKey
from sealmail_server.dht.carrier import Carrier
from sealmail_server.dht.datagrams import (
    DIGEST_BYTES,
    Ask,
    BadDatagram,
    Held,
    Peer,
    decode_holdings,
)
from sealmail_server.dht.lookup import Found
from sealmail_server.dht.neighbourhood import Neighbourhood
from sealmail_server.dht.values import MAX_VALUE, MOST_UNDER_KEY, Value, merged
from sealmail_verify import BrokeVerifier, Undecided

_log = logging.getLogger(__name__)

_random = SystemRandom()
# An honest node keeps no more under one key.
MOST_LISTED = sum(MOST_UNDER_KEY.values())
# What is read for one key: as much as four holders have of a mailbox full of the largest mail.
# Whoever invents more of it than an honest node may have is not the only one who is heard.
MOST_BYTES = 64 * 1024**2
MOST_BYTES_OF_ONE = 16 * 1024**2
# Values that are too old, or dated ahead, of one node: clocks differ by less than makes many.
_MISDATED_AT_MOST = 3

# What nodes say they hold, nearest node first.
Lists = dict[Peer, tuple[Held, ...]]
# Judges the body of a value under a key.
Examine = Callable[[BlockKey, bytes], Awaitable[Value]]


class Gathering:
    """The effort for one key. ``given`` are those that came and hold, also if it is cut short.

    ``known`` are the digests of values that are here already. ``dialling`` bounds how many
    nodes this one is connected to.
    """

    def __init__(
        self,
        key: BlockKey,
        known: Iterable[bytes],
        neighbourhood: Neighbourhood,
        examine: Examine,
        carrier: Carrier | None,
        dialling: asyncio.Semaphore,
    ) -> None:
        self._key = key
        self._neighbourhood = neighbourhood
        self._settings = neighbourhood.settings
        self._examine = examine
        self._carrier = carrier
        self._dialling = dialling
        self._known = set(known)
        self._seen: dict[bytes, Peer] = {}
        self._liars: set[Peer] = set()
        self._misdated: Counter[Peer] = Counter()
        # All that each gave; of that all together gave what was new and may hold.
        self._read: Counter[Peer] = Counter()
        self._read_of_all = 0
        self._given: dict[bytes, tuple[Peer, Value]] = {}

    @property
    def given(self) -> list[tuple[Peer, Value]]:
        """Return what came and holds, and who gave it first; as much as a node may keep."""
        return [self._given[value.digest] for value in self.values]

    @property
    def values(self) -> tuple[Value, ...]:
        """Return what came and holds, merged by the table."""
        return merged(value for _, value in self._given.values())

    async def lists(self, found: Iterable[Found]) -> Lists:
        """Ask nodes what they hold; of whoever is slow, what came within his time."""
        peers = [each.peer for each in found]
        lists = await asyncio.gather(*map(self._list_of, peers))
        return dict(zip(peers, lists, strict=True))

    async def fetch(self, lists: Lists) -> None:
        """Get the values that nodes list: the nearest holder first, then any of them.

        Whoever gives one value that does not hold is asked for no other.
        """
        for peer, listed in lists.items():
            for held in listed:
                if held.body and not await self._take(peer, held.body):
                    break
        if self._carrier is not None:
            await self._fetch_large(self._carrier, lists)

    async def _list_of(self, peer: Peer) -> tuple[Held, ...]:
        listed: dict[bytes, Held] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.list_seconds):
                await self._read_list(peer, listed)
        return tuple(listed.values())[:MOST_LISTED]

    async def _read_list(self, peer: Peer, listed: dict[bytes, Held]) -> None:
        """Read page by page: the first, then from anywhere to the end and round.

        So nodes that are far away, and have time for a part of a long list only, together
        tell all of it.
        """
        total, page = await self._page(peer, b"")
        listed |= page
        first = max(page, default=b"")
        after, came_round = max(first, secrets.token_bytes(DIGEST_BYTES)), False
        while len(listed) < min(total, MOST_LISTED):
            _, page = await self._page(peer, after)
            if page.keys() - listed.keys():
                listed |= page
                after = max(page)
            elif came_round:
                return
            else:
                after, came_round = first, True

    async def _page(self, peer: Peer, after: bytes) -> tuple[int, dict[bytes, Held]]:
        """Return how many values a node says it holds, and those of one page."""
        answer = await self._neighbourhood.ask(peer, Ask.HOLDINGS, self._key.raw, after)
        if answer is None:
            raise TimeoutError
        try:
            total, page = decode_holdings(answer.content)
        except BadDatagram:
            return 0, {}
        return total, {held.digest: held for held in page if held.digest > after}

    async def _fetch_large(self, carrier: Carrier, lists: Lists) -> None:
        """Ask one holder after the other, the next one beside those that are slow."""
        listed = {
            peer: [held.digest for held in helds if not held.body and held.size <= MAX_VALUE]
            for peer, helds in lists.items()
        }
        wanted = {digest for digests in listed.values() for digest in digests}
        holders = self._holders(listed)
        under_way: set[asyncio.Task[None]] = set()
        try:
            while wanted - self._known:
                holder = next(holders, None)
                if holder is not None:
                    under_way.add(asyncio.create_task(self._fetch_from(carrier, *holder)))
                elif not under_way:
                    break
                done, under_way = await asyncio.wait(
                    under_way,
                    timeout=self._settings.hedge_seconds if holder else None,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                for task in done:
                    task.result()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def _holders(self, listed: dict[Peer, list[bytes]]) -> Iterator[tuple[Peer, list[bytes]]]:
        """Walk those to ask, each for what is missing then: the nearest, and the rest by chance.

        Ids next to a key cost nothing, so those that stall are likely to be the nearest.
        """
        nearest, others = list(listed)[:1], list(listed)[1:]
        _random.shuffle(others)
        for peer in (*nearest, *others):
            digests = [digest for digest in listed[peer] if digest not in self._known]
            if digests and peer not in self._liars:
                _random.shuffle(digests)
                yield peer, digests

    async def _fetch_from(self, carrier: Carrier, peer: Peer, digests: list[bytes]) -> None:
        """Take from a node what nobody else has given meanwhile, while it gives any."""
        seconds = self._settings.fetch_seconds
        missing = (digest for digest in digests if digest not in self._known)
        try:
            async with (
                self._dialling,
                asyncio.timeout(seconds) as deadline,
                aclosing(carrier.fetch(peer.place, self._key, missing)) as bodies,
            ):
                async for body in bodies:
                    deadline.reschedule(asyncio.get_running_loop().time() + seconds)
                    if not await self._take(peer, body):
                        return
        except (NetworkError, TimeoutError) as error:
            _log.info("%s gives no values: %s", peer.place, error)

    async def _take(self, peer: Peer, body: bytes) -> bool:
        """Examine what a node gave, and tell whether more of it is wanted.

        What does not hold, or came before, counts for who gave it alone: it must not keep what
        others have from being read.
        """
        self._read[peer] += len(body)
        if self._read[peer] > MOST_BYTES_OF_ONE or self._read_of_all + len(body) > MOST_BYTES:
            return False
        known = hashlib.sha256(body).digest()
        if known in self._seen:
            # Several may have been asked for it; nobody was asked twice.
            return self._seen[known] != peer
        try:
            value = await self._examine(self._key, body)
        except InvalidBlock as error:
            return self._goes_on(peer, error, known)
        except (Undecided, BrokeVerifier) as error:
            _log.warning("a value could not be verified: %s", error)
            self._read_of_all += len(body)
            return True
        if known in self._seen:
            return True
        self._seen[known] = peer
        self._read_of_all += len(body)
        if value.digest not in self._known:
            self._known.add(value.digest)
            self._given[value.digest] = peer, value
            if len(self._given) > 2 * MOST_LISTED:
                self._given = {kept.digest: self._given[kept.digest] for kept in self.values}
        return True

    def _goes_on(self, peer: Peer, error: InvalidBlock, known: bytes) -> bool:
        """Tell whether a node is asked for more, though a value that it gave does not hold."""
        if error.code is Refusal.DATE:
            # A moment ago it held, or his clock is another: that makes nobody a liar. Nobody
            # else is asked for it: of text that stands alone, these are the bytes of its digest.
            self._known.add(known)
            self._misdated[peer] += 1
            if self._misdated[peer] < _MISDATED_AT_MOST:
                return True
        _log.info("%s gave no good value: %s", peer.place, error.reason)
        self._liars.add(peer)
        return False
