"""Many clients that store without pause, and a server that is killed under them."""

import asyncio
import hashlib
import random
import re
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.server.conftest import sealmaild
from tests.server.users import data_lines
from tests.store.samples import all_entries

from sealmail_net.dialing import DialSettings, dial
from sealmail_net.errors import NetworkError
from sealmail_net.pins import MemoryPins
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.keys import BlockKey, data_key
from sealmail_protocol.replies import Word
from sealmail_store import BlockStore

CLIENTS = 24
LARGE = 100_000
LOCAL = DialSettings(allow_private_targets=True)


@dataclass
class Answered:
    """The blocks that were answered DONE, and how many were under way at the kill."""

    blocks: dict[BlockKey, bytes] = field(default_factory=dict)
    under_way: int = 0


def start(directory: Path) -> tuple["subprocess.Popen[str]", ServerAddress]:
    """Start a server that is ready."""
    process = subprocess.Popen(
        sealmaild("run", "--data", str(directory)), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    found = re.search(r"listening on (\S+)", process.stdout.readline())
    assert found
    return process, ServerAddress.parse(found[1])


def content(number: int) -> bytes:
    """Return the bytes of a data block; every eighth is too large for the index."""
    size = LARGE if number % 8 == 0 else 700
    return hashlib.sha256(str(number).encode()).digest() * (size // 32)


def store_until_killed(directory: Path, first: int, seconds: float) -> Answered:
    """Let 24 connections store for ``seconds`` after all are busy, then ``kill -9``."""
    process, address = start(directory)
    answered = Answered()
    numbers = iter(range(first, first + 1_000_000))

    async def store_on(remote: RemoteServer) -> None:
        for number in numbers:
            data = content(number)
            key, lines = data_lines(data)
            answered.under_way += 1
            # The kill ends every connection; what was not answered by then may be lost.
            word = await remote.store_data(key, parse_data_header(lines), [data])
            answered.under_way -= 1
            assert word is Word.DONE
            answered.blocks[key] = data

    async def client() -> None:
        remote = await dial(address, LOCAL, MemoryPins(), strict_pin=True)
        ready.release()
        await begin.wait()
        with suppress(NetworkError):
            await store_on(remote)

    async def play() -> None:
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(client())
            for _ in range(CLIENTS):
                await ready.acquire()
            begin.set()
            await asyncio.sleep(seconds)
            process.send_signal(signal.SIGKILL)

    ready, begin = asyncio.Semaphore(0), asyncio.Event()
    with process:
        asyncio.run(play())
    return answered


def check(directory: Path, blocks: dict[BlockKey, bytes]) -> None:
    """Assert that every answered block is there, and that all that is there is whole."""

    async def look() -> None:
        async with BlockStore.open(directory / "store") as store:
            entries = await store.read(lambda view: all_entries(view, "data"))
            found = {}
            for entry in entries:
                assert entry.data is not None
                with entry.data.open() as reader:
                    found[entry.key] = reader.read()
                assert data_key(found[entry.key]) == entry.key
            assert {key: found.get(key) for key in blocks} == blocks

    asyncio.run(look())


def kill_often(directory: Path, kills: int) -> None:
    """Kill a server ``kills`` times at random moments, and look what is left each time."""
    subprocess.run(
        sealmaild("init", "--data", str(directory), "--listen", "127.0.0.1:0"),
        check=True,
        capture_output=True,
    )
    moments = random.Random(2027)  # noqa: S311 - moments are no secret
    everything: dict[BlockKey, bytes] = {}
    for kill in range(kills):
        answered = store_until_killed(directory, kill * 100_000, moments.uniform(0.02, 0.25))
        assert answered.under_way >= 20
        everything |= answered.blocks
        check(directory, answered.blocks)
    assert everything
    check(directory, everything)
