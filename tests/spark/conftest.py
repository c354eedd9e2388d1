"""One Spark session for all tests, and stores of which it is known what is wrong with them."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import randbelow

import pytest
from pyspark.sql import Row, SparkSession
from tests.spark.hostile import make_hostile

from sealmail_spark.audits import JOBS, Background
from sealmail_spark.generator.making import Made, make_partners, make_store
from sealmail_spark.prices import Market
from sealmail_spark.reading import Tables, Wish
from sealmail_spark.session import open_session

BLOCKS = 300
PARTNERS = "abc"
VALUES = 15
NOW = datetime.now(UTC).replace(microsecond=0)
# Every run makes other stores; with the seed that a failure tells it makes the same again.
SEED = int(os.environ.get("SEALMAIL_TEST_SEED") or randbelow(1 << 32))
SEEDED_BY = f"SEALMAIL_TEST_SEED={SEED}"
# By name: how many faults of each kind, and the seed.
STORES = {"seeded": (1, SEED), "sound": (0, SEED + 1), "random": (2, SEED + 2)}
MARKET = Market(core_rate=37e6)
# A JVM that lives for a minute, and a few hundred rows: compiling costs more than it saves.
BRISK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SINGLE = ("store", "references", "keys", "pow")


@dataclass(frozen=True)
class Found:
    """What the jobs found in all stores: rows of findings and of figures."""

    findings: list[Row]
    figures: list[Row]

    def of(self, store: str) -> Counter[tuple[str, str, str, str]]:
        """Return job, code, type and key of what was found in one store."""
        rows = [row for row in self.findings if row["store"] == store]
        return Counter((row["job"], row["code"], row["type"], row["key"]) for row in rows)

    def dated(self, store: str) -> Counter[tuple[str, str, str, str, int]]:
        """Return the same with the dates, in seconds since 1970."""
        rows = [row for row in self.findings if row["store"] == store]
        return Counter(
            (row["job"], row["code"], row["type"], row["key"], int(row["date"].timestamp()))
            for row in rows
        )

    def figures_of(self, store: str) -> dict[tuple[str, str, str], float]:
        """Return all figures of one store that are not zero, by job, measure and group."""
        return {
            (row["job"], row["measure"], row["group"]): row["value"]
            for row in self.figures
            if row["store"] == store and row["value"]
        }


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """Return a directory for the whole run."""
    with tempfile.TemporaryDirectory(prefix="sealmail-spark-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def spark(place: Path) -> Iterator[SparkSession]:
    """Run Spark in this process, with two workers."""
    os.environ["SPARK_LOCAL_DIRS"] = str(place / "spark")
    os.environ["JDK_JAVA_OPTIONS"] = BRISK
    session = open_session("local[2]")
    for name, value in SMALL.items():
        session.conf.set(name, value)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def made(place: Path) -> dict[str, Made]:
    """Make stores side by side."""
    return {
        name: make_store(
            place / "stores" / name, BLOCKS, faults=faults, seed=seed, now=NOW, values=VALUES
        )
        for name, (faults, seed) in STORES.items()
    }


@pytest.fixture(scope="session")
def stores(made: dict[str, Made]) -> Path:
    """Return the directory of all stores."""
    return made["seeded"].directory.parent


@pytest.fixture(scope="session")
def partners(place: Path) -> Made:
    """Make three partners that differ."""
    seed = SEED + 3
    return make_partners(place / "partners", PARTNERS, BLOCKS, faults=2, seed=seed, now=NOW)


@pytest.fixture(scope="session")
def hostile(place: Path) -> Path:
    """Return where a store is that was made to harm its auditor."""
    return place / "hostile"


@pytest.fixture(scope="session")
def accused(hostile: Path) -> set[tuple[str, str, str]]:
    """Make that store; return code, type and key of what has to be said of it."""
    return make_hostile(hostile, NOW)


@pytest.fixture(scope="session")
def found(
    spark: SparkSession,
    stores: Path,
    hostile: Path,
    accused: set[tuple[str, str, str]],
) -> Found:
    """Run the jobs that look at each store by itself over all of them."""
    del accused
    tables = Tables(spark, [stores, hostile], Wish(signatures=1.0))
    findings, figures = [], []
    for name in SINGLE:
        audit = JOBS[name](tables, Background(MARKET))
        findings += audit.findings.collect()
        figures += audit.figures.collect()
        audit.release()
    return Found(findings, figures)
