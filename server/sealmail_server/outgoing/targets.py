"""Whom a ``Post-To`` line means: this server, the DHT, servers to be dialled, or nobody ever.

What a name resolves to is judged when it is dialled (``sealmail_net.targets``); here is what the
line itself tells.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from sealmail_net.targets import is_public
from sealmail_net.ways import DIRECT_ONLY, ProxyPolicy
from sealmail_protocol.addresses import ServerAddress, Transport

OwnServers = Callable[[], Collection[ServerAddress]]


class Doubt(StrEnum):
    """Why no server of a target may ever be dialled, as a code of QUEUE."""

    ENTANGLED = "entangled"
    FORBIDDEN = "forbidden"
    NETWORK = "network"


@dataclass(frozen=True, slots=True)
class Local:
    """This server, or the partner that has the same users: admission here, no connection."""


@dataclass(frozen=True, slots=True)
class Entangled:
    """The part of the DHT that this server keeps, from which it spreads."""


@dataclass(frozen=True, slots=True)
class Remote:
    """Servers of somebody else, any of which will do."""

    servers: tuple[ServerAddress, ...]


@dataclass(frozen=True, slots=True)
class Never:
    """Nobody whom we could or may reach."""

    doubt: Doubt


Meaning = Local | Entangled | Remote | Never


@dataclass(frozen=True, slots=True)
class TargetRules:
    """What this server is called, and whom it may dial.

    ``own`` gives the addresses of this server and of its partner, which may change; ``policy``
    tells which networks it can reach: names of the others are never asked of DNS. ``dht`` is
    whether it takes part in the DHT.
    """

    own: OwnServers
    allow_private: bool = False
    policy: ProxyPolicy = DIRECT_ONLY
    dht: bool = False

    def judge(self, transport: Transport) -> Meaning:
        """Tell what a line means; of several servers those remain that may be dialled."""
        if transport.entangled:
            return Entangled() if self.dht else Never(Doubt.ENTANGLED)
        own = self.own()
        if any(server in own for server in transport.servers):
            return Local()
        allowed = tuple(server for server in transport.servers if self._may_dial(server))
        if not allowed:
            return Never(Doubt.FORBIDDEN)
        reachable = tuple(server for server in allowed if self.policy.leads_to_any((server,)))
        return Remote(reachable) if reachable else Never(Doubt.NETWORK)

    def _may_dial(self, server: ServerAddress) -> bool:
        literal = server.literal
        return literal is None or self.allow_private or is_public(literal)
