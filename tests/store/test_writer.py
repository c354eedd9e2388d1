"""The writer joins units of work, keeps them apart, and answers only for what is durable."""

import asyncio
import errno
import os
import time
from functools import partial
from pathlib import Path

import apsw
import pytest
from tests.store.samples import (
    announcement,
    beside,
    content,
    data_entry,
    in_store,
    put,
    store_data,
    stored_bytes,
)

from sealmail_store import (
    BlockStore,
    NoRoom,
    StoreClosed,
    StoreFailed,
    WriteView,
)


def test_waiting_units_share_one_commit(tmp_path: Path) -> None:
    """Two hundred writers cost a handful of commits, and all of them find their entry."""
    mails = [announcement(number) for number in range(200)]

    async def scenario(store: BlockStore) -> None:
        slow = asyncio.create_task(store.write(lambda view: time.sleep(0.05)))
        await asyncio.sleep(0.01)
        await asyncio.gather(*(put(store, mail) for mail in mails))
        await slow
        assert store.commits <= 5
        for mail in mails:
            assert await beside(store, mail) == (mail,)

    in_store(tmp_path, scenario)


def test_a_failing_unit_harms_no_other(tmp_path: Path) -> None:
    """Its changes are undone, its caller gets the exception, its neighbours commit."""
    mails = [announcement(number) for number in range(30)]

    def fail_after_put(view: WriteView, number: int) -> None:
        view.put_entry(mails[number])
        if number % 3 == 0:
            raise LookupError(number)

    async def scenario(store: BlockStore) -> None:
        outcomes = await asyncio.gather(
            *(store.write(partial(fail_after_put, number=number)) for number in range(30)),
            return_exceptions=True,
        )
        for number, outcome in enumerate(outcomes):
            mail = mails[number]
            kept = await beside(store, mail)
            if number % 3 == 0:
                assert isinstance(outcome, LookupError)
                assert kept == ()
            else:
                assert outcome is None
                assert kept == (mail,)

    in_store(tmp_path, scenario)


def test_a_unit_sees_what_earlier_units_put(tmp_path: Path) -> None:
    """Decisions are made on the present state, so concurrent counting loses no step."""

    def count(view: WriteView) -> int:
        value = int(view.setting("count") or 0) + 1
        view.put_setting("count", str(value))
        return value

    async def scenario(store: BlockStore) -> None:
        results = await asyncio.gather(*(store.write(count) for _ in range(100)))
        assert sorted(results) == list(range(1, 101))

    in_store(tmp_path, scenario)


def test_a_read_sees_no_half_done_unit(tmp_path: Path) -> None:
    """Readers run beside the writer, on the state of the last commit."""

    def slow_pair(view: WriteView) -> None:
        view.put_setting("left", "1")
        time.sleep(0.05)
        view.put_setting("right", "1")

    async def scenario(store: BlockStore) -> None:
        writing = asyncio.create_task(store.write(slow_pair))
        seen = set()
        while not writing.done():
            seen.add(await store.read(lambda v: (v.setting("left"), v.setting("right"))))
        seen.add(await store.read(lambda v: (v.setting("left"), v.setting("right"))))
        assert seen == {(None, None), ("1", "1")}

    in_store(tmp_path, scenario)


@pytest.mark.parametrize("side", ["write", "read"])
def test_work_that_runs_out_of_items_is_an_error_and_not_a_hang(tmp_path: Path, side: str) -> None:
    """StopIteration, which a future cannot carry, arrives as RuntimeError."""

    async def scenario(store: BlockStore) -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await asyncio.wait_for(getattr(store, side)(lambda view: next(iter(()))), 5)

    in_store(tmp_path, scenario)


def test_work_that_wants_to_exit_stops_nobody(tmp_path: Path) -> None:
    """The writer outlives whatever the work raises."""

    def cancelled(view: WriteView) -> None:
        raise asyncio.CancelledError

    async def scenario(store: BlockStore) -> None:
        with pytest.raises(asyncio.CancelledError):
            await store.write(cancelled)
        await store.write(lambda view: view.put_setting("alive", "yes"))

    in_store(tmp_path, scenario)


