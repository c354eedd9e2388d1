"""A node among nodes: who is near, who is proven, and the way to any key. It keeps no values."""

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sealmail_net.targets import is_public
from sealmail_server.dht.datagrams import (
    MAX_CONTACTS,
    TOKEN_BYTES,
    Answer,
    Ask,
    BadDatagram,
    Peer,
    Place,
    Request,
    decode_nearest,
    encode_nearest,
    network_id,
)
from sealmail_server.dht.endpoint import TIMEOUT, Endpoint
from sealmail_server.dht.lookup import PATHS, Found, walk
from sealmail_server.dht.neighbours import Neighbours
from sealmail_server.dht.node_key import NodeKey
from sealmail_server.dht.sightings import Sightings
from sealmail_server.sources import Allowance, Rate

_log = logging.getLogger(__name__)

# Addresses that have proven nothing may be anybody's: all of them have the rate of so many.
_UNPROVEN = 10
# Strangers who asked and are asked back at a time; the others are met another time.
_MAX_MEETING = 32
# PINGs that a node leaves unanswered where it is known before it is known elsewhere.
_SILENT_AFTER = 2
# Of so many addresses it is remembered that they were asked back.
_MAX_MET = 4096
# A token is good for this long, and for as long again.
_TOKEN_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class DhtSettings:
    """How a node takes part; ``replicas`` is how many nodes keep a value."""

    network: str = "sealmail-dht-1"
    allow_private: bool = False
    replicas: int = 20
    paths: int = PATHS
    timeout: float = TIMEOUT
    requests_per_second: int = 100
    burst_seconds: int = 10
    # For all that one node lists; until the next holder of a value is asked beside a slow one;
    # and for one value of one holder.
    list_seconds: float = 3.0
    hedge_seconds: float = 1.0
    fetch_seconds: float = 8.0


# Answers what is asked about values.
ValueDesk = Callable[[Request, Place], Awaitable[bytes | None]]


