"""``spark.read.format("sealmail")``: block stores as tables, read where they lie.

Options, beside ``path`` (a store, a data directory, or a directory of many):

- ``stores``: instead of a path, a JSON object of names and store directories;
- ``columns``: names with commas; only what is named is read, so bodies only when asked for;
- ``types``: block types with commas; the others are not touched;
- ``held``: ``server`` (the server's own blocks, as is the default), ``dht`` (what it keeps for
  the DHT), or both with a comma: a column of the same name tells them apart;
- ``view``: ``blocks`` (the rows as they are), ``facts`` (examined where they are read),
  ``tallies`` or ``payments`` (examined and summed up there);
- ``signatures``: which share of the signatures to verify, 0 to 1; ``certificates``: ``true`` reads
  what keys say of themselves; neither for ``blocks``;
- ``seen``: the present of the audit in seconds since 1970, else what each store last knew;
- ``rows``: about how many rows a partition has;
- ``after``: a JSON object of store names and row numbers: only rows beyond are read.

Every page of about a thousand rows is one state of its store; a store in use may move on between
two of them. What a server only holds for others (type ``proxied``) is read only if ``types`` asks.
"""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from sealmail_spark.batches import (
    CHECKED_COLUMNS,
    MICROSECONDS,
    arrow_schema,
    facts_batch,
    record_batch,
)
from sealmail_spark.bounds import bounded, bounded_row
from sealmail_spark.checking import HASHED, checks_for
from sealmail_spark.demands import HELD, SERVER
from sealmail_spark.facts import StoredRow
from sealmail_spark.payments import payment_batches
from sealmail_spark.schemas import BLOCK_COLUMNS, BLOCKS, FACTS, PAYMENTS, TALLIES
from sealmail_spark.store_files import (
    UNREAD,
    KeyRange,
    StoreFolder,
    data_file,
    find_stores,
    is_kept,
    key_ranges,
    rows_of,
)
from sealmail_spark.tallies import tally_batches

FORMAT: Final = "sealmail"
# Some seconds of work: enough to be worth a task, little enough to share out evenly.
DEFAULT_ROWS: Final = 100_000
# A page of blocks with 64 KiB each stays within some megabytes; what lies in files can be 8 MiB
# a block, so a page of bodies ends by its bytes.
_PAGE_ROWS: Final = 1024
_PAGE_BYTES: Final = 16 * 1024 * 1024
_PLACED: Final = ("type", "key", "identity", "digest", "size")
_MOMENTS: Final = {"seen", "date"}
_FLAGS: Final = {"revoked", "paid"}


class _Part(InputPartition):
    """A range of keys of one store."""

    def __init__(self, range: KeyRange) -> None:
        super().__init__(range)
        self.range = range


class SealmailSource(DataSource):
    """Block stores for Spark; register it with ``spark.dataSource.register``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        columns = _VIEWS[self._view]
        listed = self.options.get("columns")
        if not listed:
            return _pick(columns, BLOCK_COLUMNS) if columns is BLOCKS else columns
        return _pick(columns, [name.strip() for name in listed.split(",")])

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the columns of ``schema``, which may be fewer than offered."""
        return _READERS[self._view](dict(self.options), schema)

    @property
    def _view(self) -> str:
        view = self.options.get("view", "blocks")
        if view not in _VIEWS:
            raise ValueError(f"there is no view {view!r}: {', '.join(_VIEWS)}")
        return str(view)


_VIEWS: Final = {"blocks": BLOCKS, "facts": FACTS, "tallies": TALLIES, "payments": PAYMENTS}


def _pick(columns: StructType, names: Sequence[str]) -> StructType:
    unknown = set(names) - set(columns.names)
    if unknown:
        raise ValueError(f"no such columns: {', '.join(sorted(unknown))}")
    return StructType([columns[name] for name in names])


