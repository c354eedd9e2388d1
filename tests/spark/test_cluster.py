"""Audits where nothing is installed: a standalone cluster, a packed environment, Spark Connect."""

import io
import json
import os
import pty
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest
from pyspark.sql.connect.shell.progress import StageInfo
from tests.spark.cluster import bare_python, connect_server, standalone_cluster
from tests.spark.conftest import SINGLE

from sealmail_spark.generator.making import Made
from sealmail_spark.packing import pack
from sealmail_spark.progress import Bar

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("every_command.py")
SECONDS = 240
# What is found by signatures, or in keys, which no worker without pysequoia reads.
NEED_KEYS = {"bad-signature", "wrong-revocation", "claim-without-key", "expired-key"}
FAILING = {"store": 1, "references": 1, "pow": 1, "report": 1, "of export": 1}
LEDGER = {"message": 1, "recipient": "A" * 40, "state": "sent", "version": 1}


@dataclass(frozen=True)
class Asked:
    """What every command is run on, and where what it finds goes."""

    made: Made
    partners: Made
    place: Path

    @property
    def arguments(self) -> tuple[str, ...]:
        """Return the arguments of the program that runs every command."""
        self.place.mkdir()
        ledger = self.place / "ledger.jsonl"
        ledger.write_text(json.dumps(LEDGER) + "\n")
        stores = (self.made.directory, self.partners.directory)
        return *map(str, stores), str(ledger), str(self.place)

    def found(self, name: str) -> Counter[tuple[str, str]]:
        """Return job and code of what a command found."""
        lines = (self.place / name / "findings.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return Counter((row["job"], row["code"]) for row in rows)

    def left_out(self) -> float:
        """Return of how many signatures ``store`` knows nothing."""
        lines = (self.place / "store" / "figures.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return sum(float(row["value"]) for row in rows if row["group"].endswith("left out"))

    def assert_all_was_found(self, *, signatures: bool) -> None:
        """Assert that each command did its work, and found what was seeded for it."""
        codes = json.loads((self.place / "codes.json").read_text())
        assert {name: code for name, code in codes.items() if code} == FAILING
        seeded = Counter((one.job, one.code) for one in self.made.seeded)
        if not signatures:
            seeded = Counter({pair: n for pair, n in seeded.items() if pair[1] not in NEED_KEYS})
            # The key that stands on SHA-1; the small one is told by its bits.
            seeded["keys", "weak-key"] -= 1
        by_job = {
            job: Counter({pair: n for pair, n in seeded.items() if pair[0] == job})
            for job in SINGLE
        }
        assert {job: self.found(job) for job in SINGLE} == by_job
        assert self.found("report") == seeded
        assert self.found("of export") == by_job["store"]
        of_partners = [(one.job, one.code) for one in self.partners.seeded]
        assert self.found("replicas") == Counter(
            pair for pair in of_partners if pair[0] == "replicas"
        )
        assert self.found("delivery") == Counter()
        assert "<h2>The price of spam</h2>" in (self.place / "report.html").read_text()
        assert (self.left_out() == 0) is signatures


@pytest.fixture
def asked(made: dict[str, Made], partners: Made, tmp_path: Path) -> Asked:
    """Return one store with a fault of each kind, and partners that differ."""
    return Asked(made["seeded"], partners, tmp_path / "found")


def test_every_command_runs_on_a_cluster_with_py_files_alone(asked: Asked, tmp_path: Path) -> None:
    """Two workers that have nothing of ours find all but signatures, and that is said."""
    archive = pack(tmp_path)
    with standalone_cluster(tmp_path, bare_python(tmp_path)) as cluster:
        done = cluster.submit(("--py-files", str(archive), str(PROGRAM)), *asked.arguments)
    assert done.returncode == 0, done.stdout
    asked.assert_all_was_found(signatures=False)
    assert "signatures were left out" in done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_every_command_runs_on_a_cluster_with_a_packed_environment(
    asked: Asked, tmp_path: Path
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
        packed = ("--archives", f"{environment}#environment")
        done = cluster.submit((*packed, str(PROGRAM)), *asked.arguments)
        store = str(asked.made.directory)
        single = cluster.submit((*packed, str(tmp_path / "sealmail-audit.py")), "store", store)
    assert done.returncode == 0, done.stdout
    asked.assert_all_was_found(signatures=True)
    assert single.returncode == 1, single.stdout


def test_every_command_runs_through_spark_connect(asked: Asked, tmp_path: Path) -> None:
    """A server that has nothing of ours is sent it, and finds and writes all but signatures.

    On a terminal a bar shows how far each query is.
    """
    with connect_server(tmp_path, bare_python(tmp_path)) as server, terminal() as (screen, shown):
        done = subprocess.run(
            [sys.executable, str(PROGRAM), *asked.arguments, "--master", server],
            stdout=subprocess.DEVNULL,
            stderr=screen,
            timeout=SECONDS,
        )
    told = b"".join(shown).decode()
    assert done.returncode == 0, told
    asked.assert_all_was_found(signatures=False)
    assert "signatures were left out" in told
    assert re.search(r"\r\x1b\[K\[=*> * \(\d+ \+ \d+\) / \d+\]", told)


@contextmanager
def terminal() -> Iterator[tuple[int, list[bytes]]]:
    """Yield a terminal to write to, and a list that at the end has what was shown on it."""
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        # The last writer is gone: Linux says so by an error.
        with suppress(OSError):
            while part := os.read(ours, 4096):
                shown.append(part)

    reader = Thread(target=read)
    reader.start()
    try:
        yield theirs, shown
    finally:
        os.close(theirs)
        reader.join()
        os.close(ours)


def test_a_bar_shows_how_far_a_query_is() -> None:
    """Drawn anew with each word of progress, and gone at the end."""
    screen = io.StringIO()
    bar = Bar(screen)
    stages = (StageInfo(0, 4, 4, 0, True), StageInfo(1, 4, 0, 0, False))
    bar((), 0, "a", done=False)
    bar(stages, 2, "a", done=False)
    bar(stages, 0, "a", done=True)
    lines = screen.getvalue().split("\r\x1b[K")
    assert lines == ["", "", f"[{'=' * 18}>{' ' * 18} (4 + 2) / 8]", ""]
