"""A store in use: what comes and goes while an audit reads it accuses nobody."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.spark.conftest import NOW
from tests.spark.test_export import remove

from sealmail_spark.checking import checks_for
from sealmail_spark.generator.faults import LARGE
from sealmail_spark.generator.making import Made
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import write_store
from sealmail_spark.jobs import references
from sealmail_spark.source import SealmailSource, stored_rows
from sealmail_spark.store_files import data_file, find_stores, key_ranges

COLUMNS = ",".join(references.COLUMNS)
# Of a generated store: one of each type.
PARTS = 5
# A generated store last looked at its clock then.
LATER = timedelta(hours=1)


def town(seed: int) -> Town:
    """Return people whose mail arrives late."""
    return Town(Random(seed), NOW, 0)  # noqa: S311 - invented mail is no secret


def test_mail_that_arrives_between_two_partitions_is_no_finding(
    spark: SparkSession, made: dict[str, Made], tmp_path: Path
) -> None:
    """Wherever in the audit it arrives: neither is its data missing, nor its mail."""

    def read(before: int) -> Iterator[pa.RecordBatch]:
        """Read a store in which mail arrives before the partition of this number."""
        directory = tmp_path / f"store-{before}"
        shutil.copytree(made["sound"].directory, directory)
        source = SealmailSource({"path": str(directory), "view": "facts", "columns": COLUMNS})
        reader = source.reader(source.schema())
        parts = list(reader.partitions())
        assert len(parts) == PARTS
        for place, part in enumerate([*parts, None]):
            if place == before:
                late = town(21)
                data = late.workshop.data(NOW + LATER, 900)
                word = late.workshop.announcement(late.people[0], NOW + LATER, [data.key])
                write_store(directory, [data, word], NOW)
            if part is not None:
                yield from reader.read(part)

    batches = [batch for before in range(PARTS + 1) for batch in read(before)]
    facts = spark.createDataFrame(pa.Table.from_batches(batches))
    found = references.reference_findings(facts).collect()
    assert [(row["store"], row["code"], row["key"]) for row in found] == []
    stores = facts.select("store").distinct().collect()
    assert len(stores) == PARTS + 1


def test_data_removed_between_its_row_and_its_bytes_is_not_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A server may expire a block at any moment; only bytes of a row that stays are missing."""
    directory = tmp_path / "store"
    made_by = town(22)
    swept, damaged = (made_by.workshop.data(NOW, LARGE) for _ in range(2))
    write_store(directory, [swept, damaged], NOW)
    (part,) = key_ranges(find_stores(directory), ["data"], 10**6)
    (rows,) = stored_rows(part)
    remove(directory, swept)
    for entry in (swept, damaged):
        data_file(directory, entry.key.raw).unlink(missing_ok=True)
    facts = checks_for({}).examine(rows)
    told = {
        row.key: [one.code for one in each.problems] for row, each in zip(rows, facts, strict=True)
    }
    assert told == {swept.key.raw: [], damaged.key.raw: ["missing-bytes"]}
