"""The life of a sent message, as rows that are written before anything leaves the machine.

Dates, nonces and sealed bytes are stored before the first send, so a repeat is byte for byte
the same. What is done between two rows is in ``sending``.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sealmail_client.drafts import Addressee, Draft
from sealmail_client.errors import ClientError
from sealmail_client.home_database import HomeDatabase
from sealmail_pow import Difficulty
from sealmail_protocol.block_codec import parse_data_header, parse_text_block
from sealmail_protocol.blocks import BlockType, DataHeader, MessageAnnouncement
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.fields import join_lines, split_lines
from sealmail_protocol.keys import BlockKey, KeyId
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.stamps import message_challenge

LIFETIME = BLOCK_POLICY[BlockType.MESSAGE_ANNOUNCEMENT].max_age
# Opened on its last day, a message is acknowledged by a block that lives as long again.
ACK_LIFETIME = LIFETIME + BLOCK_POLICY[BlockType.ACKNOWLEDGMENT].max_age


class Stage(StrEnum):
    """How far a message has come, for one of its recipients."""

    COMPOSED = "composed"
    SEALED = "sealed"
    STAMPED = "stamped"
    QUEUED = "queued"  # the home server has it and delivers it
    SENT = "sent"
    ACKNOWLEDGED = "acknowledged"
    EXPIRED = "expired"
    FAILED = "failed"  # it came back, or no way leads there: no repetition can mend that
    CANCELLED = "cancelled"


_GIVEN_UP = frozenset({Stage.EXPIRED, Stage.CANCELLED})
# Each stage may be recorded again, since each step may be repeated.
MOVES: dict[Stage, frozenset[Stage]] = {
    Stage.COMPOSED: frozenset({Stage.COMPOSED, Stage.SEALED, *_GIVEN_UP}),
    Stage.SEALED: frozenset({Stage.SEALED, Stage.STAMPED, *_GIVEN_UP}),
    # A demand that has climbed is stamped again.
    Stage.STAMPED: frozenset({Stage.STAMPED, Stage.QUEUED, Stage.SENT, Stage.FAILED, *_GIVEN_UP}),
    # What comes back is stamped again, or given to the home server again.
    Stage.QUEUED: frozenset(
        {Stage.QUEUED, Stage.STAMPED, Stage.SENT, Stage.ACKNOWLEDGED, Stage.FAILED, Stage.EXPIRED}
    ),
    Stage.SENT: frozenset({Stage.SENT, Stage.ACKNOWLEDGED, Stage.EXPIRED}),
    Stage.ACKNOWLEDGED: frozenset({Stage.ACKNOWLEDGED}),
    Stage.EXPIRED: frozenset({Stage.EXPIRED}),
    Stage.FAILED: frozenset({Stage.FAILED}),
    Stage.CANCELLED: frozenset({Stage.CANCELLED}),
}
UNSENT = (Stage.COMPOSED, Stage.SEALED, Stage.STAMPED)
# Left this machine, and perhaps opened.
UNDER_WAY = (Stage.QUEUED, Stage.SENT)
ENDED = frozenset({Stage.ACKNOWLEDGED, Stage.FAILED, *_GIVEN_UP})


class NoSuchMessage(ClientError):
    """There is no message with this number in the outbox: `sealmail outbox` shows them."""

    exit_code = 21


class TooLate(ClientError):
    """A message that has left, or has ended, cannot be cancelled."""

    exit_code = 40


class OutOfOrder(Exception):
    """A program error: a step was recorded before the one it builds on."""


@dataclass(frozen=True, slots=True)
class OutgoingBlock:
    """One data block of a sealed message; ``header`` is there once it is stamped."""

    position: int
    key: BlockKey
    size: int
    header: DataHeader | None


@dataclass(frozen=True, slots=True)
class OutgoingRecipient:
    """How far the message has come for one recipient."""

    key_id: KeyId
    address: str
    stage: Stage
    reason: str
    ack_key: BlockKey | None
    announcement: MessageAnnouncement | None
    server: str | None
    sent: datetime | None
    acknowledged: datetime | None
    tries: int = 0
    next_try: datetime | None = None
    max_price: Difficulty | None = None  # that the user agreed to; rows of old have none

    @property
    def left(self) -> bool:
        """Return whether a server has ever taken it for him, whatever became of it then."""
        return self.server is not None

    def due(self, now: datetime) -> bool:
        """Return whether the time has come to send, or to try again."""
        return self.next_try is None or self.next_try <= now


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message in the outbox; a mail with Bcc recipients is several, each sealed on its own."""

    number: int
    composed: datetime
    draft: Draft
    copy_of: int | None
    date: datetime | None
    message_hash: BlockKey | None
    filed: bool
    blocks: tuple[OutgoingBlock, ...]
    recipients: tuple[OutgoingRecipient, ...]
    after: datetime | None = None

    @property
    def ended(self) -> bool:
        """Return whether nothing is left to do for anybody."""
        return all(recipient.stage in ENDED for recipient in self.recipients)

    @property
    def left(self) -> bool:
        """Return whether it has ever left for anybody."""
        return any(recipient.left for recipient in self.recipients)

    @property
    def block_keys(self) -> tuple[BlockKey, ...]:
        """Return the keys of its data blocks, in order."""
        return tuple(block.key for block in self.blocks)

    def stamped_bytes(self, recipient: KeyId, date: datetime) -> bytes:
        """Return what is stamped of its announcement to ``recipient``, once it is sealed.

        ``date`` is that of the announcement, which may be younger than the seal.
        """
        if self.message_hash is None:
            raise OutOfOrder(f"message {self.number} is not sealed yet")
        return message_challenge(recipient, self.message_hash, date, self.block_keys)

    def at(self, *stages: Stage) -> tuple[OutgoingRecipient, ...]:
        """Return the recipients who are at one of these stages."""
        return tuple(recipient for recipient in self.recipients if recipient.stage in stages)

    def recipient(self, key_id: KeyId) -> OutgoingRecipient:
        """Return the recipient with this key."""
        return next(one for one in self.recipients if one.key_id == key_id)


