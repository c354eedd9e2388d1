"""The running server: store, verifier, listener, and an end in good order."""

import asyncio
import logging
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from sealmail_net.link import PeerLink
from sealmail_net.listening import serve
from sealmail_net.tls import server_context
from sealmail_protocol.replies import Banner
from sealmail_server.config import CERTIFICATE_NAME, KEY_NAME, STORE_NAME, Config, Listen
from sealmail_server.intake import Intake
from sealmail_server.session import Services, Session
from sealmail_store import BlockStore
from sealmail_verify import VerifierPool

_log = logging.getLogger(__name__)


def utc_now() -> datetime:
    """Return the time of this machine."""
    return datetime.now(UTC)


async def run_server(
    directory: Path,
    config: Config,
    announce: Callable[[Listen], None],
    clock: Callable[[], datetime] = utc_now,
) -> None:
    """Serve until SIGTERM or SIGINT; ``announce`` is told the address once it is open."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tls = server_context(directory / CERTIFICATE_NAME, directory / KEY_NAME)
    store = await asyncio.to_thread(BlockStore.open, directory / STORE_NAME)
    async with store, VerifierPool() as verifier:
        services = Services(store, Intake(store, verifier, clock), tls, clock)
        doorkeeper = Doorkeeper(services, config.max_connections)
        listen = config.address
        server = await serve(
            listen.host, listen.port, doorkeeper.admit, idle_seconds=config.idle_seconds
        )
        async with server:
            announce(Listen(listen.host, server.port))
            await stop.wait()
            _log.info("stopping")


class Doorkeeper:
    """Lets connections in up to a number."""

    def __init__(self, services: Services, max_connections: int) -> None:
        self._services = services
        self._max = max_connections
        self._inside = 0

    async def admit(self, link: PeerLink) -> None:
        """Serve one connection to its end, or turn it away."""
        if self._inside >= self._max:
            link.write(link.conversation.send(Banner(ending="BUSY")))
            await link.drain()
            return
        self._inside += 1
        try:
            await Session(link, self._services).run()
        finally:
            self._inside -= 1
