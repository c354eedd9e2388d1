"""What the value of a setting must be: a small check for each kind, refusing with the reason."""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sealmail_protocol.addresses import Network, ServerAddress

_LISTEN = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s\[\]:]+)):([0-9]{1,5})")
_MAX_NAME = 100
_HOST_NAME = re.compile(r"[0-9A-Za-z](?:[0-9A-Za-z.:_-]{0,252})")


class BadConfig(Exception):
    """The configuration cannot be used; the message names the line to change."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where the server listens; port 0 lets the system choose."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Listen":
        """Read ``HOST:PORT``; an IPv6 address stands in brackets."""
        match = _LISTEN.fullmatch(text)
        if not match or int(match[3]) > 65_535:
            raise BadConfig(f"{text!r} is not HOST:PORT or [IPV6]:PORT")
        return cls(match[1] or match[2], int(match[3]))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_host_name(name: str) -> str:
    """Return ``name``; ``BadConfig`` if no host can be called that."""
    if not _HOST_NAME.fullmatch(name):
        raise BadConfig(f"{name!r} is not a host name")
    return name


def at_least(least: int) -> Callable[[Any], None]:
    """Return a check for numbers of ``least`` or more."""

    def check(value: int) -> None:
        if value < least:
            raise BadConfig(f"must be at least {least}")

    return check


def between(least: int, most: int) -> Callable[[Any], None]:
    """Return a check for numbers from ``least`` to ``most``."""

    def check(value: int) -> None:
        if not least <= value <= most:
            raise BadConfig(f"must be from {least} to {most}")

    return check


def address(value: str) -> None:
    """Take HOST:PORT."""
    Listen.parse(value)


def address_or_off(value: str) -> None:
    """Take HOST:PORT, or nothing."""
    if value:
        Listen.parse(value)


def host_names(value: tuple[str, ...]) -> None:
    """Take one host name or more."""
    if not value:
        raise BadConfig("must name at least one host")
    for name in value:
        check_host_name(name)


def servers(value: tuple[str, ...]) -> None:
    """Take servers, each HOST:PORT; none is as good."""
    for name in value:
        try:
            ServerAddress.parse(name)
        except ValueError as error:
            raise BadConfig(f"{name!r}: {error}") from None


def path(value: str) -> None:
    """Take the path of a file."""
    if not value or "\0" in value:
        raise BadConfig("must be the path of a file")


def name(value: str) -> None:
    """Take a name: a short line of visible text."""
    if not (0 < len(value) <= _MAX_NAME and value.isprintable()):
        raise BadConfig(f"must be a name of 1 to {_MAX_NAME} visible characters")


def domain(value: str) -> None:
    """Take a domain, or nothing."""
    if value:
        check_host_name(value)


def server_or_none(value: str) -> None:
    """Take one server, or nothing."""
    if value:
        try:
            ServerAddress.parse(value)
        except ValueError as error:
            raise BadConfig(str(error)) from None


def pattern_or_none(pattern: str, what: str) -> Callable[[Any], None]:
    """Return a check for texts of a form, or nothing; ``what`` names the form."""

    def check(value: str) -> None:
        if value and not re.fullmatch(pattern, value):
            raise BadConfig(f"must be {what}")

    return check


def one_of(*words: str) -> Callable[[Any], None]:
    """Return a check for one of these words."""

    def check(value: str) -> None:
        if value not in words:
            raise BadConfig(f"must be {' or '.join(map(repr, words))}")

    return check


def ip_or_none(value: str) -> None:
    """Take an IP address, or nothing."""
    try:
        ipaddress.ip_address(value or "::")
    except ValueError:
        raise BadConfig(f"{value!r} is not an IP address") from None


def ip_and_port(value: str) -> None:
    """Take IP:PORT, or nothing."""
    at_ip(value)


def at_ip(value: str) -> ServerAddress | None:
    """Read IP:PORT; a name would have to be looked up first."""
    if not value:
        return None
    try:
        address = ServerAddress.parse(value)
    except ValueError as error:
        raise BadConfig(str(error)) from None
    if address.literal is None:
        raise BadConfig(f"{value!r} must be an IP address and a port")
    return address


def network(value: str) -> None:
    """Take the name of a network."""
    try:
        Network(value)
    except ValueError:
        raise BadConfig("must be direct, tor or i2p") from None


def loopback_or_off(value: str) -> None:
    """Take HOST:PORT on loopback, or nothing."""
    if not value:
        return
    try:
        on_loopback = ipaddress.ip_address(Listen.parse(value).host).is_loopback
    except ValueError:
        on_loopback = False
    if not on_loopback:
        raise BadConfig("must be an address of loopback: whoever connects here is taken for Tor")


def hidden_hosts(value: tuple[str, ...]) -> None:
    """Take .onion and .i2p hosts; none is as good."""
    for host in value:
        try:
            address = ServerAddress.parse(f"{host}:1")
        except ValueError as error:
            raise BadConfig(str(error)) from None
        if address.network is Network.DIRECT or address.host != host:
            raise BadConfig(f"{host!r} is no .onion or .i2p host in small letters")


def control_or_off(value: str) -> None:
    """Take the path of a socket, IP:PORT on loopback, or nothing."""
    if value.startswith("/"):
        return
    address = at_ip(value)
    if address is not None and not (address.literal and address.literal.is_loopback):
        raise BadConfig("must be a Unix socket or on loopback: the secret onion key goes there")
