"""What GET answers: the first type under a key that the visitor may read."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.bundles import SEPARATORS
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import BLOCK_POLICY, HARD_TEXT_BODY, Reader, Role
from sealmail_server.limits import Limits
from sealmail_server.visitor import Visitor
from sealmail_store import ReadView, StoredEntry

# A slice of data on its way out: large enough to be cheap, small enough to share the loop.
SLICE = 256 * 1024

_DEFAULT_LIMITS = Limits()
_END = b"EndBlock\r\n"


def find_block(
    view: ReadView,
    key: BlockKey,
    since: datetime | None,
    visitor: Visitor,
    now: datetime,
    limits: Limits = _DEFAULT_LIMITS,
) -> tuple[StoredEntry, ...]:
    """Return the entries to answer with; none means NOT FOUND.

    A mailbox that holds more than one answer may is given from its oldest entry on; SINCE
    gives the rest.
    """
    for kind in BlockType:
        if not _may_read(kind, visitor):
            continue
        is_mailbox = kind is BlockType.MESSAGE_ANNOUNCEMENT
        entries = view.entries(kind, key, since=since if is_mailbox else None)
        if is_mailbox and entries and not _is_recipient(entries[0], visitor):
            continue
        alive = tuple(entry for entry in entries if _is_alive(view, entry, now, limits))
        if alive:
            return _what_fits(alive)
    return ()


def join_entries(entries: tuple[StoredEntry, ...]) -> bytes:
    """Return the text of a block, its entries separated, ended as the wire wants it."""
    return _separator(entries[0]).join(entry.header for entry in entries) + _END


async def block_slices(entries: tuple[StoredEntry, ...]) -> AsyncIterator[bytes]:
    """Yield the answer to a GET piece by piece; files are read off the loop.

    ``DataGone`` or ``DamagedData`` come before the first piece, when NOT FOUND can be said.
    """
    data = entries[0].data
    if data is None:
        yield join_entries(entries)
        return
    if isinstance(data.content, bytes):
        yield entries[0].header + data.content
        return
    reader = await asyncio.to_thread(data.open)
    with reader:
        yield entries[0].header
        while chunk := await asyncio.to_thread(reader.read, SLICE):
            yield chunk


def _what_fits(entries: tuple[StoredEntry, ...]) -> tuple[StoredEntry, ...]:
    """Cut the entries to what the hard cap of a text body lets a reader take."""
    if entries[0].data is not None:
        return entries
    room = HARD_TEXT_BODY - len(_END)
    for number, entry in enumerate(entries):
        room -= len(entry.header) + len(_separator(entry))
        if room < 0:
            return entries[:number]
    return entries


def _separator(entry: StoredEntry) -> bytes:
    return f"{SEPARATORS.get(BlockType(entry.type), '')}\r\n".encode()


def _is_alive(view: ReadView, entry: StoredEntry, now: datetime, limits: Limits) -> bool:
    """Tell whether an entry is within its age, or kept beyond it for a reason."""
    kind = BlockType(entry.type)
    if now - entry.date < limits.max_age[kind]:
        return True
    return entry.revoked or (kind is BlockType.DATA and view.is_named(entry.key))


def _may_read(kind: BlockType, visitor: Visitor) -> bool:
    match BLOCK_POLICY[kind].reader:
        case Reader.ANYONE:
            return True
        case Reader.LOGGED_IN:
            return visitor.confirmed
        case Reader.RECIPIENT:
            return visitor.confirmed and visitor.role is Role.USER


def _is_recipient(entry: StoredEntry, visitor: Visitor) -> bool:
    """Tell by one entry: all under a mailbox's key name the recipient it was made from."""
    return visitor.key_id is not None and entry.holder == visitor.key_id.raw
