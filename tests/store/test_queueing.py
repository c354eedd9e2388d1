"""The durable queue: rows refer to blocks, and neither outlives what it needs the other for."""

import asyncio
import dataclasses
from datetime import timedelta
from pathlib import Path

from tests.store.samples import (
    NOON,
    announcement,
    content,
    data_entry,
    files_under,
    in_store,
    spooled,
    store_data,
)

from sealmail_protocol.keys import data_key
from sealmail_store import (
    PROXIED,
    BlockStore,
    Count,
    QueueKind,
    QueueRow,
    QueueState,
    StoredEntry,
    WriteView,
    queue_space,
    restore_backup,
)

REPLICATE = QueueKind.REPLICATE
LIMIT = 100


def row_for(entry: StoredEntry, number: int, kind: QueueKind = REPLICATE) -> QueueRow:
    """Return a row that tells of an entry."""
    return QueueRow(
        kind=kind, digest=entry.digest, queued=NOON, type=entry.type, key=entry.key, entry=number
    )


def put_queued(view: WriteView, entry: StoredEntry) -> int:
    """Put an entry and the row that replicates it; return the number of the row."""
    return view.queue.put(row_for(entry, view.put_entry(entry)))


def due_numbers(view: WriteView, kind: QueueKind = REPLICATE, minutes: int = 0) -> list[int]:
    """Return the numbers of the rows that are due some minutes after noon."""
    rows, _ = view.queue.due(kind, NOON + timedelta(minutes=minutes), limit=LIMIT)
    return [row.number for row in rows]


def held(entry: StoredEntry) -> StoredEntry:
    """Return the form in which a block is held for delivery only."""
    return dataclasses.replace(entry, type=PROXIED, identity=entry.digest, source="somebody")


async def tidied(store: BlockStore) -> None:
    """Wait until the files of what was removed are gone, which is after the answer."""
    await store.write(lambda view: None)


def test_a_row_is_what_was_queued(tmp_path: Path) -> None:
    """All that a row says comes back, with a number; nothing else changes."""
    mail = announcement(1)
    row = QueueRow(
        kind=QueueKind.PROXY,
        digest=mail.digest,
        queued=NOON,
        type=mail.type,
        key=mail.key,
        destination="server=a.example:8081",
        not_before=NOON + timedelta(hours=1),
        owner="ALICE123",
        line=2,
        content=b"more",
    )

    def work(view: WriteView) -> None:
        number = view.queue.put(row)
        [found] = view.queue.about(mail.digest)
        assert found == dataclasses.replace(row, number=number)
        assert view.queue.row(number) == found
        assert view.queue.owned("ALICE123", NOON, limit=LIMIT) == (found,)
        assert view.queue.owned("ALICE123", NOON + timedelta(1), limit=LIMIT) == ()
        assert view.queue.owned("ROBERT12", limit=LIMIT) == ()
        assert view.queue.all(QueueKind.PROXY, limit=LIMIT) == (found,)
        assert view.queue.next_due(QueueKind.PROXY) == row.not_before
        assert "more" not in repr(found)

    async def scenario(store: BlockStore) -> None:
        await store.write(work)

    in_store(tmp_path, scenario)


def test_block_and_row_stand_or_fall_together(tmp_path: Path) -> None:
    """Work that fails after it queued leaves neither an entry nor a row nor a count."""

    def work(view: WriteView) -> None:
        put_queued(view, announcement(1))
        raise KeyError("broken")

    async def scenario(store: BlockStore) -> None:
        results = await asyncio.gather(store.write(work), return_exceptions=True)
        assert isinstance(results[0], KeyError)
        assert await store.read(lambda view: view.queue.all(REPLICATE, limit=LIMIT)) == ()
        assert await store.read(lambda view: view.space(queue_space(REPLICATE))) == Count(0, 0)
        assert await store.read(lambda view: view.counts()) == {}

    in_store(tmp_path, scenario)


