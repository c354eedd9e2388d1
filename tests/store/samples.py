"""Entries to store, and a store to put them in."""

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from sealmail_protocol.keys import BlockKey, data_key
from sealmail_store import BlockData, BlockStore, ReadView, StoredEntry

T = TypeVar("T")

NOON = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
LARGE = 100_000


def in_store(directory: Path, scenario: Callable[[BlockStore], Awaitable[T]]) -> T:
    """Play ``scenario`` on the store in ``directory``, made where missing, and close it."""

    async def play() -> T:
        async with BlockStore.open(directory, create=True) as store:
            return await scenario(store)

    return asyncio.run(play())


def all_entries(view: ReadView, type: str) -> list[StoredEntry]:
    """Return the entries of ``type`` by key."""
    first, last = BlockKey(bytes(20)), BlockKey(b"\xff" * 20)
    names = view.names_between(type, first, last, limit=100_000)
    return [entry for name in names if (entry := view.numbered(name.number))]


def some_key(number: int) -> BlockKey:
    """Return a key that depends on ``number``."""
    return BlockKey(hashlib.sha1(str(number).encode()).digest())


def announcement(number: int, *, key: BlockKey | None = None, days: int = 0) -> StoredEntry:
    """Return a message-announcement that differs by ``number``, dated ``days`` after noon."""
    header = f"Type: message-announcement\r\nNumber: {number}\r\n".encode()
    digest = hashlib.sha256(header).digest()
    return StoredEntry(
        type="message-announcement",
        key=key or some_key(number),
        identity=digest,
        date=NOON + timedelta(days=days),
        header=header,
        digest=digest,
        stamp_bits=number % 64,
    )


def content(number: int, size: int = LARGE) -> bytes:
    """Return ``size`` bytes that depend on ``number``."""
    return random.Random(number).randbytes(size)  # noqa: S311 - test data is no secret


def data_entry(data: BlockData, *, days: int = 0) -> StoredEntry:
    """Return the entry of a data block."""
    header = f"Type: data\r\nData: {data.size}\r\nDays: {days}\r\n".encode()
    return StoredEntry(
        type="data",
        key=data.key,
        identity=b"",
        date=NOON + timedelta(days=days),
        header=header,
        digest=hashlib.sha256(header + data.key.raw).digest(),
        stamp_bits=8,
        data=data,
    )


def spooled(store: BlockStore, raw: bytes) -> BlockData:
    """Spool ``raw`` in chunks as a connection would hand them on."""
    spool = store.spool()
    for start in range(0, len(raw), 16_384):
        spool.write(memoryview(raw)[start : start + 16_384])
    return spool.finish()


async def put(store: BlockStore, entry: StoredEntry) -> None:
    """Store one entry in a unit of its own."""
    await store.write(lambda view: view.put_entry(entry))


async def beside(store: BlockStore, entry: StoredEntry) -> tuple[StoredEntry, ...]:
    """Return what the store holds under the type and key of ``entry``."""
    return await store.read(lambda view: view.entries(entry.type, entry.key))


async def store_data(store: BlockStore, raw: bytes, *, days: int = 0) -> StoredEntry:
    """Store ``raw`` as a data block and return its entry."""
    entry = data_entry(await asyncio.to_thread(spooled, store, raw), days=days)
    await put(store, entry)
    return entry


async def stored_bytes(store: BlockStore, raw: bytes) -> bytes | None:
    """Return what the store gives for the data block of ``raw``; ``None`` if it has none."""
    entry = await store.read(lambda view: view.entry("data", data_key(raw)))
    if entry is None or entry.data is None:
        return None
    with entry.data.open() as reader:
        return reader.read()


def files_under(directory: Path) -> list[Path]:
    """Return the files of spool and data directories."""
    found = [*(directory / "data").rglob("*"), *(directory / "incoming").rglob("*")]
    return sorted(path for path in found if path.is_file())
