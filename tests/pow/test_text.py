"""Difficulties and stamps as text: what is written is read, and nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sealmail_pow import Difficulty, Stamp

difficulties = st.builds(Difficulty, st.integers(0, 256), st.integers(2, 16))
nonces = st.text("0123456789abcdef", min_size=1, max_size=64)
stamps = st.lists(nonces, min_size=2, max_size=16, unique=True).map(tuple).map(Stamp)
# Noise that is near the real thing reaches further than noise.
almost = st.lists(st.text("0123456789abcdef")).map(lambda nonces: ",".join(("bd", *nonces)))
noise = st.text() | st.text("bd,0123456789aF -+_\n٣") | almost


@settings(deadline=None)
@given(difficulties)
def test_a_difficulty_is_read_as_it_was_written(difficulty: Difficulty) -> None:
    """Writing and reading a difficulty gives the same difficulty."""
    assert Difficulty.parse(str(difficulty)) == difficulty


@settings(deadline=None)
@given(stamps)
def test_a_stamp_is_read_as_it_was_written(stamp: Stamp) -> None:
    """Writing and reading a stamp gives the same stamp."""
    assert Stamp.parse(str(stamp)) == stamp


@settings(deadline=None)
@given(noise)
def test_noise_is_a_difficulty_in_its_one_form_or_a_value_error(text: str) -> None:
    """Whatever is accepted is written back unchanged; the rest raises ``ValueError``."""
    try:
        difficulty = Difficulty.parse(text)
    except ValueError:
        return
    assert str(difficulty) == text


@settings(deadline=None)
@given(noise)
def test_noise_is_a_stamp_in_its_one_form_or_a_value_error(text: str) -> None:
    """Whatever is accepted is written back unchanged; the rest raises ``ValueError``."""
    try:
        stamp = Stamp.parse(text)
    except ValueError:
        return
    assert str(stamp) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "bd,BITS,NONCES", id="empty"),
        pytest.param("24", "bd,BITS,NONCES", id="bare-bits"),
        pytest.param("bd,24", "bd,BITS,NONCES", id="no-nonces"),
        pytest.param("bd,24,2,2", "bd,BITS,NONCES", id="a-field-too-many"),
        pytest.param("BD,24,2", "bd,BITS,NONCES", id="upper-case"),
        pytest.param("bd,024,2", "bd,BITS,NONCES", id="leading-zero"),
        pytest.param("bd,-1,2", "bd,BITS,NONCES", id="negative"),
        pytest.param("bd,24,2\n", "bd,BITS,NONCES", id="line-end"),
        pytest.param("bd,٢٤,2", "bd,BITS,NONCES", id="digits-of-another-script"),
        pytest.param("bd," + "9" * 5000 + ",2", "bd,BITS,NONCES", id="endless-number"),
        pytest.param("bd,257,2", "0 to 256 bits, not 257", id="more-bits-than-a-digest"),
        pytest.param("bd,24,1", "2 to 16 nonces, not 1", id="one-nonce"),
        pytest.param("bd,24,17", "2 to 16 nonces, not 17", id="too-many-nonces"),
    ],
)
def test_a_difficulty_is_refused_with_its_reason(text: str, reason: str) -> None:
    """A malformed difficulty is refused, and the message says what belongs there."""
    with pytest.raises(ValueError, match=reason):
        Difficulty.parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "bd,NONCE,NONCE", id="empty"),
        pytest.param("hc,1,2", "bd,NONCE,NONCE", id="another-scheme"),
        pytest.param("BD,1,2", "bd,NONCE,NONCE", id="upper-case-scheme"),
        pytest.param("bd", "2 to 16 nonces, not 0", id="no-nonce"),
        pytest.param("bd,1", "2 to 16 nonces, not 1", id="one-nonce"),
        pytest.param("bd," + ",".join(map(str, range(17))), "not 17", id="seventeen-nonces"),
        pytest.param("bd,1,1", "repeats a nonce", id="repeated"),
        pytest.param("bd,1,A", "nonce 2 of the stamp", id="upper-case"),
        pytest.param("bd,,1", "nonce 1 of the stamp", id="empty-nonce"),
        pytest.param("bd,1,2,", "nonce 3 of the stamp", id="trailing-comma"),
        pytest.param("bd,1, 2", "nonce 2 of the stamp", id="blank"),
        pytest.param("bd,1,2\n", "nonce 2 of the stamp", id="line-end"),
        pytest.param("bd,1," + "2" * 65, "nonce 2 of the stamp", id="long-nonce"),
        pytest.param("bd," * 100_000, "at most 1042 characters", id="endless"),
    ],
)
def test_a_stamp_is_refused_with_its_reason(text: str, reason: str) -> None:
    """A malformed stamp is refused, and the message says which rule it broke."""
    with pytest.raises(ValueError, match=reason):
        Stamp.parse(text)


def test_the_longest_stamp_is_read() -> None:
    """Sixteen nonces of 64 digits are within the limits."""
    stamp = Stamp(tuple(f"{count:064x}" for count in range(16)))
    assert Stamp.parse(str(stamp)) == stamp


def test_nonces_are_told_apart_by_their_text() -> None:
    """Leading zeros make another nonce, because the text is what is hashed."""
    assert Stamp.parse("bd,1,01").nonces == ("1", "01")


@pytest.mark.parametrize(
    ("bits", "nonces", "met"), [(24, 2, True), (30, 3, True), (23, 2, False), (24, 1, False)]
)
def test_a_difficulty_is_met_by_as_much_or_more(bits: int, nonces: int, met: bool) -> None:
    """Both the bits and the number of nonces must reach the demand."""
    assert Difficulty(24).met_by(bits, nonces) is met
