"""What work inside the store sees: one consistent state to read."""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

import apsw

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import BlockKey
from sealmail_store.data_files import DataFiles
from sealmail_store.dht_values import DhtValues
from sealmail_store.entries import (
    Account,
    Count,
    EntryName,
    MailPlace,
    StoredEntry,
    Terms,
    Tombstone,
    Verdict,
    WaitingEntry,
)
from sealmail_store.queueing import QueueView
from sealmail_store.rows import (
    ACCOUNTS,
    ENTRIES,
    TERMS,
    WAITING,
    account_of,
    entry_of,
    moment,
    seconds,
    terms_of,
    waiting_of,
)
from sealmail_store.server_keys import ServerKeys
from sealmail_store.spaces import SpaceBook, holder_space, mailbox_space, unpaid_space

_BEGINNING = datetime.min.replace(tzinfo=UTC)
_END = datetime.max.replace(tzinfo=UTC)

# Entries that wait are asked for, and judged, so many at a time.
WAITING_PAGE = 64

# One question for all types; lists travel as JSON.
_PRESENT = (
    "SELECT value FROM json_each(?)"
    " WHERE EXISTS (SELECT 1 FROM entries WHERE type = value AND key = ?)"
)

_MAIL_PLACE = (
    "SELECT EXISTS (SELECT 1 FROM tombstones WHERE key = ?1 AND digest = ?2)"
    " OR EXISTS (SELECT 1 FROM tombstones WHERE key = ?1 AND identity = ?3),"
    " EXISTS (SELECT 1 FROM entries"
    " WHERE type = 'message-announcement' AND key = ?1 AND identity = ?3),"
    " EXISTS (SELECT 1 FROM accounts WHERE userid = ?4 AND state = ?5),"
    " EXISTS (SELECT 1 FROM used_nonces WHERE nonce IN (?6, ?7)),"
    " coalesce((SELECT bytes FROM spaces WHERE name = ?8), 0),"
    " coalesce((SELECT bytes FROM spaces WHERE name = ?9), 0),"
    " coalesce((SELECT bytes FROM spaces WHERE name = ?10), 0)"
)
_ARRIVED = (
    "SELECT awaits FROM (SELECT DISTINCT awaits FROM waiting)"
    " WHERE EXISTS (SELECT 1 FROM accounts WHERE userid = hex(awaits) AND state = ?)"
    " OR EXISTS (SELECT 1 FROM entries WHERE type = 'key-announcement' AND key = awaits)"
)
_KINDS = tuple(BlockType)
_NAMES = (
    "SELECT key, identity, digest, id FROM entries WHERE type = ? AND key <= ?"
    " AND (key, identity) > (?, ?) ORDER BY key, identity LIMIT ?"
)
_READABLE = (
    "type IN (?, ?, ?, ?, ?) AND key = ?"
    " AND (type != 'message-announcement' OR (holder = ? AND +date >= ?))"
)

LATEST_TIME = "latest-time-seen"


