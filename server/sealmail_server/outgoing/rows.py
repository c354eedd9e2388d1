"""Between the store's queue and what waits in memory: how a proxied block stands in a row."""

import re
import secrets
from datetime import datetime, timedelta

from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import BLOCK_POLICY
from sealmail_protocol.replies import QueueRow as WireRow
from sealmail_protocol.replies import QueueState
from sealmail_server.outgoing.bags import Waiting
from sealmail_store import QueueKind, QueueRow

# AFTER may be three days ahead, and a week of trying comes on top.
GIVEN_UP_AFTER = timedelta(days=10)
# What a ticket is: enough that no two rows of one block have the same.
_TICKET_BYTES = 8
TICKET = re.compile(r"[0-9a-f]{16}")


def new_ticket() -> str:
    """Return what tells a row from the others of its block, here and at the partner."""
    return secrets.token_hex(_TICKET_BYTES)


def new_row(
    *,
    ticket: str,
    digest: bytes,
    key: BlockKey,
    type: BlockType,
    date: datetime,
    entry: int,
    owner: str,
    target: Transport,
    line: int,
    queued: datetime,
    start: datetime,
) -> QueueRow:
    """Return the row of a block that waits for ``start`` to go to a target."""
    return QueueRow(
        kind=QueueKind.PROXY,
        digest=digest,
        queued=queued,
        type=type,
        key=key,
        entry=entry,
        destination=str(target),
        not_before=start,
        owner=owner,
        line=line,
        content=content_of(date, start),
        ticket=ticket,
    )


def content_of(date: datetime, start: datetime) -> bytes:
    """Return what a row keeps of its block's Date, and of the moment from which it may go."""
    return f"{format_date(date)} {format_date(start)}".encode()


def dates_of(row: QueueRow) -> tuple[datetime, datetime] | tuple[None, None]:
    """Return what ``content_of`` kept; a settled row keeps nothing."""
    if not row.content:
        return None, None
    date, start = map(parse_date, row.content.decode().split(" "))
    return date, start


def waiting_of(row: QueueRow) -> Waiting:
    """Return a row as it waits; ``ValueError`` if it is not one that ``new_row`` made."""
    date, start = dates_of(row)
    if date is None or start is None or row.key is None or row.owner is None:
        raise ValueError("a row of the queue without dates, key or owner")
    if row.line is None or row.entry is None:
        raise ValueError("a row of the queue without line or block")
    kind = BlockType(row.type)
    return Waiting(
        number=row.number,
        digest=row.digest,
        key=row.key,
        type=kind,
        owner=row.owner,
        target=Transport.parse(row.destination),
        line=row.line,
        entry=row.entry,
        start=start,
        expires=min(date + BLOCK_POLICY[kind].max_age, row.queued + GIVEN_UP_AFTER),
        due=row.not_before or start,
        attempts=row.attempts,
        code=row.code,
    )


def wire_row(row: QueueRow) -> WireRow:
    """Return a row as QUEUE tells it."""
    if row.key is None or row.line is None:
        raise ValueError("a row of the queue without key or line")
    code, _, demand = row.code.partition(" ")
    return WireRow(
        row.key,
        BlockType(row.type),
        row.line,
        QueueState(row.state),
        code,
        row.queued,
        row.last,
        row.digest,
        Difficulty.parse(demand) if demand else None,
    )


def code_with(code: str, demand: Difficulty | None) -> str:
    """Return the code that a row keeps, and beside it the stamp that was asked for."""
    return f"{code} {demand}" if demand else code
