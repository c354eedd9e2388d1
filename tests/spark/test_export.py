"""Exports: the same audits, and only what is new the second time."""

import asyncio
from collections import Counter
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession
from tests.spark.conftest import NOW

from sealmail_spark.audits import JOBS, Background
from sealmail_spark.exporting import export
from sealmail_spark.generator.making import make_store
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import write_store
from sealmail_spark.reading import Tables, Wish
from sealmail_store import BlockStore, StoredEntry

EVERYTHING = Wish(signatures=1.0)


def test_an_export_is_audited_as_its_store_and_brought_up_to_date(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Findings are those of the store; a second run writes what is new, a third nothing."""
    made = make_store(tmp_path / "store", 60, faults=1, seed=7, now=NOW, values=5)
    target = tmp_path / "export"
    stores = Tables(spark, [made.directory], EVERYTHING)
    assert export(spark, stores, target) == made.blocks + made.values
    assert {
        path.name.partition("=")[0] for path in (target / "blocks.parquet").glob("*/day=*")
    } == {"day"}
    for job in ("store", "references"):
        results = []
        for tables in (stores, Tables(spark, [target], EVERYTHING)):
            audit = JOBS[job](tables, Background())
            rows = audit.findings.collect()
            results.append(Counter((row["code"], row["key"], row["detail"]) for row in rows))
            audit.release()
        assert results[0]
        assert _codes(results[0]) == _codes(results[1])

    town = Town(Random(9), NOW, 20)  # noqa: S311 - invented mail is no secret
    late = [town.workshop.acknowledgment(town.moment()) for _ in range(3)]
    write_store(made.directory, late[:2], NOW)
    assert export(spark, stores, target) == 2
    assert export(spark, stores, target) == 0
    # The last row goes, and another takes its number.
    remove(made.directory, late[1])
    write_store(made.directory, late[2:], NOW)
    assert export(spark, stores, target) == 1


def remove(directory: Path, entry: StoredEntry) -> None:
    """Remove an entry from a store, as a server does."""

    async def write() -> None:
        async with BlockStore.open(directory) as store:
            await store.write(
                lambda view: view.remove_entry(entry.type, entry.key, entry.identity)
            )

    asyncio.run(write())


def _codes(found: Counter[tuple[str, str, str]]) -> Counter[tuple[str, str]]:
    return Counter((code, key) for code, key, _ in found.elements())
