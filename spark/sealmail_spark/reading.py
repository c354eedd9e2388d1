"""What an audit reads: live stores, backups and exports, all as the same tables."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sealmail_spark.batches import CHECKED_COLUMNS, arrow_schema, facts_batch, rows_of_batch
from sealmail_spark.checking import checks_for
from sealmail_spark.schemas import FACTS, TALLIES
from sealmail_spark.source import FORMAT
from sealmail_spark.store_files import StoreFolder, UnreadableStore, find_stores
from sealmail_spark.tallies import tally_batches

# Written into an export, so that it can be told from other directories.
EXPORT_MARK: Final = "sealmail-export.json"

Batches = Iterable[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Wish:
    """How thoroughly to look: the share of signatures to verify, and whether to read keys."""

    signatures: float = 0.0
    certificates: bool = False
    seen: int | None = None
    rows: int | None = None

    @property
    def options(self) -> dict[str, str]:
        """Return the options of the data source that say so."""
        told: dict[str, str | None] = {
            "signatures": str(self.signatures),
            "certificates": str(self.certificates).lower(),
            "seen": None if self.seen is None else str(self.seen),
            "rows": None if self.rows is None else str(self.rows),
        }
        return {name: value for name, value in told.items() if value is not None}


class Tables:
    """The tables of some stores, or of an export of them."""

    def __init__(self, spark: SparkSession, paths: Sequence[Path], wish: Wish) -> None:
        self._spark = spark
        self._wish = wish
        exports = [path for path in paths if (path / EXPORT_MARK).is_file()]
        if exports and len(paths) > 1:
            raise UnreadableStore(exports[0], "an export is audited alone, not beside others")
        self._export = exports[0] if exports else None
        self.stores = () if exports else name_stores(paths)

    def tallies(self, wish: Wish | None = None) -> DataFrame:
        """Return examined blocks, summed up, and their problems."""
        return self._examined("tallies", TALLIES, _tallied, (), wish)

    def facts(
        self, columns: Sequence[str], types: Sequence[str] = (), wish: Wish | None = None
    ) -> DataFrame:
        """Return some columns of the facts of all blocks, or of those of some types."""
        schema = StructType([FACTS[name] for name in columns])
        return self._examined("facts", schema, _facts_of(schema), types, wish)

    def blocks(self, columns: Sequence[str], types: Sequence[str] = ()) -> DataFrame:
        """Return some columns of blocks as they are, without looking into them."""
        if self._export is not None:
            return self._exported(types).select(*columns)
        return self._reader(types, self._wish).option("columns", ",".join(columns)).load()

    def _examined(
        self,
        view: str,
        schema: StructType,
        examine: Callable[[dict[str, str]], Callable[[Batches], Iterator[pa.RecordBatch]]],
        types: Sequence[str],
        wish: Wish | None,
    ) -> DataFrame:
        wished = wish or self._wish
        if self._export is None:
            columns = ",".join(schema.names) if view == "facts" else ""
            reader = self._reader(types, wished).option("view", view)
            return reader.option("columns", columns).load()
        blocks = self._exported(types)
        if wished.seen is not None:
            blocks = blocks.withColumn("seen", F.timestamp_seconds(F.lit(wished.seen)))
        return blocks.select(*CHECKED_COLUMNS).mapInArrow(examine(wished.options), schema)

    def _reader(self, types: Sequence[str], wish: Wish) -> DataFrameReader:
        listed = {store.name: str(store.directory) for store in self.stores}
        reader = self._spark.read.format(FORMAT).options(**wish.options)
        return reader.option("stores", json.dumps(listed)).option("types", ",".join(types))

    def _exported(self, types: Sequence[str]) -> DataFrame:
        exported = self._spark.read.parquet(str(self._export))
        return exported.where(F.col("type").isin(*types)) if types else exported


def name_stores(paths: Sequence[Path]) -> tuple[StoreFolder, ...]:
    """Find the stores below all paths; those of one name are told apart by their paths."""
    found = [(path, store) for path in paths for store in find_stores(path)]
    names = [store.name for _, store in found]
    return tuple(
        store
        if names.count(store.name) == 1
        else StoreFolder(str(store.directory), store.directory)
        for _, store in found
    )


def _tallied(options: dict[str, str]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def tally(batches: Batches) -> Iterator[pa.RecordBatch]:
        return tally_batches(map(rows_of_batch, batches), checks_for(options))

    return tally


def _facts_of(
    schema: StructType,
) -> Callable[[dict[str, str]], Callable[[Batches], Iterator[pa.RecordBatch]]]:
    def with_options(options: dict[str, str]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
        def examine(batches: Batches) -> Iterator[pa.RecordBatch]:
            checks, columns = checks_for(options), arrow_schema(schema)
            for batch in batches:
                rows = rows_of_batch(batch)
                yield facts_batch(rows, checks.examine(rows), columns)

        return examine

    return with_options
