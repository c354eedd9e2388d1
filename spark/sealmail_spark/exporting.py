"""An export: the blocks of stores as Parquet, by type and day, brought up to date by what is new.

It is an archive: what a store has removed since stays in it. Row numbers only grow while the last
row that was read is still there; if it is gone, the store is read from its beginning. What is in
the export already is left out in any case.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sealmail_spark.demands import HELD
from sealmail_spark.export_mark import EXPORTED_BLOCKS, Reached, read_mark, write_mark
from sealmail_spark.reading import Tables
from sealmail_spark.schemas import BLOCKS
from sealmail_spark.store_files import StoreFolder, latest_time_seen
from sealmail_spark.store_index import open_index

_SAME_BLOCK: Final = ["store", "held", "type", "key", "identity", "digest"]


def export(spark: SparkSession, tables: Tables, target: Path) -> int:
    """Write what is new in the stores of ``tables`` to ``target``; return how many blocks."""
    before = read_mark(target)
    reached = {store.name: _reach(store) for store in tables.stores}
    parquet = target / EXPORTED_BLOCKS
    known = spark.read.parquet(str(parquet)) if parquet.is_dir() else None
    count = known.count() if known is not None else 0
    after = _rows_known(tables.stores, before)
    blocks = tables.blocks(BLOCKS.names, after=after, held=HELD)
    new = newer(blocks, known).withColumn("day", F.date_format("date", "yyyy-MM-dd"))
    target.mkdir(parents=True, exist_ok=True)
    new.write.mode("append").partitionBy("type", "day").parquet(str(parquet))
    write_mark(target, before | reached)
    return spark.read.parquet(str(parquet)).count() - count


def newer(blocks: DataFrame, known: DataFrame | None) -> DataFrame:
    """Return the blocks that are not known yet."""
    if known is None:
        return blocks
    return blocks.join(known.select(_SAME_BLOCK), _SAME_BLOCK, "left_anti").select(blocks.columns)


def _rows_known(stores: Sequence[StoreFolder], before: dict[str, Reached]) -> dict[str, int]:
    """Return the last row that was read of each store, where it still says so much."""
    return {
        store.name: before[store.name].row
        for store in stores
        if store.name in before and _still_there(store, before[store.name])
    }


def _reach(store: StoreFolder) -> Reached:
    with open_index(store.directory) as index:
        last = index.ask("SELECT id, digest FROM entries ORDER BY id DESC LIMIT 1")
        row, digest = last[0] if last else (0, b"")
        return Reached(row, digest.hex(), latest_time_seen(index))


def _still_there(store: StoreFolder, reached: Reached) -> bool:
    with open_index(store.directory) as index:
        found = index.ask("SELECT digest FROM entries WHERE id = ?", (reached.row,))
        return any(digest.hex() == reached.digest for (digest,) in found)
