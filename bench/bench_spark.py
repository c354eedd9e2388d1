"""Measures the audits: Spark with one and two cores against plain processes running the same code.

    bench_spark.py [BLOCKS [DIRECTORY]]

By default 2 000 000 blocks, made first and removed afterwards; stores in DIRECTORY are made once
and stay. Every round runs in fresh processes, since verifiers remember what they verified. The
start of Spark, and of the processes, is not counted.
"""

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from sealmail_pow import IMPLEMENTATION
from sealmail_spark.audits import JOBS, Background
from sealmail_spark.checking import checks_for
from sealmail_spark.generator.making import make_keys, make_store
from sealmail_spark.jobs.pow import COLUMNS, TYPES
from sealmail_spark.prices import Market
from sealmail_spark.reading import Tables, Wish
from sealmail_spark.session import close_session, open_session
from sealmail_spark.source import stored_rows
from sealmail_spark.store_files import KeyRange, counts_by_type, find_stores, key_ranges
from sealmail_spark.tallies import tally_batches

MIB = 1024 * 1024
BLOCKS = 2_000_000
SIGNED = 20_000
ROWS = 50_000
BACKGROUND = Background(Market(37e6))


def plain_part(part: KeyRange, job: str, signatures: str) -> int:
    """Do in this process what a worker does with a part."""
    if job == "store":
        checks = checks_for({"signatures": signatures})
        return sum(batch.num_rows for batch in tally_batches(stored_rows(part), checks))
    checks = checks_for({}, COLUMNS)
    return sum(len(checks.examine(rows)) for rows in stored_rows(part))


def plain(directory: Path, job: str, processes: int, signatures: str = "0") -> float:
    """Return the seconds that plain processes take, their start aside."""
    types = TYPES if job == "pow" else None
    parts = key_ranges(find_stores(directory), types, ROWS)
    work = partial(plain_part, job=job, signatures=signatures)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        # All are up once each has done nothing.
        list(pool.map(time.sleep, [0.2] * processes))
        start = time.perf_counter()
        list(pool.map(work, parts))
        return time.perf_counter() - start


def spark(directory: Path, job: str, cores: int, signatures: str = "0") -> dict[str, float]:
    """Return the seconds of a job under Spark with so many cores, and the driver's memory."""
    command = [sys.executable, __file__, "--one", str(directory), job, str(cores), signatures]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def one(directory: Path, job: str, cores: int, signatures: str) -> None:
    """Run a job in this process and print what it took."""
    session = open_session(f"local[{cores}]")
    # Spark loads and compiles at its first query; that belongs to its start.
    JOBS[job](Tables(session, [find_warm(directory)], Wish()), BACKGROUND).figures.count()
    audit = JOBS[job](
        Tables(session, [directory], Wish(signatures=float(signatures), rows=ROWS)), BACKGROUND
    )
    start = time.perf_counter()
    findings, figures = audit.findings.count(), audit.figures.count()
    seconds = time.perf_counter() - start
    runtime = session.sparkContext._jvm.java.lang.Runtime.getRuntime()  # type: ignore[union-attr]
    session.sparkContext._jvm.java.lang.System.gc()  # type: ignore[union-attr]
    heap = (runtime.totalMemory() - runtime.freeMemory()) / MIB
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    close_session()
    told = {"seconds": seconds, "findings": findings, "figures": figures}
    print(json.dumps(told | {"heap": heap, "python": own}))


def find_warm(directory: Path) -> Path:
    """Return a store of a few blocks beside the one that is measured."""
    return directory.parent / "warm"


def compare(directory: Path, job: str, rows: int, signatures: str = "0") -> None:
    """Measure one job in all ways and print the rates and their ratios."""
    alone = plain(directory, job, 1, signatures)
    both = plain(directory, job, 2, signatures)
    one_core = spark(directory, job, 1, signatures)
    two_cores = spark(directory, job, 2, signatures)
    what = "signatures" if signatures != "0" else job
    print(f"\n{what}: {rows:,} rows")
    for name, seconds in (
        ("plain, 1 process", alone),
        ("plain, 2 processes", both),
        ("Spark local[1]", one_core["seconds"]),
        ("Spark local[2]", two_cores["seconds"]),
    ):
        print(f"  {name:20} {seconds:8.1f} s {rows / seconds:12,.0f} rows/s")
    print(f"  local[2] / local[1]            {one_core['seconds'] / two_cores['seconds']:6.2f}")
    print(f"  local[2] / plain 2 processes   {both / two_cores['seconds']:6.2f}")
    print(f"  plain 2 / plain 1              {alone / both:6.2f}")
    print(
        f"  driver: heap {two_cores['heap']:.0f} MiB after collection,"
        f" Python {two_cores['python']:.0f} MiB at most",
        flush=True,
    )


def rows_of(directory: Path, types: Sequence[str] | None) -> int:
    """Return how many rows of some types a store has."""
    counts = counts_by_type(find_stores(directory)[0])
    return sum(count for kind, count in counts.items() if types is None or kind in types)


def main(blocks: int, place: Path) -> None:
    """Measure stores of two sizes and the signatures of a third, made first where missing."""
    now = datetime.now(UTC).replace(microsecond=0)
    sizes = {f"{blocks // 10}": blocks // 10, f"{blocks}": blocks}
    if not (place / "warm").is_dir():
        make_store(place / "warm", 100, now=now)
        make_keys(place / "signed", SIGNED, now=now)
        for name, count in sizes.items():
            make_store(place / name, count, now=now)
    print(f"{os.cpu_count()} cores; stamps are weighed by {IMPLEMENTATION} code")
    small = spark(place / f"{blocks // 10}", "store", 2)
    large = place / f"{blocks}"
    compare(large, "store", rows_of(large, None))
    print(
        f"  the same with a tenth of the blocks: heap {small['heap']:.0f} MiB,"
        f" Python {small['python']:.0f} MiB"
    )
    compare(large, "pow", rows_of(large, TYPES))
    compare(place / "signed", "store", rows_of(place / "signed", None), "1")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
    elif sys.argv[2:]:
        main(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        with tempfile.TemporaryDirectory(prefix="sealmail-bench-") as directory:
            main(int(sys.argv[1]) if sys.argv[1:] else BLOCKS, Path(directory))
