"""What work inside the writer may do: change the state that it sees, all of it or nothing."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import apsw

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.keys import BlockKey
from sealmail_store.data_files import DataFiles
from sealmail_store.entries import (
    Account,
    BlockData,
    StoredEntry,
    Terms,
    Tombstone,
    Verdict,
    WaitingEntry,
)
from sealmail_store.queueing import QueueBook
from sealmail_store.rows import PUT_ACCOUNT, PUT_ENTRY, PUT_WAITING, row_of, seconds
from sealmail_store.spaces import PROXIED
from sealmail_store.views import LATEST_TIME, ReadView

MOST_VERDICTS = 1_000_000
# Looking whether there are too many costs as much as some of the statements of a mail.
_VERDICT_STEP = 64
# An expired mail that names thousands of data blocks costs as much as hundreds of others.
_NAMES_AT_ONCE = 2_000


class WriteView(ReadView):
    """A state that the work may also change; all its changes stand or fall together.

    The writer serves everybody in turn, so work is brief: decide, put, return.
    """

    def __init__(self, connection: apsw.Connection, files: DataFiles) -> None:
        super().__init__(connection, files)
        self.queue: QueueBook = QueueBook(connection, self._spaces, self._remove)
        self._doubtful: set[BlockKey] = set()
        # Set while a backup is taken, which may still want a file that no row names any more.
        self.keep_files = False

    def put_entry(self, entry: StoredEntry) -> int:
        """Keep ``entry``, in the place of one with the same type, key and identity.

        Return its number, by which rows of the queue refer to it.
        """
        if entry.data is not None:
            self.restore_data(entry.data)
        row = row_of(entry)
        number: int | None = self._connection.execute(PUT_ENTRY, row).get
        if number is None:
            self.remove_entry(entry.type, entry.key, entry.identity)
            number = int(self._connection.execute(PUT_ENTRY, row).get)
        self._spaces.entry_came(entry, number)
        return number

    def restore_data(self, data: BlockData) -> None:
        """Give large data its file, also if one is there: it may be damaged.

        Without an entry that needs it the file goes after the commit.
        """
        if not isinstance(data.content, bytes):
            self._doubtful.add(data.key)
            self._files.place(data)

    def hold(self, entry: StoredEntry) -> int:
        """Keep a block that is only to be delivered elsewhere, and return its number.

        ``entry`` has the type ``PROXIED`` and its digest as its identity; one that is held
        already stays, with the data that has come now. It goes with the last row of the queue
        that names it, so queue one in the same unit of work.
        """
        if entry.type != PROXIED or entry.identity != entry.digest:
            raise ValueError(f"not an entry to be held: {entry.type}")
        number = self.entry_number(entry.type, entry.key, entry.identity)
        if number is None:
            return self.put_entry(entry)
        if entry.data is not None:
            self.restore_data(entry.data)
        return number

    def remove_entry(self, type: str, key: BlockKey, identity: bytes = b"") -> bool:
        """Remove one entry with its data, and say whether it was there."""
        number = self.entry_number(type, key, identity)
        if number is None:
            return False
        self._remove(number)
        return True

    def remove_everywhere(self, type: str, identity: bytes) -> None:
        """Remove the entries of ``type`` with this identity, whatever their keys."""
        rows: Any = self._connection.execute(
            "SELECT id FROM entries WHERE type = ? AND identity = ?", (type, identity)
        ).fetchall()
        for (number,) in rows:
            self._remove(number)

    def remove_expired(
        self, type: str, before: datetime, after: tuple[int, int], limit: int
    ) -> tuple[int, tuple[int, int] | None]:
        """Remove up to ``limit`` entries of ``type`` dated before a moment; return how many.

        ``after`` is the place where the last slice ended, ``(0, 0)`` at first; the next one is
        returned, ``None`` at the end. Data that is named, and revoked keys whose userid has an
        account, are passed over. Entries that name much data make a shorter slice.
        """
        rows: Any = self._connection.execute(
            "SELECT date, id, key, revoked FROM entries WHERE type = ? AND date < ?"
            " AND (date, id) > (?, ?) ORDER BY date, id LIMIT ?",
            (type, seconds(before), *after, limit),
        ).fetchall()
        gone = named = 0
        for date, number, raw, revoked in rows:
            key = BlockKey(raw)
            kept = self.is_named(key) if type == BlockType.DATA else revoked and self._owned(key)
            if not kept:
                named += self._remove(number)
                gone += 1
            if named > _NAMES_AT_ONCE:
                return gone, (date, number)
        return gone, rows[-1][:2] if len(rows) == limit else None

    def put_waiting(self, entry: WaitingEntry) -> None:
        """Let an entry wait; one with its digest that waits already stays as it is."""
        if not self.is_waiting(entry.digest):
            self._connection.execute(
                PUT_WAITING,
                (
                    entry.digest,
                    entry.awaits,
                    entry.key.raw,
                    entry.header,
                    entry.poster,
                    entry.source,
                    entry.replicated,
                    seconds(entry.until),
                ),
            )
            self._spaces.waiting_came(entry)

    def remove_waiting(self, digest: bytes) -> bool:
        """Take an entry out of the waiting ones, and say whether it was there."""
        row: Any = self._connection.execute(
            "DELETE FROM waiting WHERE digest = ? RETURNING source, length(header)", (digest,)
        ).fetchone()
        if row is not None:
            self._spaces.waiting_goes(*row)
            self.queue.waiting_goes(digest)
        return row is not None

    def remove_waited(self, now: datetime, limit: int) -> int:
        """Remove up to ``limit`` entries that waited in vain; return how many."""
        rows: Any = self._connection.execute(
            "SELECT digest FROM waiting WHERE until < ? LIMIT ?", (seconds(now), limit)
        ).fetchall()
        for (digest,) in rows:
            self.remove_waiting(digest)
        return len(rows)

    def bury(self, stone: Tombstone) -> None:
        """Keep an entry from coming back, with whatever stamp.

        A stone that has its digest as its identity takes the place of none that knows better.
        """
        self._connection.execute(
            "INSERT INTO tombstones (key, digest, identity, until) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (key, digest) DO UPDATE SET until = max(until, excluded.until),"
            " identity = CASE excluded.identity WHEN digest THEN identity"
            " ELSE excluded.identity END",
            (stone.key.raw, stone.digest, stone.identity, seconds(stone.until)),
        )

    def use_nonces(self, nonces: Iterable[bytes], identity: bytes, until: datetime) -> None:
        """Remember what entry these nonces serve; the first one keeps them."""
        self._connection.executemany(
            "INSERT OR IGNORE INTO used_nonces (nonce, identity, until) VALUES (?, ?, ?)",
            [(nonce.hex(), identity, seconds(until)) for nonce in nonces],
        )

    def put_terms(self, holder: bytes, terms: Iterable[Terms]) -> None:
        """Keep these terms of a key id, and no others."""
        self.remove_terms(holder)
        self._connection.executemany(
            "INSERT INTO terms (holder, announced, mailboxes, price, ended)"
            " VALUES (?, ?, ?, ?, ?)",
            [
                (
                    holder,
                    seconds(each.announced),
                    each.mailboxes,
                    each.price,
                    None if each.ended is None else seconds(each.ended),
                )
                for each in terms
            ],
        )

    def remove_terms(self, holder: bytes) -> None:
        """Forget the terms of a key id."""
        self._connection.execute("DELETE FROM terms WHERE holder = ?", (holder,))

    def put_verdict(self, verdict: Verdict, most: int = MOST_VERDICTS) -> None:
        """Remember a verdict, in the place of an earlier one about the same block.

        About ``most`` verdicts are remembered; beyond them the oldest go.
        """
        self._connection.execute(
            "INSERT OR REPLACE INTO verdicts (digest, text, kept_until) VALUES (?, ?, ?)",
            (verdict.digest, verdict.text, seconds(verdict.kept_until)),
        )
        row = self._connection.last_insert_rowid()
        if row % _VERDICT_STEP == 0:
            self._connection.execute("DELETE FROM verdicts WHERE rowid <= ?", (row - most,))

    def forget_verdicts(self, now: datetime, limit: int, most: int) -> int:
        """Forget up to ``limit`` verdicts kept until before ``now``, or beyond the last ``most``.

        Return how many.
        """
        self._connection.execute(
            "DELETE FROM verdicts WHERE kept_until < ? AND rowid IN"
            " (SELECT rowid FROM verdicts ORDER BY rowid LIMIT ?)",
            (seconds(now), limit),
        )
        gone = self._connection.changes()
        self._connection.execute(
            "DELETE FROM verdicts WHERE rowid IN (SELECT rowid FROM verdicts"
            " WHERE rowid <= (SELECT max(rowid) FROM verdicts) - ? LIMIT ?)",
            (most, limit),
        )
        return gone + self._connection.changes()

    def forget_marks(self, now: datetime, limit: int) -> int:
        """Forget up to ``limit`` tombstones, and nonces, whose time is over; return how many."""
        self._connection.execute(
            "DELETE FROM tombstones WHERE rowid IN"
            " (SELECT rowid FROM tombstones WHERE until < ? LIMIT ?)",
            (seconds(now), limit),
        )
        gone = self._connection.changes()
        self._connection.execute(
            "DELETE FROM used_nonces WHERE until < ? AND rowid IN"
            " (SELECT rowid FROM used_nonces ORDER BY rowid LIMIT ?)",
            (seconds(now), limit),
        )
        return gone + self._connection.changes()

    def forget_terms_of_strangers(self, after: bytes, limit: int) -> bytes | None:
        """Forget terms of key ids with neither account nor announcement, in slices by key id.

        Return the key id to go on ``after``, ``None`` at the end.
        """
        rows: Any = self._connection.execute(
            "SELECT DISTINCT holder FROM terms WHERE holder > ? ORDER BY holder LIMIT ?",
            (after, limit),
        ).fetchall()
        for (holder,) in rows:
            key = BlockKey(holder)
            if not self._owned(key) and not self.types_under(key, (BlockType.KEY_ANNOUNCEMENT,)):
                self.remove_terms(holder)
        return rows[-1][0] if len(rows) == limit else None

    def put_account(self, account: Account) -> None:
        """Keep ``account``, in the place of what was known of its auth key."""
        self._connection.execute(
            PUT_ACCOUNT,
            (
                account.auth_key_hash,
                account.userid,
                account.state,
                seconds(account.created),
                seconds(account.changed),
            ),
        )

    def put_setting(self, name: str, value: str) -> None:
        """Remember a setting."""
        self._connection.execute(
            "INSERT INTO settings (name, value) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )

    def remove_setting(self, name: str) -> None:
        """Forget a setting."""
        self._connection.execute("DELETE FROM settings WHERE name = ?", (name,))

    def note_time(self, now: datetime) -> None:
        """Move the latest time seen forward to ``now``; never back."""
        latest = self.latest_time_seen()
        if latest is None or now > latest:
            self.put_setting(LATEST_TIME, str(seconds(now)))

    def reset_time(self, now: datetime) -> None:
        """Make ``now`` the latest time seen, also if it is earlier: somebody vouched for it."""
        self.put_setting(LATEST_TIME, str(seconds(now)))

    def sync_data(self) -> None:
        """Make the files of all entries put so far durable; the writer calls it before COMMIT."""
        self._files.sync()

    def remove_loose_data(self) -> None:
        """Remove the files that no entry names any more; the writer calls it after COMMIT."""
        if self.keep_files:
            return
        for key in self._doubtful:
            if not self._is_in_file(key):
                self._files.remove(key)
        self._doubtful.clear()

    def sweep_data(self) -> int:
        """Remove every file that no entry names; return how many. Reads the whole directory."""
        return self._files.sweep(self._is_in_file)

    def _remove(self, number: int) -> int:
        """Remove the entry in a row; return how many data blocks it named."""
        named = self._spaces.entry_goes(number)
        key, digest, in_file = self._connection.execute(
            "DELETE FROM entries WHERE id = ? RETURNING key, digest, data IS NULL AND size > 0",
            (number,),
        ).get
        self.queue.entry_goes(number, digest)
        if in_file:
            self._doubtful.add(BlockKey(key))
        return named

    def _owned(self, key: BlockKey) -> bool:
        return bool(
            self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM accounts WHERE userid = ?)", (key.hex,)
            ).get
        )
