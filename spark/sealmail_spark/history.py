"""The history of audits: what each run found, so that drift over time shows."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

_FINDINGS: Final = "findings.parquet"
_FIGURES: Final = "figures.parquet"
_CLAIMS: Final = "claims.parquet"


@dataclass(frozen=True, slots=True)
class History:
    """A directory in which every run adds a partition of its own."""

    directory: Path

    def add(
        self, findings: DataFrame, figures: DataFrame, claims: DataFrame | None, now: datetime
    ) -> None:
        """Add what a run found; findings are kept as counts, figures whole."""
        run = f"{now:%Y%m%dT%H%M%SZ}"
        counts = findings.groupBy("job", "store", "severity", "code").count()
        frames = {_FINDINGS: counts, _FIGURES: figures}
        if claims is not None:
            frames[_CLAIMS] = claims
        for name, frame in frames.items():
            marked = frame.withColumn("run", F.lit(run)).coalesce(1)
            # One file a run: histories are read whole.
            marked.write.mode("append").partitionBy("run").parquet(str(self.directory / name))

    def earlier_claims(self, spark: SparkSession) -> DataFrame | None:
        """Return the claims of the last run that looked at keys, if there was one."""
        claims = self._read(spark, _CLAIMS)
        if claims is None:
            return None
        last = claims.agg(F.max("run")).collect()[0][0]
        return claims.where(F.col("run") == last).drop("run")

    def severities(self, spark: SparkSession) -> list[tuple[str, str, str, int]]:
        """Return for each run how many findings each job and severity had: run, job, both."""
        counts = self._read(spark, _FINDINGS)
        runs = self._read(spark, _FIGURES)
        if counts is None or runs is None:
            return []
        # A run without findings is a point at zero.
        bare = runs.select("run", "job").distinct()
        summed = counts.groupBy("run", "job", "severity").agg(F.sum("count").alias("count"))
        rows = bare.join(summed, ["run", "job"], "left").orderBy("run", "job").collect()
        return [
            (row["run"], row["job"], row["severity"] or "", int(row["count"] or 0)) for row in rows
        ]

    def _read(self, spark: SparkSession, name: str) -> DataFrame | None:
        path = self.directory / name
        if not path.is_dir():
            return None
        return spark.read.parquet(str(path))
