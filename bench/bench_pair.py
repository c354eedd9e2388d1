"""How fast a queue drains to the partner, against what that partner takes by STORE, in one run.

50 000 small blocks are put into the store and the queue of one server, whose partner is started
then; nothing else goes on. That all of them arrived is checked. After that the same load
generator as in ``bench_server`` stores small mails at the partner over 50 connections.
``--quick`` takes a tenth.
"""

import asyncio
import itertools
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.blocks import BlockType
from sealmail_server.config import Config
from sealmail_server.operator_socket import ask_running_server
from sealmail_server.partnership import Partnership
from sealmail_store import BlockStore, WriteView

# The other benchmark is beside us; a script sees its own directory only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.bench_server import READER, Place, Request, Target, announcement, ask

BLOCKS = 50_000
MAILS = 6_000
ROUNDS = 3
_SLICE = 500
_LOOK_SECONDS = 0.05


def main() -> None:
    """Measure, and print one line for each figure."""
    blocks, mails = (BLOCKS // 10, MAILS // 10) if "--quick" in sys.argv else (BLOCKS, MAILS)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sealmail-")))
        place = Place(directory, 1.0, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        first, second = (make(directory / name) for name in ("first", "second"))
        with running(first), running(second):
            code = sealmaild("pair", "--data", str(first), "--address", str(port_of(first)))
            address = str(port_of(second))
            sealmaild("pair", code.strip(), "--data", str(second), "--address", address)
            wait_until_told(first)
        queue_up(place, first, blocks)
        with running(second), running(first):
            seconds = wait_until_told(first)
        check_arrived(second, blocks)
        drained = blocks / seconds
        print(f"{'small blocks drained to the partner, a second':50} {drained:10,.0f}")
        sealmaild("account", "add", READER.hex, "--data", str(second))
        with running(second):
            target = Target(port_of(second).port, mail=True)
            # Those before were drained, and are there already.
            fresh = (request(place, index) for index in itertools.count(blocks))
            stored = max(
                mails / ask(place, target, list(itertools.islice(fresh, mails)), 50, "DONE")
                for _ in range(ROUNDS)
            )
        print(f"{'STOREs of small mail at it, 50 connections':50} {stored:10,.0f}")
        print(f"{'draining, of STORE (aim 50 %)':50} {drained / stored:10.0%}")


def request(place: Place, index: int) -> Request:
    """Return a STORE of an announcement, and the length of its answer."""
    key, entry = announcement(place, index)
    return f"STORE SERVER {key}\r\n".encode() + entry.header + b"EndBlock\r\n", 6


def make(directory: Path) -> Path:
    """Make a server on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    sealmaild("init", "--data", str(directory), "--listen", f"127.0.0.1:{port}")
    return directory


def port_of(directory: Path) -> ServerAddress:
    """Return where a server listens."""
    return ServerAddress.parse(Config.load(directory).listen)


@contextmanager
def running(directory: Path) -> Iterator[None]:
    """Run the server of a directory."""
    command = [sys.executable, "-m", "sealmail_server", "run", "--data", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        if b"listening" not in process.stdout.readline():
            sys.exit(f"the server in {directory} did not start")
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)


def queue_up(place: Place, directory: Path, blocks: int) -> None:
    """Put blocks into a store, and into its queue, as if the partner had been away."""
    config, now = Config.load(directory), datetime.now(UTC)
    partnership = Partnership(config.second_server, config.partner_queue_blocks)
    entries = [announcement(place, index)[1] for index in range(blocks)]

    async def fill() -> None:
        async with BlockStore.open(directory / "store") as store:
            for start in range(0, blocks, _SLICE):
                part = entries[start : start + _SLICE]

                def put(view: WriteView, part: list[Any] = part) -> None:
                    for entry in part:
                        partnership.put_entry(view, entry, now)

                await store.write(put)

    asyncio.run(fill())


def check_arrived(directory: Path, blocks: int) -> None:
    """End without a figure if the partner does not hold what was told to it."""

    async def count() -> int:
        async with BlockStore.open(directory / "store") as store:
            counts = await store.read(lambda view: view.counts())
            return counts[BlockType.MESSAGE_ANNOUNCEMENT].entries

    arrived = asyncio.run(count())
    if arrived != blocks:
        sys.exit(f"{arrived} of {blocks} blocks arrived")


def wait_until_told(directory: Path) -> float:
    """Wait until nothing is queued; return the seconds since the first block was told."""
    began, most = 0.0, 0
    while True:
        found = ask_running_server(directory, {"do": "pair status"})
        waiting = found["queued"]["replicate"]
        if waiting < most and not began:
            began = time.perf_counter() - _LOOK_SECONDS
        most = max(most, waiting)
        if found["connected"] and not waiting and found["comparing"] is None:
            return time.perf_counter() - (began or time.perf_counter())
        time.sleep(_LOOK_SECONDS)


def sealmaild(*arguments: str) -> str:
    """Run an operator's command."""
    command = [sys.executable, "-m", "sealmail_server", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
