"""One worker and one bag: connect to a server of the target, and hand over what is due."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from sealmail_net.errors import ForbiddenTarget, NetworkError, NoWay
from sealmail_net.remote_server import RemoteServer
from sealmail_protocol.addresses import ServerAddress
from sealmail_protocol.replies import QueueState, Verdict
from sealmail_server.outgoing.bags import Bag, Waiting
from sealmail_server.outgoing.courier import (
    EXPIRED,
    FAILED,
    INTERNAL,
    PENDING,
    PRICE,
    SLOW,
    GivenUp,
    Parcel,
    TryLater,
    code_of,
    hand_over,
    outcome_of,
)
from sealmail_server.outgoing.roster import OpenLines
from sealmail_server.outgoing.routes import Routes
from sealmail_server.outgoing.row_book import RowBook, names_of
from sealmail_server.outgoing.targets import Doubt, Entangled, Local, Never, Remote, TargetRules
from sealmail_store import DamagedData, DataGone, StoredEntry, StoreError

_log = logging.getLogger(__name__)

# A connection stays open for so long: who sends data sends the announcement next.
_LINGER_SECONDS = 2.0
# When to look again at a block that another worker is just sending to the same server.
_SOON = timedelta(seconds=1)
# A worker goes on to the next bag after so many rows, or seconds, if another user waits for one.
_ROWS = 50
_SECONDS = 20.0


class Dialer(Protocol):
    """The way out."""

    async def connect(self, server: ServerAddress) -> RemoteServer:
        """Return a connection to a stranger's server, or raise ``NetworkError``."""

    async def gives_verdicts(self, remote: RemoteServer) -> bool:
        """Tell whether a server answers VERDICT; asked rarely, remembered."""

    def is_our_own(self, remote: RemoteServer) -> bool:
        """Tell whether we have reached ourselves, or the partner, by another name."""


# Admits a block here, as if its owner had stored it: among those of users, or in the DHT.
Admit = Callable[[Waiting, StoredEntry, Local | Entangled], Awaitable[Verdict]]


