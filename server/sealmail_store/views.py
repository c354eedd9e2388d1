"""What work inside the store sees: a consistent state to read, and to change in the writer."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw

from sealmail_protocol.keys import BlockKey
from sealmail_store.data_files import DataFiles
from sealmail_store.entries import Account, BlockData, Count, StoredEntry, Verdict

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_BEGINNING = datetime.min.replace(tzinfo=UTC)

# A page of entries with 64 KiB of data each stays within a few megabytes.
_PAGE = 64

_LATEST_TIME = "latest-time-seen"

_ENTRIES = (
    "SELECT type, key, identity, date, size, stamp_bits, digest, poster, revoked, header, data"
    " FROM entries WHERE "
)
_PUT_ENTRY = (
    "INSERT INTO entries"
    " (type, key, identity, date, size, stamp_bits, digest, poster, revoked, header, data)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (type, key, identity) DO UPDATE SET date = excluded.date,"
    " size = excluded.size, stamp_bits = excluded.stamp_bits, digest = excluded.digest,"
    " poster = excluded.poster, revoked = excluded.revoked, header = excluded.header,"
    " data = excluded.data"
)
_ACCOUNTS = "SELECT auth_key_hash, userid, state, created, changed FROM accounts WHERE "
_PUT_ACCOUNT = (
    "INSERT INTO accounts (auth_key_hash, userid, state, created, changed)"
    " VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (auth_key_hash) DO UPDATE SET userid = excluded.userid,"
    " state = excluded.state, created = excluded.created, changed = excluded.changed"
)


class ReadView:
    """One unchanging state of the store; use it only while the work it was handed to runs."""

    def __init__(self, connection: apsw.Connection, files: DataFiles) -> None:
        self._connection = connection
        self._files = files

    def entries(
        self, type: str, key: BlockKey, *, since: datetime | None = None
    ) -> tuple[StoredEntry, ...]:
        """Return the entries of ``type`` under ``key``, dated ``since`` or later, oldest first."""
        rows = self._connection.execute(
            _ENTRIES + "type = ? AND key = ? AND date >= ? ORDER BY date, digest",
            (type, key.raw, _seconds(since or _BEGINNING)),
        )
        return tuple(map(self._entry, rows))

    def entry(self, type: str, key: BlockKey, identity: bytes = b"") -> StoredEntry | None:
        """Return the one entry with this ``identity``, if there is one."""
        rows = self._connection.execute(
            _ENTRIES + "type = ? AND key = ? AND identity = ?", (type, key.raw, identity)
        )
        return next(map(self._entry, rows), None)

    def types_under(self, key: BlockKey, types: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``types``, in their order, that have an entry under ``key``."""
        exists = "SELECT EXISTS (SELECT 1 FROM entries WHERE type = ? AND key = ?)"
        return tuple(
            type for type in types if self._connection.execute(exists, (type, key.raw)).get
        )

    def entries_between(self, type: str, first: BlockKey, last: BlockKey) -> Iterator[StoredEntry]:
        """Walk the entries of ``type`` by key, from ``first`` to ``last``, both included."""
        page = self._page("(key, identity) >= (?, ?)", (type, last.raw, first.raw, b""))
        while page:
            yield from page
            place = (type, last.raw, page[-1].key.raw, page[-1].identity)
            page = self._page("(key, identity) > (?, ?)", place)

    def counts(self) -> dict[str, Count]:
        """Count entries and bytes of each type; reads the whole index."""
        rows = self._connection.execute(
            "SELECT type, count(*), sum(size + length(header)) FROM entries GROUP BY type"
        )
        return {type: Count(entries, size) for type, entries, size in rows}

    def verdict(self, digest: bytes) -> Verdict | None:
        """Return what was decided about the block with this digest, while it is remembered."""
        row = self._connection.execute(
            "SELECT text, kept_until FROM verdicts WHERE digest = ?", (digest,)
        ).fetchone()
        return row and Verdict(digest, row[0], _moment(row[1]))

    def account(self, auth_key_hash: bytes) -> Account | None:
        """Return the account of an auth key, by its hash."""
        rows = self._connection.execute(_ACCOUNTS + "auth_key_hash = ?", (auth_key_hash,))
        return next(map(_account, rows), None)

    def accounts(self, userid: str | None = None) -> tuple[Account, ...]:
        """Return all accounts, or those bound to ``userid`` in any case, ordered by userid."""
        which, bindings = ("TRUE", ()) if userid is None else ("userid = ?", (userid,))
        rows = self._connection.execute(
            f"{_ACCOUNTS} {which} ORDER BY userid, auth_key_hash", bindings
        )
        return tuple(map(_account, rows))

    def setting(self, name: str) -> str | None:
        """Return a remembered setting."""
        found: str | None = self._connection.execute(
            "SELECT value FROM settings WHERE name = ?", (name,)
        ).get
        return found

    def latest_time_seen(self) -> datetime | None:
        """Return the latest time noted, against a clock that went back."""
        text = self.setting(_LATEST_TIME)
        return None if text is None else _moment(int(text))

    def _page(self, begin: str, place: tuple[str, bytes, bytes, bytes]) -> tuple[StoredEntry, ...]:
        # Whole pages leave no statement open, should the walk stop half-way.
        rows = self._connection.execute(
            f"{_ENTRIES} type = ? AND key <= ? AND {begin} ORDER BY key, identity LIMIT {_PAGE}",
            place,
        )
        return tuple(map(self._entry, rows))

    def _entry(self, row: Any) -> StoredEntry:
        type, raw_key, identity, date, size, bits, digest, poster, revoked, header, data = row
        key = BlockKey(raw_key)
        if data is None and size > 0:
            data = self._files.path(key)
        return StoredEntry(
            type=type,
            key=key,
            identity=identity,
            date=_moment(date),
            header=header,
            digest=digest,
            stamp_bits=bits,
            poster=poster,
            revoked=bool(revoked),
            data=None if data is None else BlockData(key, size, data),
        )

    def _is_in_file(self, key: BlockKey) -> bool:
        return bool(
            self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM entries"
                " WHERE key = ? AND data IS NULL AND size > 0)",
                (key.raw,),
            ).get
        )


