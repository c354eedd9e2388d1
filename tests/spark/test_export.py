"""Exports: the same audits, and only what is new the second time."""

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import Row, SparkSession
from tests.spark.conftest import MARKET, NOW

from sealmail_pow import Difficulty
from sealmail_protocol.keys import AckHash
from sealmail_spark.audits import JOBS, Audit, Background
from sealmail_spark.exporting import export
from sealmail_spark.generator.making import make_store
from sealmail_spark.generator.town import Town
from sealmail_spark.generator.writing import write_store
from sealmail_spark.reading import Tables, Wish
from sealmail_store import BlockStore, StoredEntry

EVERYTHING = Wish(signatures=1.0)


def test_an_export_of_stores_is_audited_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Every job has the same findings and the same figures of the stores and of the export.

    Also after a second run, when the export has the former versions of renewed blocks too.
    """
    place, target = tmp_path / "stores", tmp_path / "export"
    one = make_store(place / "one", 60, faults=1, seed=7, now=NOW, values=5)
    two = make_store(place / "two", 40, seed=8, now=NOW)
    town = Town(Random(10), NOW, 0)  # noqa: S311 - invented mail is no secret
    former, renewed = versions(town)
    write_store(two.directory, former, NOW)
    write_store(one.directory, former[:1], NOW)
    stores = Tables(spark, [place], EVERYTHING)
    blocks = one.blocks + one.values + two.blocks
    assert export(spark, stores, target) == blocks + len(former) + 1
    assert all("=" in path.name for path in (target / "blocks.parquet").glob("*/*"))
    write_store(two.directory, renewed, NOW)
    stores = Tables(spark, [place], EVERYTHING)
    assert export(spark, stores, target) == len(renewed)
    exported = Tables(spark, [target], EVERYTHING)
    assert exported.names() == stores.names() == ("one", "two")
    for job in JOBS:
        results = [answers(JOBS[job](tables, Background(MARKET))) for tables in (stores, exported)]
        assert results[0][0], job
        assert results[0][0] == results[1][0], job
        assert results[1][1] == pytest.approx(results[0][1]), job


def versions(town: Town) -> tuple[list[StoredEntry], list[StoredEntry]]:
    """Return a person's blocks, with mail that asks more than it paid, and all of them renewed."""
    owner, revoked = town.people[:2]
    workshop, old, new = town.workshop, NOW - timedelta(days=8), NOW - timedelta(days=1)
    data = workshop.data_of(old, b"the same bytes")
    word = workshop.announcement(owner, new, [data.key], price=owner.price)
    dear = replace(owner, price=Difficulty(owner.price.bits + 40))
    secret = AckHash(bytes(20))
    former = [
        workshop.key(dear, old),
        workshop.claim(owner, old),
        workshop.acknowledgment(old, secret),
        data,
        workshop.key(revoked, old),
    ]
    renewed = [
        workshop.key(owner, new),
        workshop.claim(owner, new),
        workshop.acknowledgment(new, secret),
        workshop.data_of(new, b"the same bytes"),
        workshop.key(revoked, new),
        word,
    ]
    return former, renewed


def answers(audit: Audit) -> tuple[Counter[Row], dict[tuple[str, ...], float]]:
    """Return the findings and the figures of an audit."""
    findings = Counter(audit.findings.drop("detail").collect())
    told = audit.figures.collect()
    figures = {(str(row["store"]), *map(str, row[2:4])): row["value"] for row in told}
    audit.release()
    return findings, figures


def test_an_export_is_brought_up_to_date(spark: SparkSession, tmp_path: Path) -> None:
    """A second run writes what is new, a third nothing, whichever row numbers are used again."""
    made = make_store(tmp_path / "store", 20, seed=7, now=NOW)
    stores, target = Tables(spark, [made.directory], EVERYTHING), tmp_path / "export"
    assert export(spark, stores, target) == made.blocks
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
