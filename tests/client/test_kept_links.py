"""One connection to a server for a whole batch of mail, as long as it stands."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sealmail_client.kept_links import KeptLinks
from sealmail_client.posting import Peer
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress

ONE, OTHER = ServerAddress("a.example", 1), ServerAddress("b.example", 1)


@dataclass
class Line:
    """The far end of a connection, which the test may cut."""

    address: ServerAddress
    stands: bool = True

    async def hang_up(self) -> None:
        """Cut it."""
        self.stands = False

    async def quit(self) -> None:
        """End it in good order."""
        self.stands = False


class Exchange:
    """Dials, and remembers every line that it made."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.now = 0.0
        self.links = KeptLinks(self.dial, clock=lambda: self.now)

    async def dial(self, servers: Sequence[ServerAddress]) -> Peer:
        """Connect to the first."""
        await asyncio.sleep(0)
        self.lines.append(Line(servers[0]))
        return Peer(cast("RemoteServer", self.lines[-1]), {})

    async def use(self, *servers: ServerAddress) -> None:
        """Use a connection for a moment."""
        async with self.links.use(servers):
            await asyncio.sleep(0)


def test_each_server_has_one_connection_also_when_two_ask_at_once() -> None:
    """The second waits for the line of the first."""

    async def batch(exchange: Exchange) -> None:
        await asyncio.gather(exchange.use(ONE), exchange.use(ONE), exchange.use(OTHER))
        await exchange.use(ONE, OTHER)
        await exchange.links.close()

    exchange = Exchange()
    asyncio.run(batch(exchange))
    assert [line.address for line in exchange.lines] == [ONE, OTHER]
    assert not any(line.stands for line in exchange.lines)


def test_a_connection_that_is_gone_or_was_silent_is_made_anew() -> None:
    """A server closes what is silent for long, and that must not cost a mail its try."""

    async def batch(exchange: Exchange) -> None:
        await exchange.use(ONE)
        await exchange.lines[0].hang_up()
        await exchange.use(ONE)
        exchange.now += 30
        await exchange.use(ONE)

    exchange = Exchange()
    asyncio.run(batch(exchange))
    assert [line.stands for line in exchange.lines] == [False, False, True]


def test_a_connection_that_others_use_is_never_cut_for_its_silence() -> None:
    """A block that takes a minute to send is no silence."""

    async def batch(exchange: Exchange) -> None:
        async with exchange.links.use((ONE,)):
            exchange.now += 300
            await exchange.use(ONE)

    exchange = Exchange()
    asyncio.run(batch(exchange))
    assert [line.stands for line in exchange.lines] == [True]