def test_rows_come_in_their_order_and_page_by_page(tmp_path: Path) -> None:
    """Fresh rows go first; one that was put off comes back at its time, behind them."""

    def work(view: WriteView) -> None:
        numbers = [put_queued(view, announcement(number)) for number in range(5)]
        view.queue.put_off(numbers[1], NOON + timedelta(minutes=5), "failed", NOON)
        assert due_numbers(view) == [numbers[n] for n in (0, 2, 3, 4)]
        assert due_numbers(view, minutes=5) == [numbers[n] for n in (0, 2, 3, 4, 1)]
        later = NOON + timedelta(minutes=5)
        first, place = view.queue.due(REPLICATE, later, limit=3)
        second, _ = view.queue.due(REPLICATE, later, place, limit=3)
        assert [row.number for row in (*first, *second)] == due_numbers(view, minutes=5)
        [again] = [row for row in second if row.number == numbers[1]]
        assert (again.attempts, again.code, again.last) == (1, "failed", NOON)
        view.queue.hasten(numbers[1])
        assert due_numbers(view) == numbers

    async def scenario(store: BlockStore) -> None:
        await store.write(work)

    in_store(tmp_path, scenario)


def test_an_announcement_waits_for_data_that_is_still_to_go(tmp_path: Path) -> None:
    """Data goes before what names it, whichever came first; data that fails holds up nobody."""
    raw = content(1)
    mail = dataclasses.replace(announcement(1), names=(data_key(raw),), holder=b"h" * 20)

    async def scenario(store: BlockStore) -> None:
        data = data_entry(await asyncio.to_thread(spooled, store, raw))

        def work(view: WriteView) -> None:
            named = put_queued(view, mail)
            other = put_queued(view, announcement(2))
            assert due_numbers(view) == [named, other]
            block = put_queued(view, data)
            assert due_numbers(view) == [other, block]
            view.queue.put_off(block, NOON + timedelta(hours=1), "failed", NOON)
            assert due_numbers(view) == [named, other]
            view.queue.finish((block,))
            assert due_numbers(view) == [named, other]

        await store.write(work)

    in_store(tmp_path, scenario)


def test_rows_go_with_the_entry_they_refer_to(tmp_path: Path) -> None:
    """What is displaced, dropped or expired is not told of any more; the count says so."""
    old, new = announcement(1), announcement(1, days=1)

    def work(view: WriteView) -> None:
        first = put_queued(view, old)
        second = put_queued(view, new)
        assert due_numbers(view) == [second]
        assert view.queue.finish((first,)) == 0
        third = put_queued(view, announcement(2))
        assert view.space(queue_space(REPLICATE)) == Count(2, 0)
        view.remove_expired(old.type, NOON + timedelta(hours=1), (0, 0), 10)
        assert due_numbers(view) == [second]
        assert third not in due_numbers(view)
        view.remove_entry(new.type, new.key, new.identity)
        assert view.space(queue_space(REPLICATE)) == Count(0, 0)
        assert view.queue.next_due(REPLICATE) is None

    async def scenario(store: BlockStore) -> None:
        await store.write(work)

    in_store(tmp_path, scenario)


def test_a_number_is_never_given_twice(tmp_path: Path) -> None:
    """Who finishes a row that was replaced meanwhile does not finish the one in its place."""
    row = QueueRow(kind=QueueKind.ACCOUNT, digest=bytes(32), queued=NOON)

    def work(view: WriteView) -> None:
        first = view.queue.put(row)
        second = view.queue.replace(row)
        assert view.queue.finish((first,)) == 0
        assert due_numbers(view, QueueKind.ACCOUNT) == [second]
        assert view.queue.finish((second,)) == 1
        assert view.queue.put(row) > second

    async def scenario(store: BlockStore) -> None:
        await store.write(work)

    in_store(tmp_path, scenario)


