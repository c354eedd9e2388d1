"""What becomes of rows: settled or put off, durably in the store and then in memory."""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from sealmail_pow import Difficulty
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import BlockType, MessageAnnouncement
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.errors import InvalidBlock, Refusal
from sealmail_protocol.fields import decode_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import QueueState
from sealmail_server.clock_guard import Watch
from sealmail_server.outgoing.bags import Bag, Board, Waiting
from sealmail_server.outgoing.courier import (
    INTERNAL,
    Delivered,
    GivenUp,
    Outcome,
    TryLater,
    conclude,
)
from sealmail_server.outgoing.rows import code_with
from sealmail_server.outgoing.schedule import Schedule
from sealmail_server.outgoing.telling import Teller
from sealmail_store import BlockStore, StoredEntry, StoreError
from sealmail_store import QueueState as StoredState

_log = logging.getLogger(__name__)

# Nobody's row is tried more often than this after faults of our own.
_MAX_FAULTS = 5
# Of a dead letter whose data was refused: what would point at nothing goes nowhere.
NO_DATA = "data"


class RowBook:
    """Keeps the store's rows and the board in step: the store first."""

    def __init__(
        self,
        store: BlockStore,
        teller: Teller,
        board: Board,
        clock: Callable[[], datetime],
        watch: Watch,
        pauses: Schedule,
        note: Callable[[Bag], None],
    ) -> None:
        self._store = store
        self._teller = teller
        self._board = board
        self._clock = clock
        self._watch = watch
        self._pauses = pauses
        self._note = note

    async def entry_of(self, row: Waiting) -> StoredEntry | None:
        """Return the block of a row."""
        return await self._store.read(lambda view: view.numbered(row.entry))

    async def conclude(
        self, bag: Bag, row: Waiting, outcome: Outcome, server: ServerAddress | None
    ) -> None:
        """Do with a row what the answer of a server means."""
        outcome = self._in_the_end(outcome, row)
        if isinstance(outcome, TryLater):
            await self.put_off(bag, self.later(row, outcome.code, outcome.demand))
            return
        await self.close(row, outcome)
        if isinstance(outcome, Delivered) and server is not None:
            await self._close_alike(row, server)
        if isinstance(outcome, GivenUp) and row.type is BlockType.DATA:
            await self._give_up_what_names(bag, row.key)

    def _in_the_end(self, outcome: Outcome, row: Waiting) -> Outcome:
        """Turn what stays the same for too long into a refusal, if the clock is to be believed.

        While it is not, what is here refused for its date alone is kept too.
        """
        if self._watch.may_delete():
            return conclude(outcome, row.start, self._clock())
        if isinstance(outcome, GivenUp) and outcome.code == str(Refusal.DATE):
            return TryLater(outcome.code)
        return outcome

    async def close(self, row: Waiting, outcome: Delivered | GivenUp) -> None:
        """Settle a row durably, then let go of it."""
        if isinstance(outcome, Delivered):
            await self.settle(row.number, QueueState.DELIVERED, "-")
        else:
            code = code_with(outcome.code, outcome.demand)
            _log.info("row %d of the queue is a dead letter: %s", row.number, code)
            await self.settle(row.number, outcome.state, code)
        self.forget(row.number)

    async def settle(self, number: int, state: QueueState, code: str) -> None:
        """Keep what became of a row, without its block and its target."""
        await self._teller.settled(number, StoredState(state.value), code)

    async def _close_alike(self, row: Waiting, server: ServerAddress) -> None:
        """Settle what asks for the same block at a group that has this server: it is there."""
        for bag in self._board.about(row.digest):
            if bag.owner == row.owner and server in bag.target.servers:
                for other in bag.rows():
                    if other.digest == row.digest:
                        await self.close(other, Delivered())

    async def _give_up_what_names(self, bag: Bag, key: BlockKey) -> None:
        """Give up what would point at data that this target never got."""
        for row in bag.rows():
            if row.type is not BlockType.MESSAGE_ANNOUNCEMENT:
                continue
            entry = await self.entry_of(row)
            if entry is not None and key in names_of(row, entry):
                await self.close(row, GivenUp(QueueState.GIVEN_UP, NO_DATA))

    async def fault(self, bag: Bag, row: Waiting) -> None:
        """Put off a row that met a fault of our own, and give it up when that repeats itself."""
        try:
            if row.attempts + 1 >= _MAX_FAULTS:
                await self.close(row, GivenUp(QueueState.GIVEN_UP, INTERNAL))
            else:
                await self.put_off(bag, self.later(row, INTERNAL))
        except StoreError as error:
            _log.error("row %d of the queue: %s", row.number, error)
            bag.put_back(self.later(row, INTERNAL))

    def later(self, row: Waiting, code: str, demand: Difficulty | None = None) -> Waiting:
        """Return a row with one more failure, and the moment of its next attempt."""
        attempts = row.attempts + 1
        due = self._clock() + self._pauses.pause(attempts)
        return replace(row, due=due, code=code_with(code, demand), attempts=attempts)

    async def put_off(self, bag: Bag, row: Waiting) -> None:
        """Keep a failed attempt, and put the row back into its bag."""
        now = self._clock()
        await self._store.write(
            lambda view: view.queue.put_off(row.number, row.due, row.code, now)
        )
        bag.put_back(row)

    def forget(self, number: int) -> None:
        """Let go of a row that is settled."""
        bag = self._board.bag_of(number)
        self._board.remove(number)
        if bag is not None:
            self._note(bag)


def names_of(row: Waiting, entry: StoredEntry) -> Collection[BlockKey]:
    """Return the data that a block names."""
    if row.type is not BlockType.MESSAGE_ANNOUNCEMENT:
        return ()
    names: list[BlockKey] = []
    for lines in split_bundle(entry.header.split(b"\r\n")[:-1]):
        with suppress(InvalidBlock):
            block = parse_text_block(decode_lines(lines))
            names += block.data_blocks if isinstance(block, MessageAnnouncement) else ()
    return names
