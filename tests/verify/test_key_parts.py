"""What mail is sealed to in a key, as its signatures say."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.verify.test_packets import EDDSA, PRIMARY, RSA, SUBKEY, packet

from sealmail_verify.key_parts import KeyPart, sealing_parts
from sealmail_verify.packets import parse_key_block

SELF, BINDING, REVOCATION = 0x13, 0x18, 0x28
SIGN, SEAL = b"\x1b\x02", b"\x1b\x0c"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def signature(kind: int, *told: bytes, created: int = 1) -> bytes:
    """Return a signature that says something under its hash, and is none otherwise."""
    every = (b"\x02" + created.to_bytes(4, "big"), *told)
    hashed = b"".join(bytes([len(one)]) + one for one in every)
    body = bytes([4, kind, RSA, 8]) + len(hashed).to_bytes(2, "big") + hashed + bytes(4)
    return bytes([0xC2, 0xFF]) + len(body).to_bytes(4, "big") + body


def lasting(seconds: int) -> bytes:
    """Return the subpacket of a key that is good for so long."""
    return b"\x09" + seconds.to_bytes(4, "big")


SIGNS = packet(PRIMARY, EDDSA) + signature(SELF, SIGN)
WEAK = packet(SUBKEY, RSA, 1024, 17)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        pytest.param(SIGNS, [], id="signs-only"),
        pytest.param(SIGNS + WEAK + signature(BINDING, SEAL), [(1024, None)], id="sealed-to"),
        pytest.param(SIGNS + WEAK + signature(BINDING, SIGN), [], id="signing-subkey"),
        pytest.param(SIGNS + WEAK + signature(BINDING), [(1024, None)], id="no-flags"),
        pytest.param(SIGNS + WEAK, [], id="not-bound"),
        pytest.param(
            SIGNS + WEAK + signature(REVOCATION) + signature(BINDING, SEAL), [], id="revoked"
        ),
        pytest.param(
            SIGNS + WEAK + signature(BINDING, SEAL, lasting(60)), [(1024, 60)], id="expires"
        ),
        pytest.param(
            SIGNS
            + WEAK
            + signature(BINDING, SEAL, lasting(90), created=2)
            + signature(BINDING, SEAL, lasting(60)),
            [(1024, 90)],
            id="prolonged",
        ),
        pytest.param(
            packet(PRIMARY, RSA, 2048, 17) + signature(SELF, b"\x1b\x0f"),
            [(2048, None)],
            id="one-for-all",
        ),
        pytest.param(
            SIGNS + WEAK + packet(2, RSA) + signature(BINDING, SEAL), [(1024, None)], id="strange"
        ),
    ],
)
def test_what_mail_is_sealed_to(key: bytes, expected: list[tuple[int, int | None]]) -> None:
    """The newest signature that binds a part counts; revoked and signing parts are none."""
    assert sealing_parts(parse_key_block(key)) == tuple(
        KeyPart(RSA, bits, None if lasts is None else EPOCH + timedelta(seconds=lasts))
        for bits, lasts in expected
    )


def test_a_part_is_usable_until_it_expires() -> None:
    """What never expires always is."""
    part = KeyPart(RSA, 1024, EPOCH)
    assert (part.is_usable(EPOCH - timedelta(seconds=1)), part.is_usable(EPOCH)) == (True, False)
    assert KeyPart(RSA, 1024, None).is_usable(EPOCH)
