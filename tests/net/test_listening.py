"""Opening a port to the world."""

import asyncio
import socket

import pytest

from sealmail_net.link import PeerLink
from sealmail_net.listening import PortTaken, serve


async def ignore(_: PeerLink) -> None:
    """Serve nobody."""


@pytest.mark.parametrize("host", ["127.0.0.1", "::"])
def test_a_port_that_is_taken_is_named(host: str) -> None:
    """With what to do about it, instead of an error number."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} of {host} is in use: stop"):
            asyncio.run(serve(host, port, ignore))
