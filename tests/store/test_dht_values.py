"""What is kept for the DHT: listed without its bodies, and counted without being read."""

import asyncio
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
from hypothesis import given
from hypothesis import strategies as st

from sealmail_protocol.keys import BlockKey
from sealmail_store import BlockStore, Count, DhtRow, DhtValues
from sealmail_store.schema import STEPS, open_writer

NOW = datetime(2026, 7, 1, tzinfo=UTC)
KEY = BlockKey(bytes(20))


def row(number: int, source: str = "one", size: int = 10) -> DhtRow:
    """Return a value, one of many under a key."""
    return DhtRow(
        key=KEY,
        type="message-announcement",
        identity=bytes((number,)),
        digest=bytes((number,)) * 32,
        date=NOW,
        until=NOW + timedelta(days=10),
        stamp_bits=20,
        revoked=False,
        distance=bytes((number,)) * 20,
        source=source,
        ours=False,
        body=bytes(size),
    )


def opened() -> apsw.Connection:
    """Return an empty index in memory."""
    connection = apsw.Connection(":memory:")
    for script in STEPS:
        connection.execute(script)
    return connection


# Where an address is unknown, it is empty.
SOURCES = ("", "a", "b")
PUTS = st.tuples(st.integers(0, 9), st.sampled_from(SOURCES), st.integers(0, 99))


@given(st.lists(PUTS | st.integers(0, 9), max_size=30))
def test_shares_are_what_a_count_would_say(steps: list[tuple[int, str, int] | int]) -> None:
    """Whatever was put, put in the place of something else, removed or not there."""
    with closing(opened()) as connection:
        values = DhtValues(connection)
        for step in steps:
            if isinstance(step, tuple):
                values.put(row(*step))
            elif (held := values.one(KEY, "message-announcement", bytes((step,)))) is not None:
                values.remove(held.number)
        kept = values.under(KEY, NOW)
        for source in SOURCES:
            theirs = [len(each.body) for each in kept if each.source == source]
            assert values.count(source) == Count(len(theirs), sum(theirs))
        assert values.count() == Count(len(kept), sum(len(each.body) for each in kept))


def test_a_list_goes_on_after_a_digest_and_leaves_large_bodies_out() -> None:
    """What is too old is neither listed nor counted, nor given."""
    with closing(opened()) as connection:
        values = DhtValues(connection)
        for number in range(6):
            values.put(row(number, size=1000 if number % 2 else 10))
        values.put(replace(row(6), until=NOW))
        page = values.listed(KEY, NOW, bytes((1,)) * 32, 3, small=900)
        assert [each.digest[0] for each in page] == [2, 3, 4]
        assert [(each.size, len(each.body)) for each in page] == [(10, 10), (1000, 0), (10, 10)]
        assert values.count_under(KEY, NOW) == len(values.under(KEY, NOW)) == 6
        assert values.value(KEY, bytes((3,)) * 32, NOW) == row(3, size=1000)
        assert values.value(KEY, bytes((6,)) * 32, NOW) is None
        assert [far.distance[0] for far in values.furthest()] == [6, 5, 4, 3, 2, 1, 0]
        assert values.remove_expired(NOW, 9) == 1


def test_neither_a_list_nor_a_count_reads_the_table() -> None:
    """Each is answered by an index, however much is kept."""
    with closing(opened()) as connection:
        for select in (
            "SELECT count(*) FROM dht_values WHERE key = ? AND until > ?",
            "SELECT size FROM dht_values WHERE key = ? AND digest > ? AND until > ?"
            " ORDER BY digest LIMIT 9",
            "SELECT entries, bytes FROM dht_shares WHERE source = ?",
            "SELECT id, size, distance FROM dht_values WHERE ours = 0 ORDER BY distance DESC",
        ):
            steps = connection.execute(f"EXPLAIN QUERY PLAN {select}", [0] * select.count("?"))
            plan = [step[3] for step in steps]
            assert len(plan) == 1
            assert "USING" in plan[0]


def test_what_an_older_store_keeps_is_kept_on(tmp_path: Path) -> None:
    """It is counted, waits for others if it did, and ends with the age of its type."""
    with closing(open_writer(tmp_path / "index.sqlite", STEPS[:4])) as connection:
        connection.execute(
            "INSERT INTO dht_values (key, type, identity, digest, date, stamp_bits, revoked,"
            " distance, source, ours, size, body) VALUES"
            " (?2, 'data', x'', zeroblob(32), ?1, 20, 0, ?2, 'a', 1, 3, x'616263'),"
            " (?2, 'key-announcement', x'', zeroblob(32), ?1, 24, 1, ?2, 'b', 0, 2, x'6162')",
            (int(NOW.timestamp()), KEY.raw),
        )

    async def look() -> tuple[tuple[DhtRow, ...], Count, Count]:
        async with BlockStore.open(tmp_path, create=False) as store:
            return await store.read(
                lambda view: (view.dht.under(KEY, NOW), view.dht.count(), view.dht.count("a"))
            )

    rows, total, one = asyncio.run(look())
    assert (total, one) == (Count(2, 5), Count(1, 3))
    kept = {each.type: (each.until - each.date, each.waits) for each in rows}
    assert kept == {
        "data": (timedelta(days=10), True),
        "key-announcement": (timedelta(days=400), False),
    }
