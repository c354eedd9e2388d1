"""Weighing stamps: whole, in pieces, and against a demand."""

import hashlib
import threading
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmail_pow import Difficulty, Stamp, StampCheck, level, mint, verify
from sealmail_pow.check import WEIGHINGS

stamps = (
    st.lists(st.text("0123456789abcdef", min_size=1, max_size=64), min_size=2, unique=True)
    .map(lambda nonces: tuple(nonces[:16]))
    .map(Stamp)
)


@settings(deadline=None)
@given(stamps, st.lists(st.binary(max_size=300)), st.sampled_from([bytes, bytearray, memoryview]))
def test_bytes_in_pieces_weigh_like_the_whole(
    stamp: Stamp, chunks: list[bytes], buffer: type[bytes | bytearray | memoryview]
) -> None:
    """However the data are cut and whatever holds them, the bits are the same."""
    check = StampCheck(stamp)
    for chunk in chunks:
        check.update(buffer(chunk))
    assert check.bits() == level(b"".join(chunks), stamp)


@pytest.mark.parametrize("way", WEIGHINGS)
@settings(deadline=None)
@given(stamps, st.lists(st.integers(0, 700), max_size=12), st.randoms(use_true_random=False))
def test_every_way_of_weighing_gives_the_bits_of_the_digests(
    way: str, stamp: Stamp, sizes: list[int], random: Random
) -> None:
    """Side by side or in turn, at whatever places blocks of 64 bytes begin and end."""
    weighing = WEIGHINGS[way](stamp.nonces)
    data = b""
    for size in sizes:
        chunk = random.randbytes(size)
        weighing.update(chunk)
        data += chunk
    first, *others = (
        int.from_bytes(hashlib.sha256(nonce.encode() + data).digest(), "big")
        for nonce in stamp.nonces
    )
    assert weighing.bits() == min(256 - (first ^ other).bit_length() for other in others)


@pytest.mark.skipif("shani" not in WEIGHINGS, reason="needs SHA instructions")
@pytest.mark.parametrize(
    "nonces", [("1",), ["1", "2"], ("1", 2), ("1", "\u00e9"), ("1", "2" * 65), ("1",) * 17]
)
def test_a_weighing_takes_nothing_but_the_nonces_of_a_stamp(nonces: tuple[str, ...]) -> None:
    """What could reach beyond the memory of a weighing begins none."""
    with pytest.raises(ValueError, match="nonce"):
        WEIGHINGS["shani"](nonces)


@pytest.mark.skipif("shani" not in WEIGHINGS, reason="needs SHA instructions")
def test_a_second_thread_is_turned_away_from_a_weighing() -> None:
    """Bytes are hashed without the interpreter's lock: nobody looks at half a block."""
    weighing = WEIGHINGS["shani"](("2a", "3b"))
    thread = threading.Thread(target=weighing.update, args=(bytes(64 * 1024 * 1024),))
    thread.start()
    turned_away = 0
    while thread.is_alive():
        try:
            weighing.bits()
        except ValueError:
            turned_away += 1
    assert turned_away
    assert weighing.bits() == level(bytes(64 * 1024 * 1024), Stamp(("2a", "3b")))


@settings(deadline=None)
@given(stamps, st.binary(max_size=100))
def test_the_level_is_the_prefix_that_all_digests_share(stamp: Stamp, data: bytes) -> None:
    """The level agrees with the digests compared as binary text."""
    digests = [hashlib.sha256(nonce.encode() + data).digest() for nonce in stamp.nonces]
    binary = [f"{int.from_bytes(digest, 'big'):0256b}" for digest in digests]
    shared = level(data, stamp)
    assert len({text[:shared] for text in binary}) == 1
    assert len({text[: shared + 1] for text in binary}) > 1


def test_looking_at_the_bits_does_not_end_the_check() -> None:
    """A check can be asked at any time and goes on."""
    stamp = Stamp(("2a", "3b"))
    check = StampCheck(stamp)
    check.update(b"half")
    assert check.bits() == level(b"half", stamp)
    check.update(b"whole")
    assert check.bits() == level(b"halfwhole", stamp)


def test_a_stamp_must_reach_bits_and_nonces() -> None:
    """A stamp is accepted up to its own level and number of nonces, and not beyond."""
    data = b"a letter"
    stamp = mint(data, Difficulty(8, 3), deterministic=True)
    bits = level(data, stamp)
    assert verify(data, stamp, Difficulty(bits, 3))
    assert verify(data, stamp, Difficulty(bits, 2))
    assert not verify(data, stamp, Difficulty(bits + 1, 3))
    assert not verify(data, stamp, Difficulty(bits, 4))


def test_a_nonce_that_shares_nothing_spoils_the_stamp() -> None:
    """Every nonce counts: adding a bad one to a good pair loses the bits."""
    data = b"a letter"
    pair = mint(data, Difficulty(16), deterministic=True)
    assert verify(data, pair, Difficulty(16))
    assert not verify(data, Stamp((*pair.nonces, "0")), Difficulty(16))


def test_a_stamp_holds_for_its_own_data_only() -> None:
    """One changed byte makes the stamp worthless."""
    stamp = mint(b"a letter", Difficulty(24), deterministic=True)
    assert verify(b"a letter", stamp, Difficulty(24))
    assert not verify(b"a Letter", stamp, Difficulty(24))
