"""What partners do not agree on: entries that one lacks, and entries of different versions."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_spark.findings import all_of, as_figures, as_findings, figures_of, finding

JOB: Final = "replicas"
COLUMNS: Final = ("store", "seen", "type", "key", "identity", "date", "digest")
# What is younger may still be on its way.
ON_ITS_WAY: Final = timedelta(minutes=10)
# Whole days, and what is younger than one apart.
_AGES: Final = ((3600, "under an hour"), (86_400, "under a day"))


def replica_findings(blocks: DataFrame, stores: Sequence[str]) -> DataFrame:
    """Return what each of the ``stores``, which should be equal, lacks or has otherwise."""
    entries = _entries(blocks)
    return as_findings(all_of(_lacking(entries, stores), _differing(entries)))


def replica_figures(blocks: DataFrame, stores: Sequence[str]) -> DataFrame:
    """Return how many entries have not gone which way, by type and age; and how many are alike."""
    entries = _entries(blocks)
    ways = _ways(entries, stores)
    way = F.concat_ws(" ", F.col("holder_store"), F.lit("->"), F.col("store"))
    missing = figures_of(
        ways,
        JOB,
        [("missing", F.concat_ws(", ", way, F.col("type"), _age_name()), F.lit(1))],
    )
    alike = (F.size("held") == len(stores)) & (F.col("versions") == 1)
    totals = figures_of(
        entries.withColumn("store", F.array_join("stores", " = ")),
        JOB,
        [("alike", F.when(alike, F.col("type")), F.lit(1))],
    )
    return as_figures(all_of(missing, totals))


def _entries(blocks: DataFrame) -> DataFrame:
    """Return each entry once, with who holds which version of it."""
    version = F.struct("date", "digest", "store").alias("version")
    grouped = blocks.select("type", "key", "identity", "seen", "date", "store", "digest", version)
    return grouped.groupBy("type", "key", "identity").agg(
        F.max("seen").alias("seen"),
        F.max("date").alias("date"),
        F.collect_list("version").alias("held"),
        F.array_sort(F.collect_set("store")).alias("stores"),
        F.count_distinct("digest").alias("versions"),
    )


def _ways(entries: DataFrame, stores: Sequence[str]) -> DataFrame:
    """Return a row for each store that lacks an entry, old enough to be there and not yet over."""
    wanted = F.array(*(F.lit(name) for name in stores))
    age = F.unix_timestamp("seen") - F.unix_timestamp("date")
    over = F.coalesce(
        *(
            F.when(F.col("type") == str(kind), F.lit(int(policy.max_age.total_seconds())))
            for kind, policy in BLOCK_POLICY.items()
        ),
        F.lit(0),
    )
    due = entries.where((age >= F.lit(int(ON_ITS_WAY.total_seconds()))) & (age < over))
    return due.select(
        *("type", "key", "date"),
        age.alias("age"),
        F.col("stores")[0].alias("holder_store"),
        F.explode(F.array_except(wanted, F.col("stores"))).alias("store"),
    )


def _lacking(entries: DataFrame, stores: Sequence[str]) -> DataFrame:
    detail = F.concat(F.lit("held by "), F.col("holder_store"))
    return _ways(entries, stores).select(*finding("missing-at-partner", detail))


def _differing(entries: DataFrame) -> DataFrame:
    """Return one finding for each store whose version is not the newest."""
    newest = F.array_max("held").alias("newest")
    several = entries.where(F.col("versions") > 1).select("type", "key", "held", newest)
    behind = several.select(
        *("type", "key", "newest"),
        F.explode(F.filter("held", _is_behind)).alias("version"),
    ).select(
        *("type", "key"),
        F.col("version.store").alias("store"),
        F.col("version.date").alias("date"),
        F.concat(
            F.lit("another version than "),
            F.col("newest.store"),
            F.lit(", which has one of "),
            F.date_format("newest.date", "yyyy-MM-dd'T'HH:mm:ss'Z'"),
        ).alias("detail"),
    )
    return behind.select(*finding("differs", F.col("detail")))


def _is_behind(version: Column) -> Column:
    return version["digest"] != F.col("newest.digest")


def _age_name() -> Column:
    days = F.concat(F.floor(F.col("age") / 86_400).cast("string"), F.lit(" days"))
    named = [F.when(F.col("age") < limit, F.lit(name)) for limit, name in _AGES]
    return F.coalesce(*named, days)
