"""The life of an arriving message, as rows that are written before each step.

What is done between two rows is in ``receiving``; every step may be repeated.
"""

import hashlib
import sqlite3
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from sealmail_client.errors import ClientError
from sealmail_client.home_database import HomeDatabase
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import Acknowledgment, MessageAnnouncement
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.fields import join_lines, split_lines
from sealmail_protocol.keys import AckHash

# Proxies, delayed mail and a late partner deliver old dates, so we look back behind the newest.
LOOK_BACK = timedelta(days=4)
# What even that misses is found by asking for everything this often.
FULL_GET_EVERY = timedelta(days=1)


class NoSuchArrival(ClientError):
    """No message with this number waits to be fetched: `sealmail fetch` lists those that do."""

    exit_code = 21


class Step(StrEnum):
    """How far an arriving message has come."""

    UNDERPAID = "underpaid"
    LARGE = "large"
    ANNOUNCED = "announced"
    FETCHED = "fetched"
    FILED = "filed"
    ENDED = "ended"
    REFUSED = "refused"


# What waits for its blocks, its sender's key or the user's word.
WAITING = (Step.UNDERPAID, Step.LARGE, Step.ANNOUNCED, Step.FETCHED)


@dataclass(frozen=True, slots=True)
class DueAcknowledgment:
    """What is owed to the sender of a message that was opened."""

    secret: AckHash = field(repr=False)
    servers: str
    block: Acknowledgment | None


@dataclass(frozen=True, slots=True)
class ArrivingMessage:
    """A message that was announced to us."""

    number: int
    announcement: MessageAnnouncement
    bits: int
    step: Step
    reason: str
    mail: int | None
    due: DueAcknowledgment | None
    wanted: bool = False
    tries: int = 0  # to open it, in vain
    next_try: datetime | None = None

    def may_be_tried(self, now: datetime) -> bool:
        """Return whether the time has come to open it, or to try again."""
        return self.next_try is None or self.next_try <= now


