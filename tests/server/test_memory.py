"""Memory: what peers send and fetch slowly is bounded, and ordinary mail is never in its way."""

import asyncio
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.server.inside import TurnedClock, connect, make_server, serving
from tests.server.post_office import ANYBODY, PostOffice, code_of, in_post_office
from tests.server.users import message

from sealmail_net.errors import Unavailable
from sealmail_pow import Difficulty
from sealmail_protocol.bodies import FREE_BODY
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.canonical import block_digest
from sealmail_protocol.commands import Login
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import BlockKey, KeyId, mailbox_key
from sealmail_protocol.replies import Accepted, Word
from sealmail_server.intake import MAX_ENTRIES
from sealmail_server.memory import MemoryBudget
from sealmail_server.service import Server
from sealmail_store import StoredEntry

KEY = BlockKey(bytes(20))
STEP = FREE_BODY
HEAD = f"STORE SERVER {KEY}\r\nType: message-announcement\r\n".encode()
LARGE = b"".join(b"Field: %s\r\n" % (b"x" * 1000) for _ in range(1000))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one server directory for all tests."""
    made = tmp_path_factory.mktemp("memory") / "data"
    make_server(made, present())
    return made


def present() -> TurnedClock:
    """Return a clock that shows the present and stands still."""
    return TurnedClock(datetime.now(UTC))


@asynccontextmanager
async def narrow_server(directory: Path, **settings: Any) -> AsyncIterator[Server]:
    """Run a server that has little memory, and takes commands in clear to be seen sooner."""
    room = {"memory_bytes": 12 * STEP, "memory_bytes_by_source": 10 * STEP, **settings}
    async with serving(directory, present(), require_tls=False, **room) as server:
        yield server


class Talker:
    """Says whatever bytes it likes, in clear."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def greet(cls, server: Server, source: str = "127.0.0.1") -> "Talker":
        """Connect from a loopback address, and hear the banner."""
        port = server.status().listen.port
        talker = cls(*await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)))
        await talker.hear()
        return talker

    async def say(self, said: bytes) -> None:
        """Send bytes."""
        self._writer.write(said)
        await self._writer.drain()

    async def hear(self) -> bytes:
        """Return the next line."""
        return (await self._reader.readline()).strip()

    async def hear_some(self) -> bytes:
        """Return the first bytes of an answer whose lines are long."""
        return await self._reader.readexactly(6)

    async def leave(self) -> None:
        """Hang up, whatever is unfinished."""
        self._writer.transport.abort()


async def until_held(server: Server, size: int) -> None:
    """Wait until the server holds so many bytes."""
    async with asyncio.timeout(20):
        while server.services.memory.held != size:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0.01)


def test_a_budget_is_shared_and_one_source_has_only_its_part() -> None:
    """What is refused is not counted, and what is given back can be taken by others."""
    budget = MemoryBudget(100, 60)
    one, other = budget.share("one"), budget.share("other")
    assert one.take(60)
    assert not budget.share("one").take(1)
    assert not other.take(41)
    assert other.take(40)
    one.release()
    one.release()
    assert budget.held == 40
    assert other.take(20)


def test_a_large_body_without_room_is_failed_and_ordinary_mail_is_taken(directory: Path) -> None:
    """Who holds all the memory with a body that he never ends stops large bodies only."""

    async def run() -> None:
        async with narrow_server(directory) as server:
            holder = await Talker.greet(server)
            await holder.say(HEAD + LARGE)
            await until_held(server, 8 * STEP)
            for source in ("127.0.0.1", "127.0.0.2"):
                talker = await Talker.greet(server, source)
                await talker.say(HEAD + LARGE + b"EndBlock\r\n")
                assert await talker.hear() == b"FAILED"
                await talker.say(HEAD + b"EndBlock\r\nPING on\r\n")
                assert (await talker.hear(), await talker.hear()) == (b"DONE", b"PONG on")
                await talker.leave()
            await holder.leave()
            await until_held(server, 0)
            talker = await Talker.greet(server)
            await talker.say(HEAD + LARGE + b"EndBlock\r\n")
            assert await talker.hear() == b"DONE"
            assert server.services.memory.held == 0
            await talker.leave()

    asyncio.run(run())


def test_a_body_that_will_be_refused_is_not_kept(directory: Path) -> None:
    """A stranger may not use the command, so its body is passed over as it comes."""

    async def run() -> None:
        async with narrow_server(directory) as server:
            talker = await Talker.greet(server)
            await talker.say(HEAD.replace(b"SERVER", b"PROXY") + LARGE + LARGE)
            await talker.say(b"EndBlock\r\nPING on\r\n")
            assert (await talker.hear(), await talker.hear()) == (b"FAILED", b"PONG on")
            assert server.services.memory.held == 0
            await talker.leave()

    asyncio.run(run())