class Carrier:
    """Empties bags as far as it can be done now; ``note`` is told what others should look at.

    ``may_deliver`` is asked before each row.
    """

    def __init__(
        self,
        book: RowBook,
        routes: Routes,
        rules: TargetRules,
        dialer: Dialer,
        admit: Admit,
        clock: Callable[[], datetime],
        may_deliver: Callable[[], bool],
        note: Callable[[Bag], None],
        lines: OpenLines,
        others_wait: Callable[[Bag], bool],
    ) -> None:
        """``others_wait`` tells whether another user's bag waits for a worker."""
        self._lines = lines
        self._others_wait = others_wait
        self._book = book
        self._routes = routes
        self._rules = rules
        self._dialer = dialer
        self._admit = admit
        self._clock = clock
        self._may_deliver = may_deliver
        self._note = note
        # What is being sent: the user, his block and the server that it goes to.
        self._under_way: set[tuple[str, bytes, ServerAddress]] = set()

    def servers(self, bag: Bag) -> tuple[ServerAddress, ...]:
        """Return whom a bag's rows could go to, now or later."""
        meaning = self._rules.judge(bag.target)
        servers = meaning.servers if isinstance(meaning, Remote) else ()
        return tuple(each for each in servers if each not in bag.forbidden)

    async def work(self, bag: Bag) -> None:
        """Deliver rows of a bag until none is due or can go, or others have waited long enough."""
        hand = _Connection(self._lines)
        row: Waiting | None = None
        clock = asyncio.get_running_loop().time
        served, until = 0, clock() + _SECONDS
        try:
            while self._may_deliver() and not (bag.stalled or hand.unwanted):
                if (served >= _ROWS or clock() >= until) and self._is_waited_for(bag, hand):
                    break
                served += 1
                row = await self._next(bag, hand)
                if row is None:
                    break
                await self._serve(bag, row, hand)
        except BaseException:
            if row is not None:
                bag.release(row.number)
            await hand.drop()
            raise
        await hand.close()

    def _is_waited_for(self, bag: Bag, hand: "_Connection") -> bool:
        server = hand.server
        return self._others_wait(bag) or (server is not None and self._lines.waited_for(server))

    async def _next(self, bag: Bag, hand: "_Connection") -> Waiting | None:
        """Return the next row; an open connection waits a little for one, unless others do."""
        row = bag.take(self._clock())
        if row is not None or hand.remote is None or bag.workers > 1:
            return row
        if self._is_waited_for(bag, hand):
            return None
        bag.news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                await bag.news.wait()
        return bag.take(self._clock())

    async def _serve(self, bag: Bag, row: Waiting, hand: "_Connection") -> None:
        """Do what can be done for a row; whatever it sets off, the others are served."""
        try:
            match self._rules.judge(bag.target):
                case Never() as never:
                    await self._book.close(row, GivenUp(QueueState.GIVEN_UP, never.doubt))
                case Local() | Entangled() as here:
                    await self._deliver_here(bag, row, here)
                case Remote():
                    await self._deliver(bag, row, hand)
        except (DataGone, DamagedData) as error:
            _log.error("row %d of the queue: %s", row.number, error)
            await hand.drop()
            await self._book.close(row, GivenUp(QueueState.GIVEN_UP, INTERNAL))
        except StoreError as error:
            _log.error("row %d of the queue: %s", row.number, error)
            bag.put_back(self._book.later(row, INTERNAL))
        except Exception:
            _log.exception("row %d of the queue broke its delivery", row.number)
            await hand.drop()
            await self._book.fault(bag, row)

    async def _deliver(self, bag: Bag, row: Waiting, hand: "_Connection") -> None:
        entry = await self._book.entry_of(row)
        if entry is None:
            await self._book.close(row, GivenUp(QueueState.GIVEN_UP, INTERNAL))
            return
        if bag.put_behind(row, names_of(row, entry)):
            return
        if not await self._connect(bag, hand):
            if bag.workers > 1 or self.is_crowded(bag):
                # The target takes no further connection, and the others go on.
                hand.unwanted = True
                bag.put_back(row)
            else:
                await self._not_reached(bag, row)
            return
        remote = hand.remote
        assert remote is not None  # noqa: S101 - it was just connected
        if self._dialer.is_our_own(remote):
            await self._deliver_here(bag, row, Local())
            return
        sending = (row.owner, row.digest, remote.address)
        if sending in self._under_way:
            # Another target of the same user has this server, too: it is told what comes of it.
            bag.put_back(replace(row, due=self._clock() + _SOON))
            return
        self._under_way.add(sending)
        try:
            await self._send(bag, row, entry, hand, remote)
        finally:
            self._under_way.discard(sending)

    async def _send(
        self, bag: Bag, row: Waiting, entry: StoredEntry, hand: "_Connection", remote: RemoteServer
    ) -> None:
        """Hand a block over on a connection that stands, and do what the answer means."""
        try:
            verdicts = await self._dialer.gives_verdicts(remote)
            outcome = await hand_over(remote, _parcel(row, entry), verdicts=verdicts)
        except NetworkError as error:
            await self._broken_off(bag, row, hand, remote.address, error)
            return
        self._routes.answered(remote.address)
        if isinstance(outcome, TryLater) and outcome.code == FAILED:
            # An original does so with what it dislikes: that block is set aside, never the bag.
            await hand.drop()
            await self._try_another(bag, row, remote.address, FAILED)
            return
        self._routes.worked(remote.address, self._clock())
        await self._book.conclude(bag, row, outcome, remote.address)

    async def _try_another(self, bag: Bag, row: Waiting, server: ServerAddress, code: str) -> None:
        """Set a row aside, but once try another server of its target first."""
        # Who kept us waiting would do so again: only another server is worth trying at once.
        first = row.attempts == 0 and (code != SLOW or len(self.servers(bag)) > 1)
        bag.last_choice = server
        later = self._book.later(row, code)
        await self._book.put_off(bag, replace(later, due=self._clock()) if first else later)

    async def _connect(self, bag: Bag, hand: "_Connection") -> bool:
        """Open a connection to any server of the bag that is not down; tell whether one is."""
        if hand.remote is not None:
            return True
        for server in self._order(bag):
            if self._lines.room(server) <= 0:
                continue
            try:
                await hand.open(server, self._dialer)
            except (ForbiddenTarget, NoWay) as error:
                _log.warning("%s", error)
                bag.forbidden.add(server)
            except NetworkError as error:
                _log.info("%s", error)
                bag.proven = False
                if bag.workers > 1:
                    return False
                self._routes.failed(server, code_of(error), self._clock())
            else:
                bag.proven = True
                self._note(bag)
                return True
        return False

    def is_crowded(self, bag: Bag) -> bool:
        """Tell whether all servers of a bag that are up have as many connections as they may."""
        up = self._routes.order(self.servers(bag))
        return bool(up) and all(self._lines.room(server) <= 0 for server in up)

    def _order(self, bag: Bag) -> list[ServerAddress]:
        """Return whom to try, and last who has just failed this bag."""
        order = self._rules.policy.in_order(self._routes.order(self.servers(bag)))
        return sorted(order, key=lambda server: server == bag.last_choice)

    async def _not_reached(self, bag: Bag, row: Waiting) -> None:
        """Let a bag wait until one of its servers answers again, if any ever may."""
        servers = self.servers(bag)
        if not servers:
            await self._book.close(row, GivenUp(QueueState.GIVEN_UP, Doubt.FORBIDDEN))
            return
        bag.stalled, bag.proven = True, False
        code = self._routes.reason(servers) or EXPIRED
        await self._book.put_off(bag, replace(row, code=code, attempts=row.attempts + 1))

    async def _broken_off(
        self,
        bag: Bag,
        row: Waiting,
        hand: "_Connection",
        server: ServerAddress,
        error: NetworkError,
    ) -> None:
        """Put off the block at which a connection broke; the server may be well."""
        _log.info("%s", error)
        await hand.drop()
        self._routes.broke_off(server, row.owner, row.number, code_of(error), self._clock())
        await self._try_another(bag, row, server, code_of(error))

    async def _deliver_here(self, bag: Bag, row: Waiting, here: Local | Entangled) -> None:
        """Admit a block to this server's own store."""
        entry = await self._book.entry_of(row)
        if entry is None:
            await self._book.close(row, GivenUp(QueueState.GIVEN_UP, INTERNAL))
        elif not bag.put_behind(row, names_of(row, entry)):
            verdict = await self._admit(row, entry, here)
            await self._book.conclude(bag, row, outcome_of(verdict), None)


