"""Measures the audits: Spark with one and two cores against plain processes running the same code.

    bench_spark.py [--blocks N] [--keys N] [--place DIRECTORY] [PART ...]

By default all parts with 2 000 000 blocks, made first and removed afterwards. In a DIRECTORY
stores and figures stay, so that parts can be run one by one; each tells what is known of all, and
when and beside how much other work it was measured. Every round runs in fresh processes, since
verifiers remember what they verified. The start of Spark, and of the processes, is not counted.
Signatures are verified of people with twenty claims each, and of people with one. Plain processes
and Spark must find the same, and every signature good. One block in two thousand is faulty, so
that there is something to be found. Aims stand beside the figures that they are for.
"""

import argparse
import json
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

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
KEYS = 5000
KEYS_AND_CLAIMS = ("key-announcement", "address-claim")
# The driver's memory is measured of these.
MEASURED_JOBS = ("store", "pow")
BACKGROUND = Background(Market(37e6))
# Which figures tell that plain processes and Spark found the same.
COMPARED = ("blocks", "signature", "paid")
# A store has as many faults of each kind as this goes into its blocks.
FAULTLESS = 50_000
# What is asked of a ratio of seconds, and of signatures a second on each core.
AIMS = {("local[1]", "local[2]"): 1.7, ("plain, 2", "local[2]"): 0.75}
SIGNATURES_A_CORE = {"local[1]": 4000, "local[2]": 3000}


class Task(NamedTuple):
    """What is measured: a job over some store, in partitions of so many rows."""

    job: str
    store: str
    rows: int = 50_000
    signatures: str = "0"


class Outcome(NamedTuple):
    """The seconds that something took by name, and what was found, which is always the same."""

    seconds: dict[str, float]
    found: dict[str, float]


def tasks(blocks: int) -> dict[str, Task]:
    """Return what is measured; signatures take so long that small parts share them out better."""
    return {
        "store": Task("store", f"{blocks}"),
        "pow": Task("pow", f"{blocks}"),
        "signatures": Task("store", "signed", 2000, "1"),
        "signatures-once": Task("store", "signed-once", 2000, "1"),
    }


PARTS = ("make", *(f"{name}-{how}" for name in tasks(0) for how in ("plain", "spark")), "memory")


def plain_part(part: KeyRange, task: Task) -> Counter[str]:
    """Do in this process what a worker does with a part, and tell some of what it found."""
    if task.job == "store":
        checks = checks_for({"signatures": task.signatures})
        return tallied(tally_batches(stored_rows(part), checks))
    return paid(payment_batches(stored_rows(part), checks_for({})))


