"""How mail fares: from a user's own ledger, times and rates; from stores, daily counts alone.

By design nothing in a store links an announcement to its acknowledgment or to its sender.
"""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from sealmail_spark.findings import all_of, as_figures, as_findings, figures_of, finding

JOB: Final = "delivery"
# A line of `sealmail outbox --export`, as far as it is used here.
LEDGER: Final = StructType(
    [
        StructField("version", IntegerType()),
        StructField("message", LongType()),
        StructField("recipient", StringType()),
        StructField("state", StringType()),
        StructField("composed", StringType()),
        StructField("sent", StringType()),
        StructField("acknowledged", StringType()),
    ]
)
LEDGER_VERSION: Final = 1
COLUMNS: Final = ("store", "type", "date")
TYPES: Final = ("message-announcement", "acknowledgment")
# A home server gives mail up after a week; most that will be read is read within it.
LATE_DELIVERY: Final = timedelta(days=3)
LATE_READING: Final = timedelta(days=10)
# Of the states of a client's outbox: what will not be tried again, and what nobody wants sent.
_GIVEN_UP: Final = ("failed", "expired")
_CANCELLED: Final = "cancelled"
_PARTS: Final = (0.5, 0.9, 0.99)


def read_ledgers(spark: SparkSession, paths: Sequence[Path]) -> DataFrame:
    """Return the rows of ledgers; of a later version, which may mean otherwise, none is taken."""
    if not paths:
        return spark.createDataFrame([], LEDGER)
    rows = spark.read.schema(LEDGER).json([str(path) for path in paths])
    later = rows.where(F.col("version") > LEDGER_VERSION).limit(1).collect()
    if later:
        raise ValueError(
            f"a ledger of version {later[0]['version']}: only {LEDGER_VERSION} is understood"
        )
    return rows


def delivery_findings(ledger: DataFrame, seen: int) -> DataFrame:
    """Return mail that is long on its way, given up, or long delivered and not acknowledged.

    ``seen`` is the present, in seconds since 1970. What the user has cancelled is no finding.
    """
    rows = _timed(ledger, seen)
    unsent, wanted = F.col("sent").isNull(), F.col("state") != _CANCELLED
    lost = F.col("state").isin(*_GIVEN_UP)
    waiting = rows.where(unsent & wanted & ~lost & (_since("composed") > _seconds(LATE_DELIVERY)))
    unread = rows.where(
        ~unsent
        & wanted
        & F.col("acknowledged").isNull()
        & (_since("sent") > _seconds(LATE_READING))
    )
    return as_findings(
        all_of(
            _told("undelivered", "composed", waiting),
            _told("given-up", "composed", rows.where(unsent & lost)),
            _told("unacknowledged", "sent", unread),
        )
    )


def delivery_figures(ledger: DataFrame) -> DataFrame:
    """Return states, rates, and the times in which half, nine tenths and 99 of 100 were done."""
    rows = _timed(ledger, seen=0)
    states = figures_of(rows, JOB, [("state", F.col("state"), F.lit(1))])
    steps = {"delivery": ("composed", "sent"), "acknowledgment": ("sent", "acknowledged")}
    parts = [states]
    for step, (start, end) in steps.items():
        took = (F.unix_timestamp(end) - F.unix_timestamp(start)).cast("double")
        begun = rows.where(F.col(start).isNotNull())
        done = F.avg(F.when(F.col(end).isNotNull(), 1.0).otherwise(0.0))
        quantiles = F.percentile(took, F.array(*(F.lit(part) for part in _PARTS)))
        summed = begun.groupBy("store").agg(done.alias("rate"), quantiles.alias("times"))
        figures = [
            _named(f"{step} rate", "of all", F.col("rate")),
            *(
                _named(f"{step} seconds", f"{part:.0%}", F.col("times")[place])
                for place, part in enumerate(_PARTS)
            ),
        ]
        spread = summed.select("store", F.explode(F.array(*figures)).alias("part"))
        parts.append(
            spread.where(F.col("part.value").isNotNull()).select(
                F.lit(JOB).alias("job"), "store", "part.measure", "part.group", "part.value"
            )
        )
    return as_figures(all_of(*parts))


def daily_figures(blocks: DataFrame) -> DataFrame:
    """Return how many mails were announced and acknowledged each day."""
    day = F.date_format("date", "yyyy-MM-dd")
    return as_figures(
        figures_of(blocks, JOB, [("a day", F.concat_ws(" ", F.col("type"), day), F.lit(1))])
    )


def _timed(ledger: DataFrame, seen: int) -> DataFrame:
    """Read the dates; ``seen`` is the present."""
    dates = ("composed", "sent", "acknowledged")
    return ledger.select(
        F.lit("ledger").alias("store"),
        *("message", "recipient"),
        F.coalesce("state", F.lit("")).alias("state"),
        *(F.try_to_timestamp(name).alias(name) for name in dates),
        F.timestamp_seconds(F.lit(seen)).alias("seen"),
    )


def _since(column: str) -> Column:
    return F.unix_timestamp("seen") - F.unix_timestamp(column)


def _seconds(length: timedelta) -> Column:
    return F.lit(int(length.total_seconds()))


def _named(measure: str, group: str, value: Column) -> Column:
    return F.struct(
        F.lit(measure).alias("measure"),
        F.lit(group).alias("group"),
        value.cast("double").alias("value"),
    )


def _told(code: str, since: str, rows: DataFrame) -> DataFrame:
    days = F.floor(_since(since) / 86_400)
    detail = F.format_string("message %d, %s, since %d days", "message", "state", days)
    mail = rows.withColumns(
        {"type": F.lit("mail"), "key": F.unhex("recipient"), "date": F.col(since)}
    )
    return mail.select(*finding(code, detail))
