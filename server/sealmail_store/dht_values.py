"""What the DHT has this node keep: values by key, each with all that is needed to check it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import apsw

from sealmail_protocol.keys import BlockKey
from sealmail_store.entries import DIGEST_BYTES, Count
from sealmail_store.rows import moment, seconds

_SELECT = (
    "SELECT key, type, identity, digest, date, until, stamp_bits, revoked, distance, source,"
    " ours, body, waits FROM dht_values WHERE "
)
# Of a body only what is small is read: to list what is kept must not cost its size.
_LIST = (
    "SELECT id, type, digest, date, stamp_bits, revoked, source, ours, waits, size,"
    " CASE WHEN size <= ? THEN body ELSE x'' END FROM dht_values WHERE "
)
_PUT = (
    "INSERT INTO dht_values (key, type, identity, digest, date, until, stamp_bits, revoked,"
    " distance, source, ours, waits, body, size) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (key, type, identity) DO UPDATE SET digest = excluded.digest,"
    " date = excluded.date, until = excluded.until, stamp_bits = excluded.stamp_bits,"
    " revoked = excluded.revoked, source = excluded.source, ours = excluded.ours,"
    " waits = excluded.waits, body = excluded.body, size = excluded.size"
)
# The share under which all values are counted; no source has this name.
_ALL = "*"
_BOOK = (
    "INSERT INTO dht_shares VALUES (?, ?, ?) ON CONFLICT (source) DO UPDATE SET"
    " entries = entries + excluded.entries, bytes = bytes + excluded.bytes"
)


@dataclass(frozen=True, slots=True)
class DhtRow:
    """One value. ``identity`` tells the values of one type under one key apart.

    It is kept ``until`` its type, or what it travels with, is too old. ``distance`` is that of
    the key from this node's id. What ``waits`` was given here and is not yet in the keeping of
    others; if it is ``ours``, a user of this server gave it, and it never makes room.
    """

    key: BlockKey
    type: str
    identity: bytes
    digest: bytes
    date: datetime
    until: datetime
    stamp_bits: int
    revoked: bool
    distance: bytes
    source: str
    ours: bool
    body: bytes = field(repr=False)
    waits: bool = False

    def __post_init__(self) -> None:
        if len(self.digest) != DIGEST_BYTES:
            raise ValueError(f"a digest of {len(self.digest)} bytes, not {DIGEST_BYTES}")


@dataclass(frozen=True, slots=True)
class DhtListed:
    """A value as it is listed: by the number of its row, with its body only if that is small."""

    number: int
    type: str
    digest: bytes
    date: datetime
    stamp_bits: int
    revoked: bool
    source: str
    ours: bool
    waits: bool
    size: int
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class DhtFar:
    """A value that may make room."""

    number: int
    size: int
    distance: bytes


class DhtValues:
    """The held values; whatever changes them is for work inside the writer."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def under(self, key: BlockKey, now: datetime) -> tuple[DhtRow, ...]:
        """Return the values under ``key`` that are not too old, by digest."""
        rows: Any = self._connection.execute(
            _SELECT + "key = ? AND until > ? ORDER BY digest", (key.raw, seconds(now))
        )
        return tuple(map(_row_of, rows))

    def value(self, key: BlockKey, digest: bytes, now: datetime) -> DhtRow | None:
        """Return the value under ``key`` with this ``digest``, if it is not too old."""
        rows: Any = self._connection.execute(
            _SELECT + "key = ? AND digest = ? AND until > ?", (key.raw, digest, seconds(now))
        )
        return next(map(_row_of, rows), None)

    def listed(
        self, key: BlockKey, now: datetime, after: bytes = b"", limit: int = -1, small: int = 0
    ) -> tuple[DhtListed, ...]:
        """Return the next values under ``key``, by digest, with bodies up to ``small`` bytes."""
        rows: Any = self._connection.execute(
            _LIST + "key = ? AND digest > ? AND until > ? ORDER BY digest LIMIT ?",
            (small, key.raw, after, seconds(now), limit),
        )
        return tuple(map(_listed_of, rows))

    def count_under(self, key: BlockKey, now: datetime) -> int:
        """Return how many values there are under ``key`` that are not too old."""
        found: Any = self._connection.execute(
            "SELECT count(*) FROM dht_values WHERE key = ? AND until > ?", (key.raw, seconds(now))
        ).get
        return int(found)

    def one(self, key: BlockKey, type: str, identity: bytes) -> DhtListed | None:
        """Return the one value with this ``identity``, if there is one."""
        rows: Any = self._connection.execute(
            _LIST + "key = ? AND type = ? AND identity = ?", (0, key.raw, type, identity)
        )
        return next(map(_listed_of, rows), None)

    def of_type(self, key: BlockKey, type: str) -> tuple[DhtListed, ...]:
        """Return all values of one type under ``key``, without their bodies."""
        rows: Any = self._connection.execute(_LIST + "key = ? AND type = ?", (0, key.raw, type))
        return tuple(map(_listed_of, rows))

    def keys(self, after: bytes = b"", limit: int = 256) -> tuple[BlockKey, ...]:
        """Return the next keys that have values, in their order."""
        rows: Any = self._connection.execute(
            "SELECT DISTINCT key FROM dht_values WHERE key > ? ORDER BY key LIMIT ?",
            (after, limit),
        )
        return tuple(BlockKey(row[0]) for row in rows)

    def unspread(self) -> tuple[BlockKey, ...]:
        """Return the keys of values that wait for others to keep them."""
        rows: Any = self._connection.execute("SELECT DISTINCT key FROM dht_values WHERE waits = 1")
        return tuple(BlockKey(row[0]) for row in rows)

    def count(self, source: str = _ALL) -> Count:
        """Return how many values there are, and their bytes: in all, or from one source."""
        row: Any = self._connection.execute(
            "SELECT entries, bytes FROM dht_shares WHERE source = ?", (source,)
        ).get
        return Count(*row) if row else Count(0, 0)

    def furthest(self) -> Iterator[DhtFar]:
        """Walk the values that may make room, the furthest from this node first."""
        rows: Any = self._connection.execute(
            "SELECT id, size, distance FROM dht_values WHERE ours = 0 ORDER BY distance DESC"
        )
        return (DhtFar(*row) for row in rows)

    def put(self, row: DhtRow) -> None:
        """Keep a value in the place of one with the same key, type and identity."""
        held = self.one(row.key, row.type, row.identity)
        if held is not None:
            self._book(held.source, -1, -held.size)
        self._book(row.source, 1, len(row.body))
        self._connection.execute(
            _PUT,
            (
                row.key.raw,
                row.type,
                row.identity,
                row.digest,
                seconds(row.date),
                seconds(row.until),
                row.stamp_bits,
                row.revoked,
                row.distance,
                row.source,
                row.ours,
                row.waits,
                row.body,
                len(row.body),
            ),
        )

    def remove(self, number: int) -> None:
        """Forget a value by the number of its row."""
        gone: Any = self._connection.execute(
            "DELETE FROM dht_values WHERE id = ? RETURNING source, size", (number,)
        ).fetchall()
        for source, size in gone:
            self._book(source, -1, -size)

    def release(self, key: BlockKey, digests: Iterable[bytes]) -> None:
        """Note that others keep these values: they may make room from now on."""
        self._connection.executemany(
            "UPDATE dht_values SET ours = 0, waits = 0 WHERE key = ? AND digest = ? AND waits = 1",
            [(key.raw, digest) for digest in digests],
        )

    def remove_expired(self, now: datetime, limit: int) -> int:
        """Forget up to ``limit`` values that are too old; return how many."""
        old: Any = self._connection.execute(
            "SELECT id FROM dht_values WHERE until <= ? LIMIT ?", (seconds(now), limit)
        ).fetchall()
        for (number,) in old:
            self.remove(number)
        return len(old)

    def _book(self, source: str, entries: int, size: int) -> None:
        """Change the running sums of one source, and of all."""
        for name in (source, _ALL):
            self._connection.execute(_BOOK, (name, entries, size))
        self._connection.execute(
            "DELETE FROM dht_shares WHERE source = ? AND entries = 0", (source,)
        )


def _row_of(row: Any) -> DhtRow:
    (
        key,
        type,
        identity,
        digest,
        date,
        until,
        bits,
        revoked,
        distance,
        source,
        ours,
        body,
        waits,
    ) = row
    return DhtRow(
        key=BlockKey(key),
        type=type,
        identity=identity,
        digest=digest,
        date=moment(date),
        until=moment(until),
        stamp_bits=bits,
        revoked=bool(revoked),
        distance=distance,
        source=source,
        ours=bool(ours),
        body=body,
        waits=bool(waits),
    )


def _listed_of(row: Any) -> DhtListed:
    number, type, digest, date, bits, revoked, source, ours, waits, size, body = row
    return DhtListed(
        number=number,
        type=type,
        digest=digest,
        date=moment(date),
        stamp_bits=bits,
        revoked=bool(revoked),
        source=source,
        ours=bool(ours),
        waits=bool(waits),
        size=size,
        body=body,
    )
