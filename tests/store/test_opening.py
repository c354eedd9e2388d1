"""Opening a store: one writer, a known schema, and no remains of a crash."""

import asyncio
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest
from tests.store.samples import (
    announcement,
    content,
    files_under,
    in_store,
    some_key,
    store_data,
    stored_bytes,
)

from sealmail_protocol.keys import data_key
from sealmail_store import (
    BlockStore,
    NewerSchema,
    NotAStore,
    QueueKind,
    QueueRow,
    StoreLocked,
    StoreMissing,
    Tombstone,
    WriteView,
)
from sealmail_store.schema import STEPS, open_writer


async def _nothing(store: BlockStore) -> None:
    pass


def test_a_missing_store_is_made_only_on_demand(tmp_path: Path) -> None:
    """A mistyped directory is an error, not a new and empty store."""
    directory = tmp_path / "a" / "b"
    with pytest.raises(StoreMissing, match=r"b holds no block store"):
        BlockStore.open(directory)
    assert not directory.exists()
    in_store(directory, _nothing)
    assert directory.stat().st_mode & 0o077 == 0
    asyncio.run(BlockStore.open(directory).close())


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    """There is one writer; the second is told which directory is taken."""

    async def scenario(store: BlockStore) -> None:
        with pytest.raises(StoreLocked, match=str(tmp_path)):
            BlockStore.open(tmp_path)

    in_store(tmp_path, scenario)
    in_store(tmp_path, _nothing)


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A store of a later version says so, and can be opened again by that version."""
    in_store(tmp_path, _nothing)
    index = tmp_path / "index.sqlite"
    with closing(apsw.Connection(str(index))) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = index.read_bytes()
    with pytest.raises(
        NewerSchema, match=f"has schema 99, this version knows {len(STEPS)}; upgrade"
    ) as caught:
        BlockStore.open(tmp_path)
    assert (caught.value.found, caught.value.known) == (99, len(STEPS))
    assert index.read_bytes() == before
    with pytest.raises(NewerSchema):
        BlockStore.open(tmp_path)


def test_a_store_of_the_first_schema_gains_a_queue(tmp_path: Path) -> None:
    """What it held is there still, and the old index beside it."""

    async def look(store: BlockStore) -> None:
        assert await store.read(lambda view: view.setting("remembered")) == "yes"
        assert await store.read(lambda view: view.queue.next_due("replicate")) is None

    with closing(open_writer(tmp_path / "index.sqlite", STEPS[:1])) as connection:
        connection.execute("INSERT INTO settings VALUES ('remembered', 'yes')")
    in_store(tmp_path, look)
    assert (tmp_path / "index.sqlite.schema-1").is_file()


def test_a_store_of_the_sixth_schema_keeps_deliveries_and_drops_apart(tmp_path: Path) -> None:
    """Equal tickets become different; a drop is told with the identity that is known of it."""
    day = datetime(2026, 5, 1, tzinfo=UTC)
    key, digest, lone, identity = some_key(1), b"d" * 32, b"l" * 32, b"i" * 32
    delivery = QueueRow(QueueKind.PROXY, digest, day, key=key, owner="A" * 40, line=7)
    drop = QueueRow(QueueKind.TOMBSTONE, digest, day, key=key, content=b"2026-05-13T00:00:00Z")

    async def before(store: BlockStore) -> None:
        def put(view: WriteView) -> None:
            for row in (delivery, delivery, replace(delivery, owner="B" * 40)):
                view.queue.put(replace(row, ticket=f"{'0' * 9}{'9' * 3}0007"))
            view.bury(Tombstone(key, digest, identity, day))
            view.bury(Tombstone(key, lone, b"", day))
            view.queue.put(drop)
            view.queue.put(replace(drop, digest=lone, content=drop.content + b" "))

        await store.write(put)

    async def look(store: BlockStore) -> None:
        rows = await store.read(lambda view: view.queue.all(QueueKind.PROXY, limit=9))
        assert [row.ticket for row in rows] == [
            "0000000009990007",
            "0001000009990007",
            "0000000009990007",
        ]
        drops = await store.read(lambda view: view.queue.all(QueueKind.TOMBSTONE, limit=9))
        assert [row.content.decode() for row in drops] == [
            f"2026-05-13T00:00:00Z {each.hex()}" for each in (identity, lone)
        ]
        _, stones = await store.read(lambda view: view.tombstones(-1, 9))
        assert [stone.identity for stone in stones] == [identity, lone]

    in_store(tmp_path, before)
    with closing(apsw.Connection(str(tmp_path / "index.sqlite"))) as connection:
        connection.execute("PRAGMA user_version = 6")
    in_store(tmp_path, look)
    assert (tmp_path / "index.sqlite.schema-6").is_file()


@pytest.mark.parametrize("foreign", ["text", "database"])
def test_a_foreign_file_is_refused(tmp_path: Path, foreign: str) -> None:
    """A file of somebody else in the place of the index is never written to."""
    index = tmp_path / "index.sqlite"
    if foreign == "text":
        index.write_text("This is not a database, though it is long enough to be one. " * 20)
    else:
        with closing(apsw.Connection(str(index))) as connection:
            connection.execute("CREATE TABLE theirs (a)")
    before = index.read_bytes()
    with pytest.raises(NotAStore, match=r"index\.sqlite is not the index"):
        BlockStore.open(tmp_path, create=True)
    assert index.read_bytes() == before


def test_the_remains_of_a_crash_are_swept(tmp_path: Path) -> None:
    """Torn temporary files and files that no row names go; everything named stays."""
    raw, orphan = content(1), content(2)
    name = data_key(orphan).hex
    orphan_path = tmp_path / "data" / name[:2] / name[2:4] / name

    async def crash() -> None:
        store = BlockStore.open(tmp_path, create=True)
        await store_data(store, raw)
        (tmp_path / "incoming" / "torn").write_bytes(orphan[:50_000])
        orphan_path.parent.mkdir(parents=True, exist_ok=True)
        orphan_path.write_bytes(orphan)
        # The mark of an open store outlives this close, as it would a crash.
        await store.close()
        with closing(apsw.Connection(str(tmp_path / "index.sqlite"))) as connection:
            connection.execute("INSERT INTO settings VALUES ('in-use', 'yes')")

    async def look(store: BlockStore) -> None:
        assert await stored_bytes(store, raw) == raw
        assert [path.name for path in files_under(tmp_path)] == [data_key(raw).hex]

    asyncio.run(crash())
    in_store(tmp_path, look)


def test_the_standard_sqlite3_reads_the_index_of_an_open_store(tmp_path: Path) -> None:
    """Another process with the stdlib module, read-only, sees committed entries at once."""
    mail = announcement(1)
    # In another process: two SQLite libraries in one would drop each other's file locks.
    program = (
        "import sqlite3, sys\n"
        "index = sqlite3.connect(f'file:{sys.argv[1]}?mode=ro', uri=True)\n"
        "print(index.execute('SELECT type, hex(key) FROM entries').fetchall())\n"
    )

    async def scenario(store: BlockStore) -> str:
        await store.write(lambda view: view.put_entry(mail))
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", program, str(tmp_path / "index.sqlite")],
            capture_output=True,
            text=True,
            check=True,
        )
        await store.write(lambda view: view.remove_entry(mail.type, mail.key, mail.identity))
        return str(done.stdout)

    assert in_store(tmp_path, scenario).strip() == str([(mail.type, mail.key.hex)])


def test_a_long_log_is_moved_into_the_index_while_open(tmp_path: Path) -> None:
    """The write-ahead log starts over, however much is written, and nothing is lost."""

    async def scenario(store: BlockStore) -> None:
        for number in range(600):
            await store_data(store, content(number, 60_000))
        assert (tmp_path / "index.sqlite-wal").stat().st_size < 20_000_000
        assert (tmp_path / "index.sqlite").stat().st_size > 10_000_000
        assert await stored_bytes(store, content(7, 60_000)) == content(7, 60_000)

    in_store(tmp_path, scenario)
