"""The public keys of servers, kept from the first connection on."""

from collections.abc import Callable
from datetime import datetime

from sealmail_client.home_database import HomeDatabase
from sealmail_net.pins import delivery_way, direct_way
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dates import format_date


class PinBook:
    """The pins of one home, on disk."""

    def __init__(self, database: HomeDatabase, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def pin_of(self, way: str) -> bytes | None:
        """Return the pin known for this way, if any."""
        row = self._database.row("SELECT pin FROM pin WHERE way = ?", way)
        return None if row is None else bytes(row["pin"])

    def remember(self, way: str, pin: bytes) -> None:
        """Keep this pin for this way, in the place of any other."""
        self._database.write(
            "INSERT OR REPLACE INTO pin VALUES (?, ?, ?)", way, pin, format_date(self._clock())
        )

    def forget(self, address: ServerAddress) -> bool:
        """Forget a server's key by the user's word; return whether one was known."""
        ways = (direct_way(address), delivery_way(address))
        known = any(self.pin_of(way) is not None for way in ways)
        self._database.write("DELETE FROM pin WHERE way IN (?, ?)", *ways)
        return known
