"""Findings and figures as columns: the one shape in which every job answers."""

from collections.abc import Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sealmail_spark.codes import CODES
from sealmail_spark.schemas import FIGURES, FINDINGS

_SEVERITIES: Final = {code: str(row.severity) for code, row in CODES.items()}
_JOBS: Final = {code: row.job for code, row in CODES.items()}


def hex_key(column: str) -> Column:
    """Write a binary key as it is written in commands."""
    return F.hex(F.col(column))


def finding(code: str, detail: Column) -> list[Column]:
    """Return the columns of one finding about the block in each row."""
    return findings_by(F.lit(code), detail, [code])


def findings_by(code: Column, detail: Column, possible: list[str]) -> list[Column]:
    """Return the columns of findings whose code is a column itself, one of ``possible``."""
    severity = F.coalesce(
        *(F.when(code == F.lit(each), F.lit(_SEVERITIES[each])) for each in possible),
        F.lit("fault"),
    )
    return [
        F.lit(_JOBS[possible[0]]).alias("job"),
        severity.alias("severity"),
        code.alias("code"),
        F.col("store"),
        F.col("type"),
        hex_key("key").alias("key"),
        F.col("date"),
        detail.alias("detail"),
    ]


def figures_of(
    frame: DataFrame, job: str, measures: Sequence[tuple[str, Column, Column]]
) -> DataFrame:
    """Return sums by store, measure and group, all in one pass over ``frame``.

    A measure is its name, what it is grouped by (no value: not counted) and what is summed.
    """
    parts = [
        F.struct(
            F.lit(name).alias("measure"),
            group.cast("string").alias("group"),
            value.cast("double").alias("value"),
        )
        for name, group, value in measures
    ]
    spread = frame.select("store", F.explode(F.array(*parts)).alias("part"))
    return (
        spread.where(F.col("part.group").isNotNull())
        .groupBy(
            "store", F.col("part.measure").alias("measure"), F.col("part.group").alias("group")
        )
        .agg(F.sum("part.value").alias("value"))
        .withColumn("job", F.lit(job))
    )


def all_of(first: DataFrame, *others: DataFrame) -> DataFrame:
    """Return the rows of frames with the same columns."""
    return reduce(DataFrame.unionByName, others, first)


def as_findings(frame: DataFrame) -> DataFrame:
    """Return findings with exactly their columns, in order."""
    return frame.select(*FINDINGS.names)


def as_figures(frame: DataFrame) -> DataFrame:
    """Return figures with exactly their columns, in order."""
    return frame.select(*FIGURES.names)
