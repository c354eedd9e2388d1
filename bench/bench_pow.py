"""The proof of work against hashlib and a dictionary, each figure a ratio within this run.

What is compared takes turns many times, and the clock is that of the processor time, so that other
programs disturb little; but for threads, where the time on the wall counts. One core unless said.
Arguments name the parts to run, by default all.
"""

import asyncio
import hashlib
import math
import multiprocessing
import secrets
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

from sealmail_pow import (
    IMPLEMENTATION,
    Difficulty,
    MintCancelled,
    Stamp,
    fastest_kernel,
    kernels,
    machine,
    mint,
    mint_off_loop,
    solve,
    verify_many,
)
from sealmail_pow.odds import expected_hashes

LETTER = bytes(range(60))
BLOCK = bytes(8 * 1024 * 1024)
ROUNDS = 5
# What each kernel is to reach at level 48, in searches like that of the baseline.
GOALS_AT_48 = {"avx512": 45, "shani": 40, "avx2": 20, "portable": 3.5}
GOAL_OF_COUNTING = 20
# A whole search of the baseline takes half a minute; in so many parts, so that all others have
# their turns while the machine is the same.
BASELINE_ROUNDS = 3
BASELINE_PARTS = 16
WORK_SOLVES = {24: 10_000, 32: 2_000, 40: 500, 48: 300}
LONG_BLOCKS = 48
# How many stamps make a batch over so many bytes.
STAMPS_TO_VERIFY = {60: 100_000, 1024: 20_000, 4096: 5_000}
clock = time.process_time


def main() -> None:
    """Print every figure beside its goal."""
    if IMPLEMENTATION != "native":
        sys.exit("there is no compiled search here to measure")
    parts = {
        "work": measure_work,
        "level-48": measure_level_48,
        "search": measure_search_against_kernel,
        "threads": measure_threads,
        "memory": measure_memory,
        "small": measure_small_mint,
        "verify": measure_verify_many,
        "long": measure_long_data,
        "cancel": measure_cancel,
    }
    wanted = sys.argv[1:] or list(parts)
    if not set(wanted) <= set(parts):
        sys.exit(f"the parts are {', '.join(parts)}")
    print(f"kernels: {' '.join(kernels())}")
    print(f"fastest: {fastest_kernel(60)} for a letter, {fastest_kernel(len(BLOCK))} for 8 MiB\n")
    for part in wanted:
        parts[part]()


def show(what: str, figure: str, goal: str, reached: bool) -> None:
    """Print one line."""
    print(f"{what:58} {figure:>26}   {goal:20} {'yes' if reached else 'NO'}", flush=True)


@contextmanager
def timed(into: list[float]) -> Iterator[None]:
    """Add the seconds that the body took to a list."""
    start = clock()
    yield
    into.append(clock() - start)


def taking_turns(*measures: Callable[[], float], rounds: int = ROUNDS) -> list[list[float]]:
    """Run each measurement in turn, several times; return the results of each."""
    found = [[measure() for measure in measures] for _ in range(rounds)]
    return [list(results) for results in zip(*found, strict=True)]


def ratio(one: list[float], other: list[float]) -> tuple[float, str]:
    """Return the median of the ratios round by round, and the text that shows their range."""
    ratios = sorted(first / second for first, second in zip(one, other, strict=True))
    middle = statistics.median(ratios)
    return middle, f"{middle:.2f} ({ratios[0]:.2f} - {ratios[-1]:.2f})"


