"""What partners do not agree on: entries that one lacks, and entries of different versions.

A copy is judged by what it can know: what is dated after the last moment that its store knew of,
or shortly before, is not missing there.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_spark.findings import all_of, as_figures, as_findings, figures_of, finding
from sealmail_spark.versions import rank

JOB: Final = "replicas"
COLUMNS: Final = (
    *("store", "type", "key", "identity", "date", "digest", "revoked", "stamp_bits"),
)
# What is younger may still be on its way.
ON_ITS_WAY: Final = timedelta(minutes=10)
# Whole days, and what is younger than one apart.
_AGES: Final = ((3600, "under an hour"), (86_400, "under a day"))


def replica_findings(blocks: DataFrame, moments: Mapping[str, int]) -> DataFrame:
    """Return what stores that should be equal lack or have otherwise.

    ``moments`` are the stores, and the last moment that each knew of.
    """
    entries = _entries(blocks)
    return as_findings(all_of(_lacking(entries, moments), _differing(entries, moments)))


def replica_figures(blocks: DataFrame, moments: Mapping[str, int]) -> DataFrame:
    """Return how many entries have not gone which way, by type and age; and how many are alike."""
    entries = _entries(blocks)
    ways = _ways(entries, moments)
    way = F.concat_ws(" ", F.col("holder_store"), F.lit("->"), F.col("store"))
    missing = figures_of(
        ways,
        JOB,
        [("missing", F.concat_ws(", ", way, F.col("type"), _age_name()), F.lit(1))],
    )
    alike = (F.size("held") == len(moments)) & (F.col("versions") == 1)
    totals = figures_of(
        entries.withColumn("store", F.array_join("stores", " = ")),
        JOB,
        [("alike", F.when(alike, F.col("type")), F.lit(1))],
    )
    return as_figures(all_of(missing, totals))


def _entries(blocks: DataFrame) -> DataFrame:
    """Return each entry once: who holds which version of it, and which of them should stay."""
    version = F.struct(*rank(), "digest", "store", "date").alias("version")
    grouped = blocks.select("type", "key", "identity", "store", "digest", version)
    entries = grouped.groupBy("type", "key", "identity").agg(
        F.collect_list("version").alias("held"),
        F.array_sort(F.collect_set("store")).alias("stores"),
        F.count_distinct("digest").alias("versions"),
    )
    staying = F.array_min("held")
    return entries.withColumn("staying", staying).withColumn("date", F.col("staying.date"))


def _ways(entries: DataFrame, moments: Mapping[str, int]) -> DataFrame:
    """Return a row for each store that lacks an entry, old enough to be there and not yet over."""
    wanted = F.array(*(F.lit(name) for name in moments))
    over = F.coalesce(
        *(
            F.when(F.col("type") == str(kind), F.lit(int(policy.max_age.total_seconds())))
            for kind, policy in BLOCK_POLICY.items()
        ),
        F.lit(0),
    )
    lacking = entries.select(
        *("type", "key", "date"),
        F.col("stores")[0].alias("holder_store"),
        F.explode(F.array_except(wanted, F.col("stores"))).alias("store"),
    ).withColumn("age", _age(F.col("store"), F.col("date"), moments))
    return lacking.where(_is_due(F.col("age")) & (F.col("age") < over))


def _lacking(entries: DataFrame, moments: Mapping[str, int]) -> DataFrame:
    detail = F.concat(F.lit("held by "), F.col("holder_store"))
    return _ways(entries, moments).select(*finding("missing-at-partner", detail))


def _differing(entries: DataFrame, moments: Mapping[str, int]) -> DataFrame:
    """Return one finding for each store that has another version than the one that stays."""
    several = entries.where(F.col("versions") > 1)
    others = several.select(
        *("type", "key", "staying"),
        F.explode(F.filter("held", _is_another)).alias("version"),
    ).withColumn("age", _age(F.col("version.store"), F.col("staying.date"), moments))
    behind = others.where(_is_due(F.col("age"))).select(
        *("type", "key"),
        F.col("version.store").alias("store"),
        F.col("version.date").alias("date"),
        F.concat(
            F.lit("another version than "),
            F.col("staying.store"),
            F.lit(", which has the one that stays, of "),
            F.date_format("staying.date", "yyyy-MM-dd'T'HH:mm:ss'Z'"),
        ).alias("detail"),
    )
    return behind.select(*finding("differs", F.col("detail")))


def _is_another(version: Column) -> Column:
    return version["digest"] != F.col("staying.digest")


def _age(store: Column, date: Column, moments: Mapping[str, int]) -> Column:
    """Return how old a block was at the last moment that a store knew of, in seconds."""
    seen = F.coalesce(*(F.when(store == name, F.lit(moment)) for name, moment in moments.items()))
    return seen - F.unix_timestamp(date)


def _is_due(age: Column) -> Column:
    return age >= F.lit(int(ON_ITS_WAY.total_seconds()))


def _age_name() -> Column:
    days = F.concat(F.floor(F.col("age") / 86_400).cast("string"), F.lit(" days"))
    named = [F.when(F.col("age") < limit, F.lit(name)) for limit, name in _AGES]
    return F.coalesce(*named, days)