class Outbox:
    """All messages that were ever sent from one home."""

    def __init__(self, database: HomeDatabase) -> None:
        self._database = database

    def add(
        self,
        draft: Draft,
        now: datetime,
        not_before: datetime | None = None,
        after: datetime | None = None,
        limits: Mapping[KeyId, Difficulty] | None = None,
    ) -> int:
        """Store what is to be sent, and return the number of its first copy.

        That one alone is filed among the sent mail, for all; all leave ``not_before`` a time, and
        the home server is to deliver none of them before ``after``. ``limits`` are the dearest
        stamps that the user agreed to pay.
        """
        first: int | None = None
        with self._database.unit():
            for readers in draft.copies():
                number = self._add_copy(
                    draft, readers, now, first, not_before, after, limits or {}
                )
                first = first or number
        if first is None:
            raise ValueError("a draft without recipients")
        return first

    def copies(self, number: int) -> tuple[OutgoingMessage, ...]:
        """Return all copies of a mail, by the number of the first."""
        query = "SELECT * FROM outgoing WHERE id = ? OR copy_of = ? ORDER BY id"
        return tuple(map(self._message, self._database.rows(query, number, number)))

    def all(self) -> tuple[OutgoingMessage, ...]:
        """Return every message, oldest first."""
        return tuple(map(self._message, self._database.rows("SELECT * FROM outgoing ORDER BY id")))

    def unfinished(self) -> tuple[OutgoingMessage, ...]:
        """Return the messages for which something is left to do, oldest first.

        Of one that has left, that may be no more than to file it.
        """
        marks = ", ".join("?" * len(ENDED))
        rows = self._database.rows(
            "SELECT * FROM outgoing AS copy WHERE EXISTS ("  # noqa: S608 - question marks
            f"SELECT 1 FROM outgoing_recipient WHERE message = copy.id AND state NOT IN ({marks}))"
            " OR EXISTS (SELECT 1 FROM outgoing_recipient WHERE message = copy.id"
            " AND server IS NOT NULL)"
            " AND NOT (SELECT filed FROM outgoing WHERE id = coalesce(copy.copy_of, copy.id))"
            " ORDER BY id",
            *ENDED,
        )
        return tuple(map(self._message, rows))

    def one(self, number: int) -> OutgoingMessage:
        """Return the message with this number."""
        row = self._database.row("SELECT * FROM outgoing WHERE id = ?", number)
        if row is None:
            raise NoSuchMessage(f"no message {number} in the outbox: `sealmail outbox` shows all")
        return self._message(row)

    def record_sealed(
        self,
        number: int,
        date: datetime,
        message_hash: BlockKey,
        blocks: Sequence[OutgoingBlock],
        ack_keys: Mapping[KeyId, BlockKey],
    ) -> None:
        """Record that the sealed bytes are on disk, and what they are made of.

        Of blocks that left before the seal was whole, the lines are kept.
        """
        with self._database.unit():
            self._database.write(
                "UPDATE outgoing SET date = ?, message_hash = ? WHERE id = ?",
                format_date(date),
                message_hash.hex,
                number,
            )
            stamped = {block.key: block.header for block in self.one(number).blocks}
            self._database.write("DELETE FROM outgoing_data WHERE message = ?", number)
            for block in blocks:
                self._write_block(number, block, block.header or stamped.get(block.key))
            for key_id, ack_key in ack_keys.items():
                self._move(number, key_id, Stage.SEALED, ack_key=ack_key.hex, reason="")

    def record_resealing(self, number: int) -> None:
        """Record that the message will be other bytes: nothing of it is anywhere yet."""
        query = "SELECT 1 FROM outgoing_data WHERE message = ?"
        if self._database.row(query, number) is None:
            return
        with self._database.unit():
            self._database.write("DELETE FROM outgoing_data WHERE message = ?", number)
            self._database.write("DELETE FROM outgoing_taken WHERE message = ?", number)

    def record_data_stamp(self, number: int, block: OutgoingBlock, header: DataHeader) -> None:
        """Record the lines of one data block; whoever took it with others has another block."""
        with self._database.unit():
            self._database.write(
                "DELETE FROM outgoing_taken WHERE message = ? AND position = ?",
                number,
                block.position,
            )
            self._write_block(number, block, header)

    def _write_block(self, number: int, block: OutgoingBlock, header: DataHeader | None) -> None:
        self._database.write(
            "INSERT OR REPLACE INTO outgoing_data (message, position, key, size, header)"
            " VALUES (?, ?, ?, ?, ?)",
            number,
            block.position,
            block.key.hex,
            block.size,
            None if header is None else join_lines(header.lines),
        )

    def record_taken(self, number: int, positions: Iterable[int], server: str) -> None:
        """Record that a server holds data blocks: they are not sent there again."""
        with self._database.unit():
            for position in positions:
                self._database.write(
                    "INSERT OR IGNORE INTO outgoing_taken (server, message, position)"
                    " VALUES (?, ?, ?)",
                    server,
                    number,
                    position,
                )

    def taken(self, number: int, server: str) -> frozenset[int]:
        """Return the positions of the data blocks that a server holds."""
        rows = self._database.rows(
            "SELECT position FROM outgoing_taken WHERE message = ? AND server = ?", number, server
        )
        return frozenset(row["position"] for row in rows)

    def record_stamped(
        self, number: int, key_id: KeyId, announcement: MessageAnnouncement
    ) -> None:
        """Record the announcement for one recipient, stamped."""
        with self._database.unit():
            lines = join_lines(announcement.lines)
            self._move(number, key_id, Stage.STAMPED, announcement=lines, reason="")

    def record_sent(self, number: int, key_id: KeyId, server: str, now: datetime) -> None:
        """Record which server took data and announcement."""
        with self._database.unit():
            self._move(number, key_id, Stage.SENT, server=server, sent=format_date(now), reason="")

    def record_queued(self, number: int, key_id: KeyId, server: str) -> None:
        """Record that the home server took all of it, and delivers it from now on."""
        with self._database.unit():
            self._move(number, key_id, Stage.QUEUED, server=server, reason="")

    def record_waiting(self, number: int, key_id: KeyId, reason: str) -> None:
        """Record why the home server has not delivered it yet."""
        with self._database.unit():
            self._move(number, key_id, Stage.QUEUED, reason=reason)

    def record_returned(self, number: int, key_id: KeyId) -> None:
        """Record that it came back, and is to leave again as it is."""
        with self._database.unit():
            self._move(number, key_id, Stage.STAMPED)

    def record_failed(self, number: int, key_id: KeyId, reason: str) -> None:
        """Record that it came back for good, or never left, and why."""
        with self._database.unit():
            self._move(number, key_id, Stage.FAILED, reason=reason)

    def record_trouble(
        self, number: int, key_id: KeyId, reason: str, next_try: datetime | None = None
    ) -> None:
        """Record why a try failed and when the next may be; the stage stays as it is."""
        self._database.write(
            "UPDATE outgoing_recipient SET reason = ?, tries = tries + 1, next_try = ?"
            " WHERE message = ? AND key_id = ?",
            reason,
            None if next_try is None else format_date(next_try),
            number,
            key_id.hex,
        )

    def record_acknowledged(self, number: int, key_id: KeyId, now: datetime) -> None:
        """Record that the recipient has opened the message."""
        with self._database.unit():
            self._move(
                number, key_id, Stage.ACKNOWLEDGED, acknowledged=format_date(now), reason=""
            )

    def record_filed(self, number: int) -> None:
        """Record that a copy is among the sent mail."""
        self._database.write("UPDATE outgoing SET filed = 1 WHERE id = ?", number)

    def agree(self, number: int, limit: Difficulty) -> tuple[OutgoingMessage, ...]:
        """Record that the user pays up to ``limit`` for a mail, and return all its copies.

        What was tried in vain is due at once; what is held back stays so. ``TooLate`` if nothing
        is left to pay.
        """
        first = self.one(number).copy_of or number
        unpaid = [
            (copy.number, one)
            for copy in self.copies(first)
            for one in copy.at(*UNSENT, Stage.QUEUED)
        ]
        if not unpaid:
            raise TooLate(f"message {number} has left or has ended: nothing is left to pay")
        with self._database.unit():
            for copy, recipient in unpaid:
                self._database.write(
                    "UPDATE outgoing_recipient SET max_price = ?,"
                    " next_try = CASE WHEN tries > 0 THEN NULL ELSE next_try END"
                    " WHERE message = ? AND key_id = ?",
                    str(limit),
                    copy,
                    recipient.key_id.hex,
                )
        return self.copies(first)

    def cancel(self, number: int, now: datetime) -> tuple[OutgoingMessage, ...]:
        """End a mail for everybody it has not left for, and return all its copies.

        ``TooLate`` if there is nobody.
        """
        first = self.one(number).copy_of or number
        unsent = [(copy.number, one) for copy in self.copies(first) for one in copy.at(*UNSENT)]
        if not unsent:
            raise TooLate(f"message {number} has left or has ended: nothing can be called back")
        reason = f"cancelled on {format_date(now)}"
        with self._database.unit():
            for copy, recipient in unsent:
                self._move(copy, recipient.key_id, Stage.CANCELLED, reason=reason)
        return self.copies(first)

    def expire(self, now: datetime) -> None:
        """End what was tried long enough, and what no server keeps any more."""
        for message in self.unfinished():
            for recipient in message.recipients:
                if recipient.stage not in ENDED and now >= _end_of(message, recipient):
                    reason = recipient.reason or "not acknowledged in time"
                    with self._database.unit():
                        self._move(message.number, recipient.key_id, Stage.EXPIRED, reason=reason)

    def _add_copy(
        self,
        draft: Draft,
        readers: Sequence[Addressee],
        now: datetime,
        first: int | None,
        not_before: datetime | None,
        after: datetime | None,
        limits: Mapping[KeyId, Difficulty],
    ) -> int:
        number = self._database.write(
            "INSERT INTO outgoing (composed, draft, copy_of, filed, after) VALUES (?, ?, ?, ?, ?)",
            format_date(now),
            draft.to_json(),
            first,
            first is not None,
            None if after is None else format_date(after),
        )
        for addressee in readers:
            limit = limits.get(addressee.key_id)
            self._database.write(
                "INSERT INTO outgoing_recipient"
                " (message, key_id, address, state, next_try, max_price)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                number,
                addressee.key_id.hex,
                addressee.address,
                Stage.COMPOSED,
                None if not_before is None else format_date(not_before),
                None if limit is None else str(limit),
            )
        return number

    def _move(self, number: int, key_id: KeyId, stage: Stage, **columns: object) -> None:
        row = self._database.row(
            "SELECT state FROM outgoing_recipient WHERE message = ? AND key_id = ?",
            number,
            key_id.hex,
        )
        if row is None or stage not in MOVES[Stage(row["state"])]:
            raise OutOfOrder(f"message {number} cannot become {stage}")
        # The names are those of our own keyword arguments, never of anything received.
        assignments = "".join(f", {name} = ?" for name in columns)
        self._database.write(
            f"UPDATE outgoing_recipient SET state = ?{assignments}"  # noqa: S608
            " WHERE message = ? AND key_id = ?",
            stage,
            *columns.values(),
            number,
            key_id.hex,
        )

    def _message(self, row: sqlite3.Row) -> OutgoingMessage:
        number = row["id"]
        blocks = self._database.rows(
            "SELECT * FROM outgoing_data WHERE message = ? ORDER BY position", number
        )
        recipients = self._database.rows(
            "SELECT * FROM outgoing_recipient WHERE message = ? ORDER BY rowid", number
        )
        return OutgoingMessage(
            number=number,
            composed=parse_date(row["composed"]),
            draft=Draft.from_json(row["draft"]),
            copy_of=row["copy_of"],
            date=_date(row["date"]),
            message_hash=_key(row["message_hash"]),
            filed=bool(row["filed"]),
            blocks=tuple(map(_block, blocks)),
            recipients=tuple(map(_recipient, recipients)),
            after=_date(row["after"]),
        )


