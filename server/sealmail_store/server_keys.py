"""The public keys that other servers have shown us: recorded, never trusted by themselves."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import apsw

from sealmail_store.rows import moment, seconds


@dataclass(frozen=True, slots=True)
class ServerKey:
    """The key last seen on one way to a server, since when, and the one before it."""

    way: str
    pin: bytes
    since: datetime
    before: bytes | None = None


class ServerKeys:
    """The recorded keys; ``put`` and ``keep_latest`` are for work inside the writer."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def all(self) -> tuple[ServerKey, ...]:
        """Return every recorded key, the oldest first."""
        rows: Any = self._connection.execute(
            "SELECT way, pin, since, before FROM server_keys ORDER BY since, way"
        )
        return tuple(
            ServerKey(way, pin, moment(since), before) for way, pin, since, before in rows
        )

    def put(self, key: ServerKey) -> None:
        """Record a key in the place of what was known of its way."""
        self._connection.execute(
            "INSERT INTO server_keys (way, pin, since, before) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (way) DO UPDATE SET pin = excluded.pin, since = excluded.since,"
            " before = excluded.before",
            (key.way, key.pin, seconds(key.since), key.before),
        )

    def keep_latest(self, most: int) -> None:
        """Forget the oldest records beyond a number."""
        self._connection.execute(
            "DELETE FROM server_keys WHERE way IN (SELECT way FROM server_keys"
            " ORDER BY since DESC, way LIMIT -1 OFFSET ?)",
            (most,),
        )
