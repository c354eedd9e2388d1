"""How many servers that we do not know one user may have us dial.

More would make us a scanner of other people's hosts.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

from sealmail_protocol.addresses import ServerAddress
from sealmail_server.outgoing.routes import Routes
from sealmail_server.outgoing.targets import OwnServers
from sealmail_server.sources import Allowance, Rate

# A mail to some hundred strangers at once, and as many an hour.
_NEW_SERVERS = Rate(per_second=512 / 3600, burst=512)
# Users and servers remembered at a time: who names the same one again is not charged twice.
_REMEMBERED = 10_000


class Strangers:
    """Charges users for servers that have taken nothing from us yet."""

    def __init__(self, routes: Routes, own: OwnServers, steady_clock: Callable[[], float]) -> None:
        self._routes = routes
        self._own = own
        self._steady_clock = steady_clock
        self._allowance = Allowance(_NEW_SERVERS)
        self._charged: OrderedDict[tuple[str, ServerAddress], None] = OrderedDict()

    def may_dial(self, owner: str, servers: Iterable[ServerAddress]) -> bool:
        """Charge a user for those of the servers that are new; ``False`` if it is too many."""
        own, moment = self._own(), self._steady_clock()
        new = {
            each
            for each in servers
            if not (self._routes.is_known(each) or each in own or (owner, each) in self._charged)
        }
        if new and self._allowance.wait(owner, moment) > 0:
            return False
        for each in new:
            self._allowance.charge(owner, moment)
            self._charged[owner, each] = None
            if len(self._charged) > _REMEMBERED:
                self._charged.popitem(last=False)
        return True
