"""What mail has paid, summed up where it was read: counts, and of each mail what joins it to more.

A stamp that paid twice, and a price, can stand in any other part of a store, so every mail leaves
a narrow row behind by which both are found; all else is summed up here.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.policy import MAX_FUTURE_REPLICATED
from sealmail_spark.batches import MICROSECONDS, arrow_schema
from sealmail_spark.checks import BlockChecks
from sealmail_spark.facts import Facts, StoredRow
from sealmail_spark.schemas import PAYMENTS

TOKENED: Final = "with token"
PRICED: Final = "by price"
_SCHEMA: Final = arrow_schema(PAYMENTS)
_HOUR: Final = 3600
# Clocks differ, and a store looks at its own once an hour. What is later than any server takes is
# for the job ``store`` to tell.
_AHEAD: Final = 2 * _HOUR
_LATEST: Final = int(MAX_FUTURE_REPLICATED.total_seconds())
# Rows of a batch; each is some hundred bytes.
_AT_ONCE: Final = 16_384
# Columns of each kind of row; the others have no value in it.
_MAIL: Final = ("store", "stamp", "key", "date", "holder", "bits")
_KEY: Final = ("store", "holder", "price")
_EARLY: Final = ("store", "key", "date", "code", "detail")
_COUNT: Final = ("store", "kind", "bits", "counted", "mails", "hashes")


class Payments:
    """Gathers the rows of one part of a store until they are enough for a batch."""

    def __init__(self) -> None:
        self._mails: list[tuple[Any, ...]] = []
        self._counts: dict[tuple[str, str, int, bool], list[int]] = {}

    def add(self, rows: Sequence[StoredRow], facts: Sequence[Facts]) -> Iterator[pa.RecordBatch]:
        """Take examined blocks in, and yield the batches that are full."""
        keys: list[tuple[Any, ...]] = []
        early: list[tuple[Any, ...]] = []
        for row, fact in zip(rows, facts, strict=True):
            if fact.announced is not None:
                keys.append((row.store, row.key, fact.announced.price_bits))
            if row.type == BlockType.MESSAGE_ANNOUNCEMENT and fact.bits is not None:
                self._count(row.store, fact, fact.bits)
                date = row.date * MICROSECONDS
                holder = None if fact.tokened else row.holder
                self._mails.append((row.store, fact.stamp, row.key, date, holder, fact.bits))
                ahead = row.date - row.seen
                if _AHEAD < ahead <= _LATEST:
                    detail = f"{ahead // _HOUR} hours ahead"
                    early.append((row.store, row.key, date, "stamped-ahead", detail))
        yield from _batches(_KEY, keys)
        yield from _batches(_EARLY, early)
        if len(self._mails) >= _AT_ONCE:
            yield from self._flush()

    def _count(self, store: str, fact: Facts, bits: int) -> None:
        counted = fact.nonce_height is not None
        kind = store, TOKENED if fact.tokened else PRICED, bits, counted
        sums = self._counts.setdefault(kind, [0, 0])
        sums[0] += 1
        sums[1] += 0 if fact.nonce_height is None else fact.nonce_height + 1

    def _flush(self) -> Iterator[pa.RecordBatch]:
        yield from _batches(_MAIL, self._mails)
        self._mails = []

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield what is left, and the counts."""
        yield from self._flush()
        yield from _batches(_COUNT, [(*kind, *sums) for kind, sums in self._counts.items()])


def payment_batches(
    pages: Iterable[Sequence[StoredRow]], checks: BlockChecks
) -> Iterator[pa.RecordBatch]:
    """Examine pages of keys and announcements; yield batches of PAYMENTS, counts last."""
    payments = Payments()
    for page in pages:
        yield from payments.add(page, checks.examine(page))
    yield from payments.rest()


def _batches(names: Sequence[str], rows: list[tuple[Any, ...]]) -> Iterator[pa.RecordBatch]:
    """Yield rows with values in some columns as one batch, if there are any."""
    if not rows:
        return
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    arrays = [
        pa.array(columns[field.name], type=field.type)
        if field.name in columns
        else pa.nulls(len(rows), field.type)
        for field in _SCHEMA
    ]
    yield pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
