"""A backup is taken while the store is in use, and becomes a store again elsewhere."""

import asyncio
import itertools
from contextlib import closing
from functools import partial
from pathlib import Path

import apsw
import pytest
from tests.store.samples import (
    all_entries,
    announcement,
    beside,
    content,
    in_store,
    put,
    store_data,
    stored_bytes,
)

from sealmail_protocol.keys import data_key
from sealmail_store import (
    BadBackup,
    BlockStore,
    NotEmpty,
    ReadView,
    StoreMissing,
    WriteView,
    restore_backup,
)
from sealmail_store.schema import STEPS, open_writer


def data_file(directory: Path, raw: bytes) -> Path:
    """Return where a store keeps large data."""
    name = data_key(raw).hex
    return directory / "data" / name[:2] / name[2:4] / name


def test_a_backup_under_load_restores_to_all_that_was_answered_before_it(tmp_path: Path) -> None:
    """Writers and removers go on meanwhile; every restored entry is whole."""
    answered: list[int] = []
    busy = asyncio.Event()

    async def write_on(store: BlockStore, numbers: "itertools.count[int]") -> None:
        for number in numbers:
            if number % 3:
                await put(store, announcement(number))
            else:
                await store_data(store, content(number))
            answered.append(number)
            if len(answered) == 200:
                busy.set()
            if number % 30 == 0 and number > 300:
                key = data_key(content(number - 300))
                await store.write(partial(WriteView.remove_entry, type="data", key=key))

    async def load(store: BlockStore) -> list[int]:
        writers = [
            asyncio.create_task(write_on(store, itertools.count(start * 100_000 + 3)))
            for start in range(4)
        ]
        await busy.wait()
        before = list(answered)
        await store.backup(tmp_path / "backup")
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        return before

    before = in_store(tmp_path / "store", load)
    restore_backup(tmp_path / "backup", tmp_path / "again")

    async def look(store: BlockStore) -> None:
        for number in before:
            if number % 3:
                mail = announcement(number)
                assert await beside(store, mail) == (mail,)
            elif number % 30:
                assert await stored_bytes(store, content(number)) == content(number)
        for entry in await store.read(lambda view: all_entries(view, "data")):
            assert entry.data is not None
            with entry.data.open() as reader:
                assert data_key(reader.read()) == entry.key

    in_store(tmp_path / "again", look)


def test_a_backup_outlives_what_the_store_removes_later(tmp_path: Path) -> None:
    """Files are shared by hard links, so removing one here leaves it there."""
    raw = content(1)

    async def scenario(store: BlockStore) -> None:
        await store_data(store, raw)
        assert await store.backup(tmp_path / "backup") == 1
        await store.write(lambda view: view.remove_entry("data", data_key(raw)))

    in_store(tmp_path / "store", scenario)
    assert not data_file(tmp_path / "store", raw).exists()
    assert data_file(tmp_path / "backup", raw).read_bytes() == raw
    assert restore_backup(tmp_path / "backup", tmp_path / "again") == 1
    # A restored store shares nothing with its backup.
    data_file(tmp_path / "again", raw).write_bytes(b"gone")
    assert data_file(tmp_path / "backup", raw).read_bytes() == raw


def test_nothing_is_overwritten_and_no_damage_restored(tmp_path: Path) -> None:
    """Backup and restore want a new directory, and a damaged backup is refused whole."""
    raw = content(2)

    async def scenario(store: BlockStore) -> None:
        await store_data(store, raw)
        (tmp_path / "mine").mkdir()
        (tmp_path / "mine" / "letter").write_text("keep me")
        with pytest.raises(NotEmpty):
            await store.backup(tmp_path / "mine")
        await store.backup(tmp_path / "backup")

    in_store(tmp_path / "store", scenario)
    with pytest.raises(NotEmpty):
        restore_backup(tmp_path / "backup", tmp_path / "mine")
    with pytest.raises(StoreMissing):
        restore_backup(tmp_path / "mine", tmp_path / "again")
    place = data_file(tmp_path / "backup", raw)
    place.unlink()
    place.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with pytest.raises(BadBackup, match="is damaged"):
        restore_backup(tmp_path / "backup", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_backup_with_a_program_in_its_index_is_refused(tmp_path: Path) -> None:
    """A trigger that somebody put into a copy would run inside our writer."""

    async def scenario(store: BlockStore) -> None:
        await store.backup(tmp_path / "backup")

    in_store(tmp_path / "store", scenario)
    with closing(apsw.Connection(str(tmp_path / "backup" / "index.sqlite"))) as index:
        index.execute(
            "CREATE TRIGGER evil AFTER INSERT ON verdicts BEGIN DELETE FROM entries; END"
        )
    with pytest.raises(BadBackup, match="triggers"):
        restore_backup(tmp_path / "backup", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_an_older_schema_is_copied_before_it_is_brought_up(tmp_path: Path) -> None:
    """The copy holds the old schema with its rows; the index has the new one, rows included."""
    mail = announcement(1)

    async def fill(store: BlockStore) -> None:
        await put(store, mail)

    in_store(tmp_path, fill)
    index = tmp_path / "index.sqlite"
    copy = tmp_path / f"index.sqlite.schema-{len(STEPS)}"
    steps = (*STEPS, "ALTER TABLE entries ADD COLUMN flavour TEXT NOT NULL DEFAULT 'plain'")
    with closing(open_writer(index, steps)) as connection:
        assert connection.pragma("user_version") == len(STEPS) + 1
        assert connection.execute("SELECT flavour FROM entries").get == "plain"
    with closing(apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)) as old:
        assert old.pragma("user_version") == len(STEPS)
        assert old.execute("SELECT digest FROM entries").get == mail.digest
    with closing(open_writer(index, steps)):
        pass
    assert sorted(path.name for path in tmp_path.glob("index.sqlite.schema-*")) == [copy.name]


def test_a_migration_that_fails_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    """All steps are one transaction: the old program still opens the store."""

    async def fill(store: BlockStore) -> None:
        await put(store, announcement(1))

    in_store(tmp_path, fill)
    steps = (*STEPS, "CREATE TABLE half (a); CREATE TABLE entries (b)")
    with pytest.raises(apsw.SQLError):
        open_writer(tmp_path / "index.sqlite", steps)

    async def look(store: BlockStore) -> None:
        assert await beside(store, announcement(1)) == (announcement(1),)

    in_store(tmp_path, look)


def _fail(view: ReadView) -> None:
    raise KeyError("missing")


def test_the_reads_of_one_turn_share_a_trip(tmp_path: Path) -> None:
    """Fifty questions asked at once take one trip, and one that fails is alone in that."""

    async def scenario(store: BlockStore) -> None:
        await put(store, announcement(1))
        before = store.reads
        answers = await asyncio.gather(
            *(store.read(lambda view: view.counts()) for _ in range(49)),
            store.read(_fail),
            return_exceptions=True,
        )
        assert store.reads == before + 1
        assert isinstance(answers[-1], KeyError)
        assert len({str(answer) for answer in answers[:-1]}) == 1

    in_store(tmp_path, scenario)