def test_a_held_block_stays_until_its_last_row_is_settled(tmp_path: Path) -> None:
    """One copy serves all targets; with the last row it goes, its file and its room too."""
    raw = content(1)

    async def scenario(store: BlockStore) -> None:
        entry = held(data_entry(await asyncio.to_thread(spooled, store, raw)))

        def queue(view: WriteView) -> list[int]:
            numbers = {view.hold(entry) for _ in range(2)}
            assert len(numbers) == 1
            [number] = numbers
            rows = row_for(entry, number, QueueKind.PROXY)
            return [
                view.queue.put(dataclasses.replace(rows, destination=f"server={n}.example:1"))
                for n in "ab"
            ]

        first, second = await store.write(queue)
        assert [path.name for path in files_under(tmp_path)] == [data_key(raw).hex]
        room = await store.read(lambda view: view.space(PROXIED))
        assert room == Count(1, len(raw) + len(entry.header))
        [row, _] = await store.read(lambda view: view.queue.about(entry.digest))
        found = await store.read(lambda view: view.numbered(row.entry or 0))
        assert found is not None
        assert found.data is not None
        with found.data.open() as reader:
            assert reader.read() == raw
        settled = NOON + timedelta(minutes=1)
        await store.write(
            lambda view: view.queue.settle(first, QueueState.REFUSED, "price", settled)
        )
        assert await store.read(lambda view: view.space(PROXIED)) == room
        await store.write(
            lambda view: view.queue.settle(second, QueueState.DELIVERED, "-", settled)
        )
        assert await store.read(lambda view: view.space(PROXIED)) == Count(0, 0)
        await tidied(store)
        assert files_under(tmp_path) == []
        letters = await store.read(lambda view: view.queue.all(QueueKind.PROXY, limit=LIMIT))
        assert [(row.state, row.code, row.destination, row.entry) for row in letters] == [
            (QueueState.REFUSED, "price", "", None),
            (QueueState.DELIVERED, "-", "", None),
        ]
        assert await store.write(lambda view: view.queue.forget_settled(settled, 10)) == 0
        after = settled + timedelta(seconds=1)
        assert await store.write(lambda view: view.queue.forget_settled(after, 10)) == 2

    in_store(tmp_path, scenario)


def test_a_block_that_is_stored_and_held_has_one_file(tmp_path: Path) -> None:
    """Either may go first, and a backup is whole with both."""
    raw = content(1)

    async def scenario(store: BlockStore) -> None:
        stored = await store_data(store, raw)
        entry = held(data_entry(await asyncio.to_thread(spooled, store, raw)))
        number = await store.write(
            lambda view: view.queue.put(row_for(entry, view.hold(entry), QueueKind.PROXY))
        )
        assert len(files_under(tmp_path / "store")) == 1
        assert await store.backup(tmp_path / "backup") == 1
        await store.write(lambda view: view.remove_entry(stored.type, stored.key))
        await tidied(store)
        assert len(files_under(tmp_path / "store")) == 1
        await store.write(lambda view: view.queue.finish((number,)))
        await tidied(store)
        assert files_under(tmp_path / "store") == []

    in_store(tmp_path / "store", scenario)
    assert restore_backup(tmp_path / "backup", tmp_path / "again") == 1


def test_copies_that_wait_are_taken_over_and_counted_so(tmp_path: Path) -> None:
    """What was settled stays a copy; a second time there is nothing left to take."""

    async def scenario(store: BlockStore) -> None:
        def work(view: WriteView) -> list[int]:
            number = view.hold(held(announcement(1)))
            numbers = [
                view.queue.put(row_for(announcement(1), number, QueueKind.MIRRORED))
                for _ in range(3)
            ]
            view.queue.settle(numbers[2], QueueState.DELIVERED, "-", NOON)
            assert (view.queue.take_over(), view.queue.take_over()) == (2, 0)
            return numbers

        first, second, settled = await store.write(work)
        rows = await store.read(
            lambda view: [view.queue.row(each) for each in (first, second, settled)]
        )
        kinds = [row.kind for row in rows if row is not None]
        assert kinds == [QueueKind.PROXY, QueueKind.PROXY, QueueKind.MIRRORED]
        waiting = await store.read(
            lambda view: [
                view.space(queue_space(kind)).entries
                for kind in (QueueKind.PROXY, QueueKind.MIRRORED)
            ]
        )
        assert waiting == [2, 0]

    in_store(tmp_path / "store", scenario)
