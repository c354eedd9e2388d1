"""The durable queue: what is still to be told to another server, and what became of it.

A row refers to the entry whose block is to go and never copies it, so a block that goes to many
places is kept once. A row is put in the unit of work that puts its entry. When an entry is removed
or displaced, the rows that wait to replicate it go with it.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import apsw

from sealmail_protocol.keys import BlockKey
from sealmail_store.rows import moment, seconds
from sealmail_store.spaces import PROXIED, SpaceBook


class QueueKind(StrEnum):
    """What a row asks for. The first five are for the partner, in the order of their urgency.

    ``PENDING`` tells it of an entry that waits for an account, a price or a key.
    ``MIRROR`` tells it of proxied blocks and what became of them; what it has told us of its own
    stands here as ``MIRRORED``.
    """

    ACCOUNT = "account"
    TOMBSTONE = "tombstone"
    MIRROR = "mirror"
    PENDING = "pending"
    REPLICATE = "replicate"
    PROXY = "proxy"
    MIRRORED = "mirrored"


class QueueState(StrEnum):
    """What became of a row. What was told to the partner has no row any more."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    REFUSED = "refused"
    GIVEN_UP = "given-up"


# No attempt has been made, or none has failed.
NO_CODE = "-"


@dataclass(frozen=True, slots=True)
class QueueRow:
    """One thing to be told to one destination.

    ``digest`` is that of the block, or the hash of an auth key. ``entry`` is the number of the
    stored entry whose block goes (``put_entry`` and ``hold`` return it). An empty
    ``destination`` is the partner; elsewhere it is forgotten when the row is settled.
    ``owner`` is the login that asked for a delivery, ``line`` the number of its Post-To line.
    ``ticket`` tells such a row from the others of its block, here and at the partner.
    ``content`` is what no entry holds. ``number`` is given by the queue, and never again.
    """

    kind: str
    digest: bytes
    queued: datetime
    type: str = ""
    key: BlockKey | None = None
    entry: int | None = None
    destination: str = ""
    not_before: datetime | None = None
    owner: str | None = None
    line: int | None = None
    content: bytes = field(default=b"", repr=False)
    attempts: int = 0
    state: str = QueueState.WAITING
    code: str = NO_CODE
    last: datetime | None = None
    ticket: str = ""
    number: int = 0


# Where to go on: the last row that was seen, by the moment it was due and its number.
Place = tuple[int, int]
BEGINNING: Place = (-1, 0)

_ROWS = (
    "SELECT kind, digest, queued, type, key, entry, destination, not_before, owner, line,"
    " content, attempts, state, code, last, ticket, number FROM queue "
)
_PUT = (
    "INSERT INTO queue (kind, digest, queued, type, key, entry, destination, not_before, owner,"
    " line, content, attempts, state, code, last, ticket)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING number"
)
# An announcement waits for the data it names, if that has not been tried yet.
_UNNAMED = (
    " AND NOT EXISTS (SELECT 1 FROM named_data n JOIN entries e ON e.type = 'data'"
    " AND e.key = n.key AND e.identity = x'' JOIN queue d ON d.digest = e.digest"
    " AND d.kind = 'replicate' AND d.state = 'waiting' AND d.code = '-'"
    " WHERE n.entry = q.entry)"
)


