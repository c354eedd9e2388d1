"""Generated entries into a real store, in units of work as large as its writer likes them."""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from pathlib import Path

from sealmail_store import INLINE_LIMIT, BlockData, BlockStore, DhtRow, StoredEntry, WriteView

_AT_ONCE = 500


def write_store(directory: Path, entries: Iterable[StoredEntry], now: datetime) -> int:
    """Put entries into the store in ``directory``, made where missing; return how many.

    ``now`` becomes the latest time that the store has seen.
    """

    async def write() -> int:
        written = 0
        async with BlockStore.open(directory, create=True) as store:
            for part in _parts(iter(entries)):
                filed = [_in_file(store, entry) for entry in part]
                await store.write(lambda view, part=filed: _put(view, part))  # type: ignore[misc]
                written += len(part)
            await store.write(lambda view: view.note_time(now))
        return written

    return asyncio.run(write())


def write_values(directory: Path, rows: Iterable[DhtRow]) -> int:
    """Put values of the DHT into the store in ``directory``; return how many."""
    values = list(rows)

    def put(view: WriteView) -> None:
        for row in values:
            view.dht.put(row)

    async def write() -> None:
        async with BlockStore.open(directory) as store:
            await store.write(put)

    asyncio.run(write())
    return len(values)


def copy_store(directory: Path, target: Path) -> None:
    """Make a partner's copy of a store."""

    async def copy() -> None:
        async with BlockStore.open(directory) as store:
            await store.backup(target)

    asyncio.run(copy())


def _put(view: WriteView, entries: list[StoredEntry]) -> None:
    for entry in entries:
        view.put_entry(entry)


def _parts(entries: Iterator[StoredEntry]) -> Iterator[list[StoredEntry]]:
    while part := list(islice(entries, _AT_ONCE)):
        yield part


def _in_file(store: BlockStore, entry: StoredEntry) -> StoredEntry:
    """Give large data to a file, as a server does."""
    data = entry.data
    if data is None or not isinstance(data.content, bytes) or data.size <= INLINE_LIMIT:
        return entry
    spool = store.spool()
    spool.write(data.content)
    spooled = spool.finish()
    return replace(entry, data=BlockData(data.key, data.size, spooled.content))
