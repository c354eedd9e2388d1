"""Weighing stamps: whole, in pieces, and against a demand."""

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from sealmail_pow import Difficulty, Stamp, StampCheck, level, mint, verify

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
