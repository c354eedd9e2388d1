"""The jobs, against what was seeded and against a plain auditor in one process."""

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.conftest import MARKET, NOW, SINGLE, STORES, Found
from tests.spark.plain_auditor import audit as audit_plainly

from sealmail_spark.audits import JOBS, Background
from sealmail_spark.codes import CODES
from sealmail_spark.generator.making import Made, make_store
from sealmail_spark.reading import Tables, Wish
from sealmail_spark.schemas import FIGURES, FINDINGS


@pytest.mark.parametrize("store", STORES)
def test_every_seeded_fault_is_found_and_nothing_else(
    found: Found, made: dict[str, Made], store: str
) -> None:
    """A fault is found where it was seeded, by its code, and sound blocks are not accused."""
    seeded = Counter((one.job, one.code, one.type, one.key) for one in made[store].seeded)
    assert found.of(store) == seeded


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_seeded_fault_is_found_among_200_000_blocks(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In a large store, too, what was seeded is found, and no sound block is accused."""
    made = make_store(tmp_path / "large", 200_000, faults=20, seed=5, now=NOW, values=2_000)
    tables = Tables(spark, [made.directory], Wish(signatures=1.0))
    rows = []
    for name in SINGLE:
        audit = JOBS[name](tables, Background(MARKET))
        rows += audit.findings.collect()
        audit.release()
    found = Counter((row["job"], row["code"], row["type"], row["key"]) for row in rows)
    assert found == Counter((one.job, one.code, one.type, one.key) for one in made.seeded)


@pytest.mark.parametrize("store", STORES)
def test_a_plain_auditor_finds_the_same(found: Found, made: dict[str, Made], store: str) -> None:
    """Findings and figures are those of a single process that shares no code with the jobs."""
    plain = audit_plainly(made[store].directory)
    assert found.of(store) == Counter(plain.findings)
    assert found.figure(store, "blocks") == plain.blocks
    assert found.figure(store, "DHT blocks") == plain.values
    assert found.figure(store, "level") == plain.levels
    assert found.figure(store, "single-copy savings") == {"bytes": plain.saved}
    users = found.figure(store, "apportioned bytes of user")
    assert users == pytest.approx({user: size for user, size in plain.user_bytes.items() if size})


def test_every_finding_has_its_code_job_and_severity(found: Found) -> None:
    """A finding says what the table of codes says of its kind."""
    for row in found.findings:
        assert (row["job"], row["severity"]) == (
            CODES[row["code"]].job,
            CODES[row["code"]].severity,
        )


def test_partners_are_compared_both_ways(spark: SparkSession, pair: Made) -> None:
    """What only one has, and what they have in different versions, is found."""
    directory = pair.directory
    audit = JOBS["replicas"](Tables(spark, [directory], Wish()), Background())
    rows = audit.findings.collect()
    assert Counter((row["job"], row["code"], row["type"], row["key"]) for row in rows) == Counter(
        (one.job, one.code, one.type, one.key) for one in pair.seeded
    )
    assert {row["store"] for row in rows} == {"b"}
    ways = {
        row["group"].split(",")[0] for row in audit.figures.where("measure='missing'").collect()
    }
    assert ways == {"a -> b"}
    audit.release()
    other = JOBS["replicas"](Tables(spark, [directory / "b"], Wish()), Background())
    assert other.findings.count() == 0
    other.release()


@pytest.mark.parametrize("job", JOBS)
def test_findings_and_figures_have_their_schemas(
    spark: SparkSession, stores: Path, job: str
) -> None:
    """Whoever reads results can rely on names, types and order of their columns."""
    audit = JOBS[job](Tables(spark, [stores], Wish()), Background(MARKET))
    for frame, schema in ((audit.findings, FINDINGS), (audit.figures, FIGURES)):
        assert [(f.name, f.dataType) for f in frame.schema] == [
            (f.name, f.dataType) for f in schema
        ]
    audit.release()


def test_an_address_that_changed_hands_is_told(spark: SparkSession, stores: Path) -> None:
    """A claim of another key than an earlier run saw is a finding, the same key is none."""
    tables = Tables(spark, [stores / "sound"], Wish(signatures=0))
    first = JOBS["keys"](tables, Background())
    assert first.claims is not None
    seen = first.claims.collect()
    assert JOBS["keys"](tables, Background(earlier_claims=first.claims)).findings.count() == 0
    other = [(row["store"], row["address"], bytes(20), row["date"]) for row in seen[:1]]
    earlier = spark.createDataFrame(other, first.claims.schema)
    changed = JOBS["keys"](tables, Background(earlier_claims=earlier)).findings.collect()
    assert [row["code"] for row in changed] == ["changed-key"]
    assert seen[0]["address"] in changed[0]["detail"]


def test_what_a_price_costs_follows_from_the_rate(found: Found) -> None:
    """Four bits more cost four times as much; the recommended price is what patience allows."""
    cost = {
        row["group"]: row["value"]
        for row in found.figures
        if row["measure"] == "core-seconds a thousand"
    }
    assert cost["52"] / cost["48"] == pytest.approx(4)
    assert cost["48"] == pytest.approx(1000 * 1.2533 * 2**24 / MARKET.core_rate, rel=1e-3)
    assert MARKET.recommended.bits == 48
