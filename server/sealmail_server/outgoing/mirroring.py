"""The queue of a pair: each server keeps a copy of what the other has taken to deliver.

The owner of a row delivers it and tells its partner what became of it. The copy answers QUEUE,
and is delivered from here when the owner has been away for too long. Of two states the better
one stays: delivered, refused, given up, waiting.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sealmail_pow import Difficulty
from sealmail_protocol.addresses import Transport
from sealmail_protocol.blocks import BlockType
from sealmail_protocol.dates import format_date, parse_date
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import Accepted, Verdict
from sealmail_server.admission import Decision
from sealmail_server.candidates import Arrival
from sealmail_server.data_intake import DataIntake
from sealmail_server.intake import Intake
from sealmail_server.outgoing.accepting import NotServed, Order, held_text
from sealmail_server.outgoing.rows import content_of, dates_of
from sealmail_server.partnership import IS_ORIGINAL, Partnership
from sealmail_store import (
    PROXIED,
    BlockStore,
    QueueKind,
    QueueRow,
    QueueState,
    StoredEntry,
    WriteView,
)

_log = logging.getLogger(__name__)

_BLOCK = b"Queued-Block: "
_ROW = b"Queued-Row: "
# The better state first; of two mirrored states it stays.
_BEST_FIRST = tuple(QueueState(each) for each in ("delivered", "refused", "given-up", "waiting"))
_KINDS = (QueueKind.PROXY, QueueKind.MIRRORED)
# Head lines beyond this are not told: the partner would throw such a body away.
_MAX_HEAD = 60 * 1024
_NONE = "-"

_Lines = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What the partner tells: the rows of one block, and the lines of the block, if it comes."""

    digest: bytes
    type: BlockType
    rows: tuple[QueueRow, ...]
    lines: _Lines


def told_body(digest: bytes, rows: Sequence[QueueRow]) -> bytes | None:
    """Return the head of a ``PARTNER QUEUED``; ``None`` if there is nothing to tell, or too much."""
    known = [row for row in rows if row.digest == digest and row.kind in _KINDS]
    known = [row for row in known if row.kind == QueueKind.PROXY or not _waits(row)]
    if not known:
        return None
    lines = [_BLOCK + f"{digest.hex()} {known[0].type}".encode(), *map(_row_line, known)]
    head = b"".join(line + b"\r\n" for line in lines)
    if len(head) > _MAX_HEAD:
        _log.warning("a block with %d targets is too large to be mirrored", len(known))
        return None
    return head


def parse_told(key: BlockKey, lines: _Lines) -> Told:
    """Read the head of a ``PARTNER QUEUED``; ``ValueError`` if it is none."""
    if not lines or not lines[0].startswith(_BLOCK):
        raise ValueError("no Queued-Block line")
    digest, kind = lines[0][len(_BLOCK) :].decode().split(" ")
    count = 1
    while count < len(lines) and lines[count].startswith(_ROW):
        count += 1
    type, raw = BlockType(kind), bytes.fromhex(digest)
    rows = tuple(_parse_row(line[len(_ROW) :], raw, key, type) for line in lines[1:count])
    if len(raw) != 32 or not rows:
        raise ValueError("no rows of a block")
    return Told(raw, type, rows, lines[count:])


