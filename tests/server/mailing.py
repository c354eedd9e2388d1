"""Servers inside the test's process, users on them, and mail handed in for delivery elsewhere."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.server.inside import LOCAL, TurnedClock, address_of, make_server, serving
from tests.server.users import data_lines, now

from sealmail_net.dialing import dial
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.blocks import MessageAnnouncement, TextBlock
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.commands import AskQueue, StoreProxy
from sealmail_protocol.keys import BlockKey, KeyId, mailbox_key
from sealmail_protocol.replies import Accepted, Listing, QueueRow, QueueState, Word
from sealmail_server.service import Server

SENDER = KeyId(bytes(range(20)))
RECIPIENT = KeyId(bytes(range(20, 40)))


def make_servers(directory: Path, count: int) -> list[Path]:
    """Make the directories of some servers."""
    made = [directory / str(number) for number in range(count)]
    for each in made:
        make_server(each, TurnedClock(now()))
    return made


@asynccontextmanager
async def running(
    *directories: Path, clock: TurnedClock | None = None, **settings: Any
) -> AsyncIterator[tuple[Server, ...]]:
    """Run servers that may dial each other on loopback."""
    clock = clock or TurnedClock(now())
    async with AsyncExitStack() as stack, asyncio.timeout(100):
        yield tuple(
            [
                await stack.enter_async_context(
                    serving(each, clock, **{"allow_private_targets": True, **settings})
                )
                for each in directories
            ]
        )


async def open_account(server: Server, key_id: KeyId) -> None:
    """Give a user a confirmed account, with his key id as his auth key."""
    await server.services.desk.add(key_id.hex, key_id.hex)


async def log_in(server: Server, key_id: KeyId = SENDER) -> RemoteServer:
    """Return a connection on which a user has logged in, with an account made if need be."""
    await open_account(server, key_id)
    remote = await dial(address_of(server), LOCAL, MemoryPins(), strict_pin=True)
    assert await remote.login(key_id.hex, key_id.hex)
    return remote


def post_to(*servers: Server | ServerAddress | str) -> str:
    """Return a Post-To line for a group of servers."""
    names = [str(address_of(each)) if isinstance(each, Server) else str(each) for each in servers]
    return f"Post-To: server={','.join(names)}"


async def send_mail(
    remote: RemoteServer,
    mail: MessageAnnouncement,
    *targets: str,
    after: datetime | None = None,
) -> Word:
    """Hand in an announcement."""
    key = mailbox_key(mail.mailbox, mail.recipient)
    return await remote.post(StoreProxy(key, after), (*targets, *mail.lines))


async def send_data(
    remote: RemoteServer, data: bytes, *targets: str, date: datetime | None = None
) -> Word:
    """Hand in a data block."""
    key, lines = data_lines(data, date)
    return await remote.post_data(StoreProxy(key), (*targets, *lines), len(data), (data,))


async def hand_in(home: Server, owner: KeyId, data: bytes, line: str) -> None:
    """Have a data block delivered for a user, as by STORE PROXY."""
    key, lines = data_lines(data)
    acceptance = home.services.office.acceptance
    body = tuple(each.encode() for each in (line, *lines))
    coming = acceptance.receive_data(StoreProxy(key), body, owner.hex)
    await coming.take(data)
    assert await coming.finish() == Accepted()


async def queue_of(remote: RemoteServer, since: datetime | None = None) -> list[QueueRow]:
    """Return what QUEUE tells."""
    told = await remote.call(AskQueue(since))
    assert isinstance(told, Listing)
    return [QueueRow.parse(line) for line in told.lines]


async def settled(remote: RemoteServer, count: int = 1) -> list[QueueRow]:
    """Return the rows of QUEUE once so many are there and none waits."""
    while True:
        rows = await queue_of(remote)
        if len(rows) >= count and all(row.state is not QueueState.WAITING for row in rows):
            return rows
        await asyncio.sleep(0.05)


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until something holds."""
    while True:
        if await condition():
            return
        await asyncio.sleep(0.05)


async def is_accepted(server: Server, block: TextBlock) -> bool:
    """Tell whether a server has let a block in by now."""
    return await server.services.intake.verdict(block_digest(block)) == Accepted()


async def holds(server: Server, kind: str, key: BlockKey) -> int:
    """Return how many entries of a kind a server has under a key."""
    return len(await server.services.store.read(lambda view: view.entries(kind, key)))


def states(rows: Sequence[QueueRow]) -> list[tuple[str, int, str, str]]:
    """Return what matters of rows."""
    return [(str(row.type), row.post_to, str(row.state), row.code) for row in rows]
