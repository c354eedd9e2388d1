"""Listening: one ``PeerLink`` and one task for each connection that comes in."""

import asyncio
import errno
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Self

from sealmail_net.errors import NetworkError
from sealmail_net.link import IDLE_SECONDS, PeerLink
from sealmail_protocol.conversation import ServerConversation
from sealmail_protocol.errors import ProtocolError

_log = logging.getLogger(__name__)

SessionHandler = Callable[[PeerLink], Awaitable[None]]
_NO_IPV6 = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}


async def serve(
    host: str,
    port: int,
    handler: SessionHandler,
    *,
    idle_seconds: float = IDLE_SECONDS,
    direct_tls: bool = False,
) -> "Listener":
    """Listen, and run ``handler`` for each connection; port 0 takes a free one.

    ``::`` listens for IPv6 and IPv4 alike. When the handler returns, what it wrote is sent
    and the connection closed; when it raises, the connection is cut and the error logged.
    With ``direct_tls`` nothing is read until the handler calls ``begin_with_tls``.
    """
    listener = Listener(handler, idle_seconds, direct_tls=direct_tls)
    await listener.open(host, port)
    return listener


class PortTaken(OSError):
    """Another program listens there: stop that one, or choose another port."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"port {port} of {host} is in use: stop the other program, or take another"
        )


class Listener:
    """An open port and the sessions that came through it."""

    def __init__(
        self, handler: SessionHandler, idle_seconds: float, *, direct_tls: bool = False
    ) -> None:
        self._handler = handler
        self._idle_seconds = idle_seconds
        self._direct_tls = direct_tls
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def open(self, host: str, port: int) -> None:
        """Begin to accept connections; ``PortTaken`` if another program does so already."""
        loop = asyncio.get_running_loop()
        try:
            if host == "::":
                self._server = await loop.create_server(self._link, sock=_listen_everywhere(port))
            else:
                self._server = await loop.create_server(self._link, host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortTaken(host, port) from error
            raise

    @property
    def port(self) -> int:
        """Return the port that is listened on."""
        if self._server is None or not self._server.sockets:
            raise RuntimeError("the listener is closed")
        number: int = self._server.sockets[0].getsockname()[1]
        return number

    @property
    def sessions(self) -> int:
        """Return how many connections are open."""
        return len(self._sessions)

    def close(self) -> None:
        """Accept nobody any more; sessions go on until ``stop``."""
        if self._server is not None:
            self._server.close()

    async def stop(self, grace: float = 0.0) -> None:
        """Accept nobody any more, give sessions ``grace`` seconds to end, then end them."""
        self.close()
        if self._sessions and grace > 0:
            await asyncio.wait(self._sessions, timeout=grace)
        while self._sessions:
            for session in self._sessions:
                session.cancel()
            await asyncio.wait(self._sessions)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _link(self) -> PeerLink:
        return _AcceptedLink(self._begin, self._idle_seconds, wait_for_tls=self._direct_tls)

    def _begin(self, link: PeerLink) -> None:
        session = asyncio.get_running_loop().create_task(self._session(link))
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)

    async def _session(self, link: PeerLink) -> None:
        try:
            await self._handler(link)
            await link.finish()
        except (NetworkError, ProtocolError) as error:
            _log.info("connection of %s ended: %s", link.peer, error)
        except Exception:
            _log.exception("the session of %s failed", link.peer)
        finally:
            await link.hang_up()


class _AcceptedLink(PeerLink):
    """A link that begins its session when it is connected."""

    def __init__(
        self, begin: Callable[[PeerLink], None], idle_seconds: float, *, wait_for_tls: bool
    ) -> None:
        super().__init__(ServerConversation(), idle_seconds=idle_seconds)
        self._begin = begin
        self._wait_for_tls = wait_for_tls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the session."""
        super().connection_made(transport)
        if self._wait_for_tls and self._socket is not None:
            # The peer's first bytes belong to the handshake, not to the conversation.
            self._socket.pause_reading()
        self._begin(self)


def _listen_everywhere(port: int) -> socket.socket:
    """Open one socket for IPv6 and IPv4; IPv4 alone where the machine has no IPv6."""
    if not socket.has_dualstack_ipv6():
        return _ipv4_socket(port)
    try:
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
        return _ipv4_socket(port)


def _ipv4_socket(port: int) -> socket.socket:
    # The operator asked for every address by "::".
    return socket.create_server(("0.0.0.0", port))  # noqa: S104
