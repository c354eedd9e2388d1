"""Summing up examined blocks where they were examined, so that little has to travel."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa

from sealmail_spark.batches import MICROSECONDS, arrow_schema, record_batch
from sealmail_spark.checks import BlockChecks
from sealmail_spark.demands import DHT
from sealmail_spark.facts import Facts, StoredRow
from sealmail_spark.schemas import TALLIES

_SCHEMA: Final = arrow_schema(TALLIES)
_DAY: Final = 86_400
_AT_ONCE: Final = 4096

# store, held, type, bits, day, power, signature
_Kind = tuple[str, str, str, int | None, int, int, str | None]


class Tally:
    """Counts blocks that are alike: of one store, type, level, age and size."""

    def __init__(self) -> None:
        self._counts: dict[_Kind, list[int]] = {}

    def add(self, rows: Sequence[StoredRow], facts: Sequence[Facts]) -> None:
        """Count examined blocks in."""
        counts = self._counts
        for row, fact in zip(rows, facts, strict=True):
            kind = (
                row.store,
                row.held,
                row.type,
                fact.bits,
                (row.seen - row.date) // _DAY,
                max(row.size - 1, 0).bit_length(),
                fact.signature,
            )
            held = counts.get(kind)
            size = row.size + len(row.header)
            if held is None:
                counts[kind] = [1, size]
            else:
                held[0] += 1
                held[1] += size

    def rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield the counts as rows of TALLIES."""
        for kind, (blocks, size) in self._counts.items():
            yield (*kind, blocks, size, None, None, None, None)


def problem_rows(rows: Sequence[StoredRow], facts: Sequence[Facts]) -> Iterator[tuple[Any, ...]]:
    """Yield a row of TALLIES for each problem."""
    for row, fact in zip(rows, facts, strict=True):
        for code, detail in fact.problems:
            date = row.date * MICROSECONDS
            told = f"in the DHT: {detail}" if row.held == DHT else detail
            yield (row.store, row.held, row.type, *[None] * 4, 0, 0, row.key, date, code, told)


def tally_batches(
    pages: Iterable[Sequence[StoredRow]], checks: BlockChecks
) -> Iterator[pa.RecordBatch]:
    """Examine pages of blocks; yield batches of TALLIES, counts last."""
    tally = Tally()
    for page in pages:
        facts = checks.examine(page)
        tally.add(page, facts)
        problems = list(problem_rows(page, facts))
        if problems:
            yield _batch(problems)
    counts = list(tally.rows())
    for start in range(0, len(counts), _AT_ONCE):
        yield _batch(counts[start : start + _AT_ONCE])


def _batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    return record_batch(list(zip(*rows, strict=True)), _SCHEMA)
