"""Where keys are sought: one interface for every kind of place, and a search over several.

A server is a source, and a domain that names servers in DNS, and the DHT. Whatever comes later is
one more class with a name and two questions; nothing else has to know.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from sealmail_client.domain_names import vouches_for
from sealmail_client.domains import DomainServers
from sealmail_client.key_lookup import FoundKey, KeyLookup
from sealmail_client.posting import Peer
from sealmail_net.errors import NetworkError, NoServerReached, NotOffered
from sealmail_protocol.addresses import ServerAddress, Transport
from sealmail_protocol.commands import GetProxy
from sealmail_protocol.keys import BlockKey, KeyId
from sealmail_verify import Verifier

GET_PROXY = "GET-PROXY"
# How the names of domains begin, to tell them from transports where a name is all that is kept.
DNS_PREFIX = "dns "


@dataclass(frozen=True, slots=True)
class Answer:
    """What a source knows: keys that hold in themselves, and why others were left out.

    ``vouched``: the keys came in a session whose certificate speaks for the domain of the address.
    """

    keys: tuple[FoundKey, ...] = ()
    doubts: tuple[str, ...] = ()
    vouched: bool = False


class KeySource(Protocol):
    """A place where keys are sought; it checks every signature of what it hands on."""

    @property
    def name(self) -> str:
        """What the user calls it, and what is kept beside a key that was seen there."""
        ...

    async def by_address(self, address: str) -> Answer:
        """Return the keys with a valid claim to ``address``; ``NetworkError`` if unreachable."""
        ...

    async def by_key_id(self, key_id: KeyId) -> Answer:
        """Return the key ``key_id`` if it is there; ``NetworkError`` if unreachable."""
        ...


# How to reach one of a group of servers where a changed TLS key stops us.
LookUp = Callable[[Sequence[ServerAddress]], AbstractAsyncContextManager[Peer]]


@dataclass(frozen=True, slots=True)
class ServerSource:
    """A group of servers, any one of which is asked, without login.

    ``signed``: DNSSEC has proven that the domain asked for names these hosts.
    """

    transport: Transport
    look_up: LookUp
    verifier: Verifier
    clock: Callable[[], datetime]
    signed: bool = False

    @property
    def name(self) -> str:
        """The group as transports are written: ``server=host:port,host:port``."""
        return str(self.transport)

    async def by_address(self, address: str) -> Answer:
        """Ask one server of the group for claims, and for the key of each."""
        async with self.look_up(self.transport.servers) as peer:
            lookup = KeyLookup(peer.server, self.verifier, self.clock())
            keys = await lookup.by_address(address)
            hosts = [server.host for server in self.transport.servers] if self.signed else []
            vouched = vouches_for(peer.server.shown, address.rpartition("@")[2], hosts)
            return Answer(keys, tuple(lookup.doubts), vouched)

    async def by_key_id(self, key_id: KeyId) -> Answer:
        """Ask one server of the group for an announcement."""
        async with self.look_up(self.transport.servers) as peer:
            lookup = KeyLookup(peer.server, self.verifier, self.clock())
            found = await lookup.by_key_id(key_id)
        return Answer((found,) if found is not None else (), tuple(lookup.doubts))


@dataclass(frozen=True, slots=True)
class ByHomeServer:
    """A library behind the home server, which asks a group of servers for us: GET PROXY."""

    home: Peer
    transport: Transport

    @property
    def serves(self) -> bool:
        """Return whether the home server asks others for its users."""
        asks = self.home.account and GET_PROXY in self.home.capabilities
        return asks and not self.transport.entangled

    async def get(self, key: BlockKey, since: datetime | None = None) -> tuple[bytes, ...] | None:
        """Return what the group has; or raise ``NetworkError`` if the home server does not ask."""
        del since  # Of keys and claims there is no old part.
        return await self.home.server.fetch(GetProxy(key, self.transport))


@dataclass(frozen=True, slots=True)
class ProxiedSource:
    """A group of servers that the home server asks, so that they do not see who wants to know."""

    transport: Transport
    at_home: Callable[[Callable[[Peer], Awaitable[Answer]]], Awaitable[Answer]]
    verifier: Verifier
    clock: Callable[[], datetime]

    @property
    def name(self) -> str:
        """The group as transports are written, whoever asks it."""
        return str(self.transport)

    async def by_address(self, address: str) -> Answer:
        """Let the home server ask for claims, and for the key of each."""

        async def errand(peer: Peer) -> Answer:
            lookup = self._lookup(peer)
            return Answer(await lookup.by_address(address), tuple(lookup.doubts))

        return await self.at_home(errand)

    async def by_key_id(self, key_id: KeyId) -> Answer:
        """Let the home server ask for an announcement."""

        async def errand(peer: Peer) -> Answer:
            lookup = self._lookup(peer)
            found = await lookup.by_key_id(key_id)
            return Answer((found,) if found is not None else (), tuple(lookup.doubts))

        return await self.at_home(errand)

    def _lookup(self, peer: Peer) -> KeyLookup:
        library = ByHomeServer(peer, self.transport)
        if not library.serves:
            raise NotOffered(peer.server.address, "it does not ask others for its users")
        return KeyLookup(library, self.verifier, self.clock())


@dataclass(frozen=True, slots=True)
class DhtSource:
    """The DHT; ``in_dht`` is the way into it."""

    in_dht: Callable[[Callable[[Peer], Awaitable[Answer]]], Awaitable[Answer]]
    verifier: Verifier
    clock: Callable[[], datetime]

    @property
    def name(self) -> str:
        """The transport that means the DHT."""
        return str(Transport())

    async def by_address(self, address: str) -> Answer:
        """Look up the claims, and the key of each."""

        async def errand(peer: Peer) -> Answer:
            lookup = KeyLookup(peer, self.verifier, self.clock())
            return Answer(await lookup.by_address(address), tuple(lookup.doubts))

        return await self.in_dht(errand)

    async def by_key_id(self, key_id: KeyId) -> Answer:
        """Look up an announcement."""

        async def errand(peer: Peer) -> Answer:
            lookup = KeyLookup(peer, self.verifier, self.clock())
            found = await lookup.by_key_id(key_id)
            return Answer((found,) if found is not None else (), tuple(lookup.doubts))

        return await self.in_dht(errand)


@dataclass(frozen=True, slots=True)
class DomainSource:
    """The servers that a mail domain names in DNS.

    ``at`` makes the source for a group of them, and is told whether DNSSEC has proven it.
    """

    domain: str
    servers_of: Callable[[str], Awaitable[DomainServers]]
    at: Callable[[Transport, bool], KeySource]

    @property
    def name(self) -> str:
        """The domain, told apart from transports: ``dns example.net``."""
        return f"{DNS_PREFIX}{self.domain}"

    async def by_address(self, address: str) -> Answer:
        """Ask the groups in turn until one has keys that claim ``address``."""
        return await self._ask(lambda source: source.by_address(address))

    async def by_key_id(self, key_id: KeyId) -> Answer:
        """Ask the groups in turn until one has the key ``key_id``."""
        return await self._ask(lambda source: source.by_key_id(key_id))

    async def _ask(self, question: Callable[[KeySource], Awaitable[Answer]]) -> Answer:
        found = await self.servers_of(self.domain)
        answers: list[Answer] = []
        unreached: list[NetworkError] = []
        for transport in found.transports:
            try:
                answers.append(await question(self.at(transport, found.signed)))
            except NetworkError as error:
                unreached.append(error)
                continue
            if answers[-1].keys:
                break
        if unreached and not answers:
            raise NoServerReached([reason for error in unreached for reason in _reasons(error)])
        last = answers[-1] if answers else Answer()
        doubts = [doubt for answer in answers for doubt in answer.doubts]
        if not found.transports:
            doubts.append("DNS names no server for it")
        return Answer(last.keys, (*doubts, *map(str, unreached)), last.vouched)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One source's answer to a question."""

    source: str
    keys: tuple[FoundKey, ...]
    vouched: bool = False


