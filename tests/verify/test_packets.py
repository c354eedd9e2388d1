"""Packets that would cost an engine too much are refused before it is asked."""

import pytest

from sealmail_verify import BadSignature
from sealmail_verify.clear_text import _crc24
from sealmail_verify.packets import parse_key_block

RSA, DSA, EDDSA = 1, 17, 22
PRIMARY, SUBKEY = 6, 14


def packet(tag: int, algorithm: int, *bits: int) -> bytes:
    """Return a public key whose numbers have so many bits."""
    numbers = b"".join(
        count.to_bytes(2, "big") + (1 << count - 1).to_bytes((count + 7) // 8, "big")
        for count in bits
    )
    body = b"\x04" + bytes(4) + bytes([algorithm]) + numbers
    return bytes([0xC0 | tag, 0xFF]) + len(body).to_bytes(4, "big") + body


GOOD = packet(PRIMARY, RSA, 4096, 17)


@pytest.mark.parametrize(
    "key",
    [
        packet(PRIMARY, RSA, 16_384, 17),
        packet(PRIMARY, DSA, 3072, 256, 3072, 3072),
        packet(PRIMARY, EDDSA),
        GOOD + packet(SUBKEY, RSA, 2048, 33),
    ],
)
def test_keys_that_people_have_are_read(key: bytes) -> None:
    """The largest that programs make are within the bounds."""
    assert parse_key_block(key).raw == key


@pytest.mark.parametrize(
    "key",
    [
        packet(PRIMARY, RSA, 16_384, 16_384),
        packet(PRIMARY, RSA, 60_000, 17),
        packet(PRIMARY, DSA, 3072, 3072, 3072, 3072),
        GOOD + packet(SUBKEY, RSA, 2048, 34),
    ],
)
def test_a_key_whose_every_use_takes_seconds_is_refused(key: bytes) -> None:
    """One exponent as long as its modulus keeps gpg busy until its deadline."""
    with pytest.raises(BadSignature, match="a number of"):
        parse_key_block(key)


def test_a_key_that_is_cut_short_is_refused() -> None:
    """A number that says it is longer than its packet."""
    with pytest.raises(BadSignature, match="cut short"):
        parse_key_block(packet(PRIMARY, RSA, 4096))


def test_the_armor_checksum_is_that_of_the_specification() -> None:
    """Bit by bit, as RFC 4880 writes it, for texts of every length modulo three."""
    for length in range(12):
        raw = bytes(range(200, 200 + length))
        crc = 0xB704CE
        for octet in raw:
            crc ^= octet << 16
            for _ in range(8):
                crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
        assert _crc24(raw) == crc
