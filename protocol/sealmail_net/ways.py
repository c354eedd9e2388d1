"""Which way leads to a server: direct, through Tor or I2P, or none. Pure rules, no connection.

A server has one way or none, so that nothing falls back: a proxy that fails is an error, never
a reason for a connection that shows who we are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sealmail_net.errors import NoWay
from sealmail_protocol.addresses import Network, ServerAddress


class Way(StrEnum):
    """How a connection gets to a server; pins are kept for each."""

    DIRECT = "direct"
    EXIT = "exit"  # through Tor to a public address, past an exit that may tamper
    TOR = "tor"  # to an onion service
    I2P = "i2p"


_NEEDED = {Way.TOR: "Tor", Way.EXIT: "Tor", Way.I2P: "I2P"}
_NETWORK_WAYS = {Network.TOR: Way.TOR, Network.I2P: Way.I2P}


@dataclass(frozen=True, slots=True)
class ProxyPolicy:
    """What the user or operator allows; ``direct=False`` is an anonymous one.

    ``use_exit_node`` sends everything for public addresses through Tor. Proxies are named by IP
    address: looking up the name of one would already be a question to the open network.
    """

    tor: ServerAddress | None = None
    i2p: ServerAddress | None = None
    direct: bool = True
    use_exit_node: bool = False
    preferred: Network = Network.DIRECT

    def __post_init__(self) -> None:
        for proxy in (self.tor, self.i2p):
            if proxy is not None and proxy.literal is None:
                raise ValueError(f"{proxy}: a proxy is named by its IP address")
        if self.use_exit_node and self.tor is None:
            raise ValueError("exit nodes are reached by the Tor proxy, and none is named")
        if not self.direct and self.tor is None and self.i2p is None:
            raise ValueError("without direct connections a Tor or I2P proxy is needed")

    def way_to(self, address: ServerAddress) -> Way:
        """Return the one way to a server; ``NoWay`` if this policy has none."""
        way = _NETWORK_WAYS.get(address.network) or self._way_to_public()
        if way is None:
            raise NoWay(
                address,
                "it is on the open network, where an anonymous connection would need an exit "
                "node, and those are not allowed",
            )
        if way is not Way.DIRECT and self.proxy_for(way) is None:
            network = _NEEDED[way]
            raise NoWay(address, f"it lives in {network}, and no proxy to {network} is configured")
        return way

    def proxy_for(self, way: Way) -> ServerAddress | None:
        """Return the SOCKS proxy of a way, if it is configured; the direct way has none."""
        proxies = {Way.TOR: self.tor, Way.EXIT: self.tor, Way.I2P: self.i2p}
        return proxies.get(way)

    def leads_to_any(self, addresses: Iterable[ServerAddress]) -> bool:
        """Return whether one of these servers can be reached as things are configured."""
        return any(self._rank(address) is not None for address in addresses)

    def in_order(self, addresses: Iterable[ServerAddress]) -> list[ServerAddress]:
        """Return the preferred network first, exits and what has no way at the end."""
        return [one for rank in self.in_ranks(addresses) for one in rank]

    def in_ranks(self, addresses: Iterable[ServerAddress]) -> list[list[ServerAddress]]:
        """Return the same by ranks: one is of use only when nobody of those before it serves."""
        ranks: dict[int, list[ServerAddress]] = {}
        for address in addresses:
            ranks.setdefault(_or(self._rank(address), len(Way) + 1), []).append(address)
        return [ranks[rank] for rank in sorted(ranks)]

    def _rank(self, address: ServerAddress) -> int | None:
        try:
            way = self.way_to(address)
        except NoWay:
            return None
        if way is Way.EXIT:
            return len(Way)
        if address.network is self.preferred:
            return -1
        return tuple(Way).index(way)

    def _way_to_public(self) -> Way | None:
        if self.use_exit_node:
            return Way.EXIT
        return Way.DIRECT if self.direct else None


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


DIRECT_ONLY = ProxyPolicy()
