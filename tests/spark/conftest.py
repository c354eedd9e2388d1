"""One Spark session for all tests, and a store with one fault of each kind."""

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sealmail_spark.generator.making import Made, make_store
from sealmail_spark.session import open_session

BLOCKS = 400
NOW = datetime.now(UTC).replace(microsecond=0)


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """Return a directory for the whole run."""
    with tempfile.TemporaryDirectory(prefix="sealmail-spark-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def spark(place: Path) -> Iterator[SparkSession]:
    """Run Spark in this process, with two workers."""
    os.environ["SPARK_LOCAL_DIRS"] = str(place / "spark")
    session = open_session("local[2]")
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def seeded(place: Path) -> Made:
    """Make a store with a fault of each kind."""
    return make_store(place / "seeded", BLOCKS, faults=1, seed=1, now=NOW)


@pytest.fixture(scope="session")
def sound(place: Path) -> Made:
    """Make a store in which nothing is wrong."""
    return make_store(place / "sound", BLOCKS, seed=2, now=NOW)