class _Reader(DataSourceReader):
    """Shares stores out in partitions."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.options = options
        self.schema = schema

    # Whether what is only held to be delivered elsewhere is of interest.
    in_transit = False

    def partitions(self) -> Sequence[InputPartition]:
        """Return ranges of keys that can be read apart."""
        types = self.options.get("types")
        seen = self.options.get("seen")
        ranges = key_ranges(
            _stores_of(self.options),
            [type.strip() for type in types.split(",")] if types else None,
            int(self.options.get("rows", DEFAULT_ROWS)),
            int(seen) if seen is not None else None,
            json.loads(self.options.get("after", "{}")),
            _held(self.options),
            in_transit=self.in_transit,
        )
        return [_Part(each) for each in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield what is in a range; where there is none, Spark asks once for nothing."""
        part: KeyRange | None = getattr(partition, "value", None)
        return iter(()) if part is None else self._batches(part)

    @abstractmethod
    def _batches(self, part: KeyRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range."""


def _stores_of(options: Mapping[str, str]) -> tuple[StoreFolder, ...]:
    listed = options.get("stores")
    if listed is not None:
        return tuple(StoreFolder(name, Path(path)) for name, path in json.loads(listed).items())
    path = options.get("path")
    if path is None:
        raise ValueError("say which store: load(PATH), or the option stores")
    return find_stores(Path(path))


def _held(options: Mapping[str, str]) -> tuple[str, ...]:
    held = tuple(name.strip() for name in options.get("held", SERVER).split(","))
    if not set(held) <= set(HELD):
        raise ValueError(f"held is {' or '.join(HELD)}, or both with a comma")
    return held


class _BlockReader(_Reader):
    """Reads blocks as they are."""

    def _batches(self, part: KeyRange) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a range."""
        names = self.schema.names
        schema = arrow_schema(self.schema)
        # These tell where a large body lies, and whether it still belongs there.
        for rows in rows_of(part, [*names, *_PLACED], _PAGE_ROWS):
            for page in _pages(part, rows, names):
                yield record_batch(list(zip(*page, strict=True)), schema)


def _pages(
    part: KeyRange, rows: list[tuple[Any, ...]], names: Sequence[str]
) -> Iterator[list[list[Any]]]:
    """Complete rows by what is not in the index, in pages of a bearable size."""
    page: list[list[Any]] = []
    held = 0
    for *values, type, key, identity, digest, size in rows:
        row = [_value(part, name, value) for name, value in zip(names, values, strict=True)]
        if "data" in names:
            place, directory = names.index("data"), part.store.directory
            if row[place] is None and size > 0:
                row[place] = _body(data_file(directory, key))
                if row[place] is None and not is_kept(directory, (type, key, identity, digest)):
                    # It was removed between the row and its bytes.
                    continue
            held += len(row[place] or b"")
        page.append(row)
        if held > _PAGE_BYTES:
            yield page
            page, held = [], 0
    if page:
        yield page


def _value(part: KeyRange, name: str, value: Any) -> Any:
    if name == "store":
        return part.store.name
    if name == "held":
        return part.held
    if name == "seen":
        return part.seen * MICROSECONDS
    value = bounded(name, value)
    if name in _MOMENTS:
        return value * MICROSECONDS
    return bool(value) if name in _FLAGS else value


def _body(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        # Missing bytes are for the checks to find.
        return None


class _FactsReader(_Reader):
    """Reads blocks and examines them in one go, so that bodies never leave the worker."""

    def _batches(self, part: KeyRange) -> Iterator[pa.RecordBatch]:
        """Yield the facts of a range."""
        names = self.schema.names
        checks, schema = checks_for(self.options, names), arrow_schema(self.schema)
        for rows in stored_rows(part, bodies=not HASHED.isdisjoint(names)):
            yield facts_batch(rows, checks.examine(rows), schema)


class _TallyReader(_Reader):
    """Reads, examines and sums up."""

    in_transit = True

    def _batches(self, part: KeyRange) -> Iterator[pa.RecordBatch]:
        """Yield the tallies of a range."""
        return tally_batches(stored_rows(part), checks_for(self.options))


class _PaymentReader(_Reader):
    """Reads, examines and sums up what mail has paid."""

    def _batches(self, part: KeyRange) -> Iterator[pa.RecordBatch]:
        """Yield the payments of a range."""
        return payment_batches(stored_rows(part), checks_for(self.options))


_READERS: Final[dict[str, Callable[[Mapping[str, str], StructType], _Reader]]] = {
    "blocks": _BlockReader,
    "facts": _FactsReader,
    "tallies": _TallyReader,
    "payments": _PaymentReader,
}

_PLACES: Final = {name: CHECKED_COLUMNS.index(name) for name in CHECKED_COLUMNS}


def stored_rows(part: KeyRange, *, bodies: bool = True) -> Iterator[list[StoredRow]]:
    """Yield the rows of a range in pages, large bodies as the paths of their files."""
    directory = part.store.directory
    key_at, size_at, data_at = (_PLACES[name] for name in ("key", "size", "data"))
    store, seen, held_at = part.store.name, part.seen, _PLACES["held"]
    asked = list(CHECKED_COLUMNS)
    if not bodies:
        asked[data_at] = UNREAD
    for rows in rows_of(part, asked, _PAGE_ROWS):
        found = []
        for row in rows:
            values = list(row)
            values[0], values[1], values[held_at] = store, seen, part.held
            if bodies and values[data_at] is None and values[size_at] > 0:
                values[data_at] = data_file(directory, values[key_at])
            found.append(bounded_row(StoredRow(*values)))
        yield found
