"""Codes to be pasted: one line of text that holds all that is needed to begin.

An invitation, for a new user: ``sealmail1:`` and base32 of domain, auth key, number of servers,
and for each its ``host:port`` and the pin of its key. A pairing code, for the operator of a second
server: ``sealmailpair1:`` and base32 of a one-time secret, ``host:port`` and pin. Texts have a
length byte before them; at the end stand four bytes of a checksum.
"""

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field

from sealmail_protocol.addresses import MAX_SERVERS, ServerAddress, domain_of

PREFIX = "sealmail1:"
PAIRING_PREFIX = "sealmailpair1:"
PIN_BYTES = 32
# Sixteen servers with the longest names; anything longer is no invitation.
MAX_CODE = 10_000

_CHECKSUM_TAGS = {
    PREFIX: b"sealmail invitation\0",
    PAIRING_PREFIX: b"sealmail pairing\0",
}
_NAMES = {PREFIX: "invitation", PAIRING_PREFIX: "pairing code"}
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
        return _read(_Reader(_content(text, PREFIX)))

    def code(self) -> str:
        """Return the line to hand to the user; it holds the auth key."""
        content = _text(self.domain) + _text(self.auth_key) + bytes((len(self.servers),))
        for server in self.servers:
            content += _text(str(server.address)) + server.pin
        return _code(content, PREFIX)


@dataclass(frozen=True, slots=True)
class PairingCode:
    """Where a server waits to be paired, and the secret that lets one other server do it."""

    secret: str = field(repr=False)
    server: InvitedServer

    def __post_init__(self) -> None:
        if not _AUTH_KEY.fullmatch(self.secret):
            raise ValueError("not a secret of 8 to 40 letters and digits")

    @classmethod
    def parse(cls, text: str) -> "PairingCode":
        """Read a code, in either case and with spaces or line ends; else ``ValueError``."""
        reader = _Reader(_content(text, PAIRING_PREFIX))
        secret, server = reader.text(), _read_server(reader)
        reader.end()
        return cls(secret, server)

    def code(self) -> str:
        """Return the line to hand to the other operator; it holds the secret."""
        server = self.server
        return _code(_text(self.secret) + _text(str(server.address)) + server.pin, PAIRING_PREFIX)


class _Reader:
    """Takes the parts of a code one after the other."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._place = 0

    def take(self, count: int) -> bytes:
        part = self._content[self._place : self._place + count]
        if len(part) != count:
            raise ValueError("the code ends too early")
        self._place += count
        return part

    def number(self) -> int:
        return self.take(1)[0]

    def text(self) -> str:
        return self.take(self.number()).decode("ascii")

    def end(self) -> None:
        if self._place != len(self._content):
            raise ValueError("the code holds more than it should")


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
        raise ValueError(f"{value[:40]!r}... is too long for a code")
    return bytes((len(raw),)) + raw


def _content(text: str, prefix: str) -> bytes:
    """Return what a code holds, its checksum checked."""
    name, code = _NAMES[prefix], "".join(text[: 2 * MAX_CODE].split())
    if len(code) > MAX_CODE or code[: len(prefix)].lower() != prefix:
        raise ValueError(f"no {name}: those begin with {prefix}")
    digits = code[len(prefix) :].upper()
    try:
        raw = base64.b32decode(digits + "=" * (-len(digits) % 8))
    except (binascii.Error, ValueError):
        raise ValueError(f"the {name} has letters that do not belong: mistyped?") from None
    if _base32(raw) != digits:
        raise ValueError(f"the {name} is not written as it should be: mistyped?")
    content, checksum = raw[:-_CHECKSUM_BYTES], raw[-_CHECKSUM_BYTES:]
    if _checksum(content, prefix) != checksum:
        raise ValueError(f"the checksum of the {name} is wrong: mistyped or cut off?")
    return content


def _code(content: bytes, prefix: str) -> str:
    return prefix + _base32(content + _checksum(content, prefix))


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode().rstrip("=")


def _checksum(content: bytes, prefix: str) -> bytes:
    return hashlib.sha256(_CHECKSUM_TAGS[prefix] + content).digest()[:_CHECKSUM_BYTES]
