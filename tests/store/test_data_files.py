"""Large data lives in files of its own: byte-exact, in little memory, and never half."""

import asyncio
import dataclasses
import tracemalloc
from pathlib import Path

import pytest
from tests.store.samples import (
    LARGE,
    content,
    data_entry,
    files_under,
    in_store,
    spooled,
    store_data,
    stored_bytes,
)

from sealmail_protocol.keys import data_key
from sealmail_store import (
    INLINE_LIMIT,
    BlockStore,
    DamagedData,
    DataGone,
    StoredEntry,
    WriteView,
)


@pytest.mark.parametrize(
    ("size", "files"),
    [(0, 0), (1, 0), (INLINE_LIMIT, 0), (INLINE_LIMIT + 1, 1), (3 * 1024 * 1024 + 7, 1)],
)
def test_data_of_any_size_comes_back(tmp_path: Path, size: int, files: int) -> None:
    """Small data sits in the index, large data in a file named by its key, also after closing."""
    raw = content(size, size)

    async def put(store: BlockStore) -> None:
        entry = await store_data(store, raw)
        assert (entry.key, entry.size) == (data_key(raw), size)
        assert await stored_bytes(store, raw) == raw

    async def get(store: BlockStore) -> bytes | None:
        return await stored_bytes(store, raw)

    in_store(tmp_path, put)
    assert in_store(tmp_path, get) == raw
    name = data_key(raw).hex
    expected = [tmp_path / "data" / name[:2] / name[2:4] / name]
    assert files_under(tmp_path) == expected[:files]


def test_spooling_needs_little_memory(tmp_path: Path) -> None:
    """Eight mebibytes arrive in less than one of memory."""
    chunk = bytes(32_768)

    async def scenario(store: BlockStore) -> int:
        tracemalloc.start()
        try:
            with store.spool() as spool:
                for _ in range(256):
                    spool.write(chunk)
                assert spool.finish().size == 8 * 1024 * 1024
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert in_store(tmp_path, scenario) < 1024 * 1024


def test_the_same_block_stored_many_times_at_once_is_there_once(tmp_path: Path) -> None:
    """Concurrent stores of one data block all succeed and leave one whole file."""
    raw = content(1)

    async def scenario(store: BlockStore) -> None:
        await asyncio.gather(*(store_data(store, raw, days=day) for day in range(20)))
        assert await stored_bytes(store, raw) == raw
        assert (await store.read(lambda view: view.counts()))["data"].entries == 1
        assert len(files_under(tmp_path)) == 1

    in_store(tmp_path, scenario)


def test_a_newer_header_changes_the_row_and_not_the_file(tmp_path: Path) -> None:
    """Without bytes that came, those that are here stay; with them one file stays, the new one."""
    raw = content(1)

    async def scenario(store: BlockStore) -> None:
        await store_data(store, raw)
        newer = await store_data(store, raw, days=1)
        (file,) = files_under(tmp_path)
        inode = file.stat().st_ino

        def touch(view: WriteView) -> StoredEntry:
            entry = view.entry("data", newer.key)
            assert entry is not None
            assert entry.header == newer.header
            newest = dataclasses.replace(entry, header=b"Type: data\r\n")
            view.put_entry(newest)
            return newest

        newest = await store.write(touch)
        assert await store.read(lambda view: view.entry("data", newer.key)) == newest
        assert await stored_bytes(store, raw) == raw
        assert [path.stat().st_ino for path in files_under(tmp_path)] == [inode]

    in_store(tmp_path, scenario)


def test_removed_data_takes_its_file_along_and_readers_read_on(tmp_path: Path) -> None:
    """Who has the data open reads to the end; who comes later is told that it is gone."""
    raw = content(1)

    async def scenario(store: BlockStore) -> None:
        await store_data(store, raw)
        entry = await store.read(lambda view: view.entry("data", data_key(raw)))
        assert entry is not None
        assert entry.data is not None
        with entry.data.open() as reader:
            begin = reader.read(10)
            await store.write(lambda view: view.remove_entry("data", data_key(raw)))
            await store.write(lambda view: None)
            assert files_under(tmp_path) == []
            assert begin + reader.read() == raw
        with pytest.raises(DataGone):
            entry.data.open()
        with pytest.raises(DataGone):
            await store.write(lambda view: view.put_entry(entry))
        assert await stored_bytes(store, raw) is None

    in_store(tmp_path, scenario)


