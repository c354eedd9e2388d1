"""Sends workers out with what waits: who goes next, how many at a time, and who is looked at.

No host and no user can hold up the others: each bag and each server has few workers, each user
a part of them, and a server that is down is looked at apart until it answers again.
"""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from sealmail_net.errors import NetworkError
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.replies import QueueState
from sealmail_server.clock_guard import Watch
from sealmail_server.outgoing.bags import Bag, Board
from sealmail_server.outgoing.carrier import Admit, Carrier, Dialer
from sealmail_server.outgoing.courier import EXPIRED, INTERNAL, GivenUp, code_of
from sealmail_server.outgoing.roster import OpenLines, Roster
from sealmail_server.outgoing.routes import Routes
from sealmail_server.outgoing.row_book import RowBook
from sealmail_server.outgoing.rows import GIVEN_UP_AFTER, waiting_of
from sealmail_server.outgoing.schedule import BLOCK_PAUSES, Schedule
from sealmail_server.outgoing.targets import TargetRules
from sealmail_server.outgoing.telling import Teller
from sealmail_server.partnership import Partner, Partnership, keep_copies_of
from sealmail_store import BlockStore, QueueKind, QueueRow, ReadView, StoreError, WriteView
from sealmail_store import QueueState as StoredState

_log = logging.getLogger(__name__)

# Connections under way of one user for one target of his.
_OF_ONE_BAG = 4
# Bags of one user that are looked at in one turn though none may have a worker now.
_LOOKED_AT = 64
_TICK = timedelta(seconds=1)
_SWEEP_EVERY = timedelta(minutes=1)
_PROBES_AT_ONCE = 32
# The owner gives a row up sooner than that, and says so.
_COPIES_KEPT = GIVEN_UP_AFTER + timedelta(days=1)
DEAD_LETTERS_KEPT = timedelta(days=14)
_SLICE = 200
_PAGE = 500


