"""Minting: every stamp found is good, at the price the birthday paradox sets."""

import itertools
import random
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmail_pow import Difficulty, MintCancelled, kernels, machine, mint, solve, verify
from sealmail_pow.odds import expected_hashes
from sealmail_pow.pure import _meeting, _Trail
from sealmail_pow.search import useful_threads

COMPILED = [kernel for kernel in kernels() if kernel != "python"]
# Three nonces over 18 bits take as long as two over 24.
MOST_BITS = {2: 24, 3: 18, 4: 16}
difficulties = st.sampled_from(sorted(MOST_BITS)).flatmap(
    lambda nonces: st.builds(Difficulty, st.integers(0, MOST_BITS[nonces]), st.just(nonces))
)


def seeded(seed: int) -> Callable[[int], bytes]:
    """Return a source of random bytes that a test can repeat."""
    return random.Random(seed).randbytes  # noqa: S311 -- repeatable on purpose


@pytest.mark.parametrize("kernel", kernels())
@settings(deadline=None, max_examples=40)
@given(
    data=st.binary(max_size=200),
    difficulty=difficulties,
    deterministic=st.booleans(),
    seed=st.integers(),
)
def test_what_is_minted_verifies(
    kernel: str, data: bytes, difficulty: Difficulty, deterministic: bool, seed: int
) -> None:
    """A stamp has the nonces asked for and meets its difficulty, whichever search found it."""
    stamp = solve(
        data,
        difficulty,
        deterministic=deterministic,
        random_bytes=seeded(seed),
        kernel=kernel,
    ).stamp
    assert len(stamp.nonces) == difficulty.nonces
    assert verify(data, stamp, difficulty)


@pytest.mark.parametrize("kernel", kernels())
@pytest.mark.parametrize("bits", range(24, 37))
def test_the_walk_finds_any_number_of_bits(bits: int, kernel: str) -> None:
    """Prefixes that end within a byte are found as well as whole ones."""
    difficulty = Difficulty(min(bits, 32) if kernel == "python" else bits)
    stamp = solve(b"a letter", difficulty, random_bytes=seeded(bits), kernel=kernel).stamp
    assert verify(b"a letter", stamp, difficulty)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_find_one_stamp_together(threads: int) -> None:
    """However many threads search, one good stamp comes out."""
    stamp = mint(b"a letter", Difficulty(38), threads=threads)
    assert verify(b"a letter", stamp, Difficulty(38))


@pytest.mark.parametrize(
    ("difficulty", "length", "threads"),
    [
        (Difficulty(24), 60, 1),
        (Difficulty(36), 60, 1),
        (Difficulty(38), 60, 7),
        (Difficulty(24), 4096, 1),
        (Difficulty(24), 8192, 7),
        (Difficulty(24), 8 * 1024 * 1024, 7),
    ],
)
def test_threads_are_taken_where_there_is_work_for_them(
    difficulty: Difficulty, length: int, threads: int
) -> None:
    """What counts is how much is hashed, not how often."""
    assert useful_threads(difficulty, 7, length) == threads


@pytest.mark.parametrize("threads", [0, -1, 257])
def test_a_number_of_threads_without_meaning_is_refused(threads: int) -> None:
    """A search has at least one thread and no more than any machine could use."""
    with pytest.raises(ValueError, match="1 to 256 threads"):
        mint(b"a letter", Difficulty(8), threads=threads)


@pytest.mark.parametrize(
    ("one", "other", "meeting"),
    [
        pytest.param(_Trail(b"b", 3), _Trail(b"x", 3), (b"b", b"x"), id="equal-lengths"),
        pytest.param(_Trail(b"x", 3), _Trail(b"a", 4), (b"b", b"x"), id="one-is-longer"),
        pytest.param(_Trail(b"a", 4), _Trail(b"b", 3), None, id="one-begins-on-the-other"),
        pytest.param(_Trail(b"a", 4), _Trail(b"a", 4), None, id="the-same-trail"),
    ],
)
def test_trails_meet_where_two_places_lead_to_one(
    one: _Trail, other: _Trail, meeting: tuple[bytes, bytes] | None
) -> None:
    """Trails of any lengths are traced to the places before they join, if there are two."""
    path = {b"a": b"b", b"b": b"c", b"x": b"c", b"c": b"d", b"d": b"e"}
    assert _meeting(path.__getitem__, one, other) == meeting


@pytest.mark.parametrize("nonces", [3, 4])
def test_more_nonces_share_24_bits(nonces: int) -> None:
    """The usual number of bits is found for three and four nonces as well."""
    stamp = mint(b"a letter", Difficulty(24, nonces), random_bytes=seeded(nonces))
    assert verify(b"a letter", stamp, Difficulty(24, nonces))


