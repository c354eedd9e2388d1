"""Whose key is whose: trust on first use, and the user's word on everything after."""

import sqlite3
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from sealmail_client.headers import address_in
from sealmail_client.home_database import HomeDatabase
from sealmail_client.key_changes import (
    Change,
    Decision,
    KeyRevoked,
    KeyUndecided,
    KnownKey,
    undecided,
)
from sealmail_client.key_lookup import FoundKey
from sealmail_protocol.block_codec import parse_block, serialise_block
from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import KeyId

__all__ = ["Change", "Correspondents", "Decision", "KeyRevoked", "KeyUndecided", "KnownKey"]

_KNOWN = (
    "SELECT known_key.*, announcement.block, announcement.revoked"
    " FROM known_key LEFT JOIN announcement USING (key_id)"
)


class Correspondents:
    """The address book: announcements by key, and keys by address."""

    def __init__(self, database: HomeDatabase) -> None:
        self._database = database

    # What is in the book.

    def known(self, address: str) -> tuple[KnownKey, ...]:
        """Return every key ever seen for ``address``, oldest first."""
        rows = self._database.rows(
            f"{_KNOWN} WHERE address = ? ORDER BY first_seen, key_id", address
        )
        return tuple(map(_known_key, rows))

    def addresses_of(self, key_id: KeyId) -> tuple[KnownKey, ...]:
        """Return what is known of one key, an entry for each address that it claimed."""
        rows = self._database.rows(f"{_KNOWN} WHERE key_id = ? ORDER BY address", key_id.hex)
        return tuple(map(_known_key, rows))

    def search(self, text: str = "") -> tuple[KnownKey, ...]:
        """Return every entry whose address, user id or key id holds ``text``, by address."""
        rows = self._database.rows(f"{_KNOWN} ORDER BY address, first_seen, key_id")
        wanted = text.casefold()
        return tuple(
            key
            for key in map(_known_key, rows)
            if wanted in f"{key.address}\n{key.user_id}\n{key.key_id}".casefold()
        )

    def addresses(self) -> tuple[str, ...]:
        """Return every address in the book."""
        rows = self._database.rows("SELECT DISTINCT address FROM known_key ORDER BY address")
        return tuple(row["address"] for row in rows)

    def entry(self, user_id: str, key_id: KeyId) -> KnownKey | None:
        """Return what is known of ``key_id`` as that of ``user_id``."""
        known = self.known(address_in(user_id))
        return next((key for key in known if key.key_id == key_id), None)

    def trusted_key(self, address: str) -> KeyId | None:
        """Return the key to seal to, ``None`` for a stranger; ``KeyUndecided`` if unclear."""
        known = self.known(address)
        if undecided(known):
            raise KeyUndecided(address, known)
        return next((key.key_id for key in known if key.decision.chosen), None)

    def announcement(self, key_id: KeyId) -> KeyAnnouncement | None:
        """Return the newest announcement of ``key_id`` seen; ``KeyRevoked`` if it is."""
        self.refuse_revoked(key_id)
        return self.newest(key_id)

    def newest(self, key_id: KeyId) -> KeyAnnouncement | None:
        """Return the newest announcement of ``key_id`` seen, revoked or not."""
        row = self._announced(key_id)
        return None if row is None else _announcement(row["block"])

    def keys_naming(self, address: str) -> list[KeyId]:
        """Return the keys whose owners call themselves ``address``, which proves nothing."""
        rows = self._database.rows(
            "SELECT key_id, block FROM announcement WHERE NOT revoked ORDER BY date"
        )
        return [
            KeyId.from_hex(row["key_id"])
            for row in rows
            if address_in(_announcement(row["block"]).user_id) == address
        ]

    def refuse_revoked(self, key_id: KeyId) -> None:
        """Raise ``KeyRevoked`` if the owner of ``key_id`` ever said so."""
        row = self._announced(key_id)
        if row is not None and row["revoked"]:
            raise KeyRevoked(
                f"the key {key_id} is revoked by its owner, and nothing is sealed to it any more: "
                "ask him for the new one, and `sealmail key find` his address again"
            )

    # What is learned.

    def learn(
        self,
        address: str,
        found: Sequence[FoundKey],
        now: datetime,
        sources: Mapping[KeyId, str] | None = None,
        vouched: Container[KeyId] = frozenset(),
    ) -> None:
        """Take note of the keys that claim ``address``; ``sources`` tells where each was seen.

        Those in ``vouched`` came from a server that proved to be the domain's. That is a mark
        for people to see, and decides nothing. While they are several none has it: a server
        takes claims from everybody, and does not say which is right.

        A single key for an address never seen before is trusted; any other new one waits for
        the user, and until then nothing is sent to the address. A revoked one is no candidate.
        """
        with self._database.unit():
            for key in found:
                self._remember(key)
            known = {key.key_id for key in self.known(address)}
            new = [key for key in found if key.key_id not in known]
            first_use = not known and sum(not key.revoked for key in new) == 1
            for key in new:
                decision = Decision.TRUSTED if first_use else Decision.UNDECIDED
                self._decide(
                    address, key.key_id, Decision.REJECTED if key.revoked else decision, now
                )
            rivals = sum(key.key_id in vouched and not key.revoked for key in found) > 1
            for key in found:
                self._saw(address, key, now, (sources or {}).get(key.key_id, ""))
                if key.key_id in vouched:
                    self._mark(address, key.key_id, None if rivals else now)

    def remember(self, found: FoundKey) -> None:
        """Keep the announcement of a key that was found by its id, if it is newer."""
        with self._database.unit():
            self._remember(found)

    def miss_claim(self, address: str, key_id: KeyId) -> None:
        """Take note that a chosen key does not claim ``address`` where it was seen to do so."""
        self._database.write(
            "UPDATE known_key SET change = ?, domain_verified = NULL"
            " WHERE address = ? AND key_id = ? AND change = ''"
            " AND decision IN (?, ?)",
            Change.UNCLAIMED,
            address,
            key_id.hex,
            Decision.VERIFIED,
            Decision.TRUSTED,
        )

    # What the user decides.

    def trust(self, address: str, key_id: KeyId, now: datetime) -> None:
        """Take the user's word that ``key_id`` belongs to ``address``, and no other key.

        A key that he has verified stays so.
        """
        verified = any(
            key.key_id == key_id and key.decision is Decision.VERIFIED
            for key in self.known(address)
        )
        self._choose(address, key_id, Decision.VERIFIED if verified else Decision.TRUSTED, now)

    def verify(self, address: str, key_id: KeyId, now: datetime) -> None:
        """Take note that the user has compared the fingerprint with the owner of ``address``."""
        self._choose(address, key_id, Decision.VERIFIED, now)

    def forget(self, address: str) -> bool:
        """Strike an address off the book; return whether it was there.

        Its next key is trusted like a stranger's. A revocation is never forgotten, nor the
        announcement of a key that mail in the outbox still needs.
        """
        known = self.known(address)
        with self._database.unit():
            self._database.write("DELETE FROM known_key WHERE address = ?", address)
            for key in known:
                self._database.write(
                    "DELETE FROM announcement WHERE key_id = ? AND NOT revoked AND key_id NOT IN"
                    " (SELECT key_id FROM known_key UNION SELECT key_id FROM outgoing_recipient)",
                    key.key_id.hex,
                )
        return bool(known)

    def _choose(self, address: str, key_id: KeyId, decision: Decision, now: datetime) -> None:
        self.refuse_revoked(key_id)
        with self._database.unit():
            # Who agrees to a key without claim is not asked again because of its silence.
            self._database.write(
                "UPDATE known_key SET decision = ?, change = '',"
                " seen_at = CASE change WHEN ? THEN '' ELSE seen_at END WHERE address = ?",
                Decision.REJECTED,
                Change.UNCLAIMED,
                address,
            )
            self._decide(address, key_id, decision, now)

    # Rows.

    def _announced(self, key_id: KeyId) -> sqlite3.Row | None:
        return self._database.row("SELECT * FROM announcement WHERE key_id = ?", key_id.hex)

    def _remember(self, found: FoundKey) -> None:
        before = self.newest(found.key_id)
        # A revocation stays whatever comes later; else the newest wins.
        self._database.write(
            "INSERT INTO announcement VALUES (?, ?, ?, ?) ON CONFLICT (key_id) DO UPDATE SET"
            " date = excluded.date, revoked = excluded.revoked, block = excluded.block"
            " WHERE NOT announcement.revoked"
            " AND (excluded.revoked OR excluded.date >= announcement.date)",
            found.key_id.hex,
            format_date(found.announcement.date),
            found.revoked,
            serialise_block(found.announcement),
        )
        after = self.newest(found.key_id)
        if before is not None and after is not None:
            self._compare(found.key_id, address_in(before.user_id), address_in(after.user_id))

    def _compare(self, key_id: KeyId, before: str, after: str) -> None:
        """Mark the address that a key named until now; unmark the one it names again."""
        if before == after:
            return
        self._database.write(
            "UPDATE known_key SET change = ?, domain_verified = NULL"
            " WHERE key_id = ? AND address = ? AND decision IN (?, ?)",
            Change.MOVED,
            key_id.hex,
            before,
            Decision.VERIFIED,
            Decision.TRUSTED,
        )
        self._database.write(
            "UPDATE known_key SET change = '' WHERE key_id = ? AND address = ? AND change = ?",
            key_id.hex,
            after,
            Change.MOVED,
        )

    def _saw(self, address: str, found: FoundKey, now: datetime, source: str) -> None:
        self._database.write(
            "UPDATE known_key SET last_seen = ?, seen_at = ?,"
            " change = CASE change WHEN ? THEN '' ELSE change END"
            " WHERE address = ? AND key_id = ?",
            format_date(now),
            source,
            Change.UNCLAIMED,
            address,
            found.key_id.hex,
        )

    def _mark(self, address: str, key_id: KeyId, now: datetime | None) -> None:
        self._database.write(
            "UPDATE known_key SET domain_verified = ? WHERE address = ? AND key_id = ?",
            None if now is None else format_date(now),
            address,
            key_id.hex,
        )

    def _decide(self, address: str, key_id: KeyId, decision: Decision, now: datetime) -> None:
        self._database.write(
            "INSERT INTO known_key (address, key_id, decision, first_seen, last_seen)"
            " VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT (address, key_id) DO UPDATE SET decision = excluded.decision",
            address,
            key_id.hex,
            decision,
            format_date(now),
            format_date(now),
        )


def _known_key(row: sqlite3.Row) -> KnownKey:
    return KnownKey(
        address=row["address"],
        key_id=KeyId.from_hex(row["key_id"]),
        decision=Decision(row["decision"]),
        first_seen=parse_date(row["first_seen"]),
        last_seen=parse_date(row["last_seen"] or row["first_seen"]),
        seen_at=row["seen_at"],
        change=Change(row["change"]),
        user_id=_announcement(row["block"]).user_id if row["block"] is not None else "",
        revoked=bool(row["revoked"]),
        domain_verified=parse_date(row["domain_verified"]) if row["domain_verified"] else None,
    )


# A batch of mail to one reader asks for his announcement again and again.
@lru_cache(maxsize=64)
def _announcement(text: bytes) -> KeyAnnouncement:
    block = parse_block(text)
    assert isinstance(block, KeyAnnouncement)  # noqa: S101 - only such are written
    return block
