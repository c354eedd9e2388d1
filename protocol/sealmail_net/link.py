"""One connection: bytes from the socket go straight to a conversation, events come out.

No asyncio stream is used: its buffer lets plaintext slip across STARTTLS. Here nothing lies
between socket and conversation, and the conversation refuses bytes in the wrong place.
"""

import asyncio
import ipaddress
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar, cast

from sealmail_net.errors import ConnectionLost, NetworkError, Peer, Timeout, TlsFailed
from sealmail_net.handshakes import FAREWELL_SECONDS, Handshake, Shown, SslHandshake
from sealmail_protocol.bodies import DataChunk
from sealmail_protocol.conversation import (
    ClientConversation,
    ClientEvent,
    ServerConversation,
    ServerEvent,
)
from sealmail_protocol.errors import ProtocolError
from sealmail_protocol.replies import Word

# Reading stops while more than this waits to be handled; asyncio reads 256 KiB at most at once,
# so that a connection stays below 1 MiB with the buffers of TLS.
MAX_UNREAD = 64 * 1024
# Writers wait in ``drain`` while more than this is unsent.
MAX_UNSENT = 64 * 1024
IDLE_SECONDS = 60.0
# A deadline moves on only for what the slowest connection that an original serves would have
# brought in that time, in bytes a second: one byte a minute is no progress.
SLOWEST = 768
# Events that wait already are handed out this many in a row before others have their turn.
_TURN = 4
# How long the last words may take to leave.
_LINGER_SECONDS = FAREWELL_SECONDS


class Conversation(Protocol):
    """What a link needs of either side of a conversation."""

    def receive_data(self, data: bytes) -> None:
        """Take bytes of the peer; ``b""`` is its end."""

    def tls_started(self) -> None:
        """Note that the handshake is done."""

    def next_event(self) -> object | None:
        """Return the next event, or ``None`` when more bytes are needed."""


ConversationT = TypeVar("ConversationT", bound=Conversation)
EventT = TypeVar("EventT")


