"""Pins of public keys: known from the first connection on, kept for each way to a server.

Ways where we log in, replicate or derive trust are apart from plain delivery: deliveries go
on when a key has changed, and what they record must not replace a pin that a login relies on.
"""

import hmac
from enum import Enum, auto
from typing import Protocol

from sealmail_net.ways import Way
from sealmail_protocol.addresses import Network, ServerAddress


class PinCheck(Enum):
    """How a server's key compares with what is known of it."""

    FIRST_SEEN = auto()
    SAME = auto()
    CHANGED = auto()


class PinStore(Protocol):
    """Where pins are kept; ``way`` is a text such as ``direct mail.example:8081``."""

    def pin_of(self, way: str) -> bytes | None:
        """Return the pin known for this way, if any."""

    def remember(self, way: str, pin: bytes) -> None:
        """Keep this pin for this way, in the place of any other."""


class MemoryPins:
    """Pins that are forgotten at the end of the program."""

    def __init__(self) -> None:
        self._pins: dict[str, bytes] = {}

    def pin_of(self, way: str) -> bytes | None:
        """Return the pin known for this way, if any."""
        return self._pins.get(way)

    def remember(self, way: str, pin: bytes) -> None:
        """Keep this pin for this way, in the place of any other."""
        self._pins[way] = pin


def login_way(address: ServerAddress, way: Way = Way.DIRECT) -> str:
    """Return the name of a way to a server whose key must not change."""
    return f"{way} {address}"


def delivery_way(address: ServerAddress, way: Way = Way.DIRECT) -> str:
    """Return the name of a way to a stranger's server that only takes mail."""
    return f"delivery {address}" if way is Way.DIRECT else f"delivery-{way} {address}"


def ways_to(address: ServerAddress) -> tuple[Way, ...]:
    """Return every way that can lead to a server, by its address."""
    return _WAYS[address.network]


_WAYS = {
    Network.DIRECT: (Way.DIRECT, Way.EXIT),
    Network.TOR: (Way.TOR,),
    Network.I2P: (Way.I2P,),
}


def check_pin(pins: PinStore, way: str, pin: bytes) -> PinCheck:
    """Compare a server's key with the one known for this way; nothing is remembered."""
    known = pins.pin_of(way)
    if known is None:
        return PinCheck.FIRST_SEEN
    return PinCheck.SAME if hmac.compare_digest(known, pin) else PinCheck.CHANGED