Enough = Callable[[Sighting], bool]


def never(_: Sighting) -> bool:
    """Ask on, to the last source."""
    return False


class KeySearch:
    """Asks sources in their order, and keeps every doubt with the name of its source.

    A source that cannot be reached is a doubt as long as another one answers; its name is in
    ``unreached``, for silence is no answer.
    """

    def __init__(self, sources: Sequence[KeySource]) -> None:
        # Two ways to name the same servers are one source.
        self._sources = tuple({source.name: source for source in sources}.values())
        self.doubts: list[str] = []
        self.unreached: set[str] = set()

    async def by_address(self, address: str, enough: Enough = never) -> tuple[Sighting, ...]:
        """Ask which keys claim ``address``, each source until ``enough`` says so."""
        return await self._ask(lambda source: source.by_address(address), enough)

    async def by_key_id(self, key_id: KeyId, enough: Enough = never) -> tuple[Sighting, ...]:
        """Ask for the key ``key_id``, each source until ``enough`` says so."""
        return await self._ask(lambda source: source.by_key_id(key_id), enough)

    async def _ask(
        self, question: Callable[[KeySource], Awaitable[Answer]], enough: Enough
    ) -> tuple[Sighting, ...]:
        sightings: list[Sighting] = []
        unreached: list[NetworkError] = []
        for source in self._sources:
            try:
                answer = await question(source)
            except NetworkError as error:
                unreached.append(error)
                self.unreached.add(source.name)
                continue
            self.doubts += (f"{source.name}: {doubt}" for doubt in answer.doubts)
            sightings.append(Sighting(source.name, answer.keys, answer.vouched))
            if enough(sightings[-1]):
                break
        if unreached and not sightings:
            raise NoServerReached([reason for error in unreached for reason in _reasons(error)])
        self.doubts += map(str, unreached)
        return tuple(sightings)


def union(sightings: Sequence[Sighting]) -> tuple[FoundKey, ...]:
    """Return every key that was seen once: revoked if anywhere so, else the newest."""
    best: dict[KeyId, FoundKey] = {}
    for sighting in sightings:
        for found in sighting.keys:
            held = best.get(found.key_id)
            if held is None or found.beats(held):
                best[found.key_id] = found
    return tuple(best.values())


def _reasons(error: NetworkError) -> tuple[NetworkError, ...]:
    return error.reasons if isinstance(error, NoServerReached) else (error,)
