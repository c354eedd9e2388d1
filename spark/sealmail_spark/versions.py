"""Which of several versions of one entry stays: what a merge leaves.

The rules are those of ``sealmail_protocol.merges``: mail with more bits stays, a revoked key
whatever the Dates, else what is newer; last, what has the lower digest.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_ENTRY: Final = ("store", "held", "type", "key", "identity")
_MAIL, _KEY = "message-announcement", "key-announcement"


def rank() -> Sequence[Column]:
    """Return what is lower for the version that stays; before the lower digest."""
    kind, newer = F.col("type"), -F.unix_timestamp("date")
    revoked = F.when(kind == _KEY, -F.col("revoked").cast("int")).otherwise(F.lit(0))
    return (
        F.when(kind == _MAIL, -F.col("stamp_bits")).otherwise(revoked).alias("first"),
        F.when(kind == _MAIL, F.lit(0)).otherwise(newer).alias("second"),
    )


def as_merged(blocks: DataFrame) -> DataFrame:
    """Return of each entry of a store only the version that a merge leaves.

    The others are few, so they are sought by narrow columns and left out; no body is moved.
    """
    version = F.struct(*rank(), "digest")
    entries = blocks.groupBy(*_ENTRY).agg(
        F.array_sort(F.collect_set(version)).alias("versions"),
    )
    gone = entries.where(F.size("versions") > 1).select(
        *_ENTRY, F.explode(F.slice("versions", 2, F.size("versions") - 1)).alias("version")
    )
    left = gone.select(*_ENTRY, F.col("version.digest").alias("digest"))
    return blocks.join(F.broadcast(left), [*_ENTRY, "digest"], "left_anti").select(blocks.columns)