class WriteView(ReadView):
    """A state that the work may also change; all its changes stand or fall together.

    The writer serves everybody in turn, so work is brief: decide, put, return.
    """

    def __init__(self, connection: apsw.Connection, files: DataFiles) -> None:
        super().__init__(connection, files)
        self._doubtful: set[BlockKey] = set()

    def put_entry(self, entry: StoredEntry) -> None:
        """Keep ``entry``, in the place of one with the same type, key and identity."""
        data = entry.data
        in_database = None
        if data is not None and isinstance(data.content, bytes):
            in_database = data.content
        elif data is not None:
            self._doubtful.add(data.key)
            self._files.place(data, indexed=self._is_in_file(data.key))
        self._connection.execute(
            _PUT_ENTRY,
            (
                entry.type,
                entry.key.raw,
                entry.identity,
                _seconds(entry.date),
                entry.size,
                entry.stamp_bits,
                entry.digest,
                entry.poster,
                entry.revoked,
                entry.header,
                in_database,
            ),
        )

    def remove_entry(self, type: str, key: BlockKey, identity: bytes = b"") -> bool:
        """Remove one entry with its data, and say whether it was there."""
        row = self._connection.execute(
            "DELETE FROM entries WHERE type = ? AND key = ? AND identity = ?"
            " RETURNING data IS NULL AND size > 0",
            (type, key.raw, identity),
        ).fetchone()
        if row is not None and row[0]:
            self._doubtful.add(key)
        return row is not None

    def put_verdict(self, verdict: Verdict) -> None:
        """Remember a verdict, in the place of an earlier one about the same block."""
        self._connection.execute(
            "INSERT INTO verdicts (digest, text, kept_until) VALUES (?, ?, ?) ON CONFLICT (digest)"
            " DO UPDATE SET text = excluded.text, kept_until = excluded.kept_until",
            (verdict.digest, verdict.text, _seconds(verdict.kept_until)),
        )

    def forget_verdicts(self, now: datetime) -> int:
        """Forget the verdicts that were to be kept until before ``now``; return how many."""
        self._connection.execute("DELETE FROM verdicts WHERE kept_until < ?", (_seconds(now),))
        return self._connection.changes()

    def put_account(self, account: Account) -> None:
        """Keep ``account``, in the place of what was known of its auth key."""
        self._connection.execute(
            _PUT_ACCOUNT,
            (
                account.auth_key_hash,
                account.userid,
                account.state,
                _seconds(account.created),
                _seconds(account.changed),
            ),
        )

    def remove_account(self, auth_key_hash: bytes) -> bool:
        """Forget the account of an auth key, and say whether there was one."""
        self._connection.execute("DELETE FROM accounts WHERE auth_key_hash = ?", (auth_key_hash,))
        return self._connection.changes() > 0

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
            self.put_setting(_LATEST_TIME, str(_seconds(now)))

    def reset_time(self, now: datetime) -> None:
        """Make ``now`` the latest time seen, also if it is earlier: somebody vouched for it."""
        self.put_setting(_LATEST_TIME, str(_seconds(now)))

    def sync_data(self) -> None:
        """Make the files of all entries put so far durable; the writer calls it before COMMIT."""
        self._files.sync()

    def remove_loose_data(self) -> None:
        """Remove the files that no entry names any more; the writer calls it after COMMIT."""
        for key in self._doubtful:
            if not self._is_in_file(key):
                self._files.remove(key)
        self._doubtful.clear()

    def sweep_data(self) -> int:
        """Remove every file that no entry names; return how many. Reads the whole directory."""
        return self._files.sweep(self._is_in_file)


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _SECOND


def _moment(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def _account(row: Any) -> Account:
    auth_key_hash, userid, state, created, changed = row
    return Account(auth_key_hash, userid, state, _moment(created), _moment(changed))
