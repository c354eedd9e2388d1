"""The format ``sealmail``: what is read, how much of it, and beside whom."""

import asyncio
import shutil
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

import apsw
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.spark.conftest import NOW

from sealmail_protocol.keys import BlockKey
from sealmail_spark.generator.making import Made, make_store
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import write_store
from sealmail_spark.schemas import BLOCK_COLUMNS, BLOCKS
from sealmail_spark.store_files import find_stores, key_ranges, rows_of
from sealmail_spark.store_index import UnreadableStore, open_index
from sealmail_store import BlockData, BlockStore, ReadView, StoredEntry


def test_bodies_are_read_only_when_they_are_asked_for(spark: SparkSession, stores: Path) -> None:
    """Without naming columns there are no bodies; what is named comes in that order."""
    read = spark.read.format("sealmail")
    assert read.load(str(stores)).schema == StructType([BLOCKS[name] for name in BLOCK_COLUMNS])
    asked = read.option("columns", "key,data,size").option("types", "data")
    bodies = asked.load(str(stores / "sound"))
    assert bodies.columns == ["key", "data", "size"]
    assert bodies.where("sha1(data) != lower(hex(key)) OR length(data) != size").count() == 0


def test_what_is_not_asked_for_is_not_read(
    spark: SparkSession, made: dict[str, Made], tmp_path: Path
) -> None:
    """Without ``data`` among the columns nobody sees that the files of data are gone."""
    directory = tmp_path / "store"
    shutil.copytree(made["sound"].directory, directory)
    town = Town(Random(13), NOW, 0)  # noqa: S311 - invented mail is no secret
    # Smaller data lies in the index.
    write_store(directory, [town.workshop.data(NOW, 300_000)], NOW)
    reader = spark.read.format("sealmail").option("types", "data")
    whole = Counter(_sizes(reader.load(str(directory))))
    files = [path for path in (directory / "data").rglob("*") if path.is_file()]
    for path in files:
        path.unlink()
    assert Counter(_sizes(reader.load(str(directory)))) == whole
    bodies = reader.option("columns", "data,size").load(str(directory))
    assert bodies.where("data IS NULL").count() == len(files) > 0


def _sizes(blocks: DataFrame) -> list[tuple[str, int]]:
    return [(row["key"].hex(), row["size"]) for row in blocks.collect()]


def test_the_rows_are_those_of_the_store(spark: SparkSession, made: dict[str, Made]) -> None:
    """Every column says what the store's own reader says, partition by partition."""
    directory = made["sound"].directory
    names = ",".join(name for name in BLOCKS.names if name != "certificate")
    reader = spark.read.format("sealmail").option("columns", names).option("rows", "50")
    rows = reader.load(str(directory)).collect()
    assert len(rows) == made["sound"].blocks

    async def compare() -> None:
        async with BlockStore.open(directory) as store:
            for row in rows:
                key, identity = BlockKey(row["key"]), bytes(row["identity"])
                entry = await store.read(partial(_entry, row["type"], key, identity))
                assert entry is not None
                assert (bytes(row["header"]), bytes(row["digest"])) == (entry.header, entry.digest)
                assert (row["size"], row["stamp_bits"]) == (entry.size, entry.stamp_bits)
                assert (row["paid"], row["revoked"]) == (entry.paid, entry.revoked)
                assert (row["data"] or b"") == _bytes(entry.data)

    asyncio.run(compare())


def test_values_of_the_dht_are_told_by_a_column_and_only_if_asked_for(
    spark: SparkSession, made: dict[str, Made]
) -> None:
    """Beside the server's own blocks, taken apart as these are; joined again, they are whole."""
    directory = made["sound"].directory
    names = "held,type,key,size,header,data,certificate"
    read = spark.read.format("sealmail").option("columns", names)
    own = read.load(str(directory))
    assert [row["held"] for row in own.select("held").distinct().collect()] == ["server"]
    rows = read.option("held", "dht").option("rows", "4").load(str(directory)).collect()
    assert len(rows) == made["sound"].values > 0
    both = read.option("held", "server, dht").load(str(directory))
    assert both.count() == made["sound"].blocks + made["sound"].values
    whole = {
        bytes(row["header"])
        + bytes(row["data"] or b"")
        + (b"NextClaim\r\n" + row["certificate"] if row["certificate"] else b"")
        for row in rows
    }
    assert {len(row["data"]) for row in rows if row["type"] == "data"} == {900}

    async def kept() -> set[bytes]:
        async with BlockStore.open(directory) as store:
            return await store.read(_bodies)

    assert whole == asyncio.run(kept())
    with pytest.raises(Exception, match="held is server or dht"):
        read.option("held", "elsewhere").load(str(directory)).count()


# Faulty values are kept too old.
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def _bodies(view: ReadView) -> set[bytes]:
    values, keys = view.dht, view.dht.keys(limit=1000)
    return {row.body for key in keys for row in values.under(key, _LONG_AGO)}


