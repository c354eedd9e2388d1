"""Invitations: one line of text that gives a new user all that his client needs to begin.

``sealmail1:`` and base32 of: domain, auth key, number of servers, for each its ``host:port`` and
the pin of its key; texts with a length byte before them; at the end four bytes of a checksum.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field

from sealmail_protocol.addresses import MAX_SERVERS, ServerAddress, domain_of

PREFIX = "sealmail1:"
PIN_BYTES = 32
# Sixteen servers with the longest names; anything longer is no invitation.
MAX_CODE = 10_000

_CHECKSUM_TAG = b"sealmail invitation\0"
_CHECKSUM_BYTES = 4
_AUTH_KEY = re.compile(r"[0-9A-Za-z]{8,40}")


@dataclass(frozen=True, slots=True)
class InvitedServer:
    """A server of the group, and the pin of the key that it must show."""

    address: ServerAddress
    pin: bytes

    def __post_init__(self) -> None:
        if len(self.pin) != PIN_BYTES:
            raise ValueError(f"a pin of {len(self.pin)} bytes, not {PIN_BYTES}")


@dataclass(frozen=True, slots=True)
class Invitation:
    """Where a new user will be at home, and the auth key that lets him in."""

    domain: str
    auth_key: str = field(repr=False)
    servers: tuple[InvitedServer, ...]

    def __post_init__(self) -> None:
        if domain_of(self.domain) != self.domain:
            raise ValueError(f"{self.domain!r} is not a domain in its normal form")
        if not _AUTH_KEY.fullmatch(self.auth_key):
            raise ValueError("not an auth key of 8 to 40 letters and digits")
        if not 1 <= len(self.servers) <= MAX_SERVERS:
            raise ValueError(f"{len(self.servers)} servers, where 1 to {MAX_SERVERS} belong")

    @classmethod
    def parse(cls, text: str) -> "Invitation":
        """Read a code, in either case and with spaces or line ends; else ``ValueError``."""
        code = "".join(text[: 2 * MAX_CODE].split())
        if len(code) > MAX_CODE or code[: len(PREFIX)].lower() != PREFIX:
            raise ValueError(f"not an invitation: those begin with {PREFIX}")
        content = _checked(_from_base32(code[len(PREFIX) :]))
        return _read(_Reader(content))

    def code(self) -> str:
        """Return the line to hand to the user; it holds the auth key."""
        content = _text(self.domain) + _text(self.auth_key) + bytes((len(self.servers),))
        for server in self.servers:
            content += _text(str(server.address)) + server.pin
        raw = content + _checksum(content)
        return PREFIX + base64.b32encode(raw).decode().rstrip("=")


class _Reader:
    """Takes the parts of a code one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def take(self, count: int) -> bytes:
        part = self._content[self._place : self._place + count]
        if len(part) != count:
            raise ValueError("the invitation ends too early")
        self._place += count
        return part

    def number(self) -> int:
        return self.take(1)[0]

    def text(self) -> str:
        return self.take(self.number()).decode("ascii")

    def end(self) -> None:
        if self._place != len(self._content):
            raise ValueError("the invitation holds more than it should")


def _read(reader: _Reader) -> Invitation:
    domain, auth_key = reader.text(), reader.text()
    servers = tuple(_read_server(reader) for _ in range(reader.number()))
    reader.end()
    return Invitation(domain, auth_key, servers)


def _read_server(reader: _Reader) -> InvitedServer:
    text = reader.text()
    address = ServerAddress.parse(text)
    if str(address) != text:
        raise ValueError(f"{text!r} is not in its normal form")
    return InvitedServer(address, reader.take(PIN_BYTES))


def _text(value: str) -> bytes:
    raw = value.encode("ascii")
    if len(raw) > 255:
        raise ValueError(f"{value[:40]!r}... is too long for an invitation")
    return bytes((len(raw),)) + raw


def _from_base32(text: str) -> bytes:
    try:
        raw = base64.b32decode(text.upper() + "=" * (-len(text) % 8))
    except (binascii.Error, ValueError):
        raise ValueError("the invitation has letters that do not belong: mistyped?") from None
    if base64.b32encode(raw).decode().rstrip("=") != text.upper():
        raise ValueError("the invitation is not written as it should be: mistyped?")
    return raw


def _checked(raw: bytes) -> bytes:
    content, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    if _checksum(content) != checksum:
        raise ValueError("the checksum of the invitation is wrong: mistyped or cut off?")
    return content


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(_CHECKSUM_TAG + content).digest()[:_CHECKSUM_BYTES]
