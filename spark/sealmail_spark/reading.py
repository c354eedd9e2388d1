"""What an audit reads: live stores, backups and exports, all as the same tables."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sealmail_spark.batches import CHECKED_COLUMNS, arrow_schema, facts_batch, rows_of_batch
from sealmail_spark.checking import HASHED, checks_for
from sealmail_spark.checks import BlockChecks
from sealmail_spark.demands import HELD, SERVER
from sealmail_spark.export_mark import EXPORTED_BLOCKS, is_export, read_mark
from sealmail_spark.facts import StoredRow
from sealmail_spark.payments import payment_batches
from sealmail_spark.schemas import FACTS, PAYMENTS, TALLIES
from sealmail_spark.source import FORMAT
from sealmail_spark.store_files import (
    StoreFolder,
    clock_told,
    counts_by_type,
    find_stores,
    is_moment,
    latest_time_seen,
)
from sealmail_spark.store_index import UnreadableStore, open_index
from sealmail_spark.tallies import tally_batches
from sealmail_spark.versions import as_merged

Batches = Iterable[pa.RecordBatch]
# How much is repeated of what a store says and should not.
_TOLD = 40


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


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with a store as a whole: a code of ``findings`` and the evidence."""

    store: str
    code: str
    detail: str


class Tables:
    """The tables of some stores, or of an export of them.

    ``stores`` are those that can be read; ``troubles`` tells of the others.
    """

    def __init__(self, spark: SparkSession, paths: Sequence[Path], wish: Wish) -> None:
        self.spark = spark
        self.wish = wish
        exports = [path for path in paths if is_export(path)]
        if exports and len(paths) > 1:
            raise UnreadableStore(exports[0], "an export is audited alone, not beside others")
        self._export = exports[0] if exports else None
        self.stores: tuple[StoreFolder, ...] = ()
        self._known: dict[str, int] = {}
        self.troubles: list[Trouble] = []
        for store in () if exports else name_stores(paths):
            self._look_into(store)

    def _look_into(self, store: StoreFolder) -> None:
        """Take a store in, or note why it cannot be read: the others are audited all the same."""
        try:
            with open_index(store.directory) as index:
                told, latest = clock_told(index), latest_time_seen(index)
            for held in HELD:
                counts_by_type(store, held)
        except UnreadableStore as error:
            self.troubles.append(Trouble(store.name, "unreadable-store", error.reason))
            return
        if told is not None and not is_moment(told):
            detail = f"its latest-time-seen is {told[:_TOLD]!r}"
            self.troubles.append(Trouble(store.name, "malformed", detail))
        self.stores += (store,)
        self._known[store.name] = latest

    def names(self) -> tuple[str, ...]:
        """Return the names of the stores."""
        if self._export is not None:
            return tuple(read_mark(self._export))
        return tuple(store.name for store in self.stores)

    def moments(self) -> dict[str, int]:
        """Return the last moment that each store knew of, by its name, or that of the wish."""
        if self._export is not None:
            known = {name: mark.seen for name, mark in read_mark(self._export).items()}
        else:
            known = self._known
        return {name: self.wish.seen or latest for name, latest in known.items()}

    def tallies(self) -> DataFrame:
        """Return examined blocks and values of the DHT, summed up, and their problems."""
        if self._export is None:
            return self._reader((), self.wish, HELD).option("view", "tallies").load()
        tally = _summing(tally_batches, self.wish.options)
        return self._exported((), HELD).select(*CHECKED_COLUMNS).mapInArrow(tally, TALLIES)

    def payments(self, types: Sequence[str]) -> DataFrame:
        """Return what blocks of some types say of payment, summed up; signatures are left out."""
        wish = replace(self.wish, signatures=0.0)
        if self._export is None:
            return self._reader(types, wish).option("view", "payments").load()
        weigh = _summing(payment_batches, wish.options)
        return self._exported(types).select(*CHECKED_COLUMNS).mapInArrow(weigh, PAYMENTS)

    def facts(
        self, columns: Sequence[str], types: Sequence[str] = (), wish: Wish | None = None
    ) -> DataFrame:
        """Return some columns of the facts of all blocks, or of those of some types."""
        wished = wish or self.wish
        if self._export is None:
            reader = self._reader(types, wished).option("view", "facts")
            return reader.option("columns", ",".join(columns)).load()
        blocks = self._exported(types)
        if HASHED.isdisjoint(columns):
            blocks = blocks.withColumn("data", F.lit(None).cast("binary"))
        schema = StructType([FACTS[name] for name in columns])
        examine = _examining(wished.options, schema)
        return blocks.select(*CHECKED_COLUMNS).mapInArrow(examine, schema)

    def blocks(
        self,
        columns: Sequence[str],
        types: Sequence[str] = (),
        after: Mapping[str, int] | None = None,
        held: Sequence[str] = (SERVER,),
    ) -> DataFrame:
        """Return some columns of blocks as they are, without looking into them.

        ``after`` leaves out rows up to a number, by store; an export has none. What is kept for
        the DHT is there only if ``held`` says so.
        """
        if self._export is not None:
            return self._exported(types, held).select(*columns)
        reader = self._reader(types, self.wish, held).option("after", json.dumps(after or {}))
        return reader.option("columns", ",".join(columns)).load()

    def _reader(
        self, types: Sequence[str], wish: Wish, held: Sequence[str] = (SERVER,)
    ) -> DataFrameReader:
        listed = {store.name: str(store.directory) for store in self.stores}
        reader = self.spark.read.format(FORMAT).options(**wish.options)
        reader = reader.option("stores", json.dumps(listed)).option("held", ",".join(held))
        return reader.option("types", ",".join(types))

    def _exported(self, types: Sequence[str], held: Sequence[str] = (SERVER,)) -> DataFrame:
        """Return the blocks of the export, each with the last time its store was seen at.

        The export has every version that there was; a store has one.
        """
        if self._export is None:
            raise ValueError("not an export")
        blocks = as_merged(self.spark.read.parquet(str(self._export / EXPORTED_BLOCKS)))
        seen = F.lit(self.wish.seen)
        for name, latest in self.moments().items():
            seen = F.when(F.col("store") == name, F.lit(latest)).otherwise(seen)
        found = blocks.withColumn("seen", F.timestamp_seconds(seen))
        found = found.where(F.col("held").isin(*held))
        return found.where(F.col("type").isin(*types)) if types else found


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


def _summing(
    batches_of: Callable[[Iterable[list[StoredRow]], BlockChecks], Iterator[pa.RecordBatch]],
    options: dict[str, str],
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def sum_up(batches: Batches) -> Iterator[pa.RecordBatch]:
        return batches_of(map(rows_of_batch, batches), checks_for(options))

    return sum_up


def _examining(
    options: dict[str, str], schema: StructType
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def examine(batches: Batches) -> Iterator[pa.RecordBatch]:
        checks, columns = checks_for(options, schema.names), arrow_schema(schema)
        for batch in batches:
            rows = rows_of_batch(batch)
            yield facts_batch(rows, checks.examine(rows), columns)

    return examine
