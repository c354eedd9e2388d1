"""Limits by source: how much one network may ask for, in tables that cannot grow for ever."""

import ipaddress
from collections import Counter, OrderedDict
from dataclasses import dataclass

# A customer of an IPv6 provider has at least a /64, so that is what counts as one source.
_IPV6_PREFIX = 64
# Sources remembered at a time; who is forgotten early begins with a clean slate.
MAX_SOURCES = 10_000


def source_of(host: str) -> str:
    """Return what the address of a peer is counted under: IPv4 whole, IPv6 by its /64."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), _IPV6_PREFIX), strict=False))


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second in the long run, ``burst`` of them at once."""

    per_second: float
    burst: int


class Allowance:
    """What each source has used of a rate; moments are seconds of one steady clock.

    For each source one number is kept: the moment at which its debt is paid.
    """

    def __init__(self, rate: Rate, max_sources: int = MAX_SOURCES) -> None:
        self._step = 1 / rate.per_second
        self._slack = rate.burst * self._step
        self._max = max_sources
        self._paid_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paid_at)

    def wait(self, source: str, moment: float) -> float:
        """Return for how many seconds the source has to wait; nothing is charged."""
        return max(0.0, self._paid_at.get(source, moment) - moment - self._slack)

    def charge(self, source: str, moment: float, uses: int = 1) -> float:
        """Count a use or several, and return for how long, in seconds, the source has to wait."""
        paid_at = max(self._paid_at.pop(source, moment), moment) + uses * self._step
        self._paid_at[source] = paid_at
        if len(self._paid_at) > self._max:
            self._paid_at.popitem(last=False)
        return max(0.0, paid_at - moment - self._slack)

    def take(self, source: str, moment: float) -> bool:
        """Count a use if there is one left; what is refused leaves no debt behind."""
        paid_at = max(self._paid_at.get(source, moment), moment) + self._step
        return paid_at - moment <= self._slack and self.charge(source, moment) <= 0


class Presence:
    """How many connections are open, in all and from each source."""

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    @property
    def sources(self) -> int:
        """Return how many sources have a connection open."""
        return len(self._open)

    def enter(self, source: str) -> bool:
        """Count a connection in, or refuse it."""
        if self._open.total() >= self._most or self._open[source] >= self._most_of_one:
            return False
        self._open[source] += 1
        return True

    def leave(self, source: str) -> None:
        """Count a connection out."""
        self._open[source] -= 1
        if self._open[source] <= 0:
            del self._open[source]
