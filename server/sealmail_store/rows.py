"""How values stand in the rows of the index."""

from datetime import UTC, datetime, timedelta
from typing import Any

from sealmail_protocol.keys import BlockKey
from sealmail_store.data_files import DataFiles
from sealmail_store.entries import Account, BlockData, StoredEntry, Terms, WaitingEntry

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)

ENTRIES = (
    "SELECT type, key, identity, date, size, stamp_bits, digest, poster, revoked,"
    " holder, paid, source, header, data FROM entries WHERE "
)
PUT_ENTRY = (
    "INSERT INTO entries (type, key, identity, date, size, stamp_bits, digest, poster, revoked,"
    " holder, paid, source, header, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING RETURNING id"
)
WAITING = (
    "SELECT id, digest, awaits, key, header, poster, source, replicated, until FROM waiting WHERE "
)
PUT_WAITING = (
    "INSERT INTO waiting (digest, awaits, key, header, poster, source, replicated, until)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
TERMS = "SELECT holder, announced, mailboxes, price, ended FROM terms WHERE "
ACCOUNTS = "SELECT auth_key_hash, userid, state, created, changed FROM accounts WHERE "
PUT_ACCOUNT = (
    "INSERT INTO accounts (auth_key_hash, userid, state, created, changed)"
    " VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (auth_key_hash) DO UPDATE SET userid = excluded.userid,"
    " state = excluded.state, created = excluded.created, changed = excluded.changed"
)


def seconds(moment: datetime) -> int:
    """Return a moment as whole seconds since 1970."""
    return (moment - _EPOCH) // _SECOND


def moment(since_1970: int) -> datetime:
    """Return the moment that ``seconds`` made a number of."""
    return _EPOCH + timedelta(seconds=since_1970)


def entry_of(row: Any, files: DataFiles) -> StoredEntry:
    """Read a row of ``ENTRIES``."""
    type, raw_key, identity, date, size, bits, digest, poster, revoked = row[:9]
    holder, paid, source, header, data = row[9:]
    key = BlockKey(raw_key)
    if data is None and size > 0:
        data = files.path(key)
    return StoredEntry(
        type=type,
        key=key,
        identity=identity,
        date=moment(date),
        header=header,
        digest=digest,
        stamp_bits=bits,
        poster=poster,
        revoked=bool(revoked),
        data=None if data is None else BlockData(key, size, data),
        holder=holder,
        paid=bool(paid),
        source=source,
    )


def row_of(entry: StoredEntry) -> tuple[Any, ...]:
    """Write the values of ``PUT_ENTRY``; data in a file is not among them."""
    content = None if entry.data is None else entry.data.content
    return (
        entry.type,
        entry.key.raw,
        entry.identity,
        seconds(entry.date),
        entry.size,
        entry.stamp_bits,
        entry.digest,
        entry.poster,
        entry.revoked,
        entry.holder,
        entry.paid,
        entry.source,
        entry.header,
        content if isinstance(content, bytes) else None,
    )


def waiting_of(row: Any) -> WaitingEntry:
    """Read a row of ``WAITING``, whose first column is its place in the queue."""
    _, digest, awaits, key, header, poster, source, replicated, until = row
    return WaitingEntry(
        digest,
        awaits,
        BlockKey(key),
        header,
        poster,
        source,
        replicated=bool(replicated),
        until=moment(until),
    )


def terms_of(row: Any) -> Terms:
    """Read a row of ``TERMS``."""
    holder, announced, mailboxes, price, ended = row
    return Terms(
        holder, moment(announced), mailboxes, price, None if ended is None else moment(ended)
    )


def account_of(row: Any) -> Account:
    """Read a row of ``ACCOUNTS``."""
    auth_key_hash, userid, state, created, changed = row
    return Account(auth_key_hash, userid, state, moment(created), moment(changed))
