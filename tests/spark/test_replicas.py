"""Which partner is behind: by the rules of the merges, and by what each copy can know."""

from datetime import timedelta
from itertools import product
from typing import Any

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


def entry(store: str, kind: str, standing: Standing, key: bytes = bytes(20)) -> tuple[Any, ...]:
    """Return the row of an entry of one store."""
    values = {
        "store": store,
        "type": kind,
        "key": key,
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


# Which version stays, and which one goes.
VERSIONS = {
    "revoked": (KEY, Standing(BEFORE, HIGH, revoked=True), Standing(LATER, LOW)),
    "newer": (CLAIM, Standing(LATER, HIGH, bits=8), Standing(BEFORE, LOW, bits=20)),
    "lower digest": (CLAIM, Standing(BEFORE, LOW), Standing(BEFORE, HIGH, bits=20)),
    "more bits": (MAIL, Standing(BEFORE, HIGH, bits=20), Standing(BEFORE, LOW, bits=19)),
    "mail of a lower digest": (
        MAIL,
        Standing(BEFORE, LOW, bits=20),
        Standing(BEFORE, HIGH, bits=20),
    ),
}


def test_who_is_behind_follows_the_merge(spark: SparkSession) -> None:
    """The store whose version a merge would displace is told, whichever of the two it is."""
    rows, expected = [], {}
    for place, (case, behind) in enumerate(product(VERSIONS, "ab")):
        kind, stays, goes = VERSIONS[case]
        assert displaces(BlockType(kind), stays, goes), case
        key = bytes([place]) * 20
        held = {"a": stays, "b": stays, behind: goes}
        rows += [entry(store, kind, standing, key) for store, standing in held.items()]
        expected[key.hex().upper()] = ("differs", behind, case)
    found = replica_findings(frame(spark, *rows), MOMENTS).collect()
    assert len(found) == len(expected)
    told = {row["key"]: (row["code"], row["store"], expected[row["key"]][2]) for row in found}
    assert told == expected


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