def _entry(kind: str, key: BlockKey, identity: bytes, view: ReadView) -> StoredEntry | None:
    return view.entry(kind, key, identity)


def _bytes(data: BlockData | None) -> bytes:
    if data is None:
        return b""
    with data.open() as reader:
        return reader.read()


def test_a_store_in_use_is_read_beside_its_writer(
    spark: SparkSession, made: dict[str, Made]
) -> None:
    """Neither holds up the other: all blocks are read while the writer commits and checkpoints."""
    directory = made["sound"].directory
    frame = spark.read.format("sealmail").option("rows", "50").load(str(directory))

    async def write(store: BlockStore, reading: "asyncio.Task[int]") -> int:
        commits = 0
        while not reading.done():
            commits += 1
            text = f"{commits} " * 1000
            await store.write(lambda view: view.put_setting("busy", text))  # noqa: B023 - awaited
        return commits

    async def read() -> tuple[int, int]:
        async with BlockStore.open(directory) as store:
            reading = asyncio.create_task(asyncio.to_thread(frame.count))
            commits = await write(store, reading)
            return await reading, commits

    count, commits = asyncio.run(read())
    assert count == made["sound"].blocks
    assert commits > 1


def test_nothing_appears_beside_a_store_at_rest(
    spark: SparkSession, made: dict[str, Made], tmp_path: Path
) -> None:
    """It may even be one that cannot be written, as a backup on a medium of its own."""
    directory = tmp_path / "store"
    shutil.copytree(made["sound"].directory, directory)
    before = _listing(directory)
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        frame = spark.read.format("sealmail").option("held", "server,dht").load(str(directory))
        assert frame.count() == made["sound"].blocks + made["sound"].values
    finally:
        for path in (directory, *directory.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
    assert _listing(directory) == before


def _listing(directory: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_pages_follow_each_other_while_rows_come_and_go(
    made: dict[str, Made], tmp_path: Path
) -> None:
    """A server that starts, writes and stops between two pages costs no row, and no page twice."""
    directory = tmp_path / "store"
    shutil.copytree(made["sound"].directory, directory)
    (part,) = key_ranges(find_stores(directory), ["data"], 10**6)
    pages = rows_of(part, ["key"], 10)
    seen = [next(pages)]
    town = Town(Random(11), NOW, 0)  # noqa: S311 - invented mail is no secret
    late = [town.workshop.data(NOW, 900) for _ in range(40)]
    write_store(directory, late, NOW)
    seen += list(pages)
    keys = [key for page in seen for (key,) in page]
    assert keys == sorted(set(keys))
    beyond = [entry.key.raw for entry in late if entry.key.raw > seen[0][-1][0]]
    stored = {key for page in rows_of(part, ["key"], 1000) for (key,) in page}
    assert set(keys) == stored - {e.key.raw for e in late} | set(beyond)


def test_key_ranges_cover_every_key_once(made: dict[str, Made]) -> None:
    """However small the ranges, no row is read twice or not at all."""
    store = find_stores(made["seeded"].directory)
    ranges = key_ranges(store, None, 7)
    by_type: dict[str, list[tuple[bytes | None, bytes | None]]] = {}
    for each in ranges:
        by_type.setdefault(each.type, []).append((each.first, each.end))
    for bounds in by_type.values():
        assert bounds[0][0] is None
        assert bounds[-1][1] is None
        assert all(end == first for (_, end), (first, _) in pairwise(bounds))


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    """A wrong path is told as such, and so is a file of another program."""
    with pytest.raises(UnreadableStore, match="no store here"):
        find_stores(tmp_path)
    (tmp_path / "index.sqlite").write_bytes(b"something else entirely, of a hundred bytes" * 30)
    with pytest.raises(UnreadableStore, match="not a database"):
        open_index(tmp_path)


def test_no_two_stores_have_one_name(made: dict[str, Made], tmp_path: Path) -> None:
    """The last step ``store`` is left out of a name only where it can be."""
    for way in ("n/x", "n/store/x", "m/store"):
        shutil.copytree(made["sound"].directory, tmp_path / way)
    assert {store.name for store in find_stores(tmp_path)} == {"n/x", "n/store/x", "m"}


def test_a_later_schema_is_read_while_it_has_the_columns(
    tmp_path: Path,
) -> None:
    """Further tables and a higher number do no harm; a missing column is told by name."""
    directory = make_store(tmp_path / "later", 20, now=NOW).directory
    with closing(apsw.Connection(str(directory / "index.sqlite"))) as connection:
        connection.execute("CREATE TABLE of_a_later_day (x); PRAGMA user_version = 99")
        open_index(directory).close()
        connection.execute("ALTER TABLE entries RENAME COLUMN source TO origin")
    with pytest.raises(UnreadableStore, match="lack source"):
        open_index(directory)
