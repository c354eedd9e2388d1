"""The Spark session: of the cluster that spark-submit chose, a remote one, or of this machine."""

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from sealmail_spark.source import SealmailSource

_APPLICATION = "sealmail-audit"
# Ample for sums of a whole store; a cluster has its own setting.
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
}


def open_session(master: str | None = None, *, watched: bool = False) -> SparkSession:
    """Return a session that knows the format ``sealmail``.

    ``master`` is a Spark master such as ``local[2]`` or ``spark://HOST:7077``, or a Spark Connect
    server, ``sc://HOST:15002``; without one, what the environment says, else this machine.
    ``watched`` shows a bar of progress.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        running.dataSource.register(SealmailSource)
        return running
    builder = SparkSession.builder.appName(_APPLICATION)
    if master is not None and master.startswith("sc://"):
        builder = builder.remote(master)
    elif master is not None:
        builder = builder.master(master)
    if not _is_remote(master):
        # Workers must be the Python that the driver is, unless a cluster brings its own.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = builder.config("spark.ui.showConsoleProgress", str(watched).lower())
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not _is_remote(master):
        spark.sparkContext.setLogLevel("ERROR")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.dataSource.register(SealmailSource)
    return spark


def _is_remote(master: str | None) -> bool:
    """Tell whether a Spark Connect server does the work."""
    return (master or "").startswith("sc://") or "SPARK_REMOTE" in os.environ


def package_root() -> Path:
    """Return the directory that holds this package."""
    return Path(__file__).parents[1]