def test_a_cancelled_unit_that_waits_is_not_done(tmp_path: Path) -> None:
    """Whoever goes away before his turn leaves no trace."""

    async def scenario(store: BlockStore) -> None:
        slow = asyncio.create_task(store.write(lambda view: time.sleep(0.05)))
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(store.write(lambda view: view.put_setting("a", "1")))
        await asyncio.sleep(0)
        waiting.cancel()
        await slow
        await store.write(lambda view: view.put_setting("b", "1"))
        assert await store.read(lambda view: view.setting("a")) is None

    in_store(tmp_path, scenario)


def test_close_waits_for_queued_units_and_then_refuses(tmp_path: Path) -> None:
    """A graceful stop loses no unit; afterwards every call says that the store is closed."""
    mails = [announcement(number) for number in range(50)]

    async def queue_and_close() -> None:
        store = BlockStore.open(tmp_path, create=True)
        writes = [asyncio.create_task(put(store, mail)) for mail in mails]
        await asyncio.sleep(0)
        await store.close()
        await store.close()
        await asyncio.gather(*writes)
        with pytest.raises(StoreClosed):
            await store.write(lambda view: None)
        with pytest.raises(StoreClosed):
            await store.read(lambda view: None)

    async def count(store: BlockStore) -> int:
        return (await store.read(lambda view: view.counts()))["message-announcement"].entries

    asyncio.run(queue_and_close())
    assert in_store(tmp_path, count) == 50


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(apsw.FullError("database or disk is full"), id="index"),
        pytest.param(OSError(errno.ENOSPC, "No space left on device"), id="data-file"),
    ],
)
def test_a_full_disk_refuses_the_unit_and_is_got_over(tmp_path: Path, error: Exception) -> None:
    """No room is told as such; when there is room again, writing goes on."""

    def out_of_room(view: WriteView) -> None:
        raise error

    async def scenario(store: BlockStore) -> None:
        with pytest.raises(NoRoom, match="no room left"):
            await store.write(out_of_room)
        await store.write(lambda view: view.put_setting("a", "1"))

    in_store(tmp_path, scenario)


def test_a_full_index_loses_no_answered_unit(tmp_path: Path) -> None:
    """When SQLite itself runs out of pages, each unit is either answered or not there."""
    mails = [announcement(number) for number in range(2_000)]

    async def scenario(store: BlockStore) -> None:
        # The seam of this fake failure: a limit set on the writing connection itself.
        store._connection.execute("PRAGMA max_page_count = 60")
        outcomes = await asyncio.gather(
            *(put(store, mail) for mail in mails),
            return_exceptions=True,
        )
        assert {type(outcome) for outcome in outcomes} == {type(None), NoRoom}
        for mail, outcome in zip(mails, outcomes, strict=True):
            there = await beside(store, mail)
            assert bool(there) == (outcome is None)

    in_store(tmp_path, scenario)


def test_a_failing_disk_is_never_answered_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data file whose name cannot be synced has no row, and writing ends until a restart."""
    raw = content(1)

    def broken_fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def lose(store: BlockStore) -> None:
        small = await store_data(store, b"before")
        spool = store.spool()
        spool.write(raw)
        data = spool.finish()
        monkeypatch.setattr(os, "fsync", broken_fsync)
        with pytest.raises(StoreFailed, match="check it, then restart"):
            await store.write(lambda view: view.put_entry(data_entry(data)))
        monkeypatch.undo()
        with pytest.raises(StoreFailed):
            await store.write(lambda view: view.put_setting("a", "1"))
        assert await stored_bytes(store, raw) is None
        assert small.data is not None

    async def look(store: BlockStore) -> None:
        assert await stored_bytes(store, raw) is None
        assert await stored_bytes(store, b"before") == b"before"
        await store_data(store, raw)
        assert await stored_bytes(store, raw) == raw

    in_store(tmp_path, lose)
    in_store(tmp_path, look)