def test_a_large_answer_is_whole_and_counts_as_memory(directory: Path) -> None:
    """Where there is room a large mailbox comes whole; where there is none it is FAILED."""
    reader, padding = KeyId(bytes(range(20))), tuple(f"Field: {'x' * 1000}" for _ in range(200))
    mails = [message(reader, Difficulty(24, 2), data=data, extra=padding) for data in (b"1", b"2")]
    place = mailbox_key("0", reader)

    async def run() -> None:
        async with serving(directory, present()) as server:
            made = await server.operator.fulfil({"do": "account add", "userid": reader.hex})
            async with await connect(server) as remote:
                for mail in mails:
                    assert await remote.store(place, mail.lines) is Word.DONE
                    assert await remote.verdict(block_digest(mail)) == Accepted()
                assert await remote.call(Login(reader.hex, made["auth_key"])) is Word.DONE
                found = await remote.get(place)
                assert found is not None
                got = sorted(tuple(line.decode() for line in each) for each in split_bundle(found))
                assert got == sorted(mail.lines for mail in mails)
                assert server.services.memory.held == 0
        async with (
            narrow_server(directory, memory_bytes=1000) as server,
            await connect(server) as remote,
        ):
            assert await remote.call(Login(reader.hex, made["auth_key"])) is Word.DONE
            with pytest.raises(Unavailable):
                await remote.get(place)
            assert await remote.ping("still in step") == "still in step"

    asyncio.run(run())


def test_a_large_mailbox_is_not_read_before_there_is_room(tmp_path: Path) -> None:
    """Many who ask for it at once, and take it slowly, cost no more memory than there is."""
    make_server(tmp_path, present())
    reader, size, crowd = KeyId(bytes(range(20))), 2 * 1024**2, 16
    place, mail = mailbox_key("0", reader), message(reader)
    entries = [
        StoredEntry(
            type=mail.type,
            key=place,
            identity=bytes([number]) * 32,
            date=mail.date,
            header=b"Field: %s\r\n" % (bytes([65 + number]) * (size // 8)),
            digest=bytes([number]) * 32,
            stamp_bits=8,
            holder=reader.raw,
        )
        for number in range(8)
    ]
    room = {"memory_bytes": 4 * size, "memory_bytes_by_source": 5 * size // 2}

    async def heard() -> list[bytes]:
        async with serving(tmp_path, present(), require_tls=False, **room) as server:
            store = server.services.store
            await store.write(lambda view: [view.put_entry(each) for each in entries])
            await server.services.desk.add(reader.hex, reader.hex)
            talkers = [await Talker.greet(server) for _ in range(crowd)]
            for talker in talkers:
                await talker.say(f"LOGIN {reader.hex} {reader.hex}\r\n".encode())
                assert await talker.hear() == b"DONE"
            tracemalloc.reset_peak()
            for talker in talkers:
                await talker.say(f"GET SERVER {place}\r\n".encode())
            answers = [await talker.hear_some() for talker in talkers]
            for talker in talkers:
                await talker.leave()
            await until_held(server, 0)
            return answers

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        answers = asyncio.run(heard())
        used = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert {answer[:6] for answer in answers} <= {b"Field:", b"FAILED"}
    assert b"Field:" in {answer[:6] for answer in answers}
    assert used < 6 * size


def test_a_body_of_separators_is_refused_whole(tmp_path: Path) -> None:
    """A million entries without lines cost no million decisions."""

    async def scenario(office: PostOffice) -> None:
        separators = (b"NextMessage",) * (MAX_ENTRIES + 1)
        verdict = await office.intake.take_text(KEY, separators, ANYBODY)
        assert code_of(verdict) is Refusal.FORM
        assert str(MAX_ENTRIES) in str(verdict)

    in_post_office(tmp_path / "store", scenario)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(tuple(b"Field: %d" % number for number in range(300_000)), id="one-entry"),
        pytest.param((b"a", b"b", b"NextMessage") * 1000 + (b"c",) * 300_000, id="bundle"),
    ],
)
def test_a_body_of_many_lines_leaves_the_loop_to_others(
    tmp_path: Path, lines: tuple[bytes, ...]
) -> None:
    """Cutting, hashing and weighing it costs this thread, in which the loop runs, no time."""

    async def scenario(office: PostOffice) -> float:
        began = time.thread_time()
        assert code_of(await office.intake.take_text(KEY, lines, ANYBODY)) is Refusal.FORM
        return time.thread_time() - began

    assert in_post_office(tmp_path / "store", scenario) < 0.05
