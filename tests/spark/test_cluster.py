"""Audits where nothing is installed: a standalone cluster, a packed environment, Spark Connect."""

import json
import os
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.spark.cluster import bare_python, standalone_cluster
from tests.spark.conftest import BRISK

from sealmail_spark.generator.making import Made
from sealmail_spark.packing import pack, pack_program

ROOT = Path(__file__).parents[2]
SECONDS = 240
NEED_KEYS = {"bad-signature"}


def codes(told: dict[str, Any]) -> Counter[str]:
    """Return how often each code was found."""
    return Counter({row["code"]: row["count"] for row in told["summary"]})


def seeded_codes(made: Made, without: set[str]) -> Counter[str]:
    """Return how often each code was seeded for the audit of single blocks."""
    seeded = [one.code for one in made.seeded if one.job == "store"]
    return Counter(code for code in seeded if code not in without)


def test_an_audit_runs_on_a_cluster_with_py_files_alone(
    made: dict[str, Made], tmp_path: Path
) -> None:
    """Two workers that have nothing of ours find all but signatures, and that is said."""
    program, archive = pack_program(tmp_path), pack(tmp_path)
    store = made["seeded"].directory
    with standalone_cluster(tmp_path, bare_python(tmp_path)) as cluster:
        options = ("--py-files", str(archive), str(program))
        done = cluster.submit(options, "store", str(store), "--json")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert codes(told) == seeded_codes(made["seeded"], NEED_KEYS)
    assert told["signatures_left_out"] > 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_audit_runs_on_a_cluster_with_a_packed_environment(
    made: dict[str, Made], tmp_path: Path
) -> None:
    """With the environment that `make dist-spark` packs, signatures are verified as well."""
    subprocess.run(["make", "dist-spark", f"DIST={tmp_path}"], cwd=ROOT, check=True, timeout=600)
    environment = tmp_path / "sealmail-spark-env.tar.gz"
    # Spark plans with the workers' Python, so the driver has it under the same name.
    unpacked = tmp_path / "environment"
    with tarfile.open(environment) as archive:
        archive.extractall(unpacked, filter="tar")
    with standalone_cluster(tmp_path, Path("./environment/bin/python")) as cluster:
        cluster.environment["PYSPARK_DRIVER_PYTHON"] = str(unpacked / "bin" / "python")
        options = ("--archives", f"{environment}#environment", str(tmp_path / "sealmail-audit.py"))
        done = cluster.submit(options, "store", str(made["seeded"].directory), "--json")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert codes(told) == seeded_codes(made["seeded"], set())
    assert told["signatures_left_out"] == 0


def test_an_audit_runs_through_spark_connect(made: dict[str, Made], tmp_path: Path) -> None:
    """A session without access to the JVM finds the same, and writes the same files."""
    command = [sys.executable, "-m", "sealmail_spark", "store", str(made["seeded"].directory)]
    told, complaints = tmp_path / "told", tmp_path / "complaints"
    environment = {"SPARK_REMOTE": "local[2]", "SPARK_LOCAL_DIRS": str(tmp_path)}
    # Into files: a server that lingers would hold a pipe open.
    with told.open("w") as output, complaints.open("w") as errors:
        done = subprocess.run(
            [*command, "--json", "--out", str(tmp_path / "out")],
            env={**os.environ, **environment, "JDK_JAVA_OPTIONS": BRISK},
            stdout=output,
            stderr=errors,
            timeout=SECONDS,
        )
    assert done.returncode == 1, complaints.read_text()
    assert codes(json.loads(told.read_text())) == seeded_codes(made["seeded"], set())
    lines = (tmp_path / "out" / "findings.jsonl").read_text().splitlines()
    assert len(lines) == seeded_codes(made["seeded"], set()).total()
