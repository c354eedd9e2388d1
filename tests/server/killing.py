"""Many clients that store without pause, and a server that is killed under them."""

import asyncio
import hashlib
import random
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path

from tests.server.starting import operate, run_server, sealmaild
from tests.server.users import data_lines, message, now
from tests.store.samples import all_entries

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import NetworkError
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.canonical import block_digest, data_digest
from sealmail_protocol.commands import AskQueue, GetServer, StoreProxy, StoreServer
from sealmail_protocol.keys import BlockKey, KeyId, data_key, mailbox_key
from sealmail_protocol.replies import Accepted, Listing, QueueRow, QueueState, Word
from sealmail_store import BlockStore

CLIENTS = 24
IN_FLIGHT = 20
SMALL, LARGE, LARGEST = 700, 100_000, 8 * 1024 * 1024
LOCAL = DialSettings(allow_private_targets=True)
# Each has an account, a mailbox and a queue; no row is tried before the test is over.
USERS = tuple(KeyId(bytes([number]) * 20) for number in range(1, 5))
ELSEWHERE, NOT_BEFORE = "Post-To: server=elsewhere.example:8081", timedelta(days=2)
# Blocks that are read again after each restart, beside the largest ones and all mail.
SAMPLE = 40
_SEPARATOR = b"NextMessage"


@dataclass(frozen=True)
class Post:
    """A block on its way into the server, or to its queue; ``data`` is empty for text."""

    command: StoreServer | StoreProxy
    lines: tuple[str, ...]
    digest: bytes
    data: bytes = b""

    async def hand_to(self, remote: RemoteServer) -> Word:
        """Send it, and return the answer."""
        if self.data:
            return await remote.post_data(self.command, self.lines, len(self.data), [self.data])
        return await remote.post(self.command, self.lines)

    @property
    def body(self) -> bytes:
        """Return what a GET answers with, but for what ends a text."""
        return b"".join(line.encode() + b"\r\n" for line in self.lines) + self.data


@dataclass
class Round:
    """What one life of a server took: all that was answered DONE, and what was not yet.

    ``under_way`` counts the posts that had been written and not been answered when it was
    killed.
    """

    answered: dict[KeyId, list[Post]] = field(default_factory=lambda: {one: [] for one in USERS})
    under_way: int = 0


