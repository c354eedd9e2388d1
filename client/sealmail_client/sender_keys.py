"""Where the key of a sender is sought when mail is read, without telling him that it is.

The server at hand was asked already. What lies behind it is asked by it: the DHT, the servers
that his domain names in DNS, and those that the mail names, which are dialled from here through
SOCKS only.
"""

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar

from sealmail_client.connecting import DnsUse
from sealmail_client.desk import Desk
from sealmail_client.domains import Domains
from sealmail_client.headers import Header, address_in
from sealmail_client.key_sources import (
    GET_PROXY,
    DhtSource,
    DomainSource,
    KeySource,
    ProxiedSource,
    ServerSource,
)
from sealmail_client.posting import Peer
from sealmail_net.errors import NoWay
from sealmail_net.ways import Way
from sealmail_protocol.addresses import ServerAddress, Transport

T = TypeVar("T")


def sources_for_sender(desk: Desk, peer: Peer, header: Header) -> list[KeySource]:
    """Return where else the key of who wrote is sought; ``peer`` is our home server or door."""
    places = _Places(desk, peer)
    sources = places.dht() if desk.settings.dht else []
    sources += places.domain(address_in(header.sender_user_id).rpartition("@")[2])
    if header.sender_transport is not None:
        sources += places.at(header.sender_transport)
    # Two ways to the same place are one question.
    return list({source.name: source for source in sources}.values())


@dataclass(frozen=True, slots=True)
class _Places:
    """The places behind one connected server, each as a source if it can be asked unseen."""

    desk: Desk
    peer: Peer

    def dht(self) -> list[KeySource]:
        """Return the DHT; for one who lives there it is what was asked already."""
        desk = self.desk
        if not desk.settings.has_account:
            return []
        return [DhtSource(desk.servers.in_dht, desk.verifier, desk.clock)]

    def domain(self, domain: str) -> list[KeySource]:
        """Return what DNS names, asked by the home server: name servers may be the sender's."""
        connecting = self.desk.settings.connecting
        if not domain or not self._asks_others or connecting.dns is DnsUse.OFF:
            return []
        by_server = replace(connecting, dns=DnsUse.SERVER, dnssec=False)
        domains = Domains(
            by_server, self.desk.database, self.desk.clock, lambda: nullcontext(self.peer)
        )
        return [DomainSource(domain, domains.servers_of, lambda one, _: self._by_home(one))]

    def at(self, transport: Transport) -> list[KeySource]:
        """Return the servers that somebody names, asked by ours or through SOCKS."""
        desk = self.desk
        if transport.entangled:
            return self.dht()
        if self.peer.server.address in transport.servers:
            here = ServerSource(
                transport, lambda _: nullcontext(self.peer), desk.verifier, desk.clock
            )
            return [] if self.peer.account else [here]
        if self._asks_others:
            return [self._by_home(transport)]
        hidden = tuple(server for server in transport.servers if self._hides_us(server))
        if not hidden:
            return []
        return [ServerSource(Transport(hidden), desk.servers.look_up, desk.verifier, desk.clock)]

    @property
    def _asks_others(self) -> bool:
        return self.peer.account and GET_PROXY in self.peer.capabilities

    def _by_home(self, transport: Transport) -> KeySource:
        desk = self.desk
        if transport.entangled:
            return DhtSource(desk.servers.in_dht, desk.verifier, desk.clock)
        return ProxiedSource(transport, self._at_home, desk.verifier, desk.clock)

    async def _at_home(self, errand: Callable[[Peer], Awaitable[T]]) -> T:
        return await errand(self.peer)

    def _hides_us(self, server: ServerAddress) -> bool:
        try:
            return self.desk.settings.connecting.policy.way_to(server) is not Way.DIRECT
        except NoWay:
            return False
