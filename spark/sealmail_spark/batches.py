"""Rows to Arrow batches and back."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from sealmail_spark.bounds import bounded_row
from sealmail_spark.facts import Facts, StoredRow

MICROSECONDS: Final = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# What facts take over from the row, by name.
_OF_ROW: Final = (
    *("store", "type", "key", "identity", "size", "stamp_bits", "digest", "holder", "held"),
)
_OF_FACTS: Final = (
    *("bits", "nonces", "nonce_height", "stamp", "tokened", "named", "address", "signature"),
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow form of a Spark schema, times in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


# What examining a block needs of it.
CHECKED_COLUMNS: Final = (
    *("store", "seen", "type", "key", "identity", "date", "size", "stamp_bits", "digest"),
    *("revoked", "holder", "paid", "header", "data", "certificate", "held"),
)


def record_batch(columns: Sequence[Iterable[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Return columns of values as one batch."""
    arrays = [
        pa.array(values, type=field.type) for values, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def facts_batch(
    rows: Sequence[StoredRow], facts: Sequence[Facts], schema: pa.Schema
) -> pa.RecordBatch:
    """Return what was found as a batch of some columns of FACTS."""
    return record_batch([_column(name, rows, facts) for name in schema.names], schema)


def _column(name: str, rows: Sequence[StoredRow], facts: Sequence[Facts]) -> list[Any]:
    if name in _OF_ROW:
        return [getattr(row, name) for row in rows]
    if name in _OF_FACTS:
        return [getattr(fact, name) for fact in facts]
    return _MADE[name](rows, facts)


_MADE: Final[dict[str, Callable[[Sequence[StoredRow], Sequence[Facts]], list[Any]]]] = {
    "seen": lambda rows, _: [row.seen * MICROSECONDS for row in rows],
    "date": lambda rows, _: [row.date * MICROSECONDS for row in rows],
    "header_size": lambda rows, _: [len(row.header) for row in rows],
    # SQLite has no truth values, only numbers.
    "revoked": lambda rows, _: [bool(row.revoked) for row in rows],
    "paid": lambda rows, _: [bool(row.paid) for row in rows],
    "problems": lambda _, facts: [[each._asdict() for each in fact.problems] for fact in facts],
    "announced": lambda _, facts: [
        None if fact.announced is None else asdict(fact.announced) for fact in facts
    ],
}


def rows_of_batch(batch: pa.RecordBatch) -> list[StoredRow]:
    """Return the blocks in a batch of ``CHECKED_COLUMNS``, as an export holds them."""
    columns = [batch.column(name).to_pylist() for name in CHECKED_COLUMNS]
    for place in (CHECKED_COLUMNS.index("seen"), CHECKED_COLUMNS.index("date")):
        columns[place] = [_seconds(moment) for moment in columns[place]]
    return [bounded_row(StoredRow(*values)) for values in zip(*columns, strict=True)]


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=1)
