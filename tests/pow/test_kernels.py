"""The compiled kernels: all hash alike, and as SHA-256 does."""

import contextlib
import hashlib
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmail_pow import (
    Difficulty,
    MintCancelled,
    Stamp,
    fastest_kernel,
    kernels,
    level,
    machine,
    solve,
    verify,
    verify_many,
)

COMPILED = [kernel for kernel in kernels() if kernel != "python"]
GOLDEN = 0x9E3779B97F4A7C15
WORD = 0x0F0F0F0F
# Lengths about the ends of SHA-256's blocks, and of the data whose schedule is kept.
LENGTHS = [
    *range(30, 64),
    100,
    103,
    104,
    111,
    119,
    120,
    4060,
    4079,
    4080,
    4081,
    4095,
    5000,
    70_000,
]


def spelled(place: int, bits: int, data_length: int) -> bytes:
    """Spell a place as the walk does: the even digits of a word, then the odd ones."""
    hi, lo = place >> 32, place & 0xFFFFFFFF
    words = [hi & WORD, hi >> 4 & WORD]
    room = (55 - data_length) % 64
    if bits > 48:
        words += [lo & WORD, lo >> 4 & WORD]
        salt = b""
    else:
        words += [(lo & 0x0F0F0000) | (lo >> 4 & 0x0F0F0000) >> 16]
        salt = b"" if 12 <= room < 16 else b"5a17"
    digits = "".join(f"{byte:x}" for word in words for byte in word.to_bytes(4, "big"))
    return salt + digits.encode()


def walked(data: bytes, bits: int, start: int, lane: int, steps: int) -> int:
    """Walk one lane with the standard library."""
    mask = (1 << 64) - (1 << (64 - bits))
    place = (start + lane * GOLDEN) % 2**64 & mask
    for _ in range(steps):
        digest = hashlib.sha256(spelled(place, bits, len(data)) + data).digest()
        place = int.from_bytes(digest[:8], "big") & mask
    return place


def steps_of(kernel: str, data: bytes, bits: int, start: int, steps: int) -> tuple[int, ...]:
    """Walk all lanes of a kernel."""
    return machine.native.steps(kernel, data, bits, start, steps)


