"""Mail addresses and transports: who is written to, and on which servers they live."""

import base64
import hashlib
import ipaddress
import re
import unicodedata
from dataclasses import dataclass
from enum import Enum

import idna

# Longest address of RFC 5321 is 254; a local part outside ASCII may need more bytes.
MAX_ADDRESS_BYTES = 320
# Alternatives of one server group; more is a way to make senders dial strangers.
MAX_SERVERS = 16

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_ONION = re.compile(r"[a-z2-7]{56}")
# What resolvers take for a number of an IPv4 address, in any of its old spellings.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
MAX_NAME = 253


class Network(Enum):
    """Which network reaches a host."""

    DIRECT = "direct"
    TOR = "tor"
    I2P = "i2p"


def normal_address(text: str) -> str:
    """Return an address as it is hashed: NFC, lower case; ``ValueError`` if it is none."""
    address = text
    while (folded := unicodedata.normalize("NFC", address.lower())) != address:
        address = folded
    if not is_normal_address(address):
        raise ValueError(f"{text!r} is not a mail address of the form name@domain")
    return address


def is_normal_address(address: str) -> bool:
    """Return whether ``address`` is name@domain in normal form, without space or control."""
    name, at, domain = address.rpartition("@")
    return (
        bool(name and at and domain)
        and address == unicodedata.normalize("NFC", address.lower())
        and len(address.encode(errors="replace")) <= MAX_ADDRESS_BYTES
        and " " not in address
        and address.isprintable()
    )


def domain_of(address: str) -> str:
    """Return the domain of a normal address in the form DNS asks for (IDNA)."""
    return dns_name(address.rpartition("@")[2])


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """One server: a host in its canonical text, and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "ServerAddress":
        """Read ``host:port``; IPv6 literals stand in brackets."""
        host, colon, port = text.rpartition(":")
        if not colon or not _PORT.fullmatch(port) or int(port) > 65_535:
            raise ValueError(f"{text!r} is not host:port")
        return cls(_canonical_host(host), int(port))

    @property
    def network(self) -> Network:
        """Return the network this host lives on, by its name alone."""
        if self.host.endswith(".onion"):
            return Network.TOR
        if self.host.endswith(".i2p"):
            return Network.I2P
        return Network.DIRECT

    @property
    def literal(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """Return the IP address if the host is one, else ``None``."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Transport:
    """How a user is reached: alternatives of one server group, or the DHT."""

    servers: tuple[ServerAddress, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Transport":
        """Read ``server=host:port,host:port`` or ``entangled``."""
        if text.lower() == "entangled":
            return cls()
        scheme, equals, listed = text.partition("=")
        if scheme.lower() != "server" or not equals:
            raise ValueError(f"{text!r} is neither server=host:port nor entangled")
        names = listed.split(",")
        if len(names) > MAX_SERVERS:
            raise ValueError(f"{len(names)} servers, more than {MAX_SERVERS}")
        return cls(tuple(ServerAddress.parse(name) for name in names))

    @property
    def entangled(self) -> bool:
        """Return whether mail goes through the DHT and no server is named."""
        return not self.servers

    def __str__(self) -> str:
        if self.entangled:
            return "entangled"
        return "server=" + ",".join(map(str, self.servers))


def _canonical_host(text: str) -> str:
    if text.startswith("[") and text.endswith("]"):
        return str(_ipv6(text[1:-1]))
    # IDNA maps other scripts' digits and dots to ours, so what a name is shows only behind it.
    host = dns_name(text)
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        return str(ipaddress.IPv4Address(host))
    return _onion(host) if host.endswith(".onion") else host


def _ipv6(text: str) -> ipaddress.IPv6Address:
    address = ipaddress.IPv6Address(text)
    if address.scope_id is not None:
        raise ValueError(f"{text!r} names a scope of one machine")
    return address


def _onion(host: str) -> str:
    """Check a version 3 onion name: 32 key bytes, 2 of checksum, version 3."""
    label = host.removesuffix(".onion").rpartition(".")[2]
    if not _ONION.fullmatch(label):
        raise ValueError(f"{host!r} is not a version 3 onion name")
    raw = base64.b32decode(label.upper())
    key, checksum, version = raw[:32], raw[32:34], raw[34:]
    expected = hashlib.sha3_256(b".onion checksum" + key + version).digest()[:2]
    if version != b"\x03" or checksum != expected:
        raise ValueError(f"{host!r} fails the checksum of onion names: mistyped?")
    return host


def dns_name(text: str) -> str:
    """Return a host name as DNS asks for it: IDNA, lower case; ``ValueError`` if it is none."""
    if len(text) > MAX_NAME:
        raise ValueError(f"a host name of {len(text)} characters")
    name = text
    if not text.isascii():
        try:
            name = idna.encode(text, uts46=True).decode()
        except idna.IDNAError as error:
            raise ValueError(f"{text!r} is not a host name: {error}") from None
    name = name.lower()
    if len(name) > MAX_NAME or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise ValueError(f"{text!r} is not a host name")
    return name
