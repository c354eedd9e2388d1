"""What is to be told to the partner, read from the queue a little ahead of who tells it."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from sealmail_protocol.blocks import BlockType
from sealmail_server.clock_guard import Believed, Watch
from sealmail_server.limits import Limits
from sealmail_server.outgoing.telling import lacks_its_block, tell_again
from sealmail_server.partnership import PARTNER_KINDS
from sealmail_store import (
    Account,
    BlockStore,
    QueueKind,
    QueueRow,
    ReadView,
    StoredEntry,
    WaitingEntry,
    WriteView,
)

_log = logging.getLogger(__name__)

# Rows read ahead, told or waiting for their answer; reading begins anew when half are done.
AHEAD = 512
# Bytes of small data and of waiting entries that these may hold together.
_AHEAD_BYTES = 8 * 1024**2
# A block that the partner does not take is offered again after these, the last one repeated.
PUT_OFF = tuple(timedelta(minutes=each) for each in (1, 5, 15, 60))
# A connection may end for many reasons; one that ends at the same block so often has one.
_ENDINGS = 3
_LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Item:
    """A row, and what it refers to: an entry, an account or what waits; none if that is gone.

    ``proxied`` are the rows of the outgoing queue that it mirrors.
    """

    row: QueueRow
    entry: StoredEntry | None = None
    account: Account | None = None
    waiting: WaitingEntry | None = None
    proxied: tuple[QueueRow, ...] = ()


class PartnerFeed:
    """Hands out items, each to one taker, and takes back what became of them.

    ``put_off_by`` spreads a wait; ``told`` hears of each digest whether the partner took it.
    """

    def __init__(
        self,
        store: BlockStore,
        clock: Callable[[], datetime],
        limits: Limits,
        put_off_by: Callable[[timedelta], timedelta],
        told: Callable[[bytes, bool], None],
        watch: Watch | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._limits = limits
        self._put_off_by = put_off_by
        self._tell = told
        self._watch = watch or Believed()
        self.told = 0
        self._ready: deque[Item] = deque()
        self._out: set[int] = set()
        self._finished: list[QueueRow] = []
        # What the partner has taken, until that is written down.
        self._taken: set[bytes] = set()
        self._put_off: list[tuple[QueueRow, str]] = []
        self._endings: dict[int, int] = {}
        self._wanted = asyncio.Event()
        self._arrived = asyncio.Event()
        self._returned = asyncio.Event()

    @property
    def backlog(self) -> int:
        """Number of items that wait for a taker."""
        return len(self._ready)

    def wake(self) -> None:
        """Note that there may be new rows."""
        self._wanted.set()

    def begin(self) -> None:
        """Begin on a new connection: what was read ahead for the last one is read again."""
        for kept in (self._ready, self._out, self._finished, self._taken, self._put_off):
            kept.clear()
        self._wanted.set()

    def has_taken(self, digest: bytes) -> bool:
        """Tell whether the partner took this a moment ago, though its row may still be there."""
        return digest in self._taken

    def take(self) -> Item | None:
        """Return the next item, if one is there."""
        return self._ready.popleft() if self._ready else None

    async def wait(self) -> None:
        """Wait until an item may be there."""
        self._arrived.clear()
        if not self._ready:
            self._wanted.set()
            await self._arrived.wait()

    def finish(self, item: Item) -> None:
        """Note that the partner has taken an item, or that there is nothing left to tell."""
        self._endings.pop(item.row.number, None)
        self.told += 1
        self._finished.append(item.row)
        self._taken.add(item.row.digest)
        self._returned.set()
        self._tell(item.row.digest, True)

    def refuse(self, item: Item, code: str) -> None:
        """Note that the partner did not take an item: it goes aside, and the others go on."""
        self.told += 1
        self._put_off.append((item.row, code))
        self._returned.set()
        self._tell(item.row.digest, False)

    def give_back(self, item: Item, *, ended_here: bool = False) -> None:
        """Take back an item that was not answered; ``ended_here`` if it was the first one."""
        number = item.row.number
        if ended_here:
            self._endings[number] = self._endings.get(number, 0) + 1
            if self._endings[number] >= _ENDINGS:
                at = item.row.key or "an account"
                _log.warning("the connection to the partner ends again and again at %s", at)
                del self._endings[number]
                self.refuse(item, "ended")
                return
        self._out.discard(number)

    async def run(self) -> None:
        """Read ahead and write down what was told, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read())
            group.create_task(self._write())

    async def flush(self) -> None:
        """Write down what was told."""
        finished, self._finished = self._finished, []
        put_off, self._put_off = self._put_off, []
        if not finished and not put_off:
            return
        now = self._clock()
        later = [(row, code, now + self._wait_after(row)) for row, code in put_off]

        def write(view: WriteView) -> None:
            view.queue.finish(row.number for row in finished)
            for row, code, moment in later:
                if lacks_its_block(view, row):
                    tell_again(view, row, now)
                else:
                    view.queue.put_off(row.number, moment, code, now)

        await self._store.write(write)
        self._taken.difference_update(row.digest for row in finished)
        self._out.difference_update(row.number for row in finished)
        self._out.difference_update(row.number for row, _ in put_off)
        self._wanted.set()

    async def _write(self) -> None:
        while True:
            await self._returned.wait()
            self._returned.clear()
            await self.flush()

    async def _read(self) -> None:
        while True:
            self._wanted.clear()
            # What is out comes back, and is written down, and then there is reading again.
            if len(self._out) <= AHEAD // 2:
                await self._look()
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wanted.wait()
            except TimeoutError:
                pass  # What was put off may be due by now.

    async def _look(self) -> None:
        now, out = self._clock(), frozenset(self._out)
        items = await self._store.read(lambda view: _items(view, now, out))
        for item in items:
            if item.row.number in self._out:
                continue
            self._out.add(item.row.number)
            if self._is_over(item, now):
                self.finish(item)
            else:
                self._ready.append(item)
        if self._ready:
            self._arrived.set()

    def _is_over(self, item: Item, now: datetime) -> bool:
        """Tell whether nobody would take the block any more, for its age."""
        if item.row.kind != QueueKind.REPLICATE:
            return False
        entry = item.entry
        if entry is None:
            return True
        if entry.revoked or not self._watch.may_delete():
            # The partner judges by its own clock, which may be right.
            return False
        return now - entry.date >= self._limits.max_age[BlockType(entry.type)]

    def _wait_after(self, row: QueueRow) -> timedelta:
        return self._put_off_by(PUT_OFF[min(row.attempts, len(PUT_OFF) - 1)])


def _items(view: ReadView, now: datetime, out: frozenset[int]) -> list[Item]:
    """Read the rows that are due and not out, in the order in which they should go."""
    items: list[Item] = []
    left, room = AHEAD - len(out), _AHEAD_BYTES
    for kind in PARTNER_KINDS:
        rows, _ = view.queue.due(kind, now, limit=left + len(out))
        for row in rows:
            if row.number in out:
                continue
            if left <= 0 or room <= 0:
                return items
            item = _item(view, row)
            left -= 1
            if item.entry is not None and item.entry.data is not None:
                content = item.entry.data.content
                room -= len(content) if isinstance(content, bytes) else 0
            if item.waiting is not None:
                room -= len(item.waiting.header)
            items.append(item)
    return items


def _item(view: ReadView, row: QueueRow) -> Item:
    if row.kind == QueueKind.ACCOUNT:
        return Item(row, account=view.account(row.digest))
    if row.kind == QueueKind.PENDING:
        return Item(row, waiting=view.waiting_entry(row.digest))
    entry = None if row.entry is None else view.numbered(row.entry)
    if row.kind == QueueKind.MIRROR:
        return Item(row, entry=entry, proxied=view.queue.about(row.digest))
    return Item(row, entry=entry)
