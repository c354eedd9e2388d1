"""What is known of other servers: who is down, who took the last block. Hints, kept in memory.

After Grapevine: a server comes on the list of down ones when it does not accept a connection or
fails during one, and leaves it when it shows signs of life.
"""

import itertools
import random
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from sealmail_protocol.addresses import ServerAddress
from sealmail_server.outgoing.schedule import PROBE_PAUSES, Schedule

T = TypeVar("T")

# Servers remembered at a time; who is forgotten is tried like a new one.
MAX_SERVERS = 10_000
# So many blocks in a row at which connections broke off, of so many users, are no matter of the
# blocks. Of one user alone they may be: he chooses them, and others need the server.
_BREAKS = 3
_OWNERS = 2
# A server is known to work once it has taken so many blocks over such a time and none broke off:
# who takes one and then hangs must not be given more connections for that.
_PROOF_BLOCKS = 3
_PROOF_TIME = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class _Down:
    """A server that failed so many times since it last took anything, and when to look again."""

    failures: int
    look_at: datetime
    reason: str
    alive: bool = False


@dataclass(frozen=True, slots=True)
class _Worked:
    """When a server took blocks, among all deliveries and since the last break."""

    delivery: int
    blocks: int
    since: datetime
    latest: datetime


class Routes:
    """Orders the servers of a target; the caller says how each attempt went."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._schedule = Schedule(PROBE_PAUSES, chance)
        self._failed: OrderedDict[ServerAddress, _Down] = OrderedDict()
        self._worked: OrderedDict[ServerAddress, _Worked] = OrderedDict()
        # The rows in a row that lost a connection to a server, by the user who was sending them.
        self._broken: OrderedDict[ServerAddress, dict[str, set[int]]] = OrderedDict()
        self._deliveries = itertools.count(1)

    def order(self, servers: Iterable[ServerAddress]) -> tuple[ServerAddress, ...]:
        """Return the servers that are not down: who worked last first, the others by chance."""
        usable = [server for server in servers if not self.is_down(server)]
        self._chance.shuffle(usable)
        usable.sort(key=self._last_delivery, reverse=True)
        return tuple(usable)

    def is_down(self, server: ServerAddress) -> bool:
        """Tell whether a server failed and has not shown signs of life since."""
        known = self._failed.get(server)
        return known is not None and not known.alive

    def is_known(self, server: ServerAddress) -> bool:
        """Tell whether a server has taken something from us."""
        return server in self._worked

    def is_proven(self, server: ServerAddress) -> bool:
        """Tell whether a server has taken blocks for a while, and none has broken off since."""
        worked = self._worked.get(server)
        if worked is None or server in self._broken or worked.blocks < _PROOF_BLOCKS:
            return False
        return worked.latest - worked.since >= _PROOF_TIME

    def reason(self, servers: Iterable[ServerAddress]) -> str | None:
        """Return the code of the failure that keeps all of these servers away."""
        reasons = [self._failed[each].reason for each in servers if each in self._failed]
        return reasons[-1] if reasons else None

    def failed(self, server: ServerAddress, reason: str, now: datetime) -> None:
        """Note that a server did not accept a connection, or broke one off."""
        known = self._failed.pop(server, None)
        failures = 1 if known is None else known.failures + 1
        self._failed[server] = _Down(failures, now + self._schedule.pause(failures), reason)
        self._worked.pop(server, None)
        self._broken.pop(server, None)
        _bound(self._failed)

    def broke_off(
        self, server: ServerAddress, owner: str, row: int, reason: str, now: datetime
    ) -> None:
        """Note that a connection broke off at a user's row: the server may be well.

        It is down when that happened at several rows of more than one user; at fewer rows if it
        was down before and has taken nothing since.
        """
        broken = self._broken.setdefault(server, {})
        rows = broken.setdefault(owner, set())
        if len(rows) < _BREAKS:
            rows.add(row)
        _bound(self._broken)
        worked = self._worked.get(server)
        if worked is not None:
            self._worked[server] = replace(worked, blocks=0)
        if self.is_down(server) or len(broken) < _OWNERS:
            return
        if server in self._failed or sum(map(len, broken.values())) >= _BREAKS:
            self.failed(server, reason, now)

    def answered(self, server: ServerAddress) -> None:
        """Note that a server answered for a block, whatever it said."""
        self._broken.pop(server, None)

    def alive(self, server: ServerAddress) -> None:
        """Note that a server that was down answers again: it may be tried, but not yet trusted."""
        known = self._failed.get(server)
        if known is not None:
            self._failed[server] = _Down(known.failures, known.look_at, known.reason, alive=True)

    def worked(self, server: ServerAddress, now: datetime) -> None:
        """Note that a server took a block: it is the first choice for the next one."""
        self._failed.pop(server, None)
        known, delivery = self._worked.get(server), next(self._deliveries)
        if known is None or not known.blocks:
            self._worked[server] = _Worked(delivery, 1, now, now)
        else:
            # A clock that was put back begins anew.
            since = min(known.since, now)
            self._worked[server] = _Worked(delivery, known.blocks + 1, since, now)
        self._worked.move_to_end(server)
        _bound(self._worked)

    def _last_delivery(self, server: ServerAddress) -> int:
        worked = self._worked.get(server)
        return 0 if worked is None else worked.delivery

    def to_look_at(self, now: datetime, wanted: Iterable[ServerAddress]) -> list[ServerAddress]:
        """Return those of ``wanted`` that are down and should be looked at again by now."""
        return [
            server
            for server in wanted
            if self.is_down(server) and self._failed[server].look_at <= now
        ]

    def down(self) -> tuple[ServerAddress, ...]:
        """Return the servers that are down."""
        return tuple(server for server in self._failed if self.is_down(server))


def _bound(table: OrderedDict[ServerAddress, T]) -> None:
    while len(table) > MAX_SERVERS:
        table.popitem(last=False)