def baseline_search() -> Iterator[float]:
    """Search level 48 as anybody would write it; give the seconds of each part.

    It is one whole search of the expected length, which ends with two gigabytes in the
    dictionary and half the rate that it began with.
    """
    hashes = round(expected_hashes(Difficulty(48)))
    bounds = [hashes * part // BASELINE_PARTS for part in range(BASELINE_PARTS + 1)]
    seen: dict[bytes, bytes] = {}
    pairs = 0
    for begin, end in pairwise(bounds):
        start = clock()
        for number in range(begin, end):
            nonce = b"%09x" % number
            prefix = hashlib.sha256(nonce + LETTER).digest()[:6]
            if prefix in seen:
                pairs += 1
            seen[prefix] = nonce
        yield clock() - start


def search_rate(
    kernel: str | None,
    bits: int,
    seconds: float,
    threads: int = 1,
    clock: Callable[[], float] = clock,
) -> float:
    """Mint one stamp after the other; return the hashes a second, all overhead included.

    The last search is cancelled when the time is up; its hashes count, like its time.
    """
    difficulty = Difficulty(bits)
    hashes = 0
    start = clock()

    def is_over() -> bool:
        return clock() - start >= seconds

    # A search of a millisecond ends by itself before it could be asked to.
    cancel = is_over if bits > 32 else None
    try:
        while not is_over():
            found = solve(LETTER, difficulty, threads=threads, kernel=kernel, cancel=cancel)
            hashes += found.hashes
    except MintCancelled as cancelled:
        hashes += cancelled.hashes
    return hashes / (clock() - start)


def counting() -> tuple[float, float]:
    """Count to the first collision of 48 bits as the original does; return hashes and seconds."""
    start = clock()
    found = solve(secrets.token_bytes(60), Difficulty(48), deterministic=True)
    return found.hashes, clock() - start


def kernel_rate(kernel: str) -> float:
    """Let a kernel hash and do nothing else; return the hashes a second."""
    lanes = len(machine.native.steps(kernel, LETTER, 48, 1, 1))
    steps = 4096
    hashes = 0
    start = clock()
    while (elapsed := clock() - start) < 0.1:
        machine.native.steps(kernel, LETTER, 48, 1, steps)
        hashes += lanes * steps
    return hashes / elapsed


def work_of(bits: int, solves: int, kernel: str | None = None) -> tuple[float, float]:
    """Return the mean hashes of many searches against the expectation, and its standard error."""
    difficulty = Difficulty(bits)
    expected = expected_hashes(difficulty)
    used = [solve(LETTER, difficulty, kernel=kernel).hashes / expected for _ in range(solves)]
    return statistics.fmean(used), statistics.stdev(used) / math.sqrt(solves)


def measure_work() -> None:
    """Compare the hashes of many searches with what the birthday paradox expects."""
    names = [name for name in kernels() if name != "python"]
    for bits, solves in WORK_SOLVES.items():
        # The slower ones have their turn where mints are short; lanes and points are their own.
        for name in names if bits < 40 else [fastest_kernel(len(LETTER))]:
            work, error = work_of(bits, solves, name)
            show(
                f"hashes against the expectation, {name}, {bits} bits, {solves} mints",
                f"{work:.3f} +- {error:.3f}",
                "at most 1.1",
                work <= 1.1,
            )


def measure_level_48() -> None:
    """Compare the time to a stamp of level 48 with the baseline's, kernel by kernel."""
    names = [name for name in kernels() if name in GOALS_AT_48]
    # The share of the hashes that only overhead needs falls with the bits; at 24 it can be
    # measured in no time to half a per cent, where 300 mints of 48 bits leave three.
    works = {name: max(1.0, work_of(24, WORK_SOLVES[24], name)[0]) for name in names}
    baselines: list[float] = []
    rates: dict[str, list[float]] = {name: [] for name in (*names, "counting")}
    for _ in range(BASELINE_ROUNDS):
        seconds = 0.0
        of_parts: dict[str, list[float]] = {name: [] for name in names}
        counted: list[tuple[float, float]] = []
        for part, taken in enumerate(baseline_search()):
            seconds += taken
            for name in names:
                of_parts[name].append(search_rate(name, 48, 0.25))
            if part % 4 == 0:
                counted.append(counting())
        baselines.append(expected_hashes(Difficulty(48)) / seconds)
        for name in names:
            rates[name].append(statistics.fmean(of_parts[name]))
        rates["counting"].append(sum(h for h, _ in counted) / sum(s for _, s in counted))
    print(f"baseline: {statistics.median(baselines) / 1e6:.2f} million hashes a second")
    for name, rate in rates.items():
        # Both sides need the expected number of hashes, walks some more.
        overhead = works.get(name, 1.0)
        middle, text = ratio([each / overhead for each in rate], baselines)
        goal = GOAL_OF_COUNTING if name == "counting" else GOALS_AT_48[name]
        megahashes = statistics.median(rate) / 1e6
        what = "deterministic" if name == "counting" else name
        show(
            f"level 48 against the baseline, {what}, {megahashes:.1f} MH/s",
            text,
            f"at least {goal}",
            middle >= goal,
        )


def measure_search_against_kernel() -> None:
    """Compare whole searches with the bare kernel, for each kernel."""
    levels = {24: 0.8, 32: 0.9, 40: 0.9, 48: 0.9}
    fastest = fastest_kernel(len(LETTER))
    for kernel in kernels():
        if kernel == "python":
            continue
        goals = levels if kernel == fastest else {bits: levels[bits] for bits in (24, 48)}
        raw, *rates = taking_turns(
            partial(kernel_rate, kernel),
            *(partial(search_rate, kernel, bits, 0.2) for bits in goals),
            rounds=5 * ROUNDS,
        )
        for (bits, goal), rate in zip(goals.items(), rates, strict=True):
            middle, text = ratio(rate, raw)
            show(
                f"search against bare kernel, {kernel}, {bits} bits",
                text,
                f"at least {goal}",
                middle >= goal,
            )


def rate_into(results: "SimpleQueue[float]", start: Barrier, seconds: float) -> None:
    """Measure searches of level 48 in a process of its own, when the other one is ready."""
    fastest_kernel(len(LETTER))
    start.wait()
    results.put(search_rate(None, 48, seconds, clock=time.perf_counter))


def two_processes_rate() -> float:
    """Return what two processes reach together, each with one thread, at the same time."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    start = context.Barrier(2)
    processes = [context.Process(target=rate_into, args=(results, start, 3.0)) for _ in range(2)]
    for process in processes:
        process.start()
    total = sum(results.get() for _ in processes)
    for process in processes:
        process.join()
    return float(total)


def measure_threads() -> None:
    """Compare two threads on one search with two searches in two processes."""
    one, two, apart = taking_turns(
        lambda: search_rate(None, 48, 3.0, clock=time.perf_counter),
        lambda: search_rate(None, 48, 3.0, threads=2, clock=time.perf_counter),
        two_processes_rate,
    )
    middle, text = ratio(two, apart)
    show("two threads against two processes, 48 bits", text, "at least 0.9", middle >= 0.9)
    show("two threads against one, 48 bits", ratio(two, one)[1], "", True)


def memory_of_a_mint(bits: int, deterministic: bool) -> float:
    """Return by how many MiB a mint in a fresh process raises what it has in memory."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    process = context.Process(target=memory_into, args=(results, bits, deterministic))
    process.start()
    grown = results.get()
    process.join()
    return float(grown)


def memory_into(results: "SimpleQueue[float]", bits: int, deterministic: bool) -> None:
    """Mint, and tell the growth of the peak."""
    mint(LETTER, Difficulty(24))
    before = peak_memory()
    mint(LETTER, Difficulty(bits), deterministic=deterministic)
    results.put(peak_memory() - before)


def peak_memory() -> float:
    """Return the most MiB that this process had in memory; getrusage() counts its parent's too."""
    status = Path("/proc/self/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def measure_memory() -> None:
    """Show how little a search by distinguished points remembers."""
    grown = memory_of_a_mint(56, deterministic=False)
    show("memory of a mint, 56 bits", f"{grown:.1f} MiB", "below 8 MiB", grown < 8)
    grown = memory_of_a_mint(48, deterministic=True)
    show("memory of the deterministic search", f"{grown:.0f} MiB", "at most 512 MiB", grown <= 512)


def measure_small_mint() -> None:
    """Time the smallest price, with all of Python about it."""
    seconds: list[float] = []
    for number in range(4000):
        data = b"%060d" % number
        with timed(seconds):
            mint(data, Difficulty(24))
    mean = statistics.fmean(seconds) * 1e6
    show("a mint of 24 bits", f"{mean:.0f} microseconds", "below 250", mean < 250)


def measure_verify_many() -> None:
    """Verify batches over short and longer data with each kernel, and the same in a loop."""
    for length, stamps in STAMPS_TO_VERIFY.items():
        measure_batches(length, stamps)


def measure_batches(length: int, stamps: int) -> None:
    """Verify a batch of so many stamps, and the same in a loop with hashlib."""
    pairs = [
        (b"%0*d" % (length, number), Stamp((f"{number:016x}", f"{number + 1:016x}")))
        for number in range(stamps)
    ]

    def loop() -> float:
        start = clock()
        verdicts = []
        for data, stamp in pairs:
            first, *others = (
                int.from_bytes(hashlib.sha256(nonce.encode() + data).digest(), "big")
                for nonce in stamp.nonces
            )
            verdicts.append(all((first ^ other) >> (256 - 24) == 0 for other in others))
        return len(pairs) / (clock() - start)

    def batch(kernel: str | None) -> float:
        start = clock()
        verify_many(pairs, Difficulty(24), kernel=kernel)
        return len(pairs) / (clock() - start)

    names = [name for name in kernels() if name != "python"]
    chosen, loops, *batches = taking_turns(
        partial(batch, None), loop, *(partial(batch, name) for name in names)
    )
    for name, found in (("the fastest", chosen), *zip(names, batches, strict=True)):
        middle, text = ratio(found, loops)
        rate = statistics.median(found) / 1e6
        goal = "at least 6" if length == len(LETTER) and name == "the fastest" else ""
        what = f"verify_many of {length} bytes, {name}, {rate:.2f} million/s"
        show(what, text, goal, not goal or middle >= 6)


def mint_plainly(block: bytes) -> None:
    """Find eight bits in common by counting, with hashlib."""
    seen: set[int] = set()
    for number in count():
        running = hashlib.sha256(b"%09x" % number)
        running.update(block)
        first = running.digest()[0]
        if first in seen:
            return
        seen.add(first)


def measure_long_data() -> None:
    """Mint 8 MiB at 8 bits, counting, so that both sides need the same tries."""
    # A search takes 21 tries on average, and any number up to twice that: a few searches, as the
    # whole sample, would be off by a fifth.
    names = [name for name in kernels() if name != "python"]
    times: dict[str, list[float]] = {name: [] for name in ("hashlib", *names)}
    for number in range(LONG_BLOCKS):
        block = BLOCK + bytes([number])
        with timed(times["hashlib"]):
            mint_plainly(block)
        for name in names:
            with timed(times[name]):
                solve(block, Difficulty(8), deterministic=True, kernel=name)
    for name in names:
        gain = sum(times["hashlib"]) / sum(times[name])
        goal = "at least 3" if name == "shani" else ""
        what = f"{LONG_BLOCKS} mints of 8 MiB against hashlib, {name}"
        show(what, f"{gain:.2f}", goal, not goal or gain >= 3)


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A search that would never end, and when it is cancelled."""

    name: str
    data: bytes
    difficulty: Difficulty
    kernel: str | None = None
    deterministic: bool = False
    # Early, and where tables have grown.
    after: tuple[float, ...] = (0.05, 0.051, 0.052, 0.055, 0.06, 0.1, 0.15, 0.2)


# A deterministic search takes its first table at once and the next after two seconds.
WHILE_TABLES_GROW = (0.02, 0.05, 0.1, 0.2, 1.0, 2.0, 2.5, 3.0)
CANCELLED = [
    Cancelled("64 bits", LETTER, Difficulty(64)),
    Cancelled(
        "deterministic",
        LETTER,
        Difficulty(64),
        deterministic=True,
        after=WHILE_TABLES_GROW,
    ),
    Cancelled("three nonces", LETTER, Difficulty(64, 3), after=WHILE_TABLES_GROW),
    Cancelled("8 MiB", BLOCK, Difficulty(64)),
    Cancelled("python", LETTER, Difficulty(64), kernel="python"),
]


def milliseconds_to_end(search: Cancelled, after: float) -> float:
    """Cancel a search from another thread, and time on the wall how long it lasts."""
    unwanted = threading.Event()
    moment: list[float] = []

    def change_mind() -> None:
        moment.append(time.perf_counter())
        unwanted.set()

    timer = threading.Timer(after, change_mind)
    timer.start()
    with suppress(MintCancelled):
        solve(
            search.data,
            search.difficulty,
            kernel=search.kernel,
            deterministic=search.deterministic,
            cancel=unwanted.is_set,
        )
    ended = time.perf_counter()
    timer.join()
    return (ended - moment[0]) * 1000


async def milliseconds_off_loop(after: float) -> float:
    """Cancel a mint beside an event loop, and time how long its thread lasts."""
    before = threading.active_count()
    search = asyncio.create_task(mint_off_loop(LETTER, Difficulty(64)))
    await asyncio.sleep(after)
    moment = time.perf_counter()
    search.cancel()
    with suppress(asyncio.CancelledError):
        await search
    # The thread goes back to its pool, where it is joined.
    await asyncio.get_running_loop().shutdown_default_executor()
    assert threading.active_count() == before
    return (time.perf_counter() - moment) * 1000


def longest_wait(kernel: str) -> float:
    """Search 8 MiB to the end; return the longest time between two looks, in milliseconds.

    The last of it are single hashes, of two trails to where they met and of the stamp.
    """
    looks = [clock()]
    machine.native.walk(
        BLOCK, 16, secrets.token_hex(8), 1, 1, lambda _hashes: looks.append(clock()), kernel
    )
    looks.append(clock())
    return max(later - earlier for earlier, later in pairwise(looks)) * 1000


def measure_cancel() -> None:
    """Cancel searches without hope, of each kind, and listen to searches that end."""
    for kernel in kernels():
        if kernel != "python":
            wait = longest_wait(kernel)
            what = f"between two looks, a whole search of 8 MiB, {kernel}"
            show(what, f"{wait:.1f} ms at most", "within 50 ms", wait <= 50)
    delays = {
        search.name: [milliseconds_to_end(search, after) for after in search.after]
        for search in CANCELLED
    }
    delays["off the loop"] = [
        asyncio.run(milliseconds_off_loop(after)) for after in CANCELLED[0].after
    ]
    for name, found in delays.items():
        text = f"{statistics.median(found):.1f} ms, {max(found):.1f} at most"
        show(f"from cancel to the end, {name}", text, "within 50 ms", max(found) <= 50)


if __name__ == "__main__":
    main()
