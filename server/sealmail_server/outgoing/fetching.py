"""GET PROXY: keys and claims fetched for our users, so that strangers' servers do not see them."""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sealmail_net.errors import ForbiddenTarget, NetworkError, NoWay, Timeout
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import AddressClaim, BlockType, KeyAnnouncement
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.fields import decode_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_server.outgoing.carrier import Dialer
from sealmail_server.outgoing.routes import Routes
from sealmail_server.outgoing.strangers import Strangers
from sealmail_server.outgoing.targets import Entangled, Local, Never, Remote, TargetRules

_log = logging.getLogger(__name__)

# A user waits for the answer; servers that are slower are not waited for.
_DEADLINE_SECONDS = 30.0
# What the first of a group gets of that at least, however many others are named: a circuit is
# built in less, and a server that was given no time is not to count as one that failed.
_LEAST_SHARE = 1 / 3
# Who failed at a question is asked last for so long; of so many servers that is remembered.
_LATE = timedelta(minutes=10)
_MAX_LATE = 10_000
_AT_ONCE = 32
_OF_ONE_USER = 4
# Several clients of one user ask for the same keys within moments.
_FRESH = timedelta(seconds=60)
_MAX_CACHED = 64
# All claims for an address fit into this, and a key many times.
_MAX_ANSWER = max(
    BLOCK_POLICY[kind].body_size for kind in (BlockType.KEY_ANNOUNCEMENT, BlockType.ADDRESS_CLAIM)
)

Lines = tuple[bytes, ...]


class NotFetched(Exception):
    """Nobody could be asked, or may be: the answer is FAILED."""


class TooMany(NotFetched):
    """More is being fetched than we do at once."""


@dataclass(frozen=True, slots=True)
class _Cached:
    lines: Lines | None
    until: datetime


class Fetcher:
    """Asks one server of a group after the other; what it gives is checked for its type only.

    Which servers fail at questions is remembered here alone. Deliveries do not suffer for it: a
    user who fetches chooses the key, and with the group also how long a server has to answer.
    """

    def __init__(
        self,
        rules: TargetRules,
        dialer: Dialer,
        routes: Routes,
        strangers: Strangers,
        clock: Callable[[], datetime],
        *,
        deadline: float = _DEADLINE_SECONDS,
    ) -> None:
        self._rules = rules
        self._dialer = dialer
        self._routes = routes
        self._strangers = strangers
        self._clock = clock
        self._deadline = deadline
        self._busy: Counter[str] = Counter()
        self._cache: OrderedDict[tuple[BlockKey, Transport], _Cached] = OrderedDict()
        self._late: OrderedDict[ServerAddress, datetime] = OrderedDict()

    async def fetch(self, key: BlockKey, transport: Transport, owner: str) -> Lines | None:
        """Return the lines of a key-announcement or of claims, ``None`` if there are none.

        A target that is this server itself is the caller's to answer. Raises ``NotFetched``.
        """
        meaning = self._rules.judge(transport)
        if isinstance(meaning, Never):
            raise NotFetched(f"{transport}: {meaning.doubt}")
        if isinstance(meaning, Entangled):
            raise NotFetched("the DHT is asked by GET ENTANGLED")
        if not isinstance(meaning, Remote):
            raise NotFetched("this server itself is not asked by a connection")
        known = self._cache.get((key, transport))
        if known is not None and known.until > self._clock():
            return known.lines
        if self._busy[owner] >= _OF_ONE_USER or self._busy.total() >= _AT_ONCE:
            raise TooMany("too many fetches at once")
        if not self._strangers.may_dial(owner, meaning.servers):
            raise TooMany(f"{owner} names too many servers that we do not know")
        self._busy[owner] += 1
        try:
            async with asyncio.timeout(self._deadline):
                lines = await self._ask_any(key, meaning.servers)
        except TimeoutError:
            raise NotFetched(f"{transport}: no answer in time") from None
        finally:
            self._busy[owner] -= 1
            if not self._busy[owner]:
                del self._busy[owner]
        self._remember(key, transport, lines)
        return lines

    def is_here(self, transport: Transport) -> bool:
        """Tell whether a target is this server, or its partner."""
        return isinstance(self._rules.judge(transport), Local)

    async def _ask_any(self, key: BlockKey, servers: tuple[ServerAddress, ...]) -> Lines | None:
        """Ask until one server answers: the preferred network first, who is down or failed last.

        Each has its share of the time that is left, so that a dead one leaves some to the next.
        """
        up = [each for each in self._routes.order(servers) if not self._is_late(each)]
        down = [each for each in servers if each not in up]
        in_order = self._rules.policy.in_order
        reasons: list[NetworkError] = []
        steady = asyncio.get_running_loop().time
        end = steady() + self._deadline
        order = (*in_order(up), *in_order(down))
        for place, server in enumerate(order):
            share = max((end - steady()) / (len(order) - place), self._deadline * _LEAST_SHARE)
            try:
                lines = await self._ask_within(share, key, server)
            except (ForbiddenTarget, NoWay) as error:
                _log.warning("%s", error)
                reasons.append(error)
            except NetworkError as error:
                self._note_late(server)
                reasons.append(error)
            else:
                self._late.pop(server, None)
                self._routes.alive(server)
                return lines
        raise NotFetched("; ".join(map(str, reasons)))

    def _is_late(self, server: ServerAddress) -> bool:
        until = self._late.get(server)
        return until is not None and until > self._clock()

    def _note_late(self, server: ServerAddress) -> None:
        """Note that others are asked first for a while."""
        self._late[server] = self._clock() + _LATE
        self._late.move_to_end(server)
        if len(self._late) > _MAX_LATE:
            self._late.popitem(last=False)

    async def _ask_within(
        self, share: float, key: BlockKey, server: ServerAddress
    ) -> Lines | None:
        try:
            async with asyncio.timeout(share):
                return await self._ask(key, server)
        except TimeoutError:
            raise Timeout(server, "an answer to GET") from None

    async def _ask(self, key: BlockKey, server: ServerAddress) -> Lines | None:
        remote = await self._dialer.connect(server)
        remote.bound_answers(_Room())
        try:
            lines = await remote.get(key)
        finally:
            await remote.hang_up()
        return None if lines is None or not _is_public(lines) else lines

    def _remember(self, key: BlockKey, transport: Transport, lines: Lines | None) -> None:
        self._cache[key, transport] = _Cached(lines, self._clock() + _FRESH)
        self._cache.move_to_end((key, transport))
        if len(self._cache) > _MAX_CACHED:
            self._cache.popitem(last=False)


class _Room:
    """The memory that one answer may take, short lines weighed as what they cost."""

    def __init__(self) -> None:
        self._left = 2 * _MAX_ANSWER

    def take(self, size: int) -> bool:
        """Take so many bytes more, or none of them."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def release(self) -> None:
        """Give back all that was taken: it is not used again."""


def _is_public(lines: Lines) -> bool:
    """Tell whether an answer is a key-announcement or claims: nothing else is passed on."""
    if sum(map(len, lines)) > _MAX_ANSWER:
        return False
    try:
        return all(
            isinstance(parse_text_block(decode_lines(entry)), KeyAnnouncement | AddressClaim)
            for entry in split_bundle(lines)
        )
    except InvalidBlock:
        return False
