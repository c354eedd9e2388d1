"""What GET answers: the first type under a key that the visitor may read."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from functools import lru_cache

from sealmail_protocol.blocks import BlockType
from sealmail_protocol.bodies import FREE_BODY
from sealmail_protocol.bundles import SEPARATORS
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import BLOCK_POLICY, HARD_TEXT_BODY, Reader, Role
from sealmail_server.limits import Limits
from sealmail_server.visitor import Visitor
from sealmail_store import ReadView, StoredEntry

# A slice of data on its way out: large enough to be cheap, small enough to share the loop.
SLICE = 128 * 1024

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
    found = view.readable(key, *_rights(visitor), since)
    return () if found is None else _answer(view, found, now, limits)


def find_small_block(
    view: ReadView,
    key: BlockKey,
    since: datetime | None,
    visitor: Visitor,
    now: datetime,
    limits: Limits = _DEFAULT_LIMITS,
) -> tuple[StoredEntry, ...] | int:
    """Return the entries to answer with, as ``find_block``, or how much text there is to read.

    Text that needs room in memory is not read before there is some.
    """
    rights = _rights(visitor)
    found = view.readable(key, *rights, since, most=FREE_BODY)
    if found is None:
        return view.readable_size(key, *rights, since)
    return _answer(view, found, now, limits)


def _answer(
    view: ReadView, found: tuple[StoredEntry, ...], now: datetime, limits: Limits
) -> tuple[StoredEntry, ...]:
    alive = [entry for entry in found if _is_alive(view, entry, now, limits)]
    return _what_fits(tuple(entry for entry in alive if entry.type == alive[0].type))


def join_entries(entries: tuple[StoredEntry, ...]) -> bytes:
    """Return the text of a block, its entries separated, ended as the wire wants it."""
    return _separator(entries[0]).join(entry.header for entry in entries) + _END


def whole_answer(entries: tuple[StoredEntry, ...]) -> bytes | None:
    """Return the whole answer to a GET, unless it is large and comes in slices."""
    data = entries[0].data
    if data is None:
        small = sum(len(entry.header) for entry in entries) <= SLICE
        return join_entries(entries) if small else None
    return entries[0].header + data.content if isinstance(data.content, bytes) else None


async def block_slices(entries: tuple[StoredEntry, ...]) -> AsyncIterator[bytes]:
    """Yield the answer to a GET piece by piece; files are read off the loop, a slice ahead.

    ``DataGone`` or ``DamagedData`` come before the first piece, when NOT FOUND can be said.
    """
    whole, data = whole_answer(entries), entries[0].data
    if whole is not None or data is None:
        for piece in _text_slices(entries) if whole is None else (whole,):
            yield piece
        return
    reader = await asyncio.to_thread(data.open)
    following = asyncio.ensure_future(asyncio.to_thread(reader.read, SLICE))
    try:
        yield entries[0].header
        while chunk := await following:
            following = asyncio.ensure_future(asyncio.to_thread(reader.read, SLICE))
            yield chunk
    finally:
        # Whoever stops listening leaves a read that cannot be stopped.
        await asyncio.wait((following,))
        reader.close()


def _text_slices(entries: tuple[StoredEntry, ...]) -> Iterator[bytes]:
    """Cut a large text: who fetches it slowly costs no second copy of it."""
    slice_ = bytearray()
    for number, entry in enumerate(entries):
        slice_ += _separator(entry) if number else b""
        slice_ += entry.header
        if len(slice_) >= SLICE:
            yield bytes(slice_)
            slice_.clear()
    yield bytes(slice_) + _END


def _what_fits(entries: tuple[StoredEntry, ...]) -> tuple[StoredEntry, ...]:
    """Cut the entries to what the hard cap of a text body lets a reader take."""
    if len(entries) < 2:
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


def _rights(visitor: Visitor) -> tuple[tuple[BlockType, ...], bytes]:
    """Return which types a visitor is given, and whose announcements."""
    key_id = visitor.key_id
    return _readable(visitor.role, visitor.confirmed), key_id.raw if key_id else b""


@lru_cache
def _readable(role: Role, confirmed: bool) -> tuple[BlockType, ...]:
    """Return the types that a visitor is given, in the order in which GET looks for them."""
    allowed = {
        Reader.ANYONE: True,
        Reader.LOGGED_IN: confirmed,
        Reader.RECIPIENT: confirmed and role is Role.USER,
    }
    return tuple(kind for kind, policy in BLOCK_POLICY.items() if allowed[policy.reader])
