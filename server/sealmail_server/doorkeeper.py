"""The door: who is let in, who is told BUSY, and how everybody is shown out at the end."""

import asyncio
import logging
import resource
from collections import Counter
from contextlib import suppress

from sealmail_net.link import PeerLink
from sealmail_protocol.replies import Banner
from sealmail_server.clock_guard import ClockState
from sealmail_server.services import Services
from sealmail_server.session import Session
from sealmail_server.sources import Presence, source_of
from sealmail_server.visitor import ANONYMOUS, STRANGER

_log = logging.getLogger(__name__)

# The store, the verifiers, listeners and what Python opens by itself.
_OTHER_FILES = 200
# Whoever is shown out may be in the middle of what must come to its end.
_LEAVING_SECONDS = 2.0
# Several clients of one user, each with what it does at a time.
_OF_ONE_USER = 8
# A connection that stores data has its socket and the file it fills.
_FILES_OF_ONE = 2


class OpenSessions:
    """The sessions that are going on."""

    def __init__(self) -> None:
        self._sessions: set[Session] = set()

    def add(self, session: Session) -> None:
        """Note that a session begins."""
        self._sessions.add(session)

    def discard(self, session: Session) -> None:
        """Note that a session has ended."""
        self._sessions.discard(session)

    def end_logins(self, auth_key_hash: bytes) -> None:
        """End the sessions that were opened with an auth key that is no longer good."""
        for session in tuple(self._sessions):
            if session.visitor.account == auth_key_hash:
                session.end_soon()

    def end_all(self) -> None:
        """Let running commands come to their end, and end the sessions behind them."""
        for session in tuple(self._sessions):
            session.end_soon()


class Doorkeeper:
    """Lets connections in up to a number, in all and from each source.

    At a shared door there is no telling who takes all places. When they are taken, the stranger
    who has been inside longest makes room; if all have logged in, the user who has most of them.
    """

    def __init__(
        self,
        services: Services,
        sessions: OpenSessions,
        presence: Presence,
        *,
        require_tls: bool,
        source: str | None = None,
    ) -> None:
        """``source`` stands for whoever comes, where the network address tells nothing."""
        self._services = services
        self._sessions = sessions
        self._presence = presence
        self._first = STRANGER if require_tls else ANONYMOUS
        self._source = source
        # At a shared door, by the time of their coming; the events tell that they have left.
        self._inside: dict[Session, asyncio.Event] = {}

    async def admit(self, link: PeerLink) -> None:
        """Serve a connection that begins in clear, or turn it away."""
        source = self._source_of(link)
        if not (self._may_enter(source) or await self._finds_a_place(source)):
            link.write(link.conversation.send(Banner(ending="BUSY")))
            await link.drain()
            return
        shared = self._source is not None
        visitor, left = self._first.at(source, shared=shared), asyncio.Event()
        session = Session(link, self._services, visitor, shared=shared)
        try:
            self._inside[session] = left
            await self._serve(session)
        finally:
            self._inside.pop(session, None)
            self._presence.leave(source)
            left.set()

    async def admit_direct(self, link: PeerLink) -> None:
        """Serve a connection that begins with TLS; one too many is not worth a handshake."""
        source = self._source_of(link)
        if not self._may_enter(source):
            return
        try:
            await link.begin_with_tls(self._services.identity.context())
            await self._serve(Session(link, self._services, ANONYMOUS.at(source)))
        finally:
            self._presence.leave(source)

    def _source_of(self, link: PeerLink) -> str:
        return source_of(link.peername[0]) if self._source is None else self._source

    def _may_enter(self, source: str) -> bool:
        if self._services.guard.state() is not ClockState.RIGHT:
            _log.info("BUSY: the clock is in doubt")
            return False
        return self._presence.enter(source)

    async def _finds_a_place(self, source: str) -> bool:
        """Show somebody out, at a shared door; tell whether that made room."""
        if self._source is None or self._services.guard.state() is not ClockState.RIGHT:
            return False
        going = self._who_goes()
        if going is None:
            return False
        left = self._inside.pop(going)
        going.cut_off()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVING_SECONDS):
                await left.wait()
        return self._presence.enter(source)

    def _who_goes(self) -> Session | None:
        """Return the stranger who came first, else the first connection of who has too many."""
        held = Counter(each.visitor.source for each in self._inside)
        greedy = {source for source, count in held.most_common(1) if count > _OF_ONE_USER}
        strangers = (each for each in self._inside if each.visitor.account is None)
        others = (each for each in self._inside if each.visitor.source in greedy)
        return next(strangers, None) or next(others, None)

    async def _serve(self, session: Session) -> None:
        self._sessions.add(session)
        try:
            await session.run()
        finally:
            self._sessions.discard(session)


def room_for(connections: int) -> int:
    """Raise the limit of open files for that many connections; return how many there is room for.

    Beyond it accepting would fail, and so would every file that the store has to open.
    """
    needed = connections * _FILES_OF_ONE + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return connections
    room = max(1, (soft - _OTHER_FILES) // _FILES_OF_ONE)
    _log.warning(
        "%d open files allow %d connections, not max_connections = %d", soft, room, connections
    )
    return room