class _Connection:
    """What one worker holds open, counted among the lines to its server.

    ``unwanted`` if the target takes no connection beside those of other workers.
    """

    def __init__(self, lines: OpenLines) -> None:
        self._lines = lines
        self.remote: RemoteServer | None = None
        self.server: ServerAddress | None = None
        self.unwanted = False

    async def open(self, server: ServerAddress, dialer: Dialer) -> None:
        """Connect to a server; its line is taken while it is dialled."""
        self.server = server
        self._lines.open(server)
        try:
            self.remote = await dialer.connect(server)
        except BaseException:
            self._let_go()
            raise

    async def drop(self) -> None:
        """Let go of a connection that is of no more use."""
        remote = self._let_go()
        if remote is not None:
            await remote.hang_up()

    async def close(self) -> None:
        """End in good order."""
        remote = self._let_go()
        if remote is not None:
            await remote.quit()

    def _let_go(self) -> RemoteServer | None:
        server, self.server = self.server, None
        remote, self.remote = self.remote, None
        if server is not None:
            self._lines.close(server)
        return remote


def _parcel(row: Waiting, entry: StoredEntry) -> Parcel:
    lines = entry.header.decode().split("\r\n")[:-1]
    pending = row.code.partition(" ")[0] in (PENDING, PRICE)
    return Parcel(row.key, row.digest, lines, entry.data, pending)
