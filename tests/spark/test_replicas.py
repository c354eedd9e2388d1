"""Which partner is behind: by the rules of the merges, and by what each copy can know."""

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from tests.spark.conftest import NOW

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.merges import Standing, displaces
from sealmail_spark.jobs.replicas import COLUMNS, replica_figures, replica_findings
from sealmail_spark.schemas import BLOCKS

SCHEMA = StructType([BLOCKS[name] for name in COLUMNS])
BEFORE, LATER = NOW - timedelta(days=2), NOW - timedelta(days=1)
LOW, HIGH = b"\x01" * 32, b"\xfe" * 32
MOMENTS = {name: int(NOW.timestamp()) for name in "ab"}
KEY, CLAIM, MAIL = "key-announcement", "address-claim", "message-announcement"


def entry(store: str, kind: str, standing: Standing) -> tuple[Any, ...]:
    """Return the row of an entry of one store."""
    values = {
        "store": store,
        "type": kind,
        "key": bytes(20),
        "identity": b"",
        "date": standing.date,
        "digest": standing.digest,
        "revoked": standing.revoked,
        "stamp_bits": standing.bits,
    }
    return tuple(values[name] for name in COLUMNS)


def frame(spark: SparkSession, *rows: tuple[Any, ...]) -> DataFrame:
    """Return blocks of stores."""
    return spark.createDataFrame(list(rows), SCHEMA)


@pytest.mark.parametrize(
    ("kind", "stays", "goes"),
    [
        (KEY, Standing(BEFORE, HIGH, revoked=True), Standing(LATER, LOW)),
        (CLAIM, Standing(LATER, HIGH, bits=8), Standing(BEFORE, LOW, bits=20)),
        (CLAIM, Standing(BEFORE, LOW), Standing(BEFORE, HIGH, bits=20)),
        (MAIL, Standing(BEFORE, HIGH, bits=20), Standing(BEFORE, LOW, bits=19)),
        (MAIL, Standing(BEFORE, LOW, bits=20), Standing(BEFORE, HIGH, bits=20)),
    ],
    ids=["revoked", "newer", "lower-digest", "more-bits", "lower-digest-of-mail"],
)
def test_who_is_behind_follows_the_merge(
    spark: SparkSession, kind: str, stays: Standing, goes: Standing
) -> None:
    """The store whose version a merge would displace is told, whichever of the two it is."""
    assert displaces(BlockType(kind), stays, goes)
    for first, second, behind in ((stays, goes, "b"), (goes, stays, "a")):
        blocks = frame(spark, entry("a", kind, first), entry("b", kind, second))
        rows = replica_findings(blocks, MOMENTS).collect()
        assert [(row["code"], row["store"]) for row in rows] == [("differs", behind)]


def test_a_copy_is_not_blamed_for_what_came_after_it(spark: SparkSession) -> None:
    """What is dated after the last moment of a copy is neither missing nor behind there."""
    alone = frame(spark, entry("a", CLAIM, Standing(LATER, LOW)))
    both = frame(
        spark, entry("a", CLAIM, Standing(LATER, LOW)), entry("b", CLAIM, Standing(BEFORE, HIGH))
    )
    known = LATER + timedelta(minutes=10)
    for moment, codes in (
        (known - timedelta(seconds=1), []),
        (known, ["missing-at-partner", "differs"]),
    ):
        moments = MOMENTS | {"b": int(moment.timestamp())}
        rows = [
            row for blocks in (alone, both) for row in replica_findings(blocks, moments).collect()
        ]
        assert [row["code"] for row in rows] == codes
        assert len(replica_figures(alone, moments).collect()) == len(codes) // 2