def _end_of(message: OutgoingMessage, recipient: OutgoingRecipient) -> datetime:
    """Return when to give up; the announcement may be younger than the message."""
    if recipient.stage in UNDER_WAY and recipient.announcement is not None:
        return recipient.announcement.date + ACK_LIFETIME
    return message.composed + LIFETIME


def _block(row: sqlite3.Row) -> OutgoingBlock:
    header = None if row["header"] is None else parse_data_header(split_lines(row["header"]))
    return OutgoingBlock(row["position"], BlockKey.from_hex(row["key"]), row["size"], header)


def _recipient(row: sqlite3.Row) -> OutgoingRecipient:
    return OutgoingRecipient(
        key_id=KeyId.from_hex(row["key_id"]),
        address=row["address"],
        stage=Stage(row["state"]),
        reason=row["reason"],
        ack_key=_key(row["ack_key"]),
        announcement=_announcement(row["announcement"]),
        server=row["server"],
        sent=_date(row["sent"]),
        acknowledged=_date(row["acknowledged"]),
        tries=row["tries"],
        next_try=_date(row["next_try"]),
        max_price=None if row["max_price"] is None else Difficulty.parse(row["max_price"]),
    )


def _announcement(stored: bytes | None) -> MessageAnnouncement | None:
    if stored is None:
        return None
    block = parse_text_block(split_lines(stored))
    assert isinstance(block, MessageAnnouncement)  # noqa: S101 - only such are written
    return block


def _date(text: str | None) -> datetime | None:
    return None if text is None else parse_date(text)


def _key(text: str | None) -> BlockKey | None:
    return None if text is None else BlockKey.from_hex(text)
