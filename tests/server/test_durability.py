"""``DONE`` is a promise: seen from the kernel, and kept over ``kill -9``."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.server.conftest import sealmaild
from tests.server.killing import LOCAL, kill_often, start
from tests.server.users import data_lines

from sealmail_net.dialing import dial
from sealmail_net.pins import MemoryPins
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import parse_data_header
from sealmail_protocol.replies import Word

TRACED = "accept4,recvfrom,read,sendto,write,writev,pwrite64,pwritev,fsync,fdatasync,rename"
SYNCS = ("fsync", "fdatasync")
WRITES = ("write", "writev", "pwrite64", "pwritev")
LOG = "index.sqlite-wal"


@dataclass(frozen=True)
class Call:
    """One system call that has returned: its name, the file it was on, and its result."""

    name: str
    number: int
    path: str
    result: int


def read_trace(text: str) -> list[Call]:
    """Return the calls in the order in which they returned."""
    calls, begun = [], {}
    for line in text.splitlines():
        pid, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>")
            continue
        if rest.startswith("<..."):
            rest = begun.pop(pid, "") + rest.partition(" resumed>")[2]
        found = re.match(r"(\w+)\((?:(\d+)<(.*?)>)?.*\)\s+= (-?\d+)", rest, re.DOTALL)
        if found:
            number = int(found[2]) if found[2] else -1
            calls.append(Call(found[1], number, found[3] or rest, int(found[4])))
    return calls


@contextmanager
def traced_server(directory: Path, trace: Path) -> Iterator[ServerAddress]:
    """Run a server under strace, which writes what it sees to ``trace``."""
    command = ["strace", "-f", "-y", "-qq", "-s", "0", "-e", f"trace={TRACED}", "-o", str(trace)]
    with subprocess.Popen(
        [*command, *sealmaild("run", "--data", str(directory))], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        found = re.search(r"listening on (\S+)", process.stdout.readline())
        assert found
        try:
            yield ServerAddress.parse(found[1])
        finally:
            # strace hands the signal on to the server it started.
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            for child in children.split():
                os.kill(int(child), signal.SIGTERM)
            process.wait(20)


def calls_before_done(calls: list[Call]) -> list[Call]:
    """Return what happened between the last bytes that a client sent and the answer to them."""
    socket = next(call.result for call in calls if call.name == "accept4" and call.result >= 0)
    on_socket = [
        place
        for place, call in enumerate(calls)
        if call.number == socket and call.name in ("recvfrom", "read") and call.result > 0
    ]
    last_read = on_socket[-1]
    answer = next(
        place
        for place in range(last_read, len(calls))
        if calls[place].number == socket and calls[place].name in ("sendto", "write")
    )
    return calls[last_read:answer]


def is_on(call: Call, names: tuple[str, ...], file: str) -> bool:
    """Tell whether a call of one of these names had its way with a file."""
    return call.name in names and call.result >= 0 and call.path.endswith(file)


def written_then_synced(calls: list[Call], file: str) -> bool:
    """Tell whether a file was written, and synced behind the last of what was written."""
    writes = [place for place, call in enumerate(calls) if is_on(call, WRITES, file)]
    syncs = [place for place, call in enumerate(calls) if is_on(call, SYNCS, file)]
    return bool(writes and syncs) and max(writes) < max(syncs)


@pytest.mark.parametrize("size", [700, 8 * 1024 * 1024], ids=["small", "8 MiB"])
def test_a_block_is_on_the_disk_before_it_is_answered(tmp_path: Path, size: int) -> None:
    """Between its last byte and DONE the log is written, and the kernel's fsync of it is back."""
    directory, trace = tmp_path / "data", tmp_path / "trace"
    subprocess.run(
        sealmaild("init", "--data", str(directory), "--listen", "127.0.0.1:0"),
        check=True,
        capture_output=True,
    )
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    key, lines = data_lines(data)

    async def store(address: ServerAddress) -> None:
        async with asyncio.timeout(60):
            remote = await dial(address, LOCAL, MemoryPins(), strict_pin=True)
            assert await remote.store_data(key, parse_data_header(lines), [data]) is Word.DONE
            # Without QUIT, so that DONE is the last thing the server says.
            remote._link.abort()

    with traced_server(directory, trace) as address:
        asyncio.run(store(address))
    between = calls_before_done(read_trace(trace.read_text()))
    synced = [call.path for call in between if call.name in SYNCS and call.result == 0]
    assert written_then_synced(between, LOG)
    if size > 64 * 1024:
        place = f"/data/{key.hex[:2]}/{key.hex[2:4]}"
        steps = [
            (each.name, each.path)
            for each in between
            if each.result == 0 and each.name in (*SYNCS, "rename")
        ]
        # The bytes, then their name, then the directory that holds the name, then the row.
        [named] = [at for at, (name, _) in enumerate(steps) if name == "rename"]
        assert f"{place}/{key.hex}" in steps[named][1]
        assert any("/store/incoming/" in path for _, path in steps[:named])
        assert any(path.endswith(place) for _, path in steps[named:])
        assert "/store/incoming/" in synced[0]
        assert synced[-1].endswith(LOG)
    else:
        # The bytes themselves are in the log: what was written since the last read holds them.
        assert sum(call.result for call in between if is_on(call, WRITES, LOG)) > size


def test_twenty_kills_lose_nothing_that_was_answered(tmp_path: Path) -> None:
    """With 20 posts in flight at each kill, the next server gives all that was answered."""
    kill_often(tmp_path / "data", 20)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_hundred_kills_lose_nothing_that_was_answered(tmp_path: Path) -> None:
    """The same, two hundred times over."""
    kill_often(tmp_path / "data", 200)


def test_a_connection_needs_less_than_a_mebibyte(tmp_path: Path) -> None:
    """Eight connections that send 8 MiB each at once raise the server's peak by less than 8."""
    directory = tmp_path / "data"
    subprocess.run(
        sealmaild("init", "--data", str(directory), "--listen", "127.0.0.1:0"),
        check=True,
        capture_output=True,
    )
    process, address = start(directory)
    blocks = [bytes([number]) * (8 * 1024 * 1024) for number in range(9)]
    posts = [(*data_lines(data), data) for data in blocks]

    def kibibytes(name: str) -> int:
        status = Path(f"/proc/{process.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found
        return int(found[1])

    async def play() -> int:
        async with asyncio.timeout(120):
            remotes = [await dial(address, LOCAL, MemoryPins(), strict_pin=True) for _ in range(8)]

            async def store(number: int, which: int) -> None:
                key, lines, data = posts[which]
                header = parse_data_header(lines)
                assert await remotes[number].store_data(key, header, [data]) is Word.DONE

            # One block warms up what is loaded and allocated once.
            await store(0, 8)
            before = kibibytes("VmRSS")
            await asyncio.to_thread(Path(f"/proc/{process.pid}/clear_refs").write_text, "5")
            await asyncio.gather(*(store(number, number) for number in range(8)))
            grown = kibibytes("VmHWM") - before
            for remote in remotes:
                await remote.quit()
            return grown

    try:
        assert asyncio.run(play()) < 8 * 1024
    finally:
        process.terminate()
        process.communicate(timeout=20)
