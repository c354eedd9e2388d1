"""The form of clear-signed texts and of armor: strict, so that no two engines read one text twice.

Both engines are given the bytes found here and never the text itself, so what they verify is
the whole text by construction. Blanks at line ends and line-end style are not signed: OpenPGP
says so (RFC 4880, section 7.1).
"""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import NoReturn

from sealmail_verify.errors import BadSignature

# A key-announcement has at most 64 KiB; four times that leaves operators room for their own limit.
MAX_TEXT = 256 * 1024
# The longest line of the wire protocol. gpg cuts longer ones than 19 995 when it hashes a text.
MAX_LINE = 16_384

_BLANK = b" \t\r\n"
_SIGNED_MESSAGE = b"-----BEGIN PGP SIGNED MESSAGE-----"
_HASH_LINE = re.compile(rb"Hash: ([A-Z0-9-]+(?:, ?[A-Z0-9-]+)*)")
_ARMOR_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9-]*: ?[^\r]*")
_UNESCAPED_DASH = re.compile(rb"^-(?! )", re.MULTILINE)
_ESCAPE = re.compile(rb"^- ", re.MULTILINE)
_CHECKSUM = re.compile(rb"=[A-Za-z0-9+/]{4}")


@dataclass(frozen=True, slots=True)
class ClearSigned:
    """A clear-signed text taken apart.

    ``signed`` is what the signature covers, in the canonical form that is hashed: dash escapes
    and blanks at line ends removed, lines parted by CRLF. ``signature`` is binary packets.
    """

    hash_names: frozenset[str]
    signed: bytes
    signature: bytes


def parse_clear_signed(text: bytes) -> ClearSigned:
    """Take a clear-signed text apart; anything beside the one signed message is refused."""
    head, blank, rest = _unified(text).partition(b"\n\n")
    first, *hash_lines = head.split(b"\n")
    if first != _SIGNED_MESSAGE:
        raise BadSignature("the text does not begin as a clear-signed message")
    hash_names = _hash_names(hash_lines)
    if not blank:
        raise BadSignature("the signed text is missing")
    end = _UNESCAPED_DASH.search(rest)
    if end is None:
        raise BadSignature("the text has no signature")
    signature, checksum = _dearmor(rest[end.start() :], b"SIGNATURE")
    # gpg refuses a wrong checksum: a relay that changed it would make a text useless to others.
    # A key block needs no such care: it stands inside a signed text.
    if checksum not in (None, _crc24(signature)):
        raise BadSignature("the PGP signature has a wrong checksum")
    body = _ESCAPE.sub(b"", rest[: end.start()].removesuffix(b"\n"))
    return ClearSigned(hash_names, _bare(body).replace(b"\n", b"\r\n"), signature)


def dearmor_key_block(armored: bytes) -> bytes:
    """Return the packets of one armored public key block that stands alone."""
    return _dearmor(_unified(armored), b"PUBLIC KEY BLOCK")[0]


def _unified(text: bytes) -> bytes:
    """Return the lines parted by LF alone, without blanks around them."""
    if len(text) > MAX_TEXT:
        raise BadSignature(f"{len(text)} bytes; at most {MAX_TEXT} are read")
    whole = text.strip(_BLANK).replace(b"\r\n", b"\n")
    lines = whole.split(b"\n")
    if b"\r" in whole or max(map(len, lines)) > MAX_LINE:
        _tell_unreadable(lines)
    return whole


def _tell_unreadable(lines: list[bytes]) -> NoReturn:
    for line in lines:
        if len(line) > MAX_LINE:
            raise BadSignature(f"a line of {len(line)} bytes; at most {MAX_LINE} are read")
        # Some programs end a line at a lone CR and some do not, so they would see other fields.
        if b"\r" in line:
            break
    raise BadSignature("a carriage return in the middle of a line")


def _hash_names(lines: list[bytes]) -> frozenset[str]:
    """Read the ``Hash:`` lines; no other line may stand there, for none of them is signed."""
    names: set[str] = set()
    for line in lines:
        match = _HASH_LINE.fullmatch(line)
        if match is None:
            raise BadSignature("a line other than Hash: before the signed text")
        names.update(name.strip() for name in match[1].decode("ascii").split(","))
    return frozenset(names)


def _bare(lines: bytes) -> bytes:
    """Remove the blanks at line ends; hardly any text has some."""
    if b" \n" in lines or b"\t\n" in lines or lines.endswith((b" ", b"\t")):
        return b"\n".join(line.rstrip(b" \t") for line in lines.split(b"\n"))
    return lines


def _dearmor(block: bytes, kind: bytes) -> tuple[bytes, int | None]:
    """Decode one armored block that is all of ``block``; return its bytes and stated checksum."""
    name = kind.decode("ascii").lower()
    lines = _bare(block).split(b"\n")
    if lines[0] != b"-----BEGIN PGP " + kind + b"-----":
        if b" PRIVATE KEY " in lines[0]:
            raise BadSignature("a secret key where a public key belongs")
        raise BadSignature(f"no PGP {name} where one belongs")
    end = b"-----END PGP " + kind + b"-----"
    if end not in lines:
        raise BadSignature(f"the PGP {name} has no end")
    if lines.index(end) != len(lines) - 1:
        raise BadSignature(f"something follows the PGP {name}")
    return _decode(_skip_headers(lines[1:-1], name), name)


def _skip_headers(lines: list[bytes], name: str) -> list[bytes]:
    for number, line in enumerate(lines):
        if not line:
            return lines[number + 1 :]
        if not _ARMOR_HEADER.fullmatch(line):
            break
    raise BadSignature(f"the PGP {name} has no blank line before its data")


def _decode(lines: list[bytes], name: str) -> tuple[bytes, int | None]:
    checksum = lines.pop()[1:] if lines and _CHECKSUM.fullmatch(lines[-1]) else None
    try:
        raw = base64.b64decode(b"".join(lines), validate=True)
    except binascii.Error:
        raise BadSignature(f"the PGP {name} is not base64") from None
    return raw, None if checksum is None else int.from_bytes(base64.b64decode(checksum), "big")


def _crc24_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte << 16
        for _ in range(8):
            crc = (crc << 1) ^ (0x1864CFB if crc & 0x800000 else 0)
        table.append(crc)
    return tuple(table)


def _one_on(table: tuple[int, ...]) -> tuple[int, ...]:
    """Return what each entry of a table becomes by one more octet of zeros."""
    return tuple(((crc << 8) & 0xFFFFFF) ^ _FIRST[crc >> 16] for crc in table)


_FIRST = _crc24_table()
_SECOND = _one_on(_FIRST)
_THIRD = _one_on(_SECOND)


def _crc24(raw: bytes) -> int:
    """Return the armor checksum of RFC 4880, section 6.1."""
    crc = 0xB704CE
    # Three octets at a time take half as long, and many signatures are checked.
    whole = len(raw) // 3 * 3
    octets = iter(raw[:whole])
    for a, b, c in zip(octets, octets, octets, strict=True):
        crc = _THIRD[(crc >> 16) ^ a] ^ _SECOND[(crc >> 8 & 0xFF) ^ b] ^ _FIRST[(crc & 0xFF) ^ c]
    for octet in raw[whole:]:
        crc = ((crc << 8) & 0xFFFFFF) ^ _FIRST[(crc >> 16) ^ octet]
    return crc
