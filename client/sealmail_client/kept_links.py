"""Connections that are used for more than one mail: a handshake costs as much as a short mail."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from sealmail_client.posting import Peer
from sealmail_protocol.addresses import ServerAddress

# A server may close a connection that has been silent for a minute.
_SILENCE_SECONDS = 20.0


@dataclass(slots=True)
class _Kept:
    """A connection, how many use it now, and when it was last used."""

    peer: Peer
    used: float
    users: int = 0


class KeptLinks:
    """At most one connection to each server, made when first used, for as long as it stands."""

    def __init__(
        self,
        dial: Callable[[Sequence[ServerAddress]], Awaitable[Peer]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._dial = dial
        self._clock = clock
        self._links: dict[ServerAddress, _Kept] = {}
        self._dialing: dict[frozenset[ServerAddress], asyncio.Lock] = {}

    @asynccontextmanager
    async def use(self, servers: Sequence[ServerAddress]) -> AsyncIterator[Peer]:
        """Yield a connection to one of ``servers``, which others may be using too."""
        # Two mails for one server begin together: the second waits for the first one's link.
        async with self._dialing.setdefault(frozenset(servers), asyncio.Lock()):
            kept = await self._connected(servers)
            kept.users += 1
        try:
            yield kept.peer
        finally:
            kept.users -= 1
            kept.used = self._clock()

    async def close(self) -> None:
        """Say goodbye to all."""
        links, self._links = self._links, {}
        for kept in links.values():
            await kept.peer.server.quit()

    async def _connected(self, servers: Sequence[ServerAddress]) -> _Kept:
        for address in servers:
            kept = self._links.get(address)
            if kept is None:
                continue
            fresh = kept.users > 0 or self._clock() - kept.used < _SILENCE_SECONDS
            if fresh and kept.peer.server.stands:
                return kept
            del self._links[address]
            await kept.peer.server.hang_up()
        peer = await self._dial(servers)
        held = self._links.get(peer.server.address)
        if held is not None:
            # It was dialled for another group meanwhile: two groups may have a server in common.
            await peer.server.hang_up()
            return held
        kept = self._links[peer.server.address] = _Kept(peer, self._clock())
        return kept