def data_post(number: int, size: int) -> Post:
    """Return a data block that is like no other."""
    data = hashlib.sha256(str(number).encode()).digest() * (size // 32)
    key, lines = data_lines(data)
    return Post(StoreServer(key), lines, data_digest(parse_data_header(lines), key), data)


def new_post(number: int, user: KeyId) -> Post:
    """Return a mail for the user, a row of his queue, or data: too large for the index or not."""
    if number % 8 == 0:
        return data_post(number, LARGE)
    if number % 4 != 1:
        return data_post(number, SMALL)
    mail = message(user, data=str(number).encode())
    key, digest = mailbox_key(mail.mailbox, user), block_digest(mail)
    if number % 8 == 1:
        return Post(StoreServer(key), mail.lines, digest)
    return Post(StoreProxy(key, now() + NOT_BEFORE), (ELSEWHERE, *mail.lines), digest)


@asynccontextmanager
async def logged_in(address: ServerAddress, user: KeyId) -> AsyncIterator[RemoteServer]:
    """Connect, and log in as a user whose auth key is his key id."""
    remote = await dial(address, LOCAL, MemoryPins(), strict_pin=True)
    try:
        assert await remote.login(user.hex, user.hex)
        yield remote
    finally:
        await remote.hang_up()


async def store_until(
    process: "subprocess.Popen[str]",
    address: ServerAddress,
    numbers: "count[int]",
    first: Post | None,
    seconds: float | None,
) -> Round:
    """Let 24 connections store, then ``kill -9``: so many seconds after all are busy.

    One of them begins with ``first``; without seconds the kill is for when that is answered.
    """
    found, ready, begin = Round(), asyncio.Semaphore(0), asyncio.Event()
    first_answered, written = asyncio.Event(), set[int]()

    async def store_on(remote: RemoteServer, client: int) -> None:
        async def note(size: int) -> None:
            """Be told that a piece of this client's post is written next."""
            written.add(client)

        remote.pace = note
        user = USERS[client % len(USERS)]
        post = first if client == 0 and first else new_post(next(numbers), user)
        while True:
            # The kill ends every connection; what was not answered by then may be lost.
            word = await post.hand_to(remote)
            written.discard(client)
            assert word is Word.DONE
            found.answered[user].append(post)
            if post is first:
                first_answered.set()
            post = new_post(next(numbers), user)

    async def client(number: int) -> None:
        with suppress(NetworkError):
            async with logged_in(address, USERS[number % len(USERS)]) as remote:
                ready.release()
                await begin.wait()
                await store_on(remote, number)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(client(number))
        for _ in range(CLIENTS):
            await ready.acquire()
        begin.set()
        await (first_answered.wait() if seconds is None else asyncio.sleep(seconds))
        found.under_way = len(written)
        process.send_signal(signal.SIGKILL)
    return found


async def check_served(
    address: ServerAddress, answered: dict[KeyId, list[Post]], chance: random.Random
) -> None:
    """Ask a restarted server for what the killed one had answered DONE, and its verdicts."""
    async with asyncio.timeout(60):
        for user, posts in answered.items():
            async with logged_in(address, user) as remote:
                await check_user(remote, user, posts, chance)


async def check_user(
    remote: RemoteServer, user: KeyId, posts: Sequence[Post], chance: random.Random
) -> None:
    """Ask for a sample of the data that a user posted, and for all of his mail and queue."""
    rows = await remote.call(AskQueue())
    assert isinstance(rows, Listing)
    queued = [QueueRow.parse(line) for line in rows.lines]
    waiting = {(row.key, row.digest) for row in queued if row.state is QueueState.WAITING}
    proxied = {
        (post.command.key, post.digest) for post in posts if isinstance(post.command, StoreProxy)
    }
    assert proxied <= waiting

    stored = [post for post in posts if isinstance(post.command, StoreServer)]
    mails = {post.body for post in stored if not post.data}
    mailbox = await remote.get(mailbox_key("0", user)) or ()
    entries = b"".join(line + b"\r\n" for line in mailbox).split(_SEPARATOR + b"\r\n")
    assert mails <= set(entries)

    largest = [post for post in stored if len(post.data) == LARGEST]
    for post in (*largest, *chance.sample(stored, min(len(stored), SAMPLE // len(USERS)))):
        assert await remote.verdict(post.digest) == Accepted()
        if post.data:
            most = len(post.body)
            assert await remote.fetch_body(GetServer(post.command.key), most) == post.body


def check_store(directory: Path, answered: set[BlockKey]) -> None:
    """Assert that all answered data is in the store, and that all that is there is whole."""

    async def look() -> set[BlockKey]:
        found = set()
        async with BlockStore.open(directory / "store") as store:
            for entry in await store.read(lambda view: all_entries(view, "data")):
                assert entry.data is not None
                with entry.data.open() as reader:
                    assert data_key(reader.read()) == entry.key
                found.add(entry.key)
        return found

    assert answered <= asyncio.run(look())


def start(directory: Path) -> tuple["subprocess.Popen[str]", ServerAddress]:
    """Start a server that is ready."""
    process = subprocess.Popen(
        sealmaild("run", "--data", str(directory)), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    found = re.search(r"listening on (\S+)", process.stdout.readline())
    assert found
    return process, ServerAddress.parse(found[1])


@contextmanager
def to_be_killed(directory: Path) -> Iterator[tuple["subprocess.Popen[str]", ServerAddress]]:
    """Start a server that is ready, and leave none behind."""
    process, address = start(directory)
    with process:
        try:
            yield process, address
        finally:
            process.kill()


def kill_often(directory: Path, kills: int) -> None:
    """Kill a server ``kills`` times, and ask the next one for what was answered each time."""
    operate("init", "--data", str(directory), "--listen", "127.0.0.1:0")
    for user in USERS:
        account = ("account", "add", user.hex, "--auth-key-stdin", "--data", str(directory))
        operate(*account, given=user.hex)
    chance = random.Random(2027)  # noqa: S311 - moments are no secret
    numbers, data = count(), set[BlockKey]()
    answered: dict[KeyId, list[Post]] = {}
    texts: dict[KeyId, list[Post]] = {user: [] for user in USERS}
    for kill in range(kills):
        # Every sixth kill comes when 8 MiB have just been answered, another while they may come.
        first = data_post(next(numbers), LARGEST) if kill % 3 == 0 else None
        seconds = None if kill % 6 == 0 else chance.uniform(0.02, 0.25)
        with to_be_killed(directory) as (process, address):
            asyncio.run(check_served(address, answered, chance))
            found = asyncio.run(store_until(process, address, numbers, first, seconds))
        assert found.under_way >= IN_FLIGHT
        answered = found.answered
        for user, posts in answered.items():
            texts[user] += [post for post in posts if not post.data]
            data |= {post.command.key for post in posts if post.data}
    assert all(texts.values())
    with run_server(directory) as (_, address):
        asyncio.run(check_served(address, answered, chance))
        asyncio.run(check_served(address, texts, chance))
    check_store(directory, data)
