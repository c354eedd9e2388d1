"""The bypass secrets of a home: those we gave, which let others in, and those we were given.

A correspondent has one standing secret of ours, which every mail to him repeats. The date that
we publish as BypassTokenAccepted is before all secrets that senders may use, and moves behind
those that are revoked.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sealmail_client.ack_files import GivenSecret
from sealmail_client.home_database import HomeDatabase
from sealmail_protocol.blocks import MessageAnnouncement
from sealmail_protocol.bypass import BypassSecret, token_fits
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import KEY_BYTES, KeyId

# Dates have no finer grain; what must be later is later by one.
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Fit:
    """Whose secret made a token; ``revoked``: it pays for nothing any more."""

    key_id: KeyId
    revoked: bool


@dataclass(frozen=True, slots=True)
class BypassEntry:
    """A secret as the user may see it: everything but the secret."""

    key_id: KeyId
    given: bool
    created: datetime
    expires: datetime | None
    usable: bool


class BypassBook:
    """All secrets of one home."""

    def __init__(self, database: HomeDatabase) -> None:
        self._database = database

    # What we publish.

    @property
    def published_since(self) -> datetime | None:
        """Return what our announcement must say, if tokens were ever spoken of."""
        row = self._database.row("SELECT since FROM bypass_accepted")
        return None if row is None else parse_date(row["since"])

    def accepted_since(self, now: datetime) -> datetime:
        """Return the date before all secrets that may be used; the first time that is ``now``."""
        since = self.published_since
        if since is None:
            since = now
            self._set_since(now)
        return since

    # Secrets that we gave.

    def give(
        self, key_id: KeyId, now: datetime, random_bytes: Callable[[int], bytes]
    ) -> GivenSecret:
        """Return the standing secret of a correspondent, stored before anybody is told."""
        since = self.accepted_since(now)
        row = self._database.row(
            "SELECT * FROM bypass_given WHERE key_id = ? AND NOT revoked AND created > ?"
            " ORDER BY id DESC",
            key_id.hex,
            format_date(since),
        )
        if row is not None:
            return GivenSecret(BypassSecret(row["secret"]), parse_date(row["created"]))
        given = GivenSecret(BypassSecret(random_bytes(KEY_BYTES)), max(now, since + _SECOND))
        self._database.write(
            "INSERT INTO bypass_given (key_id, secret, created) VALUES (?, ?, ?)",
            key_id.hex,
            given.secret.raw,
            format_date(given.created),
        )
        return given

    def fit(self, announcement: MessageAnnouncement) -> Fit | None:
        """Try every secret that was ever given on the token of an announcement."""
        if announcement.token is None:
            return None
        for row in self._database.rows("SELECT * FROM bypass_given"):
            if token_fits(announcement, BypassSecret(row["secret"])):
                return Fit(KeyId.from_hex(row["key_id"]), bool(row["revoked"]))
        return None

    def revoke(self, key_id: KeyId, now: datetime) -> bool:
        """Honour no token of one correspondent any more; return whether he had a secret.

        Secrets that were made before his are still honoured, but as senders go by the date that
        we publish, they will pay until they are given others.
        """
        rows = self._database.rows(
            "SELECT * FROM bypass_given WHERE key_id = ? AND NOT revoked", key_id.hex
        )
        if rows:
            self._revoke(rows, self.accepted_since(now))
        return bool(rows)

    def reset(self, now: datetime) -> int:
        """Honour no token any more that was made from a secret given so far; return how many."""
        rows = self._database.rows("SELECT * FROM bypass_given WHERE NOT revoked")
        self._revoke(rows, max(now, self.accepted_since(now) + _SECOND))
        return len(rows)

    # Secrets that we were given.

    def keep(self, sender: KeyId, given: GivenSecret) -> None:
        """Keep what the signed mail of ``sender`` brought, unless we have a newer one of his."""
        self._database.write(
            "INSERT INTO bypass_received VALUES (?, ?, ?, ?) ON CONFLICT (key_id) DO UPDATE SET"
            " secret = excluded.secret, created = excluded.created, expires = excluded.expires"
            " WHERE excluded.created >= bypass_received.created",
            sender.hex,
            given.secret.raw,
            format_date(given.created),
            None if given.expires is None else format_date(given.expires),
        )

    def usable(
        self, recipient: KeyId, accepted_since: datetime | None, now: datetime
    ) -> BypassSecret | None:
        """Return the secret that pays ``recipient``, whose announcement says ``accepted_since``.

        The specification's client publishes the date of its oldest secret itself, so a secret of
        that very date is good.
        """
        if accepted_since is None:
            return None
        row = self._database.row(
            "SELECT secret FROM bypass_received WHERE key_id = ? AND created >= ?"
            " AND (expires IS NULL OR expires > ?)",
            recipient.hex,
            format_date(accepted_since),
            format_date(now),
        )
        return None if row is None else BypassSecret(row["secret"])

    def entries(self, now: datetime) -> tuple[BypassEntry, ...]:
        """Return every secret without itself, those we gave first."""
        given = self._database.rows("SELECT * FROM bypass_given ORDER BY id")
        received = self._database.rows("SELECT * FROM bypass_received ORDER BY created, key_id")
        return (*map(_given, given), *(_received(row, now) for row in received))

    # Rows.

    def _revoke(self, rows: list[sqlite3.Row], since: datetime) -> None:
        """Revoke these secrets; we publish a date behind them, and not before ``since``."""
        with self._database.unit():
            for row in rows:
                self._database.write("UPDATE bypass_given SET revoked = 1 WHERE id = ?", row["id"])
                since = max(since, parse_date(row["created"]) + _SECOND)
            self._replace_since(since)

    def _set_since(self, since: datetime) -> None:
        with self._database.unit():
            self._replace_since(since)

    def _replace_since(self, since: datetime) -> None:
        self._database.write("DELETE FROM bypass_accepted")
        self._database.write("INSERT INTO bypass_accepted VALUES (?)", format_date(since))


def _given(row: sqlite3.Row) -> BypassEntry:
    key_id = KeyId.from_hex(row["key_id"])
    return BypassEntry(key_id, True, parse_date(row["created"]), None, not row["revoked"])


def _received(row: sqlite3.Row, now: datetime) -> BypassEntry:
    expires = None if row["expires"] is None else parse_date(row["expires"])
    usable = expires is None or expires > now
    created = parse_date(row["created"])
    return BypassEntry(KeyId.from_hex(row["key_id"]), False, created, expires, usable)
