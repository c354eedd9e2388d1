"""The history of audits: what each run found, so that drift over time shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from sealmail_spark.schemas import CLAIMS, COUNTS, FIGURES, RUNS

_RUNS: Final = "runs.parquet"
_FINDINGS: Final = "findings.parquet"
_FIGURES: Final = "figures.parquet"
_CLAIMS: Final = "claims.parquet"
# Of what no run had anything there is no file to tell its columns.
_SCHEMAS: Final = {_RUNS: RUNS, _FINDINGS: COUNTS, _FIGURES: FIGURES, _CLAIMS: CLAIMS}
# Of these every block counts by the number at the end of its group: the mean of it may drift.
_WEIGHED: Final = {"level": "bits", "age": "days"}

# run, series, value
Point = tuple[str, str, float]


@dataclass(frozen=True, slots=True)
class Question:
    """What a run was asked: only runs that were asked the same can be compared."""

    stores: tuple[str, ...]
    signatures: float


@dataclass(frozen=True, slots=True)
class Drift:
    """How one job drifts: what is drawn, in which unit, and its points, oldest run first.

    Of what is ``counted``, a point that is not there is a zero.
    """

    job: str
    title: str
    unit: str
    points: tuple[Point, ...]
    counted: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """A directory in which every run adds a partition of its own."""

    directory: Path

    def add(
        self,
        findings: DataFrame,
        figures: DataFrame,
        claims: DataFrame | None,
        jobs: Sequence[str],
        question: Question,
        now: datetime,
    ) -> None:
        """Add what a run found; findings are kept as counts, figures whole."""
        run = f"{now:%Y%m%dT%H%M%S%fZ}"
        asked = [(job, sorted(question.stores), question.signatures) for job in jobs]
        counts = findings.groupBy("job", "store", "severity", "code").count()
        frames = {
            _RUNS: findings.sparkSession.createDataFrame(asked, RUNS),
            _FINDINGS: counts,
            _FIGURES: figures,
        }
        if claims is not None:
            frames[_CLAIMS] = claims
        for name, frame in frames.items():
            marked = frame.withColumn("run", F.lit(run)).coalesce(1)
            # One file a run: histories are read whole.
            marked.write.mode("append").partitionBy("run").parquet(str(self.directory / name))

    def earlier_claims(self, spark: SparkSession, stores: Sequence[str]) -> DataFrame | None:
        """Return the claims of stores, each of the last run that looked at its keys.

        Other stores in the same history say nothing of these.
        """
        claims, runs = self._read(spark, _CLAIMS), self._read(spark, _RUNS)
        if claims is None or runs is None:
            return None
        looked = runs.where(F.col("job") == "keys").select(
            "run", F.explode("stores").alias("store")
        )
        last = (
            looked.where(F.col("store").isin(*stores))
            .groupBy("store")
            .agg(F.max("run").alias("run"))
        )
        return claims.join(last, ["store", "run"], "left_semi").drop("run")

    def drifts(self, spark: SparkSession, jobs: Sequence[str], question: Question) -> list[Drift]:
        """Return how the findings of jobs drift, and levels, ages and sizes of blocks.

        Only over runs of the same job that were asked the same question.
        """
        runs, counts, figures = (self._read(spark, name) for name in (_RUNS, _FINDINGS, _FIGURES))
        if runs is None or counts is None or figures is None:
            return []
        stores = F.array(*(F.lit(name) for name in sorted(question.stores)))
        alike = runs.where(
            F.col("job").isin(*jobs)
            & (F.col("stores") == stores)
            & (F.col("signatures") == question.signatures)
        ).select("run", "job")
        return [*_of_findings(alike, counts, jobs), *_of_blocks(alike, figures)]

    def _read(self, spark: SparkSession, name: str) -> DataFrame | None:
        path = self.directory / name
        if not path.is_dir():
            return None
        schema = StructType([*_SCHEMAS[name], StructField("run", StringType())])
        return spark.read.schema(schema).parquet(str(path))


def _of_findings(runs: DataFrame, counts: DataFrame, jobs: Sequence[str]) -> list[Drift]:
    """Return the findings of each job by severity; a run without any is a point at zero."""
    summed = counts.groupBy("run", "job", "severity").agg(F.sum("count").alias("count"))
    rows = runs.join(summed, ["run", "job"], "left").orderBy("run", "severity").collect()
    found = {job: [row for row in rows if row["job"] == job] for job in jobs}
    return [
        Drift(
            job,
            "findings",
            "findings",
            tuple((row["run"], row["severity"] or "", float(row["count"] or 0)) for row in own),
            counted=True,
        )
        for job, own in found.items()
    ]


def _of_blocks(runs: DataFrame, figures: DataFrame) -> list[Drift]:
    """Return the means of levels, ages and sizes of blocks, by type."""
    blocks = figures.join(runs.where(F.col("job") == "store"), ["run", "job"], "inner")
    kind = F.regexp_extract("group", "^[a-z-]+", 0)
    number = F.regexp_extract("group", "-?[0-9]+$", 0)
    weighed = blocks.where(F.col("measure").isin(*_WEIGHED)).select(
        *("run", "measure", kind.alias("type")),
        (F.col("value") * F.coalesce(number.try_cast("double"), F.lit(0.0))).alias("total"),
        F.col("value").alias("blocks"),
    )
    is_bytes = F.col("measure") == "bytes"
    sized = blocks.where(F.col("measure").isin("blocks", "bytes")).select(
        "run",
        F.lit("size").alias("measure"),
        F.col("group").alias("type"),
        F.when(is_bytes, F.col("value")).otherwise(0.0).alias("total"),
        F.when(is_bytes, 0.0).otherwise(F.col("value")).alias("blocks"),
    )
    means = (
        weighed.unionByName(sized)
        .groupBy("run", "measure", "type")
        .agg((F.sum("total") / F.sum("blocks")).alias("mean"))
        .orderBy("run", "type")
        .collect()
    )
    return [
        Drift(
            "store",
            f"mean {measure}",
            unit,
            tuple(
                (row["run"], row["type"], row["mean"])
                for row in means
                if row["measure"] == measure
            ),
        )
        for measure, unit in (*_WEIGHED.items(), ("size", "bytes"))
    ]
