"""One Spark session for all tests, and stores of which it is known what is wrong with them."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from sealmail_spark.audits import JOBS, Background
from sealmail_spark.generator.making import Made, make_pair, make_store
from sealmail_spark.prices import Market
from sealmail_spark.reading import Tables, Wish
from sealmail_spark.session import open_session

BLOCKS = 300
VALUES = 15
NOW = datetime.now(UTC).replace(microsecond=0)
# By name: how many faults of each kind, and the seed.
STORES = {"seeded": (1, 1), "sound": (0, 2), "random": (2, 3)}
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

    def figure(self, store: str, measure: str) -> dict[str, float]:
        """Return a measure of one store, by group."""
        return {
            row["group"]: row["value"]
            for row in self.figures
            if (row["store"], row["measure"]) == (store, measure)
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
def pair(place: Path) -> Made:
    """Make two partners that differ."""
    return make_pair(place / "pair", BLOCKS, faults=2, seed=4, now=NOW)


@pytest.fixture(scope="session")
def found(spark: SparkSession, stores: Path) -> Found:
    """Run the jobs that look at each store by itself over all of them."""
    tables = Tables(spark, [stores], Wish(signatures=1.0))
    findings, figures = [], []
    for name in SINGLE:
        audit = JOBS[name](tables, Background(MARKET))
        findings += audit.findings.collect()
        figures += audit.figures.collect()
        audit.release()
    return Found(findings, figures)
