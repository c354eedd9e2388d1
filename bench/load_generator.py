"""Asks a server the same kind of thing over many TLS connections, and counts the answers.

A program: it reads one JSON line from standard input that says what to do, prints one JSON line
with the seconds it took, and ends. ``requests`` is a file of length-prefixed requests; each
connection sends its next one when the answer to the last has come whole.
"""

import asyncio
import json
import ssl
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SLICE = 256 * 1024
HEAD = struct.Struct(">II")


def read_requests(path: Path) -> list[tuple[bytes, int]]:
    """Read requests, each behind its size and that of its answer."""
    raw, place, found = path.read_bytes(), 0, []
    while place < len(raw):
        size, answer = HEAD.unpack_from(raw, place)
        place += HEAD.size
        found.append((raw[place : place + size], answer))
        place += size
    return found


class Asker(asyncio.Protocol):
    """One connection; ``ask`` sends a request and counts the bytes of its answer."""

    def __init__(self) -> None:
        self._left = 0
        self._head = b""
        self._begins = b""
        self._done: asyncio.Future[None] | None = None
        self._requests: Iterator[tuple[bytes, int]] | None = None
        self._transport: Any = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._sending: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket, or the TLS layer above it."""
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """End with an error if answers are missing."""
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or EOFError("the server hung up"))

    def pause_writing(self) -> None:
        """Let the sender wait."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Let the sender go on."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Count, and send the next request when an answer is whole."""
        if len(self._head) < len(self._begins):
            self._head += data[: len(self._begins) - len(self._head)]
        self._left -= len(data)
        if self._left > 0 or self._done is None:
            return
        if not self._head.startswith(self._begins) or self._left < 0:
            self._done.set_exception(ValueError(f"answered {self._head!r}"))
        elif not self._send_next():
            self._done.set_result(None)

    async def ask_all(self, requests: Iterator[tuple[bytes, int]], begins: bytes) -> None:
        """Send requests from a shared supply, one at a time, until there are no more."""
        self._requests, self._begins = requests, begins
        self._done = asyncio.get_running_loop().create_future()
        if self._send_next():
            await self._done

    async def ask(self, request: bytes, answer: bytes) -> None:
        """Send one request whose answer is known."""
        await self.ask_all(iter([(request, len(answer))]), answer)

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Change to TLS after PROCEED."""
        self._transport = await asyncio.get_running_loop().start_tls(
            self._transport, self, context
        )

    def close(self) -> None:
        """Hang up."""
        self._done = None
        self._transport.abort()

    def _send_next(self) -> bool:
        found = next(self._requests, None) if self._requests else None
        if found is None:
            return False
        request, self._left = found
        self._head = b""
        if len(request) <= SLICE:
            self._transport.write(request)
        else:
            self._sending = asyncio.ensure_future(self._send(request))
        return True

    async def _send(self, request: bytes) -> None:
        """Send a large request slice by slice, so that the server reads while we encrypt."""
        for start in range(0, len(request), SLICE):
            self._transport.write(request[start : start + SLICE])
            await self._writable.wait()


async def connect(order: dict[str, Any], context: ssl.SSLContext) -> Asker:
    """Open one connection as the order says: TLS at once, or STARTTLS and perhaps LOGIN."""
    loop = asyncio.get_running_loop()
    if not order["mail"]:
        _, asker = await loop.create_connection(
            Asker, "127.0.0.1", order["port"], ssl=context, server_hostname=""
        )
        return asker
    _, asker = await loop.create_connection(Asker, "127.0.0.1", order["port"])
    banner = b"CONFIDANT MAIL SERVER PROTOCOL 1 READY\r\n"
    await asker.ask(b"", banner)
    await asker.ask(b"STARTTLS\r\n", b"PROCEED\r\n")
    await asker.start_tls(context)
    await asker.ask(b"", b"ENCRYPTED\r\n")
    if order["login"]:
        await asker.ask(f"LOGIN {order['login']}\r\n".encode(), b"DONE\r\n")
    return asker


async def generate(order: dict[str, Any]) -> float:
    """Carry out an order; return the seconds between the first request and the last answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    requests = iter(read_requests(Path(order["requests"])))
    askers = [await connect(order, context) for _ in range(order["connections"])]
    begins = order["begins"].encode()
    start = time.perf_counter()
    await asyncio.gather(*(asker.ask_all(requests, begins) for asker in askers))
    seconds = time.perf_counter() - start
    for asker in askers:
        asker.close()
    return seconds


if __name__ == "__main__":
    print(json.dumps(asyncio.run(generate(json.loads(sys.stdin.readline())))))