@pytest.mark.parametrize("nonces", [2, 5, 10, 16])
def test_any_number_of_nonces_is_found(nonces: int) -> None:
    """Ten nonces and more are found in full, in both searches."""
    for deterministic in (True, False):
        stamp = mint(b"a letter", Difficulty(6, nonces), deterministic=deterministic)
        assert verify(b"a letter", stamp, Difficulty(6, nonces))


def test_the_deterministic_search_counts_upwards() -> None:
    """The stamp is made of nine-digit nonces in increasing order, always the same."""
    first = mint(b"a letter", Difficulty(10, 4), deterministic=True)
    assert first == mint(b"a letter", Difficulty(10, 4), deterministic=True)
    assert list(first.nonces) == sorted(first.nonces)
    assert {len(nonce) for nonce in first.nonces} == {9}
    assert mint(b"", Difficulty(0, 3), deterministic=True).nonces == (
        "000000000",
        "000000001",
        "000000002",
    )


@pytest.mark.parametrize("bits", [16, 24])
def test_two_searches_find_different_stamps(bits: int) -> None:
    """Without the deterministic order the nonces are drawn afresh for each search."""
    assert mint(b"a letter", Difficulty(bits)) != mint(b"a letter", Difficulty(bits))


@pytest.mark.parametrize("bits", [16, 24])
def test_the_same_randomness_finds_the_same_stamp(bits: int) -> None:
    """All randomness of a search comes from the source it is given."""
    stamps = {mint(b"a letter", Difficulty(bits), random_bytes=seeded(7)) for _ in range(2)}
    assert len(stamps) == 1


@pytest.mark.parametrize("kernel", kernels())
@pytest.mark.parametrize(
    ("difficulty", "solves"),
    [
        pytest.param(Difficulty(16), 800, id="table-16"),
        pytest.param(Difficulty(20), 400, id="table-20"),
        pytest.param(Difficulty(12, 3), 200, id="table-of-three"),
        pytest.param(Difficulty(24), 200, id="walk-24"),
    ],
)
def test_the_work_is_what_the_birthday_paradox_asks(
    difficulty: Difficulty, solves: int, kernel: str
) -> None:
    """On average a search takes the expected number of hashes, not noticeably more or fewer."""
    randomness = seeded(20)
    work = statistics.fmean(
        solve(b"letter %d" % count, difficulty, random_bytes=randomness, kernel=kernel).hashes
        for count in range(solves)
    )
    assert 0.85 < work / expected_hashes(difficulty) < 1.15


# 2 000 searches scatter by 1.2 per cent about their mean.
@pytest.mark.parametrize("kernel", [pytest.param(kernels()[0], id="fastest")])
def test_the_deterministic_search_wastes_no_hash(kernel: str) -> None:
    """Over 2 000 mints at 24 bits the mean is within five per cent of 1.2533 times 2^12."""
    work = statistics.fmean(
        solve(b"letter %d" % count, Difficulty(24), deterministic=True, kernel=kernel).hashes
        for count in range(2000)
    )
    assert 0.95 < work / (1.2533 * 2**12) < 1.05


@pytest.mark.parametrize("kernel", kernels())
@pytest.mark.parametrize("data_length", [*range(36, 130), 5000])
def test_a_nonce_costs_no_block_that_could_be_saved(data_length: int, kernel: str) -> None:
    """The nonce fits into the last block of SHA-256 where enough digits fit at all."""
    solution = solve(
        bytes(data_length), Difficulty(8), random_bytes=seeded(data_length), kernel=kernel
    )
    (length,) = {len(nonce) for nonce in solution.stamp.nonces}
    # In Python a count of three digits and four of salt; in C a count of nine.
    needed = 3 + 4 if kernel == "python" else 9
    assert needed <= length <= 16

    def blocks(nonce_length: int) -> int:
        return (data_length + nonce_length + 9 + 63) // 64

    assert blocks(length) == blocks(needed)


@pytest.mark.parametrize("kernel", kernels())
@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_large_data_are_stamped_in_any_buffer(
    buffer: type[bytes | bytearray | memoryview], kernel: str
) -> None:
    """A data block of 8 MiB gets its stamp, and is left as it was."""
    block = bytes(range(256)) * (32 * 1024)
    held = buffer(block)
    stamp = solve(held, Difficulty(6), random_bytes=seeded(6), kernel=kernel).stamp
    assert verify(block, stamp, Difficulty(6))
    assert held == block


