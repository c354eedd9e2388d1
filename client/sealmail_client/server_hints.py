"""Which servers failed lately: others of their group are asked first for a while."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from sealmail_client.home_database import HomeDatabase
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.dates import format_date, parse_date

# Long enough that a round of `fetch --watch` does not wait for a dead server each time, short
# enough that one which was restarted is soon used again.
GO_BACK_AFTER = timedelta(minutes=10)


class ServerHints:
    """Remembers failures on disk. They change the order of equals alone: a hint may be wrong.

    Equals are servers of one way. A preferred one that failed, or was slow, stays ahead of the
    others: a hint never leads to a way that shows more of the user.
    """

    def __init__(self, database: HomeDatabase, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def order(self, servers: Sequence[ServerAddress]) -> list[ServerAddress]:
        """Return the servers as they came, but those that failed lately behind the others."""
        return sorted(servers, key=self._failed_lately)

    def all_failed_lately(self, servers: Sequence[ServerAddress]) -> bool:
        """Return whether none of them is known to serve: they may be waited for less long."""
        return all(map(self._failed_lately, servers))

    def note_reached(self, order: Sequence[ServerAddress], reached: ServerAddress) -> None:
        """Remember that ``reached`` serves, and all before it in ``order`` did not in time."""
        for server in order[: order.index(reached)]:
            self.note_failed(server)
        if self._failure(reached) is not None:
            self._database.write("DELETE FROM server_failure WHERE server = ?", str(reached))

    def note_failed(self, server: ServerAddress) -> None:
        """Remember that a server is away, or was lost on the way."""
        self._database.write(
            "INSERT OR REPLACE INTO server_failure (server, failed) VALUES (?, ?)",
            str(server),
            format_date(self._clock()),
        )

    def _failed_lately(self, server: ServerAddress) -> bool:
        failed = self._failure(server)
        # A clock that was ahead for a while must not keep a server away until then.
        return failed is not None and timedelta(0) <= self._clock() - failed < GO_BACK_AFTER

    def _failure(self, server: ServerAddress) -> datetime | None:
        row = self._database.row("SELECT failed FROM server_failure WHERE server = ?", str(server))
        return None if row is None else parse_date(row["failed"])