class ReadView:
    """One unchanging state of the store; use it only while the work it was handed to runs."""

    def __init__(self, connection: apsw.Connection, files: DataFiles) -> None:
        self._connection = connection
        self._files = files
        self._spaces = SpaceBook(connection)
        self.queue: QueueView = QueueView(connection)
        self.server_keys = ServerKeys(connection)
        self.dht = DhtValues(connection)

    def entries(
        self, type: str, key: BlockKey, *, since: datetime | None = None
    ) -> tuple[StoredEntry, ...]:
        """Return the entries of ``type`` under ``key``, dated ``since`` or later, oldest first."""
        # The plus keeps SQLite from walking all entries of that age, whatever their key.
        rows: Any = self._connection.execute(
            ENTRIES + "type = ? AND key = ? AND +date >= ?",
            (type, key.raw, seconds(since or _BEGINNING)),
        )
        return tuple(sorted(map(self._entry, rows), key=lambda entry: (entry.date, entry.digest)))

    def entry(self, type: str, key: BlockKey, identity: bytes = b"") -> StoredEntry | None:
        """Return the one entry with this ``identity``, if there is one."""
        rows: Any = self._connection.execute(
            ENTRIES + "type = ? AND key = ? AND identity = ?", (type, key.raw, identity)
        )
        return next(map(self._entry, rows), None)

    def entry_number(self, type: str, key: BlockKey, identity: bytes = b"") -> int | None:
        """Return the number of the one entry with this ``identity``, if there is one."""
        found: int | None = self._connection.execute(
            "SELECT id FROM entries WHERE type = ? AND key = ? AND identity = ?",
            (type, key.raw, identity),
        ).get
        return found

    def numbered(self, number: int) -> StoredEntry | None:
        """Return the entry that a row of the queue refers to by its number."""
        rows: Any = self._connection.execute(ENTRIES + "id = ?", (number,))
        return next(map(self._entry, rows), None)

    def readable(
        self,
        key: BlockKey,
        types: Iterable[str],
        holder: bytes,
        since: datetime | None = None,
        *,
        most: int | None = None,
    ) -> tuple[StoredEntry, ...] | None:
        """Return what is under ``key``, by type in the order of BlockType, then oldest first.

        Of ``types`` only; announcements only those of ``holder``, dated ``since`` or later. One
        question, since a server is asked this more often than anything else. ``None`` if that is
        more than ``most`` bytes of text, of which the rest is not read then.
        """
        rows = self._ask_readable(ENTRIES, key, types, holder, since)
        found, size = [], 0
        for row in rows:
            found.append(self._entry(row))
            size += len(found[-1].header)
            if most is not None and size > most:
                rows.close()
                return None
        if len(found) > 1:
            found.sort(key=_reading_order)
        return tuple(found)

    def readable_size(
        self, key: BlockKey, types: Iterable[str], holder: bytes, since: datetime | None = None
    ) -> int:
        """Return how many bytes of text ``readable`` would return, without reading them."""
        asked = "SELECT coalesce(sum(length(header)), 0) FROM entries WHERE "
        size: int = self._ask_readable(asked, key, types, holder, since).get
        return size

    def _ask_readable(
        self,
        asked: str,
        key: BlockKey,
        types: Iterable[str],
        holder: bytes,
        since: datetime | None,
    ) -> Any:
        wanted = set(types)
        kinds = (kind if kind in wanted else None for kind in _KINDS)
        return self._connection.execute(
            asked + _READABLE, (*kinds, key.raw, holder, seconds(since or _BEGINNING))
        )

    def types_under(self, key: BlockKey, types: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``types``, in their order, that have an entry under ``key``."""
        rows: Any = self._connection.execute(_PRESENT, (json.dumps(list(types)), key.raw))
        return tuple(row[0] for row in rows)

    def names_between(
        self, type: str, first: BlockKey, last: BlockKey, *, limit: int, after: bytes = b""
    ) -> tuple[EntryName, ...]:
        """Return up to ``limit`` names of entries of ``type``, by key, both ends included.

        Under the first key only those whose identity is beyond ``after``.
        """
        rows: Any = self._connection.execute(
            _NAMES if after else _NAMES.replace(" > ", " >= "),
            (type, last.raw, first.raw, after, limit),
        )
        return tuple(EntryName(BlockKey(raw), *rest) for raw, *rest in rows)

    def tombstones(self, after: int, limit: int) -> tuple[int, tuple[Tombstone, ...]]:
        """Return a page of the tombstones, and the place to go on ``after``."""
        rows: Any = self._connection.execute(
            "SELECT rowid, key, digest, identity, until FROM tombstones WHERE rowid > ?"
            " ORDER BY rowid LIMIT ?",
            (after, limit),
        ).fetchall()
        found = (
            Tombstone(BlockKey(key), digest, identity, moment(until))
            for _, key, digest, identity, until in rows
        )
        return (rows[-1][0] if rows else after), tuple(found)

    def counts(self) -> dict[str, Count]:
        """Count entries and bytes of each type; reads the whole index."""
        rows: Any = self._connection.execute(
            "SELECT type, count(*), sum(size + length(header)) FROM entries GROUP BY type"
        )
        return {type: Count(entries, size) for type, entries, size in rows}

    def space(self, name: str) -> Count:
        """Return what is in one of the named spaces (``spaces``), by its running sum."""
        return self._spaces.read(name)

    def is_named(self, key: BlockKey) -> bool:
        """Tell whether a stored announcement names the data of ``key``."""
        return self._spaces.is_named(key)

    def holders(self, key: BlockKey) -> Iterator[bytes]:
        """Walk the key ids that have paid announcements of the data of ``key``."""
        return self._spaces.holders(key)

    def uncounted_data(self, keys: Iterable[BlockKey], holder: bytes) -> tuple[int, int]:
        """Return how many of ``keys`` are stored, and their bytes that ``holder`` adds."""
        return self._spaces.uncounted(keys, holder)

    def announcement_by_digest(self, key: BlockKey, digest: bytes) -> StoredEntry | None:
        """Return the announcement under ``key`` with this digest."""
        rows: Any = self._connection.execute(
            ENTRIES.replace("WHERE", "INDEXED BY announcements_by_digest WHERE")
            + "digest = ? AND type = 'message-announcement' AND key = ?",
            (digest, key.raw),
        )
        return next(map(self._entry, rows), None)

    def waiting(
        self, awaits: bytes, after: int = 0, limit: int = WAITING_PAGE
    ) -> tuple[int, tuple[WaitingEntry, ...]]:
        """Return a page of what waits for a key id, and the place to go on ``after``."""
        rows: Any = self._connection.execute(
            WAITING + "awaits = ? AND id > ? ORDER BY id LIMIT ?", (awaits, after, limit)
        ).fetchall()
        return (rows[-1][0] if rows else after), tuple(map(waiting_of, rows))

    def all_waiting(
        self, after: int = 0, limit: int = WAITING_PAGE
    ) -> tuple[int, tuple[WaitingEntry, ...]]:
        """Return a page of what waits for anybody, and the place to go on ``after``."""
        rows: Any = self._connection.execute(
            WAITING + "id > ? ORDER BY id LIMIT ?", (after, limit)
        ).fetchall()
        return (rows[-1][0] if rows else after), tuple(map(waiting_of, rows))

    def waiting_entry(self, digest: bytes) -> WaitingEntry | None:
        """Return the entry with this digest, if it waits."""
        rows: Any = self._connection.execute(WAITING + "digest = ?", (digest,))
        return next(map(waiting_of, rows), None)

    def arrived(self, *, account_state: str) -> tuple[bytes, ...]:
        """Return every key id that something waits for and that is here by now.

        That is one with a key-announcement, or with an account in ``account_state``.
        """
        rows: Any = self._connection.execute(_ARRIVED, (account_state,))
        return tuple(row[0] for row in rows)

    def is_waiting(self, digest: bytes) -> bool:
        """Tell whether the entry with this digest waits."""
        return bool(
            self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM waiting WHERE digest = ?)", (digest,)
            ).get
        )

    def mail_place(
        self,
        key: BlockKey,
        digest: bytes,
        identity: bytes,
        holder: bytes,
        nonces: Sequence[bytes],
        *,
        account_state: str,
    ) -> MailPlace:
        """Return what is known of the place that an announcement for ``holder`` asks for.

        Only accounts in ``account_state`` count. One question, since each costs a turn at the
        interpreter's lock, and busy servers are asked this for every mail.
        """
        spaces = mailbox_space(key), unpaid_space(key), holder_space(holder)
        # Nearly every stamp has two nonces; who has more is asked about them apart.
        first, second, *more = (*(nonce.hex() for nonce in nonces), None, None)
        row: Any = self._connection.execute(
            _MAIL_PLACE,
            (key.raw, digest, identity, holder.hex(), account_state, first, second, *spaces),
        ).get
        dropped, held, awaited, seen = map(bool, row[:4])
        return MailPlace(dropped, held, awaited, seen or any(more), *row[4:])

    def users_of_nonces(self, nonces: Iterable[bytes]) -> set[bytes]:
        """Return the identities of the entries that these nonces were used for."""
        texts, found = [nonce.hex() for nonce in nonces], set()
        # Nearly every stamp has two.
        for pair in zip_longest(texts[::2], texts[1::2]):
            rows: Any = self._connection.execute(
                "SELECT identity FROM used_nonces WHERE nonce IN (?, ?)", pair
            )
            found |= {row[0] for row in rows}
        return found

    def terms(self, holder: bytes) -> tuple[Terms, ...]:
        """Return the terms of a key id: those in force first, then the ended, latest first."""
        rows: Any = self._connection.execute(TERMS + "holder = ?", (holder,))
        # Few, and most often none: SQLite would prepare to sort them all the same.
        found = sorted(map(terms_of, rows), key=lambda each: each.announced, reverse=True)
        found.sort(key=lambda each: each.ended or _END, reverse=True)
        return tuple(found)

    def verdict(self, digest: bytes) -> Verdict | None:
        """Return what was decided about the block with this digest, while it is remembered."""
        row: Any = self._connection.execute(
            "SELECT text, kept_until FROM verdicts WHERE digest = ?", (digest,)
        ).fetchone()
        return row and Verdict(digest, row[0], moment(row[1]))

    def account(self, auth_key_hash: bytes) -> Account | None:
        """Return the account of an auth key, by its hash."""
        rows: Any = self._connection.execute(ACCOUNTS + "auth_key_hash = ?", (auth_key_hash,))
        return next(map(account_of, rows), None)

    def accounts(self, userid: str | None = None) -> tuple[Account, ...]:
        """Return all accounts, or those bound to ``userid`` in any case, ordered by userid."""
        which, bindings = ("TRUE", ()) if userid is None else ("userid = ?", (userid,))
        rows: Any = self._connection.execute(
            f"{ACCOUNTS} {which} ORDER BY userid, auth_key_hash", bindings
        )
        return tuple(map(account_of, rows))

    def setting(self, name: str) -> str | None:
        """Return a remembered setting."""
        found: str | None = self._connection.execute(
            "SELECT value FROM settings WHERE name = ?", (name,)
        ).get
        return found

    def latest_time_seen(self) -> datetime | None:
        """Return the latest time noted, against a clock that went back."""
        text = self.setting(LATEST_TIME)
        return None if text is None else moment(int(text))

    def _entry(self, row: Any) -> StoredEntry:
        return entry_of(row, self._files)

    def _is_in_file(self, key: BlockKey) -> bool:
        return bool(
            self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM entries"
                " WHERE key = ? AND data IS NULL AND size > 0)",
                (key.raw,),
            ).get
        )


def _reading_order(entry: StoredEntry) -> tuple[int, datetime, bytes]:
    return _KINDS.index(BlockType(entry.type)), entry.date, entry.digest
