"""Running sums say at every moment what counting would say."""

import dataclasses
import hashlib
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import apsw
from hypothesis import given
from hypothesis import strategies as st
from tests.store.samples import NOON, announcement, content, in_store, some_key

from sealmail_protocol.keys import BlockKey, data_key
from sealmail_store import (
    LOOSE_DATA,
    BlockData,
    BlockStore,
    StoredEntry,
    WriteView,
    holder_space,
    mailbox_space,
    source_space,
    unpaid_space,
)
from sealmail_store.data_files import DataFiles
from sealmail_store.schema import STEPS as SCHEMA_STEPS

HOLDERS = (b"h" * 20, b"i" * 20)
DATA = [content(number, 100 + number) for number in range(4)]
MAILBOXES = (some_key(1), some_key(2))


def mail(number: int, holder: int, paid: bool, names: set[int]) -> StoredEntry:
    """Return an announcement in the mailbox of a holder that names some of the data."""
    return dataclasses.replace(
        announcement(number, key=MAILBOXES[holder]),
        holder=HOLDERS[holder],
        paid=paid,
        names=tuple(data_key(DATA[name]) for name in sorted(names)),
    )


def data(number: int, source: str) -> StoredEntry:
    """Return the entry of a data block."""
    key = data_key(DATA[number])
    digest = hashlib.sha256(DATA[number]).digest()
    raw = BlockData(key, len(DATA[number]), DATA[number])
    return StoredEntry("data", key, b"", NOON, b"d", digest, 8, data=raw, source=source)


PUT_MAIL = st.builds(
    mail, st.integers(0, 3), st.integers(0, 1), st.booleans(), st.sets(st.integers(0, 3))
)
PUT_DATA = st.builds(data, st.integers(0, 3), st.sampled_from(["s", "t"]))
STEPS = st.lists(st.tuples(st.booleans(), PUT_MAIL | PUT_DATA), max_size=25)


def counted(held: dict[tuple[str, BlockKey, bytes], StoredEntry]) -> dict[str, int]:
    """Count the bytes of each space from scratch."""
    sums: dict[str, int] = {}

    def add(name: str, size: int) -> None:
        sums[name] = sums.get(name, 0) + size

    mails = [entry for entry in held.values() if entry.data is None]
    for entry in mails:
        add(mailbox_space(entry.key), len(entry.header))
        if not entry.paid:
            add(unpaid_space(entry.key), len(entry.header))
    for entry in held.values():
        if entry.data is None:
            continue
        holders = {each.holder for each in mails if each.paid and entry.key in each.names}
        for holder in holders:
            add(holder_space(holder), entry.size)
        if not holders:
            add(LOOSE_DATA, entry.size)
            add(source_space(LOOSE_DATA, entry.source), entry.size)
    return sums


@given(STEPS)
def test_sums_are_what_counting_gives(steps: list[tuple[bool, StoredEntry]]) -> None:
    """Whatever is put, replaced and removed in whatever order, no byte is lost or doubled."""
    held: dict[tuple[str, BlockKey, bytes], StoredEntry] = {}

    with TemporaryDirectory() as place, closing(apsw.Connection(":memory:")) as connection:
        for script in SCHEMA_STEPS:
            connection.execute(script)
        view = WriteView(connection, DataFiles(Path(place)))
        for put, entry in steps:
            where = (entry.type, entry.key, entry.identity)
            if put:
                view.put_entry(entry)
                held[where] = entry
            else:
                assert view.remove_entry(*where) is (held.pop(where, None) is not None)
        rows = connection.execute("SELECT name, bytes FROM spaces")
        assert {row[0]: row[1] for row in rows} == counted(held)
        named = {key for each in held.values() for key in each.names}
        for raw in DATA:
            assert view.is_named(data_key(raw)) is (data_key(raw) in named)


def test_a_slice_of_expiry_is_short_where_much_is_named(tmp_path: Path) -> None:
    """Mail that names thousands of data blocks goes one by one, other mail by the slice."""
    names = tuple(some_key(-number) for number in range(1500))

    async def removed(store: BlockStore, after: tuple[int, int]) -> Any:
        later = NOON + timedelta(days=9)
        return await store.write(
            lambda view: view.remove_expired("message-announcement", later, after, 200)
        )

    async def scenario(store: BlockStore) -> None:
        for number in range(20):
            mail = announcement(number)
            named = names if number < 4 else ()
            mail = dataclasses.replace(mail, holder=b"h" * 20, paid=True, names=named)
            await store.write(partial(WriteView.put_entry, entry=mail))
        gone, place = await removed(store, (0, 0))
        assert gone == 2
        assert (await removed(store, place))[0] == 2
        assert (await removed(store, place))[0] == 16
        assert not await store.read(lambda view: view.is_named(names[0]))

    in_store(tmp_path, scenario)


def test_reading_one_key_does_not_depend_on_how_much_is_stored(tmp_path: Path) -> None:
    """Counted in steps of the database, an entry among ten is as near as one among thousands."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    def look(view: WriteView, number: int) -> int:
        before = steps
        found = announcement(number)
        assert view.entries(found.type, found.key) == (found,)
        assert view.entry(found.type, found.key, found.identity) == found
        assert view.announcement_by_digest(found.key, found.digest) == found
        assert view.types_under(found.key, ("data", found.type)) == (found.type,)
        return steps - before

    def fill(view: WriteView, first: int, last: int) -> None:
        for number in range(first, last):
            view.put_entry(announcement(number))

    async def scenario(store: BlockStore) -> None:
        store._connection.set_progress_handler(count, 1)
        await store.write(lambda view: fill(view, 0, 10))
        few = await store.write(lambda view: look(view, 5))
        await store.write(lambda view: fill(view, 10, 3000))
        many = await store.write(lambda view: look(view, 5))
        assert many <= few + 10

    in_store(tmp_path, scenario)
