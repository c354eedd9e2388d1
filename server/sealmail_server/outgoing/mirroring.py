"""The queue of a pair: each server keeps a copy of what the other has taken to deliver.

The owner of a row delivers it and tells its partner what became of it. The copy answers QUEUE,
and is delivered from here when the owner has been away for too long. An owner that has lost a row
gets it back from the copy. Of two states the better one stays: delivered, refused, given up,
waiting.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.policy import MAX_FUTURE_REPLICATED
from sealmail_protocol.replies import Accepted, Refused, Verdict
from sealmail_server.admission import Decision
from sealmail_server.candidates import Arrival
from sealmail_server.data_intake import DataIntake
from sealmail_server.intake import Intake
from sealmail_server.outgoing.accepting import MAX_AFTER, NotServed, Order, held_text
from sealmail_server.outgoing.rows import dates_of
from sealmail_server.outgoing.told import ROW_KINDS, Told, parse_told, waits
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

# The better state first; of two mirrored states it stays.
_BEST_FIRST = tuple(QueueState(each) for each in ("delivered", "refused", "given-up", "waiting"))

_Lines = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """What the partner's word has changed: rows that are settled, and rows that are back."""

    done: tuple[int, ...]
    back: tuple[QueueRow, ...]


class Mirror:
    """Keeps copies of the partner's rows, and what it says became of ours.

    ``forget`` is told the number of each row that was settled by what the partner says, and
    ``hand_on`` is given each row that this server had lost.
    """

    def __init__(
        self,
        store: BlockStore,
        intake: Intake,
        clock: Callable[[], datetime],
        forget: Callable[[int], None],
        hand_on: Callable[[QueueRow], None],
    ) -> None:
        self._store = store
        self._intake = intake
        self._clock = clock
        self._forget = forget
        self._hand_on = hand_on

    async def take_text(self, key: BlockKey, lines: _Lines) -> Verdict:
        """Take rows, with a text block or without one; ``NotServed`` if they cannot be read."""
        told = _told(key, lines, self._clock())
        entry: StoredEntry | None = None
        if told.lines:
            try:
                entry = await asyncio.to_thread(self._held, key, told)
            except InvalidBlock as error:
                raise NotServed(f"the partner mirrors what no server may take: {error}") from error
            if entry.digest != told.digest:
                raise NotServed("the partner mirrors another block than it names")
        await self._merge(told, entry)
        return Accepted()

    def receive_data(self, key: BlockKey, lines: _Lines) -> "MirroredData":
        """Begin to take a data block and its rows; ``NotServed`` leaves the bytes to others."""
        told = _told(key, lines, self._clock())
        return MirroredData(self, told, self._intake.replicate_data(key, told.lines, None))

    def merge(self, view: WriteView, told: Told, entry: StoredEntry | None) -> Changed:
        """Keep the better of what both know."""
        now, done, back = self._clock(), [], []
        for row in told.rows:
            known = next((each for each in _alike(view, row)), None)
            if known is None:
                back += self._put(view, row, entry)
            elif _rank(row) < _rank(known):
                state = QueueState(row.state)
                if not view.queue.settle(known.number, state, row.code, row.last or now):
                    view.queue.finish((known.number,))
                    view.queue.put(replace(row, kind=known.kind))
                done.append(known.number)
        return Changed(tuple(done), tuple(back))

    def act_on(self, changed: Changed) -> None:
        """Work no more on what is settled, and on what is back."""
        for number in changed.done:
            self._forget(number)
        for row in changed.back:
            self._hand_on(row)

    async def _merge(self, told: Told, entry: StoredEntry | None) -> None:
        self.act_on(await self._store.write(lambda view: self.merge(view, told, entry)))

    def _held(self, key: BlockKey, told: Told) -> StoredEntry:
        owner = told.rows[0].owner or ""
        now = self._clock()
        order = Order(key, owner, (), told.lines, now, now)
        arrival = Arrival.replicated_for(owner)
        return held_text(order, arrival, self._intake.limits)[1]

    def _put(self, view: WriteView, row: QueueRow, entry: StoredEntry | None) -> list[QueueRow]:
        """Keep a row that is not known here; return it if it is this server's to deliver.

        Raises ``NotServed`` for one that waits for a block which neither came nor is here: the
        partner tells it again, with the block.
        """
        if not waits(row):
            view.queue.put(row)
            return []
        number = _held(view, row, entry)
        if number is None:
            raise NotServed("the partner mirrors a row that waits without its block")
        row = replace(row, entry=number)
        row = replace(row, number=view.queue.put(row))
        return [row] if row.kind == QueueKind.PROXY else []


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
        changed: list[Changed] = []

        def put(view: WriteView, entry: StoredEntry, _: Decision) -> Verdict:
            if entry.digest != self._told.digest:
                raise InvalidBlock(Refusal.KEY, "the partner names another block")
            held = replace(entry, type=PROXIED, identity=entry.digest)
            changed[:] = [self._mirror.merge(view, self._told, held)]
            return Accepted()

        verdict = await self._intake.finish(put)
        if isinstance(verdict, Refused):
            raise NotServed(f"the partner mirrors data that is not kept here: {verdict}")
        for each in changed:
            self._mirror.act_on(each)
        return verdict

    async def discard(self) -> None:
        """Forget the bytes of a block that is not kept."""
        await self._intake.discard()


def _held(view: WriteView, row: QueueRow, entry: StoredEntry | None) -> int | None:
    """Hold the block of a row that waits, and return its number; it may have come before."""
    if entry is not None:
        return view.hold(replace(entry, source=row.owner or ""))
    return None if row.key is None else view.entry_number(PROXIED, row.key, row.digest)


def _rank(row: QueueRow) -> int:
    return _BEST_FIRST.index(QueueState(row.state))


def _alike(view: WriteView, row: QueueRow) -> list[QueueRow]:
    """Return this server's own row or copy of what a row of the partner is about."""
    return [
        each
        for each in view.queue.about(row.digest)
        if each.kind in ROW_KINDS and (each.owner, each.ticket) == (row.owner, row.ticket)
    ]


def _told(key: BlockKey, lines: _Lines, now: datetime) -> Told:
    try:
        told = parse_told(key, lines)
    except (ValueError, UnicodeDecodeError) as error:
        raise NotServed(f"the partner mirrors what cannot be read: {error}") from error
    # A row that never ends would be kept for ever, and nobody can reckon beyond the last year.
    latest = now + MAX_FUTURE_REPLICATED
    for row in told.rows:
        date, start = dates_of(row)
        moments = (row.queued, row.last or row.queued, date or row.queued)
        if max(moments) > latest or (start or row.queued) > latest + MAX_AFTER:
            raise NotServed("the partner mirrors a row that is dated too far ahead")
    return told