class Link(asyncio.Protocol, Generic[ConversationT, EventT]):
    """A connection that feeds ``conversation``, with deadlines and back-pressure both ways.

    Waiting raises ``Timeout`` or ``ConnectionLost``, reading also ``ProtocolError``; after any
    of them only ``hang_up`` makes sense.
    """

    def __init__(
        self, conversation: ConversationT, *, peer: Peer = "", idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self.conversation = conversation
        self.peer = peer
        self.peername = ("", 0)
        self.shown = Shown()
        self.idle_seconds = idle_seconds
        self._transport: asyncio.Transport | None = None
        # Below TLS: reading is paused here, where no further buffer can fill up.
        self._socket: asyncio.Transport | None = None
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = asyncio.Event()
        self._failure: NetworkError | ProtocolError | None = None
        self._received = 0
        # What had been received, and how long we have waited, since the peer last made progress.
        self._counted = 0
        self._waited = 0.0
        self._unread = 0
        self._at_once = 0
        self._closing = False

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the socket is connected."""
        self._transport = self._socket = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(MAX_UNSENT)
        self.peername = _host_and_port(transport.get_extra_info("peername"))
        if not self.peer:
            self.peer = f"{self.peername[0]} port {self.peername[1]}"

    def data_received(self, data: bytes) -> None:
        """Hand bytes to the conversation, and stop reading when too many wait."""
        if self._closing or self._failure is not None:
            return
        try:
            self.conversation.receive_data(data)
        except ProtocolError as error:
            self._fail(error)
            return
        self._received += len(data)
        self._unread += len(data)
        if self._unread > MAX_UNREAD and self._socket is not None:
            self._socket.pause_reading()
        self._arrived.set()

    def eof_received(self) -> bool:
        """Note the peer's end; a plain socket stays open for our last answer, TLS cannot."""
        self.conversation.receive_data(b"")
        self._arrived.set()
        return self._transport is self._socket

    def pause_writing(self) -> None:
        """Let writers wait: the peer does not take what we send."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let writers go on."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end of the connection, by whatever cause, and wake all who wait."""
        self._gone.set()
        self._writable.set()
        self._arrived.set()
        if exc is not None and self._failure is None:
            self._failure = ConnectionLost(self.peer, _reason(exc))
        elif exc is None:
            self.conversation.receive_data(b"")

    # Called by whoever holds the conversation.

    async def next_event(self, awaited: str = "a command") -> EventT:
        """Return the next event; ``awaited`` says in a ``Timeout`` what did not come."""
        event = self._take_event()
        if event is not None:
            # One peer's pipelined commands must not keep the loop from the others.
            self._at_once += 1
            if self._at_once % _TURN == 0:
                await asyncio.sleep(0)
            return event
        loop = asyncio.get_running_loop()
        while (event := self._take_event()) is None:
            if self._received - self._counted >= self._progress:
                self._note_progress()
            began = loop.time()
            # A timer that only wakes: asyncio.timeout costs as much as reading the event.
            timer = loop.call_at(began + self.idle_seconds - self._waited, self._arrived.set)
            try:
                await self._arrived.wait()
            finally:
                timer.cancel()
                # Only this counts: while we are busy ourselves, the peer may not go on.
                self._waited += loop.time() - began
            if self._is_late():
                event = self._take_event()
                if event is None:
                    raise Timeout(self.peer, awaited)
                return event
        return event

    @contextmanager
    def patient(self, seconds: float) -> Iterator[None]:
        """Wait at least so long for the peer inside."""
        usual = self.idle_seconds
        self.idle_seconds = max(usual, seconds)
        try:
            yield
        finally:
            self.idle_seconds = usual

    def write(self, data: bytes | memoryview) -> None:
        """Send bytes; follow it by ``drain``, which also tells whether the link still stands."""
        if self._transport is not None and not self._gone.is_set():
            self._transport.write(data)

    async def drain(self) -> None:
        """Wait until the peer has taken most of what was written."""
        while not self._writable.is_set():
            unsent = self._unsent()
            try:
                async with asyncio.timeout(self.idle_seconds):
                    await self._writable.wait()
            except TimeoutError:
                if unsent - self._unsent() < self._progress:
                    raise Timeout(self.peer, "it to take what we send") from None
        if self._failure is not None:
            raise self._failure
        if self._gone.is_set():
            raise ConnectionLost(self.peer, "it is closed")

    async def start_tls(self, handshake: Handshake) -> None:
        """Change to TLS, between PROCEED and the first byte of the handshake.

        Plaintext that comes in that gap is refused by the conversation; what comes later
        reaches the TLS layer and fails the handshake.
        """
        if self._socket is None or self._transport is not self._socket:
            raise ProtocolError("TLS inside TLS, or before there is a connection")
        self._socket.pause_reading()
        await self.drain()
        try:
            secured, self.shown = await handshake(self._socket, self, self.idle_seconds)
        except OSError as error:
            raise self._handshake_failed(_reason(error)) from error
        except asyncio.CancelledError:
            self._handshake_failed("given up")
            raise
        self._transport = secured
        secured.set_write_buffer_limits(MAX_UNSENT)
        self.conversation.tls_started()

    async def wait_gone(self) -> None:
        """Return when the connection is gone, whoever ended it."""
        await self._gone.wait()

    @property
    def stands(self) -> bool:
        """Return whether nothing has ended the connection, on either side."""
        return not (self._closing or self._gone.is_set() or self._failure is not None)

    @property
    def unread(self) -> int:
        """Return how many bytes, at most, wait to be handled."""
        return self._unread

    def close(self) -> None:
        """End the connection when all that was written has left."""
        if self._closing or self._transport is None or self._socket is None:
            return
        self._closing = True
        # The end of TLS is answered by the peer, and that has to be read.
        self._socket.resume_reading()
        self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        self._closing = True
        if self._transport is not None and self._socket is not None:
            self._transport.abort()
            self._socket.abort()

    async def finish(self) -> None:
        """End the connection in good order, but wait only a little for a peer that stalls."""
        self.close()
        try:
            async with asyncio.timeout(_LINGER_SECONDS):
                await self._gone.wait()
        except TimeoutError:
            await self.hang_up()

    async def hang_up(self) -> None:
        """End the connection now, and return when it is gone."""
        self.abort()
        if self._transport is not None:
            await self._gone.wait()

    def _take_event(self) -> EventT | None:
        self._arrived.clear()
        if isinstance(self._failure, ProtocolError):
            raise self._failure
        event = self.conversation.next_event()
        if event is not None:
            # Data come in as many pieces as the peer likes: a piece alone is no progress.
            if not isinstance(event, DataChunk):
                self._note_progress()
            return cast(EventT, event)
        if self._failure is not None:
            raise self._failure
        self._unread = 0
        if self._socket is not None:
            self._socket.resume_reading()
        return None

    @property
    def _progress(self) -> int:
        """How many bytes make the deadline move on."""
        return max(1, round(SLOWEST * self.idle_seconds))

    def _note_progress(self) -> None:
        self._counted, self._waited = self._received, 0.0

    def _is_late(self) -> bool:
        missing = self._received - self._counted < self._progress
        return missing and self._waited >= self.idle_seconds

    def _unsent(self) -> int:
        return sum(
            part.get_write_buffer_size() for part in {self._transport, self._socket} if part
        )

    def _fail(self, error: NetworkError | ProtocolError) -> None:
        self._failure = self._failure or error
        self._arrived.set()
        self._writable.set()

    def _handshake_failed(self, reason: str) -> TlsFailed:
        """Take note, since asyncio does not report the loss of a connection in a handshake."""
        error = TlsFailed(self.peer, reason)
        self._fail(error)
        self._gone.set()
        return error


class PeerLink(Link[ServerConversation, ServerEvent]):
    """A connection that somebody made to us: we are the server."""

    async def start_tls_as_server(self, context: ssl.SSLContext) -> None:
        """Answer STARTTLS: PROCEED in clear, the handshake, ENCRYPTED inside it."""
        if self._socket is not None:
            self._socket.pause_reading()
        self.write(self.conversation.send(Word.PROCEED))
        await self.start_tls(SslHandshake(context, server_side=True))
        self.write(self.conversation.send(Word.ENCRYPTED))
        await self.drain()

    async def begin_with_tls(self, context: ssl.SSLContext) -> None:
        """Begin with the handshake, on a port where no STARTTLS is said."""
        self.conversation.expect_tls()
        await self.start_tls(SslHandshake(context, server_side=True))


class ServerLink(Link[ClientConversation, ClientEvent]):
    """A connection that we made to a server: we are its client."""


def _host_and_port(name: object) -> tuple[str, int]:
    """Return whom a socket is connected to; IPv4 seen through an IPv6 socket is IPv4."""
    if not isinstance(name, tuple):
        return ("", 0)
    host, port = name[:2]
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (str(mapped or address), port)


def _reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
