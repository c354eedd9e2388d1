"""A server inside the test's own process, with a clock that the test turns."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.replies import Banner
from sealmail_server.config import Config
from sealmail_server.service import Server, running_server
from sealmail_server.setting_rules import Listen
from sealmail_server.setting_up import FirstKeys, set_up

LOCAL = DialSettings(allow_private_targets=True)


class TurnedClock:
    """A clock that stands still until it is turned."""

    def __init__(self, moment: datetime) -> None:
        self.moment = moment

    def __call__(self) -> datetime:
        """Return the time it shows."""
        return self.moment

    def turn(self, **delta: float) -> None:
        """Move the clock, forward or back."""
        self.moment += timedelta(**delta)


def make_server(directory: Path, clock: TurnedClock) -> FirstKeys:
    """Make a server directory; costs an RSA key."""
    return set_up(directory, Listen("127.0.0.1", 0), ("localhost",), "", clock)[1]


@asynccontextmanager
async def serving(directory: Path, clock: TurnedClock, **settings: Any) -> AsyncIterator[Server]:
    """Run the server of a directory, with other settings than those of its file."""
    config = Config.of({"listen": "127.0.0.1:0", **settings})
    async with running_server(directory, config, clock, asyncio.Event()) as server:
        yield server


async def live_on(server: Server, clock: TurnedClock, days: int) -> None:
    """Let days pass one by one while the server runs: at once they would be a jump."""
    for _ in range(days):
        clock.turn(days=1)
        await server.services.guard.tick()


def address_of(server: Server) -> ServerAddress:
    """Return where a server listens."""
    return ServerAddress("127.0.0.1", server.status().listen.port)


async def connect(server: Server) -> RemoteServer:
    """Return a connection inside TLS."""
    return await dial(address_of(server), LOCAL, MemoryPins(), strict_pin=True)


async def banner_of(server: Server) -> Banner:
    """Return how the server greets a new connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.status().listen.port)
    line = await reader.readline()
    writer.close()
    await writer.wait_closed()
    return Banner.parse(line.decode().strip())
