"""Whose key is whose: trust on first use, and the user's word on everything after."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sealmail_client.errors import ClientError
from sealmail_client.home_database import HomeDatabase
from sealmail_client.key_lookup import FoundKey
from sealmail_protocol.block_codec import parse_block, serialise_block
from sealmail_protocol.blocks import KeyAnnouncement
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import KeyId


class Decision(StrEnum):
    """What is thought of a key for an address."""

    TRUSTED = "trusted"
    UNDECIDED = "undecided"
    REJECTED = "rejected"


class KeyUndecided(ClientError):
    """Several keys claim this address: compare fingerprints, then `sealmail key trust`."""

    exit_code = 22

    def __init__(self, address: str, known: "tuple[KnownKey, ...]") -> None:
        listed = "".join(f"\n  {key.key_id} ({key.decision})" for key in known)
        first = next(key for key in known if key.decision is Decision.UNDECIDED)
        super().__init__(
            f"it is not decided which key belongs to {address}:{listed}\n"
            "compare the fingerprint with its owner by another way, then say\n"
            f"  sealmail key trust {address} {first.key_id}   (or the other one)"
        )
        self.address = address
        self.known = known


class KeyRevoked(ClientError):
    """The key is revoked by its owner: nothing is sealed to it any more."""

    exit_code = 6


@dataclass(frozen=True, slots=True)
class KnownKey:
    """A key that was seen to claim an address."""

    address: str
    key_id: KeyId
    decision: Decision
    first_seen: datetime


class Correspondents:
    """The address book: announcements by key, and keys by address."""

    def __init__(self, database: HomeDatabase) -> None:
        self._database = database

    def known(self, address: str) -> tuple[KnownKey, ...]:
        """Return every key ever seen for ``address``, oldest first."""
        rows = self._database.rows(
            "SELECT * FROM known_key WHERE address = ? ORDER BY first_seen, key_id", address
        )
        return tuple(
            KnownKey(
                row["address"],
                KeyId.from_hex(row["key_id"]),
                Decision(row["decision"]),
                parse_date(row["first_seen"]),
            )
            for row in rows
        )

    def addresses(self) -> tuple[str, ...]:
        """Return every address in the book."""
        rows = self._database.rows("SELECT DISTINCT address FROM known_key ORDER BY address")
        return tuple(row["address"] for row in rows)

    def learn(self, address: str, found: Sequence[FoundKey], now: datetime) -> None:
        """Take note of the keys that claim ``address``.

        A single key for an address never seen before is trusted; any other new one waits for
        the user, and until then nothing is sent to the address.
        """
        with self._database.unit():
            for key in found:
                self._remember(key)
            known = {key.key_id for key in self.known(address)}
            new = [key.key_id for key in found if key.key_id not in known]
            first_use = not known and len(new) == 1
            decision = Decision.TRUSTED if first_use else Decision.UNDECIDED
            for key_id in new:
                self._decide(address, key_id, decision, now)

    def remember(self, found: FoundKey) -> None:
        """Keep the announcement of a key that was found by its id, if it is newer."""
        with self._database.unit():
            self._remember(found)

    def trust(self, address: str, key_id: KeyId, now: datetime) -> None:
        """Take the user's word that ``key_id`` belongs to ``address``, and no other key."""
        with self._database.unit():
            self._database.write(
                "UPDATE known_key SET decision = ? WHERE address = ?", Decision.REJECTED, address
            )
            self._decide(address, key_id, Decision.TRUSTED, now)

    def trusted_key(self, address: str) -> KeyId | None:
        """Return the key to seal to, ``None`` for a stranger; ``KeyUndecided`` if unclear."""
        known = self.known(address)
        if any(key.decision is Decision.UNDECIDED for key in known):
            raise KeyUndecided(address, known)
        return next((key.key_id for key in known if key.decision is Decision.TRUSTED), None)

    def announcement(self, key_id: KeyId) -> KeyAnnouncement | None:
        """Return the newest announcement of ``key_id`` seen; ``KeyRevoked`` if it is."""
        row = self._announced(key_id)
        if row is not None and row["revoked"]:
            raise KeyRevoked(f"the key {key_id} is revoked: its owner must send you a new one")
        return self.newest(key_id)

    def newest(self, key_id: KeyId) -> KeyAnnouncement | None:
        """Return the newest announcement of ``key_id`` seen, revoked or not."""
        row = self._announced(key_id)
        if row is None:
            return None
        block = parse_block(row["block"])
        assert isinstance(block, KeyAnnouncement)  # noqa: S101 - only such are written
        return block

    def _announced(self, key_id: KeyId) -> sqlite3.Row | None:
        return self._database.row("SELECT * FROM announcement WHERE key_id = ?", key_id.hex)

    def _remember(self, found: FoundKey) -> None:
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

    def _decide(self, address: str, key_id: KeyId, decision: Decision, now: datetime) -> None:
        self._database.write(
            "INSERT INTO known_key VALUES (?, ?, ?, ?)"
            " ON CONFLICT (address, key_id) DO UPDATE SET decision = excluded.decision",
            address,
            key_id.hex,
            decision,
            format_date(now),
        )