class Inbox:
    """All messages that were ever announced to one home."""

    def __init__(self, database: HomeDatabase) -> None:
        self._database = database

    def since(self, mailbox: str, now: datetime) -> datetime | None:
        """Return the date to ask a mailbox from; ``None`` asks for everything."""
        row = self._database.row("SELECT * FROM mailbox WHERE name = ?", mailbox)
        if row is None:
            return None
        # A clock that was wrong for a while leaves dates of the future, which would hide mail.
        if not timedelta(0) <= now - parse_date(row["full_get"]) < FULL_GET_EVERY:
            return None
        return parse_date(row["newest"]) - LOOK_BACK

    def note_asked(
        self, mailbox: str, newest: datetime | None, now: datetime, *, full: bool
    ) -> None:
        """Remember that a mailbox was read to its end, and the newest Date seen in it."""
        row = self._database.row("SELECT * FROM mailbox WHERE name = ?", mailbox)
        known = None if row is None else parse_date(row["newest"])
        # A Date from the future must not hide what comes before it.
        dates = [min(date, now) for date in (known, newest) if date is not None]
        full_get = format_date(now) if full or row is None else row["full_get"]
        self._database.write(
            "INSERT OR REPLACE INTO mailbox VALUES (?, ?, ?)",
            mailbox,
            format_date(max(dates, default=now)),
            full_get,
        )

    def add(self, announcement: MessageAnnouncement, bits: int, step: Step) -> bool:
        """Note a message that is announced; ``False`` if it was known.

        One that waits for its price is taken up when it is announced again, and paid.
        """
        digest = _digest(announcement)
        row = self._database.row("SELECT id, state FROM incoming WHERE digest = ?", digest)
        if row is not None:
            if row["state"] == Step.UNDERPAID and step is not Step.UNDERPAID:
                self.record_step(row["id"], step)
            return False
        self._database.write(
            "INSERT INTO incoming (digest, message_hash, date, bits, state, announcement)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            digest,
            announcement.message_hash.hex,
            format_date(announcement.date),
            bits,
            step,
            join_lines(announcement.lines),
        )
        return True

    def at(self, *steps: Step) -> tuple[ArrivingMessage, ...]:
        """Return the messages at one of these steps, as they were announced.

        What did not open stands behind the others.
        """
        marks = ", ".join("?" * len(steps))
        rows = self._database.rows(
            f"SELECT * FROM incoming WHERE state IN ({marks}) ORDER BY tries, id",  # noqa: S608
            *steps,
        )
        return tuple(map(_arriving, rows))

    def want(self, number: int) -> None:
        """Note that the user asked for a message that waits, whatever its size and price.

        It may be tried at once.
        """
        row = self._database.row("SELECT state FROM incoming WHERE id = ?", number)
        if row is None or row["state"] not in (*WAITING, Step.REFUSED):
            raise NoSuchArrival(f"no message {number} waits: `sealmail fetch` lists those that do")
        self._database.write(
            "UPDATE incoming SET state = ?, reason = '', wanted = 1, next_try = NULL WHERE id = ?",
            Step.ANNOUNCED,
            number,
        )

    def record_step(self, number: int, step: Step, reason: str = "") -> None:
        """Record how far a message has come, and why not further."""
        self._database.write(
            "UPDATE incoming SET state = ?, reason = ? WHERE id = ?", step, reason, number
        )

    def put_off(self, number: int, next_try: datetime) -> None:
        """Record that a message did not open, and when the next try may be."""
        self._database.write(
            "UPDATE incoming SET tries = tries + 1, next_try = ? WHERE id = ?",
            format_date(next_try),
            number,
        )

    def forget(self, number: int) -> None:
        """Let go of a message that never came; announced again, it is new."""
        self._database.write("DELETE FROM incoming WHERE id = ?", number)

    def record_filed(
        self, number: int, mail: int, due: DueAcknowledgment | None, reason: str = ""
    ) -> None:
        """Record where a message is filed, and what is owed to its sender."""
        self._database.write(
            "UPDATE incoming SET state = ?, reason = ?, mail = ?, ack_secret = ?, ack_servers = ?"
            " WHERE id = ?",
            Step.ENDED if due is None else Step.FILED,
            reason,
            mail,
            due.secret.raw if due else None,
            due.servers if due else None,
            number,
        )

    def record_acknowledgment(self, number: int, block: Acknowledgment) -> None:
        """Record the stamped acknowledgment before it is sent, so that a repeat is the same."""
        self._database.write(
            "UPDATE incoming SET ack_block = ? WHERE id = ?", join_lines(block.lines), number
        )

    def record_acknowledged(self, number: int, reason: str = "") -> None:
        """Record that nothing is owed any more."""
        self._database.write(
            "UPDATE incoming SET state = ?, reason = ?, ack_secret = NULL WHERE id = ?",
            Step.ENDED,
            reason,
            number,
        )


def _digest(announcement: MessageAnnouncement) -> bytes:
    """Tell messages apart by what they are made of: one announced twice is still one."""
    parts = (announcement.message_hash, *announcement.data_blocks)
    return hashlib.sha256(b"".join(part.raw for part in parts)).digest()


def _arriving(row: sqlite3.Row) -> ArrivingMessage:
    block = parse_text_block(split_lines(row["announcement"]))
    assert isinstance(block, MessageAnnouncement)  # noqa: S101 - only such are written
    return ArrivingMessage(
        number=row["id"],
        announcement=block,
        bits=row["bits"],
        step=Step(row["state"]),
        reason=row["reason"],
        mail=row["mail"],
        due=_due(row),
        wanted=bool(row["wanted"]),
        tries=row["tries"],
        next_try=None if row["next_try"] is None else parse_date(row["next_try"]),
    )


def _due(row: sqlite3.Row) -> DueAcknowledgment | None:
    if row["ack_secret"] is None:
        return None
    block = None if row["ack_block"] is None else parse_text_block(split_lines(row["ack_block"]))
    assert block is None or isinstance(block, Acknowledgment)  # noqa: S101 - only such are written
    return DueAcknowledgment(AckHash(row["ack_secret"]), row["ack_servers"], block)
