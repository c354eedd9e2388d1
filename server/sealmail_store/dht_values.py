"""What the DHT has this node keep: values by key, each with all that is needed to check it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import apsw

from sealmail_protocol.keys import BlockKey
from sealmail_store.entries import DIGEST_BYTES, Count
from sealmail_store.rows import moment, seconds

_SELECT = (
    "SELECT key, type, identity, digest, date, stamp_bits, revoked, distance, source, ours, body"
    " FROM dht_values WHERE "
)
_PUT = (
    "INSERT INTO dht_values (key, type, identity, digest, date, stamp_bits, revoked, distance,"
    " source, ours, body, size) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (key, type, identity) DO UPDATE SET digest = excluded.digest,"
    " date = excluded.date, stamp_bits = excluded.stamp_bits, revoked = excluded.revoked,"
    " source = excluded.source, ours = max(ours, excluded.ours), body = excluded.body,"
    " size = excluded.size"
)
_COUNT = "SELECT count(*), coalesce(sum(size), 0) FROM dht_values"


@dataclass(frozen=True, slots=True)
class DhtRow:
    """One value. ``identity`` tells the values of one type under one key apart.

    ``distance`` is that of the key from this node's id. What is ``ours`` was given by a user of
    this server and is not yet in the keeping of others, so it never makes room.
    """

    key: BlockKey
    type: str
    identity: bytes
    digest: bytes
    date: datetime
    stamp_bits: int
    revoked: bool
    distance: bytes
    source: str
    ours: bool
    body: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.digest) != DIGEST_BYTES:
            raise ValueError(f"a digest of {len(self.digest)} bytes, not {DIGEST_BYTES}")


class DhtValues:
    """The held values; whatever changes them is for work inside the writer."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def under(self, key: BlockKey) -> tuple[DhtRow, ...]:
        """Return the values under ``key``, by digest."""
        rows: Any = self._connection.execute(_SELECT + "key = ? ORDER BY digest", (key.raw,))
        return tuple(map(_row_of, rows))

    def one(self, key: BlockKey, type: str, identity: bytes) -> DhtRow | None:
        """Return the one value with this ``identity``, if there is one."""
        rows: Any = self._connection.execute(
            _SELECT + "key = ? AND type = ? AND identity = ?", (key.raw, type, identity)
        )
        return next(map(_row_of, rows), None)

    def keys(self, after: bytes = b"", limit: int = 256) -> tuple[BlockKey, ...]:
        """Return the next keys that have values, in their order."""
        rows: Any = self._connection.execute(
            "SELECT DISTINCT key FROM dht_values WHERE key > ? ORDER BY key LIMIT ?",
            (after, limit),
        )
        return tuple(BlockKey(row[0]) for row in rows)

    def unspread(self) -> tuple[BlockKey, ...]:
        """Return the keys of values that are ours."""
        rows: Any = self._connection.execute("SELECT DISTINCT key FROM dht_values WHERE ours = 1")
        return tuple(BlockKey(row[0]) for row in rows)

    def count(self, source: str | None = None) -> Count:
        """Return how many values there are, and their bytes: in all, or from one source."""
        row: Any = (
            self._connection.execute(_COUNT).get
            if source is None
            else self._connection.execute(_COUNT + " WHERE source = ?", (source,)).get
        )
        return Count(*row)

    def furthest(self) -> Iterator[DhtRow]:
        """Walk the values that may make room, the furthest from this node first."""
        rows: Any = self._connection.execute(
            _SELECT + "ours = 0 ORDER BY distance DESC LIMIT 256"
        ).fetchall()
        return map(_row_of, rows)

    def put(self, row: DhtRow) -> None:
        """Keep a value in the place of one with the same key, type and identity."""
        self._connection.execute(
            _PUT,
            (
                row.key.raw,
                row.type,
                row.identity,
                row.digest,
                seconds(row.date),
                row.stamp_bits,
                row.revoked,
                row.distance,
                row.source,
                row.ours,
                row.body,
                len(row.body),
            ),
        )

    def remove(self, row: DhtRow) -> None:
        """Forget a value."""
        self._connection.execute(
            "DELETE FROM dht_values WHERE key = ? AND type = ? AND identity = ?",
            (row.key.raw, row.type, row.identity),
        )

    def release(self, key: BlockKey) -> None:
        """Note that others keep what is under ``key``: it may make room from now on."""
        self._connection.execute("UPDATE dht_values SET ours = 0 WHERE key = ?", (key.raw,))

    def remove_expired(self, type: str, before: datetime, limit: int, *, revoked: bool) -> int:
        """Forget up to ``limit`` values of a type dated before a moment; return how many."""
        self._connection.execute(
            "DELETE FROM dht_values WHERE id IN (SELECT id FROM dht_values"
            " WHERE type = ? AND date < ? AND revoked = ? LIMIT ?)",
            (type, seconds(before), revoked, limit),
        )
        return self._connection.changes()


def _row_of(row: Any) -> DhtRow:
    key, type, identity, digest, date, bits, revoked, distance, source, ours, body = row
    return DhtRow(
        BlockKey(key),
        type,
        identity,
        digest,
        moment(date),
        bits,
        bool(revoked),
        distance,
        source,
        bool(ours),
        body,
    )
