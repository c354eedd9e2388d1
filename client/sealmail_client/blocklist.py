"""Whose mail the user does not want: keys, since addresses are only claimed."""

from datetime import datetime

from sealmail_client.home_database import HomeDatabase
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import KeyId


class Blocklist:
    """The blocked keys of one home."""

    def __init__(self, database: HomeDatabase) -> None:
        self._database = database

    def block(self, key_id: KeyId, now: datetime) -> None:
        """Refuse what the owner of this key writes from now on."""
        self._database.write(
            "INSERT OR IGNORE INTO blocked VALUES (?, ?)", key_id.hex, format_date(now)
        )

    def unblock(self, key_id: KeyId) -> bool:
        """Take his mail again; return whether he was blocked."""
        known = self.holds(key_id)
        self._database.write("DELETE FROM blocked WHERE key_id = ?", key_id.hex)
        return known

    def holds(self, key_id: KeyId) -> bool:
        """Return whether the owner of this key is blocked."""
        query = "SELECT 1 FROM blocked WHERE key_id = ?"
        return self._database.row(query, key_id.hex) is not None

    def all(self) -> dict[KeyId, datetime]:
        """Return every blocked key, and since when."""
        rows = self._database.rows("SELECT * FROM blocked ORDER BY since, key_id")
        return {KeyId.from_hex(row["key_id"]): parse_date(row["since"]) for row in rows}
