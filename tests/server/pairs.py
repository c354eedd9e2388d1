"""Pairs of real servers, each a process of its own, that can be killed, cut off and compared."""

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tests.server.starting import operate, sealmaild
from tests.server.users import data_lines
from tests.store.samples import all_entries

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.blocks import BlockType, TextBlock
from sealmail_protocol.commands import StoreServer
from sealmail_protocol.fields import join_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Word
from sealmail_server.operator_socket import ask_running_server
from sealmail_store import BlockStore, QueueKind, QueueRow, QueueState, ReadView

T = TypeVar("T")
LOCAL = DialSettings(allow_private_targets=True, answer_deadline=30.0)
PATIENCE = 60.0
# Connections that store many blocks, and commands in flight on each.
_CONNECTIONS, _IN_FLIGHT = 8, 16


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that nobody has just now."""
    with socket.create_server((host, 0)) as listening:
        number: int = listening.getsockname()[1]
    return number


@dataclass
class Side:
    """One server of a pair: its directory, where it listens, and its process while it runs.

    ``prefix`` are words before its command line: they set its clock, for example.
    """

    directory: Path
    address: ServerAddress
    prefix: tuple[str, ...] = ()
    process: "subprocess.Popen[str] | None" = None
    replication: str = field(default="", repr=False)

    @classmethod
    def make(cls, directory: Path, *lines: str, host: str = "127.0.0.1") -> "Side":
        """Make a server with a port of its own, with further lines of configuration."""
        address = ServerAddress(host, free_port(host))
        made = operate("init", "--data", str(directory), "--listen", str(address), "--name", host)
        with (directory / "config.toml").open("a") as config:
            config.writelines(f"{line}\n" for line in lines)
        printed = made.partition("replication auth key: ")[2].split("\n")[0]
        return cls(directory, address, replication=printed)

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        log = (self.directory / "log").open("a")
        self.process = subprocess.Popen(
            [*self.prefix, *sealmaild("run", "--data", str(self.directory))],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "listening on" in line, (self.directory / "log").read_text()

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it, by SIGTERM or as hard as the test wants."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def kill(self) -> None:
        """End it without a warning."""
        self.end(signal.SIGKILL)

    def operate(self, *arguments: str) -> str:
        """Run an operator's command on its directory."""
        return operate(*arguments, "--data", str(self.directory))

    def partner(self) -> dict[str, Any]:
        """Return what ``status`` says of the partner."""
        found: dict[str, Any] = ask_running_server(self.directory, {"do": "pair status"})
        return found

    async def connect(self, userid: str = "", auth_key: str = "") -> RemoteServer:
        """Return a connection inside TLS, logged in if a userid is given."""
        remote = await dial(self.address, LOCAL, MemoryPins(), strict_pin=True)
        if userid:
            assert await remote.login(userid, auth_key)
        return remote


@contextmanager
def running_pair(directory: Path, *lines: str, sides: Sequence[Side] = ()) -> Iterator[list[Side]]:
    """Make two servers, or take two, run them and pair them; stop them at the end."""
    made = list(sides) or [Side.make(directory / name, *lines) for name in ("a", "b")]
    try:
        for side in made:
            side.start()
        pair(*made)
        yield made
    finally:
        for side in made:
            side.end()


def pair(first: Side, second: Side) -> None:
    """Pair two running servers as two operators would."""
    code = first.operate("pair", "--address", str(first.address)).strip()
    second.operate("pair", code, "--address", str(second.address))


