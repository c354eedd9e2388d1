"""One UDP port: questions out, their answers in; questions in, our answers out.

An answer counts only if it comes from the address that was asked, names the nonce of the
question, and is signed by the key whose hash is the id that was asked.
"""

import asyncio
import logging
import secrets
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import cast

from sealmail_server.dht.datagrams import (
    RPC_BYTES,
    Answer,
    Ask,
    BadDatagram,
    Peer,
    Place,
    Request,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    is_answer,
    signed_bytes,
)
from sealmail_server.dht.node_key import NodeKey, is_signed
from sealmail_server.sources import Allowance, source_of

_log = logging.getLogger(__name__)

# Most of the Internet answers within half of this; who does not is asked again another time.
TIMEOUT = 0.8
# Questions of strangers that are being answered; more are dropped, as a full wire would.
MAX_ANSWERING = 256
# Places of which it is remembered that we asked them; routers forget sooner.
_MAX_ASKED = 16_384
# An address that answered this long ago may be another's by now.
_PROVEN_SECONDS = 1800.0
_BUFFER = 1024 * 1024

# Answers a question, or leaves it unanswered.
Answerer = Callable[[Request, Place], Awaitable[bytes | None]]


class Endpoint(asyncio.DatagramProtocol):
    """The socket of a node; ``open`` opens it.

    ``allowance`` bounds what each source asks, ``unproven`` what all those ask together that
    have given us no answer lately: their addresses may be made up. ``saw`` is told of each
    answer: who gave it, and where he saw us.
    """

    def __init__(
        self,
        key: NodeKey,
        network: bytes,
        answer: Answerer,
        allowance: Allowance,
        unproven: Allowance,
        *,
        timeout: float = TIMEOUT,
        saw: Callable[[Place, Place], object] | None = None,
    ) -> None:
        self._key = key
        self._network = network
        self._answer = answer
        self._allowance = allowance
        self._unproven = unproven
        self._proven: OrderedDict[Place, float] = OrderedDict()
        self._timeout = timeout
        self._saw = saw
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: dict[bytes, tuple[Place, Ask, asyncio.Future[Answer | None]]] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._asked: OrderedDict[Place, None] = OrderedDict()
        self._mapped = False
        self.sent = 0

    async def open(self, host: str, port: int) -> int:
        """Open the port, and return its number; ``::`` takes IPv4 too."""
        loop = asyncio.get_running_loop()
        opened = _socket(host, port)
        self._mapped = opened.family == socket.AF_INET6
        await loop.create_datagram_endpoint(lambda: self, sock=opened)
        number: int = opened.getsockname()[1]
        return number

    def close(self) -> None:
        """Close the port; who waits for an answer gets none."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None
        for _, _, future in self._waiting.values():
            if not future.done():
                future.set_result(None)
        for task in self._answering:
            task.cancel()

    async def ask(
        self, place: Place, ask: Ask, key: bytes = bytes(20), content: bytes = b""
    ) -> Answer | None:
        """Return the answer of the node at ``place``, whoever it is; ``None`` if none came."""
        if self._transport is None:
            return None
        self._asked[place] = None
        self._asked.move_to_end(place)
        if len(self._asked) > _MAX_ASKED:
            self._asked.popitem(last=False)
        rpc = secrets.token_bytes(RPC_BYTES)
        future: asyncio.Future[Answer | None] = asyncio.get_running_loop().create_future()
        self._waiting[rpc] = (place, ask, future)
        try:
            self._send(encode_request(self._network, Request(ask, rpc, key, content)), place)
            async with asyncio.timeout(self._timeout):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._waiting[rpc]

    async def ask_peer(
        self, peer: Peer, ask: Ask, key: bytes = bytes(20), content: bytes = b""
    ) -> Answer | None:
        """Return the answer of exactly this node."""
        answer = await self.ask(peer.place, ask, key, content)
        return answer if answer is not None and answer.node_id == peer.id else None

    def has_asked(self, place: Place) -> bool:
        """Tell whether we asked this place first, so that a router lets its datagrams in."""
        return place in self._asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note that the port is open."""
        self._transport = cast(asyncio.DatagramTransport, transport)

    def error_received(self, exc: Exception) -> None:
        """Let a host that refused a datagram be: its answer will not come."""

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Take one datagram; what is not well-formed costs nothing more."""
        try:
            place = Place.of(addr[0], addr[1])
            if is_answer(self._network, data):
                self._take_answer(decode_answer(self._network, data), place)
                return
            request = decode_request(self._network, data)
        except ValueError as error:
            _log.debug("dropped a datagram of %s: %s", addr[0], error)
            return
        self._take_request(request, place)

    def _take_answer(self, answer: Answer, place: Place) -> None:
        asked, ask, future = self._waiting.get(answer.rpc, (None, None, None))
        if asked != place or ask is not answer.ask or future is None or future.done():
            return
        if not is_signed(signed_bytes(self._network, answer), answer.public_key, answer.signature):
            return
        self._proven[place] = asyncio.get_running_loop().time()
        self._proven.move_to_end(place)
        if len(self._proven) > _MAX_ASKED:
            self._proven.popitem(last=False)
        if self._saw is not None:
            self._saw(place, answer.seen)
        future.set_result(answer)

    def _take_request(self, request: Request, place: Place) -> None:
        moment = asyncio.get_running_loop().time()
        # Whoever forges addresses must not run up a debt that outlasts his flood.
        if not self._allowance.take(source_of(str(place.ip)), moment):
            return
        if not self._has_proven(place, moment) and not self._unproven.take("", moment):
            return
        if len(self._answering) >= MAX_ANSWERING:
            return
        task = asyncio.get_running_loop().create_task(self._reply(request, place))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def _has_proven(self, place: Place, moment: float) -> bool:
        return moment - self._proven.get(place, -_PROVEN_SECONDS) < _PROVEN_SECONDS

    async def _reply(self, request: Request, place: Place) -> None:
        try:
            content = await self._answer(request, place)
        except BadDatagram as error:
            _log.debug("dropped a request of %s: %s", place, error)
            return
        except Exception:
            _log.exception("a request of %s could not be answered", place)
            return
        if content is None:
            return
        answer = Answer(request.ask, request.rpc, self._key.public, place, content)
        signature = self._key.sign(signed_bytes(self._network, answer))
        self._send(encode_answer(self._network, replace(answer, signature=signature)), place)

    def _send(self, datagram: bytes, place: Place) -> None:
        if self._transport is None:
            return
        host = str(place.ip)
        if self._mapped and place.ip.version == 4:
            host = f"::ffff:{host}"
        self.sent += len(datagram)
        with suppress(OSError):
            self._transport.sendto(datagram, (host, place.port))


def _socket(host: str, port: int) -> socket.socket:
    everywhere = host == "::"
    if everywhere and not socket.has_dualstack_ipv6():
        host = "0.0.0.0"  # noqa: S104 - the operator asked for every address by "::"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if everywhere else 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        opened.setblocking(False)
        opened.bind((host, port))
    except BaseException:
        opened.close()
        raise
    return opened
