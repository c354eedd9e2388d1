"""The public keys of servers, kept from the first connection on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sealmail_client.home_database import HomeDatabase
from sealmail_net.pins import delivery_way, login_way, ways_to
from sealmail_net.ways import Way
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dates import format_date, parse_date


@dataclass(frozen=True, slots=True)
class KnownPin:
    """The key of a server on one way to it, since when it is known, and which was there before."""

    way: str
    pin: bytes
    first_seen: datetime
    previous: bytes | None = None


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
        """Keep this pin for this way, in the place of any other, which is noted beside it."""
        self._database.write(
            "INSERT INTO pin (way, pin, first_seen) VALUES (?, ?, ?) ON CONFLICT (way) DO UPDATE"
            " SET previous = pin.pin, pin = excluded.pin,"
            " first_seen = excluded.first_seen WHERE pin.pin <> excluded.pin",
            way,
            pin,
            format_date(self._clock()),
        )

    def accept(self, address: ServerAddress, pin: bytes, ways: Sequence[Way] = ()) -> None:
        """Take the user's word that a server shows this key on ``ways``, else on all to it."""
        for way in ways or ways_to(address):
            self.remember(login_way(address, way), pin)
            self.remember(delivery_way(address, way), pin)

    def all(self) -> tuple[KnownPin, ...]:
        """Return every pin that is known, by way."""
        rows = self._database.rows("SELECT * FROM pin ORDER BY way")
        return tuple(
            KnownPin(
                row["way"],
                bytes(row["pin"]),
                parse_date(row["first_seen"]),
                bytes(row["previous"]) if row["previous"] is not None else None,
            )
            for row in rows
        )
