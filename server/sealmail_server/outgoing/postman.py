"""Carries what waits to other servers: who goes next, how many at a time, and what came of it.

No host and no user can hold up the others: each bag has few workers, each user has a part of
them, and a server that is down is looked at apart until it answers again.
"""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from sealmail_net.errors import ForbiddenTarget, NetworkError
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.block_codec import parse_text_block
from sealmail_protocol.blocks import BlockType, MessageAnnouncement
from sealmail_protocol.bundles import split_bundle
from sealmail_protocol.errors import InvalidBlock
from sealmail_protocol.fields import decode_lines
from sealmail_protocol.keys import BlockKey
from sealmail_protocol.replies import QueueState, Verdict
from sealmail_server.outgoing.bags import Bag, Board, Waiting
from sealmail_server.outgoing.courier import (
    EXPIRED,
    INTERNAL,
    PENDING,
    PRICE,
    Delivered,
    GivenUp,
    Outcome,
    Parcel,
    TryLater,
    code_of,
    conclude,
    hand_over,
    outcome_of,
)
from sealmail_server.outgoing.routes import Routes
from sealmail_server.outgoing.rows import waiting_of
from sealmail_server.outgoing.schedule import BLOCK_PAUSES, Schedule
from sealmail_server.outgoing.targets import Doubt, Local, Never, TargetRules
from sealmail_store import BlockStore, QueueKind, QueueRow, StoredEntry, StoreError
from sealmail_store import QueueState as StoredState

_log = logging.getLogger(__name__)

# Connections under way in all, of one user, and for one target of his.
MAX_WORKERS = 64
_OF_ONE_USER = 16
_OF_ONE_BAG = 4
# Large blocks are in memory while they go: 8 MiB each.
_LARGE_AT_ONCE = 8
_LARGE = 1024 * 1024
# A connection stays open for so long: who sends data sends the announcement next.
_LINGER_SECONDS = 2.0
# Two connections in a row broken off in the middle of a block are no matter of the block.
_BREAKS = 2
# Nobody's row is tried more often than this after faults of our own.
_MAX_FAULTS = 5
_TICK_SECONDS = 1.0
_SWEEP_EVERY = timedelta(minutes=1)
_PROBES_AT_ONCE = 32
DEAD_LETTERS_KEPT = timedelta(days=14)
_SLICE = 200
_PAGE = 500


class Dialer(Protocol):
    """The way out."""

    async def connect(self, server: ServerAddress) -> RemoteServer:
        """Return a connection to a stranger's server, or raise ``NetworkError``."""

    async def gives_verdicts(self, remote: RemoteServer) -> bool:
        """Tell whether a server answers VERDICT; asked rarely, remembered."""

    def is_our_own(self, remote: RemoteServer) -> bool:
        """Tell whether we have reached ourselves, or the partner, by another name."""


# Admits a block here, as if its owner had stored it.
Admit = Callable[[Waiting, StoredEntry], Awaitable[Verdict]]


class Postman:
    """Delivers rows of the queue until it is cancelled."""

    def __init__(
        self,
        store: BlockStore,
        rules: TargetRules,
        dialer: Dialer,
        admit: Admit,
        clock: Callable[[], datetime],
        chance: random.Random,
    ) -> None:
        self.board = Board()
        self.routes = Routes(chance)
        self._store = store
        self._rules = rules
        self._dialer = dialer
        self._admit = admit
        self._clock = clock
        self._pauses = Schedule(BLOCK_PAUSES, chance)
        self._wake = asyncio.Event()
        self._loaded = asyncio.Event()
        # Bags that may have something to do, by user, so that each user has his turn.
        self._eager: OrderedDict[str, OrderedDict[Bag, None]] = OrderedDict()
        self._workers = 0
        self._workers_of: dict[str, int] = {}
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._probing: set[ServerAddress] = set()
        self._swept: datetime | None = None

    async def run(self) -> None:
        """Load what waits, and deliver it until cancelled."""
        await self._load()
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                self._start_workers(group)
                self._start_probes(group)
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_SECONDS):
                        await self._wake.wait()
                self._wake_bags()
                await self._sweep()

    def add(self, row: QueueRow) -> None:
        """Take a row that was just queued, and has its number."""
        self._note(self.board.add(waiting_of(row)))

    def forget(self, number: int) -> None:
        """Let go of a row that somebody else has settled."""
        bag = self.board.bag_of(number)
        self.board.remove(number)
        if bag is not None:
            self._note(bag)

    def hasten(self, number: int) -> None:
        """Try a row now, and its servers, whatever is thought of them."""
        bag = self.board.bag_of(number)
        if bag is not None:
            bag.hasten(self._clock())
            for server in bag.target.servers:
                self.routes.alive(server)
            self._note(bag)

    async def _load(self) -> None:
        after = 0
        while rows := await self._store.read(lambda view, place=after: _page(view, place)):
            for row in rows:
                if row.state != StoredState.WAITING:
                    continue
                try:
                    self.add(row)
                except (ValueError, UnicodeDecodeError) as error:
                    _log.error("row %d of the queue cannot be read: %s", row.number, error)
                    await self._settle_number(row.number, QueueState.GIVEN_UP, INTERNAL)
            after = rows[-1].number
        self._loaded.set()

    # Who goes next.

    def _note(self, bag: Bag) -> None:
        """Look at a bag soon."""
        if len(bag):
            self._eager.setdefault(bag.owner, OrderedDict())[bag] = None
        bag.news.set()
        self._wake.set()

    def _start_workers(self, group: asyncio.TaskGroup) -> None:
        """Give every user in turn a worker, as long as there are any."""
        for owner in tuple(self._eager):
            bags = self._eager[owner]
            while bags and self._workers < MAX_WORKERS and self._may_hire(owner):
                bag, _ = bags.popitem(last=False)
                if self._wants_worker(bag):
                    self._hire(group, bag)
                    bags[bag] = None
            if bags and self._workers < MAX_WORKERS:
                self._eager.move_to_end(owner)
            elif not bags:
                del self._eager[owner]

    def _may_hire(self, owner: str) -> bool:
        return self._workers_of.get(owner, 0) < _OF_ONE_USER

    def _wants_worker(self, bag: Bag) -> bool:
        if bag.stalled or bag.workers >= (_OF_ONE_BAG if bag.proven else 1):
            return False
        return bag.ready(self._clock()) > 0

    def _hire(self, group: asyncio.TaskGroup, bag: Bag) -> None:
        bag.workers += 1
        self._workers += 1
        self._workers_of[bag.owner] = self._workers_of.get(bag.owner, 0) + 1
        group.create_task(self._work(bag))

    def _dismiss(self, bag: Bag) -> None:
        bag.workers -= 1
        self._workers -= 1
        self._workers_of[bag.owner] -= 1
        if not self._workers_of[bag.owner]:
            del self._workers_of[bag.owner]
        self.board.tidy(bag)
        self._note(bag)

    def _wake_bags(self) -> None:
        """Look again at bags whose rows are due by now, or whose servers are back."""
        now = self._clock()
        for bag in tuple(self.board.bags.values()):
            if bag.stalled and self.routes.order(self._servers(bag)):
                bag.stalled = False
                bag.hasten(now)
            due = bag.next_due()
            if not bag.stalled and due is not None and due <= now:
                self._note(bag)

    def _servers(self, bag: Bag) -> tuple[ServerAddress, ...]:
        return tuple(each for each in bag.target.servers if each not in bag.forbidden)