def tallied(batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    """Count blocks, signatures and findings, named as the figures of the job."""
    found: Counter[str] = Counter()
    for batch in batches:
        names = ("type", "signature", "blocks", "code")
        columns = [batch.column(name).to_pylist() for name in names]
        for kind, signature, blocks, code in zip(*columns, strict=True):
            found["findings"] += code is not None
            found[f"blocks {kind}"] += blocks
            if signature is not None:
                found[f"signature {kind} {signature}"] += blocks
    return found


def paid(batches: Iterable[pa.RecordBatch]) -> Counter[str]:
    """Count mails by what they paid, named as the figures of the job."""
    found: Counter[str] = Counter()
    for batch in batches:
        counts = batch.filter(batch.column("mails").is_valid())
        columns = [counts.column(name).to_pylist() for name in ("kind", "bits", "mails")]
        for kind, bits, mails in zip(*columns, strict=True):
            found[f"paid {kind} {bits}"] += mails
    return found


def plain(place: Path, task: Task, processes: int) -> Outcome:
    """Measure plain processes, their start aside."""
    types = TYPES if task.job == "pow" else None
    parts = key_ranges(find_stores(place / task.store), types, task.rows)
    work = partial(plain_part, task=task)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        # All are up once each has done nothing.
        list(pool.map(time.sleep, [0.2] * processes))
        start = time.perf_counter()
        counts = list(pool.map(work, parts))
        seconds = time.perf_counter() - start
    return Outcome({f"plain, {processes}": seconds}, dict(+sum(counts, Counter[str]())))


class SparkRun(NamedTuple):
    """What a job took under Spark, what it found, and the driver's memory in MiB.

    ``lasting`` is the most that objects took which outlived some collections.
    """

    seconds: float
    found: dict[str, float]
    heap: float
    lasting: float
    python: float


def spark(place: Path, task: Task, cores: int) -> SparkRun:
    """Measure a job under Spark with so many cores."""
    command = [sys.executable, __file__, "--one", str(place), str(cores), json.dumps(task)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return SparkRun(*json.loads(done.stdout))


def one(place: Path, cores: int, task: Task) -> None:
    """Run a job in this process and print what it took."""
    session = open_session(f"local[{cores}]")
    job = JOBS[task.job]
    # Spark loads and compiles at its first query; that belongs to its start.
    warm = job(Tables(session, [place / "warm"], Wish()), BACKGROUND)
    warm.findings.count(), warm.figures.count()
    wish = Wish(signatures=float(task.signatures), rows=task.rows)
    audit = job(Tables(session, [place / task.store], wish), BACKGROUND)
    start = time.perf_counter()
    findings, figures = audit.findings.count(), audit.figures.collect()
    seconds = time.perf_counter() - start
    found = {
        f"{row['measure']} {row['group']}": row["value"]
        for row in figures
        if row["measure"] in COMPARED
    }
    if task.job == "store" and findings:
        found["findings"] = findings
    java: Any = session.sparkContext._jvm.java  # type: ignore[union-attr]
    pools = java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    old = (pool for pool in pools if re.search("Old|Tenured", pool.getName()))
    lasting = sum(pool.getPeakUsage().getUsed() for pool in old) / MIB
    runtime = java.lang.Runtime.getRuntime()
    java.lang.System.gc()
    heap = (runtime.totalMemory() - runtime.freeMemory()) / MIB
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    close_session()
    print(json.dumps(SparkRun(seconds, found, heap, lasting, own)))


def measure_plain(place: Path, task: Task) -> Outcome:
    """Measure one and two plain processes."""
    return together([plain(place, task, processes) for processes in (1, 2)])


def measure_spark(place: Path, task: Task) -> Outcome:
    """Measure Spark with one and two cores."""
    runs = {f"local[{cores}]": spark(place, task, cores) for cores in (1, 2)}
    return together([Outcome({name: run.seconds}, run.found) for name, run in runs.items()])


def measure_memory(place: Path, blocks: int) -> Outcome:
    """Measure the driver's memory over a tenth of the blocks, and over all."""
    found: dict[str, float] = {}
    for job in MEASURED_JOBS:
        for count in (blocks // 10, blocks):
            run = spark(place, Task(job, f"{count}"), 2)
            kinds = {"heap": run.heap, "lasting": run.lasting, "python": run.python}
            found |= {f"{job} {count} {kind}": value for kind, value in kinds.items()}
    return Outcome(found, {})


def together(outcomes: Sequence[Outcome]) -> Outcome:
    """Join what was measured in several ways, all of which must have found the same."""
    known = [each for each in outcomes if each.seconds]
    if any(each.found != known[0].found for each in known):
        raise SystemExit(f"not the same was found: {[each.found for each in known]}")
    seconds = {name: value for each in known for name, value in each.seconds.items()}
    return Outcome(seconds, known[0].found if known else {})


def check_signatures(found: dict[str, float], rows: int) -> None:
    """End the benchmark unless every signature was verified and good."""
    good = sum(found.get(f"signature {kind} good", 0) for kind in KEYS_AND_CLAIMS)
    if good != rows or "findings" in found:
        raise SystemExit(f"{rows} signatures are to be good: {found}")


def make(place: Path, blocks: int, keys: int) -> None:
    """Make the stores that are not there yet."""
    now = datetime.now(UTC).replace(microsecond=0)
    for name, count in (("warm", 100), (f"{blocks // 10}", blocks // 10), (f"{blocks}", blocks)):
        if not (place / name).is_dir():
            make_store(place / name, count, faults=count // FAULTLESS, now=now)
    for name, people, claims in (("signed", keys, 20), ("signed-once", 2 * keys, 1)):
        if not (place / name).is_dir():
            make_keys(place / name, people, claims=claims, now=now)


def tell_rates(what: str, rows: int, seconds: dict[str, float], *, signed: bool) -> None:
    """Print the rates of a job and the ratios of those that are known, each with its aim."""
    print(f"\n{what}: {rows:,} rows")
    for name, taken in seconds.items():
        told = f"  {name:20} {taken:8.1f} s {rows / taken:12,.0f} rows/s"
        if signed and name in SIGNATURES_A_CORE:
            cores = int(name[-2])
            told += verdict(rows / taken / cores, SIGNATURES_A_CORE[name], "a core: ")
        print(told)
    for slow, fast in (*AIMS, ("plain, 1", "plain, 2")):
        if slow in seconds and fast in seconds:
            ratio, aim = seconds[slow] / seconds[fast], AIMS.get((slow, fast))
            # The aims for ratios are those of the jobs; signatures have their own.
            met = verdict(ratio, aim) if aim and not signed else ""
            print(f"  {f'{fast} / {slow}':30} {ratio:6.2f}{met}")


def verdict(value: float, aim: float, what: str = "") -> str:
    """Tell whether an aim is met."""
    shown = f"{value:,.0f} " if what else ""
    return f"   {what}{shown}at least {aim:,}: {'yes' if value >= aim else 'NO'}"


def rows_of(directory: Path, types: Sequence[str] | None) -> int:
    """Return how many rows of some types a store has."""
    counts = counts_by_type(find_stores(directory)[0])
    return sum(count for kind, count in counts.items() if types is None or kind in types)


def run(part: str, place: Path, blocks: int) -> None:
    """Measure one part; what was found stays beside the stores, to be told with the rest."""
    measured: dict[str, Callable[[], Outcome]] = {"memory": partial(measure_memory, place, blocks)}
    for name, task in tasks(blocks).items():
        measured[f"{name}-plain"] = partial(measure_plain, place, task)
        measured[f"{name}-spark"] = partial(measure_spark, place, task)
    start = time.perf_counter()
    outcome = measured[part]()
    (place / f"{blocks}-{part}.json").write_text(json.dumps(outcome))
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, load {os.getloadavg()[0]:.1f} at the end"
    (place / f"{blocks}-{part}.txt").write_text(f"{part}: {when}\n")
    print(f"{part}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)


def tell(place: Path, blocks: int) -> None:
    """Print all that was measured so far."""

    def known(part: str) -> Outcome:
        path = place / f"{blocks}-{part}.json"
        return Outcome(*json.loads(path.read_text())) if path.is_file() else Outcome({}, {})

    print(f"{os.cpu_count()} cores; stamps are weighed by {IMPLEMENTATION} code")
    for note in sorted(place.glob(f"{blocks}-*.txt"), key=lambda path: path.stat().st_mtime):
        print(note.read_text(), end="")
    for name, task in tasks(blocks).items():
        outcome = together([known(f"{name}-plain"), known(f"{name}-spark")])
        if outcome.seconds:
            rows = rows_of(place / task.store, TYPES if task.job == "pow" else None)
            if task.signatures == "1":
                check_signatures(outcome.found, rows)
            tell_rates(name, rows, outcome.seconds, signed=task.signatures == "1")
    if memory := known("memory").seconds:
        tell_memory(memory, blocks)


def tell_memory(memory: dict[str, float], blocks: int) -> None:
    """Print how the driver's memory grows when the blocks are ten times as many."""
    print(f"\ndriver's MiB, {blocks // 10:,} and {blocks:,} blocks, and their ratio")
    for job in MEASURED_JOBS:
        for kind, meaning in (
            ("heap", "heap after a collection"),
            ("lasting", "most that outlived collections"),
            ("python", "Python, at most"),
        ):
            few, many = (memory[f"{job} {count} {kind}"] for count in (blocks // 10, blocks))
            ratio = f"{many / few:6.2f}" if few else ""
            print(f"  {f'{job}: {meaning}':45} {few:8.0f} {many:8.0f} {ratio}")


def main(parts: Sequence[str], place: Path, blocks: int, keys: int) -> None:
    """Make what is missing, measure the parts, and tell what is known of all."""
    for part in parts:
        if part == "make":
            make(place, blocks, keys)
        else:
            run(part, place, blocks)
    tell(place, blocks)


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Measure the audits.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--keys", type=int, default=KEYS, help="of signatures; 20 claims each")
    parser.add_argument("--place", type=Path, help="where stores and figures stay")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    return arguments


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(Path(sys.argv[2]), int(sys.argv[3]), Task(*json.loads(sys.argv[4])))
    else:
        asked = read_arguments()
        with tempfile.TemporaryDirectory(prefix="sealmail-bench-") as scratch:
            kept = asked.place or Path(scratch)
            kept.mkdir(parents=True, exist_ok=True)
            main(asked.parts or PARTS, kept, asked.blocks, asked.keys)
