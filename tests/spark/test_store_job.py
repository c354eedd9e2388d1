"""The audit of single blocks, in one process and through Spark."""

from pathlib import Path

from pyspark.sql import SparkSession

from sealmail_spark.audits import audit_store
from sealmail_spark.findings import as_findings
from sealmail_spark.generator.making import Made
from sealmail_spark.reading import Tables, Wish
from sealmail_spark.schemas import FIGURES, FINDINGS

Place = tuple[str, str, str]


def expected(made: Made, job: str) -> set[Place]:
    """Return what was seeded for a job: code, type and key."""
    return {(one.code, one.type, one.key) for one in made.seeded if one.job == job}


def test_every_seeded_fault_is_found_and_nothing_else(spark: SparkSession, seeded: Made) -> None:
    """A fault is found where it was seeded, by its code, and sound blocks are not accused."""
    tables = Tables(spark, [seeded.directory], Wish(signatures=1.0))
    audit = audit_store(tables)
    rows = audit.findings.collect()
    assert {(row["code"], row["type"], row["key"]) for row in rows} == expected(seeded, "store")
    assert len(rows) == len(expected(seeded, "store"))


def test_findings_and_figures_have_their_schemas(spark: SparkSession, seeded: Made) -> None:
    """Whoever reads results can rely on names, types and order of their columns."""
    audit = audit_store(Tables(spark, [seeded.directory], Wish()))
    for frame, schema in ((audit.findings, FINDINGS), (audit.figures, FIGURES)):
        assert [(f.name, f.dataType) for f in frame.schema] == [
            (f.name, f.dataType) for f in schema
        ]
    assert as_findings(audit.findings).columns == FINDINGS.names


def test_the_figures_count_every_block(spark: SparkSession, seeded: Made) -> None:
    """What the figures count together is what was stored."""
    audit = audit_store(Tables(spark, [seeded.directory], Wish()))
    counts = audit.figures.where("measure = 'blocks'").collect()
    assert sum(row["value"] for row in counts) == seeded.blocks


def test_columns_that_are_not_asked_for_are_not_read(
    spark: SparkSession, seeded: Made, place: Path
) -> None:
    """Bodies are read only when asked for; a store beside is no hindrance."""
    read = spark.read.format("sealmail")
    assert "data" not in read.load(str(seeded.directory)).columns
    bodies = read.option("columns", "key,data").option("types", "data").load(str(seeded.directory))
    sizes = bodies.selectExpr("length(data) as size").where("size > 64 * 1024").collect()
    assert bodies.columns == ["key", "data"]
    assert [row["size"] for row in sizes] == [50_000] or all(row["size"] > 65_536 for row in sizes)
