"""Every block by itself: is it what it says it is.

Tallies come from their reader, which examined the blocks; what is left is to list and to sum.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sealmail_spark.codes import CODES
from sealmail_spark.demands import DHT, IN_TRANSIT
from sealmail_spark.findings import all_of, as_figures, as_findings, figures_of, findings_by

JOB = "store"
_CODES = [code for code, row in CODES.items() if row.job == JOB]


def store_findings(tallies: DataFrame) -> DataFrame:
    """Return what is wrong with single blocks."""
    problems = tallies.where(F.col("code").isNotNull())
    return as_findings(problems.select(*findings_by(F.col("code"), F.col("detail"), _CODES)))


def store_figures(tallies: DataFrame) -> DataFrame:
    """Return how many blocks and bytes there are, by type, level, age, size and signature.

    What is kept for the DHT is counted apart, by measures of its own, and so is what is only
    held to be delivered to other servers.
    """
    counted, of_dht = tallies.where(F.col("code").isNull()), F.col("held") == DHT
    passing = F.col("type") == IN_TRANSIT
    in_transit = [
        ("held for other servers", F.lit("blocks"), F.col("blocks")),
        ("held for other servers", F.lit("bytes"), F.col("bytes")),
    ]
    return as_figures(
        all_of(
            figures_of(counted.where(~of_dht & ~passing), JOB, _measures("")),
            figures_of(counted.where(of_dht), JOB, _measures("DHT ")),
            figures_of(counted.where(~of_dht & passing), JOB, in_transit),
        )
    )


def _measures(of: str) -> list[tuple[str, Column, Column]]:
    kind, blocks = F.col("type"), F.col("blocks")
    size = F.when(kind == "data", F.pow(F.lit(2), F.col("power")).cast("long"))
    return [
        (f"{of}blocks", kind, blocks),
        (f"{of}bytes", kind, F.col("bytes")),
        (f"{of}level", _by_type("bits"), blocks),
        (f"{of}age", _by_type("day"), blocks),
        (f"{of}size", size, blocks),
        (f"{of}signature", _by_type("signature"), blocks),
    ]


def _by_type(column: str) -> Column:
    """Group by type and a column; nothing where the column has no value."""
    named = F.concat_ws(" ", F.col("type"), F.col(column))
    return F.when(F.col(column).isNotNull(), named)