class Postman:
    """Delivers rows of the queue until it is cancelled, while the clock is right.

    By a clock that ``watch`` doubts nothing would be on time, and all would be given up.
    """

    def __init__(
        self,
        store: BlockStore,
        teller: Teller,
        rules: TargetRules,
        dialer: Dialer,
        admit: Admit,
        clock: Callable[[], datetime],
        watch: Watch,
        chance: random.Random,
        partnership: Partnership,
        stands_in: Callable[[], bool] = lambda: False,
    ) -> None:
        self.board = Board()
        self.routes = Routes(chance)
        self._store = store
        self._dialer = dialer
        self._clock = clock
        self._watch = watch
        pauses = Schedule(BLOCK_PAUSES, chance)
        self._partnership = partnership
        # Whose copies the store keeps; what was a former partner's is taken up with the rest.
        self._copies_of: Partner | None = None
        self._stands_in = stands_in
        self._standing_in = False
        self.book = RowBook(store, teller, self.board, clock, watch, pauses, self._note)
        self._lines = OpenLines()
        self._carrier = Carrier(
            self.book,
            self.routes,
            rules,
            dialer,
            admit,
            clock,
            watch.is_right,
            self._note,
            self._lines,
            self._others_wait,
        )
        self._wake = asyncio.Event()
        # Bags that may have something to do, by user, so that each user has his turn.
        self._eager: OrderedDict[str, OrderedDict[Bag, None]] = OrderedDict()
        self._roster = Roster()
        self._probing: set[ServerAddress] = set()
        self._ticked: datetime | None = None
        self._swept: datetime | None = None
        self._sweeping = False

    async def run(self) -> None:
        """Load what waits, and deliver it until cancelled."""
        loaded = False
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    if not loaded:
                        await self._take_up()
                        loaded = True
                    await self._turn(group)
                except Exception:  # one fault must not end the delivery of all
                    _log.exception("a round of delivery broke")
                    await asyncio.sleep(_TICK.total_seconds())

    async def _turn(self, group: asyncio.TaskGroup) -> None:
        """Send out who can go, and wait until there is news, or for a moment."""
        self._wake.clear()
        if self._watch.is_right():
            self._start_workers(group)
        with suppress(TimeoutError):
            async with asyncio.timeout(_TICK.total_seconds()):
                await self._wake.wait()
        await self._tick(group)

    async def _tick(self, group: asyncio.TaskGroup) -> None:
        """Do once a second what need not be done at every turn, and once a minute the sweep."""
        now = self._clock()
        if not (self._watch.is_right() and _is_over(self._ticked, _TICK, now)):
            return
        if self._ticked is not None and now < self._ticked:
            # What was put off by a clock that was ahead would wait until that day.
            for bag in tuple(self.board.bags.values()):
                bag.hasten(now)
        self._ticked = now
        self._wake_bags()
        self._start_probes(group)
        await self._look_at_partner()
        due = not self._sweeping and _is_over(self._swept, _SWEEP_EVERY, now)
        if due and self._watch.may_delete():
            self._swept, self._sweeping = now, True
            group.create_task(self._sweep())

    def add(self, row: QueueRow) -> None:
        """Take a row that was just queued, and has its number."""
        self._note(self.board.add(waiting_of(row)))

    def hasten(self, numbers: Iterable[int]) -> None:
        """Try rows now, and their servers, whatever is thought of them."""
        found = dict.fromkeys(self.board.bag_of(number) for number in numbers)
        for bag in filter(None, found):
            bag.hasten(self._clock())
            for server in bag.target.servers:
                self.routes.alive(server)
            self._note(bag)

    async def _look_at_partner(self) -> None:
        """Deliver what the partner has to deliver while it is away, and leave it to it after."""
        try:
            if self._partnership.partner is not self._copies_of:
                await self._take_up()
            if self._stands_in() is self._standing_in:
                return
            self._standing_in = not self._standing_in
            if self._standing_in:
                _log.warning("the partner is away: its outgoing queue is delivered from here")
                await self._load(QueueKind.MIRRORED)
            else:
                _log.warning("the partner delivers its outgoing queue itself again")
                for number in await self._store.read(_copies):
                    self.book.forget(number)
        except StoreError as error:
            _log.error("the partner's queue could not be taken up: %s", error)

    async def _take_up(self) -> None:
        """Take up what is this server's own, also what was a former partner's."""
        partner = self._partnership.partner
        taken = await self._store.write(partial(keep_copies_of, partner=partner))
        if taken:
            _log.warning("%d deliveries of the former partner are made from here", taken)
        await self._load()
        self._copies_of = partner

    async def _load(self, kind: QueueKind = QueueKind.PROXY) -> None:
        """Take up what waits in the store."""
        after = 0
        while rows := await self._store.read(partial(_page, kind=kind, after=after)):
            for row in rows:
                if row.state != StoredState.WAITING:
                    continue
                try:
                    self.add(row)
                except (ValueError, OverflowError) as error:
                    _log.error("row %d of the queue cannot be read: %s", row.number, error)
                    await self.book.settle(row.number, QueueState.GIVEN_UP, INTERNAL)
            after = rows[-1].number

    # Who goes next.

    def _note(self, bag: Bag) -> None:
        """Look at a bag soon."""
        if len(bag):
            self._eager.setdefault(bag.owner, OrderedDict())[bag] = None
        bag.news.set()
        self._wake.set()

    def _start_workers(self, group: asyncio.TaskGroup) -> None:
        """Give every user in turn workers, as long as there are any.

        Who was given one is behind the others then; who was not keeps his place.
        """
        for bag in self._lines.next_bags():
            self._note(bag)
        for owner in tuple(self._eager):
            if self._roster.all_out:
                return
            bags = self._eager[owner]
            hired = self._start_workers_of(group, owner, bags)
            if not bags:
                del self._eager[owner]
            elif hired:
                self._eager.move_to_end(owner)

    def _start_workers_of(
        self, group: asyncio.TaskGroup, owner: str, bags: OrderedDict[Bag, None]
    ) -> bool:
        """Give a user as many workers as he may have; tell whether that was any."""
        left, hired = 0, False
        while left < min(len(bags), _LOOKED_AT) and self._roster.may_hire(owner, known=True):
            bag, _ = bags.popitem(last=False)
            if not self._wants_worker(bag):
                continue
            if self._carrier.is_crowded(bag):
                # It is looked at again when one of these servers has room.
                for server in self._carrier.servers(bag):
                    self._lines.wait(bag, server)
                continue
            known = self._is_known(bag)
            if self._roster.may_hire(owner, known=known):
                self._hire(group, bag, known=known)
                hired = True
            else:
                left += 1
            bags[bag] = None
        return hired

    def _is_known(self, bag: Bag) -> bool:
        """Tell whether a server of a bag is known to work; what stays here needs none."""
        servers = self._carrier.servers(bag)
        return not servers or any(map(self.routes.is_proven, servers))

    def _others_wait(self, bag: Bag) -> bool:
        """Tell whether another user waits for a worker."""
        return any(owner != bag.owner for owner in self._eager)

    def _wants_worker(self, bag: Bag) -> bool:
        if bag.stalled or bag.workers >= (_OF_ONE_BAG if bag.proven else 1):
            return False
        return bag.ready(self._clock()) > 0

    def _hire(self, group: asyncio.TaskGroup, bag: Bag, *, known: bool) -> None:
        bag.workers += 1
        self._roster.hire(bag.owner, known=known)
        group.create_task(self._work(bag, known=known))

    async def _work(self, bag: Bag, *, known: bool) -> None:
        try:
            await self._carrier.work(bag)
        except Exception:  # the others are served, whatever a stranger's server sets off
            _log.exception("a worker for other servers broke")
            bag.stalled = True
        finally:
            self._dismiss(bag, known=known)

    def _dismiss(self, bag: Bag, *, known: bool) -> None:
        bag.workers -= 1
        self._roster.dismiss(bag.owner, known=known)
        self.board.tidy(bag)
        self._note(bag)

    def _wake_bags(self) -> None:
        """Look again at bags whose rows are due by now, or whose servers are back."""
        now = self._clock()
        for bag in tuple(self.board.bags.values()):
            if bag.stalled and self._may_go_on(bag):
                bag.stalled = False
                bag.hasten(now)
            due = bag.next_due()
            if not bag.stalled and due is not None and due <= now:
                self._note(bag)

    def _may_go_on(self, bag: Bag) -> bool:
        """Tell whether a server of a bag is up; where none is to be reached, none is down."""
        servers = self._carrier.servers(bag)
        return not servers or bool(self.routes.order(servers))

    # What goes on beside.

    def _start_probes(self, group: asyncio.TaskGroup) -> None:
        """Look at servers that are down, if something waits for them."""
        wanted = dict.fromkeys(
            server
            for bag in self.board.bags.values()
            if bag.stalled
            for server in self._carrier.servers(bag)
            if server not in self._probing
        )
        for server in self.routes.to_look_at(self._clock(), wanted):
            if len(self._probing) >= _PROBES_AT_ONCE:
                return
            self._probing.add(server)
            group.create_task(self._probe(server))

    async def _probe(self, server: ServerAddress) -> None:
        try:
            remote = await self._dialer.connect(server)
            self.routes.alive(server)
            self._ticked = None
            self._wake.set()
            await remote.quit()
        except NetworkError as error:
            _log.debug("still down: %s", error)
            self.routes.failed(server, code_of(error), self._clock())
        except Exception:
            _log.exception("a look at another server broke")
            self.routes.failed(server, INTERNAL, self._clock())
        finally:
            self._probing.discard(server)

    async def _sweep(self) -> None:
        """Give up what has waited for too long, and forget old dead letters."""
        try:
            await self._sweep_all(self._clock())
        except StoreError as error:
            _log.error("the queue could not be swept: %s", error)
        except Exception:
            _log.exception("a sweep of the queue broke")
        finally:
            self._sweeping = False

    async def _sweep_all(self, now: datetime) -> None:
        for bag in tuple(self.board.bags.values()):
            for row in bag.rows():
                if row.expires <= now:
                    code = row.code if row.code != "-" else self._reason(bag)
                    await self.book.close(row, GivenUp(QueueState.GIVEN_UP, code))
        await self._store.write(partial(_give_up_copies, now=now))
        before = now - DEAD_LETTERS_KEPT
        while await self._store.write(lambda view: view.queue.forget_settled(before, _SLICE)):
            pass

    def _reason(self, bag: Bag) -> str:
        return self.routes.reason(self._carrier.servers(bag)) or EXPIRED


def _is_over(last: datetime | None, pause: timedelta, now: datetime) -> bool:
    """Tell whether a pause has passed; a clock that went back ends it too."""
    return last is None or now - last >= pause or now < last


def _page(view: ReadView, kind: QueueKind, after: int) -> tuple[QueueRow, ...]:
    return view.queue.all(kind, after=after, limit=_PAGE)


def _give_up_copies(view: WriteView, now: datetime) -> None:
    """Settle copies whose owner never said what became of them; he need not be told."""
    rows, _ = view.queue.due(QueueKind.MIRRORED, now - _COPIES_KEPT, limit=_SLICE)
    for row in rows:
        view.queue.settle(row.number, StoredState.GIVEN_UP, EXPIRED, now)


def _copies(view: ReadView) -> list[int]:
    """Return the numbers of all rows that are the partner's."""
    numbers: list[int] = []
    after = 0
    while rows := view.queue.all(QueueKind.MIRRORED, after=after, limit=_PAGE):
        numbers += [row.number for row in rows]
        after = rows[-1].number
    return numbers