def test_data_removed_and_stored_again_in_one_commit_stays(tmp_path: Path) -> None:
    """A file goes only when no row names it after the commit."""
    raw = content(1)

    async def scenario(store: BlockStore) -> None:
        await store_data(store, raw)

        def remove_and_put_back(view: WriteView) -> None:
            entry = view.entry("data", data_key(raw))
            assert entry is not None
            view.remove_entry("data", entry.key)
            view.put_entry(entry)

        await store.write(remove_and_put_back)
        await store.write(lambda view: None)
        assert await stored_bytes(store, raw) == raw

    in_store(tmp_path, scenario)


def test_the_data_of_a_failed_unit_is_removed(tmp_path: Path) -> None:
    """No file is left without a row, unless another unit of the group stored the same data."""
    lost, shared = content(1), content(2)

    async def scenario(store: BlockStore) -> None:
        def put_and_fail(view: WriteView) -> None:
            view.put_entry(first)
            view.put_entry(second)
            raise LookupError

        first = data_entry(spooled(store, lost))
        second = data_entry(spooled(store, shared))
        again = data_entry(spooled(store, shared))
        outcomes = await asyncio.gather(
            store.write(put_and_fail),
            store.write(lambda view: view.put_entry(again)),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], LookupError)
        await store.write(lambda view: None)
        assert [path.name for path in files_under(tmp_path)] == [data_key(shared).hex]
        assert await stored_bytes(store, shared) == shared

    in_store(tmp_path, scenario)


def test_a_spool_left_without_storing_leaves_nothing(tmp_path: Path) -> None:
    """Discarding is always possible, and final."""

    async def scenario(store: BlockStore) -> None:
        with store.spool() as spool:
            spool.write(content(1))
        with store.spool() as finished:
            finished.write(content(2))
            finished.finish()
            with pytest.raises(ValueError, match="finished or discarded"):
                finished.write(b"more")
        assert files_under(tmp_path) == []
        with pytest.raises(ValueError, match="finished or discarded"):
            spool.write(b"late")
        with pytest.raises(ValueError, match="finished or discarded"):
            spool.finish()

    in_store(tmp_path, scenario)


def test_leaving_the_spool_after_storing_keeps_the_data(tmp_path: Path) -> None:
    """The context of a spool can enclose the write."""
    raw = content(1)

    async def scenario(store: BlockStore) -> None:
        with store.spool() as spool:
            spool.write(raw)
            entry = data_entry(spool.finish())
            await store.write(lambda view: view.put_entry(entry))
        assert await stored_bytes(store, raw) == raw

    in_store(tmp_path, scenario)


def test_other_bytes_of_the_same_hash_change_nothing_that_is_stored(tmp_path: Path) -> None:
    """A sound file stays; who can make two blocks of one hash changes none that was accepted."""
    raw, twin = content(1), content(2)

    async def scenario(store: BlockStore) -> None:
        await store_data(store, raw)
        with store.spool() as spool:
            spool.write(twin)
            forged = dataclasses.replace(spool.finish(), key=data_key(raw))
            await store.write(lambda view: view.restore_data(forged))
        assert await stored_bytes(store, raw) == raw
        assert not list((tmp_path / "incoming").iterdir())

    in_store(tmp_path, scenario)


def test_a_file_of_another_size_is_not_served_and_heals(tmp_path: Path) -> None:
    """A damaged file is refused, and storing the block again replaces it."""
    raw = content(1)

    async def scenario(store: BlockStore) -> None:
        await store_data(store, raw)
        (file,) = files_under(tmp_path)
        file.write_bytes(raw[:-1])
        with pytest.raises(DamagedData, match=f"{LARGE - 1} bytes, not {LARGE}"):
            await stored_bytes(store, raw)
        await store_data(store, raw)
        assert await stored_bytes(store, raw) == raw

    in_store(tmp_path, scenario)
