"""The Spark session: of the cluster that spark-submit chose, a remote one, or of this machine."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql import SparkSession

from sealmail_spark.packing import pack
from sealmail_spark.progress import Bar
from sealmail_spark.source import SealmailSource

if TYPE_CHECKING:
    from pyspark.sql.connect.shell.progress import ProgressHandler

_APPLICATION: Final = "sealmail-audit"
_TIME_ZONE: Final = "spark.sql.session.timeZone"
# What any session can be told. A few partitions are ample for sums; Spark makes fewer of them.
_SETTINGS: Final = {
    _TIME_ZONE: "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
}
_CONFIGURED: Final = "SPARK_CONF_DIR"
# What makes a task fail is told once, by who asked for it.
_QUIET: Final = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %c{1}: %m%n
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
"""


def open_session(master: str | None = None, *, watched: bool = False) -> SparkSession:
    """Return a session that knows the format ``sealmail``; the running one, if there is one.

    ``master`` is a Spark master such as ``local[2]`` or ``spark://HOST:7077``, or a Spark Connect
    server, ``sc://HOST:15002``; without one, what the environment says, else this machine.
    ``watched`` shows a bar of progress.
    """
    running = SparkSession.getActiveSession()
    spark = running or _start(master, watched=watched)
    # Days and dates are told in UTC, whoever has started the session.
    spark.conf.set(_TIME_ZONE, _SETTINGS[_TIME_ZONE])
    spark.dataSource.register(SealmailSource)
    return spark


def close_session() -> None:
    """End the running session, if there is one, and with it a Spark that was started for it."""
    running = SparkSession.getActiveSession()
    if running is not None:
        running.stop()


def _start(master: str | None, *, watched: bool) -> SparkSession:
    builder = SparkSession.builder.appName(_APPLICATION)
    # Workers must be the Python that the driver is, unless a cluster brings its own.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if "SPARK_REMOTE" in os.environ or (master or "").startswith("sc://"):
        spark = (builder.remote(master) if master else builder).getOrCreate()
        if watched:
            spark.registerProgressHandler(cast("ProgressHandler", Bar(sys.stderr)))
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        with tempfile.TemporaryDirectory(prefix="sealmail-") as directory:
            spark.addArtifacts(str(pack(Path(directory))), pyfile=True)
        return spark
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", str(watched).lower())
    if master is not None:
        builder = builder.master(master)
    with _hushed():
        return builder.getOrCreate()


@contextmanager
def _hushed() -> Iterator[None]:
    """Have Spark log errors only, where nobody has said how it is to log."""
    if _CONFIGURED in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="sealmail-") as directory:
        (Path(directory) / "log4j2.properties").write_text(_QUIET, encoding="utf-8")
        os.environ[_CONFIGURED] = directory
        try:
            yield
        finally:
            del os.environ[_CONFIGURED]
