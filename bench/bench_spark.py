"""Measures the audits: Spark with one and two cores against plain processes running the same code.

    bench_spark.py [--blocks N] [--place DIRECTORY] [PART ...]

By default all parts with 2 000 000 blocks, made first and removed afterwards. In a DIRECTORY
stores and figures stay, so that parts can be run one by one; each tells what is known of all.
Every round runs in fresh processes, since verifiers remember what they verified. The start of
Spark, and of the processes, is not counted.
"""

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from sealmail_pow import IMPLEMENTATION
from sealmail_spark.audits import JOBS, Background
from sealmail_spark.checking import checks_for
from sealmail_spark.generator.making import make_keys, make_store
from sealmail_spark.jobs.pow import TYPES
from sealmail_spark.payments import payment_batches
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
PARTS = (
    *("make", "store-plain", "store-spark", "pow-plain", "pow-spark"),
    *("signatures-plain", "signatures-spark", "memory"),
)
BACKGROUND = Background(Market(37e6))


def plain_part(part: KeyRange, job: str, signatures: str) -> int:
    """Do in this process what a worker does with a part."""
    if job == "store":
        checks = checks_for({"signatures": signatures})
        return sum(batch.num_rows for batch in tally_batches(stored_rows(part), checks))
    batches = payment_batches(stored_rows(part), checks_for({}))
    return sum(batch.num_rows for batch in batches)


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


def measure_plain(job: str, directory: Path, signatures: str = "0") -> dict[str, float]:
    """Measure one and two plain processes."""
    return {
        f"plain, {processes}": plain(directory, job, processes, signatures) for processes in (1, 2)
    }


def measure_spark(job: str, directory: Path, signatures: str = "0") -> dict[str, float]:
    """Measure Spark with one and two cores."""
    return {
        f"local[{cores}]": spark(directory, job, cores, signatures)["seconds"] for cores in (1, 2)
    }


def measure_memory(place: Path, blocks: int) -> dict[str, float]:
    """Measure the driver's memory over a tenth of the blocks, and over all."""
    found: dict[str, float] = {}
    for count in (blocks // 10, blocks):
        told = spark(place / f"{count}", "store", 2)
        found |= {f"{count} {what}": told[what] for what in ("heap", "python")}
    return found


def make(place: Path, blocks: int) -> None:
    """Make the stores that are not there yet."""
    now = datetime.now(UTC).replace(microsecond=0)
    for name, count in (("warm", 100), (f"{blocks // 10}", blocks // 10), (f"{blocks}", blocks)):
        if not (place / name).is_dir():
            make_store(place / name, count, now=now)
    if not (place / "signed").is_dir():
        make_keys(place / "signed", SIGNED, now=now)


def tell_rates(what: str, rows: int, seconds: dict[str, float]) -> None:
    """Print the rates of a job and the ratios of those that are known."""
    print(f"\n{what}: {rows:,} rows")
    for name, taken in seconds.items():
        print(f"  {name:20} {taken:8.1f} s {rows / taken:12,.0f} rows/s")
    for slow, fast in (
        ("local[1]", "local[2]"),
        ("plain, 2", "local[2]"),
        ("plain, 1", "plain, 2"),
    ):
        if slow in seconds and fast in seconds:
            print(f"  {f'{fast} / {slow}':30} {seconds[slow] / seconds[fast]:6.2f}")


def rows_of(directory: Path, types: Sequence[str] | None) -> int:
    """Return how many rows of some types a store has."""
    counts = counts_by_type(find_stores(directory)[0])
    return sum(count for kind, count in counts.items() if types is None or kind in types)


def run(part: str, place: Path, blocks: int) -> None:
    """Measure one part; what was found stays beside the stores, to be told with the rest."""
    whole, signed = place / f"{blocks}", place / "signed"
    measured: dict[str, Callable[[], dict[str, float]]] = {
        "store-plain": partial(measure_plain, "store", whole),
        "store-spark": partial(measure_spark, "store", whole),
        "pow-plain": partial(measure_plain, "pow", whole),
        "pow-spark": partial(measure_spark, "pow", whole),
        "signatures-plain": partial(measure_plain, "store", signed, "1"),
        "signatures-spark": partial(measure_spark, "store", signed, "1"),
        "memory": partial(measure_memory, place, blocks),
    }
    start = time.perf_counter()
    figures = measured[part]()
    (place / f"{blocks}-{part}.json").write_text(json.dumps(figures))
    print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def tell(place: Path, blocks: int) -> None:
    """Print all that was measured so far."""

    def found(part: str) -> dict[str, float]:
        path = place / f"{blocks}-{part}.json"
        figures: dict[str, float] = json.loads(path.read_text()) if path.is_file() else {}
        return figures

    print(f"{os.cpu_count()} cores; stamps are weighed by {IMPLEMENTATION} code")
    for what, directory, types in (
        ("store", place / f"{blocks}", None),
        ("pow", place / f"{blocks}", TYPES),
        ("signatures", place / "signed", None),
    ):
        seconds = found(f"{what}-plain") | found(f"{what}-spark")
        if seconds:
            tell_rates(what, rows_of(directory, types), seconds)
    memory = found("memory")
    for count in (blocks // 10, blocks) if memory else ():
        print(
            f"driver of store, {count:,} rows: heap {memory[f'{count} heap']:.0f} MiB after"
            f" collection, Python {memory[f'{count} python']:.0f} MiB at most"
        )


def main(parts: Sequence[str], place: Path, blocks: int) -> None:
    """Make what is missing, measure the parts, and tell what is known of all."""
    for part in parts:
        if part == "make":
            make(place, blocks)
        else:
            run(part, place, blocks)
    tell(place, blocks)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure the audits.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--place", type=Path, help="where stores and figures stay")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return arguments


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5])
    else:
        asked = read_arguments()
        with tempfile.TemporaryDirectory(prefix="sealmail-bench-") as scratch:
            kept = asked.place or Path(scratch)
            kept.mkdir(parents=True, exist_ok=True)
            main(asked.parts or PARTS, kept, asked.blocks)