@pytest.mark.parametrize("kernel", kernels())
@pytest.mark.parametrize(
    ("data", "difficulty", "deterministic"),
    [
        pytest.param(b"a letter", Difficulty(256), False, id="walk"),
        pytest.param(b"a letter", Difficulty(255), True, id="count"),
        pytest.param(b"a letter", Difficulty(128, 3), False, id="table"),
        pytest.param(bytes(1024 * 1024), Difficulty(64), False, id="large-data"),
    ],
)
def test_a_search_ends_when_cancelled(
    data: bytes, difficulty: Difficulty, deterministic: bool, kernel: str
) -> None:
    """``cancel`` is asked again and again; a yes ends a search without hope at once."""
    answers = iter([False] * 10 + [True])
    with pytest.raises(MintCancelled, match=str(difficulty)) as stopped:
        solve(
            data,
            difficulty,
            deterministic=deterministic,
            cancel=lambda: next(answers),
            kernel=kernel,
        )
    # A search that counts may have been waiting for the memory of its table till then.
    assert stopped.value.hashes > 0 or deterministic or difficulty.nonces > 2
    assert next(answers, None) is None


SEARCHES_WITHOUT_HOPE = [
    pytest.param(b"a letter", Difficulty(64), {"threads": 1}, id="walk"),
    pytest.param(b"a letter", Difficulty(64), {"threads": 2}, id="two-threads"),
    pytest.param(b"a letter", Difficulty(64), {"deterministic": True}, id="count"),
    pytest.param(b"a letter", Difficulty(64, 3), {}, id="three-nonces"),
    pytest.param(bytes(8 * 1024 * 1024), Difficulty(64), {}, id="large-data"),
    pytest.param(b"a letter", Difficulty(64), {"kernel": "python"}, id="python"),
    pytest.param(
        b"a letter", Difficulty(64), {"kernel": "python", "deterministic": True}, id="python-count"
    ),
]


@pytest.mark.parametrize(("data", "difficulty", "how"), SEARCHES_WITHOUT_HOPE)
def test_another_thread_ends_a_search(
    data: bytes, difficulty: Difficulty, how: dict[str, Any]
) -> None:
    """A mint that would take minutes returns once another thread says that it is not wanted."""
    begun, unwanted = threading.Event(), threading.Event()
    asked: list[float] = []

    def cancel() -> bool:
        asked.append(time.thread_time())
        begun.set()
        return unwanted.is_set()

    def search() -> None:
        asked.append(time.thread_time())
        with pytest.raises(MintCancelled):
            solve(data, difficulty, cancel=cancel, **how)
        asked.append(time.thread_time())

    with ThreadPoolExecutor(1) as pool:
        minting = pool.submit(search)
        try:
            assert begun.wait(60)
            assert not minting.done()
        finally:
            unwanted.set()
        # On a loaded machine it may wait for a processor; its own time is another matter.
        minting.result(1)
    assert max(later - earlier for earlier, later in itertools.pairwise(asked[1:])) < 0.05


@pytest.mark.parametrize("kernel", COMPILED)
def test_a_search_over_long_data_looks_up_to_its_end(kernel: str) -> None:
    """Also while it hashes one message after the other, where trails meet: every few ms."""
    looks = [time.thread_time()]
    machine.native.walk(
        bytes(512 * 1024),
        16,
        "5a17" * 4,
        1,
        1,
        lambda _hashes: looks.append(time.thread_time()),
        kernel,
    )
    looks.append(time.thread_time())
    # The first is before all else, and the choice of a kernel may be.
    assert max(later - earlier for earlier, later in itertools.pairwise(looks[1:])) < 0.02


def test_cancel_is_asked_before_each_try_on_large_data() -> None:
    """Hashing 8 MiB takes milliseconds, so no second try is begun without asking."""
    asked = 0

    def count_the_question() -> bool:
        nonlocal asked
        asked += 1
        return False

    solution = solve(
        bytes(8 * 1024 * 1024),
        Difficulty(4),
        cancel=count_the_question,
        random_bytes=seeded(4),
        kernel="python",
    )
    assert asked == solution.hashes


@pytest.mark.parametrize("kernel", kernels())
@pytest.mark.parametrize("deterministic", [True, False])
def test_progress_rises_to_one(deterministic: bool, kernel: str) -> None:
    """Progress is a probability: it never falls, comes in few steps, and ends at one."""
    reports: list[float] = []
    solve(
        b"a letter",
        Difficulty(32 if kernel == "python" else 42),
        # Several threads would find another stamp each time, and some at once.
        threads=1,
        deterministic=deterministic,
        progress=reports.append,
        random_bytes=seeded(32),
        kernel=kernel,
    )
    assert reports == sorted(reports)
    assert reports[0] == 0.0
    assert reports[-1] == 1.0
    assert len(reports) > 2
    steps = [later - earlier for earlier, later in itertools.pairwise(reports[:-1])]
    assert all(step >= 0.0099 for step in steps)