class Mirror:
    """Tells the partner of this server's rows, and keeps copies of the partner's.

    ``forget`` is told the number of each row that was settled by what the partner says.
    """

    def __init__(
        self,
        store: BlockStore,
        intake: Intake,
        partnership: Partnership,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._intake = intake
        self._partnership = partnership
        self._clock = clock
        self.forget: Callable[[int], None] = _nobody

    # What we tell.

    def tell(self, view: WriteView, row: QueueRow, now: datetime) -> None:
        """Queue what is known of a block for the partner, in the place of what was to be told.

        The block itself goes along as long as it has not gone and somebody still waits for it.
        """
        if not self._partnership.paired or view.setting(IS_ORIGINAL) == "yes" or row.key is None:
            return
        about = view.queue.about(row.digest)
        untold = any(each.kind == QueueKind.MIRROR and each.entry for each in about)
        waiting = [each for each in about if each.kind == QueueKind.PROXY and _waits(each)]
        new = not any(each.kind == QueueKind.MIRROR for each in about) and row in waiting
        entry = waiting[0].entry if waiting and (untold or new) else None
        view.queue.replace(
            QueueRow(QueueKind.MIRROR, row.digest, now, row.type, row.key, entry)
        )

    def settle(
        self, view: WriteView, number: int, state: QueueState, code: str, now: datetime
    ) -> bool:
        """Keep what became of a row, and tell the partner; whether it was waiting until now."""
        if not view.queue.settle(number, state, code, now):
            return False
        row = view.queue.row(number)
        if row is not None:
            self.tell(view, row, now)
        return True

    async def settled(self, number: int, state: QueueState, code: str) -> bool:
        """Settle a row durably."""
        now = self._clock()
        done = await self._store.write(lambda view: self.settle(view, number, state, code, now))
        self._partnership.wake()
        return done

    async def told(self, digests: Sequence[bytes]) -> None:
        """Let the partner be told, before DONE is said if it is to be."""
        self._partnership.wake()
        await self._partnership.has_all(digests)

    # What the partner tells.

    async def take_text(self, key: BlockKey, lines: _Lines) -> Verdict:
        """Take rows, with a text block or without one; ``NotServed`` if they cannot be read."""
        told = _told(key, lines)
        entry: StoredEntry | None = None
        if told.lines:
            try:
                entry = await asyncio.to_thread(self._held, key, told)
            except InvalidBlock as error:
                raise NotServed(f"the partner mirrors what no server may take: {error}") from error
        await self._merge(told, entry)
        return Accepted()

    def receive_data(self, key: BlockKey, lines: _Lines) -> "MirroredData":
        """Begin to take a data block with its rows; ``NotServed`` leaves the bytes to the caller."""
        told = _told(key, lines)
        return MirroredData(self, told, self._intake.replicate_data(key, told.lines, None))

    def merge(self, view: WriteView, told: Told, entry: StoredEntry | None) -> list[int]:
        """Keep the better of what both know; return the rows that need no work any more."""
        if entry is not None and entry.digest != told.digest:
            raise InvalidDigest
        now, done = self._clock(), []
        for row in told.rows:
            known = next((each for each in _alike(view, row)), None)
            if known is None:
                self._put_copy(view, row, entry)
            elif _rank(row) < _rank(known):
                state = QueueState(row.state)
                if not view.queue.settle(known.number, state, row.code, row.last or now):
                    view.queue.finish((known.number,))
                    view.queue.put(replace(row, kind=known.kind))
                done.append(known.number)
        return done

    def let_go(self, numbers: Sequence[int]) -> None:
        """Work on these rows no more."""
        for number in numbers:
            self.forget(number)

    async def _merge(self, told: Told, entry: StoredEntry | None) -> None:
        self.let_go(await self._store.write(lambda view: self.merge(view, told, entry)))

    def _held(self, key: BlockKey, told: Told) -> StoredEntry:
        owner = told.rows[0].owner or ""
        now = self._clock()
        order = Order(key, owner, (), told.lines, now, now)
        arrival = Arrival.replicated_for(owner)
        return held_text(order, arrival, self._intake.limits)[1]

    def _put_copy(self, view: WriteView, row: QueueRow, entry: StoredEntry | None) -> None:
        if not _waits(row):
            view.queue.put(row)
        elif entry is not None:
            held = replace(entry, source=row.owner or "")
            view.queue.put(replace(row, entry=view.hold(held)))


class InvalidDigest(Exception):
    """The partner named another block than it sent."""


class MirroredData:
    """One data block of the partner's queue on its way in."""

    def __init__(self, mirror: Mirror, told: Told, intake: DataIntake) -> None:
        self._mirror = mirror
        self._told = told
        self._intake = intake

    async def take(self, chunk: bytes) -> None:
        """Take the next bytes."""
        await self._intake.take(chunk)

    async def finish(self) -> Verdict:
        """Check the block, and keep it with its rows."""
        done: list[int] = []

        def put(view: WriteView, entry: StoredEntry, _: Decision) -> Verdict:
            held = replace(entry, type=PROXIED, identity=entry.digest)
            done.extend(self._mirror.merge(view, self._told, held))
            return Accepted()

        verdict = await self._intake.finish(put)
        self._mirror.let_go(done)
        return verdict

    async def discard(self) -> None:
        """Forget the bytes of a block that is not kept."""
        await self._intake.discard()


def _nobody(number: int) -> None:
    """Stand for the postman where none works."""


def _waits(row: QueueRow) -> bool:
    return row.state == QueueState.WAITING


def _rank(row: QueueRow) -> int:
    return _BEST_FIRST.index(QueueState(row.state))


def _alike(view: WriteView, row: QueueRow) -> list[QueueRow]:
    """Return this server's own row or copy of what a row of the partner is about."""
    return [
        each
        for each in view.queue.about(row.digest)
        if each.kind in _KINDS
        and (each.owner, each.line, each.queued) == (row.owner, row.line, row.queued)
    ]


def _told(key: BlockKey, lines: _Lines) -> Told:
    try:
        return parse_told(key, lines)
    except (ValueError, UnicodeDecodeError) as error:
        raise NotServed(f"the partner mirrors what cannot be read: {error}") from error


def _row_line(row: QueueRow) -> bytes:
    date, start = dates_of(row)
    code, _, demand = row.code.partition(" ")
    words = (
        row.owner or "",
        str(row.line),
        row.state,
        code,
        demand or _NONE,
        format_date(row.queued),
        format_date(row.last) if row.last else _NONE,
        format_date(date) if date else _NONE,
        format_date(start) if start else _NONE,
        row.destination or _NONE,
    )
    return _ROW + " ".join(words).encode()


def _parse_row(line: bytes, digest: bytes, key: BlockKey, type: BlockType) -> QueueRow:
    owner, number, state, code, demand, queued, last, date, start, target = line.decode().split(" ")
    waiting = QueueState(state) is QueueState.WAITING
    if waiting and (target == _NONE or _NONE in (date, start)):
        raise ValueError("a row that waits for nobody")
    if not (owner.isascii() and owner.isalnum() and 8 <= len(owner) <= 40):
        raise ValueError("a row of nobody")
    if not code.isascii() or len(code) > 16 or not 1 <= int(number) <= 999:
        raise ValueError("no row of the queue")
    return QueueRow(
        kind=QueueKind.MIRRORED,
        digest=digest,
        queued=parse_date(queued),
        type=type,
        key=key,
        destination=str(Transport.parse(target)) if waiting else "",
        not_before=parse_date(start) if waiting else None,
        owner=owner.upper(),
        line=int(number),
        content=content_of(parse_date(date), parse_date(start)) if waiting else b"",
        state=QueueState(state),
        code=code if demand == _NONE else f"{code} {Difficulty.parse(demand)}",
        last=None if last == _NONE else parse_date(last),
    )
