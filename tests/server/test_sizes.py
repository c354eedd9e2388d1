"""Blocks and bodies that are too large: answered DONE, refused by verdict, at the byte."""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import pytest
from tests.server.inside import TurnedClock, connect, make_server, serving
from tests.server.users import User, data_lines, message, now

from sealmail_net.remote_server import RemoteServer
from sealmail_pow import Difficulty, mint
from sealmail_protocol.blocks import BlockType, TextBlock
from sealmail_protocol.canonical import text_size
from sealmail_protocol.commands import (
    AskQueue,
    BodyCommand,
    StoreEntangled,
    StoreProxy,
    StoreServer,
)
from sealmail_protocol.compose import make_acknowledgment
from sealmail_protocol.errors import Refusal
from sealmail_protocol.keys import (
    AckHash,
    BlockKey,
    acknowledgment_key,
    address_key,
    announcement_key,
    mailbox_key,
)
from sealmail_protocol.policy import BLOCK_POLICY, KIB
from sealmail_protocol.replies import Listing, Refused, Word
from sealmail_protocol.stamps import acknowledgment_challenge

SECRET = AckHash(b"s" * 20)
TEXT_TYPES = [kind for kind in BlockType if kind is not BlockType.DATA]


@pytest.fixture(scope="module")
def ann() -> Iterator[User]:
    """Make a user with a key, in a place short enough for GnuPG's sockets."""
    with tempfile.TemporaryDirectory() as place:
        person = User.create(Path(place) / "a", "ann")
        yield person
        person.close()


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make one server directory for all tests."""
    made = tmp_path_factory.mktemp("sizes") / "data"
    make_server(made, TurnedClock(datetime.now(UTC)))
    return made


def block_of(kind: BlockType, ann: User) -> tuple[BlockKey, TextBlock]:
    """Return a block that Ann may post, and its key."""
    date = now()
    match kind:
        case BlockType.KEY_ANNOUNCEMENT:
            return announcement_key(ann.key_id), ann.announcement(date)
        case BlockType.ADDRESS_CLAIM:
            return address_key("ann@a.example"), ann.claim("ann@a.example", date=date)
        case BlockType.MESSAGE_ANNOUNCEMENT:
            return mailbox_key("0", ann.key_id), message(ann.key_id, date=date)
        case _:
            stamp = mint(acknowledgment_challenge(date, SECRET), Difficulty(16, 2))
            return acknowledgment_key(SECRET), make_acknowledgment(date, stamp, SECRET)


def filled(block: TextBlock, size: int) -> tuple[str, ...]:
    """Return the lines of a block, made so large by fields that nobody knows."""
    place = next(number for number, line in enumerate(block.lines) if line.startswith("Date: "))
    missing, fill = size - text_size(block), []
    while missing:
        # What is left must have room for a line of its own.
        length = missing if missing <= 16_000 else min(15_000, missing - 100)
        fill.append("X-Fill: ".ljust(length - 2, "x"))
        missing -= length
    return (*block.lines[:place], *fill, *block.lines[place:])


def digest_of(lines: Sequence[str]) -> bytes:
    """Return the digest of a block by its lines."""
    return sha256("".join(f"{line}\r\n" for line in lines).encode()).digest()


async def code_of(remote: RemoteServer, digest: bytes) -> Refusal | None:
    """Ask why a block was refused, if it was."""
    verdict = await remote.verdict(digest)
    return verdict.code if isinstance(verdict, Refused) else None


@pytest.mark.parametrize("kind", TEXT_TYPES)
def test_a_text_block_may_have_the_size_of_its_type(
    directory: Path, ann: User, kind: BlockType
) -> None:
    """At the limit it is judged by other things; a byte more is REFUSED size."""
    key, block = block_of(kind, ann)
    limit = BLOCK_POLICY[kind].size

    async def run() -> None:
        async with (
            serving(directory, TurnedClock(datetime.now(UTC))) as server,
            await connect(server) as remote,
        ):
            made = await server.operator.fulfil({"do": "account add", "userid": ann.key_id.hex})
            assert await remote.login(ann.key_id.hex, made["auth_key"])
            for size, expected in ((limit, False), (limit + 1, True)):
                lines = filled(block, size)
                assert sum(len(line) + 2 for line in lines) == size
                assert await remote.store(key, lines) is Word.DONE
                found = await code_of(remote, digest_of(lines))
                assert (found is Refusal.SIZE) == expected, found

    asyncio.run(run())


def test_data_may_have_the_size_of_its_type(directory: Path) -> None:
    """A byte more than 8 MiB is REFUSED size, its bytes consumed."""
    data = bytes(BLOCK_POLICY[BlockType.DATA].size + 1)
    key, lines = data_lines(data)

    async def run() -> None:
        async with (
            serving(directory, TurnedClock(datetime.now(UTC))) as server,
            await connect(server) as remote,
        ):
            done = await remote.post_data(StoreServer(key), lines, len(data), (data,))
            assert done is Word.DONE
            header = "".join(f"{line}\r\n" for line in lines).encode()
            assert await code_of(remote, sha256(header + key.raw).digest()) is Refusal.SIZE

    asyncio.run(run())


KEY = BlockKey(bytes(20))


@pytest.mark.parametrize(
    ("command", "head"),
    [
        (StoreServer(KEY), ()),
        (StoreProxy(KEY), ("Post-To: server=mail.example.invalid:8081",)),
        (StoreEntangled(KEY), ()),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_body_too_large_to_be_kept_is_refused_by_verdict(
    directory: Path, command: BodyCommand, head: tuple[str, ...]
) -> None:
    """DONE and not FAILED, at which an original stops its queue; nothing is queued."""
    lines = ("Type: acknowledgment", *["X-Fill: ".ljust(KIB, "x")] * 70)

    async def run() -> None:
        network = {"dht": True, "dht_network": "alone"}
        async with (
            serving(directory, TurnedClock(datetime.now(UTC)), **network) as server,
            await connect(server) as remote,
        ):
            made = await server.operator.fulfil({"do": "account add", "userid": "LARGEUSER"})
            assert await remote.login("LARGEUSER", made["auth_key"])
            assert await remote.post(command, (*head, "Padding: away", *lines)) is Word.DONE
            assert await remote.ping("in step") == "in step"
            assert await code_of(remote, digest_of(lines)) is Refusal.SIZE
            assert await remote.call(AskQueue()) == Listing(())

    asyncio.run(run())
