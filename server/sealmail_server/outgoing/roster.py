"""Who may be sent out: so many workers in all, few of one user, and few for unknown servers.

Whoever serves badly keeps a worker for a minute, and anybody may name such servers. So some
workers are kept for users who have none, and some for servers that are known to work.
"""

from collections import Counter, OrderedDict
from typing import TypeVar

from sealmail_protocol.addresses import ServerAddress
from sealmail_server.outgoing.bags import Bag

T = TypeVar("T")

# Workers in all, of one user, and for targets of which no server is known to work.
MAX_WORKERS = 64
_OF_ONE_USER = 16
_FOR_UNKNOWN = 48
# The last ones of each go only to users who have none there: one user alone could otherwise have
# half of what a few others left, and eight of them all.
_FOR_NEWCOMERS = 16
_FOR_UNKNOWN_OF_NEWCOMERS = 8
# Connections to one server, of all users together.
MAX_LINES = 8


class Roster:
    """Counts workers. The more are out, the fewer one user may have."""

    def __init__(self) -> None:
        self._out: Counter[str] = Counter()
        self._out_for_unknown: Counter[str] = Counter()

    @property
    def all_out(self) -> bool:
        """Whether nobody is left."""
        return self._out.total() >= MAX_WORKERS

    def may_hire(self, owner: str, *, known: bool) -> bool:
        """Tell whether a user may have one more; ``known`` if it is for a server that works."""
        if self._out[owner] >= _OF_ONE_USER:
            return False
        if not _is_left(self._out, owner, MAX_WORKERS, _FOR_NEWCOMERS):
            return False
        unknown = self._out_for_unknown
        return known or _is_left(unknown, owner, _FOR_UNKNOWN, _FOR_UNKNOWN_OF_NEWCOMERS)

    def hire(self, owner: str, *, known: bool) -> None:
        """Count a worker in."""
        self._out[owner] += 1
        if not known:
            self._out_for_unknown[owner] += 1

    def dismiss(self, owner: str, *, known: bool) -> None:
        """Count a worker out."""
        _count_out(self._out, owner)
        if not known:
            _count_out(self._out_for_unknown, owner)


class OpenLines:
    """Counts connections to each server, and keeps those bags in order that wait for one."""

    def __init__(self) -> None:
        self._open: Counter[ServerAddress] = Counter()
        self._waiting: dict[ServerAddress, OrderedDict[Bag, None]] = {}

    def room(self, server: ServerAddress) -> int:
        """Return how many more connections there may be."""
        return MAX_LINES - self._open[server]

    def open(self, server: ServerAddress) -> None:
        """Count a connection in."""
        self._open[server] += 1

    def close(self, server: ServerAddress) -> None:
        """Count a connection out."""
        _count_out(self._open, server)

    def wait(self, bag: Bag, server: ServerAddress) -> None:
        """Put a bag behind those that wait for a server."""
        self._waiting.setdefault(server, OrderedDict())[bag] = None

    def waited_for(self, server: ServerAddress) -> bool:
        """Tell whether a bag waits for a server."""
        return server in self._waiting

    def next_bags(self) -> list[Bag]:
        """Take out the bags whose turn has come: as many as there is room for."""
        found: list[Bag] = []
        for server, bags in tuple(self._waiting.items()):
            for _ in range(min(len(bags), self.room(server))):
                found.append(bags.popitem(last=False)[0])
            if not bags:
                del self._waiting[server]
        return found


def _is_left(out: Counter[str], owner: str, most: int, for_newcomers: int) -> bool:
    """Tell whether a user may have one more of ``most``: half of what is left, if he has any."""
    count, total = out[owner], out.total()
    return total < most if not count else total + max(count, for_newcomers) < most


def _count_out(counter: "Counter[T]", key: T) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]
