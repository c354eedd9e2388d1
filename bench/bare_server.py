"""The least that asyncio and TLS can do, to measure the mail server against.

A program: its arguments are a certificate, its key, and what to do: ``echo`` sends back what it
gets; ``sink`` answers OK when 8 MiB have come; ``source`` answers every request with 8 MiB. It
prints its port and serves until it is ended.
"""

import asyncio
import ssl
import sys

BLOCK = 8 * 1024 * 1024
_SLICE = bytes(256 * 1024)


class Echo(asyncio.Protocol):
    """Sends back what it gets."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Send the same bytes."""
        self.transport.write(data)


class Sink(Echo):
    """Answers OK for each 8 MiB."""

    received = 0

    def data_received(self, data: bytes) -> None:
        """Count bytes."""
        self.received += len(data)
        while self.received >= BLOCK:
            self.received -= BLOCK
            self.transport.write(b"OK\r\n")


class Source(Echo):
    """Answers 8 MiB for each request."""

    writable = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """Begin to send."""
        self.task = asyncio.ensure_future(self._send())

    def pause_writing(self) -> None:
        """Let the sender wait."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Let the sender go on."""
        self.writable.set()

    async def _send(self) -> None:
        self.writable.set()
        for _ in range(BLOCK // len(_SLICE)):
            self.transport.write(_SLICE)
            await self.writable.wait()


KINDS: dict[str, type[Echo]] = {"echo": Echo, "sink": Sink, "source": Source}


async def serve(certificate: str, key: str, kind: str) -> None:
    """Serve until the process is ended."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = await asyncio.get_running_loop().create_server(
        KINDS[kind], "127.0.0.1", 0, ssl=context
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:4]))
