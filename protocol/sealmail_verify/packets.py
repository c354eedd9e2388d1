"""The outer form of OpenPGP packets: enough to refuse what no engine should be handed.

A compressed packet can unpack to gigabytes, so packets are walked here first and only the kinds
that a public key or a signature consists of are let through. No cryptography is done here.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sealmail_protocol.keys import KeyId
from sealmail_verify.errors import BadSignature

# Engines check each signature against each part of a key; this bounds the product.
MAX_KEY_PACKETS = 256

# RFC 4880, section 9.4. Missing on purpose: MD5 (1), SHA-1 (2), RIPEMD-160 (3).
HASH_NAMES: Final = {8: "SHA256", 9: "SHA384", 10: "SHA512", 11: "SHA224"}
_WEAK_HASHES: Final = {1: "MD5", 2: "SHA-1", 3: "RIPEMD-160"}

SIGNATURE, PUBLIC_KEY, _USER_ID, PUBLIC_SUBKEY, _USER_ATTRIBUTE = 2, 6, 13, 14, 17
_KEY_BLOCK_TAGS = {SIGNATURE, PUBLIC_KEY, _USER_ID, PUBLIC_SUBKEY, _USER_ATTRIBUTE}
_SECRET_TAGS = {5, 7}
_TEXT_SIGNATURE = 1
# The most bits of each number of a public key, by its algorithm: RSA is modulus and exponent, DSA
# p, q, g and y. A signature is checked in milliseconds then; an exponent of 16384 bits takes gpg
# seconds. Keys on curves have sizes of their own.
_RSA_BITS, _DSA_BITS = (16_384, 33), (4096, 512, 4096, 4096)
_MOST_BITS: Final = {1: _RSA_BITS, 2: _RSA_BITS, 3: _RSA_BITS, 17: _DSA_BITS}
# RSA, Elgamal and DSA.
_SIZED: Final = frozenset({1, 2, 3, 16, 17})
CREATED = 2


@dataclass(frozen=True, slots=True)
class KeyBlock:
    """One public key with its signatures, form checked: ``raw`` is its binary packets.

    ``algorithm`` is that of the primary key (RFC 4880, section 9.1), and ``bits`` the size of its
    number; a key on a curve has no number whose size would matter: 0 bits.
    """

    key_id: KeyId
    created: datetime
    algorithm: int
    bits: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class TextSignature:
    """One version 4 signature over a text, by a hash that is still sound; not yet verified."""

    hash_algorithm: str
    signed_at: datetime
    raw: bytes


def parse_key_block(raw: bytes) -> KeyBlock:
    """Check that ``raw`` is exactly one version 4 public key, with nothing secret in it."""
    packets = list(walk_packets(raw, MAX_KEY_PACKETS))
    tags = [tag for tag, _ in packets]
    if _SECRET_TAGS.intersection(tags):
        raise BadSignature("the key block holds a secret key")
    if not tags or tags[0] != PUBLIC_KEY or not _KEY_BLOCK_TAGS.issuperset(tags):
        raise BadSignature("the key block is not a public key")
    if tags.count(PUBLIC_KEY) != 1:
        raise BadSignature("the key block holds more than one key")
    for tag, body in packets:
        if tag in (PUBLIC_KEY, PUBLIC_SUBKEY) and (len(body) < 6 or body[0] != 4):
            raise BadSignature("a key that is not of OpenPGP version 4")
        if tag in (PUBLIC_KEY, PUBLIC_SUBKEY):
            _check_numbers(body)
    primary = packets[0][1]
    return KeyBlock(_fingerprint(primary), moment(primary[1:5]), primary[5], bits_of(primary), raw)


def bits_of(body: bytes) -> int:
    """Return the size of the number of a public key; one on a curve has none that matters."""
    return int.from_bytes(body[6:8], "big") if body[5] in _SIZED else 0


def _check_numbers(body: bytes) -> None:
    """Refuse a key whose numbers are so large that each use of it is an attack."""
    at = 6
    for most in _MOST_BITS.get(body[5], ()):
        bits = int.from_bytes(_exactly(body, at, 2), "big")
        if bits > most:
            raise BadSignature(f"a key with a number of {bits} bits")
        at += 2 + (bits + 7) // 8


def parse_text_signature(raw: bytes) -> TextSignature:
    """Check that ``raw`` is exactly one text signature, version 4, with a sound hash."""
    packets = list(walk_packets(raw, 2))
    if [tag for tag, _ in packets] != [SIGNATURE]:
        raise BadSignature("the text must carry exactly one signature")
    body = packets[0][1]
    if len(body) < 10 or body[0] != 4:
        raise BadSignature("a signature that is not of OpenPGP version 4")
    if body[1] != _TEXT_SIGNATURE:
        raise BadSignature("the signature is not one over a text")
    hashed = _exactly(body, 6, int.from_bytes(body[4:6], "big"))
    created = [value for kind, value in walk_subpackets(hashed) if kind == CREATED]
    if len(created) != 1 or len(created[0]) != 4:
        raise BadSignature("the signature does not tell when it was made")
    return TextSignature(hash_name(body[3]), moment(created[0]), raw)


def hash_name(number: int) -> str:
    """Name the hash of a data signature; weak and unknown ones are refused."""
    if number in HASH_NAMES:
        return HASH_NAMES[number]
    if number in _WEAK_HASHES:
        raise BadSignature(f"signed by {_WEAK_HASHES[number]}, which can be forged")
    raise BadSignature(f"signed by the unknown hash algorithm {number}")


def walk_packets(raw: bytes, limit: int) -> Iterator[tuple[int, bytes]]:
    """Walk packets that state their length; the other kinds occur in messages only."""
    at = 0
    for _ in range(limit):
        if at == len(raw):
            return
        tag, start, length = _header(raw, at)
        at = start + length
        if at > len(raw):
            raise BadSignature("a packet is cut short")
        yield tag, raw[start:at]
    if at < len(raw):
        raise BadSignature(f"more than {limit} packets")


def _header(raw: bytes, at: int) -> tuple[int, int, int]:
    """Return tag, start of the body and its length (RFC 4880, section 4.2)."""
    first = raw[at]
    if not first & 0x80:
        raise BadSignature("not an OpenPGP packet")
    if first & 0x40:
        start, length = _new_length(raw, at + 1)
        return first & 0x3F, start, length
    octets = {0: 1, 1: 2, 2: 4}.get(first & 3)
    if octets is None:
        raise BadSignature("a packet of unknown length")
    start = at + 1 + octets
    return (first >> 2) & 0x0F, start, int.from_bytes(_exactly(raw, at + 1, octets), "big")


def _new_length(raw: bytes, at: int) -> tuple[int, int]:
    """Read a length of one, two or five octets; return where it ends, and the length."""
    first = _exactly(raw, at, 1)[0]
    if first < 192:
        return at + 1, first
    if first < 224:
        return at + 2, ((first - 192) << 8) + _exactly(raw, at + 1, 1)[0] + 192
    if first == 255:
        return at + 5, int.from_bytes(_exactly(raw, at + 1, 4), "big")
    raise BadSignature("a packet in parts")


def walk_subpackets(area: bytes) -> Iterator[tuple[int, bytes]]:
    """Walk what a signature says: kinds and values."""
    at = 0
    while at < len(area):
        # A subpacket's two-octet lengths reach to 254: there are no partial ones.
        first = area[at]
        if 224 <= first < 255:
            start = at + 2
            length = ((first - 192) << 8) + _exactly(area, at + 1, 1)[0] + 192
        else:
            start, length = _new_length(area, at)
        content = _exactly(area, start, length)
        if not content:
            raise BadSignature("an empty subpacket")
        yield content[0] & 0x7F, content[1:]
        at = start + length


def _exactly(raw: bytes, at: int, length: int) -> bytes:
    if at + length > len(raw):
        raise BadSignature("a packet is cut short")
    return raw[at : at + length]


def _fingerprint(body: bytes) -> KeyId:
    """Return the version 4 fingerprint (RFC 4880, section 12.2)."""
    return KeyId(hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).digest())


def moment(seconds: bytes) -> datetime:
    """Read a date of OpenPGP."""
    return datetime.fromtimestamp(int.from_bytes(seconds, "big"), UTC)
