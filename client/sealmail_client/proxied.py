"""What was given to the home server to be delivered, and what it says became of it.

A row for each block and each group of servers that is to have it. The server's own rows name
neither the group nor the mail; ours do, on this machine alone.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sealmail_client.home_database import HomeDatabase
from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import KeyId
from sealmail_protocol.replies import QueueRow, QueueState

# The clocks of two home servers may differ, and rows are dated by the one that took the block.
_SLACK = timedelta(days=1)
_BEST_FIRST = tuple(QueueState)
_DEAD = (QueueState.REFUSED, QueueState.GIVEN_UP)
# Of a line that was used for two groups nothing can be told: the server's rows name it by number.
_UNTOLD = 0


@dataclass(frozen=True, slots=True)
class Proxied:
    """One block on its way to one group, as the home server last told."""

    type: BlockType
    target: Transport
    handed: datetime
    state: QueueState
    code: str
    demand: Difficulty | None
    last: datetime | None
    mail: int | None
    seen: bool

    @property
    def dead(self) -> bool:
        """Return whether the server tries no more."""
        return self.state in _DEAD


class ProxiedBlocks:
    """All blocks of one home that its server delivers."""

    def __init__(self, database: HomeDatabase) -> None:
        self._database = database

    def missing(self, digest: bytes, targets: Iterable[Transport]) -> list[Transport]:
        """Return the groups that do not have a block, and will not as things are."""
        rows = self._database.rows("SELECT target, state FROM proxied WHERE digest = ?", digest)
        settled = {row["target"] for row in rows if QueueState(row["state"]) not in _DEAD}
        return [target for target in targets if str(target) not in settled]

    def record_data(
        self, message: int, digest: bytes, targets: Sequence[Transport], now: datetime
    ) -> None:
        """Record that the server took a data block for ``targets``, a Post-To line each."""
        with self._database.unit():
            for line, target in enumerate(targets, 1):
                other = self._database.row(
                    "SELECT 1 FROM proxied WHERE digest = ? AND line = ? AND target <> ?",
                    digest,
                    line,
                    str(target),
                )
                told = line if other is None else _UNTOLD
                self._put(digest, BlockType.DATA, target, now, line=told, message=message)

    def record_announcement(
        self, message: int, key_id: KeyId, digest: bytes, target: Transport, now: datetime
    ) -> None:
        """Record that the server took the announcement for one recipient."""
        with self._database.unit():
            # He may have moved since an earlier try, or been asked for another stamp.
            self._database.write(
                "DELETE FROM proxied WHERE message = ? AND key_id = ? AND NOT"
                " (digest = ? AND target = ?)",
                message,
                key_id.hex,
                digest,
                str(target),
            )
            kind = BlockType.MESSAGE_ANNOUNCEMENT
            self._put(digest, kind, target, now, message=message, key_id=key_id.hex)

    def record_acknowledgment(
        self, mail: int | None, digest: bytes, target: Transport, now: datetime
    ) -> None:
        """Record that the server took the acknowledgment of a filed mail."""
        with self._database.unit():
            self._put(digest, BlockType.ACKNOWLEDGMENT, target, now, mail=mail)

    def since(self) -> datetime | None:
        """Return from when on the server's rows matter; ``None`` if nothing is under way."""
        row = self._database.row(
            "SELECT min(handed) AS first FROM proxied WHERE state = ?", QueueState.WAITING
        )
        return None if row is None or row["first"] is None else parse_date(row["first"]) - _SLACK

    def update(self, told: Iterable[QueueRow]) -> None:
        """Take note of the server's rows; what was delivered stays so, whatever a mirror says."""
        with self._database.unit():
            for row in told:
                for held in self._database.rows(
                    "SELECT * FROM proxied WHERE digest = ? AND line = ?", row.digest, row.post_to
                ):
                    if _is_news(held, row):
                        self._note(held["id"], row)

    def announced(self, message: int, key_id: KeyId) -> Proxied | None:
        """Return how the announcement for one recipient stands."""
        row = self._database.row(
            "SELECT * FROM proxied WHERE message = ? AND key_id = ?", message, key_id.hex
        )
        return None if row is None else _proxied(row)

    def dead_data(self, message: int, target: Transport) -> Proxied | None:
        """Return a data block of a message that a group did not take."""
        rows = self._database.rows(
            "SELECT * FROM proxied WHERE message = ? AND key_id IS NULL AND target = ?",
            message,
            str(target),
        )
        return next((one for one in map(_proxied, rows) if one.dead), None)

    def held_up(self, message: int, key_id: KeyId, target: Transport) -> Proxied | None:
        """Return what waits for one recipient with a reason, his announcement first."""
        rows = self._database.rows(
            "SELECT * FROM proxied WHERE message = ? AND (key_id = ? OR key_id IS NULL)"
            " AND target = ? AND state = ? AND code <> '-' ORDER BY key_id IS NULL, id",
            message,
            key_id.hex,
            str(target),
            QueueState.WAITING,
        )
        return next(map(_proxied, rows), None)

    def give_again(self, message: int, target: Transport) -> None:
        """Count data as missing at a group that did not take all of it, where nothing is told."""
        self._database.write(
            "UPDATE proxied SET state = ? WHERE message = ? AND key_id IS NULL"
            " AND target = ? AND state <> ? AND line = ?",
            QueueState.GIVEN_UP,
            message,
            str(target),
            QueueState.DELIVERED,
            _UNTOLD,
        )

    def take_dead_acknowledgments(self) -> list[Proxied]:
        """Return acknowledgments that came back, and forget them: each is told once."""
        rows = self._database.rows(
            "SELECT * FROM proxied WHERE type = ? AND state <> ?",
            BlockType.ACKNOWLEDGMENT,
            QueueState.WAITING,
        )
        for row in rows:
            self._database.write("DELETE FROM proxied WHERE id = ?", row["id"])
        return [one for one in map(_proxied, rows) if one.dead]

    def _put(
        self,
        digest: bytes,
        kind: BlockType,
        target: Transport,
        now: datetime,
        *,
        line: int = 1,
        message: int | None = None,
        key_id: str | None = None,
        mail: int | None = None,
    ) -> None:
        # Rows that the server dated until now are those of an earlier try.
        self._database.write(
            "INSERT INTO proxied"
            " (message, key_id, mail, type, digest, line, target, handed, state)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (digest, target) DO UPDATE SET"
            " line = excluded.line, handed = excluded.handed, state = excluded.state, code = '-',"
            " demand = NULL, stale = queued",
            message,
            key_id,
            mail,
            kind,
            digest,
            line,
            str(target),
            format_date(now),
            QueueState.WAITING,
        )

    def _note(self, number: int, row: QueueRow) -> None:
        self._database.write(
            "UPDATE proxied SET state = ?, code = ?, demand = ?, queued = ?, last = ?"
            " WHERE id = ?",
            row.state,
            row.code,
            None if row.demand is None else str(row.demand),
            format_date(row.queued),
            None if row.last is None else format_date(row.last),
            number,
        )


def _is_news(held: sqlite3.Row, row: QueueRow) -> bool:
    queued = format_date(row.queued)
    if queued <= held["stale"]:
        return False
    rank = _BEST_FIRST.index
    return queued > held["queued"] or rank(row.state) <= rank(QueueState(held["state"]))


def _proxied(row: sqlite3.Row) -> Proxied:
    return Proxied(
        type=BlockType(row["type"]),
        target=Transport.parse(row["target"]),
        handed=parse_date(row["handed"]),
        state=QueueState(row["state"]),
        code=row["code"],
        demand=None if row["demand"] is None else Difficulty.parse(row["demand"]),
        last=None if row["last"] is None else parse_date(row["last"]),
        mail=row["mail"],
        seen=bool(row["queued"]),
    )