@pytest.mark.parametrize("kernel", COMPILED)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("bits", [24, 48, 49, 64])
def test_a_step_is_the_digest_of_nonce_and_data(kernel: str, length: int, bits: int) -> None:
    """Every lane of every kernel gives the standard library's digest, at all block ends."""
    data = bytes(range(256)) * (length // 256 + 1)
    data = data[:length]
    places = steps_of(kernel, data, bits, 42, 2)
    assert places == tuple(walked(data, bits, 42, lane, 2) for lane in range(len(places)))


@pytest.mark.parametrize("kernel", COMPILED)
@settings(max_examples=50)
@given(data=st.binary(max_size=300), bits=st.integers(1, 64), start=st.integers(0, 2**64 - 1))
def test_random_walks_agree(kernel: str, data: bytes, bits: int, start: int) -> None:
    """On random data, bits and starts the lanes walk as the standard library does."""
    places = steps_of(kernel, data, bits, start, 3)
    assert places == tuple(walked(data, bits, start, lane, 3) for lane in range(len(places)))


@pytest.mark.parametrize("nonces", [2, 3, 5])
@pytest.mark.parametrize("length", LENGTHS)
def test_all_searches_that_count_find_the_same(length: int, nonces: int) -> None:
    """Kernel or Python, counting from zero has one answer, with as many hashes."""
    data = bytes(length)
    difficulty = Difficulty({2: 16, 3: 9, 5: 5}[nonces], nonces)
    found = {solve(data, difficulty, deterministic=True, kernel=each) for each in kernels()}
    assert len(found) == 1


@pytest.mark.parametrize("kernel", COMPILED)
@pytest.mark.parametrize("nonces", [2, 3])
def test_a_full_table_is_followed_by_another(kernel: str, nonces: int) -> None:
    """A search that takes far longer than expected counts on and forgets nothing."""
    difficulty = Difficulty({2: 18, 3: 12}[nonces], nonces)
    for letter in (b"letter %d" % count for count in range(10)):
        # Who expects two hashes gets the smallest table, of some two hundred.
        found = machine.native.count(letter, difficulty.bits, nonces, 2.0, None, None, kernel)
        expected = solve(letter, difficulty, deterministic=True, kernel="python")
        assert found == (expected.stamp.nonces, expected.hashes)


@pytest.mark.parametrize("kernel", COMPILED)
def test_a_search_that_would_take_all_memory_ends(kernel: str) -> None:
    """The number of tables is bounded; a search that fills them all is an error."""
    with pytest.raises(MemoryError):
        machine.native.count(b"a letter", 64, 2, 2.0, None, None, kernel)


@pytest.mark.parametrize("length", [0, 60, 8 * 1024 * 1024])
def test_the_fastest_is_one_of_those_that_run(length: int) -> None:
    """The race names a kernel of this machine, and keeps to it."""
    assert fastest_kernel(length) in kernels()
    assert fastest_kernel(length) == fastest_kernel(length)


def test_python_serves_long_data_where_hashlib_is_faster() -> None:
    """With SHA instructions that our kernels do not know; never for short data."""
    lead = machine._lead_of_hashlib() if COMPILED else 2.0
    assert (fastest_kernel(8 * 1024 * 1024) == "python") == (lead > 1)
    assert (fastest_kernel(8 * 1024 * 1024, threads=256) == "python") == (not COMPILED)
    assert (fastest_kernel(4096) == "python") == (not COMPILED)


def test_the_implementation_is_named() -> None:
    """What runs is said, and Python is always there to fall back on."""
    assert machine.IMPLEMENTATION in {"native", "python"}
    assert (machine.IMPLEMENTATION == "native") == (len(kernels()) > 1)
    assert kernels()[-1] == "python"


def test_an_unknown_kernel_is_refused() -> None:
    """A kernel that this machine has not is an error, never another kernel."""
    if machine.IMPLEMENTATION == "native":
        with pytest.raises(ValueError, match="no kernel named abacus"):
            solve(b"", Difficulty(8), kernel="abacus")


@pytest.mark.parametrize("kernel", COMPILED)
@pytest.mark.parametrize("length", [60, 8 * 1024 * 1024])
@pytest.mark.parametrize("threads", [1, 3])
def test_other_threads_run_during_a_search(kernel: str, length: int, threads: int) -> None:
    """A search holds the interpreter for moments only, and ends soon after it is told to."""
    wanted = threading.Event()
    ended = threading.Event()

    def search() -> None:
        with contextlib.suppress(MintCancelled):
            solve(
                bytes(length),
                Difficulty(200),
                threads=threads,
                cancel=wanted.is_set,
                kernel=kernel,
            )
        ended.set()

    thread = threading.Thread(target=search)
    thread.start()
    for _ in range(1000):
        time.sleep(0)
    assert not ended.is_set()
    wanted.set()
    # Fifty milliseconds is what it should take; a loaded machine is given longer.
    assert ended.wait(1)
    thread.join()


pairs = st.lists(
    st.tuples(
        st.binary(max_size=700),
        st.lists(st.text("0123456789abcdef", min_size=1, max_size=64), min_size=2, unique=True)
        .map(lambda nonces: tuple(nonces[:16]))
        .map(Stamp),
    )
)


@pytest.mark.parametrize("kernel", kernels())
@settings(max_examples=40)
@given(many=pairs, bits=st.integers(0, 3), nonces=st.integers(2, 4))
def test_many_stamps_are_verified_as_one_by_one(
    kernel: str, many: list[tuple[bytes, Stamp]], bits: int, nonces: int
) -> None:
    """A batch has the verdicts of its stamps, whatever their lengths, in order."""
    difficulty = Difficulty(bits, nonces)
    assert verify_many(many, difficulty, kernel=kernel) == [
        verify(data, stamp, difficulty) for data, stamp in many
    ]


@pytest.mark.parametrize("kernel", kernels())
@pytest.mark.parametrize("length", [0, 1, 55, 447, 448, 503, 504, 4095, 4096, 4300, 70_000])
@pytest.mark.parametrize("nonces", [2, 3])
def test_good_stamps_pass_in_a_batch(length: int, nonces: int, kernel: str) -> None:
    """Stamps over data of any length are recognised, in any buffer; changed data are not."""
    data = bytes(length)
    difficulty = Difficulty(8, nonces)
    stamp = solve(data, difficulty).stamp
    batch = [(buffer(data), stamp) for buffer in (bytes, bytearray, memoryview)]
    assert verify_many(batch, difficulty, kernel=kernel) == [True] * 3
    assert verify_many([(data + b"x", stamp)], Difficulty(24, nonces), kernel=kernel) == [False]
    assert verify_many(iter(batch), Difficulty(8, nonces + 1), kernel=kernel) == [False] * 3


def spoilt(data: bytes, stamp: Stamp, difficulty: Difficulty) -> bytes:
    """Return other data, for which the stamp is not good by chance either."""
    ends = (bytes([number]) for number in range(256))
    return next(data + end for end in ends if not verify(data + end, stamp, difficulty))


@pytest.mark.parametrize("kernel", COMPILED)
def test_good_and_bad_stamps_keep_their_places_in_a_batch(kernel: str) -> None:
    """Verdicts come in the order of the stamps, though messages wait for others of their size."""
    difficulty = Difficulty(12)
    good = [(bytes(length), solve(bytes(length), difficulty).stamp) for length in range(0, 400, 7)]
    bad = [(spoilt(data, stamp, difficulty), stamp) for data, stamp in good]
    mixed = [pair for both in zip(good, bad, strict=True) for pair in both]
    assert verify_many(mixed, difficulty, kernel=kernel) == [True, False] * len(good)


class Forged:
    """Looks like a stamp to who does not check."""

    def __init__(self, nonces: object) -> None:
        self.nonces = nonces


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(Forged(("a", "b" * 65)), id="long-nonce"),
        pytest.param(Forged(("a", "b" * 10_000_000)), id="endless-nonce"),
        pytest.param(Forged(("a", "é")), id="latin"),
        pytest.param(Forged(("a", "😀")), id="wide"),
        pytest.param(Forged(("a", b"b")), id="bytes"),
        pytest.param(Forged(("a", None)), id="none"),
        pytest.param(Forged(("a",) * 17), id="seventeen"),
    ],
)
def test_a_forged_stamp_is_refused_by_the_compiled_check(hostile: Forged) -> None:
    """What is not a stamp is an error, not memory read beyond its end."""
    if machine.IMPLEMENTATION == "native":
        with pytest.raises(ValueError, match="nonce"):
            machine.native.verify_many([(b"data", hostile)], 8, 2, level, None)  # type: ignore[list-item]


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param([b"data"], id="no-pair"),
        pytest.param([(b"data",)], id="single"),
        pytest.param([(b"data", object())], id="no-stamp"),
        pytest.param(["text"], id="text"),
        pytest.param([("text", Stamp(("1", "2")))], id="data-as-text"),
        pytest.param(7, id="no-list"),
    ],
)
def test_what_is_no_batch_is_refused(batch: object) -> None:
    """Wrong types raise, in Python and in C."""
    with pytest.raises((TypeError, ValueError, AttributeError)):
        verify_many(batch, Difficulty(8))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((b"", 15, "0" * 16, 0, 1, None, None), id="few-bits"),
        pytest.param((b"", 257, "0" * 16, 0, 1, None, None), id="many-bits"),
        pytest.param((b"", 24, "0" * 15, 0, 1, None, None), id="short-salt"),
        pytest.param((b"", 24, "x" * 16, 0, 1, None, None), id="other-salt"),
        pytest.param((b"", 24, "0" * 16, 0, 0, None, None), id="no-thread"),
        pytest.param((b"", 24, "0" * 16, 0, 10**6, None, None), id="many-threads"),
    ],
)
def test_a_walk_beyond_its_bounds_is_refused(
    arguments: tuple[bytes, int, str, int, int, None, None],
) -> None:
    """The compiled module checks for itself what its memory safety needs."""
    if machine.IMPLEMENTATION == "native":
        with pytest.raises(ValueError, match=r"walk|salt"):
            machine.native.walk(*arguments)


@pytest.mark.parametrize(
    ("bits", "nonces", "salt"),
    [(257, 2, None), (8, 1, None), (8, 17, None), (8, 2, "0" * 17), (8, 2, "")],
)
def test_a_count_beyond_its_bounds_is_refused(bits: int, nonces: int, salt: str | None) -> None:
    """The same holds for the search that counts."""
    if machine.IMPLEMENTATION == "native":
        with pytest.raises(ValueError, match=r"bits|nonces|salt"):
            machine.native.count(b"", bits, nonces, 10.0, salt, None, None)