class Neighbourhood:
    """Answers PING and NEAREST, hands HOLDINGS and STORE to ``values``, and walks to keys."""

    def __init__(
        self, key: NodeKey, settings: DhtSettings, values: ValueDesk | None = None
    ) -> None:
        self.key = key
        self.settings = settings
        self._values = values
        rate = settings.requests_per_second
        self.endpoint = Endpoint(
            key,
            network_id(settings.network),
            self._answer,
            Allowance(Rate(rate, rate * settings.burst_seconds)),
            Allowance(Rate(rate * _UNPROVEN, rate * _UNPROVEN * settings.burst_seconds)),
            timeout=settings.timeout,
            saw=self._saw,
        )
        self.sightings = Sightings(diverse=not settings.allow_private)
        # Set when others see us elsewhere than before; whoever acts on it clears it.
        self.moved = asyncio.Event()
        self.neighbours = Neighbours(
            key.id,
            self.greet,
            bucket_size=MAX_CONTACTS,
            diverse=not settings.allow_private,
        )
        self._meeting: set[asyncio.Task[None]] = set()
        self._met: set[Place] = set()
        self._secret = secrets.token_bytes(32)
        self._port = 0
        # Nodes that came from where we had sent nothing, and answered there: we can be reached.
        self.met_back = 0

    async def open(self, host: str, port: int) -> int:
        """Open the port, and return its number."""
        self._port = await self.endpoint.open(host, port)
        return self._port

    def close(self) -> None:
        """Leave the network."""
        self.endpoint.close()
        for task in self._meeting:
            task.cancel()

    async def greet(self, peer: Peer) -> bool:
        """Ask a node whether it is there; the table learns of it either way."""
        return await self.ask(peer, Ask.PING) is not None

    async def join(self, places: Iterable[Place]) -> int:
        """Meet the nodes at ``places``, then those near to us; return how many are known."""
        await asyncio.gather(*(self._meet(place) for place in places if self._may_ask(place)))
        if len(self.neighbours):
            await self.walk(self.key.id)
        return len(self.neighbours)

    async def refresh(self) -> None:
        """Look around our own id and one drawn at random; those met on the way learn of us."""
        self._met.clear()
        await self.walk(self.key.id)
        await self.walk(secrets.token_bytes(len(self.key.id)))

    async def walk(self, key: bytes) -> list[Found]:
        """Return the nodes nearest to ``key`` on each of several disjoint paths."""
        start = self.neighbours.nearest(key, MAX_CONTACTS * self.settings.paths)
        return await walk(
            self._ask_nearest,
            key,
            start,
            nearest=self.settings.replicas,
            diverse=not self.settings.allow_private,
            paths=self.settings.paths,
        )

    async def ask(
        self, peer: Peer, ask: Ask, key: bytes = bytes(20), content: bytes = b""
    ) -> Answer | None:
        """Ask a node, and let the table learn whether it answered."""
        answer = await self.endpoint.ask_peer(peer, ask, key, content)
        if answer is None:
            self.neighbours.failed(peer)
        else:
            self._enter(peer)
        return answer

    def is_good_token(self, token: bytes, place: Place) -> bool:
        """Tell whether we gave this token to this address not long ago."""
        slot = self._slot()
        known = (self._token(place, each) for each in (slot, slot - 1))
        return any(hmac.compare_digest(token, each) for each in known)

    async def _ask_nearest(self, peer: Peer, key: bytes) -> tuple[bytes, Sequence[Peer]] | None:
        answer = await self.ask(peer, Ask.NEAREST, key)
        if answer is None:
            return None
        try:
            token, peers = decode_nearest(answer.content)
        except BadDatagram:
            return None
        return token, [each for each in peers if self._is_usable(each)]

    async def _answer(self, request: Request, place: Place) -> bytes | None:
        if not self._may_ask(place):
            return None
        self._note(place)
        match request.ask:
            case Ask.PING:
                return b""
            case Ask.NEAREST:
                peers = self.neighbours.nearest(request.key, MAX_CONTACTS, besides=place)
                return encode_nearest(self._token(place, self._slot()), peers)
            case _:
                return None if self._values is None else await self._values(request, place)

    def _note(self, place: Place) -> None:
        """Ask a stranger back before he may enter the table: anybody can write any address."""
        if len(self._meeting) >= _MAX_MEETING or place in self._met:
            return
        if len(self._met) >= _MAX_MET:
            self._met.clear()
        self._met.add(place)
        self._start(self._ask_back(place, unasked=not self.endpoint.has_asked(place)))

    async def _meet(self, place: Place) -> bool:
        """Ask who is there, and tell whether a node has answered."""
        answer = await self.endpoint.ask(place, Ask.PING)
        if answer is None or answer.node_id == self.key.id:
            return False
        self._enter(Peer(answer.node_id, place))
        return True

    async def _ask_back(self, place: Place, *, unasked: bool) -> None:
        if not await self._meet(place):
            # A datagram may have been lost: when he asks again, so do we.
            self._met.discard(place)
        elif unasked:
            self.met_back += 1

    def _enter(self, peer: Peer) -> None:
        """Let the table know of a node that has answered, which may have moved."""
        known = self.neighbours.enter(peer)
        if known is not None and len(self._meeting) < _MAX_MEETING:
            self._start(self._move(known, peer))

    async def _move(self, known: Peer, peer: Peer) -> None:
        """Let a node have its new address if it is silent at the one it is known at."""
        for _ in range(_SILENT_AFTER):
            if await self.greet(known):
                return
        self.neighbours.enter(peer)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._meeting.add(task)
        task.add_done_callback(self._meeting.discard)

    def _saw(self, who: Place, seen: Place) -> None:
        if self.sightings.note(who, seen):
            _log.info("others see this node at %s now", seen)
            self.moved.set()

    def _is_usable(self, peer: Peer) -> bool:
        if peer.id == self.key.id or self.sightings.is_own(peer.place):
            return False
        return self._may_ask(peer.place)

    def _may_ask(self, place: Place) -> bool:
        """Tell whether an address is one that we send to: a public one, unless told otherwise."""
        if place.port == 0 or place.ip.is_multicast or place.ip.is_unspecified:
            return False
        return self.settings.allow_private or is_public(place.ip)

    def _slot(self) -> int:
        # The one before is a number as well, though the machine has just been started.
        return 1 + int(asyncio.get_running_loop().time() / _TOKEN_SECONDS)

    def _token(self, place: Place, slot: int) -> bytes:
        ip, port = place.packed
        message = slot.to_bytes(8) + ip + port.to_bytes(2)
        return hmac.digest(self._secret, message, hashlib.sha256)[:TOKEN_BYTES]