class QueueView:
    """The queue as one unchanging state shows it."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def due(
        self, kind: str, now: datetime, after: Place = BEGINNING, *, limit: int
    ) -> tuple[tuple[QueueRow, ...], Place]:
        """Return a page of waiting rows whose time has come, and the place to go on ``after``.

        Rows that were never put off come first, in the order in which they were queued. What
        replicates an announcement is left out while data that it names is still to go.
        """
        # The state stands first, or SQLite would not see that the index of waiting rows serves.
        rows: Any = self._connection.execute(
            f"{_ROWS} q WHERE state = 'waiting' AND kind = ? AND not_before <= ?"
            " AND (not_before, number) > (?, ?)"
            f"{_UNNAMED if kind == QueueKind.REPLICATE else ''}"
            " ORDER BY not_before, number LIMIT ?",
            (kind, seconds(now), *after, limit),
        ).fetchall()
        place = (rows[-1][7], rows[-1][-1]) if rows else after
        return tuple(map(_row_of, rows)), place

    def count_due(self, kind: str, now: datetime, most: int) -> int:
        """Count the waiting rows of a kind whose time has come, up to ``most``."""
        found: int = self._connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM queue WHERE state = 'waiting' AND kind = ?"
            " AND not_before <= ? LIMIT ?)",
            (kind, seconds(now), most),
        ).get
        return found

    def next_due(self, kind: str) -> datetime | None:
        """Return when the first waiting row of a kind is due; ``None`` if none waits."""
        found: int | None = self._connection.execute(
            "SELECT min(not_before) FROM queue WHERE state = 'waiting' AND kind = ?", (kind,)
        ).get
        return None if found is None else moment(found)

    def oldest(self, kind: str) -> datetime | None:
        """Return when the oldest waiting row of a kind was queued; reads all that wait."""
        found: int | None = self._connection.execute(
            "SELECT min(queued) FROM queue WHERE state = 'waiting' AND kind = ?", (kind,)
        ).get
        return None if found is None else moment(found)

    def about(self, digest: bytes, kind: str | None = None) -> tuple[QueueRow, ...]:
        """Return the rows about one block or auth key, of one kind or all, oldest first."""
        rows: Any = self._connection.execute(
            _ROWS + "WHERE digest = ?1 AND kind = coalesce(?2, kind) ORDER BY number",
            (digest, kind),
        )
        return tuple(map(_row_of, rows))

    def is_waiting(self, digest: bytes, *kinds: str) -> bool:
        """Tell whether a row of one of the kinds about this block or auth key waits."""
        return bool(
            self._connection.execute(
                "SELECT EXISTS (SELECT 1 FROM queue WHERE digest = ? AND state = 'waiting'"
                " AND kind IN (SELECT value FROM json_each(?)))",
                (digest, json.dumps(kinds)),
            ).get
        )

    def row(self, number: int) -> QueueRow | None:
        """Return one row."""
        rows: Any = self._connection.execute(_ROWS + "WHERE number = ?", (number,))
        return next(map(_row_of, rows), None)

    def owned(
        self, owner: str, since: datetime | None = None, *, after: int = 0, limit: int
    ) -> tuple[QueueRow, ...]:
        """Return a page of what a login has queued since a moment, by number."""
        rows: Any = self._connection.execute(
            _ROWS + "WHERE owner = ? AND number > ? AND queued >= ? ORDER BY number LIMIT ?",
            (owner, after, 0 if since is None else seconds(since), limit),
        )
        return tuple(map(_row_of, rows))

    def all(self, kind: str, *, after: int = 0, limit: int) -> tuple[QueueRow, ...]:
        """Return a page of the rows of one kind, settled ones too, by number."""
        rows: Any = self._connection.execute(
            _ROWS + "WHERE kind = ? AND number > ? ORDER BY number LIMIT ?", (kind, after, limit)
        )
        return tuple(map(_row_of, rows))


class QueueBook(QueueView):
    """The queue as work inside the writer changes it."""

    def __init__(
        self,
        connection: apsw.Connection,
        spaces: SpaceBook,
        remove_entry: Callable[[int], object],
    ) -> None:
        super().__init__(connection)
        self._spaces = spaces
        self._remove_entry = remove_entry

    def put(self, row: QueueRow) -> int:
        """Queue a row behind all others, and return its number; no number is used twice."""
        number: int = self._connection.execute(_PUT, _values_of(row)).get
        if row.state == QueueState.WAITING:
            self._spaces.queued(row.kind, 1)
        return number

    def replace(self, row: QueueRow) -> int:
        """Queue a row in the place of all that wait about the same, and return its number.

        Whoever is just telling an older one finishes that one, not this.
        """
        for older in self.about(row.digest, row.kind):
            if older.state == QueueState.WAITING:
                self.finish((older.number,))
        return self.put(row)

    def finish(self, numbers: Iterable[int]) -> int:
        """Forget rows that are done with; return how many there were."""
        gone = 0
        for number in numbers:
            row: Any = self._connection.execute(
                "DELETE FROM queue WHERE number = ? RETURNING kind, state, entry", (number,)
            ).get
            if row is not None:
                gone += 1
                self._gone(*row)
        return gone

    def take_over(self) -> int:
        """Make the partner's rows that wait here rows of this server; return how many."""
        taken = self._connection.execute(
            "UPDATE queue SET kind = ? WHERE state = 'waiting' AND kind = ? RETURNING number",
            (QueueKind.PROXY, QueueKind.MIRRORED),
        ).fetchall()
        self._spaces.queued(QueueKind.MIRRORED, -len(taken))
        self._spaces.queued(QueueKind.PROXY, len(taken))
        return len(taken)

    def put_off(self, number: int, not_before: datetime, code: str, now: datetime) -> None:
        """Note a failed attempt, and when to try again; a row that is gone stays gone."""
        self._connection.execute(
            "UPDATE queue SET not_before = ?, code = ?, last = ?, attempts = attempts + 1"
            " WHERE number = ? AND state = 'waiting'",
            (seconds(not_before), code, seconds(now), number),
        )

    def hasten(self, number: int) -> None:
        """Let a waiting row be due at once."""
        self._connection.execute(
            "UPDATE queue SET not_before = 0 WHERE number = ? AND state = 'waiting'", (number,)
        )

    def bring_forward(self, latest: datetime) -> int:
        """Let rows that were put off beyond ``latest`` be due at once; return how many."""
        self._connection.execute(
            "UPDATE queue SET not_before = 0 WHERE state = 'waiting' AND not_before > ?",
            (seconds(latest),),
        )
        return self._connection.changes()

    def settle(self, number: int, state: QueueState, code: str, now: datetime) -> bool:
        """Keep what became of a row, without its block and its destination.

        Tells whether the row was waiting until now.
        """
        row: Any = self._connection.execute(
            "SELECT kind, state, entry FROM queue WHERE number = ? AND state = 'waiting'",
            (number,),
        ).get
        if row is None:
            return False
        self._connection.execute(
            "UPDATE queue SET state = ?, code = ?, last = ?, destination = '', content = x'',"
            " entry = NULL, attempts = attempts + 1 WHERE number = ?",
            (state, code, seconds(now), number),
        )
        self._gone(*row)
        return True

    def forget_settled(self, before: datetime, limit: int) -> int:
        """Forget up to ``limit`` rows settled before a moment; return how many."""
        rows: Any = self._connection.execute(
            "SELECT number FROM queue WHERE state != 'waiting' AND last < ? LIMIT ?",
            (seconds(before), limit),
        ).fetchall()
        return self.finish(number for (number,) in rows)

    def entry_goes(self, entry: int, digest: bytes) -> None:
        """Forget what waits to tell of an entry that is removed; the view calls it."""
        rows: Any = self._connection.execute(
            "DELETE FROM queue WHERE digest = ? AND entry = ? RETURNING kind, state",
            (digest, entry),
        ).fetchall()
        for kind, state in rows:
            if state == QueueState.WAITING:
                self._spaces.queued(kind, -1)

    def waiting_goes(self, digest: bytes) -> None:
        """Forget what waits to tell of an entry that waits no more; the view calls it."""
        rows = self.about(digest, QueueKind.PENDING)
        self.finish(row.number for row in rows)

    def _gone(self, kind: str, state: str, entry: int | None) -> None:
        """Count a row out, and remove the block that was held for it alone."""
        if state == QueueState.WAITING:
            self._spaces.queued(kind, -1)
        if entry is None:
            return
        held = self._connection.execute(
            "SELECT digest FROM entries WHERE id = ? AND type = ?", (entry, PROXIED)
        ).get
        if held is None:
            return
        named = self._connection.execute(
            "SELECT EXISTS (SELECT 1 FROM queue WHERE digest = ? AND entry = ?)", (held, entry)
        ).get
        if not named:
            self._remove_entry(entry)


def _row_of(row: Any) -> QueueRow:
    kind, digest, queued, type, key, entry, destination, not_before = row[:8]
    owner, line, content, attempts, state, code, last, ticket, number = row[8:]
    return QueueRow(
        kind=kind,
        digest=digest,
        queued=moment(queued),
        type=type,
        key=None if key is None else BlockKey(key),
        entry=entry,
        destination=destination,
        not_before=moment(not_before) if not_before else None,
        owner=owner,
        line=line,
        content=content,
        attempts=attempts,
        state=state,
        code=code,
        last=None if last is None else moment(last),
        ticket=ticket,
        number=number,
    )


def _values_of(row: QueueRow) -> tuple[Any, ...]:
    return (
        row.kind,
        row.digest,
        seconds(row.queued),
        row.type,
        None if row.key is None else row.key.raw,
        row.entry,
        row.destination,
        0 if row.not_before is None else seconds(row.not_before),
        row.owner,
        row.line,
        row.content,
        row.attempts,
        row.state,
        row.code,
        None if row.last is None else seconds(row.last),
        row.ticket,
    )
