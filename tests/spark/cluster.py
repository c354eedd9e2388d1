"""A standalone cluster and a Spark Connect server on loopback; a Python with nothing of ours."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow
import pyspark
from tests.end_to_end.programs import free_port

SPARK_HOME = Path(pyspark.__file__).parent
SECONDS = 240
# Spark, and pyarrow and pandas with what they need.
_OF_SPARK = (
    *("pyspark", "py4j", "pyarrow", "pyarrow.libs", "numpy", "numpy.libs"),
    *("pandas", "pandas.libs", "dateutil", "pytz", "tzdata"),
)
_BRISK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class Cluster:
    """A master with two workers of one core each."""

    url: str
    environment: dict[str, str]
    place: Path

    def submit(
        self, options: Sequence[str], *arguments: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run an audit under spark-submit, as an operator would."""
        local = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1")
        settings = [word for one in local for word in ("--conf", one)]
        limits = ["--executor-memory", "512m", "--driver-memory", "512m"]
        command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url]
        return subprocess.run(
            [*command, *settings, *limits, *options, *arguments],
            env=self.environment,
            cwd=self.place,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )


@contextmanager
def standalone_cluster(place: Path, python: Path) -> Iterator[Cluster]:
    """Run a cluster whose workers use ``python``."""
    port, page = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    environment = _environment(place, python)
    with ExitStack() as stack:

        def start(name: str, *arguments: str) -> None:
            command = [str(SPARK_HOME / "bin" / "spark-class"), *arguments]
            log = stack.enter_context((place / f"{name}.log").open("w"))
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait, SECONDS)
            stack.callback(process.terminate)

        start(
            "master",
            _MASTER,
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            str(page),
        )
        for number in (1, 2):
            own = ["--host", "127.0.0.1", "--port", str(free_port())]
            own += ["--webui-port", str(free_port()), "--work-dir", str(place / f"work{number}")]
            start(f"worker{number}", _WORKER, *own, "--cores", "1", "--memory", "600m", url)
        _wait_for_workers(f"http://127.0.0.1:{page}/json/", 2)
        yield Cluster(url, environment, place)


@contextmanager
def connect_server(place: Path, python: Path) -> Iterator[str]:
    """Run a Spark Connect server whose workers use ``python``; yield its address."""
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        # Progress is told of queries, too, that take no two seconds.
        "spark.connect.progress.reportInterval": "50ms",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--class", _CONNECT]
    command += ["--master", "local[2]"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with (place / "connect.log").open("w") as log:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            # It takes its memory as a daemon does, and works itself.
            env=_environment(place, python) | {"SPARK_DAEMON_MEMORY": "640m"},
            cwd=place,
            stdout=log,
            stderr=log,
        )
        try:
            _wait_for_port(port, process)
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(SECONDS)


def _environment(place: Path, python: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    return kept | {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(place / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "JDK_JAVA_OPTIONS": _BRISK,
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }


def _wait_for_port(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError(f"nobody answers at port {port}")


def _wait_for_workers(page: str, count: int) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(page, timeout=5) as answer:  # noqa: S310 - loopback
                if json.load(answer)["aliveworkers"] == count:
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{count} workers did not come")


def bare_python(place: Path) -> Path:
    """Make a Python that has Spark and what Spark asks for, and neither ours nor OpenPGP."""
    libraries = place / "libraries"
    libraries.mkdir()
    site = Path(pyarrow.__file__).parents[1]
    for name in _OF_SPARK:
        if (site / name).exists():
            (libraries / name).symlink_to(site / name)
    python = place / "python"
    # -S: what is installed beside it, ours among it, is not found.
    python.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n',
    )
    python.chmod(0o755)
    return python