def until(
    condition: Callable[[], bool], what: str, patience: float = PATIENCE, pause: float = 0.1
) -> None:
    """Wait for a condition; tell what did not come."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(pause)


def settled(side: Side) -> bool:
    """Tell whether the partner of a server is reached and has been told everything."""
    found = side.partner()
    waiting = sum(found["queued"].values())
    return found["connected"] and not waiting and found["comparing"] is None


def until_settled(*sides: Side, patience: float = PATIENCE) -> None:
    """Wait until both servers have told each other everything."""
    for _ in range(2):
        for side in sides:
            until(lambda: settled(side), f"{side.directory} to settle: {side.partner()}", patience)  # noqa: B023


async def store_data(remote: RemoteServer, data: bytes) -> BlockKey:
    """Store a data block, and return its key once it was answered DONE."""
    key, lines = data_lines(data)
    assert await remote.store_data(key, parse_data_header(lines), [data]) is Word.DONE
    return key


async def store_many(side: Side, blocks: Sequence[bytes]) -> set[BlockKey]:
    """Store many small data blocks, several in flight; return the keys, all answered DONE."""

    async def bytes_of(data: bytes) -> AsyncIterator[bytes]:
        yield data

    async def store(part: Sequence[bytes]) -> set[BlockKey]:
        answers = {}
        async with await side.connect() as remote, remote.pipeline(_IN_FLIGHT) as line:
            for data in part:
                key, lines = data_lines(data)
                answers[key] = await line.send(StoreServer(key), join_lines(lines), bytes_of(data))
            words = await asyncio.gather(*answers.values())
        assert set(words) == {Word.DONE}
        return set(answers)

    parts = [blocks[start::_CONNECTIONS] for start in range(_CONNECTIONS)]
    return set().union(*await asyncio.gather(*map(store, parts)))


async def store_text(remote: RemoteServer, key: BlockKey, block: TextBlock) -> None:
    """Store a text block."""
    assert await remote.post(StoreServer(key), block.lines) is Word.DONE


def on(side: Side, work: Callable[[RemoteServer], Awaitable[T]], *login: str) -> T:
    """Do something on a connection to one server."""

    async def play() -> T:
        async with asyncio.timeout(PATIENCE), await side.connect(*login) as remote:
            return await work(remote)

    return asyncio.run(play())


def content_of(directory: Path) -> dict[str, set[Any]]:
    """Return the canonical contents of a store that is not in use.

    Entries, accounts, drops, and the outgoing queue of the pair.
    """

    async def look() -> dict[str, set[Any]]:
        async with BlockStore.open(directory / "store") as store:
            found: dict[str, set[Any]] = {}
            for kind in BlockType:
                entries = await store.read(partial(all_entries, type=kind))
                found[kind] = {
                    (each.key.hex, each.identity, each.header, each.poster) for each in entries
                }
                for each in entries:
                    if each.data is not None:
                        with each.data.open() as reader:
                            assert len(reader.read()) == each.size
            accounts = await store.read(lambda view: view.accounts())
            roles = {"ADMINISTRATOR", "REPLICATION"}
            found["accounts"] = {
                (each.auth_key_hash, each.userid, each.state)
                for each in accounts
                if each.userid not in roles
            }
            _, stones = await store.read(lambda view: view.tombstones(-1, 100_000))
            found["tombstones"] = {(each.key.hex, each.digest, each.identity) for each in stones}
            rows = [
                row
                for kind in (QueueKind.PROXY, QueueKind.MIRRORED)
                for row in await store.read(partial(all_rows, kind=kind))
            ]
            # Why a row waits is known to who delivers it alone.
            found["queue"] = {
                (row.digest, row.owner, row.ticket, row.line, row.queued, row.destination)
                + ((row.state, row.code) if row.state != QueueState.WAITING else ("waiting",))
                for row in rows
            }
            assert len(found["queue"]) == len(rows)
            return found

    return asyncio.run(look())


def all_rows(view: ReadView, kind: QueueKind) -> tuple[QueueRow, ...]:
    """Return all rows of a kind."""
    return view.queue.all(kind, limit=100_000)


def assert_equal(*sides: Side) -> dict[str, set[Any]]:
    """Stop both servers, and assert that they hold the same; return what they hold."""
    for side in sides:
        side.end()
    first, second = (content_of(side.directory) for side in sides)
    for kind, held in first.items():
        assert held ^ second[kind] == set(), kind
    return first
